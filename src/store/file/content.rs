//! What stands in a lock file.
//!
//! Three lines in a block of fixed size: a heading with a checksum, the state (name, last
//! fencing token, until when the lock cools), and the holder's record, byte for byte. The
//! block is written in place by one call, by whoever has the lock. Once it was there it needs
//! no further room, so that a full disk stops nobody but a first acquisition; and a reader
//! that meets a write halfway sees a wrong checksum and reads again.

use std::time::Duration;

use rustix::fd::AsFd;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::clock::Boot;
use crate::model::Record;

use super::name::fnv;

/// All of a lock file; a name of 200 bytes and a cooling record take less than 1500.
const SIZE: usize = 2048;

/// How each lock file begins.
const MAGIC: &str = "distlock 1 ";

/// The content of a lock file of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    /// The lock's whole name: that of the file may be cut.
    pub(super) name: String,
    /// The last fencing token that was given.
    pub(super) fence: u64,
    /// Until when the lock stays taken, whoever has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) held_until: Option<HeldUntil>,
    /// The pid namespace (its inode) that the record's pid belongs to.
    #[serde(default)]
    pub(super) pid_namespace: u64,
    /// The holder's record; empty once it was released.
    #[serde(skip)]
    pub(super) value: String,
}

/// An instant on the boot clock, and the boot that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeldUntil {
    boot: String,
    ms: u64,
}

/// What was found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing: the file was just made.
    Empty,
    /// Something that we did not write.
    Foreign,
    /// Ours once, but half of it is missing.
    Damaged,
    /// Ours.
    Whole(Content),
}

impl HeldUntil {
    /// The instant `until` of the boot `boot`, never earlier.
    pub(super) fn new(boot: String, until: Boot) -> Self {
        let ms = until.since_boot().as_nanos().div_ceil(1_000_000);
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        Self { boot, ms }
    }

    /// How much of it is left; `None` if it is over, as it is once the host has rebooted.
    fn left(&self, boot: &str, now: Boot) -> Option<Duration> {
        let left = Boot::at(Duration::from_millis(self.ms)).since(now);
        (self.boot == boot && !boot.is_empty() && !left.is_zero()).then_some(left)
    }
}

impl Content {
    /// How much longer the lock stays taken although its command has ended.
    pub(super) fn cooling(&self, boot: &str, now: Boot) -> Option<Duration> {
        self.held_until.as_ref()?.left(boot, now)
    }

    /// The record, where it is that of a command that may be running.
    pub(super) fn running(&self) -> Option<Record> {
        let record = Record::parse(self.value.as_bytes())?;
        record.ended.is_none().then_some(record)
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let state = serde_json::to_string(self).ok()?;
        let body = format!("{state}\n{}\n", self.value);
        let mut block = format!("{MAGIC}{:016x}\n{body}", fnv(body.as_bytes())).into_bytes();
        if block.len() >= SIZE || self.value.contains('\n') {
            return None;
        }
        block.resize(SIZE - 1, b' ');
        block.push(b'\n');
        Some(block)
    }

    fn decode(block: &[u8]) -> Found {
        if block.is_empty() {
            return Found::Empty;
        }
        if !block.starts_with(MAGIC.as_bytes()) {
            return Found::Foreign;
        }
        Self::parse(block).map_or(Found::Damaged, Found::Whole)
    }

    fn parse(block: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(block).ok()?;
        let (heading, rest) = text.split_once('\n')?;
        let (state, rest) = rest.split_once('\n')?;
        let (value, padding) = rest.split_once('\n')?;
        let sum = fnv(format!("{state}\n{value}\n").as_bytes());
        let whole = heading.strip_prefix(MAGIC)? == format!("{sum:016x}")
            && padding.bytes().all(|byte| byte.is_ascii_whitespace());
        let content: Self = serde_json::from_str(state).ok()?;
        let value = value.to_owned();
        whole.then_some(Self { value, ..content })
    }
}

/// Reads a lock file.
pub(super) fn read(file: impl AsFd) -> rustix::io::Result<Found> {
    let mut block = [0; SIZE];
    let mut filled = 0;
    while filled < SIZE {
        match rustix::io::pread(file.as_fd(), &mut block[filled..], filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Content::decode(&block[..filled]))
}

/// Writes a lock file, whose lock the caller has. When that fails, `before` is put back, so
/// that the last fencing token is not forgotten.
pub(super) fn write(
    file: impl AsFd,
    content: &Content,
    before: Option<&Content>,
) -> rustix::io::Result<()> {
    let block = content.encode().ok_or(Errno::FBIG)?;
    let written = write_all(file.as_fd(), &block);
    if written.is_err() {
        // Best effort: where even this fails the checksum tells it, and the next holder draws
        // its fencing token from the clock.
        let _ = match before.and_then(Content::encode) {
            Some(block) => write_all(file.as_fd(), &block),
            None => rustix::fs::ftruncate(file.as_fd(), 0),
        };
    }
    written
}

fn write_all(file: impl AsFd, block: &[u8]) -> rustix::io::Result<()> {
    let mut written = 0;
    while written < block.len() {
        match rustix::io::pwrite(file.as_fd(), &block[written..], written as u64) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> Content {
        Content {
            name: "a/b\"".into(),
            fence: 7,
            held_until: Some(HeldUntil::new(
                "boot".into(),
                Boot::at(Duration::from_micros(1_000_001)),
            )),
            pid_namespace: 4_026_531_836,
            value: "{\"v\":1}".into(),
        }
    }

    #[test]
    fn contents_round_trip_in_a_block_of_fixed_size() {
        let block = content().encode().unwrap();
        assert_eq!(block.len(), SIZE);
        assert_eq!(Content::decode(&block), Found::Whole(content()));
        let longest = Content {
            name: "\"".repeat(200),
            value: "x".repeat(700),
            ..content()
        };
        assert!(longest.encode().is_some());
    }

    #[test]
    fn half_a_write_is_noticed_and_other_files_are_not_ours() {
        let old = content().encode().unwrap();
        let new = Content {
            fence: 8,
            ..content()
        };
        let new = new.encode().unwrap();
        for cut in 1..SIZE {
            let mixed = [&new[..cut], &old[cut..]].concat();
            if mixed != old && mixed != new {
                assert_eq!(Content::decode(&mixed), Found::Damaged, "{cut}");
            }
        }
        assert_eq!(Content::decode(&old[..100]), Found::Damaged);
        assert_eq!(Content::decode(b""), Found::Empty);
        assert_eq!(Content::decode(b"4711\n"), Found::Foreign);
    }

    #[test]
    fn cooling_ends_with_its_time_and_with_its_boot() {
        let content = content();
        let second = Boot::at(Duration::from_secs(1));
        assert_eq!(
            content.cooling("boot", second),
            Some(Duration::from_millis(1))
        );
        let later = second.plus(Duration::from_millis(1));
        assert_eq!(content.cooling("boot", later), None);
        assert_eq!(content.cooling("another", second), None);
        assert_eq!(content.cooling("", second), None);
    }
}
