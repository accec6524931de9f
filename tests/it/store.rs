//! Behaviours that every store has.

use std::os::fd::AsFd;
use std::time::Duration;

use distlock::clock::ServerTime;
use distlock::model::{Claim, Condition, Hold, Holder, LockKey, Record, TimeLeft, Token, Ttl};
use distlock::store::memory::MemoryServer;
use distlock::store::{
    self, Access, Acquired, ErrorKind, Evict, Evicted, Keep, LeaseKind, LockStore, Loss, Released,
    Renewed,
};
use nix::sys::eventfd::EventFd;

use crate::servers::{RedisServer, within};

pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// A store to test: something that opens it, and keeps its server alive.
struct Row {
    name: &'static str,
    open: Box<dyn Fn() -> Box<dyn LockStore>>,
}

/// All stores. A new one is one line.
fn rows() -> Vec<Row> {
    vec![
        row("memory", MemoryServer::default(), MemoryServer::store),
        row("redis over a Unix socket", RedisServer::start(), |server| {
            open(&server.url())
        }),
        row("redis over TCP", RedisServer::tcp(&[]), |server| {
            open(&server.url())
        }),
    ]
}

fn row<S: 'static>(name: &'static str, server: S, open: fn(&S) -> Box<dyn LockStore>) -> Row {
    Row {
        name,
        open: Box::new(move || open(&server)),
    }
}

/// Runs a behaviour on each store.
fn on_every_store(behaviour: impl Fn(&dyn Fn() -> Box<dyn LockStore>)) {
    for row in rows() {
        println!("on {}", row.name);
        behaviour(&row.open);
    }
}

/// As [`on_every_store`], where a hold ends by itself.
fn on_every_store_with_a_ttl(behaviour: impl Fn(&dyn Fn() -> Box<dyn LockStore>)) {
    on_every_store(|open| {
        if open().lease() == LeaseKind::Ttl {
            behaviour(open);
        }
    });
}

/// Opens a store without any access options.
pub(crate) fn open(url: &str) -> Box<dyn LockStore> {
    open_as(url, &Access::default())
}

pub(crate) fn open_as(url: &str, access: &Access) -> Box<dyn LockStore> {
    store::open(&url.parse().unwrap(), access).unwrap()
}

pub(crate) fn key(name: &str) -> LockKey {
    name.parse::<distlock::model::LockName>().unwrap().into()
}

pub(crate) fn raw(name: &str) -> LockKey {
    LockKey {
        raw: Some(name.parse().unwrap()),
        ..key("n")
    }
}

pub(crate) fn claim_for(key: LockKey, ttl: Duration) -> Claim {
    let holder = Holder {
        host: "web3".into(),
        user: "deploy".into(),
        pid: 4711,
        boot: "0123abcd".into(),
        program: "pg_dump".into(),
        reason: None,
    };
    Claim::new(
        key,
        &holder,
        ServerTime::of_this_host(),
        Ttl::new(ttl).unwrap(),
    )
    .unwrap()
}

/// A claim on `name` for a minute.
pub(crate) fn claim(name: &str) -> Claim {
    claim_for(key(name), Duration::from_secs(60))
}

/// Acquires what must be free.
pub(crate) fn take(store: &mut dyn LockStore, claim: &Claim) -> Hold {
    match store.acquire(claim, LIMIT).unwrap() {
        Acquired::Granted { fence, .. } => Hold {
            claim: claim.clone(),
            fence,
        },
        Acquired::Held(by) => panic!("held by {by:?}"),
    }
}

pub(crate) fn free(store: &mut dyn LockStore, hold: &Hold) -> Released {
    store.release(hold, &Keep::default(), LIMIT).unwrap()
}

pub(crate) fn tombstone(claim: &Claim) -> Evict {
    let value = claim
        .record
        .tombstone(&Token::random().unwrap(), "root@db1")
        .to_json();
    Evict::Tombstone {
        value,
        otherwise: Duration::from_secs(60),
    }
}

fn is_held_by(acquired: &Acquired, claim: &Claim) -> bool {
    matches!(acquired, Acquired::Held(by) if by.value == claim.value.as_bytes())
}

#[test]
fn a_free_lock_is_granted_and_a_held_one_is_not() {
    on_every_store(|open| {
        let (mut one, mut two) = (open(), open());
        let first = claim("a/b");
        take(&mut *one, &first);
        let refused = two.acquire(&claim("a/b"), LIMIT).unwrap();
        assert!(is_held_by(&refused, &first), "{refused:?}");
        let Acquired::Held(by) = refused else {
            panic!()
        };
        assert_eq!(by.record, Some(first.record.clone()));
        take(&mut *two, &claim("other"));
    });
}

#[test]
fn a_claim_presented_again_is_granted_with_the_same_fencing_token() {
    on_every_store_with_a_ttl(|open| {
        let (mut one, mut two) = (open(), open());
        let first = claim("again");
        let hold = take(&mut *one, &first);
        assert!(hold.fence.is_some());
        assert_eq!(take(&mut *two, &first), hold);
    });
}

#[test]
fn a_released_lock_is_free_and_fencing_tokens_rise() {
    on_every_store(|open| {
        let (mut one, mut two) = (open(), open());
        let hold = take(&mut *one, &claim("l"));
        assert_eq!(free(&mut *one, &hold), Released::Freed);
        assert_eq!(one.inspect(&key("l"), LIMIT).unwrap(), None);
        let next = take(&mut *two, &claim("l"));
        assert!(next.fence > hold.fence, "{next:?} after {hold:?}");
    });
}

#[test]
fn a_release_is_absent_the_second_time_and_leaves_another_holder_alone() {
    on_every_store_with_a_ttl(|open| {
        let (mut one, mut two) = (open(), open());
        let hold = take(&mut *one, &claim("l"));
        assert_eq!(free(&mut *one, &hold), Released::Freed);
        assert_eq!(free(&mut *one, &hold), Released::Absent);
        let second = claim("l");
        take(&mut *two, &second);
        let Released::Other(by) = free(&mut *one, &hold) else {
            panic!()
        };
        assert_eq!(by.value, second.value.as_bytes());
        assert!(is_held_by(
            &one.acquire(&claim("l"), LIMIT).unwrap(),
            &second
        ));
    });
}

#[test]
fn a_lock_ends_with_its_ttl_unless_renewed() {
    on_every_store_with_a_ttl(|open| {
        let mut store = open();
        let short = claim_for(key("short"), Duration::from_secs(1));
        let hold = take(&mut *store, &short);
        let renewed = store.renew(&hold, LIMIT).unwrap();
        let Renewed::Renewed {
            found: Some(found), ..
        } = renewed
        else {
            panic!("{renewed:?}")
        };
        assert!(found <= Duration::from_secs(1));
        assert!(within(LIMIT, || store
            .inspect(&key("short"), LIMIT)
            .unwrap()
            .is_none()));
        take(&mut *store, &claim("short"));
        let lost = store.renew(&hold, LIMIT).unwrap();
        assert!(matches!(lost, Renewed::Lost(Loss::Taken(_))), "{lost:?}");
    });
}

#[test]
fn a_renewal_gives_the_whole_ttl_again() {
    on_every_store_with_a_ttl(|open| {
        let mut store = open();
        let hold = take(&mut *store, &claim("l"));
        store.renew(&hold, LIMIT).unwrap();
        let found = store.inspect(&key("l"), LIMIT).unwrap().unwrap();
        let TimeLeft::For(left) = found.left else {
            panic!("{found:?}")
        };
        assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
        assert_eq!(found.fence, hold.fence);
    });
}

#[test]
fn a_vanished_lock_is_taken_back_unless_somebody_had_it() {
    on_every_store_with_a_ttl(|open| {
        let mut store = open();
        let short = claim_for(key("back"), Duration::from_secs(1));
        let hold = take(&mut *store, &short);
        assert!(within(LIMIT, || store
            .inspect(&key("back"), LIMIT)
            .unwrap()
            .is_none()));
        assert!(matches!(
            store.renew(&hold, LIMIT).unwrap(),
            Renewed::TakenBack { .. }
        ));
        let found = store.inspect(&key("back"), LIMIT).unwrap().unwrap();
        assert_eq!(found.value, short.value.as_bytes());
        assert!(within(LIMIT, || store
            .inspect(&key("back"), LIMIT)
            .unwrap()
            .is_none()));
        let other = take(&mut *store, &claim("back"));
        assert!(other.fence > hold.fence);
        assert_eq!(free(&mut *store, &other), Released::Freed);
        assert_eq!(
            store.renew(&hold, LIMIT).unwrap(),
            Renewed::Lost(Loss::Absent)
        );
    });
}

#[test]
fn a_released_lock_is_never_taken_back() {
    on_every_store_with_a_ttl(|open| {
        let mut store = open();
        let hold = take(&mut *store, &claim("l"));
        free(&mut *store, &hold);
        assert_eq!(
            store.renew(&hold, LIMIT).unwrap(),
            Renewed::Lost(Loss::Absent)
        );
        // The same when the release found that the lock had vanished already.
        let hold = take(&mut *store, &claim_for(key("m"), Duration::from_secs(1)));
        assert!(within(LIMIT, || store
            .inspect(&key("m"), LIMIT)
            .unwrap()
            .is_none()));
        assert_eq!(free(&mut *store, &hold), Released::Absent);
        assert_eq!(
            store.renew(&hold, LIMIT).unwrap(),
            Renewed::Lost(Loss::Absent)
        );
    });
}

#[test]
fn a_lock_with_a_raw_key_is_never_taken_back() {
    on_every_store_with_a_ttl(|open| {
        let mut store = open();
        let hold = take(
            &mut *store,
            &claim_for(raw("{jobs}:nightly"), Duration::from_secs(1)),
        );
        assert!(
            store
                .inspect(&raw("{jobs}:nightly"), LIMIT)
                .unwrap()
                .is_some()
        );
        assert_eq!(store.list(LIMIT).unwrap(), vec![]);
        assert!(within(LIMIT, || store
            .inspect(&hold.claim.key, LIMIT)
            .unwrap()
            .is_none()));
        assert_eq!(
            store.renew(&hold, LIMIT).unwrap(),
            Renewed::Lost(Loss::Absent)
        );
    });
}

#[test]
fn a_cooling_record_keeps_the_lock_taken_for_the_rest() {
    on_every_store_with_a_ttl(|open| {
        let mut store = open();
        let hold = take(&mut *store, &claim("cool"));
        let record = hold
            .claim
            .record
            .cooling(&Token::random().unwrap(), ServerTime(1));
        let keep = Keep {
            rest: Duration::from_secs(1),
            cooling: record.to_json(),
        };
        assert_eq!(store.release(&hold, &keep, LIMIT).unwrap(), Released::Freed);
        assert_eq!(store.release(&hold, &keep, LIMIT).unwrap(), Released::Freed);
        let Acquired::Held(by) = store.acquire(&claim("cool"), LIMIT).unwrap() else {
            panic!()
        };
        assert_eq!(
            by.record.as_ref().map(Record::condition),
            Some(Condition::Cooling)
        );
        assert!(matches!(by.left, TimeLeft::For(left) if left <= keep.rest));
        assert!(matches!(
            store.renew(&hold, LIMIT).unwrap(),
            Renewed::Lost(_)
        ));
        assert!(within(LIMIT, || store
            .inspect(&key("cool"), LIMIT)
            .unwrap()
            .is_none()));
        assert_eq!(
            store.renew(&hold, LIMIT).unwrap(),
            Renewed::Lost(Loss::Absent)
        );
        let second = take(&mut *store, &claim("cool"));
        let none = Keep {
            rest: Duration::ZERO,
            ..keep
        };
        assert_eq!(
            store.release(&second, &none, LIMIT).unwrap(),
            Released::Freed
        );
        assert_eq!(store.inspect(&key("cool"), LIMIT).unwrap(), None);
    });
}

#[test]
fn a_forced_release_leaves_a_tombstone_that_the_holder_finds_and_removes() {
    on_every_store_with_a_ttl(|open| {
        let (mut holder, mut operator) = (open(), open());
        let hold = take(&mut *holder, &claim("l"));
        let seen = operator.inspect(&key("l"), LIMIT).unwrap().unwrap();
        let how = tombstone(&hold.claim);
        assert_eq!(operator.evict(&seen, &how, LIMIT).unwrap(), Evicted::Done);
        let Acquired::Held(by) = operator.acquire(&claim("l"), LIMIT).unwrap() else {
            panic!()
        };
        assert_eq!(
            by.record.as_ref().map(Record::condition),
            Some(Condition::Released)
        );
        assert!(matches!(by.left, TimeLeft::For(left) if left > Duration::from_secs(50)));
        let by = "root@db1".to_owned();
        let lost = Renewed::Lost(Loss::Released { by: by.clone() });
        assert_eq!(holder.renew(&hold, LIMIT).unwrap(), lost);
        assert_eq!(free(&mut *holder, &hold), Released::Tombstone { by });
        assert_eq!(
            holder.renew(&hold, LIMIT).unwrap(),
            Renewed::Lost(Loss::Absent)
        );
        assert!(take(&mut *operator, &claim("l")).fence > hold.fence);
    });
}

#[test]
fn a_forced_release_acts_on_the_value_that_was_seen_and_on_no_other() {
    on_every_store_with_a_ttl(|open| {
        let mut store = open();
        let first = take(&mut *store, &claim("l"));
        let seen = store.inspect(&key("l"), LIMIT).unwrap().unwrap();
        free(&mut *store, &first);
        assert_eq!(
            store.evict(&seen, &Evict::Now, LIMIT).unwrap(),
            Evicted::Absent
        );
        let second = take(&mut *store, &claim("l"));
        for how in [Evict::Now, tombstone(&first.claim)] {
            let changed = store.evict(&seen, &how, LIMIT).unwrap();
            let Evicted::Changed(now) = changed else {
                panic!("{changed:?}")
            };
            assert_eq!(now.value, second.claim.value.as_bytes());
        }
        let seen = store.inspect(&key("l"), LIMIT).unwrap().unwrap();
        assert_eq!(
            store.evict(&seen, &Evict::Now, LIMIT).unwrap(),
            Evicted::Done
        );
        assert_eq!(
            store.renew(&second, LIMIT).unwrap(),
            Renewed::Lost(Loss::Absent)
        );
    });
}

#[test]
fn a_cooling_record_is_evicted_at_once() {
    on_every_store_with_a_ttl(|open| {
        let mut store = open();
        let hold = take(&mut *store, &claim("l"));
        let record = hold
            .claim
            .record
            .cooling(&Token::random().unwrap(), ServerTime(1));
        let keep = Keep {
            rest: Duration::from_secs(60),
            cooling: record.to_json(),
        };
        store.release(&hold, &keep, LIMIT).unwrap();
        let seen = store.inspect(&key("l"), LIMIT).unwrap().unwrap();
        let how = tombstone(&hold.claim);
        assert_eq!(store.evict(&seen, &how, LIMIT).unwrap(), Evicted::Done);
        take(&mut *store, &claim("l"));
    });
}

#[test]
fn the_list_has_every_lock_in_the_order_of_names_and_nothing_else() {
    on_every_store_with_a_ttl(|open| {
        let mut store = open();
        assert_eq!(store.list(LIMIT).unwrap(), vec![]);
        for number in (0..250).rev() {
            take(&mut *store, &claim(&format!("l{number:03}")));
        }
        let listed = store.list(LIMIT).unwrap();
        let names: Vec<String> = listed.iter().map(|h| h.key.name.to_string()).collect();
        let expected: Vec<String> = (0..250).map(|number| format!("l{number:03}")).collect();
        assert_eq!(names, expected);
        assert!(
            listed
                .iter()
                .all(|h| h.record.is_some() && h.fence.is_some())
        );
    });
}

#[test]
fn the_clock_is_told_and_goes_on() {
    on_every_store(|open| {
        let mut store = open();
        let first = store.clock(LIMIT).unwrap();
        let second = store.clock(LIMIT).unwrap();
        assert!(second >= first && second.since(first) < LIMIT);
        assert!(first.since(ServerTime::of_this_host()) < LIMIT);
    });
}

#[test]
fn a_readable_descriptor_interrupts_calls_on_a_server() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    store.clock(LIMIT).unwrap();
    let wake = EventFd::new().unwrap();
    store.interrupt_by(&[wake.as_fd()]);
    store.clock(LIMIT).unwrap();
    wake.write(1).unwrap();
    server.freeze();
    assert_eq!(store.clock(LIMIT).unwrap_err().kind, ErrorKind::Interrupted);
    assert_eq!(store.watch(), None);
    server.go_on();
    store.interrupt_by(&[]);
    store.clock(LIMIT).unwrap();
    assert!(store.watch().is_some());
    store.disconnect();
    assert_eq!(store.watch(), None);
}
