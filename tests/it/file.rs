//! Locks in files of this host, through the trait that all stores implement.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use distlock::clock::ServerTime;
use distlock::model::{
    Claim, Condition, Hold, Holder, Holding, LockKey, LockName, TimeLeft, Token, Ttl,
};
use distlock::store::{
    self, Access, Acquired, ErrorKind, Evict, Evicted, Keep, LeaseKind, LockStore, Loss, Released,
    Renewed, StoreError,
};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

const LIMIT: Duration = Duration::from_secs(2);

fn store(directory: &Path) -> Box<dyn LockStore> {
    let url = format!("file://{}", directory.display()).parse().unwrap();
    store::open(&url, &Access::default()).unwrap()
}

fn key(name: &str) -> LockKey {
    name.parse::<LockName>().unwrap().into()
}

fn claim(name: &str) -> Claim {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let holder = Holder {
        host: "here".into(),
        user: "me".into(),
        pid: std::process::id(),
        boot: boot[..8].to_owned(),
        program: "true".into(),
        reason: Some("a test".into()),
    };
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    Claim::new(key(name), &holder, ServerTime::of_this_host(), ttl).unwrap()
}

fn take(store: &mut dyn LockStore, name: &str) -> Hold {
    let claim = claim(name);
    match store.acquire(&claim, LIMIT).unwrap() {
        Acquired::Granted { fence, .. } => Hold { claim, fence },
        Acquired::Held(by) => panic!("held by {by:?}"),
    }
}

fn refused(store: &mut dyn LockStore, name: &str) -> Box<Holding> {
    match store.acquire(&claim(name), LIMIT).unwrap() {
        Acquired::Held(by) => by,
        Acquired::Granted { .. } => panic!("granted"),
    }
}

fn error(store: &mut dyn LockStore, name: &str) -> StoreError {
    store.acquire(&claim(name), LIMIT).unwrap_err()
}

fn free(store: &mut dyn LockStore, hold: &Hold) {
    let released = store.release(hold, &Keep::default(), LIMIT).unwrap();
    assert_eq!(released, Released::Freed);
}

fn keep(hold: &Hold, rest: Duration) -> Keep {
    let now = ServerTime::of_this_host();
    let cooling = hold.claim.record.cooling(&Token::random().unwrap(), now);
    let cooling = cooling.to_json();
    Keep { rest, cooling }
}

/// A small tmpfs, unmounted at the end; `None` without the permission to mount.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    fn new(at: &'a Path, options: &str) -> Option<Self> {
        match mount(
            Some("distlock-test"),
            at,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options),
        ) {
            Ok(()) => Some(Self(at)),
            Err(e) => {
                println!("skipped: cannot mount a tmpfs ({e})");
                None
            }
        }
    }

    fn read_only(&self, yes: bool) {
        let flags = MsFlags::MS_REMOUNT
            | if yes {
                MsFlags::MS_RDONLY
            } else {
                MsFlags::empty()
            };
        let none = None::<&str>;
        mount(none, self.0, none, flags, none).unwrap();
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_lock_is_granted_once_and_again_after_its_release_with_a_higher_fencing_token() {
    let directory = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (store(directory.path()), store(directory.path()));
    assert_eq!(one.lease(), LeaseKind::Descriptor);
    assert_eq!(one.inspect(&key("a"), LIMIT), Ok(None));
    let first = take(&mut *one, "a");
    let by = refused(&mut *two, "a");
    assert_eq!(by.value, first.claim.value.as_bytes());
    assert_eq!(by.record.as_ref(), Some(&first.claim.record));
    assert_eq!((by.left, by.fence), (TimeLeft::WhileHeld, first.fence));
    assert_eq!(
        two.inspect(&key("a"), LIMIT).unwrap().unwrap().value,
        by.value
    );
    // A second claim of the holder's own store is another claim.
    assert_eq!(refused(&mut *one, "a").value, by.value);

    free(&mut *one, &first);
    assert_eq!(two.inspect(&key("a"), LIMIT), Ok(None));
    let second = take(&mut *two, "a");
    assert!(second.fence > first.fence && first.fence.is_some());
    // The released one is not ours any more, and nothing that we may touch.
    match one.release(&first, &Keep::default(), LIMIT).unwrap() {
        Released::Other(by) => assert_eq!(by.value, second.claim.value.as_bytes()),
        other => panic!("{other:?}"),
    }
    free(&mut *two, &second);
    let again = one.release(&first, &Keep::default(), LIMIT).unwrap();
    assert_eq!(again, Released::Absent);
}

#[test]
fn the_same_claim_is_granted_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path());
    let hold = take(&mut *store, "a");
    store.disconnect();
    match store.acquire(&hold.claim, LIMIT).unwrap() {
        Acquired::Granted { fence, .. } => assert_eq!(fence, hold.fence),
        Acquired::Held(by) => panic!("held by {by:?}"),
    }
    let renewed = store.renew(&hold, LIMIT).unwrap();
    assert!(matches!(renewed, Renewed::Renewed { found: None, .. }));
    free(&mut *store, &hold);
    let renewed = store.renew(&hold, LIMIT).unwrap();
    assert_eq!(renewed, Renewed::Lost(Loss::Absent));
}

#[test]
fn a_holder_that_is_gone_frees_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (store(directory.path()), store(directory.path()));
    let first = take(&mut *one, "a");
    drop(one);
    assert_eq!(two.inspect(&key("a"), LIMIT), Ok(None));
    assert!(take(&mut *two, "a").fence > first.fence);
}

#[test]
fn a_lock_cools_for_the_rest_of_its_time_and_no_longer() {
    let directory = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (store(directory.path()), store(directory.path()));
    let hold = take(&mut *one, "a");
    let keep = keep(&hold, Duration::from_secs(3600));
    assert_eq!(one.release(&hold, &keep, LIMIT), Ok(Released::Freed));
    // A release whose answer was not heard is said again.
    assert_eq!(one.release(&hold, &keep, LIMIT), Ok(Released::Freed));

    let by = refused(&mut *two, "a");
    assert_eq!(by.record.as_ref().unwrap().condition(), Condition::Cooling);
    assert_eq!(by.record.as_ref().unwrap().id, hold.claim.record.id);
    let TimeLeft::For(rest) = by.left else {
        panic!("{:?}", by.left)
    };
    // The end is kept in whole milliseconds, rounded up.
    let most = Duration::from_secs(3600) + Duration::from_millis(1);
    assert!(rest > Duration::from_secs(3500) && rest <= most, "{rest:?}");
    assert_eq!(
        two.inspect(&key("a"), LIMIT).unwrap().unwrap().value,
        by.value
    );
    assert_eq!(two.list(LIMIT).unwrap().len(), 1);

    // The forced release clears it; nobody is signalled.
    assert_eq!(two.evict(&by, &Evict::Now, LIMIT), Ok(Evicted::Done));
    assert_eq!(two.evict(&by, &Evict::Now, LIMIT), Ok(Evicted::Absent));
    assert!(take(&mut *two, "a").fence > hold.fence);
}

#[test]
fn cooling_ends_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path());
    let hold = take(&mut *store, "a");
    let keep = keep(&hold, Duration::from_millis(60));
    assert_eq!(store.release(&hold, &keep, LIMIT), Ok(Released::Freed));
    let TimeLeft::For(rest) = refused(&mut *store, "a").left else {
        panic!("not cooling")
    };
    let timeout = u16::try_from(rest.as_millis()).unwrap() + 1;
    nix::poll::poll(&mut [], timeout).unwrap();
    assert_eq!(store.inspect(&key("a"), LIMIT), Ok(None));
    take(&mut *store, "a");
}

#[test]
fn looking_never_gets_into_the_way_of_an_acquisition() {
    let directory = tempfile::tempdir().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    let looks = std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut store = store(directory.path());
            let mut looks = 0;
            while !stop.load(order) {
                store.inspect(&key("a"), LIMIT).unwrap();
                store.list(LIMIT).unwrap();
                looks += 1;
            }
            looks
        });
        let mut store = store(directory.path());
        for _ in 0..500 {
            let hold = take(&mut *store, "a");
            free(&mut *store, &hold);
        }
        stop.store(true, order);
        looker.join().unwrap()
    });
    assert!(looks > 0);
}

#[test]
fn one_of_many_contenders_has_it_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let holders = std::sync::atomic::AtomicUsize::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut store = store(directory.path());
                for _ in 0..200 {
                    let claim = claim("a");
                    let Acquired::Granted { fence, .. } = store.acquire(&claim, LIMIT).unwrap()
                    else {
                        continue;
                    };
                    assert_eq!(holders.fetch_add(1, order), 0);
                    assert_eq!(holders.fetch_sub(1, order), 1);
                    free(&mut *store, &Hold { claim, fence });
                }
            });
        }
    });
}

#[test]
fn the_list_has_what_is_held_by_its_whole_name_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (store(directory.path()), store(directory.path()));
    assert_eq!(two.list(LIMIT), Ok(Vec::new()));
    let long = format!("z{}", "/".repeat(199));
    for name in ["b", "a/b", &long, ".x", "100%"] {
        take(&mut *one, name);
    }
    let gone = take(&mut *one, "gone");
    free(&mut *one, &gone);
    fs::write(directory.path().join("other.lock"), "4711\n").unwrap();
    fs::write(directory.path().join("notes"), "").unwrap();
    let listed = two.list(LIMIT).unwrap();
    let names: Vec<_> = listed.iter().map(|held| held.key.name.as_str()).collect();
    assert_eq!(names, [".x", "100%", "a/b", "b", &long]);
    for entry in fs::read_dir(directory.path()).unwrap() {
        assert!(entry.unwrap().file_name().len() <= 250);
    }
}

#[test]
fn a_program_that_locks_the_file_without_a_record_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let file = fs::File::create(directory.path().join("a.lock")).unwrap();
    file.lock().unwrap();
    let mut store = store(directory.path());
    let by = refused(&mut *store, "a");
    assert_eq!((by.record, by.value.len()), (None, 0));
    let seen = store.inspect(&key("a"), LIMIT).unwrap().unwrap();
    let evicted = store.evict(&seen, &Evict::Now, LIMIT).unwrap_err();
    assert_eq!(evicted.kind, ErrorKind::Unsupported);
    drop(file);
    take(&mut *store, "a");
}

#[test]
fn a_file_that_was_removed_is_a_lost_lock() {
    let directory = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (store(directory.path()), store(directory.path()));
    let (first, lone) = (take(&mut *one, "a"), take(&mut *one, "b"));
    fs::remove_file(directory.path().join("a.lock")).unwrap();
    fs::remove_file(directory.path().join("b.lock")).unwrap();
    let second = take(&mut *two, "a");
    match one.renew(&first, LIMIT).unwrap() {
        Renewed::Lost(Loss::Taken(by)) => assert_eq!(by.value, second.claim.value.as_bytes()),
        other => panic!("{other:?}"),
    }
    let released = one.release(&first, &Keep::default(), LIMIT).unwrap();
    assert!(matches!(released, Released::Other(_)), "{released:?}");
    let released = one.release(&lone, &Keep::default(), LIMIT).unwrap();
    assert_eq!(released, Released::Absent);
    free(&mut *two, &second);
}

#[test]
fn files_that_are_not_ours_are_refused_and_left_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut store = store(directory.path());
    fs::write(path("target"), "precious").unwrap();
    symlink(path("target"), path("link.lock")).unwrap();
    symlink(path("nowhere"), path("dangling.lock")).unwrap();
    fs::write(path("other.lock"), "4711\n").unwrap();
    fs::write(path("name"), "").unwrap();
    fs::hard_link(path("name"), path("hard.lock")).unwrap();
    fs::create_dir(path("folder.lock")).unwrap();
    nix::unistd::mkfifo(&path("pipe.lock"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (name, why) in [
        ("link", "symbolic link"),
        ("dangling", "symbolic link"),
        ("other", "not a lock file of distlock"),
        ("hard", "hard link"),
        ("folder", "not a regular file"),
        ("pipe", "not a regular file"),
    ] {
        for e in [
            error(&mut *store, name),
            store.inspect(&key(name), LIMIT).unwrap_err(),
        ] {
            assert_eq!(e.kind, ErrorKind::Foreign, "{name}: {e}");
            assert!(e.text.contains(why) && e.text.contains(name), "{name}: {e}");
        }
    }
    assert_eq!(fs::read(path("target")).unwrap(), b"precious");
    assert_eq!(fs::read(path("other.lock")).unwrap(), b"4711\n");
    assert!(!path("nowhere").exists());
}

#[test]
fn foreign_owners_are_refused() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can give files away");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let mut store = store(directory.path());
    let hold = take(&mut *store, "a");
    free(&mut *store, &hold);
    chown(directory.path().join("a.lock"), Some(4711), None).unwrap();
    let e = error(&mut *store, "a");
    assert_eq!(e.kind, ErrorKind::Foreign, "{e}");
    assert!(e.text.contains("another user (uid 4711)"), "{e}");
    assert_eq!(store.list(LIMIT), Ok(Vec::new()));
    chown(directory.path(), Some(4711), None).unwrap();
    let e = error(&mut *store, "b");
    assert_eq!(e.kind, ErrorKind::Foreign, "{e}");
}

#[test]
fn a_directory_that_others_can_write_must_be_sticky() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path());
    for (mode, is_fit) in [
        (0o777, false),
        (0o770, false),
        (0o1777, true),
        (0o755, true),
        (0o700, true),
    ] {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        if is_fit {
            let hold = take(&mut *store, "a");
            free(&mut *store, &hold);
        } else {
            let e = error(&mut *store, "a");
            assert_eq!(e.kind, ErrorKind::Foreign, "{e}");
            assert!(e.text.contains("not sticky"), "{e}");
        }
    }
}

#[test]
fn only_the_last_part_of_a_missing_directory_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("below");
    let mut fitting = store(&below);
    assert_eq!(fitting.inspect(&key("a"), LIMIT), Ok(None));
    assert!(!below.exists());
    take(&mut *fitting, "a");
    let mode = fs::metadata(&below).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let file = fs::metadata(below.join("a.lock"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(file & 0o777, 0o600);

    let e = error(&mut *store(&directory.path().join("x/y")), "a");
    assert_eq!(e.kind, ErrorKind::NoAnswer, "{e}");
    let e = error(&mut *store(&below.join("a.lock")), "a");
    assert_eq!(e.kind, ErrorKind::Foreign, "{e}");
}

#[test]
fn a_full_disk_is_said_and_does_not_stop_locks_that_were_there() {
    let directory = tempfile::tempdir().unwrap();
    let Some(_mounted) = Tmpfs::new(directory.path(), "size=16k,mode=0700") else {
        return;
    };
    let mut store = store(directory.path());
    let first = take(&mut *store, "old");
    free(&mut *store, &first);
    let filler = directory.path().join("filler");
    fs::write(&filler, vec![0; 64 * 1024]).unwrap_err();
    let e = error(&mut *store, "new");
    assert_eq!(e.kind, ErrorKind::NoAnswer, "{e}");
    assert!(e.text.contains("no space left"), "{e}");
    assert_eq!(store.inspect(&key("new"), LIMIT), Ok(None));
    let second = take(&mut *store, "old");
    assert!(second.fence > first.fence);
    let keep = keep(&second, Duration::from_secs(60));
    assert_eq!(store.release(&second, &keep, LIMIT), Ok(Released::Freed));

    fs::remove_file(filler).unwrap();
    take(&mut *store, "new");
}

#[test]
fn a_read_only_directory_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mounted) = Tmpfs::new(directory.path(), "size=64k,mode=0700") else {
        return;
    };
    let mut store = store(directory.path());
    let hold = take(&mut *store, "old");
    free(&mut *store, &hold);
    mounted.read_only(true);
    for name in ["old", "new"] {
        let e = error(&mut *store, name);
        assert_eq!(e.kind, ErrorKind::NoAnswer, "{e}");
        assert!(e.text.contains("read-only file system"), "{e}");
        assert_eq!(store.inspect(&key(name), LIMIT), Ok(None));
    }
    mounted.read_only(false);
    take(&mut *store, "old");
}

#[test]
fn a_file_that_a_crash_cut_short_raises_the_fencing_token_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path());
    let first = take(&mut *store, "a");
    free(&mut *store, &first);
    let path = directory.path().join("a.lock");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 20]).unwrap();
    assert_eq!(store.inspect(&key("a"), LIMIT), Ok(None));
    let second = take(&mut *store, "a");
    assert!(second.fence > first.fence);
    free(&mut *store, &second);
    assert!(take(&mut *store, "a").fence > second.fence);
}

#[test]
fn raw_keys_need_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let raw = LockKey {
        raw: Some("k".parse().unwrap()),
        ..key("a")
    };
    let e = store(directory.path()).inspect(&raw, LIMIT).unwrap_err();
    assert_eq!(e.kind, ErrorKind::Unsupported);
}
