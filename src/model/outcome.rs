//! How a run ended, and the exit code of each end.

use std::fmt;

/// The exit codes of our own; the command's are its own affair.
pub mod code {
    /// The call is wrong.
    pub const USAGE: u8 = 64;
    /// No lock server reachable or usable.
    pub const UNAVAILABLE: u8 = 69;
    /// A bug of ours.
    pub const SOFTWARE: u8 = 70;
    /// Fork, thread or descriptor trouble; the keeper was killed.
    pub const OS: u8 = 71;
    /// `--strict-release`: the command succeeded, the release was not confirmed.
    pub const RELEASE: u8 = 74;
    /// Held by another.
    pub const HELD: u8 = 75;
    /// The server refused us.
    pub const REFUSED: u8 = 77;
    /// Configuration file or environment; the key is something else.
    pub const CONFIG: u8 = 78;
    /// The lease was lost.
    pub const LOST: u8 = 79;
    /// Stopped by `--max-runtime`.
    pub const MAX_RUNTIME: u8 = 124;
    /// Found, but not executable.
    pub const NOT_EXECUTABLE: u8 = 126;
    /// Not found.
    pub const NOT_FOUND: u8 = 127;
}

/// How a process ended, as wait(2) tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandEnd {
    /// It exited with this code.
    Exited(u8),
    /// This signal killed it.
    Killed(i32),
}

impl CommandEnd {
    /// Whether it succeeded.
    pub fn success(self) -> bool {
        self == Self::Exited(0)
    }
}

impl fmt::Display for CommandEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

/// How this process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Exit with this code: one of [`code`], the command's, or `--conflict-exit-code`'s.
    Code(u8),
    /// Die by this signal, as the command did or as we were told to.
    Signal(i32),
}

impl From<CommandEnd> for Outcome {
    fn from(end: CommandEnd) -> Self {
        match end {
            CommandEnd::Exited(code) => Self::Code(code),
            CommandEnd::Killed(signal) => Self::Signal(signal),
        }
    }
}
