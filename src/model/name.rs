//! Which lock: its name, and the exact key where a foreign library decides that.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

const MAX_BYTES: usize = 200;

/// The name of a lock: 1 to 200 bytes of UTF-8 without white space, control characters,
/// `{` or `}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(String);

/// Why a text is not the name of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing at all.
    #[error("a lock's name cannot be empty")]
    Empty,
    /// More bytes than the limit.
    #[error("a lock's name has at most {MAX_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// A character that is not allowed.
    #[error("a lock's name cannot contain {0} (no white space, control characters, '{{' or '}}')")]
    Character(String),
}

impl LockName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(NameError::TooLong(text.len()));
        }
        match text
            .chars()
            .find(|&c| c.is_whitespace() || c.is_control() || matches!(c, '{' | '}'))
        {
            Some(' ') => Err(NameError::Character("a blank".into())),
            Some(c) => Err(NameError::Character(format!("{c:?}"))),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The exact key on the server, for a lock shared with a program that uses a lock library.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawKey(String);

impl FromStr for RawKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.len() {
            0 => Err(NameError::Empty),
            1..=512 => Ok(Self(text.to_owned())),
            more => Err(NameError::TooLong(more)),
        }
    }
}

impl RawKey {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a lock lives: under its name, or at a raw key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockKey {
    /// What the lock is called in messages and by the store unless `raw` is given.
    pub name: LockName,
    /// The exact key instead.
    pub raw: Option<RawKey>,
}

impl From<LockName> for LockKey {
    fn from(name: LockName) -> Self {
        Self { name, raw: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_names_are_accepted() {
        for name in [
            "a/b",
            "../x",
            "%d",
            "*",
            "'quoted\"",
            "é",
            ".",
            "-n",
            &"x".repeat(200),
        ] {
            assert_eq!(
                name.parse::<LockName>().map(|n| n.to_string()),
                Ok(name.to_owned())
            );
        }
    }

    #[test]
    fn blanks_controls_braces_empty_and_long_names_are_refused() {
        for name in [
            "",
            "a b",
            "a\nb",
            "a\tb",
            "{a}",
            "a}",
            "\u{7f}",
            "a\u{a0}b",
            "\u{85}",
            &"é".repeat(101),
        ] {
            assert!(name.parse::<LockName>().is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn names_round_trip_and_never_contain_what_is_refused(text in "\\PC{0,220}|[ -~]{0,210}") {
            if let Ok(name) = text.parse::<LockName>() {
                prop_assert_eq!(name.to_string(), text.clone());
                prop_assert_eq!(name.as_str().parse::<LockName>(), Ok(name));
                let refused = text.contains(['{', '}', ' ', '\n']);
                prop_assert!(!refused);
                prop_assert!((1..=200).contains(&text.len()));
            } else {
                let odd = |c: char| c.is_whitespace() || c.is_control() || "{}".contains(c);
                prop_assert!(text.is_empty() || text.len() > 200 || text.contains(odd));
            }
        }
    }
}
