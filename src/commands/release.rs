//! `distlock release`: an operator frees a lock that somebody holds.
//!
//! What is released is the value that was seen, and no other: a lock that changed hands
//! meanwhile is left alone.

use std::time::Duration;

use super::{Trouble, connect, show};
use crate::cli;
use crate::clock::ServerTime;
use crate::config::{self, Environment, Target};
use crate::identity;
use crate::model::{
    Condition, Holder, HolderId, Holding, Record, TimeLeft, Token, code, escape, human,
};
use crate::output::words::{condition, description, who};
use crate::output::{ask, can_ask, complain};
use crate::store::{Evict, Evicted, LockStore, StoreError};

/// Nothing was done: held by another id, changed hands, or not confirmed.
const NOT_DONE: u8 = 1;

/// A tombstone lives for so long where nothing else says how long: the default TTL.
const TOMBSTONE: Duration = Duration::from_secs(60);

/// Whose lock may be released.
enum Wanted {
    /// The one with this id only.
    Id(HolderId),
    /// Whoever has it.
    Any { ask: bool },
}

/// Releases the lock.
pub(super) fn release(flags: &cli::Release, environment: &Environment) -> Result<u8, Trouble> {
    let wanted = wanted(flags)?;
    let raw_key = flags.raw_key.as_deref();
    let target = config::target(&flags.name, raw_key, &flags.connection, environment)?;
    let name = target.key.name.as_str();
    let failed = |e: StoreError| Trouble::with_store("ask", &target.connection, &e).about(name);
    let limit = target.connection.connect_timeout;
    let mut store = connect(&target.connection).map_err(failed)?;
    let Some(seen) = store.inspect(&target.key, limit).map_err(failed)? else {
        return already_free(&target);
    };
    if !wanted.is(&seen, name) {
        return Ok(NOT_DONE);
    }
    if condition(&seen) == Condition::Released && !flags.now {
        show(&format!("{name}: already {}\n", description(&seen)))?;
        return Ok(0);
    }
    evict(store.as_mut(), &target, &seen, flags.now)
}

fn wanted(flags: &cli::Release) -> Result<Wanted, Trouble> {
    let Some(id) = &flags.id else {
        if !flags.yes && !can_ask() {
            let text = "--force asks on a terminal, and there is none: add --yes";
            return Err(Trouble::new(code::USAGE, text));
        }
        return Ok(Wanted::Any { ask: !flags.yes });
    };
    HolderId::parse(id).map(Wanted::Id).ok_or_else(|| {
        let text = format!(
            "--id: {:?} is not an id: 8 digits and letters a to f, as `distlock status` shows them",
            escape(id, 40)
        );
        Trouble::new(code::USAGE, text)
    })
}

impl Wanted {
    /// Whether that is it; says why not.
    fn is(&self, seen: &Holding, name: &str) -> bool {
        let shown = description(seen);
        match self {
            Self::Any { ask: false } => true,
            Self::Any { ask: true } => {
                complain(Some(name), &shown);
                ask(&format!("Release {name}?"))
            }
            Self::Id(id) => {
                let found = seen
                    .record
                    .as_ref()
                    .and_then(|record| HolderId::parse(&record.id));
                if found.as_ref() == Some(id) {
                    return true;
                }
                let but = found.map_or_else(
                    || "it has no id (--force releases it)".to_owned(),
                    |found| format!("its id is {found} and not {id}"),
                );
                complain(Some(name), &format!("{shown}; {but}; nothing done"));
                false
            }
        }
    }
}

fn evict(
    store: &mut dyn LockStore,
    target: &Target,
    seen: &Holding,
    now: bool,
) -> Result<u8, Trouble> {
    let name = target.key.name.as_str();
    // Where the command has ended already nobody needs to be told.
    let how = if now || condition(seen) == Condition::Cooling {
        Evict::Now
    } else {
        tombstone(seen).map_err(|e| Trouble::new(code::OS, e).about(name))?
    };
    match store.evict(seen, &how, target.connection.connect_timeout) {
        Ok(Evicted::Done) => {
            show(&format!("{name}: {}\n", done(seen, &how)))?;
            Ok(0)
        }
        Ok(Evicted::Absent) => already_free(target),
        Ok(Evicted::Changed(other)) => {
            let text = format!(
                "changed hands meanwhile: {}; nothing done",
                description(&other)
            );
            complain(Some(name), &text);
            Ok(NOT_DONE)
        }
        Err(e) => Err(not_released(target, &e)),
    }
}

fn already_free(target: &Target) -> Result<u8, Trouble> {
    show(&format!("{}: already free\n", target.key.name))?;
    Ok(0)
}

fn not_released(target: &Target, error: &StoreError) -> Trouble {
    let mut trouble = Trouble::with_store("release it at", &target.connection, error);
    if error.kind.is_worth_retrying() {
        let hint = "; it may have been released all the same: look with `distlock status`";
        trouble = Trouble::new(trouble.code, trouble.text() + hint);
    }
    trouble.about(target.key.name.as_str())
}

/// The value that tells the holder, and keeps others out until its command has ended.
fn tombstone(seen: &Holding) -> Result<Evict, getrandom::Error> {
    let record = match &seen.record {
        Some(record) => record.clone(),
        None => record_of_stranger(seen.now)?,
    };
    let ttl = Some(record.ttl_ms).filter(|&ttl| ttl > 0);
    let by = identity::user_at_host();
    Ok(Evict::Tombstone {
        value: record.tombstone(&Token::random()?, &by).to_json(),
        otherwise: ttl.map_or(TOMBSTONE, Duration::from_millis),
    })
}

/// Another program wrote the value: nothing is known of who did.
fn record_of_stranger(now: ServerTime) -> Result<Record, getrandom::Error> {
    let holder = Holder {
        host: "unknown".into(),
        user: "unknown".into(),
        pid: 0,
        boot: String::new(),
        program: "another program".into(),
        reason: None,
    };
    let (token, id) = (Token::random()?, HolderId::random()?);
    Ok(Record::new(&token, &id, &holder, now, None))
}

/// What was done, and what comes of it.
fn done(seen: &Holding, how: &Evict) -> String {
    let record = seen.record.as_ref();
    let holder = record.map_or_else(|| "another program".into(), who);
    let host = record.map_or_else(|| "its host".into(), |record| escape(&record.host, 64));
    match (how, seen.left) {
        _ if condition(seen) == Condition::Cooling => "released; its command had ended".into(),
        (Evict::Tombstone { .. }, TimeLeft::WhileHeld) => {
            format!("told {holder} to end; free when its command has ended")
        }
        (Evict::Tombstone { .. }, left) => format!(
            "released; {holder} is told to stop its command; free when it has ended, at the latest in {}",
            at_the_latest(left)
        ),
        (Evict::Now, TimeLeft::WhileHeld) => {
            format!("killed distlock of {holder}; free when its command is dead")
        }
        (Evict::Now, TimeLeft::For(left)) => {
            let until = seen.now.plus(left);
            format!("released at once; its command on {host} may run until {until}")
        }
        (Evict::Now, TimeLeft::Never) => {
            format!("released at once; its command on {host} may still run")
        }
    }
}

/// How long a tombstone lives if its holder does not delete it.
fn at_the_latest(left: TimeLeft) -> String {
    match left {
        TimeLeft::For(left) => human(left),
        TimeLeft::Never | TimeLeft::WhileHeld => human(TOMBSTONE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LockKey, LockName};

    fn seen(value: &str, left: TimeLeft) -> Holding {
        let key: LockKey = "x".parse::<LockName>().unwrap().into();
        Holding::new(key, value.into(), left, ServerTime(1_796_000_000_000_000))
    }

    fn value(how: &Evict) -> Record {
        let Evict::Tombstone { value, .. } = how else {
            panic!("{how:?}");
        };
        Record::parse(value.as_bytes()).unwrap()
    }

    #[test]
    fn a_tombstone_keeps_the_id_and_has_a_token_of_its_own() {
        let id = "7f3a91c2";
        let record = format!("{{\"v\":1,\"token\":\"t\",\"id\":\"{id}\",\"ttl_ms\":30000}}");
        let how = tombstone(&seen(&record, TimeLeft::Never)).unwrap();
        let written = value(&how);
        assert_eq!(written.condition(), Condition::Released);
        assert_eq!(written.id, id);
        assert_ne!(written.token, "t");
        assert_eq!(written.released_by, Some(identity::user_at_host()));
        let Evict::Tombstone { otherwise, .. } = how else {
            panic!("{how:?}");
        };
        assert_eq!(otherwise, Duration::from_secs(30));
    }

    #[test]
    fn the_value_of_another_program_becomes_a_tombstone_that_we_can_read() {
        let how = tombstone(&seen("MTIzNDU2", TimeLeft::Never)).unwrap();
        assert_eq!(value(&how).condition(), Condition::Released);
    }

    #[test]
    fn what_may_still_run_is_said_with_its_host_and_its_end() {
        let record = "{\"v\":1,\"token\":\"t\",\"id\":\"7f3a91c2\",\"host\":\"web3\"}";
        let left = TimeLeft::For(Duration::from_secs(48));
        assert_eq!(
            done(&seen(record, left), &Evict::Now),
            "released at once; its command on web3 may run until 2026-11-30T00:54:08.000Z"
        );
        assert!(
            done(&seen("other", TimeLeft::Never), &Evict::Now)
                .ends_with("its command on its host may still run")
        );
    }
}
