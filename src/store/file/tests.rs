//! What can be seen from inside only: copies of the descriptor, and whom a forced release ends.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

use super::*;
use crate::model::{Holder, Ttl};

const LIMIT: Duration = Duration::from_secs(2);

fn store(directory: &std::path::Path) -> FileStore {
    FileStore {
        place: Place::Directory(directory.to_owned()),
        held: Vec::new(),
    }
}

fn claim(name: &str, pid: u32) -> Claim {
    let holder = Holder {
        host: "here".into(),
        user: "me".into(),
        pid,
        boot: proc::boot_id()[..8].to_owned(),
        program: "sleep".into(),
        reason: None,
    };
    let name: LockName = name.parse().unwrap();
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    Claim::new(name.into(), &holder, ServerTime::of_this_host(), ttl).unwrap()
}

fn take(store: &mut FileStore, claim: &Claim) -> Hold {
    match store.acquire(claim, LIMIT).unwrap() {
        Acquired::Granted { fence, .. } => Hold {
            claim: claim.clone(),
            fence,
        },
        Acquired::Held(by) => panic!("held by {by:?}"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a process that keeps a descriptor"
)]
fn sleeper(stdin: Stdio) -> Child {
    let mut sleep = std::process::Command::new("sleep");
    let sleep = sleep.arg("30").stdin(stdin).spawn().unwrap();
    // The parent goes on a moment before exec(2) closes what is to be closed, copies of locked
    // descriptors among them; the new name comes after that.
    let name = format!("/proc/{}/comm", sleep.id());
    let end = Boot::now().plus(LIMIT);
    while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
        assert!(Boot::now() < end, "sleep was not executed");
        nix::poll::poll(&mut [], 1u8).unwrap();
    }
    sleep
}

#[test]
fn a_release_frees_it_though_another_process_has_a_copy_of_the_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let (mut front, mut other) = (store(directory.path()), store(directory.path()));
    let hold = take(&mut front, &claim("a", std::process::id()));
    let mut keeper = sleeper(front.held[0].file.try_clone().unwrap().into());

    // Both ways: a copy keeps it, and LOCK_UN on one frees all.
    let mut copy = store(directory.path());
    copy.held.push(Held {
        file: front.held[0].file.try_clone().unwrap(),
        leaf: front.held[0].leaf.clone(),
        content: front.held[0].content.clone(),
        until: None,
    });
    drop(front);
    let refused = other.acquire(&claim("a", 1), LIMIT).unwrap();
    assert!(matches!(refused, Acquired::Held(_)));
    let released = copy.release(&hold, &Keep::default(), LIMIT).unwrap();
    assert_eq!(released, Released::Freed);
    take(&mut other, &claim("a", 1));
    keeper.kill().unwrap();
    keeper.wait().unwrap();
}

#[test]
fn a_forced_release_ends_the_front_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    for (how, signal) in [
        (
            Evict::Tombstone {
                value: String::new(),
                otherwise: LIMIT,
            },
            libc::SIGTERM,
        ),
        (Evict::Now, libc::SIGKILL),
    ] {
        let mut store = store(directory.path());
        // The lock is taken here and recorded as that of a process which has a copy.
        let first = claim("a", std::process::id());
        take(&mut store, &first);
        let mut front = sleeper(store.held[0].file.try_clone().unwrap().into());
        let mut bystander = sleeper(Stdio::null());
        for (child, is_front) in [(&mut bystander, false), (&mut front, true)] {
            let held = &mut store.held[0];
            let before = held.content.clone();
            held.content.value = claim("a", child.id()).value;
            content::write(&held.file, &held.content, Some(&before)).unwrap();
            let seen = store.inspect(&first.key, LIMIT).unwrap().unwrap();
            let evicted = store.evict(&seen, &how, LIMIT);
            if is_front {
                assert_eq!(evicted, Ok(Evicted::Done));
                assert_eq!(child.wait().unwrap().signal(), Some(signal));
            } else {
                assert_eq!(evicted.unwrap_err().kind, ErrorKind::NoAnswer);
                assert_eq!(child.try_wait().unwrap(), None);
            }
        }
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}

#[test]
fn a_forced_release_leaves_alone_what_was_not_seen() {
    let directory = tempfile::tempdir().unwrap();
    let mut one = store(directory.path());
    let first = take(&mut one, &claim("a", 1));
    let seen = one.inspect(&first.claim.key, LIMIT).unwrap().unwrap();
    one.release(&first, &Keep::default(), LIMIT).unwrap();
    assert_eq!(one.evict(&seen, &Evict::Now, LIMIT), Ok(Evicted::Absent));
    let second = claim("a", 1);
    take(&mut one, &second);
    match one.evict(&seen, &Evict::Now, LIMIT).unwrap() {
        Evicted::Changed(now) => assert_eq!(now.value, second.value.as_bytes()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn addresses_of_directories_are_read_and_others_refused() {
    let opened = |text: &str| open(&text.parse().unwrap(), &Access::default()).map(|_| ());
    for text in ["local", "file:///var/lib/locks", "file:///a%20b", "file:/x"] {
        assert!(opened(text).is_ok(), "{text}");
    }
    for text in ["local:x", "file://host/dir", "file:///x?y", "file:///x#y"] {
        assert_eq!(opened(text).unwrap_err().kind, ErrorKind::Foreign, "{text}");
    }
    let spaced = directory(&"file:///a%20b".parse().unwrap());
    assert_eq!(spaced, Some(PathBuf::from("/a b")));
}
