//! Looking without taking: one lock, or all of them.

use std::collections::BTreeSet;

use redis::Value;

use super::super::{ErrorKind, StoreError};
use super::connection::Failure;
use super::errors;
use super::keys::{self, Keys};
use super::link::{Link, pack};
use super::lookup::Late;
use super::script;
use super::time_left;
use super::wait::Attempt;
use crate::clock::{Boot, ServerTime};
use crate::model::{FencingToken, Holding, LockKey, LockName};

/// So many keys are asked for in one round trip.
const BATCH: usize = 100;

/// How much of the keyspace one SCAN looks at.
const COUNT: &str = "1000";

/// What is at `key`.
pub(super) fn inspect(
    link: &mut Link,
    key: &LockKey,
    attempt: &Attempt<'_>,
) -> Result<Option<Holding>, StoreError> {
    let connection = link.ready(Late::Wait, attempt)?;
    let mut request = Vec::new();
    ask_for(&Keys::from(key), &mut request);
    pack(&["TIME"], &mut request);
    let replies = connection.exchange(&request, 4, attempt)?;
    let now = super::link::sample(&replies)?.time;
    match found(key, &replies.values, now) {
        Ok(holding) => Ok(holding),
        Err(Failure { error, .. }) if error.kind == ErrorKind::Foreign => Err(StoreError::new(
            error.kind,
            "the key holds something that is not a lock",
        )),
        Err(failure) => Err(failure.error),
    }
}

/// Every lock under our prefix.
pub(super) fn list(link: &mut Link, attempt: &Attempt<'_>) -> Result<Vec<Holding>, StoreError> {
    link.ready(Late::Wait, attempt)?;
    let names: Vec<LockName> = scan(link, attempt)?.into_iter().collect();
    let mut holdings = Vec::with_capacity(names.len());
    for batch in names.chunks(BATCH) {
        let now = link.sample(Late::Wait, attempt)?.latest(Boot::now());
        let connection = link.ready(Late::Wait, attempt)?;
        let mut request = Vec::new();
        let batch: Vec<LockKey> = batch.iter().cloned().map(LockKey::from).collect();
        for key in &batch {
            ask_for(&Keys::from(key), &mut request);
        }
        let replies = connection.exchange(&request, 3 * batch.len(), attempt)?;
        for (key, replies) in batch.iter().zip(replies.values.chunks(3)) {
            match found(key, replies, now) {
                Ok(holding) => holdings.extend(holding),
                // Whatever else has a name like ours is no lock.
                Err(failure) if failure.error.kind == ErrorKind::Foreign => {}
                Err(failure) => return Err(failure.error),
            }
        }
    }
    Ok(holdings)
}

/// The names of all locks; a SCAN may tell a key twice.
fn scan(link: &mut Link, attempt: &Attempt<'_>) -> Result<BTreeSet<LockName>, StoreError> {
    let mut names = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let connection = link.connection.as_mut().ok_or_else(errors::closed)?;
        let mut request = Vec::new();
        pack(
            &["SCAN", &cursor, "MATCH", keys::PATTERN, "COUNT", COUNT],
            &mut request,
        );
        let replies = connection.exchange(&request, 1, attempt)?;
        script::refuse(&replies.values[0])?;
        let Value::Array(answer) = &replies.values[0] else {
            return Err(errors::garbled());
        };
        let (Some(next), Some(Value::Array(found))) = (script::text(answer.first()), answer.get(1))
        else {
            return Err(errors::garbled());
        };
        names.extend(
            found
                .iter()
                .filter_map(|key| keys::name_of(script::bytes(Some(key))?)),
        );
        if next == "0" {
            return Ok(names);
        }
        next.clone_into(&mut cursor);
    }
}

fn ask_for(keys: &Keys, request: &mut Vec<u8>) {
    pack(&["GET", &keys.lock], request);
    pack(&["PTTL", &keys.lock], request);
    pack(&["GET", &keys.fence], request);
}

/// Reads the replies to [`ask_for`].
fn found(key: &LockKey, replies: &[Value], now: ServerTime) -> Result<Option<Holding>, Failure> {
    script::refuse(&replies[0])?;
    script::refuse(&replies[1])?;
    let (Some(value), Some(left)) = (
        script::bytes(replies.first()),
        script::integer(replies.get(1)),
    ) else {
        return Ok(None);
    };
    // It may expire between the two.
    if left == -2 {
        return Ok(None);
    }
    let mut holding = Holding::new(key.clone(), value.to_vec(), time_left(left), now);
    let fence = script::text(replies.get(2)).and_then(|text| text.parse().ok());
    holding.fence = fence.map(FencingToken);
    Ok(Some(holding))
}
