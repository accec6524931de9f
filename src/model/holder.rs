//! Who holds a lock, as written into the store and as read back from it.
//!
//! What comes from a store is data: it is parsed with limits, and shown only through
//! [`escape`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{FencingToken, HolderId, LockKey, Token, Ttl};
use crate::clock::ServerTime;

/// A record is at most this long; long fields are cut.
const MAX_RECORD: usize = 512;

/// No record that we wrote is longer (a tombstone adds who released).
const MAX_READ: usize = 2048;

/// Who holds, or wants, a lock. All of it may be shown to anyone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The host's name.
    pub host: String,
    /// The login name of the effective user, or its number.
    pub user: String,
    /// The front's process id.
    pub pid: u32,
    /// The host's boot id, shortened: a pid means nothing after a reboot.
    pub boot: String,
    /// The base name of the command; never its arguments, which may hold secrets.
    pub program: String,
    /// Why, in the holder's words.
    pub reason: Option<String>,
}

/// What a store keeps for a lock: one line of JSON, fixed for the life of the hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this form; 1.
    pub v: u8,
    /// The random value that proves the hold.
    pub token: String,
    /// The hold's public name.
    pub id: String,
    /// See [`Holder::host`].
    #[serde(default)]
    pub host: String,
    /// See [`Holder::user`].
    #[serde(default)]
    pub user: String,
    /// See [`Holder::pid`].
    #[serde(default)]
    pub pid: u32,
    /// See [`Holder::boot`].
    #[serde(default)]
    pub boot: String,
    /// See [`Holder::program`].
    #[serde(default)]
    pub program: String,
    /// When it was taken, RFC 3339 by the server's clock.
    #[serde(default)]
    pub since: String,
    /// The TTL in milliseconds; 0 where the store has none.
    #[serde(default)]
    pub ttl_ms: u64,
    /// See [`Holder::reason`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the command ended, for a cooling record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Who released it by force, for a tombstone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_by: Option<String>,
}

/// What a record says of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Its command runs.
    Held,
    /// Its command has ended; the lock stays taken for the rest of `--hold-at-least`.
    Cooling,
    /// Released by force: its command is being stopped.
    Released,
}

impl Record {
    /// The record of a new hold. Long fields are cut so that it fits into 512 bytes.
    pub fn new(
        token: &Token,
        id: &HolderId,
        holder: &Holder,
        since: ServerTime,
        ttl: Option<Ttl>,
    ) -> Self {
        let mut record = Self {
            v: 1,
            token: token.as_str().to_owned(),
            id: id.as_str().to_owned(),
            host: cut(&holder.host, 64),
            user: cut(&holder.user, 32),
            pid: holder.pid,
            boot: cut(&holder.boot, 8),
            program: cut(&holder.program, 48),
            since: since.to_string(),
            ttl_ms: ttl.map_or(0, Ttl::millis),
            reason: holder.reason.as_deref().map(|text| cut(text, 160)),
            ended: None,
            released_by: None,
        };
        record.shrink();
        record
    }

    /// The record that keeps the lock taken after its command ended at `now`.
    #[must_use]
    pub fn cooling(&self, token: &Token, now: ServerTime) -> Self {
        let token = token.as_str().to_owned();
        Self {
            token,
            ended: Some(now.to_string()),
            ..self.clone()
        }
    }

    /// The record that tells the holder that `by` released its lock by force.
    #[must_use]
    pub fn tombstone(&self, token: &Token, by: &str) -> Self {
        let token = token.as_str().to_owned();
        Self {
            token,
            released_by: Some(cut(by, 96)),
            ended: None,
            ..self.clone()
        }
    }

    /// Reads a value. `None`: another program wrote it.
    pub fn parse(value: &[u8]) -> Option<Self> {
        if value.len() > MAX_READ {
            return None;
        }
        let record: Self = serde_json::from_slice(value).ok()?;
        let ours =
            record.v == 1 && !record.token.is_empty() && HolderId::parse(&record.id).is_some();
        ours.then_some(record)
    }

    /// The one line of JSON that the store keeps.
    pub fn to_json(&self) -> String {
        // A struct of strings and numbers cannot fail to serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What it says of the lock.
    pub fn condition(&self) -> Condition {
        match (&self.released_by, &self.ended) {
            (Some(_), _) => Condition::Released,
            (None, Some(_)) => Condition::Cooling,
            (None, None) => Condition::Held,
        }
    }

    /// When the lock was taken, by the server's clock.
    pub fn since(&self) -> Option<ServerTime> {
        ServerTime::parse(&self.since)
    }

    /// When its command ended, by the server's clock; for a cooling record.
    pub fn ended(&self) -> Option<ServerTime> {
        ServerTime::parse(self.ended.as_deref()?)
    }

    /// Escapes in JSON can make a field six times as long: cut on until the whole fits.
    fn shrink(&mut self) {
        let mut limit = 160;
        while self.to_json().len() > MAX_RECORD && limit > 1 {
            limit /= 2;
            self.reason = self.reason.as_deref().map(|text| cut(text, limit));
            self.program = cut(&self.program, limit.max(4));
            self.host = cut(&self.host, limit.max(4));
            self.user = cut(&self.user, limit.max(4));
        }
    }
}

/// How long a key lives on if nobody renews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLeft {
    /// It has no expiry: another program made it so, or someone removed the expiry.
    Never,
    /// Until its holder lets go: a store that is held by a descriptor.
    WhileHeld,
    /// For this long.
    For(Duration),
}

/// A lock as found in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Which lock.
    pub key: LockKey,
    /// The value, byte for byte.
    pub value: Vec<u8>,
    /// The value read as our record; `None` if another program wrote it.
    pub record: Option<Record>,
    /// How long it lives on unrenewed.
    pub left: TimeLeft,
    /// The newest fencing token, where the store told it.
    pub fence: Option<FencingToken>,
    /// The server's clock when this was found.
    pub now: ServerTime,
}

impl Holding {
    /// A holding of this value.
    pub fn new(key: LockKey, value: Vec<u8>, left: TimeLeft, now: ServerTime) -> Self {
        let record = Record::parse(&value);
        Self {
            key,
            value,
            record,
            left,
            fence: None,
            now,
        }
    }
}

/// The longest prefix of `text` of at most `most` bytes that ends at a character.
fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    text[..end.unwrap_or(0)].to_owned()
}

/// Text from outside made fit for a terminal: control and direction characters escaped, at
/// most `most` characters.
pub fn escape(text: &str, most: usize) -> String {
    let mut shown = String::new();
    let mut characters = text.chars();
    for c in characters.by_ref().take(most) {
        let hidden = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if hidden {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holder(reason: &str) -> Holder {
        Holder {
            host: "web3".into(),
            user: "deploy".into(),
            pid: 4711,
            boot: "0123abcd".into(),
            program: "pg_dump".into(),
            reason: Some(reason.into()),
        }
    }

    fn record(holder: &Holder) -> Record {
        let id = HolderId::parse("7f3a91c2").unwrap();
        Record::new(
            &Token::from_bits([7; 16]),
            &id,
            holder,
            ServerTime(1_796_000_000_000_000),
            None,
        )
    }

    #[test]
    fn records_round_trip() {
        let held = record(&holder("nightly"));
        assert_eq!(Record::parse(held.to_json().as_bytes()), Some(held.clone()));
        let cooling = held.cooling(
            &Token::from_bits([8; 16]),
            ServerTime(1_796_000_001_000_000),
        );
        assert_eq!(cooling.condition(), Condition::Cooling);
        assert_eq!(cooling.id, held.id);
        assert_ne!(cooling.token, held.token);
        let tombstone = held.tombstone(&Token::from_bits([9; 16]), "root@db1");
        assert_eq!(tombstone.condition(), Condition::Released);
        assert_eq!(
            Record::parse(tombstone.to_json().as_bytes()),
            Some(tombstone)
        );
    }

    #[test]
    fn records_are_one_line_of_at_most_512_bytes_whatever_the_fields() {
        for reason in [
            "x".repeat(5000),
            "\u{1}".repeat(5000),
            "é\"\\\n".repeat(900),
        ] {
            let long = Holder {
                host: reason.clone(),
                user: reason.clone(),
                program: reason.clone(),
                ..holder(&reason)
            };
            let json = record(&long).to_json();
            assert!(json.len() <= MAX_RECORD, "{}", json.len());
            assert!(!json.contains('\n'));
        }
    }

    #[test]
    fn values_of_other_programs_are_not_records() {
        let big = vec![b'x'; 100_000];
        for value in [
            &b""[..],
            b"MTIzNDU2Nzg5MDEyMzQ1Ng==",
            b"{}",
            b"\xff\xfe",
            b"{\"v\":2}",
            b"[1]",
            &big,
        ] {
            assert_eq!(Record::parse(value), None);
        }
    }

    #[test]
    fn text_from_outside_cannot_drive_a_terminal() {
        assert_eq!(escape("a\u{1b}[2Jb\n", 80), "a\\u{1b}[2Jb\\n");
        assert_eq!(escape("abcdef", 3), "abc…");
        assert_eq!(escape("a\u{202e}b", 80), "a\\u{202e}b");
    }

    proptest! {
        /// A cooling record and a tombstone are made of it later: all three must be read again.
        #[test]
        fn records_of_any_text_round_trip_in_at_most_512_bytes(
            fields in proptest::array::uniform4("\\PC{0,200}|[\\x00-\\x1f\"\\\\é]{0,600}"),
            boot in "[\\x00-\\x7f]{0,12}",
            pid: u32,
            by in "\\PC{0,200}|[\\x00-\\x1f\"]{0,200}",
        ) {
            let [host, user, program, reason] = fields;
            let holder = Holder { host, user, program, boot, pid, reason: Some(reason) };
            let held = record(&holder);
            let json = held.to_json();
            prop_assert!(json.len() <= MAX_RECORD, "{} bytes", json.len());
            prop_assert!(json.bytes().all(|byte| byte >= 0x20));
            prop_assert_eq!(Record::parse(json.as_bytes()), Some(held.clone()));
            let token = Token::from_bits([8; 16]);
            let cooling = held.cooling(&token, ServerTime(1_796_000_001_000_000));
            for later in [held.tombstone(&token, &by), cooling] {
                prop_assert_eq!(Record::parse(later.to_json().as_bytes()), Some(later));
            }
        }
    }
}
