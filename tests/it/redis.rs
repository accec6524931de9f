//! What only a Redis server has: its faults, its permissions, its dialects.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use distlock::clock::{Boot, Stamp};
use distlock::model::TimeLeft;
use distlock::store::{
    Access, Acquired, ErrorKind, Evict, Evicted, Keep, LockStore, Loss, Released, Renewed,
    StoreError,
};

use crate::proxy::{Fault, FaultProxy};
use crate::servers::{RedisServer, certificates, free_port, is_old, within};
use crate::store::{LIMIT, claim, claim_for, free, key, open, open_as, raw, take, tombstone};

const SHORT: Duration = Duration::from_millis(300);

/// How much later than its limit a call may end on a busy host.
const SLACK: Duration = Duration::from_secs(2);

/// Makes a call that must fail within `SHORT`.
fn fails<T: std::fmt::Debug>(call: impl FnOnce(Duration) -> Result<T, StoreError>) -> StoreError {
    let start = Boot::now();
    let error = call(SHORT).unwrap_err();
    let took = Boot::now().since(start);
    assert!(took < SHORT + SLACK, "{took:?}: {error}");
    error
}

/// Waits until the unanswered acquire can no longer take effect.
fn outwait(error: &StoreError) {
    let until = error.effective_until.unwrap();
    assert!(until > Boot::now().minus(SLACK) && until < Boot::now().plus(SHORT + SLACK));
    assert!(within(SLACK + SHORT, || Boot::now() >= until));
}

#[test]
fn a_run_takes_three_round_trips_on_one_connection() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.socket());
    let mut store = open(&proxy.url());
    store.clock(LIMIT).unwrap();
    let hold = take(&mut *store, &claim("l"));
    assert_eq!(free(&mut *store, &hold), Released::Freed);
    assert_eq!(proxy.connections(), 1);
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = |command: &str| stats.contains(&format!("cmdstat_{command}:calls="));
    assert!(
        calls("time") && calls("eval") && !calls("evalsha") && !calls("script"),
        "{stats}"
    );
    assert!(
        server
            .command(&["INFO", "clients"])
            .contains("connected_clients:2")
    );
    let named = server.command(&["CLIENT", "LIST"]);
    assert!(named.contains("name=distlock:l "), "{named}");
}

#[test]
fn a_call_before_the_server_answers_has_no_effect_to_wait_for() {
    let server = RedisServer::start();
    server.freeze();
    let mut store = open(&server.url());
    let error = fails(|limit| store.clock(limit));
    assert_eq!(
        (error.kind, error.effective_until),
        (ErrorKind::NoAnswer, None)
    );
    assert!(error.text.contains("timed out"), "{error}");
    let error = fails(|limit| store.acquire(&claim("l"), limit));
    assert_eq!(
        (error.kind, error.effective_until),
        (ErrorKind::NoAnswer, None)
    );
    server.go_on();
    assert_eq!(store.inspect(&key("l"), LIMIT).unwrap(), None);
}

#[test]
fn an_acquire_that_a_frozen_server_carries_out_late_does_nothing() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    store.clock(LIMIT).unwrap();
    server.freeze();
    let error = fails(|limit| store.acquire(&claim("l"), limit));
    assert_eq!(error.kind, ErrorKind::NoAnswer);
    outwait(&error);
    server.go_on();
    assert_eq!(store.inspect(&key("l"), LIMIT).unwrap(), None);
    server.tell(&["PING"]);
    assert_eq!(store.list(LIMIT).unwrap(), vec![]);
}

#[test]
fn requests_that_a_proxy_delivers_late_do_nothing() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.socket());
    let mut store = open(&proxy.url());
    let hold = take(
        &mut *store,
        &claim_for(key("renewed"), Duration::from_secs(1)),
    );
    server.tell(&["CONFIG", "RESETSTAT"]);
    proxy.set(Fault::Hold);
    let error = fails(|limit| store.renew(&hold, limit));
    assert_eq!(error.kind, ErrorKind::NoAnswer);
    assert!(within(LIMIT, || !server
        .command(&["EXISTS", "distlock:{renewed}"])
        .contains(":1")));
    proxy.set(Fault::None);
    store.clock(LIMIT).unwrap();
    proxy.set(Fault::Hold);
    let error = fails(|limit| store.acquire(&claim("taken"), limit));
    outwait(&error);
    proxy.set(Fault::None);
    let scripts = || {
        let stats = server.command(&["INFO", "commandstats"]);
        stats.contains("cmdstat_eval:calls=2")
    };
    assert!(
        within(LIMIT, scripts),
        "{}",
        server.command(&["INFO", "commandstats"])
    );
    assert_eq!(open(&server.url()).list(LIMIT).unwrap(), vec![]);
}

#[test]
fn an_acquire_whose_reply_was_lost_is_granted_when_presented_again() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.socket());
    for fault in [Fault::LoseReply, Fault::CutReply] {
        let mut store = open(&proxy.url());
        let claim = claim(&format!("{fault:?}"));
        proxy.set(Fault::None);
        // The first script finds out what the server understands.
        take(
            &mut *store,
            &self::claim(&format!("first {fault:?}").replace(' ', "-")),
        );
        proxy.set(fault);
        let error = fails(|limit| store.acquire(&claim, limit));
        assert!(error.effective_until.is_some());
        proxy.set(Fault::None);
        let found = store.inspect(&claim.key, LIMIT).unwrap().unwrap();
        let hold = take(&mut *store, &claim);
        assert_eq!(hold.fence, found.fence);
        assert_eq!(free(&mut *store, &hold), Released::Freed);
    }
}

#[test]
fn an_acquire_that_was_cut_off_at_any_byte_ends_in_time_and_leaves_no_orphan() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.socket());
    let mut store = open(&proxy.url());
    take(&mut *store, &claim("first"));
    let mut bytes = 0;
    loop {
        let claim = claim(&format!("cut-at-{bytes}"));
        store.clock(LIMIT).unwrap();
        proxy.set(Fault::HoldAfter(bytes));
        let Err(error) = store.acquire(&claim, SHORT / 3) else {
            // More than the whole request.
            proxy.set(Fault::None);
            break;
        };
        assert_eq!(error.kind, ErrorKind::NoAnswer);
        outwait(&error);
        proxy.set(Fault::None);
        bytes += if bytes < 20 { 7 } else { 150 };
    }
    assert!(bytes > 1000, "{bytes}");
    let delivered = || server.command(&["CLIENT", "LIST"]).lines().count() <= 4;
    assert!(
        within(LIMIT, delivered),
        "{}",
        server.command(&["CLIENT", "LIST"])
    );
    let left = open(&server.url()).list(LIMIT).unwrap();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn an_interrupted_acquire_says_until_when_it_may_take_effect() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.socket());
    let mut store = open(&proxy.url());
    take(&mut *store, &claim("first"));
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    store.interrupt_by(&[ours.as_fd()]);
    proxy.set(Fault::Swallow);
    let cut = std::thread::spawn(move || {
        nix::poll::poll(&mut [], 100u8).unwrap();
        drop(theirs);
    });
    let error = store.acquire(&claim("l"), LIMIT).unwrap_err();
    cut.join().unwrap();
    assert_eq!(error.kind, ErrorKind::Interrupted);
    assert!(error.effective_until.is_some());
    assert_eq!(store.watch(), None);
}

#[test]
fn a_server_with_too_many_clients_says_so() {
    let server = RedisServer::with(&["--maxclients", "2"]);
    let (mut one, mut two) = (open(&server.url()), open(&server.url()));
    let known = |store: &mut dyn LockStore| store.clock(LIMIT).is_ok();
    assert!(within(LIMIT, || known(&mut *one)) && within(LIMIT, || known(&mut *two)));
    let error = open(&server.url()).clock(LIMIT).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoAnswer);
    assert!(error.text.contains("max number of clients"), "{error}");
}

#[test]
fn every_fault_of_the_network_ends_a_call_in_time_and_the_next_one_succeeds() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.socket());
    let mut store = open(&proxy.url());
    let hold = take(&mut *store, &claim("l"));
    let pause = Duration::from_millis(20);
    for fault in [
        Fault::Refuse,
        Fault::Swallow,
        Fault::Cut,
        Fault::LoseReply,
        Fault::CutReply,
        Fault::Trickle(pause),
    ] {
        store.disconnect();
        proxy.set(fault);
        let error = fails(|limit| store.renew(&hold, limit));
        assert!(error.kind.is_worth_retrying(), "{fault:?}: {error}");
        assert_eq!(store.watch(), None);
        proxy.set(Fault::None);
        store.clock(LIMIT).unwrap();
        proxy.set(fault);
        if fault != Fault::Refuse {
            let error = fails(|limit| store.renew(&hold, limit));
            assert!(error.kind.is_worth_retrying(), "{fault:?}: {error}");
        }
        proxy.set(Fault::None);
        let renewed = store.renew(&hold, LIMIT).unwrap();
        assert!(
            matches!(renewed, Renewed::Renewed { .. }),
            "{fault:?}: {renewed:?}"
        );
    }
    proxy.set(Fault::Trickle(Duration::from_micros(100)));
    store.renew(&hold, LIMIT).unwrap();
}

#[test]
fn a_connection_that_the_server_closed_is_replaced_within_the_call() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let hold = take(&mut *store, &claim("l"));
    server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
    let renewed = store.renew(&hold, LIMIT).unwrap();
    assert!(matches!(renewed, Renewed::Renewed { .. }), "{renewed:?}");
}

#[test]
fn the_watched_descriptor_tells_that_the_server_is_gone() {
    let mut server = RedisServer::start();
    let mut store = open(&server.url());
    let hold = take(&mut *store, &claim("l"));
    assert!(store.watch().is_some());
    server.kill();
    let error = store.renew(&hold, LIMIT).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Down);
    server.restart();
    // The server came back empty, and nobody had the lock in between.
    assert!(matches!(
        store.renew(&hold, LIMIT).unwrap(),
        Renewed::TakenBack { .. }
    ));
}

#[test]
fn a_server_that_does_not_listen_is_down() {
    let error = open(&format!("redis://127.0.0.1:{}", free_port()))
        .clock(LIMIT)
        .unwrap_err();
    assert_eq!(
        (error.kind, error.text.as_str()),
        (ErrorKind::Down, "connection refused")
    );
    let error = open("redis+unix:///nonexistent/socket")
        .clock(LIMIT)
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Down);
}

#[test]
fn a_host_name_is_looked_up_and_a_wrong_one_said() {
    let server = RedisServer::tcp(&[]);
    let url = server.url().replace("127.0.0.1", "localhost");
    open(&url).clock(LIMIT).unwrap();
    let mut store = open("redis://no-such-host.invalid");
    let error = store.clock(LIMIT).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoAnswer);
    assert!(error.text.starts_with("look-up failed") || error.text.starts_with("timed out"));
}

#[test]
fn a_replica_is_no_answer_and_never_says_absent() {
    let primary = RedisServer::tcp(&[]);
    let replica = RedisServer::start();
    let mut store = open(&replica.url());
    let hold = take(&mut *store, &claim("l"));
    let port = primary.url().rsplit(':').next().unwrap().to_owned();
    replica.tell(&["REPLICAOF", "127.0.0.1", &port]);
    let synced = || {
        replica
            .command(&["INFO", "replication"])
            .contains("master_link_status:up")
    };
    assert!(within(Duration::from_secs(20), synced), "{}", replica.log());
    let renewed = store.renew(&hold, LIMIT).unwrap_err();
    assert_eq!(renewed.kind, ErrorKind::NoAnswer, "{renewed}");
    let released = store.release(&hold, &Keep::default(), LIMIT).unwrap_err();
    assert_eq!(released.kind, ErrorKind::NoAnswer, "{released}");
    let error = store.acquire(&claim("m"), LIMIT).unwrap_err();
    assert_eq!(
        (error.kind, error.effective_until),
        (ErrorKind::NoAnswer, None),
        "{error}"
    );
}

#[test]
fn a_server_that_is_loading_is_down() {
    if is_old() {
        println!("skipped: an old server cannot be slowed down");
        return;
    }
    let mut server = RedisServer::with(&[
        "--appendonly",
        "yes",
        "--key-load-delay",
        "500",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    for batch in 0..20 {
        let mut words = vec!["MSET".to_owned()];
        for number in 0..500 {
            words.extend([format!("k{batch}-{number}"), "v".to_owned()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        server.tell(&words);
    }
    server.tell(&["BGREWRITEAOF"]);
    let rewritten = || {
        server
            .command(&["INFO", "persistence"])
            .contains("aof_rewrite_in_progress:0")
    };
    assert!(within(LIMIT, rewritten));
    server.restart();
    let mut store = open(&server.url());
    let error = store.acquire(&claim("l"), LIMIT).unwrap_err();
    assert_eq!(
        (error.kind, error.effective_until),
        (ErrorKind::Down, None),
        "{error}"
    );
    assert!(error.text.starts_with("LOADING"), "{error}");
}

#[test]
fn a_wrong_password_is_refused_and_never_shown() {
    let server = RedisServer::with(&["--requirepass", "correct"]);
    let error = open(&server.url()).clock(LIMIT).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.text.starts_with("NOAUTH"), "{error}");
    let wrong = Access {
        password: Some("battery staple".into()),
        ..Access::default()
    };
    let error = open_as(&server.url(), &wrong).clock(LIMIT).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(
        error.text.starts_with("WRONGPASS") && !error.text.contains("staple"),
        "{error}"
    );
    let right = Access {
        password: Some("correct".into()),
        ..Access::default()
    };
    open_as(&server.url(), &right).clock(LIMIT).unwrap();
    open(&format!("{}?pass=correct&db=3", server.url()))
        .clock(LIMIT)
        .unwrap();
    let none = RedisServer::start();
    let error = open_as(
        &none.url(),
        &Access {
            user: Some("me".into()),
            ..wrong
        },
    )
    .clock(LIMIT);
    assert_eq!(error.unwrap_err().kind, ErrorKind::Refused);
}

#[test]
fn a_changed_password_file_is_read_again() {
    let server = RedisServer::with(&["--requirepass", "first"]);
    let file = server.directory().join("password");
    std::fs::write(&file, "first\n").unwrap();
    let access = Access {
        password_file: Some(file.clone()),
        ..Access::default()
    };
    let mut store = open_as(&server.url(), &access);
    let hold = take(&mut *store, &claim("l"));
    std::fs::write(&file, "second\n").unwrap();
    change_password(&server, "first", "second");
    store.disconnect();
    assert!(matches!(
        store.renew(&hold, LIMIT).unwrap(),
        Renewed::Renewed { .. }
    ));
    // The old one serves while the file is away.
    std::fs::remove_file(&file).unwrap();
    store.disconnect();
    assert_eq!(free(&mut *store, &hold), Released::Freed);
    let error = open_as(&server.url(), &access).clock(LIMIT).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
}

fn change_password(server: &RedisServer, from: &str, to: &str) {
    let reply = server.commands(&[&["AUTH", from], &["CONFIG", "SET", "requirepass", to]]);
    assert!(!reply.contains('-'), "{reply}");
}

/// A server with a user who may do what the manual says, and no more.
fn server_with_least_permissions(more: &[&str]) -> RedisServer {
    let server = RedisServer::start();
    let mut words = vec!["ACL", "SETUSER", "locker", "on", ">secret", "~distlock:*"];
    words.extend("+set +get +del +pexpire +pttl +type +time +eval".split(' '));
    if is_old() {
        words.push("+role");
    }
    words.extend(more);
    server.tell(&words);
    server
}

fn locker() -> Access {
    Access {
        user: Some("locker".into()),
        password: Some("secret".into()),
        ..Access::default()
    }
}

#[test]
fn the_least_permissions_suffice() {
    let server = server_with_least_permissions(&["+scan"]);
    let mut store = open_as(&server.url(), &locker());
    let hold = take(&mut *store, &claim("l"));
    store.renew(&hold, LIMIT).unwrap();
    assert_eq!(store.list(LIMIT).unwrap().len(), 1);
    assert_eq!(free(&mut *store, &hold), Released::Freed);
    let hold = take(&mut *store, &claim("l"));
    let seen = store.inspect(&key("l"), LIMIT).unwrap().unwrap();
    assert_eq!(
        store.evict(&seen, &tombstone(&hold.claim), LIMIT).unwrap(),
        Evicted::Done
    );
    assert!(matches!(
        free(&mut *store, &hold),
        Released::Tombstone { .. }
    ));
}

#[test]
fn a_missing_permission_is_refused() {
    for missing in ["-eval", "-set", "-time", "resetkeys"] {
        let server = server_with_least_permissions(&[missing]);
        let mut store = open_as(&server.url(), &locker());
        let error = store.acquire(&claim("l"), LIMIT).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused, "{missing}: {error}");
        assert_eq!(error.effective_until, None, "{missing}: {error}");
    }
    let server = server_with_least_permissions(&[]);
    let mut store = open_as(&server.url(), &locker());
    assert_eq!(store.list(LIMIT).unwrap_err().kind, ErrorKind::Refused);
}

#[test]
fn a_server_without_eval_is_refused_with_the_reason() {
    let server = RedisServer::with(&["--rename-command", "EVAL", ""]);
    let error = open(&server.url()).acquire(&claim("l"), LIMIT).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.text.contains("no EVAL"), "{error}");
}

#[test]
fn a_full_server_still_renews_and_releases() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let hold = take(&mut *store, &claim("l"));
    let second = take(&mut *store, &claim("m"));
    server.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = store.acquire(&claim("n"), LIMIT).unwrap_err();
    assert_eq!(
        (error.kind, error.effective_until),
        (ErrorKind::NoAnswer, None),
        "{error}"
    );
    let renewed = store.renew(&hold, LIMIT).unwrap();
    assert!(matches!(renewed, Renewed::Renewed { .. }), "{renewed:?}");
    let keep = Keep {
        rest: Duration::from_secs(60),
        cooling: "cooling".into(),
    };
    assert_eq!(
        store.release(&second, &keep, LIMIT).unwrap(),
        Released::Freed
    );
    let seen = store.inspect(&key("m"), LIMIT).unwrap().unwrap();
    assert_eq!(
        store.evict(&seen, &Evict::Now, LIMIT).unwrap(),
        Evicted::Done
    );
    assert_eq!(free(&mut *store, &hold), Released::Freed);
    assert_eq!(free(&mut *store, &hold), Released::Absent);
    assert_eq!(store.list(LIMIT).unwrap(), vec![]);
}

#[test]
fn a_key_of_another_type_is_foreign() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let hold = take(&mut *store, &claim("l"));
    server.tell(&["DEL", "distlock:{l}"]);
    server.tell(&["HSET", "distlock:{l}", "field", "value"]);
    let error = store.acquire(&claim("l"), LIMIT).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Foreign);
    assert_eq!(error.text, "the key holds a hash, not a lock");
    let renewed = store.renew(&hold, LIMIT).unwrap();
    assert_eq!(renewed, Renewed::Lost(Loss::Foreign("hash".into())));
    assert!(matches!(free(&mut *store, &hold), Released::Other(_)));
    assert_eq!(
        store.inspect(&key("l"), LIMIT).unwrap_err().kind,
        ErrorKind::Foreign
    );
    assert_eq!(store.list(LIMIT).unwrap(), vec![]);
    assert!(server.command(&["TYPE", "distlock:{l}"]).contains("hash"));
}

#[test]
fn the_value_of_another_program_is_respected() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    server.tell(&["SET", "jobs", "0123456789abcdef"]);
    let Acquired::Held(by) = store
        .acquire(&claim_for(raw("jobs"), LIMIT), LIMIT)
        .unwrap()
    else {
        panic!()
    };
    assert_eq!((by.record.as_ref(), by.left), (None, TimeLeft::Never));
    let hold = distlock::model::Hold {
        claim: claim_for(raw("jobs"), LIMIT),
        fence: None,
    };
    assert!(matches!(free(&mut *store, &hold), Released::Other(_)));
    let lost = store.renew(&hold, LIMIT).unwrap();
    assert!(matches!(lost, Renewed::Lost(Loss::Taken(_))), "{lost:?}");
    let how = Evict::Tombstone {
        value: "tombstone".into(),
        otherwise: Duration::from_secs(5),
    };
    assert_eq!(store.evict(&by, &how, LIMIT).unwrap(), Evicted::Done);
    server.set_bytes("binary", b"\xff\x00\xfe");
    let seen = store.inspect(&raw("binary"), LIMIT).unwrap().unwrap();
    assert_eq!(seen.value, b"\xff\x00\xfe");
    assert_eq!(
        store.evict(&seen, &Evict::Now, LIMIT).unwrap(),
        Evicted::Done
    );
    let found = store.inspect(&raw("jobs"), LIMIT).unwrap().unwrap();
    assert!(matches!(found.left, TimeLeft::For(left) if left <= Duration::from_secs(5)));
}

#[test]
fn a_renewal_tells_that_the_expiry_was_removed() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let hold = take(&mut *store, &claim("l"));
    server.tell(&["PERSIST", "distlock:{l}"]);
    let Renewed::Renewed { found, .. } = store.renew(&hold, LIMIT).unwrap() else {
        panic!()
    };
    assert!(found > Some(Duration::from_secs(24 * 3600)));
    assert!(!server.command(&["PTTL", "distlock:{l}"]).contains("-1"));
}

#[test]
fn fencing_tokens_rise_even_after_a_flush() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    let first = take(&mut *store, &claim("l"));
    server.tell(&["FLUSHALL"]);
    let second = take(&mut *store, &claim("l"));
    assert!(second.fence > first.fence);
    let lost = store.renew(&first, LIMIT).unwrap();
    let Renewed::Lost(Loss::Taken(by)) = lost else {
        panic!("{lost:?}")
    };
    assert_eq!(by.value, second.claim.value.as_bytes());
}

#[test]
fn the_sent_stamp_is_taken_before_the_server_counts() {
    let server = RedisServer::start();
    let mut store = open(&server.url());
    store.clock(LIMIT).unwrap();
    let before = Stamp::now();
    let Acquired::Granted { sent, .. } = store.acquire(&claim("l"), LIMIT).unwrap() else {
        panic!()
    };
    assert!(sent.boot >= before.boot && sent.boot <= Boot::now());
}

#[test]
fn tls_is_verified_unless_told_otherwise() {
    if !cfg!(feature = "tls") {
        println!("skipped: built without TLS");
        return;
    }
    let Some(server) = RedisServer::tls(certificates()) else {
        return;
    };
    let trusting = |ca: &Path| Access {
        cacert: Some(ca.join("ca.pem")),
        ..Access::default()
    };
    let mut store = open_as(&server.url(), &trusting(server.directory()));
    store.clock(LIMIT).unwrap();
    let hold = take(&mut *store, &claim("l"));
    store.renew(&hold, LIMIT).unwrap();
    assert_eq!(free(&mut *store, &hold), Released::Freed);
    let other = certificates();
    let error = open_as(&server.url(), &trusting(other.path()))
        .clock(LIMIT)
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.text.starts_with("TLS: "), "{error}");
    let wrong_name = server.url().replace("localhost", "127.0.0.2");
    let error = open_as(&wrong_name, &trusting(server.directory()))
        .clock(LIMIT)
        .unwrap_err();
    assert!(
        matches!(error.kind, ErrorKind::Refused | ErrorKind::Down),
        "{error}"
    );
    let insecure = Access {
        insecure: true,
        ..Access::default()
    };
    open_as(&server.url(), &insecure).clock(LIMIT).unwrap();
    let ours = Access {
        cert: Some(server.directory().join("server.pem")),
        key: Some(server.directory().join("server.key")),
        ..trusting(server.directory())
    };
    open_as(&server.url(), &ours).clock(LIMIT).unwrap();
    server.freeze();
    let error = fails(|limit| open_as(&server.url(), &insecure).clock(limit));
    assert_eq!(error.kind, ErrorKind::NoAnswer, "{error}");
    server.go_on();
}
