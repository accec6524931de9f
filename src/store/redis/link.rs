//! The way to one server: connects when there is no connection, greets, and asks.

use std::fmt::Write as _;
use std::time::Duration;

use redis::Value;

use super::super::{ErrorKind, StoreError};
use super::connection::{Connection, Failure, Replies};
use super::errors;
use super::keys::Keys;
use super::lookup::{Late, Resolver};
use super::sample::Sample;
use super::script::{self, Dialect};
use super::socket::Socket;
use super::stream::{PlainStream, Stream};
use super::target::{Place, Target};
#[cfg(feature = "tls")]
use super::tls::{TlsSettings, TlsStream};
use super::wait::Attempt;
use crate::clock::{Boot, ServerTime, Stamp};
use crate::model::LockKey;

/// An older reading of the server's clock is taken again.
const SAMPLE_LIFE: Duration = Duration::from_secs(60);

/// The way to one server.
pub(super) struct Link {
    pub(super) target: Target,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<TlsSettings>,
    pub(super) resolver: Resolver,
    pub(super) connection: Option<Connection>,
    pub(super) dialect: Dialect,
    /// The password that was read last.
    pub(super) password: Option<String>,
    /// What we call ourselves.
    pub(super) name: String,
}

/// A script's answer.
pub(super) struct Answer {
    /// Its elements; the first is the status.
    pub(super) items: Vec<Value>,
    /// The first element.
    pub(super) status: i64,
    /// The server's clock when the script ran.
    pub(super) at: ServerTime,
    /// Taken immediately before the first byte of the request was written.
    pub(super) sent: Stamp,
}

impl Link {
    /// A connection that can be used, an old one or a new one.
    pub(super) fn ready(
        &mut self,
        late: Late,
        attempt: &Attempt<'_>,
    ) -> Result<&mut Connection, StoreError> {
        let connection = match self.connection.take().map(Connection::if_quiet) {
            Some(Some(connection)) => connection,
            _ => self.connect(late, attempt)?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Asks for the time.
    pub(super) fn time(&mut self, late: Late, attempt: &Attempt<'_>) -> Result<Sample, StoreError> {
        let connection = self.ready(late, attempt)?;
        let replies = connection.exchange(&redis::cmd("TIME").get_packed_command(), 1, attempt)?;
        let sample = sample(&replies)?;
        connection.sample = Some(sample);
        Ok(sample)
    }

    /// A reading of the server's clock that is fresh enough, made on the present connection.
    pub(super) fn sample(
        &mut self,
        late: Late,
        attempt: &Attempt<'_>,
    ) -> Result<Sample, StoreError> {
        let sample = self.ready(late, attempt)?.sample;
        match sample.filter(|sample| sample.age(Boot::now()) < SAMPLE_LIFE) {
            Some(sample) => Ok(sample),
            None => self.time(late, attempt),
        }
    }

    /// Runs a script on the present connection, in the dialect that the server understands.
    pub(super) fn eval(
        &mut self,
        script: &str,
        key: &LockKey,
        arguments: &[&[u8]],
        attempt: &Attempt<'_>,
    ) -> Result<Answer, Failure> {
        match self.eval_in(self.dialect, script, key, arguments, attempt) {
            Err(failure)
                if self.dialect == Dialect::Flags && script::is_flags_error(&failure.error) =>
            {
                self.dialect = Dialect::Roles;
                self.eval_in(self.dialect, script, key, arguments, attempt)
            }
            other => other,
        }
    }

    fn eval_in(
        &mut self,
        dialect: Dialect,
        script: &str,
        key: &LockKey,
        arguments: &[&[u8]],
        attempt: &Attempt<'_>,
    ) -> Result<Answer, Failure> {
        let Some(connection) = &mut self.connection else {
            return Err(errors::closed().into());
        };
        self.name = client_name(key.name.as_str());
        let mut request = Vec::with_capacity(2048);
        let mut before = 0;
        if connection.name != self.name {
            pack(&["CLIENT", "SETNAME", &self.name], &mut request);
            connection.name.clone_from(&self.name);
            before = 1;
        }
        let keys = Keys::from(key);
        let mut all = vec![keys.lock.as_bytes(), keys.fence.as_bytes()];
        all.extend_from_slice(arguments);
        let count = before + dialect.pack(script, &all, &mut request);
        let mut replies = connection.exchange(&request, count, attempt)?;
        // Whether we may name ourselves does not matter.
        replies.values.drain(..before);
        let items = dialect.unpack(&mut replies.values)?;
        let (Some(status), Some(at)) = (script::integer(items.first()), script::time(items.last()))
        else {
            return Err(Failure {
                error: errors::garbled(),
                in_doubt: true,
            });
        };
        let sent = replies.sent;
        connection.sample = Some(Sample {
            asked: sent.boot,
            answered: replies.answered,
            time: at,
        });
        Ok(Answer {
            items,
            status,
            at,
            sent,
        })
    }

    /// Connects and greets; once more if the password file has another password by now.
    fn connect(&mut self, late: Late, attempt: &Attempt<'_>) -> Result<Connection, StoreError> {
        if self.password.is_none() {
            self.password = self.target.password()?;
        }
        match self.connect_once(late, attempt) {
            Err(refused) if refused.kind == ErrorKind::Refused => {
                let now = self.target.password().unwrap_or(None);
                if now.is_none() || now == self.password {
                    return Err(refused);
                }
                self.password = now;
                self.connect_once(late, attempt)
            }
            other => other,
        }
    }

    fn connect_once(
        &mut self,
        late: Late,
        attempt: &Attempt<'_>,
    ) -> Result<Connection, StoreError> {
        let socket = match &self.target.place {
            Place::Unix(path) => Socket::unix(path, attempt)?,
            Place::Tcp { host, port } => {
                let addresses = self.resolver.addresses(host, *port, late, attempt)?;
                Socket::tcp(&addresses, attempt)?
            }
        };
        let mut connection = Connection::new(self.dress(socket)?);
        self.greet(&mut connection, attempt)?;
        Ok(connection)
    }

    #[cfg(feature = "tls")]
    fn dress(&self, socket: Socket) -> Result<Stream, StoreError> {
        Ok(match &self.tls {
            Some(settings) => Stream::Tls(Box::new(TlsStream::new(socket, settings)?)),
            None => Stream::Plain(PlainStream::new(socket)),
        })
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with TLS")]
    fn dress(&self, socket: Socket) -> Result<Stream, StoreError> {
        Ok(Stream::Plain(PlainStream::new(socket)))
    }

    /// Says who we are and asks for the time, in one round trip.
    fn greet(&self, connection: &mut Connection, attempt: &Attempt<'_>) -> Result<(), StoreError> {
        let mut request = Vec::new();
        let mut must = 0;
        match (&self.target.user, &self.password) {
            // A user without a password is let in with any.
            (Some(user), password) => {
                pack(
                    &["AUTH", user, password.as_deref().unwrap_or("")],
                    &mut request,
                );
                must += 1;
            }
            (None, Some(password)) => {
                pack(&["AUTH", password], &mut request);
                must += 1;
            }
            (None, None) => {}
        }
        if self.target.database != 0 {
            pack(&["SELECT", &self.target.database.to_string()], &mut request);
            must += 1;
        }
        let name = if self.name.is_empty() {
            "distlock"
        } else {
            &self.name
        };
        pack(&["CLIENT", "SETNAME", name], &mut request);
        pack(&["TIME"], &mut request);
        let replies = connection.exchange(&request, must + 2, attempt)?;
        for reply in &replies.values[..must] {
            script::refuse(reply)?;
        }
        connection.sample = Some(sample(&replies)?);
        name.clone_into(&mut connection.name);
        Ok(())
    }
}

/// Reads the last reply as the answer to TIME: seconds and microseconds.
pub(super) fn sample(replies: &Replies) -> Result<Sample, StoreError> {
    let Some(last) = replies.values.last() else {
        return Err(errors::garbled());
    };
    script::refuse(last)?;
    let Value::Array(parts) = last else {
        return Err(errors::garbled());
    };
    let number = |at: usize| script::integer(parts.get(at)).and_then(|n| u64::try_from(n).ok());
    let time = number(0)
        .zip(number(1))
        .and_then(|(seconds, micros)| seconds.checked_mul(1_000_000)?.checked_add(micros))
        .ok_or_else(errors::garbled)?;
    let (asked, answered) = (replies.sent.boot, replies.answered);
    Ok(Sample {
        asked,
        answered,
        time: ServerTime(time),
    })
}

/// Appends a command.
pub(super) fn pack(words: &[&str], request: &mut Vec<u8>) {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.write_packed_command(request);
}

/// A name that CLIENT SETNAME takes: printable ASCII without blanks.
fn client_name(lock: &str) -> String {
    let mut name = String::from("distlock:");
    for byte in lock.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            name.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_are_printable_ascii_without_blanks() {
        assert_eq!(client_name("a/b"), "distlock:a/b");
        assert_eq!(client_name("é%"), "distlock:%C3%A9%25");
    }
}
