//! The only place that prints.

pub mod message;
pub mod show;
pub mod words;

use std::io::{self, ErrorKind, Write};

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
