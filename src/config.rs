//! Flags, environment and file become settings; every cross-check is here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::model::{HolderId, Leftovers, LockKey, OnLost, Ttl, Wait};
use crate::store::{Access, ServerUrl};

/// How to reach the lock servers.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Where the locks live.
    pub server: ServerUrl,
    /// How we show ourselves.
    pub access: Access,
    /// The bound of an attempt when acquiring or asking.
    pub connect_timeout: Duration,
    /// The configuration file that was read, for `-v`.
    pub config_file: Option<PathBuf>,
}

/// Everything that a `run` needs to know.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// How to reach the lock servers.
    pub connection: Connection,
    /// Which lock.
    pub key: LockKey,
    /// How long the server keeps it without renewal.
    pub ttl: Ttl,
    /// How long to contend.
    pub wait: Wait,
    /// The exit code for "held by another".
    pub conflict_exit_code: u8,
    /// Stop the command when it has run for so long.
    pub max_runtime: Option<Duration>,
    /// The first signal when we stop the command ourselves.
    pub signal: i32,
    /// The grace between that signal and KILL.
    pub kill_after: Duration,
    /// What to do when the lease is lost.
    pub on_lost: OnLost,
    /// The grace when the lock is definitely lost.
    pub lost_grace: Duration,
    /// Descendants still running when the command has ended.
    pub leftovers: Leftovers,
    /// The command's status instead of 79 or 124.
    pub preserve_status: bool,
    /// The lock stays taken for so long from its acquisition.
    pub hold_at_least: Duration,
    /// A random pause of up to so much before the first attempt.
    pub jitter: Duration,
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Shown to whoever is refused.
    pub reason: Option<String>,
    /// 74 when the command succeeded but the release was not confirmed.
    pub strict_release: bool,
    /// Where one JSON object goes at the end.
    pub report: Option<PathBuf>,
    /// How much is said.
    pub logging: Logging,
    /// The ids of the holds that we run under, from `DISTLOCK_IDS`.
    pub enclosing: Vec<HolderId>,
    /// What is odd about the settings, without being wrong.
    pub warnings: Vec<String>,
}

/// The form and the amount of our lines on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Logging {
    /// JSON lines instead of text.
    pub json: bool,
    /// How much is said.
    pub verbosity: Verbosity,
}

/// How much is said on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    /// No "held by another" and no waiting lines; errors always.
    Quiet,
    /// What an administrator wants to see.
    #[default]
    Normal,
    /// Each step.
    Verbose,
}
