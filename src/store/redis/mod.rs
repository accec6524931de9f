//! One Redis or Valkey server.
//!
//! The socket is our own, so that one absolute deadline bounds a whole attempt; the `redis`
//! crate only encodes commands and decodes replies. Any error drops the connection: a late
//! reply would answer the next request.

mod connection;
mod errors;
mod frame;
mod keys;
mod link;
mod listing;
mod lookup;
mod sample;
mod script;
mod socket;
mod stream;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod wait;

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use super::{
    Access, Acquired, ErrorKind, Evict, Evicted, Keep, LeaseKind, LockStore, Loss, NO_EXPIRY,
    Opened, Released, Renewed, ServerUrl, StoreError, released_by,
};
use crate::clock::{Boot, ServerTime};
use crate::model::{Claim, Condition, FencingToken, Hold, Holding, LockKey, TimeLeft, escape};

use self::link::{Answer, Link};
use self::lookup::{Late, Resolver};
use self::script::{Dialect, FENCE_LIFE};
use self::target::Target;
use self::wait::{Attempt, Limits};

pub(super) const SCHEMES: &[&str] = &["redis", "rediss", "redis+unix", "valkey", "valkeys"];

/// Opens the store; connects to nothing yet.
pub(super) fn open(server: &ServerUrl, access: &Access) -> Opened {
    let target = Target::new(server, access)?;
    #[cfg(not(feature = "tls"))]
    if target.tls {
        let text = "this distlock was built without TLS";
        return Err(StoreError::new(ErrorKind::Unsupported, text));
    }
    let link = Link {
        #[cfg(feature = "tls")]
        tls: target.tls_settings(access)?,
        target,
        resolver: Resolver::default(),
        connection: None,
        dialect: Dialect::default(),
        password: None,
        name: String::new(),
    };
    Ok(Box::new(RedisStore {
        link,
        limits: Limits::new()?,
    }))
}

/// A lock server, and the connection to it.
struct RedisStore {
    link: Link,
    limits: Limits,
}

impl RedisStore {
    /// Makes one attempt. One that fails takes the connection with it.
    fn attempt<T>(
        &mut self,
        limit: Duration,
        ask: impl FnOnce(&mut Link, &Attempt<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let attempt = self.limits.attempt(limit)?;
        let result = ask(&mut self.link, &attempt);
        if result.is_err() {
            self.link.connection = None;
        }
        result
    }
}

impl LockStore for RedisStore {
    fn clock(&mut self, limit: Duration) -> Result<ServerTime, StoreError> {
        self.attempt(limit, |link, attempt| {
            link.resolver.settle(attempt)?;
            let began = Boot::now();
            let greeted = link.ready(Late::Wait, attempt)?.sample;
            match greeted.filter(|sample| sample.asked >= began) {
                Some(sample) => Ok(sample.time),
                None => Ok(link.time(Late::Wait, attempt)?.time),
            }
        })
    }

    fn acquire(&mut self, claim: &Claim, limit: Duration) -> Result<Acquired, StoreError> {
        self.attempt(limit, |link, attempt| {
            link.resolver.settle(attempt)?;
            acquire(link, claim, attempt)
        })
    }

    fn renew(&mut self, hold: &Hold, limit: Duration) -> Result<Renewed, StoreError> {
        self.attempt(limit, |link, attempt| renew(link, hold, attempt))
    }

    fn release(
        &mut self,
        hold: &Hold,
        keep: &Keep,
        limit: Duration,
    ) -> Result<Released, StoreError> {
        self.attempt(limit, |link, attempt| release(link, hold, keep, attempt))
    }

    fn evict(
        &mut self,
        seen: &Holding,
        how: &Evict,
        limit: Duration,
    ) -> Result<Evicted, StoreError> {
        self.attempt(limit, |link, attempt| evict(link, seen, how, attempt))
    }

    fn inspect(&mut self, key: &LockKey, limit: Duration) -> Result<Option<Holding>, StoreError> {
        self.attempt(limit, |link, attempt| listing::inspect(link, key, attempt))
    }

    fn list(&mut self, limit: Duration) -> Result<Vec<Holding>, StoreError> {
        self.attempt(limit, listing::list)
    }

    fn lease(&self) -> LeaseKind {
        LeaseKind::Ttl
    }

    fn watch(&self) -> Option<RawFd> {
        self.link
            .connection
            .as_ref()
            .map(connection::Connection::as_raw_fd)
    }

    fn interrupt_by(&mut self, descriptors: &[BorrowedFd<'_>]) {
        self.limits.interrupt_by(descriptors);
    }

    fn disconnect(&mut self) {
        self.link.connection = None;
    }
}

fn acquire(link: &mut Link, claim: &Claim, attempt: &Attempt<'_>) -> Result<Acquired, StoreError> {
    let sample = link.sample(Late::Wait, attempt)?;
    let not_after = sample.latest(Boot::now()).plus(attempt.remaining());
    let (ttl, until) = (claim.ttl.millis().to_string(), not_after.0.to_string());
    let arguments = [
        claim.value.as_bytes(),
        ttl.as_bytes(),
        until.as_bytes(),
        FENCE_LIFE.as_bytes(),
    ];
    let answer = link
        .eval(script::ACQUIRE, &claim.key, &arguments, attempt)
        .map_err(|failure| {
            let effective_until = failure.in_doubt.then(|| sample.passed(not_after));
            StoreError {
                effective_until,
                ..failure.error
            }
        })?;
    match answer.status {
        1 | 2 => {
            let fence = script::text(answer.items.get(1)).and_then(|text| text.parse().ok());
            Ok(Acquired::Granted {
                sent: answer.sent,
                fence: fence.map(FencingToken),
            })
        }
        0 => Ok(Acquired::Held(Box::new(holding(&claim.key, &answer)?))),
        _ => Err(exception(&answer)),
    }
}

fn renew(link: &mut Link, hold: &Hold, attempt: &Attempt<'_>) -> Result<Renewed, StoreError> {
    let claim = &hold.claim;
    let sample = link.sample(Late::UseLast, attempt)?;
    let not_after = sample.latest(Boot::now()).plus(attempt.remaining());
    let (ttl, until) = (claim.ttl.millis().to_string(), not_after.0.to_string());
    let fence = number(hold.fence);
    // Others who use a raw key do not raise our fence: absent is lost there.
    let take_back: &[u8] = if claim.key.raw.is_none() { b"1" } else { b"0" };
    let arguments = [
        claim.value.as_bytes(),
        ttl.as_bytes(),
        until.as_bytes(),
        fence.as_bytes(),
        FENCE_LIFE.as_bytes(),
        take_back,
    ];
    let answer = link.eval(script::RENEW, &claim.key, &arguments, attempt)?;
    renewed(claim, &answer)
}

fn renewed(claim: &Claim, answer: &Answer) -> Result<Renewed, StoreError> {
    let sent = answer.sent;
    match answer.status {
        1 => {
            let found = script::integer(answer.items.get(1)).map(|left| match time_left(left) {
                TimeLeft::For(left) => left,
                _ => NO_EXPIRY,
            });
            Ok(Renewed::Renewed { sent, found })
        }
        2 => Ok(Renewed::TakenBack { sent }),
        -1 => Ok(Renewed::Lost(Loss::Absent)),
        0 => {
            let other = holding(&claim.key, answer)?;
            Ok(Renewed::Lost(match released_by(&other, claim) {
                Some(by) => Loss::Released { by },
                None => Loss::Taken(Box::new(other)),
            }))
        }
        -3 => Ok(Renewed::Lost(Loss::Foreign(kind_of(answer)))),
        _ => Err(exception(answer)),
    }
}

fn release(
    link: &mut Link,
    hold: &Hold,
    keep: &Keep,
    attempt: &Attempt<'_>,
) -> Result<Released, StoreError> {
    let key = &hold.claim.key;
    link.ready(Late::UseLast, attempt)?;
    let answer = release_value(link, hold, hold.claim.value.as_bytes(), keep, attempt)?;
    if answer.status != 0 {
        return released(key, &answer);
    }
    let other = holding(key, &answer)?;
    let Some(by) = released_by(&other, &hold.claim) else {
        return Ok(Released::Other(Box::new(other)));
    };
    let answer = release_value(link, hold, &other.value, &Keep::default(), attempt)?;
    match answer.status {
        0 => Ok(Released::Other(Box::new(holding(key, &answer)?))),
        1 | -1 => Ok(Released::Tombstone { by }),
        _ => released(key, &answer),
    }
}

/// Releases the lock if it has this value.
fn release_value(
    link: &mut Link,
    hold: &Hold,
    value: &[u8],
    keep: &Keep,
    attempt: &Attempt<'_>,
) -> Result<Answer, StoreError> {
    let (rest, fence) = (
        keep.rest.as_micros().div_ceil(1000).to_string(),
        number(hold.fence),
    );
    let arguments = [
        value,
        // Without a record to keep there is nothing to keep.
        if keep.cooling.is_empty() {
            b"0"
        } else {
            rest.as_bytes()
        },
        keep.cooling.as_bytes(),
        fence.as_bytes(),
        FENCE_LIFE.as_bytes(),
    ];
    Ok(link.eval(script::RELEASE, &hold.claim.key, &arguments, attempt)?)
}

fn released(key: &LockKey, answer: &Answer) -> Result<Released, StoreError> {
    match answer.status {
        1 => Ok(Released::Freed),
        -1 => Ok(Released::Absent),
        // Somebody put something else there: the lock is another's, and left alone.
        -3 => {
            let left = left_of(answer);
            let other = Holding::new(key.clone(), Vec::new(), left, answer.at);
            Ok(Released::Other(Box::new(other)))
        }
        _ => Err(exception(answer)),
    }
}

fn evict(
    link: &mut Link,
    seen: &Holding,
    how: &Evict,
    attempt: &Attempt<'_>,
) -> Result<Evicted, StoreError> {
    link.ready(Late::Wait, attempt)?;
    // Nobody runs under a cooling record: there is nobody to tell.
    let cooling = seen
        .record
        .as_ref()
        .is_some_and(|r| r.condition() == Condition::Cooling);
    let (tombstone, otherwise) = match how {
        Evict::Tombstone { value, otherwise } if !cooling => (value.as_bytes(), *otherwise),
        _ => (&b""[..], Duration::ZERO),
    };
    let otherwise = otherwise.as_millis().max(1).to_string();
    let arguments = [
        &seen.value,
        tombstone,
        otherwise.as_bytes(),
        FENCE_LIFE.as_bytes(),
    ];
    let answer = link.eval(script::EVICT, &seen.key, &arguments, attempt)?;
    match answer.status {
        1 => Ok(Evicted::Done),
        -1 => Ok(Evicted::Absent),
        0 => Ok(Evicted::Changed(Box::new(holding(&seen.key, &answer)?))),
        _ => Err(exception(&answer)),
    }
}

/// The statuses that all scripts share: too late, and not a lock.
fn exception(answer: &Answer) -> StoreError {
    match answer.status {
        -2 => StoreError::new(
            ErrorKind::NoAnswer,
            "the request reached the server too late",
        ),
        -3 => {
            let text = format!(
                "the key holds a {}, not a lock",
                escape(&kind_of(answer), 40)
            );
            StoreError::new(ErrorKind::Foreign, text)
        }
        _ => errors::garbled(),
    }
}

/// The value in an answer: status, value, PTTL, time.
fn holding(key: &LockKey, answer: &Answer) -> Result<Holding, StoreError> {
    let value = script::bytes(answer.items.get(1)).ok_or_else(errors::garbled)?;
    Ok(Holding::new(
        key.clone(),
        value.to_vec(),
        left_of(answer),
        answer.at,
    ))
}

/// The third element of an answer, a PTTL.
fn left_of(answer: &Answer) -> TimeLeft {
    time_left(script::integer(answer.items.get(2)).unwrap_or(0))
}

/// The second element of an answer, a type.
fn kind_of(answer: &Answer) -> String {
    script::text(answer.items.get(1))
        .unwrap_or("value of another type")
        .to_owned()
}

/// What PTTL says.
fn time_left(pttl: i64) -> TimeLeft {
    match u64::try_from(pttl) {
        Ok(millis) => TimeLeft::For(Duration::from_millis(millis)),
        Err(_) if pttl == -1 => TimeLeft::Never,
        Err(_) => TimeLeft::For(Duration::ZERO),
    }
}

fn number(fence: Option<FencingToken>) -> String {
    fence.map(|fence| fence.to_string()).unwrap_or_default()
}
