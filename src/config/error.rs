//! Why settings cannot be made, and where the value at fault stands.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use crate::model::code;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line, by this option.
    Flag(&'static str),
    /// This environment variable.
    Variable(String),
    /// The configuration file.
    File {
        /// Which file.
        path: PathBuf,
        /// The line of the key; from 1.
        line: usize,
        /// The key, with its table in front.
        key: String,
    },
}

impl Origin {
    /// The exit code for a bad value from there.
    pub fn code(&self) -> u8 {
        match self {
            Self::Flag(_) => code::USAGE,
            Self::Variable(_) | Self::File { .. } => code::CONFIG,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(option) if option.len() == 1 => write!(f, "-{option}"),
            Self::Flag(option) => write!(f, "--{option}"),
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line, key } => write!(f, "{}:{line}: {key}", path.display()),
        }
    }
}

/// Why settings cannot be made. One line; never repeats a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A value that cannot be used.
    #[error("{origin}: {problem}")]
    Value {
        /// Where it stands.
        origin: Origin,
        /// What is wrong with it.
        problem: String,
    },
    /// The command line as a whole.
    #[error("{0}")]
    Usage(String),
    /// The configuration file as a whole, or one line of it.
    #[error("{path}{line}: {problem}", path = path.display(), line = at(*line))]
    File {
        /// Which file.
        path: PathBuf,
        /// The line at fault, if it is one.
        line: Option<usize>,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no default server: a lock that silently shrinks to one host is worse than none.
    #[error(
        "no lock server configured: --server, DISTLOCK_SERVER or /etc/distlock.toml; \
         --server local for this host only"
    )]
    NoServer,
}

impl ConfigError {
    /// A value that cannot be used.
    pub(super) fn value(origin: &Origin, problem: impl fmt::Display) -> Self {
        Self::Value {
            origin: origin.clone(),
            problem: problem.to_string(),
        }
    }

    /// The exit code: 64 for the command line, 78 for the environment and the file.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => code::USAGE,
            Self::Value { origin, .. } => origin.code(),
            Self::File { .. } | Self::NoServer => code::CONFIG,
        }
    }
}

fn at(line: Option<usize>) -> String {
    line.map(|line| format!(":{line}")).unwrap_or_default()
}
