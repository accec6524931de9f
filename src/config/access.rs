//! How to reach the lock server: its address, and how we show ourselves.

use std::ffi::OsStr;

use super::Connection;
use super::error::{ConfigError, Origin};
use super::keys;
use super::sources::{Found, Level, Sources};
use crate::cli;
use crate::store::{Access, ServerUrl};

const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

impl Sources<'_> {
    /// The connection for the lock that is looked at.
    pub(super) fn connection(&self, flags: &cli::Connection) -> Result<Connection, ConfigError> {
        let mut server = self.server(&flags.server)?;
        let access = self.access(flags, &mut server)?;
        let timeout = flags.connect_timeout.as_deref();
        let timeout = self.value("connect-timeout", timeout, keys::connect_timeout)?;
        Ok(Connection {
            server: server.value,
            access,
            connect_timeout: timeout.unwrap_or(CONNECT_TIMEOUT),
            config_file: self.file().map(Into::into),
        })
    }

    fn server(&self, flags: &[String]) -> Result<Found<ServerUrl>, ConfigError> {
        let flag = match flags {
            [] => None,
            [one] => Some(one.as_str()),
            _ => {
                let problem = "one server only; several are not supported yet";
                return Err(ConfigError::value(&Origin::Flag("server"), problem));
            }
        };
        let server = self
            .pick("server", flag, keys::server)?
            .ok_or(ConfigError::NoServer)?;
        if server.level == Level::Flag && server.value.has_password() {
            let problem = "a password on the command line shows in ps; use --password-file, \
                DISTLOCK_PASSWORD, DISTLOCK_SERVER or the configuration file";
            return Err(ConfigError::value(&server.origin, problem));
        }
        Ok(server)
    }

    fn access(
        &self,
        flags: &cli::Connection,
        server: &mut Found<ServerUrl>,
    ) -> Result<Access, ConfigError> {
        let file = |key, flag| Ok(self.path(key, flag)?.map(|found| found.value));
        let mut access = Access {
            cacert: file("cacert", flags.cacert.as_deref())?,
            cert: file("cert", flags.cert.as_deref())?,
            key: file("key", flags.key.as_deref())?,
            insecure: self.switch("insecure", flags.insecure)?,
            ..Access::default()
        };
        self.user(flags, server, &mut access)?;
        self.password(flags, server, &mut access)?;
        Ok(access)
    }

    /// User and password of the address count unless they are given at the same or at a more
    /// important place: then they are taken out of the address.
    fn user(
        &self,
        flags: &cli::Connection,
        server: &mut Found<ServerUrl>,
        access: &mut Access,
    ) -> Result<(), ConfigError> {
        let user = self.pick("user", flags.user.as_deref(), keys::plain)?;
        let Some(user) = user else { return Ok(()) };
        let in_address = server.value.has_user();
        if !in_address || user.level <= server.level {
            server.value.remove_user();
            access.user = Some(user.value);
        }
        Ok(())
    }

    fn password(
        &self,
        flags: &cli::Connection,
        server: &mut Found<ServerUrl>,
        access: &mut Access,
    ) -> Result<(), ConfigError> {
        let file = self.path("password-file", flags.password_file.as_deref())?;
        let variable = Origin::Variable("DISTLOCK_PASSWORD".into());
        let password = self.environment().text("DISTLOCK_PASSWORD")?;
        if password.is_some() && file.as_ref().is_some_and(|f| f.level == Level::Variable) {
            let problem = "set together with DISTLOCK_PASSWORD_FILE; keep one of them";
            return Err(ConfigError::value(&variable, problem));
        }
        let file_level = file.as_ref().map(|file| file.level);
        let level = file_level
            .into_iter()
            .chain(password.map(|_| Level::Variable))
            .min();
        let Some(level) = level else { return Ok(()) };
        if server.value.has_password() && server.level < level {
            return Ok(());
        }
        server.value.remove_password();
        if file_level == Some(level) {
            access.password_file = file.map(|file| file.value);
        } else {
            access.password = password.map(str::to_owned);
        }
        Ok(())
    }
}

/// The ids of the holds that we run under: `DISTLOCK_IDS`, with blanks or commas between.
pub(super) fn enclosing(ids: Option<&OsStr>) -> Vec<crate::model::HolderId> {
    let text = ids.map(OsStr::to_string_lossy).unwrap_or_default();
    text.split([' ', ','])
        .filter_map(crate::model::HolderId::parse)
        .collect()
}
