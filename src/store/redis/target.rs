//! What a URL and the access options say about one server.

use std::path::PathBuf;

use url::Host;

use super::super::{Access, ErrorKind, ServerUrl, StoreError};
#[cfg(feature = "tls")]
use super::tls::TlsSettings;

const DEFAULT_PORT: u16 = 6379;

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Everything that is needed to reach one server and be let in.
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) tls: bool,
    pub(super) database: u32,
    pub(super) user: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
}

impl Target {
    pub(super) fn new(server: &ServerUrl, access: &Access) -> Result<Self, StoreError> {
        let unix = server.scheme() == "redis+unix";
        let place = if unix {
            unix_place(server)?
        } else {
            tcp_place(server)?
        };
        let url = server.url();
        let query = |wanted: &[&str]| {
            url.query_pairs()
                .find(|(key, _)| wanted.contains(&key.as_ref()))
                .map(|(_, value)| value.into_owned())
        };
        let user = Some(url.username()).filter(|user| !user.is_empty());
        let path = if unix {
            ""
        } else {
            url.path().trim_matches('/')
        };
        let database = Some(path.to_owned())
            .filter(|path| !path.is_empty())
            .or_else(|| query(&["db"]));
        Ok(Self {
            place,
            tls: matches!(server.scheme(), "rediss" | "valkeys"),
            database: parse_database(database.as_deref())?,
            user: user
                .map(decode)
                .or_else(|| query(&["user"]))
                .or_else(|| access.user.clone()),
            password: url
                .password()
                .map(decode)
                .or_else(|| query(&["pass", "password"]))
                .or_else(|| access.password.clone()),
            password_file: access.password_file.clone(),
        })
    }

    /// What TLS needs, if the URL asks for it.
    #[cfg(feature = "tls")]
    pub(super) fn tls_settings(&self, access: &Access) -> Result<Option<TlsSettings>, StoreError> {
        match &self.place {
            Place::Tcp { host, .. } if self.tls => TlsSettings::new(host, access).map(Some),
            _ => Ok(None),
        }
    }

    /// The password as it is now; reads the password file, if that is where it is.
    pub(super) fn password(&self) -> Result<Option<String>, StoreError> {
        let (None, Some(file)) = (&self.password, &self.password_file) else {
            return Ok(self.password.clone());
        };
        let text = std::fs::read_to_string(file).map_err(|error| {
            StoreError::new(
                ErrorKind::Refused,
                format!(
                    "the password file {} cannot be read: {error}",
                    file.display()
                ),
            )
        })?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        Ok(Some(line.strip_suffix('\r').unwrap_or(line).to_owned()))
    }
}

fn unix_place(server: &ServerUrl) -> Result<Place, StoreError> {
    let path = decode(server.url().path());
    if server.url().has_host() || !path.starts_with('/') {
        return Err(unfit(
            "the path of a Unix socket is absolute: redis+unix:///PATH",
        ));
    }
    Ok(Place::Unix(path.into()))
}

fn tcp_place(server: &ServerUrl) -> Result<Place, StoreError> {
    let host = match server.url().host() {
        Some(Host::Domain(name)) => decode(name),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => String::new(),
    };
    if host.is_empty() {
        return Err(unfit("the URL names no host"));
    }
    let port = server.url().port().unwrap_or(DEFAULT_PORT);
    Ok(Place::Tcp { host, port })
}

fn parse_database(text: Option<&str>) -> Result<u32, StoreError> {
    let Some(text) = text else { return Ok(0) };
    text.parse()
        .map_err(|_| unfit("the database in the URL is not a number"))
}

fn unfit(text: &str) -> StoreError {
    StoreError::new(ErrorKind::Foreign, text)
}

/// Percent-decodes; what is not UTF-8 then is replaced, as browsers do.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |at: usize| tail.get(at).and_then(|&b| char::from(b).to_digit(16));
        let byte = match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, StoreError> {
        Target::new(&url.parse().unwrap(), &Access::default())
    }

    #[test]
    fn urls_say_place_database_and_who_we_are() {
        let plain = target("redis://locks.example").unwrap();
        let host = "locks.example".to_owned();
        assert_eq!(plain.place, Place::Tcp { host, port: 6379 });
        assert_eq!((plain.tls, plain.database), (false, 0));
        let full = target("rediss://me:p%40ss@[::1]:6380/2").unwrap();
        let host = "::1".to_owned();
        assert_eq!(full.place, Place::Tcp { host, port: 6380 });
        assert_eq!((full.tls, full.database), (true, 2));
        assert_eq!(full.user.as_deref(), Some("me"));
        assert_eq!(full.password().unwrap().as_deref(), Some("p@ss"));
        let unix = target("redis+unix:///run/r%20s.sock?db=3&user=u&pass=p").unwrap();
        assert_eq!(unix.place, Place::Unix("/run/r s.sock".into()));
        assert_eq!((unix.database, unix.user.as_deref()), (3, Some("u")));
        assert_eq!(unix.password().unwrap().as_deref(), Some("p"));
    }

    #[test]
    fn unusable_urls_are_refused() {
        for url in [
            "redis:///0",
            "redis://h/x",
            "redis+unix://host/x",
            "redis+unix:relative",
        ] {
            assert_eq!(
                target(url).err().map(|e| e.kind),
                Some(ErrorKind::Foreign),
                "{url}"
            );
        }
    }
}
