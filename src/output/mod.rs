//! The only place that prints.

pub mod message;
pub mod show;
pub mod words;

use std::io::{self, BufRead as _, ErrorKind, IsTerminal as _, Read as _, Write as _};

/// Writes to stdout. A reader that has gone away did not want to read it: no error.
///
/// # Errors
/// It could not be written (a full disk).
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes one line of ours to stderr; in one piece, so that lines of several processes do not mix.
pub fn complain(name: Option<&str>, text: &str) {
    let line = match name {
        Some(name) => format!("distlock: {name}: {text}\n"),
        None => format!("distlock: {text}\n"),
    };
    // There is nobody left to tell.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Whether what [`print()`] writes goes to a terminal.
pub fn is_shown() -> bool {
    io::stdout().is_terminal()
}

/// Whether there is somebody to [`ask`].
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks on the terminal. Anything but a yes is a no.
pub fn ask(question: &str) -> bool {
    let mut stderr = io::stderr();
    let asked = stderr.write_all(format!("{question} [y/N] ").as_bytes());
    let mut answer = String::new();
    // More than a line of a terminal can have.
    let heard = io::stdin().lock().take(4096).read_line(&mut answer);
    let yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    asked.is_ok() && heard.is_ok() && yes
}
