//! The table of all settings that have a key in the file, and how the text of each is read.

use std::str::FromStr as _;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::Wait;
use crate::cli;
use crate::model::{DurationError, LockName, RawKey, Ttl, parse_duration};
use crate::store::ServerUrl;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its key in the file, and its option.
    pub name: &'static str,
    pub(super) kind: Kind,
    /// Whether it has a `DISTLOCK_*` variable.
    pub variable: bool,
    /// Where in the file it may stand.
    pub place: Place,
}

/// Where in the file a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the top and in the table of a lock.
    Anywhere,
    /// At the top only.
    Top,
    /// In the table of a lock only.
    Lock,
}

/// What a value must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Name,
    RawKey,
    Length,
    ConnectTimeout,
    Ttl,
    Wait,
    Switch,
    ExitCode,
    Signal,
    Choice(&'static [&'static str]),
    Server,
}

/// Every setting.
pub const KEYS: &[Key] = &[
    quiet("name", Kind::Name, Place::Top),
    key("ttl", Kind::Ttl),
    key("nonblock", Kind::Switch),
    key("wait", Kind::Wait),
    key("conflict-exit-code", Kind::ExitCode),
    key("max-runtime", Kind::Length),
    key("signal", Kind::Signal),
    key("kill-after", Kind::Length),
    key("on-lost", Kind::Choice(&cli::ON_LOST)),
    key("lost-grace", Kind::Length),
    key("leftovers", Kind::Choice(&cli::LEFTOVERS)),
    key("preserve-status", Kind::Switch),
    key("hold-at-least", Kind::Length),
    key("jitter", Kind::Length),
    quiet("c", Kind::Text, Place::Anywhere),
    quiet("reason", Kind::Text, Place::Anywhere),
    quiet("raw-key", Kind::RawKey, Place::Lock),
    key("strict-release", Kind::Switch),
    quiet("report", Kind::Text, Place::Anywhere),
    key("quiet", Kind::Switch),
    key("verbose", Kind::Switch),
    key("log-format", Kind::Choice(&cli::LOG_FORMATS)),
    key("server", Kind::Server),
    key("user", Kind::Text),
    key("password-file", Kind::Text),
    key("cacert", Kind::Text),
    key("cert", Kind::Text),
    key("key", Kind::Text),
    key("insecure", Kind::Switch),
    key("connect-timeout", Kind::ConnectTimeout),
];

const fn key(name: &'static str, kind: Kind) -> Key {
    Key {
        name,
        kind,
        variable: true,
        place: Place::Anywhere,
    }
}

/// A key without a variable.
const fn quiet(name: &'static str, kind: Kind, place: Place) -> Key {
    Key {
        name,
        kind,
        variable: false,
        place,
    }
}

impl Key {
    /// Its environment variable, if it has one.
    pub fn variable(&self) -> Option<String> {
        self.variable.then(|| variable(self.name))
    }
}

/// `DISTLOCK_KILL_AFTER` for `kill-after`.
pub(super) fn variable(name: &str) -> String {
    let mut variable = String::from("DISTLOCK_");
    variable.extend(name.chars().map(|c| match c {
        '-' => '_',
        c => c.to_ascii_uppercase(),
    }));
    variable
}

/// Whether `text` can be a value of this kind, so that a mistake in the file is found when the
/// file is read and not in the night when that lock is needed.
pub(super) fn check(kind: Kind, text: &str) -> Result<(), String> {
    match kind {
        Kind::Text => plain(text).map(drop),
        Kind::Name => LockName::from_str(text).map(drop).map_err(said),
        Kind::RawKey => RawKey::from_str(text).map(drop).map_err(said),
        Kind::Length => parse_duration(text).map(drop).map_err(said),
        Kind::ConnectTimeout => connect_timeout(text).map(drop),
        Kind::Ttl => ttl(text).map(drop),
        Kind::Wait => wait(text).map(drop),
        Kind::Switch => switch(text).map(drop),
        Kind::ExitCode => exit_code(text).map(drop),
        Kind::Signal => signal(text).map(drop),
        Kind::Choice(words) => choice(text, words).map(drop),
        Kind::Server => server(text).map(drop),
    }
}

fn said(error: impl std::error::Error) -> String {
    error.to_string()
}

pub(super) fn plain(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("is empty".into()),
        _ if text.contains('\0') => Err("contains a NUL character".into()),
        _ => Ok(text.to_owned()),
    }
}

pub(super) fn length(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(said)
}

pub(super) fn ttl(text: &str) -> Result<Ttl, String> {
    let as_written = |error| match error {
        DurationError::Range { least, most, .. } => DurationError::Range {
            text: text.to_owned(),
            least,
            most,
        },
        form @ DurationError::Form(_) => form,
    };
    parse_duration(text)
        .and_then(Ttl::new)
        .map_err(|error| said(as_written(error)))
}

pub(super) fn connect_timeout(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_millis(10), Duration::from_secs(3600));
    match parse_duration(text) {
        Ok(length) if !(least..=most).contains(&length) => Err(said(DurationError::Range {
            text: text.to_owned(),
            least,
            most,
        })),
        other => other.map_err(said),
    }
}

pub(super) fn wait(text: &str) -> Result<Wait, String> {
    if text == cli::FOREVER {
        return Ok(Wait::Forever);
    }
    match parse_duration(text) {
        Ok(Duration::ZERO) => Ok(Wait::No),
        Ok(length) => Ok(Wait::For(length)),
        Err(error) => Err(said(error)),
    }
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

pub(super) fn exit_code(text: &str) -> Result<u8, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an exit code: from 0 to 255"))
}

/// `TERM`, `SIGTERM` or `15`; real-time signals by number.
pub(super) fn signal(text: &str) -> Result<i32, String> {
    let unknown = || format!("{text:?} is not a signal: write TERM, SIGTERM or 15");
    if let Ok(number) = text.parse::<i32>() {
        let known = Signal::try_from(number).is_ok() || (32..=64).contains(&number);
        return if known { Ok(number) } else { Err(unknown()) };
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    Signal::from_str(&format!("SIG{name}"))
        .map(|signal| signal as i32)
        .map_err(|_| unknown())
}

pub(super) fn choice<'w>(text: &str, words: &[&'w str]) -> Result<&'w str, String> {
    words
        .iter()
        .copied()
        .find(|&word| word == text)
        .ok_or_else(|| format!("{text:?} is not one of: {}", words.join(", ")))
}

/// The error never repeats the text, which may hold a password.
pub(super) fn server(text: &str) -> Result<ServerUrl, String> {
    if text.split_whitespace().nth(1).is_some() {
        return Err("one server only; several are not supported yet".into());
    }
    text.trim().parse().map_err(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_by_name_and_number() {
        for text in ["TERM", "SIGTERM", "15", "term", "sigterm"] {
            assert_eq!(signal(text), Ok(15));
        }
        assert_eq!(signal("USR1"), Ok(10));
        assert_eq!(signal("40"), Ok(40));
        for text in ["", "0", "-15", "65", "SIG", "SIGSIGTERM", "FOO"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wait_of_zero_is_no_wait() {
        assert_eq!(wait("0"), Ok(Wait::No));
        assert_eq!(wait("0ms"), Ok(Wait::No));
        assert_eq!(wait("forever"), Ok(Wait::Forever));
        assert_eq!(wait("90"), Ok(Wait::For(Duration::from_secs(90))));
    }

    #[test]
    fn switches_take_the_usual_words() {
        for text in ["true", "YES", "on", "1"] {
            assert_eq!(switch(text), Ok(true));
        }
        for text in ["False", "no", "off", "0"] {
            assert_eq!(switch(text), Ok(false));
        }
        assert!(switch("2").is_err());
    }

    #[test]
    fn durations_out_of_range_say_the_range_and_what_was_written() {
        assert_eq!(
            ttl("0.5").unwrap_err(),
            "\"0.5\" is out of range: from 1s to 1d"
        );
        assert_eq!(
            connect_timeout("0").unwrap_err(),
            "\"0\" is out of range: from 10ms to 1h"
        );
    }

    #[test]
    fn variables_are_named_after_the_options() {
        assert_eq!(variable("kill-after"), "DISTLOCK_KILL_AFTER");
        assert!(
            KEYS.iter()
                .all(|key| key.variable().is_none_or(|v| v.starts_with("DISTLOCK_")))
        );
    }
}
