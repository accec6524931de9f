//! The address of a lock server, as given by `--server`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use url::Url;

/// Where locks live. Shown without user-info and without a query, which may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    url: Url,
}

/// Why a text is not the address of a lock server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Not a URL.
    #[error("not a server URL ({0}); write redis://HOST:PORT, file:///DIR or local")]
    Form(String),
    /// A scheme that no store has.
    #[error("unknown scheme {0:?}; known are: {known}", known = super::schemes().collect::<Vec<_>>().join(", "))]
    Scheme(String),
}

impl ServerUrl {
    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        self.url.scheme()
    }

    /// The parsed URL; `local:` for the embedded store of this host.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Whether a password stands in it, in the user-info or in the query.
    pub fn has_password(&self) -> bool {
        self.url.password().is_some()
            || self
                .url
                .query_pairs()
                .any(|(key, _)| key == "pass" || key == "password")
    }

    /// Whether a user stands in it.
    pub fn has_user(&self) -> bool {
        !self.url.username().is_empty() || self.url.query_pairs().any(|(key, _)| key == "user")
    }

    /// Takes the password out, because another one counts.
    pub fn remove_password(&mut self) {
        // An address that cannot have user-info has none.
        let _ = self.url.set_password(None);
        self.remove_from_query(&["pass", "password"]);
    }

    /// Takes the user out, because another one counts.
    pub fn remove_user(&mut self) {
        let _ = self.url.set_username("");
        self.remove_from_query(&["user"]);
    }

    /// The address with its user and without its password, to be passed on.
    pub fn without_password(&self) -> String {
        let mut open = self.clone();
        open.remove_password();
        open.url.to_string()
    }

    fn remove_from_query(&mut self, keys: &[&str]) {
        let there = |key: &str| keys.contains(&key);
        if !self.url.query_pairs().any(|(key, _)| there(&key)) {
            return;
        }
        let rest: Vec<(String, String)> = self
            .url
            .query_pairs()
            .filter(|(key, _)| !there(key))
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
            .collect();
        self.url.set_query(None);
        if !rest.is_empty() {
            self.url.query_pairs_mut().extend_pairs(rest);
        }
    }
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        // The text itself is not repeated in the error: it may hold a password.
        let text = if text == "local" { "local:" } else { text };
        let url = Url::parse(text).map_err(|e| UrlError::Form(e.to_string()))?;
        if super::schemes().any(|scheme| scheme == url.scheme()) {
            Ok(Self { url })
        } else {
            Err(UrlError::Scheme(url.scheme().to_owned()))
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scheme() == "local" {
            return f.write_str("local");
        }
        write!(
            f,
            "{}://{}",
            self.url.scheme(),
            self.url.host_str().unwrap_or_default()
        )?;
        if let Some(port) = self.url.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.url.path())
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        let url: ServerUrl = "redis://me:secret@locks.example:6380/2?pass=secret"
            .parse()
            .unwrap();
        assert_eq!(url.to_string(), "redis://locks.example:6380/2");
        assert_eq!(
            format!("{url:?}"),
            "ServerUrl(redis://locks.example:6380/2)"
        );
        assert!(url.has_password());
        let socket: ServerUrl = "redis+unix:///run/r.sock?pass=secret".parse().unwrap();
        assert_eq!(socket.to_string(), "redis+unix:///run/r.sock");
        assert!(socket.has_password());
        assert_eq!("local".parse::<ServerUrl>().unwrap().to_string(), "local");
    }

    #[test]
    fn user_and_password_can_be_taken_out() {
        for text in [
            "redis://me:secret@h:1/2?protocol=resp3",
            "redis+unix:///s?user=me&pass=secret&db=2",
        ] {
            let mut url: ServerUrl = text.parse().unwrap();
            assert!(url.has_password() && url.has_user());
            url.remove_password();
            assert!(!url.has_password() && url.has_user(), "{text}");
            url.remove_user();
            assert!(!url.has_user(), "{text}");
            assert!(!url.url().as_str().contains("secret"));
            assert!(url.url().query().is_some(), "the rest stays");
        }
    }

    #[test]
    fn unknown_schemes_list_the_known_ones() {
        let message = "http://x".parse::<ServerUrl>().unwrap_err().to_string();
        assert!(
            message.contains("redis, ") && message.contains("local"),
            "{message}"
        );
        assert!(
            !"redis//:secret@x"
                .parse::<ServerUrl>()
                .unwrap_err()
                .to_string()
                .contains("secret")
        );
    }
}
