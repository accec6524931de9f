//! Locks as people and programs want to see them. Only makes text.

use serde::Serialize;

use super::words::{self, condition, stranger, who};
use crate::model::{Condition, Holding, LockKey, Record, TimeLeft, escape, human};
use crate::store::ServerUrl;

/// The longest text from a server in a field of ours.
const MOST: usize = 160;

/// What was learnt of a lock.
#[derive(Debug)]
pub enum State<'a> {
    /// Nobody has it.
    Free,
    /// Somebody has it, or it stays taken for a while.
    Taken(&'a Holding),
    /// It could not be told, for this reason.
    Unknown(&'a str),
}

/// A lock for people: a line, and below it what is known of the holder.
pub fn text(key: &LockKey, state: &State<'_>) -> String {
    let name = escape(key.name.as_str(), 200);
    match state {
        State::Free => format!("{name}: free\n"),
        State::Unknown(_) => format!("{name}: unknown\n"),
        State::Taken(holding) => {
            let line = |(label, value)| format!("  {label:<9}{value}\n");
            let details: String = details(holding).into_iter().map(line).collect();
            format!("{name}: {}\n{details}", headline(holding))
        }
    }
}

fn headline(holding: &Holding) -> String {
    let Some(record) = &holding.record else {
        return format!("held by {}", stranger(holding));
    };
    let who = who(record);
    match record.condition() {
        Condition::Held => format!("held by {who}"),
        Condition::Cooling => format!("cooling (--hold-at-least) after a run of {who}"),
        Condition::Released => {
            let by = escape(record.released_by.as_deref().unwrap_or("?"), MOST);
            format!("being released by {by}: the command of {who} is being stopped")
        }
    }
}

fn details(holding: &Holding) -> Vec<(&'static str, String)> {
    let record = holding.record.as_ref();
    let time = |time| {
        let age = human(holding.now.since(time));
        format!("{time} ({age} ago)")
    };
    let ended = record.and_then(Record::ended);
    let known = [
        ("id", record.map(|record| escape(&record.id, 8))),
        ("since", record.and_then(Record::since).map(time)),
        ("ended", ended.map(time)),
        ("left", Some(left(holding))),
        ("reason", record.and_then(reason)),
        ("fence", holding.fence.map(|fence| fence.to_string())),
    ];
    let there = |(label, value): (_, Option<String>)| value.map(|value| (label, value));
    known.into_iter().filter_map(there).collect()
}

fn left(holding: &Holding) -> String {
    match (holding.left, condition(holding)) {
        (TimeLeft::For(left), Condition::Held) => format!("{} unless renewed", human(left)),
        (TimeLeft::For(left), Condition::Cooling | Condition::Released) => human(left),
        (left, _) => words::time_left(left),
    }
}

fn reason(record: &Record) -> Option<String> {
    record.reason.as_deref().map(|text| escape(text, MOST))
}

/// A lock for programs: one line of JSON, always with the same keys.
pub fn json(key: &LockKey, server: &ServerUrl, state: &State<'_>) -> String {
    let mut object = match state {
        State::Free => Object::of_state("free"),
        State::Taken(holding) => Object::of(holding),
        State::Unknown(error) => Object {
            error: Some(escape(error, 400)),
            ..Object::of_state("unknown")
        },
    };
    object.name = escape(key.name.as_str(), 200);
    object.raw_key = key.raw.as_ref().map(|raw| escape(raw.as_str(), 512));
    object.server = server.to_string();
    // A struct of strings and numbers cannot fail to serialise.
    serde_json::to_string(&object).unwrap_or_default() + "\n"
}

#[derive(Default, Serialize)]
struct Object {
    name: String,
    raw_key: Option<String>,
    server: String,
    state: &'static str,
    id: Option<String>,
    user: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
    program: Option<String>,
    reason: Option<String>,
    since: Option<String>,
    ended: Option<String>,
    released_by: Option<String>,
    /// `ttl`: ends by itself; `none`: has no expiry; `holder`: ends with its holder.
    expiry: Option<&'static str>,
    ttl_ms: Option<u64>,
    left_ms: Option<u64>,
    fence: Option<u64>,
    /// What another program wrote.
    value: Option<String>,
    /// The server's clock.
    now: Option<String>,
    error: Option<String>,
}

impl Object {
    fn of_state(state: &'static str) -> Self {
        Self {
            state,
            ..Self::default()
        }
    }

    fn of(holding: &Holding) -> Self {
        let (expiry, left) = match holding.left {
            TimeLeft::Never => ("none", None),
            TimeLeft::WhileHeld => ("holder", None),
            TimeLeft::For(left) => ("ttl", u64::try_from(left.as_millis()).ok()),
        };
        let object = Self {
            expiry: Some(expiry),
            left_ms: left,
            fence: holding.fence.map(|fence| fence.0),
            now: Some(holding.now.to_string()),
            ..Self::of_state(state_word(holding))
        };
        match &holding.record {
            Some(record) => object.with(record),
            None => Self {
                value: Some(escape(&String::from_utf8_lossy(&holding.value), MOST)),
                ..object
            },
        }
    }

    fn with(self, record: &Record) -> Self {
        let text = |text: &str| Some(escape(text, MOST));
        Self {
            id: text(&record.id),
            user: text(&record.user),
            host: text(&record.host),
            pid: Some(record.pid),
            program: text(&record.program),
            reason: reason(record),
            since: record.since().map(|time| time.to_string()),
            ended: record.ended().map(|time| time.to_string()),
            released_by: record.released_by.as_deref().and_then(text),
            ttl_ms: Some(record.ttl_ms).filter(|&ttl| ttl > 0),
            ..self
        }
    }
}

fn state_word(holding: &Holding) -> &'static str {
    match condition(holding) {
        Condition::Held => "held",
        Condition::Cooling => "cooling",
        Condition::Released => "releasing",
    }
}

/// What stands above the columns of [`rows`].
const HEADING: [&str; 9] = [
    "NAME", "STATE", "HOLDER", "PID", "PROGRAM", "ID", "SINCE", "LEFT", "REASON",
];

/// Locks for a terminal: a heading, and columns side by side.
pub fn table(holdings: &[Holding]) -> String {
    let mut rows = vec![HEADING.map(str::to_owned)];
    rows.extend(holdings.iter().map(row));
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADING.len()).map(width).collect();
    let line = |row: &[String; 9]| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Locks for a pipe: the same columns with tabs between, without a heading.
pub fn rows(holdings: &[Holding]) -> String {
    let line = |holding| row(holding).join("\t") + "\n";
    holdings.iter().map(line).collect()
}

fn row(holding: &Holding) -> [String; 9] {
    let dash = || "-".to_owned();
    let name = escape(holding.key.name.as_str(), 200);
    let state = state_word(holding).to_owned();
    let left = match holding.left {
        TimeLeft::For(left) => human(left),
        TimeLeft::Never => "no expiry".to_owned(),
        TimeLeft::WhileHeld => dash(),
    };
    let Some(record) = &holding.record else {
        let who = stranger(holding);
        return [
            name,
            state,
            who,
            dash(),
            dash(),
            dash(),
            dash(),
            left,
            dash(),
        ];
    };
    let holder = format!("{}@{}", escape(&record.user, 64), escape(&record.host, 64));
    [
        name,
        state,
        holder,
        record.pid.to_string(),
        escape(&record.program, 64),
        escape(&record.id, 8),
        record.since().map_or_else(dash, |since| since.to_string()),
        left,
        reason(record).unwrap_or_else(dash),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ServerTime;
    use crate::model::{FencingToken, Holder, HolderId, LockName, Token, Ttl};

    const SINCE: ServerTime = ServerTime(1_796_000_000_000_000);

    fn key() -> LockKey {
        "backup".parse::<LockName>().unwrap().into()
    }

    fn record(reason: &str) -> Record {
        let holder = Holder {
            host: "web3".into(),
            user: "deploy".into(),
            pid: 4711,
            boot: "b".into(),
            program: "pg_dump".into(),
            reason: Some(reason.into()),
        };
        let id = HolderId::parse("7f3a91c2").unwrap();
        let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
        Record::new(&Token::from_bits([1; 16]), &id, &holder, SINCE, Some(ttl))
    }

    fn holding(value: impl Into<Vec<u8>>, left: TimeLeft) -> Holding {
        let now = SINCE.plus(Duration::from_secs(720));
        let mut holding = Holding::new(key(), value.into(), left, now);
        holding.fence = Some(FencingToken(1_796_000_000_000_000));
        holding
    }

    fn for_48s(record: &Record) -> Holding {
        holding(record.to_json(), TimeLeft::For(Duration::from_secs(48)))
    }

    fn object(holding: &Holding) -> serde_json::Value {
        let server = "redis://me:secret@locks.example".parse().unwrap();
        let line = json(&key(), &server, &State::Taken(holding));
        assert!(
            line.ends_with("}\n") && line.matches('\n').count() == 1 && !line.contains("secret")
        );
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn a_held_lock_is_shown_with_all_that_is_known() {
        let held = for_48s(&record("nightly"));
        assert_eq!(
            text(&key(), &State::Taken(&held)),
            "backup: held by deploy@web3 pid 4711 (pg_dump)\n  \
             id       7f3a91c2\n  \
             since    2026-11-30T00:53:20.000Z (12m ago)\n  \
             left     48s unless renewed\n  \
             reason   nightly\n  \
             fence    1796000000000000\n"
        );
        let object = object(&held);
        assert_eq!(object["server"], "redis://locks.example");
        assert_eq!(object["left_ms"], 48_000);
        assert_eq!(object["ttl_ms"], 60_000);
        assert_eq!(object["fence"], 1_796_000_000_000_000_u64);
        assert_eq!(object["now"], "2026-11-30T01:05:20.000Z");
    }

    #[test]
    fn other_programs_and_missing_expiries_are_named() {
        let other = holding("MTIz\u{1b}[2J", TimeLeft::Never);
        assert_eq!(
            text(&key(), &State::Taken(&other)),
            "backup: held by another program (value \"MTIz\\u{1b}[2J\")\n  \
             left     no expiry\n  \
             fence    1796000000000000\n"
        );
        let object = object(&other);
        assert_eq!(object["state"], "held");
        assert_eq!(object["expiry"], "none");
        assert_eq!(object["value"], "MTIz\\u{1b}[2J");
        assert!(object["id"].is_null());
    }

    #[test]
    fn tombstones_and_cooling_records_are_told_apart() {
        let token = Token::from_bits([2; 16]);
        let tombstone = for_48s(&record("nightly").tombstone(&token, "root@db1"));
        let shown = text(&key(), &State::Taken(&tombstone));
        let head = "backup: being released by root@db1: the command of deploy@web3 pid 4711 (pg_dump) is being stopped\n";
        assert!(shown.starts_with(head), "{shown}");
        assert_eq!(object(&tombstone)["state"], "releasing");
        assert_eq!(object(&tombstone)["released_by"], "root@db1");
        let ended = SINCE.plus(Duration::from_secs(700));
        let cooling = for_48s(&record("nightly").cooling(&token, ended));
        let shown = text(&key(), &State::Taken(&cooling));
        assert!(
            shown.contains("\n  ended    2026-11-30T01:05:00.000Z (20s ago)\n  left     48s\n"),
            "{shown}"
        );
        assert_eq!(object(&cooling)["state"], "cooling");
    }

    #[test]
    fn text_from_a_server_can_neither_drive_a_terminal_nor_break_a_table() {
        let mut evil = record("");
        for field in [&mut evil.host, &mut evil.user, &mut evil.program] {
            *field = format!("\u{1b}[2J\t\n\u{202e}{}", "x".repeat(300));
        }
        evil.reason = Some(evil.host.clone());
        evil.since = "\u{7}never".into();
        let evil = for_48s(&evil);
        assert!(evil.record.is_some());
        let server = "redis://h".parse().unwrap();
        let rows = rows(std::slice::from_ref(&evil));
        assert_eq!(
            (rows.matches('\t').count(), rows.matches('\n').count()),
            (8, 1)
        );
        for shown in [
            rows.replace('\t', ""),
            table(std::slice::from_ref(&evil)),
            text(&key(), &State::Taken(&evil)),
            json(&key(), &server, &State::Taken(&evil)),
        ] {
            let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!shown.contains(bad), "{shown:?}");
            assert!(shown.len() < 2000, "{}", shown.len());
        }
    }
}
