//! The configuration file: found, read, and checked as a whole.

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::Environment;
use super::error::{ConfigError, Origin};
use super::keys::{self, KEYS, Key, Kind, Place};

/// A configuration file that was read.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The lock whose table it stands in; `None` at the top.
    lock: Option<String>,
    key: &'static str,
    text: String,
    line: usize,
}

/// Reads the file that was asked for, or the first one that is there.
pub(super) fn load(
    flag: Option<&Path>,
    environment: &Environment,
) -> Result<Option<File>, ConfigError> {
    if let Some(path) = flag {
        let origin = Origin::Flag("config");
        return demanded(path.to_owned(), &origin).map(Some);
    }
    if let Some(path) = environment.get("DISTLOCK_CONFIG") {
        let origin = Origin::Variable("DISTLOCK_CONFIG".into());
        return demanded(PathBuf::from(path), &origin).map(Some);
    }
    for path in environment.config_files() {
        match fs::read(&path) {
            Ok(bytes) => return File::parse(path, bytes).map(Some),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(e) => return Err(unreadable(path, &e)),
        }
    }
    Ok(None)
}

fn demanded(path: PathBuf, origin: &Origin) -> Result<File, ConfigError> {
    match fs::read(&path) {
        Ok(bytes) => File::parse(path, bytes),
        // The file is at fault and not the call, even if its name stands on the command line.
        Err(e) => Err(ConfigError::File {
            problem: format!("cannot read the file that {origin} names: {e}"),
            path,
            line: None,
        }),
    }
}

fn unreadable(path: PathBuf, error: &std::io::Error) -> ConfigError {
    ConfigError::File {
        path,
        line: None,
        problem: format!("cannot read: {error}"),
    }
}

impl File {
    pub(super) fn parse(path: PathBuf, bytes: Vec<u8>) -> Result<Self, ConfigError> {
        let reader = Reader { path, bytes };
        let entries = reader.entries()?;
        Ok(Self {
            path: reader.path,
            entries,
        })
    }

    /// The value of `key`: in the table of `lock`, or at the top.
    pub(super) fn get(&self, lock: Option<&str>, key: &str) -> Option<(&str, Origin)> {
        let wanted = |entry: &&Entry| entry.key == key && entry.lock.as_deref() == lock;
        let entry = self.entries.iter().find(wanted)?;
        Some((&entry.text, entry.origin(&self.path)))
    }
}

impl Entry {
    fn origin(&self, path: &Path) -> Origin {
        let table = self.lock.as_deref().map(table).unwrap_or_default();
        Origin::File {
            path: path.to_owned(),
            line: self.line,
            key: format!("{table}{}", self.key),
        }
    }
}

fn table(lock: &str) -> String {
    format!("[lock.{}] ", crate::model::escape(lock, 200))
}

/// The file while it is read: what the errors need.
struct Reader {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Reader {
    fn entries(&self) -> Result<Vec<Entry>, ConfigError> {
        let text = std::str::from_utf8(&self.bytes)
            .map_err(|e| self.error(e.valid_up_to(), "is not UTF-8"))?;
        let document = DeTable::parse(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            self.error(at, e.message().trim().replace('\n', ", "))
        })?;
        let mut entries = Vec::new();
        for (key, value) in document.get_ref() {
            if key.get_ref() == "lock" {
                self.locks(value, &mut entries)?;
            } else {
                entries.push(self.entry(None, key.get_ref(), &key.span(), value)?);
            }
        }
        Ok(entries)
    }

    fn locks(
        &self,
        value: &Spanned<DeValue<'_>>,
        entries: &mut Vec<Entry>,
    ) -> Result<(), ConfigError> {
        let wrong = |at: usize, what: &str| {
            let hint = "write one table a lock: [lock.NAME]";
            self.error(at, format!("{what} must be a table; {hint}"))
        };
        let locks = value.get_ref().as_table();
        let locks = locks.ok_or_else(|| wrong(value.span().start, "lock"))?;
        for (name, value) in locks {
            let at = name.span().start;
            let lock = name.get_ref();
            keys::check(Kind::Name, lock)
                .map_err(|problem| self.error(at, format!("{}: {problem}", table(lock).trim())))?;
            let settings = value.get_ref().as_table();
            let settings = settings.ok_or_else(|| wrong(at, &format!("lock.{lock}")))?;
            for (key, value) in settings {
                entries.push(self.entry(Some(lock), key.get_ref(), &key.span(), value)?);
            }
        }
        Ok(())
    }

    fn entry(
        &self,
        lock: Option<&str>,
        key: &str,
        at: &Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Entry, ConfigError> {
        let table = lock.map(table).unwrap_or_default();
        let shown = crate::model::escape(key, 60);
        let error = |problem: String| self.error(at.start, format!("{table}{shown}: {problem}"));
        let known = KEYS.iter().find(|known| known.name == key);
        let known = known.ok_or_else(|| error(unknown(key)))?;
        fits(known, lock).map_err(|problem| error(problem.into()))?;
        let text = text_of(known.kind, value.get_ref()).map_err(error)?;
        keys::check(known.kind, &text).map_err(error)?;
        Ok(Entry {
            lock: lock.map(str::to_owned),
            key: known.name,
            text,
            line: self.line(at.start),
        })
    }

    fn line(&self, at: usize) -> usize {
        let before = &self.bytes[..at.min(self.bytes.len())];
        before.split(|&byte| byte == b'\n').count()
    }

    fn error(&self, at: usize, problem: impl Into<String>) -> ConfigError {
        ConfigError::File {
            path: self.path.clone(),
            line: Some(self.line(at)),
            problem: problem.into(),
        }
    }
}

fn fits(key: &Key, lock: Option<&str>) -> Result<(), &'static str> {
    match (key.place, lock) {
        (Place::Top, Some(_)) => Err("belongs to the top of the file"),
        // One key for all locks would make them one lock.
        (Place::Lock, None) => Err("belongs into the table of a lock: [lock.NAME]"),
        _ => Ok(()),
    }
}

fn unknown(key: &str) -> String {
    let dashed = key.replace('_', "-");
    if key == "password" {
        "unknown key; use password-file, or write the password into server".into()
    } else if KEYS.iter().any(|known| known.name == dashed) {
        format!("unknown key; write {dashed}")
    } else if key == "command" {
        "unknown key; a shell line is c".into()
    } else {
        "unknown key".into()
    }
}

/// The value as the option would take it, if its type is right.
fn text_of(kind: Kind, value: &DeValue<'_>) -> Result<String, String> {
    let wrong = |wanted: &str| Err(format!("must be {wanted}, not {}", article(value)));
    match (kind, value) {
        (Kind::Switch, DeValue::Boolean(on)) => Ok(on.to_string()),
        (Kind::Switch, _) => wrong("true or false"),
        (Kind::Wait, DeValue::Boolean(true)) => Ok(crate::cli::FOREVER.into()),
        (Kind::Wait, DeValue::Boolean(false)) => Ok("0".into()),
        (Kind::ExitCode | Kind::Signal, DeValue::Integer(_))
        | (
            Kind::Length | Kind::ConnectTimeout | Kind::Ttl | Kind::Wait,
            DeValue::Integer(_) | DeValue::Float(_),
        ) => number(value),
        (Kind::ExitCode, _) => wrong("a number"),
        (Kind::Length | Kind::ConnectTimeout | Kind::Ttl, DeValue::String(text)) => {
            Ok(text.to_string())
        }
        (Kind::Length | Kind::ConnectTimeout | Kind::Ttl, _) => {
            wrong("a duration (\"60s\", or a number of seconds)")
        }
        (Kind::Server, DeValue::Array(_)) => {
            Err("one server only; several are not supported yet".into())
        }
        (_, DeValue::String(text)) => Ok(text.to_string()),
        _ => wrong("a string"),
    }
}

fn number(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => Err("must be a decimal number".into()),
    }
}

fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Result<File, ConfigError> {
        File::parse("/f".into(), bytes.to_vec())
    }

    #[test]
    fn a_lock_has_its_own_values_and_their_lines() {
        let file = parse(b"ttl = 90\n\n[lock.'a.b']\nttl = '2m'\nwait = true\n").unwrap();
        assert_eq!(file.get(None, "ttl").unwrap().0, "90");
        let (text, origin) = file.get(Some("a.b"), "ttl").unwrap();
        assert_eq!(
            (text, origin.to_string().as_str()),
            ("2m", "/f:4: [lock.a.b] ttl")
        );
        assert_eq!(
            file.get(Some("a.b"), "wait").unwrap().0,
            crate::cli::FOREVER
        );
        assert!(file.get(Some("a"), "ttl").is_none());
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_line() {
        let error = parse(b"ttl = 1\nuser = '\xff'\n").unwrap_err();
        assert_eq!(error.to_string(), "/f:2: is not UTF-8");
    }

    proptest! {
        #[test]
        fn whatever_stands_in_a_file_is_read_or_refused_in_one_line(
            text in "([a-z-]{1,9}|ttl|server|lock|\\[lock\\.[a-z{ ]*\\])( = ?)?(['\"]?[0-9a-zé.:/@-]*['\"]?|true|\\[\\])\n?.{0,9}",
        ) {
            if let Err(error) = parse(text.as_bytes()) {
                let said = error.to_string();
                prop_assert!(!said.contains('\n') && said.starts_with("/f:"), "{said:?}");
            }
        }
    }
}
