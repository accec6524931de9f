//! The environment, taken once at the start.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, Origin};

/// The variables that matter to us. An empty one counts as unset.
#[derive(Clone)]
pub struct Environment {
    variables: Vec<(OsString, OsString)>,
    system_file: PathBuf,
}

impl Environment {
    /// The environment of this process.
    pub fn of_this_process() -> Self {
        Self::new(std::env::vars_os())
    }

    /// These variables.
    pub fn new<N: Into<OsString>, V: Into<OsString>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .filter(|(name, value)| is_ours(name) && !value.is_empty())
            .collect();
        Self {
            variables,
            system_file: PathBuf::from("/etc/distlock.toml"),
        }
    }

    /// The same with another file than `/etc/distlock.toml`, for tests.
    #[must_use]
    pub fn with_system_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.system_file = path.into();
        self
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_os_str())
    }

    /// The value of a variable that must be text.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, ConfigError> {
        let not_text = || ConfigError::value(&Origin::Variable(name.into()), "is not UTF-8");
        self.get(name)
            .map(|value| value.to_str().ok_or_else(not_text))
            .transpose()
    }

    /// Where the configuration file may be, most important first.
    pub(super) fn config_files(&self) -> impl Iterator<Item = PathBuf> {
        // A relative XDG_CONFIG_HOME is to be ignored, says the base directory specification.
        let absolute = |name| self.get(name).map(Path::new).filter(|p| p.is_absolute());
        let of_user = absolute("XDG_CONFIG_HOME")
            .map(Path::to_owned)
            .or_else(|| absolute("HOME").map(|home| home.join(".config")))
            .map(|folder| folder.join("distlock.toml"));
        of_user.into_iter().chain([self.system_file.clone()])
    }
}

fn is_ours(name: &OsStr) -> bool {
    name == "HOME" || name == "XDG_CONFIG_HOME" || name.as_encoded_bytes().starts_with(b"DISTLOCK_")
}

impl fmt::Debug for Environment {
    /// The names only: the values may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.variables.iter().map(|(name, _)| name);
        f.debug_set().entries(names).finish()
    }
}
