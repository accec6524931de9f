//! The scripts, how they are sent, and how their answers are read.
//!
//! A script is sent whole each time: a server that has forgotten it (a restart, a failover,
//! SCRIPT FLUSH) needs no second round trip, and no permission beyond EVAL is needed.

use redis::Value;

use super::super::{ErrorKind, StoreError};
use super::connection::Failure;
use super::errors;
use crate::clock::ServerTime;

pub(super) const ACQUIRE: &str = include_str!("acquire.lua");
pub(super) const RENEW: &str = include_str!("renew.lua");
pub(super) const RELEASE: &str = include_str!("release.lua");
pub(super) const EVICT: &str = include_str!("evict.lua");

/// How long the fencing token is remembered after its last use, in milliseconds: 7 days.
pub(super) const FENCE_LIFE: &str = "604800000";

/// Instead of the first line, on servers before Redis 5: TIME may precede a write only if
/// effects are replicated.
const OLD_FIRST_LINE: &str = "if redis.replicate_commands then redis.replicate_commands() end";

/// How a server can be asked so that a replica says that it is one, instead of "absent".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    /// It reads the flags in a script's first line (Redis 7, Valkey); assumed until it does not.
    #[default]
    Flags,
    /// It tells its role before and after the script. Not in a transaction: a server that is
    /// full queues no commands, and must renew and release all the same. Becoming a replica,
    /// getting another's data and becoming a primary again takes far longer than a pipeline.
    Roles,
}

impl Dialect {
    /// Appends the request for a script, and says how many replies it has.
    pub(super) fn pack(self, script: &str, arguments: &[&[u8]], request: &mut Vec<u8>) -> usize {
        let eval = |script: &str| {
            let mut eval = redis::cmd("EVAL");
            eval.arg(script).arg(2).arg(arguments);
            eval
        };
        match self {
            Self::Flags => {
                eval(script).write_packed_command(request);
                1
            }
            Self::Roles => {
                let body = script.split_once('\n').map_or(script, |(_, body)| body);
                redis::cmd("ROLE").write_packed_command(request);
                eval(&format!("{OLD_FIRST_LINE}\n{body}")).write_packed_command(request);
                redis::cmd("ROLE").write_packed_command(request);
                3
            }
        }
    }

    /// The script's answer among the replies.
    pub(super) fn unpack(self, replies: &mut Vec<Value>) -> Result<Vec<Value>, Failure> {
        match self {
            Self::Flags => items(replies.pop()),
            Self::Roles => {
                let (after, script, before) = (replies.pop(), replies.pop(), replies.pop());
                let script = items(script)?;
                for role in [before, after] {
                    let role = items(role)?;
                    if text(role.first()) != Some("master") {
                        return Err(StoreError::new(ErrorKind::NoAnswer, "it is a replica").into());
                    }
                }
                Ok(script)
            }
        }
    }
}

/// Whether a server does not understand the flags in a script's first line.
pub(super) fn is_flags_error(error: &StoreError) -> bool {
    let text = error.text.to_lowercase();
    text.contains("compiling script") || text.contains("script shebang")
}

/// The elements of a script's answer.
fn items(answer: Option<Value>) -> Result<Vec<Value>, Failure> {
    match answer {
        Some(Value::Array(items)) => Ok(items),
        Some(other) => {
            refuse(&other)?;
            Err(garbled())
        }
        None => Err(garbled()),
    }
}

/// Fails if this is an error of the server.
pub(super) fn refuse(value: &Value) -> Result<(), Failure> {
    match value {
        Value::ServerError(error) => Err(Failure {
            in_doubt: errors::classify(&errors::text_of(error)).is_none(),
            error: errors::of_server(error),
        }),
        _ => Ok(()),
    }
}

fn garbled() -> Failure {
    Failure {
        error: errors::garbled(),
        in_doubt: true,
    }
}

/// A number in an answer.
pub(super) fn integer(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Int(number) => Some(*number),
        other => text(Some(other))?.parse().ok(),
    }
}

/// A time on the server's clock, in microseconds.
pub(super) fn time(value: Option<&Value>) -> Option<ServerTime> {
    Some(ServerTime(text(value)?.parse().ok()?))
}

/// Text in an answer.
pub(super) fn text(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::SimpleString(text) => Some(text),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::Okay => Some("OK"),
        _ => None,
    }
}

/// Bytes in an answer.
pub(super) fn bytes(value: Option<&Value>) -> Option<&[u8]> {
    match value? {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}
