//! The settings of `distlock run`.

use std::ffi::OsString;
use std::time::Duration;

use super::error::{ConfigError, Origin};
use super::sources::{Found, Level, Sources};
use super::{
    Environment, Leftovers, Logging, OnLost, RunSettings, Verbosity, Wait, access, bounds,
    is_of_this_host, keys, lock_name,
};
use crate::cli;
use crate::model::{LockKey, LockName, Ttl, human, parse_duration};
use crate::session::fits;

const TTL: Duration = Duration::from_secs(60);
const SHORT_TTL: Duration = Duration::from_secs(5);
const LOST_GRACE: Duration = Duration::from_secs(1);
const TERM: i32 = 15;

/// Everything that a `run` needs to know.
///
/// # Errors
/// A value that cannot be used, alone or together with another; no name, command or server.
pub fn run_settings(
    flags: &cli::Run,
    environment: &Environment,
) -> Result<RunSettings, ConfigError> {
    forgotten_equals_sign(flags)?;
    let name = flags.name.as_deref().map(lock_name).transpose()?;
    let mut sources = Sources::load(flags.connection.config.as_deref(), environment)?;
    let name = match name {
        Some(name) => name,
        None => sources.name(flags)?,
    };
    sources.look_at(Some(&name));
    sources.run_settings(flags, name)
}

/// `--wait 25m -- COMMAND` waits for ever and runs `25m`: surely not what was meant.
fn forgotten_equals_sign(flags: &cli::Run) -> Result<(), ConfigError> {
    let first = flags.command.first().and_then(|word| word.to_str());
    match (flags.wait.as_deref(), first) {
        (Some(cli::FOREVER), Some(word)) if parse_duration(word).is_ok() => {
            Err(ConfigError::Usage(format!(
                "--wait alone waits for ever, and {word} would be the command: say --wait={word}"
            )))
        }
        _ => Ok(()),
    }
}

/// The timing of a hold, after the cross-checks.
struct Timing {
    ttl: Ttl,
    kill_after: Duration,
    lost_grace: Duration,
    warnings: Vec<String>,
}

impl Sources<'_> {
    fn name(&self, flags: &cli::Run) -> Result<LockName, ConfigError> {
        let name = self.value("name", None, str::parse::<LockName>)?;
        name.ok_or_else(|| {
            let first = flags.command.first().map(|word| word.to_string_lossy());
            let hint = first.map_or(String::new(), |word| {
                let word = crate::model::escape(&word, 40);
                format!(", before the command (which is {word:?} here)")
            });
            ConfigError::Usage(format!("no lock named: say --name NAME{hint}"))
        })
    }

    fn run_settings(&self, flags: &cli::Run, name: LockName) -> Result<RunSettings, ConfigError> {
        let command = self.command(flags)?;
        let connection = self.connection(&flags.connection)?;
        let raw = self.raw_key(flags.raw_key.as_deref(), &connection.server)?;
        let timing = self.timing(flags, is_of_this_host(&connection.server))?;
        let exit_code = flags.conflict_exit_code.as_deref();
        let exit_code = self.value("conflict-exit-code", exit_code, keys::exit_code)?;
        let signal = self.value("signal", flags.signal.as_deref(), keys::signal)?;
        let max_runtime = self.length("max-runtime", flags.max_runtime.as_deref())?;
        Ok(RunSettings {
            key: LockKey { name, raw },
            connection,
            ttl: timing.ttl,
            wait: self.wait(flags)?,
            conflict_exit_code: exit_code.unwrap_or(crate::model::code::HELD),
            max_runtime: Some(max_runtime).filter(|limit| !limit.is_zero()),
            signal: signal.unwrap_or(TERM),
            kill_after: timing.kill_after,
            on_lost: self.on_lost(flags)?,
            lost_grace: timing.lost_grace,
            leftovers: self.leftovers(flags)?,
            preserve_status: self.switch("preserve-status", flags.preserve_status)?,
            hold_at_least: self.length("hold-at-least", flags.hold_at_least.as_deref())?,
            jitter: self.length("jitter", flags.jitter.as_deref())?,
            command,
            reason: self.value("reason", flags.reason.as_deref(), keys::plain)?,
            strict_release: self.switch("strict-release", flags.strict_release)?,
            report: self
                .path("report", flags.report.as_deref())?
                .map(|found| found.value),
            logging: self.logging(flags)?,
            enclosing: access::enclosing(self.environment().get("DISTLOCK_IDS")),
            warnings: timing.warnings,
        })
    }

    /// The command line's command or shell line beats the file's.
    fn command(&self, flags: &cli::Run) -> Result<Vec<OsString>, ConfigError> {
        let shell = |line: OsString| vec!["/bin/sh".into(), "-c".into(), line];
        match &flags.line {
            Some(line) => Ok(shell(line.clone())),
            None if !flags.command.is_empty() => Ok(flags.command.clone()),
            None => match self.value("c", None, keys::plain)? {
                Some(line) => Ok(shell(line.into())),
                None => Err(ConfigError::Usage(
                    "no command: write it after the options, or a shell line with -c".into(),
                )),
            },
        }
    }

    fn length(&self, key: &'static str, flag: Option<&str>) -> Result<Duration, ConfigError> {
        Ok(self.value(key, flag, keys::length)?.unwrap_or_default())
    }

    /// The first place that says anything about waiting decides.
    fn wait(&self, flags: &cli::Run) -> Result<Wait, ConfigError> {
        if let Some(text) = &flags.wait_for {
            return keys::wait(text).map_err(|e| ConfigError::value(&Origin::Flag("w"), e));
        }
        for level in Level::ALL {
            let wait = self.at(level, "wait", flags.wait.as_deref())?;
            let wait = wait.map(|found| found.read(|text| keys::wait(&text)));
            let wait = wait.transpose()?;
            let not = self.is_on(level, "nonblock", flags.nonblock)?;
            match (wait, not) {
                (Some(wait), Some(not)) if wait.value != Wait::No => {
                    return Err(contradiction(&not, &wait.origin));
                }
                (_, Some(_)) => return Ok(Wait::No),
                (Some(wait), None) => return Ok(wait.value),
                (None, None) => {}
            }
        }
        Ok(Wait::No)
    }

    fn logging(&self, flags: &cli::Run) -> Result<Logging, ConfigError> {
        let form = flags.log_format.as_deref();
        let json = |text: &str| keys::choice(text, &cli::LOG_FORMATS).map(|form| form == "json");
        Ok(Logging {
            json: self.value("log-format", form, json)?.unwrap_or(false),
            verbosity: self.verbosity(flags)?,
        })
    }

    fn verbosity(&self, flags: &cli::Run) -> Result<Verbosity, ConfigError> {
        for level in Level::ALL {
            let quiet = self.is_on(level, "quiet", flags.quiet)?;
            let verbose = self.is_on(level, "verbose", flags.verbose)?;
            match (quiet, verbose) {
                (Some(quiet), Some(verbose)) => return Err(contradiction(&quiet, &verbose)),
                (Some(_), None) => return Ok(Verbosity::Quiet),
                (None, Some(_)) => return Ok(Verbosity::Verbose),
                (None, None) => {}
            }
        }
        Ok(Verbosity::Normal)
    }

    /// Where a switch is turned on at this level, if it is.
    fn is_on(
        &self,
        level: Level,
        key: &'static str,
        flag: bool,
    ) -> Result<Option<Origin>, ConfigError> {
        let found = self.at(level, key, flag.then_some("true"))?;
        let found = found.map(|found| found.read(|text| keys::switch(&text)));
        Ok(found
            .transpose()?
            .filter(|found| found.value)
            .map(|found| found.origin))
    }

    fn on_lost(&self, flags: &cli::Run) -> Result<OnLost, ConfigError> {
        let read = |text: &str| {
            keys::choice(text, &cli::ON_LOST).map(|word| match word {
                "warn" => OnLost::Warn,
                _ => OnLost::Stop,
            })
        };
        let how = self.value("on-lost", flags.on_lost.as_deref(), read)?;
        Ok(how.unwrap_or(OnLost::Stop))
    }

    fn leftovers(&self, flags: &cli::Run) -> Result<Leftovers, ConfigError> {
        let read = |text: &str| {
            keys::choice(text, &cli::LEFTOVERS).map(|word| match word {
                "kill" => Leftovers::Kill,
                "ignore" => Leftovers::Ignore,
                _ => Leftovers::Wait,
            })
        };
        let how = self.value("leftovers", flags.leftovers.as_deref(), read)?;
        Ok(how.unwrap_or(Leftovers::Wait))
    }

    fn timing(&self, flags: &cli::Run, of_this_host: bool) -> Result<Timing, ConfigError> {
        let ttl = self.pick("ttl", flags.ttl.as_deref(), keys::ttl)?;
        let length = match &ttl {
            Some(ttl) => ttl.value,
            None => default_ttl()?,
        };
        let kill_after = self.pick("kill-after", flags.kill_after.as_deref(), keys::length)?;
        let grace = match &kill_after {
            Some(found) => found.value,
            None => bounds::default_kill_after(length),
        };
        let mut warnings = Vec::new();
        if !of_this_host {
            room(length, grace, ttl.as_ref(), kill_after.as_ref())?;
            if length.length() < SHORT_TTL {
                warnings.push(format!(
                    "a TTL of {length} leaves little time to a slow server or network"
                ));
            }
        }
        Ok(Timing {
            ttl: length,
            kill_after: grace,
            lost_grace: self.lost_grace(flags, grace)?,
            warnings,
        })
    }

    fn lost_grace(&self, flags: &cli::Run, most: Duration) -> Result<Duration, ConfigError> {
        let grace = self.pick("lost-grace", flags.lost_grace.as_deref(), keys::length)?;
        match grace {
            None => Ok(most.min(LOST_GRACE)),
            Some(grace) if grace.value <= most => Ok(grace.value),
            Some(grace) => {
                let problem = format!(
                    "{} is more than --kill-after, which is {}",
                    human(grace.value),
                    human(most)
                );
                Err(ConfigError::value(&grace.origin, problem))
            }
        }
    }
}

fn default_ttl() -> Result<Ttl, ConfigError> {
    Ttl::new(TTL).map_err(|e| ConfigError::Usage(e.to_string()))
}

/// Refuses a TTL that is too short for the grace. At fault is what came from the most important
/// place: it was added to something that worked.
fn room(
    ttl: Ttl,
    grace: Duration,
    given_ttl: Option<&Found<Ttl>>,
    given_grace: Option<&Found<Duration>>,
) -> Result<(), ConfigError> {
    if fits(ttl, grace) {
        return Ok(());
    }
    let ttl_at = given_ttl.map(|found| (found.level, &found.origin));
    let grace_at = given_grace.map(|found| (found.level, &found.origin));
    let smallest = match bounds::smallest(grace) {
        Some(least) => format!("the smallest TTL that works with it is {}", seconds(least)),
        None => "no TTL works with it".into(),
    };
    let problem = format!(
        "a TTL of {ttl} leaves no time for renewals before a kill-after of {}; {smallest}",
        human(grace)
    );
    let origin = match (ttl_at, grace_at) {
        (Some(ttl), Some(grace)) if grace.0 < ttl.0 => grace.1,
        (Some(ttl), _) => ttl.1,
        (None, Some(grace)) => grace.1,
        (None, None) => return Err(ConfigError::Usage(problem)),
    };
    Err(ConfigError::value(origin, problem))
}

/// Exact, where [`human`] leaves out what is small: this one is meant to be typed.
fn seconds(length: Duration) -> String {
    format!("{}s", length.as_secs())
}

fn contradiction(one: &Origin, other: &Origin) -> ConfigError {
    ConfigError::value(one, format!("contradicts {other}"))
}
