//! What follows from an error: of the server, of the system, of TLS.

use std::io;

use nix::errno::Errno;
use redis::ServerError;

use super::super::{ErrorKind, StoreError};
use crate::model::escape;

/// At most so many characters of a server's text are shown.
const SHOWN: usize = 200;

/// The codes that servers give, and what follows from each.
const CODES: &[(&str, ErrorKind)] = &[
    ("LOADING", ErrorKind::Down),
    ("BUSY", ErrorKind::NoAnswer),
    ("READONLY", ErrorKind::NoAnswer),
    ("MASTERDOWN", ErrorKind::NoAnswer),
    ("NOREPLICAS", ErrorKind::NoAnswer),
    ("MISCONF", ErrorKind::NoAnswer),
    ("OOM", ErrorKind::NoAnswer),
    ("CLUSTERDOWN", ErrorKind::NoAnswer),
    ("TRYAGAIN", ErrorKind::NoAnswer),
    ("CROSSSLOT", ErrorKind::NoAnswer),
    ("MOVED", ErrorKind::NoAnswer),
    ("ASK", ErrorKind::NoAnswer),
    ("EXECABORT", ErrorKind::NoAnswer),
    ("NOAUTH", ErrorKind::Refused),
    ("WRONGPASS", ErrorKind::Refused),
    ("NOPERM", ErrorKind::Refused),
    ("DENIED", ErrorKind::Refused),
    ("WRONGTYPE", ErrorKind::Foreign),
];

/// Texts without a code of their own, in lower case.
const TEXTS: &[(&str, ErrorKind)] = &[
    ("max number of clients", ErrorKind::NoAnswer),
    ("unknown command", ErrorKind::Refused),
    ("scripting support disabled", ErrorKind::Refused),
    (
        "the user executing the script can't run",
        ErrorKind::Refused,
    ),
    ("acl failure in script", ErrorKind::Refused),
    ("can't access at least one of the keys", ErrorKind::Refused),
    ("operation not permitted", ErrorKind::Refused),
    ("invalid password", ErrorKind::Refused),
    ("no password is set", ErrorKind::Refused),
    ("without any password configured", ErrorKind::Refused),
    ("wrong number of arguments for 'auth'", ErrorKind::Refused),
    ("db index is out of range", ErrorKind::Foreign),
    ("invalid db index", ErrorKind::Foreign),
    ("select is not allowed", ErrorKind::Foreign),
];

/// What follows from an error text of a server: its code, then its wording, then a code that an
/// old server wrapped into "Error running script". `None`: an error that we do not know, which
/// may come from a proxy and leaves open what the server did.
pub(super) fn classify(text: &str) -> Option<ErrorKind> {
    let code = text.split(' ').next().unwrap_or_default();
    let find = |word: &str| {
        CODES
            .iter()
            .find(|(code, _)| *code == word)
            .map(|row| row.1)
    };
    if let Some(kind) = find(code) {
        return Some(kind);
    }
    let lower = text.to_lowercase();
    if let Some((_, kind)) = TEXTS.iter().find(|(part, _)| lower.contains(part)) {
        return Some(*kind);
    }
    text.split(' ')
        .skip(1)
        .find_map(|word| find(word.trim_start_matches('-')))
}

/// A server's error as its one line of text.
pub(super) fn text_of(error: &ServerError) -> String {
    // The crate has names of its own for the codes that it knows; "ERR" it calls a response error.
    let code = match error.kind() {
        Some(redis::ServerErrorKind::ResponseError) => "ERR",
        Some(redis::ServerErrorKind::BusyLoading) => "LOADING",
        _ => error.code(),
    };
    match error.details() {
        Some(details) => format!("{code} {details}"),
        None => code.to_owned(),
    }
}

/// Our error for a server's.
pub(super) fn of_server(error: &ServerError) -> StoreError {
    let text = text_of(error);
    let kind = classify(&text).unwrap_or(ErrorKind::NoAnswer);
    // An unknown command is repeated with its arguments, which may be a password.
    let public = text.split(", with args").next().unwrap_or_default();
    let shown = escape(public.trim_end(), SHOWN);
    let lower = public.to_lowercase();
    StoreError::new(
        kind,
        match () {
            () if text.starts_with("MOVED ") || text.starts_with("ASK ") => {
                format!("it is a cluster node, which is not supported ({shown})")
            }
            () if lower.contains("no password is set")
                || lower.contains("without any password configured") =>
            {
                format!("a password was given, but the server has none set ({shown})")
            }
            () if (lower.contains("unknown command") && lower.contains("eval"))
                || lower.contains("scripting support disabled") =>
            {
                format!("the server has no EVAL, which is required ({shown})")
            }
            () => shown,
        },
    )
}

/// Our error for one of the system's at a socket.
pub(super) fn of_system(error: Errno) -> StoreError {
    let (kind, text) = match error {
        Errno::ECONNREFUSED => (ErrorKind::Down, "connection refused"),
        Errno::ECONNRESET | Errno::EPIPE | Errno::ECONNABORTED => {
            (ErrorKind::Down, "connection reset")
        }
        Errno::ENOENT => (ErrorKind::Down, "no such socket"),
        Errno::EACCES | Errno::EPERM => (ErrorKind::Refused, "permission denied"),
        Errno::EMFILE | Errno::ENFILE => (ErrorKind::Local, "too many open files on this host"),
        Errno::ENOMEM | Errno::ENOBUFS => (ErrorKind::Local, "out of memory on this host"),
        Errno::EHOSTUNREACH => (ErrorKind::NoAnswer, "no route to host"),
        Errno::ENETUNREACH => (ErrorKind::NoAnswer, "network unreachable"),
        Errno::ETIMEDOUT => (ErrorKind::NoAnswer, "connection timed out"),
        other => (ErrorKind::NoAnswer, other.desc()),
    };
    StoreError::new(kind, text)
}

/// As [`of_system`], for an error that std has wrapped.
pub(super) fn of_io(error: &io::Error) -> StoreError {
    match error.raw_os_error() {
        Some(number) => of_system(Errno::from_raw(number)),
        None => StoreError::new(ErrorKind::NoAnswer, escape(&error.to_string(), SHOWN)),
    }
}

/// The server closed the connection.
pub(super) fn closed() -> StoreError {
    StoreError::new(ErrorKind::Down, "the server closed the connection")
}

/// An answer that cannot be read.
pub(super) fn garbled() -> StoreError {
    StoreError::new(ErrorKind::NoAnswer, "it gave an answer that cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    const TABLE: &[(&str, ErrorKind)] = &[
        (
            "LOADING Redis is loading the dataset in memory",
            ErrorKind::Down,
        ),
        (
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            ErrorKind::NoAnswer,
        ),
        (
            "READONLY You can't write against a read only replica.",
            ErrorKind::NoAnswer,
        ),
        (
            "READONLY You can't write against a read only replica. script: 5e, on @user_script:1.",
            ErrorKind::NoAnswer,
        ),
        (
            "ERR Error running script (call to f_5e): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.",
            ErrorKind::NoAnswer,
        ),
        (
            "ERR Error running script (call to f_5e): @user_script:1: -OOM command not allowed when used memory > 'maxmemory'.",
            ErrorKind::NoAnswer,
        ),
        (
            "ERR Error running script (call to f_5e): @user_script:1: -MISCONF Redis is configured to save RDB snapshots",
            ErrorKind::NoAnswer,
        ),
        (
            "ERR Error running script (call to f_5e): @user_script:1: NOREPLICAS Not enough good replicas to write.",
            ErrorKind::NoAnswer,
        ),
        (
            "ERR Error running script (call to f_5e): @user_script:1: WRONGTYPE Operation against a key",
            ErrorKind::Foreign,
        ),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            ErrorKind::NoAnswer,
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots",
            ErrorKind::NoAnswer,
        ),
        (
            "NOREPLICAS Not enough good replicas to write.",
            ErrorKind::NoAnswer,
        ),
        ("MASTERDOWN Link with MASTER is down", ErrorKind::NoAnswer),
        ("CLUSTERDOWN Hash slot not served", ErrorKind::NoAnswer),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            ErrorKind::NoAnswer,
        ),
        ("ERR max number of clients reached", ErrorKind::NoAnswer),
        (
            "ERR max number of clients + cluster connections reached",
            ErrorKind::NoAnswer,
        ),
        ("NOAUTH Authentication required.", ErrorKind::Refused),
        (
            "WRONGPASS invalid username-password pair or user is disabled.",
            ErrorKind::Refused,
        ),
        ("ERR invalid password", ErrorKind::Refused),
        ("ERR operation not permitted", ErrorKind::Refused),
        (
            "NOPERM this user has no permissions to run the 'eval' command",
            ErrorKind::Refused,
        ),
        (
            "DENIED Redis is running in protected mode",
            ErrorKind::Refused,
        ),
        (
            "ERR The user executing the script can't run this command or subcommand script: 5e, on @user_script:1.",
            ErrorKind::Refused,
        ),
        (
            "ERR ACL failure in script: User x has no permissions to run the 'set' command script: 5e",
            ErrorKind::Refused,
        ),
        (
            "ERR This instance has Lua scripting support disabled",
            ErrorKind::Refused,
        ),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            ErrorKind::Foreign,
        ),
        ("ERR DB index is out of range", ErrorKind::Foreign),
    ];

    fn parsed(text: &str) -> ServerError {
        match redis::parse_redis_value(format!("-{text}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_known_error_has_its_class_and_keeps_its_text() {
        for &(text, kind) in TABLE {
            let error = parsed(text);
            assert_eq!(text_of(&error), text);
            assert_eq!(classify(text), Some(kind), "{text}");
            assert_eq!(of_server(&error).kind, kind, "{text}");
        }
        assert_eq!(classify("ERR upstream failure"), None);
        assert_eq!(classify("upstream failure"), None);
    }

    #[test]
    fn errors_say_what_is_not_supported() {
        let say = |text: &str| of_server(&parsed(text)).text;
        assert!(say("MOVED 8718 10.0.0.1:6379").contains("cluster node"));
        assert!(
            say("ERR unknown command `EVAL`, with args beginning with: `x`").contains("no EVAL")
        );
        let auth = say("ERR unknown command `AUTH`, with args beginning with: `secret`, ");
        assert!(!auth.contains("secret"), "{auth}");
        assert!(say("ERR Client sent AUTH, but no password is set").contains("has none set"));
        assert_eq!(say("ERR \u{1b}[2J"), "ERR \\u{1b}[2J");
    }

    #[test]
    fn errors_of_the_system_have_their_class() {
        let table = [
            (Errno::ECONNREFUSED, ErrorKind::Down),
            (Errno::ECONNRESET, ErrorKind::Down),
            (Errno::ENOENT, ErrorKind::Down),
            (Errno::ETIMEDOUT, ErrorKind::NoAnswer),
            (Errno::EHOSTUNREACH, ErrorKind::NoAnswer),
            (Errno::EACCES, ErrorKind::Refused),
            (Errno::EMFILE, ErrorKind::Local),
            (Errno::ENFILE, ErrorKind::Local),
            (Errno::ENOMEM, ErrorKind::Local),
        ];
        for (error, kind) in table {
            assert_eq!(of_system(error).kind, kind, "{error}");
            assert_eq!(of_io(&io::Error::from(error)).kind, kind, "{error}");
        }
    }
}
