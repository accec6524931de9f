//! The places a value may come from, in their order: flag, environment, the lock's table in the
//! file, the top of the file.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::error::{ConfigError, Origin};
use super::file::{self, File};
use super::keys;
use crate::model::LockName;

/// A place; the first beats the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Flag,
    Variable,
    Lock,
    Top,
}

impl Level {
    pub(super) const ALL: [Self; 4] = [Self::Flag, Self::Variable, Self::Lock, Self::Top];
}

/// A value and where it was found.
#[derive(Clone, Debug)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) level: Level,
    pub(super) origin: Origin,
}

impl<T> Found<T> {
    pub(super) fn read<U, E: Display>(
        self,
        read: impl FnOnce(T) -> Result<U, E>,
    ) -> Result<Found<U>, ConfigError> {
        let value = read(self.value).map_err(|e| ConfigError::value(&self.origin, e))?;
        Ok(Found {
            value,
            level: self.level,
            origin: self.origin,
        })
    }
}

/// Environment and file, seen for one lock.
pub(super) struct Sources<'e> {
    environment: &'e Environment,
    file: Option<File>,
    lock: Option<LockName>,
}

impl<'e> Sources<'e> {
    pub(super) fn load(
        config: Option<&Path>,
        environment: &'e Environment,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            environment,
            file: file::load(config, environment)?,
            lock: None,
        })
    }

    /// From now on the table of this lock counts.
    pub(super) fn look_at(&mut self, lock: Option<&LockName>) {
        self.lock = lock.cloned();
    }

    pub(super) fn environment(&self) -> &'e Environment {
        self.environment
    }

    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// The text of `key` at `level`.
    pub(super) fn at(
        &self,
        level: Level,
        key: &'static str,
        flag: Option<&str>,
    ) -> Result<Option<Found<String>>, ConfigError> {
        let found = match level {
            Level::Flag => flag.map(|text| (text, Origin::Flag(key))),
            Level::Variable => self.variable(key)?,
            Level::Lock => self
                .lock
                .as_ref()
                .and_then(|lock| self.in_file(Some(lock.as_str()), key)),
            Level::Top => self.in_file(None, key),
        };
        Ok(found.map(|(text, origin)| Found {
            value: text.to_owned(),
            level,
            origin,
        }))
    }

    fn variable(&self, key: &str) -> Result<Option<(&str, Origin)>, ConfigError> {
        let known = keys::KEYS.iter().find(|known| known.name == key);
        let Some(name) = known.and_then(keys::Key::variable) else {
            return Ok(None);
        };
        let text = self.environment.text(&name)?;
        Ok(text.map(|text| (text, Origin::Variable(name))))
    }

    fn in_file(&self, lock: Option<&str>, key: &str) -> Option<(&str, Origin)> {
        self.file.as_ref()?.get(lock, key)
    }

    /// The text of `key` from the first place that has it.
    pub(super) fn first(
        &self,
        key: &'static str,
        flag: Option<&str>,
    ) -> Result<Option<Found<String>>, ConfigError> {
        for level in Level::ALL {
            if let Some(found) = self.at(level, key, flag)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The value of `key`, read by `read`.
    pub(super) fn pick<T, E: Display>(
        &self,
        key: &'static str,
        flag: Option<&str>,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<Found<T>>, ConfigError> {
        let found = self.first(key, flag)?;
        found
            .map(|found| found.read(|text| read(&text)))
            .transpose()
    }

    /// The same without where it was found.
    pub(super) fn value<T, E: Display>(
        &self,
        key: &'static str,
        flag: Option<&str>,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ConfigError> {
        Ok(self.pick(key, flag, read)?.map(|found| found.value))
    }

    /// A switch: a flag can only turn it on.
    pub(super) fn switch(&self, key: &'static str, flag: bool) -> Result<bool, ConfigError> {
        let on = self.value(key, flag.then_some("true"), keys::switch)?;
        Ok(on.unwrap_or(false))
    }

    /// A path, made absolute: those in the file are relative to its folder, others to the
    /// current one.
    pub(super) fn path(
        &self,
        key: &'static str,
        flag: Option<&Path>,
    ) -> Result<Option<Found<PathBuf>>, ConfigError> {
        let found = match flag {
            Some(path) => Some(Found {
                value: path.to_owned(),
                level: Level::Flag,
                origin: Origin::Flag(key),
            }),
            None => self.first(key, None)?.map(|found| self.based(found)),
        };
        let absolute = |path: PathBuf| {
            std::path::absolute(path).map_err(|e| format!("cannot be made absolute: {e}"))
        };
        found.map(|found| found.read(absolute)).transpose()
    }

    fn based(&self, found: Found<String>) -> Found<PathBuf> {
        let folder = match found.level {
            Level::Flag | Level::Variable => None,
            Level::Lock | Level::Top => self.file().and_then(Path::parent),
        };
        Found {
            value: folder
                .map_or_else(PathBuf::new, Path::to_owned)
                .join(&found.value),
            level: found.level,
            origin: found.origin,
        }
    }
}
