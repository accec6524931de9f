//! Sentences about locks: who holds one, why a lease was lost, what to do.

use std::time::Duration;

use crate::model::{Condition, Holding, LockKey, Record, TimeLeft, escape, human};

/// The longest text from a server that stands in a sentence of ours.
const MOST: usize = 160;

/// Who holds it, since when, until when, and the command that frees it; one line.
pub fn refusal(holding: &Holding) -> String {
    let shown = description(holding);
    let to_free = release_command(holding);
    match condition(holding) {
        Condition::Held | Condition::Cooling => format!("{shown}; to free it: {to_free}"),
        Condition::Released => format!("{shown}; to free it at once: {to_free} --now"),
    }
}

/// Who holds it, since when and until when; one line.
pub fn description(holding: &Holding) -> String {
    let Some(record) = &holding.record else {
        return format!("held by {}, {}", stranger(holding), time_left(holding.left));
    };
    // What is not held any more is not renewed either.
    let left = match (holding.left, record.condition()) {
        (TimeLeft::For(left), Condition::Cooling | Condition::Released) => {
            format!("{} left", human(left))
        }
        (left, _) => time_left(left),
    };
    let who = who(record);
    let age = record.since().map_or_else(String::new, |since| {
        format!(" for {}", human(holding.now.since(since)))
    });
    let reason = record.reason.as_deref().map_or_else(String::new, |text| {
        format!(", reason \"{}\"", escape(text, MOST))
    });
    match record.condition() {
        Condition::Held => format!("held by {who}{age}, {left}{reason}"),
        Condition::Cooling => {
            format!("cooling down after a run of {who}, {left} (--hold-at-least){reason}")
        }
        Condition::Released => {
            let by = escape(record.released_by.as_deref().unwrap_or("?"), MOST);
            format!("being released by {by}: the command of {who} is being stopped, {left}")
        }
    }
}

/// What its record says; another program's is not more than held.
pub fn condition(holding: &Holding) -> Condition {
    let record = holding.record.as_ref();
    record.map_or(Condition::Held, Record::condition)
}

/// Another program, by what it wrote.
pub fn stranger(holding: &Holding) -> String {
    let value = escape(&String::from_utf8_lossy(&holding.value), 60);
    format!("another program (value \"{value}\")")
}

/// `user@host pid N (program)`.
pub fn who(record: &Record) -> String {
    let (user, host, program) = (
        escape(&record.user, 64),
        escape(&record.host, 64),
        escape(&record.program, 64),
    );
    format!("{user}@{host} pid {} ({program})", record.pid)
}

/// How long it lives on.
pub fn time_left(left: TimeLeft) -> String {
    match left {
        TimeLeft::Never => "no expiry".into(),
        TimeLeft::WhileHeld => "until it ends".into(),
        TimeLeft::For(left) => format!("{} left unless renewed", human(left)),
    }
}

/// The command that frees it.
fn release_command(holding: &Holding) -> String {
    let LockKey { name, raw } = &holding.key;
    let raw = raw.as_ref().map_or_else(String::new, |raw| {
        format!(" --raw-key {}", quoted(raw.as_str()))
    });
    let how = holding.record.as_ref().map_or_else(
        || "--force".to_owned(),
        |record| format!("--id {}", escape(&record.id, 8)),
    );
    format!("distlock release {}{raw} {how}", quoted(name.as_str()))
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./@%+=:,-".contains(c);
    if !word.starts_with('-') && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A duration as people read it.
pub fn length(length: Duration) -> String {
    human(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ServerTime;
    use crate::model::{Holder, HolderId, Token, Ttl};

    #[test]
    fn a_refusal_names_everything_in_one_line() {
        let holder = Holder {
            host: "web3".into(),
            user: "deploy".into(),
            pid: 4711,
            boot: "b".into(),
            program: "pg_dump".into(),
            reason: Some("nightly".into()),
        };
        let since = ServerTime(1_796_000_000_000_000);
        let id = HolderId::parse("7f3a91c2").unwrap();
        let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
        let record = Record::new(&Token::from_bits([1; 16]), &id, &holder, since, Some(ttl));
        let now = since.plus(Duration::from_secs(720));
        let key = LockKey::from("backup".parse::<crate::model::LockName>().unwrap());
        let holding = Holding::new(
            key,
            record.to_json().into_bytes(),
            TimeLeft::For(Duration::from_secs(48)),
            now,
        );
        assert_eq!(
            refusal(&holding),
            "held by deploy@web3 pid 4711 (pg_dump) for 12m, 48s left unless renewed, reason \"nightly\"; to free it: distlock release backup --id 7f3a91c2"
        );
    }

    #[test]
    fn odd_names_are_quoted_for_the_shell() {
        assert_eq!(quoted("a/b"), "a/b");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("*"), "'*'");
        assert_eq!(quoted("-n"), "'-n'");
    }
}
