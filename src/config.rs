//! Flags, environment and file become settings; every cross-check is here.

mod access;
mod bounds;
mod environment;
mod error;
mod file;
mod keys;
mod run;
mod sources;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli;
use crate::model::{HolderId, Leftovers, LockKey, LockName, OnLost, RawKey, Ttl, Wait};
use crate::store::{Access, ServerUrl};

pub use self::environment::Environment;
pub use self::error::{ConfigError, Origin};
pub use self::keys::{KEYS, Key, Place};
pub use self::run::run_settings;
use self::sources::Sources;

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
    /// What works but should be said, one line each.
    pub warnings: Vec<String>,
}

/// A lock that is asked about, and where it lives.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which lock.
    pub key: LockKey,
    /// How to reach it.
    pub connection: Connection,
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

/// The connection of a subcommand that names no lock.
///
/// # Errors
/// A value that cannot be used, or no server.
pub fn connection(
    flags: &cli::Connection,
    environment: &Environment,
) -> Result<Connection, ConfigError> {
    Sources::load(flags.config.as_deref(), environment)?.connection(flags)
}

/// The lock of a subcommand that names one, with its connection: a lock's table in the file may
/// have its own.
///
/// # Errors
/// A name or another value that cannot be used, or no server.
pub fn target(
    name: &str,
    raw_key: Option<&str>,
    flags: &cli::Connection,
    environment: &Environment,
) -> Result<Target, ConfigError> {
    let name = lock_name(name)?;
    Sources::load(flags.config.as_deref(), environment)?.target(name, raw_key, flags)
}

/// The same for several.
///
/// # Errors
/// A name or another value that cannot be used, or no server.
pub fn targets(
    names: &[String],
    raw_key: Option<&str>,
    flags: &cli::Connection,
    environment: &Environment,
) -> Result<Vec<Target>, ConfigError> {
    if raw_key.is_some() && names.len() > 1 {
        let problem = "goes with one NAME only";
        return Err(ConfigError::value(&Origin::Flag("raw-key"), problem));
    }
    let names = names.iter().map(|name| lock_name(name));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let mut sources = Sources::load(flags.config.as_deref(), environment)?;
    let target = |name| sources.target(name, raw_key, flags);
    names.into_iter().map(target).collect()
}

fn lock_name(text: &str) -> Result<LockName, ConfigError> {
    text.parse::<LockName>()
        .map_err(|e| ConfigError::Usage(format!("{:?}: {e}", crate::model::escape(text, 60))))
}

/// Whether locks there have no TTL and end with a descriptor.
fn is_of_this_host(server: &ServerUrl) -> bool {
    matches!(server.scheme(), "file" | "local")
}

impl Sources<'_> {
    fn target(
        &mut self,
        name: LockName,
        raw_key: Option<&str>,
        flags: &cli::Connection,
    ) -> Result<Target, ConfigError> {
        self.look_at(Some(&name));
        let connection = self.connection(flags)?;
        let raw = self.raw_key(raw_key, &connection.server)?;
        Ok(Target {
            key: LockKey { name, raw },
            connection,
        })
    }

    fn raw_key(
        &self,
        flag: Option<&str>,
        server: &ServerUrl,
    ) -> Result<Option<RawKey>, ConfigError> {
        let Some(raw) = self.pick("raw-key", flag, str::parse::<RawKey>)? else {
            return Ok(None);
        };
        if is_of_this_host(server) {
            let problem = format!("{server} has no keys; it is for lock servers");
            return Err(ConfigError::value(&raw.origin, problem));
        }
        Ok(Some(raw.value))
    }
}
