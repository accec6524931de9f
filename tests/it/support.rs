//! What several subjects need: the built binary, a lock held by the test, waiting with a limit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use distlock::clock::{Boot, ServerTime};
use distlock::model::{Claim, Holder, LockName, Ttl};
use distlock::store::{self, Access, Acquired, LockStore};

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The built binary.
pub(crate) fn distlock() -> &'static str {
    env!("CARGO_BIN_EXE_distlock")
}

/// A program with an environment as bare as cron's, that finds the built `distlock`.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let own = Path::new(distlock()).parent().unwrap().display();
    let mut command = Command::new(name);
    command
        .env_clear()
        .env("PATH", format!("{own}:/usr/local/bin:/usr/bin:/bin"));
    command
}

/// Whether a program is installed, said if it is not.
pub(crate) fn is_installed(name: &str) -> bool {
    let found = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .iter()
        .any(|directory| Path::new(directory).join(name).exists());
    if !found {
        println!("skipped: no {name} on this host");
    }
    found
}

/// Takes a lock in `directory`; it is held until the store is dropped.
pub(crate) fn hold(directory: &Path, name: &str) -> Box<dyn LockStore> {
    let holder = Holder {
        host: "elsewhere".into(),
        user: "somebody".into(),
        pid: std::process::id(),
        boot: String::new(),
        program: "test".into(),
        reason: None,
    };
    hold_as(directory, name, &holder)
}

/// The same for a holder of one's choice.
pub(crate) fn hold_as(directory: &Path, name: &str, holder: &Holder) -> Box<dyn LockStore> {
    let url = format!("file://{}", directory.display()).parse().unwrap();
    let mut store = store::open(&url, &Access::default()).unwrap();
    let name: LockName = name.parse().unwrap();
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    let claim = Claim::new(name.into(), holder, ServerTime::of_this_host(), ttl).unwrap();
    match store.acquire(&claim, Duration::from_secs(2)).unwrap() {
        Acquired::Granted { .. } => store,
        Acquired::Held(by) => panic!("held by {by:?}"),
    }
}

/// Looks again and again until `happened`; whether it did within the limit.
pub(crate) fn within(limit: Duration, mut happened: impl FnMut() -> bool) -> bool {
    let end = Boot::now().plus(limit);
    loop {
        if happened() {
            return true;
        }
        if Boot::now() >= end {
            return false;
        }
        nix::poll::poll(&mut [], 20u8).unwrap();
    }
}
