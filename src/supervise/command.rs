//! The command: what it is given, and its fork and exec.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use super::sys::{self, Image};
use crate::model::code;
use crate::store::ServerUrl;

/// Room for any pid in a rewritten variable.
const PID_ROOM: &[u8] = b"4194304 ";

/// The environment variables of ours: those with a value are set, the others removed, over
/// what was inherited.
#[derive(Clone, Debug)]
pub(super) struct Variables(pub(super) Vec<(&'static str, Option<String>)>);

/// A command that was forked.
pub(super) struct Forked {
    pub(super) pid: i32,
    /// Readable when the exec has succeeded (end of file) or failed (an errno).
    pub(super) exec_error: File,
}

/// Forks and executes the command. All signals are blocked; the child restores the caller's mask.
pub(super) fn fork(
    argv: &[OsString],
    variables: &Variables,
    front: i32,
) -> Result<Forked, nix::Error> {
    let keeper = nix::unistd::getpid().as_raw();
    let mut image = image(argv, variables, front);
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    match sys::fork()? {
        None => sys::become_command(&mut image, keeper, write.as_raw_fd()),
        Some(pid) => Ok(Forked {
            pid,
            exec_error: File::from(read),
        }),
    }
}

impl Forked {
    /// Why the exec failed; `None` if it succeeded.
    pub(super) fn exec_error(&mut self) -> Option<i32> {
        let mut errno = [0; 4];
        self.exec_error
            .read_exact(&mut errno)
            .ok()
            .map(|()| i32::from_ne_bytes(errno))
    }
}

/// The exit code of a failed exec, and what is said of it.
pub(super) fn exec_failure(errno: i32) -> (u8, String) {
    let code = if errno == libc::ENOENT {
        code::NOT_FOUND
    } else {
        code::NOT_EXECUTABLE
    };
    let why = match errno {
        libc::ENOENT => "not found (or the interpreter that it names is not)".into(),
        _ => nix::Error::from_raw(errno).desc().to_lowercase(),
    };
    (code, why)
}

/// Whether the command surely does not exist, found before the lock is taken. The verdict of
/// the exec stays the authoritative one.
pub(super) fn is_missing(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return std::fs::metadata(program).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    }
    let path = path_variable();
    !path.split(|&b| b == b':').any(|directory| {
        let directory = if directory.is_empty() {
            Path::new(".")
        } else {
            Path::new(OsStr::from_bytes(directory))
        };
        // What cannot be looked at may exist.
        !std::fs::metadata(directory.join(program)).is_err_and(|e| {
            matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            )
        })
    })
}

/// What only a shell can do.
pub(super) fn is_shell_builtin(program: &OsStr) -> bool {
    const BUILTINS: &[&str] = &[
        ".", ":", "alias", "bg", "cd", "eval", "exec", "exit", "export", "fg", "jobs", "local",
        "readonly", "return", "set", "shift", "source", "times", "trap", "type", "ulimit", "umask",
        "unalias", "unset", "wait",
    ];
    program
        .to_str()
        .is_some_and(|name| BUILTINS.contains(&name))
}

fn path_variable() -> Vec<u8> {
    let found = sys::environment()
        .into_iter()
        .find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="));
    found.unwrap_or(b"/bin:/usr/bin").to_vec()
}

fn image(argv: &[OsString], variables: &Variables, front: i32) -> Image {
    let argv = argv
        .iter()
        .filter_map(|word| CString::new(word.clone().into_vec()).ok())
        .collect();
    let mut envp: Vec<CString> = Vec::new();
    let mut own_pid = Vec::new();
    for entry in sys::environment() {
        let bytes = entry.to_bytes();
        let name = bytes.split(|&b| b == b'=').next().unwrap_or_default();
        if variables.0.iter().any(|(ours, _)| ours.as_bytes() == name)
            || name == b"DISTLOCK_PASSWORD"
        {
            continue;
        }
        let named_us = |variable: &[u8]| {
            name == variable && bytes[name.len()..] == *format!("={front}").as_bytes()
        };
        if named_us(b"LISTEN_PID") || named_us(b"WATCHDOG_PID") {
            own_pid.push(envp.len());
            envp.extend(CString::new([name, b"=", PID_ROOM].concat()));
        } else if name == b"DISTLOCK_SERVER" {
            envp.extend(CString::new(without_passwords(bytes)));
        } else {
            envp.push(entry.to_owned());
        }
    }
    for (name, value) in &variables.0 {
        envp.extend(
            value
                .as_ref()
                .and_then(|value| CString::new(format!("{name}={value}")).ok()),
        );
    }
    Image {
        argv,
        envp,
        own_pid,
    }
}

/// `DISTLOCK_SERVER=…` with the passwords taken out of its URLs.
fn without_passwords(entry: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(entry) else {
        return b"DISTLOCK_SERVER=".to_vec();
    };
    let value = text.strip_prefix("DISTLOCK_SERVER=").unwrap_or_default();
    let urls = value
        .split(' ')
        .map(|word| match word.parse::<ServerUrl>() {
            Ok(url) if url.has_password() => url.without_password(),
            _ => word.to_owned(),
        });
    format!("DISTLOCK_SERVER={}", urls.collect::<Vec<_>>().join(" ")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_taken_out_of_the_servers_in_the_environment() {
        let entry =
            b"DISTLOCK_SERVER=redis://u:secret@a:1/2 redis+unix:///s?pass=secret&db=1 local";
        let shown = String::from_utf8(without_passwords(entry)).unwrap();
        assert_eq!(
            shown,
            "DISTLOCK_SERVER=redis://u@a:1/2 redis+unix:///s?db=1 local"
        );
    }

    #[test]
    fn missing_commands_are_found_out_beforehand() {
        assert!(is_missing(OsStr::new("surely-no-such-command")));
        assert!(is_missing(OsStr::new("/nowhere/at/all")));
        assert!(!is_missing(OsStr::new("sh")));
        assert!(!is_missing(OsStr::new("/bin/sh")));
        assert!(is_shell_builtin(OsStr::new("cd")));
    }
}
