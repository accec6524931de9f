//! Locks in memory, for tests: the same answers as a server's, without a server.
//!
//! All handles of one [`MemoryServer`] see the same locks. Its clock is this host's wall clock
//! and whatever [`MemoryServer::advance`] adds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    Acquired, ErrorKind, Evict, Evicted, Keep, LeaseKind, LockStore, Loss, Released, Renewed,
    StoreError,
};
use crate::clock::{ServerTime, Stamp};
use crate::model::{Claim, Condition, FencingToken, Hold, Holding, LockKey, LockName, TimeLeft};

/// What a lock is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Name(LockName),
    Raw(String),
}

/// Locks that are shared by all stores made from it.
#[derive(Clone, Debug, Default)]
pub struct MemoryServer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    ahead: Duration,
    values: BTreeMap<Place, (Vec<u8>, Option<ServerTime>)>,
    fences: BTreeMap<Place, u64>,
    down: bool,
}

/// A store in memory.
#[derive(Debug)]
struct MemoryStore(MemoryServer);

impl MemoryServer {
    /// A store on this server.
    pub fn store(&self) -> Box<dyn LockStore> {
        Box::new(MemoryStore(self.clone()))
    }

    /// Moves the server's clock forward.
    pub fn advance(&self, by: Duration) {
        self.lock().ahead += by;
    }

    /// Makes the server refuse connections, or answer again.
    pub fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    /// Puts a value there, as another program would; without an expiry if `ttl` is `None`.
    pub fn put(&self, key: &LockKey, value: &[u8], ttl: Option<Duration>) {
        let mut state = self.lock();
        let end = ttl.map(|ttl| state.now().plus(ttl));
        state.values.insert(place(key), (value.to_vec(), end));
    }

    /// Forgets a value, as an eviction or an operator would.
    pub fn forget(&self, key: &LockKey) {
        self.lock().values.remove(&place(key));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.lock();
        if state.down {
            return Err(StoreError::new(ErrorKind::Down, "connection refused"));
        }
        Ok(state)
    }
}

impl State {
    fn now(&self) -> ServerTime {
        ServerTime::of_this_host().plus(self.ahead)
    }

    /// What is there and has not expired.
    fn found(&mut self, key: &LockKey) -> Option<Holding> {
        let (now, place) = (self.now(), place(key));
        let (value, end) = self.values.get(&place)?;
        let left = match end {
            Some(end) if *end <= now => {
                self.values.remove(&place);
                return None;
            }
            Some(end) => TimeLeft::For(end.since(now)),
            None => TimeLeft::Never,
        };
        let mut holding = Holding::new(key.clone(), value.clone(), left, now);
        holding.fence = self.fences.get(&place).copied().map(FencingToken);
        Some(holding)
    }

    fn set(&mut self, key: &LockKey, value: &[u8], ttl: Duration) {
        let end = Some(self.now().plus(ttl));
        self.values.insert(place(key), (value.to_vec(), end));
    }

    fn raise(&mut self, key: &LockKey, ours: Option<FencingToken>) {
        let last = self.fences.get(&place(key)).copied().unwrap_or(0);
        let fence = last.max(ours.map_or(0, |fence| fence.0)) + 1;
        self.fences.insert(place(key), fence);
    }

    fn acquire(&mut self, claim: &Claim, sent: Stamp) -> Acquired {
        let last = self.fences.get(&place(&claim.key)).copied();
        let found = self.found(&claim.key);
        let fence = match (found, last) {
            (Some(found), _) if found.value != claim.value.as_bytes() => {
                return Acquired::Held(Box::new(found));
            }
            (Some(_), Some(last)) => last,
            _ => self.now().0.max(last.unwrap_or(0) + 1),
        };
        self.fences.insert(place(&claim.key), fence);
        self.set(&claim.key, claim.value.as_bytes(), claim.ttl.length());
        Acquired::Granted {
            sent,
            fence: Some(FencingToken(fence)),
        }
    }

    fn renew(&mut self, hold: &Hold, sent: Stamp) -> Renewed {
        let claim = &hold.claim;
        let Some(found) = self.found(&claim.key) else {
            let last = self.fences.get(&place(&claim.key)).copied();
            let Some(ours) = hold.fence.filter(|_| claim.key.raw.is_none()) else {
                return Renewed::Lost(Loss::Absent);
            };
            if last.is_some_and(|last| last != ours.0) {
                return Renewed::Lost(Loss::Absent);
            }
            self.fences.insert(place(&claim.key), ours.0);
            self.set(&claim.key, claim.value.as_bytes(), claim.ttl.length());
            return Renewed::TakenBack { sent };
        };
        if found.value == claim.value.as_bytes() {
            self.set(&claim.key, claim.value.as_bytes(), claim.ttl.length());
            let found = match found.left {
                TimeLeft::For(left) => left,
                _ => super::NO_EXPIRY,
            };
            return Renewed::Renewed {
                sent,
                found: Some(found),
            };
        }
        Renewed::Lost(match super::released_by(&found, claim) {
            Some(by) => Loss::Released { by },
            None => Loss::Taken(Box::new(found)),
        })
    }

    fn release(&mut self, hold: &Hold, keep: &Keep) -> Released {
        let key = &hold.claim.key;
        let Some(found) = self.found(key) else {
            let last = self.fences.get(&place(key)).copied();
            if hold
                .fence
                .is_some_and(|ours| last.is_none_or(|last| last == ours.0))
            {
                self.raise(key, hold.fence);
            }
            return Released::Absent;
        };
        if found.value == hold.claim.value.as_bytes() {
            if keep.cooling.is_empty() || keep.rest.is_zero() {
                self.values.remove(&place(key));
            } else {
                self.set(key, keep.cooling.as_bytes(), keep.rest);
            }
            self.raise(key, hold.fence);
            return Released::Freed;
        }
        if !keep.cooling.is_empty() && found.value == keep.cooling.as_bytes() {
            return Released::Freed;
        }
        match super::released_by(&found, &hold.claim) {
            Some(by) => {
                self.values.remove(&place(key));
                self.raise(key, hold.fence);
                Released::Tombstone { by }
            }
            None => Released::Other(Box::new(found)),
        }
    }

    fn evict(&mut self, seen: &Holding, how: &Evict) -> Evicted {
        let Some(found) = self.found(&seen.key) else {
            return Evicted::Absent;
        };
        if found.value != seen.value {
            return Evicted::Changed(Box::new(found));
        }
        let cooling = found
            .record
            .as_ref()
            .is_some_and(|r| r.condition() == Condition::Cooling);
        match how {
            Evict::Tombstone { value, otherwise } if !cooling => {
                let left = match found.left {
                    TimeLeft::For(left) => left,
                    _ => *otherwise,
                };
                self.set(&seen.key, value.as_bytes(), left);
            }
            _ => drop(self.values.remove(&place(&seen.key))),
        }
        self.raise(&seen.key, None);
        Evicted::Done
    }
}

impl LockStore for MemoryStore {
    fn clock(&mut self, _limit: Duration) -> Result<ServerTime, StoreError> {
        Ok(self.0.ask()?.now())
    }

    fn acquire(&mut self, claim: &Claim, _limit: Duration) -> Result<Acquired, StoreError> {
        let sent = Stamp::now();
        Ok(self.0.ask()?.acquire(claim, sent))
    }

    fn renew(&mut self, hold: &Hold, _limit: Duration) -> Result<Renewed, StoreError> {
        let sent = Stamp::now();
        Ok(self.0.ask()?.renew(hold, sent))
    }

    fn release(
        &mut self,
        hold: &Hold,
        keep: &Keep,
        _limit: Duration,
    ) -> Result<Released, StoreError> {
        Ok(self.0.ask()?.release(hold, keep))
    }

    fn evict(
        &mut self,
        seen: &Holding,
        how: &Evict,
        _limit: Duration,
    ) -> Result<Evicted, StoreError> {
        Ok(self.0.ask()?.evict(seen, how))
    }

    fn inspect(&mut self, key: &LockKey, _limit: Duration) -> Result<Option<Holding>, StoreError> {
        Ok(self.0.ask()?.found(key))
    }

    fn list(&mut self, _limit: Duration) -> Result<Vec<Holding>, StoreError> {
        let mut state = self.0.ask()?;
        let key_of = |place: &Place| match place {
            Place::Name(name) => Some(LockKey::from(name.clone())),
            Place::Raw(_) => None,
        };
        let keys: Vec<LockKey> = state.values.keys().filter_map(key_of).collect();
        Ok(keys.iter().filter_map(|key| state.found(key)).collect())
    }

    fn lease(&self) -> LeaseKind {
        LeaseKind::Ttl
    }
}

/// A raw key is one place whatever the lock is called.
fn place(key: &LockKey) -> Place {
    match &key.raw {
        Some(raw) => Place::Raw(raw.as_str().to_owned()),
        None => Place::Name(key.name.clone()),
    }
}
