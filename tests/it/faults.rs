//! `distlock run` when something goes wrong while the command runs.

use std::io::Write as _;
use std::time::Duration;

use distlock::clock::Boot;
use nix::sys::signal::Signal;

use crate::call::{Place, ended};
use crate::proxy::{Fault, FaultProxy};
use crate::run::{LIMIT, Site, Started, send, state};
use crate::servers::{RedisServer, within};

const KEY: &str = "distlock:{x}";

/// A tree that ignores TERM, with a grandchild in a session of its own; each of the three
/// writes its pid, and when it was last alive.
const STUBBORN: &str = r#"
trap '' TERM
beat='echo $$ > $0.pid; while read up rest < /proc/uptime; do echo $up > $0.new; mv $0.new $0.beat; sleep 0.02; done'
setsid sh -c "$beat" one &
sh -c "setsid sh -c '$beat' two & wait" &
while [ ! -e one.beat ] || [ ! -e two.beat ]; do sleep 0.01; done
echo $$
exec sh -c "$beat" three
"#;

const TREE: [&str; 3] = ["one", "two", "three"];

impl Site {
    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path(name)).unwrap_or_default()
    }

    fn stubborn(&self, options: &[&str]) -> Started {
        self.settled(self.start(options, STUBBORN))
    }

    fn settled(&self, run: Started) -> Started {
        let began = within(LIMIT, || {
            TREE.iter()
                .all(|name| !self.read(&format!("{name}.beat")).is_empty())
        });
        assert!(began, "{:?}", run.stderr());
        run
    }

    fn living(&self) -> Vec<i32> {
        let pids = TREE.iter().map(|name| self.read(&format!("{name}.pid")));
        let pids = pids.map(|pid| pid.trim().parse().unwrap());
        pids.filter(|&pid| state(pid).is_some()).collect()
    }

    fn value(&self) -> String {
        self.redis.command(&["GET", KEY])
    }

    /// Holders look after their lease at once when a connection breaks.
    fn cut_connections(&self) {
        self.redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
}

#[test]
fn a_key_that_was_deleted_is_taken_back_with_a_warning() {
    let site = Site::new();
    let mut run = site.hold(&[]);
    let value = site.value();
    site.redis.tell(&["DEL", KEY]);
    site.cut_connections();
    run.await_stderr("taken back");
    assert_eq!(site.value(), value);
    site.go();
    let ended = run.end();
    assert_eq!(
        (ended.code, ended.stderr.lines().count()),
        (0, 1),
        "{ended:?}"
    );
    assert!(site.is_free());
}

#[test]
fn a_lock_that_another_run_has_got_is_lost() {
    let site = Site::new();
    let mut first = site.stubborn(&["--lost-grace", "100ms"]);
    site.redis.tell(&["DEL", KEY]);
    let mut second = site.hold(&[]);
    let value = site.value();
    site.cut_connections();
    let ended = first.end();
    assert_eq!(ended.code, 79, "{ended:?}");
    assert!(ended.stderr.contains("lease lost: taken by "), "{ended:?}");
    assert!(site.living().is_empty());
    assert_eq!(site.value(), value);
    site.go();
    assert_eq!(second.end().code, 0);
}

#[test]
fn a_lock_that_was_overwritten_is_lost_and_the_value_left_alone() {
    let site = Site::new();
    let mut run = site.stubborn(&["--ttl", "2s"]);
    site.redis.tell(&["SET", KEY, "theirs"]);
    let ended = run.end();
    assert_eq!(ended.code, 79, "{ended:?}");
    assert!(ended.stderr.contains("theirs"), "{ended:?}");
    assert!(site.living().is_empty());
    assert_eq!(site.value(), "$6\r\ntheirs\r\n");
    assert_eq!(site.redis.command(&["PTTL", KEY]), ":-1\r\n");
}

#[test]
fn a_key_that_became_something_else_is_lost() {
    let site = Site::new();
    let mut run = site.stubborn(&["--ttl", "2s"]);
    site.redis.tell(&[
        "EVAL",
        "redis.call('DEL', KEYS[1]); redis.call('LPUSH', KEYS[1], 'a')",
        "1",
        KEY,
    ]);
    let ended = run.end();
    assert_eq!(ended.code, 79, "{ended:?}");
    assert!(site.living().is_empty());
    assert_eq!(site.redis.command(&["LLEN", KEY]), ":1\r\n");
}

#[test]
fn by_release_the_command_is_stopped_with_grace_and_only_then_the_lock_is_free() {
    let site = Site::new();
    let script = "trap 'echo told; while [ ! -e go ]; do sleep 0.02; done; exit 0' TERM; echo $$; while :; do sleep 0.02; done";
    let mut run = site.start(&[], script);
    let released = ended(site.distlock().args(["release", "x", "--force", "--yes"]));
    assert_eq!(released.code, 0, "{released:?}");
    site.cut_connections();
    run.await_stdout("told");
    site.sh(&[], "echo ran").refused(75, "being released by ");
    site.go();
    let ended = run.end();
    assert_eq!(ended.code, 79, "{ended:?}");
    assert!(
        ended.stderr.contains("lease lost: released by "),
        "{ended:?}"
    );
    assert!(site.is_free());
}

#[test]
fn with_now_the_lock_is_free_at_once_and_stays_so() {
    let site = Site::new();
    let mut run = site.hold(&["--ttl", "2s"]);
    let released = ended(
        site.distlock()
            .args(["release", "x", "--force", "--yes", "--now"]),
    );
    assert!(
        released.code == 0 && released.stdout.contains("may run until "),
        "{released:?}"
    );
    assert!(site.is_free());
    assert_eq!(run.end().code, 79);
    assert!(site.is_free());
}

/// Waits for a renewal; an instant that the key outlives if the server stops now.
fn just_renewed(site: &Site, ttl: u64) -> Boot {
    let mut expiry = None;
    within(LIMIT, || {
        let now = Boot::now();
        let left = site.redis.command(&["PTTL", KEY]);
        let left: u64 = left.trim_matches([':', '\r', '\n']).parse().unwrap_or(0);
        expiry = (left + 150 > ttl).then(|| now.plus(Duration::from_millis(left)));
        expiry.is_some()
    });
    expiry.unwrap()
}

#[test]
fn nothing_of_a_stubborn_tree_outlives_a_lease_that_a_frozen_server_cannot_renew() {
    let site = Site::new();
    let mut run = site.stubborn(&["--ttl", "2s"]);
    let expiry = just_renewed(&site, 2000).since_boot().as_secs_f64();
    site.redis.freeze();
    let ended = run.end();
    assert_eq!(ended.code, 79, "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("lease lost: the server did not answer for "),
        "{ended:?}"
    );
    assert!(site.living().is_empty());
    for name in TREE {
        let last: f64 = site.read(&format!("{name}.beat")).trim().parse().unwrap();
        assert!(
            last < expiry,
            "{name} ran at {last}, the key expires at {expiry}"
        );
    }
    site.redis.go_on();
    assert!(within(LIMIT, || site.is_free()));
}

#[test]
fn after_a_restart_of_an_empty_server_the_holder_is_back() {
    let mut site = Site::new();
    let mut run = site.hold(&[]);
    let value = site.value();
    site.redis.restart();
    assert!(
        within(LIMIT, || site.value() == value),
        "{:?}",
        run.stderr()
    );
    run.await_stderr("taken back");
    site.go();
    assert_eq!(run.end().code, 0);
    assert!(site.is_free());
}

/// The keeper: the command's parent.
fn keeper(command: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{command}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn when_the_front_is_killed_the_tree_ends_and_the_lock_is_freed() {
    let site = Site::new();
    let mut run = site.stubborn(&["--kill-after", "300ms"]);
    let keeper = keeper(run.command());
    send(run.front(), Signal::SIGKILL);
    assert_eq!(run.end().code, 137);
    assert!(within(LIMIT, || site.is_free()), "{:?}", run.stderr());
    assert!(site.living().is_empty());
    assert!(within(LIMIT, || state(keeper).is_none()));
}

#[test]
fn when_the_keeper_is_killed_the_tree_is_dead_and_the_lock_ends_with_its_ttl() {
    let site = Site::new();
    let mut run = site.stubborn(&["--ttl", "2s"]);
    send(keeper(run.command()), Signal::SIGKILL);
    let ended = run.end();
    assert_eq!(ended.code, 71, "{ended:?}");
    assert!(site.living().is_empty());
    assert!(within(LIMIT, || site.is_free()));
}

#[test]
fn a_keeper_that_was_stopped_is_made_to_run_again() {
    let site = Site::new();
    let mut run = site.hold(&["--ttl", "3s"]);
    let keeper = keeper(run.command());
    send(keeper, Signal::SIGSTOP);
    assert!(within(LIMIT, || state(keeper).is_some_and(|letter| letter != 'T')));
    site.go();
    assert_eq!(run.end().code, 0);
    assert!(site.is_free());
}

#[test]
fn a_lost_lease_ends_the_tree_although_stderr_is_a_full_pipe() {
    let site = Site::new();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![0; 65536]).unwrap();
    let run = site.run(&["--ttl", "2s"], STUBBORN);
    // The pipe is the command's and ours; what the run writes to stdout goes to a file.
    let mut run = site.settled(Started::spawn_with_stderr(run, writer));
    site.redis.tell(&["SET", KEY, "theirs"]);
    assert_eq!(run.end().code, 79);
    assert!(site.living().is_empty());
}

#[test]
fn an_attempt_at_a_frozen_server_ends_and_leaves_nothing_behind() {
    let site = Site::new();
    site.redis.freeze();
    let options = ["--connect-timeout", "300ms", "--ttl", "2s"];
    site.sh(&options, "echo ran").refused(69, "cannot ");
    site.redis.go_on();
    site.redis.tell(&["PING"]);
    assert!(site.is_free());
}

#[test]
fn an_attempt_whose_answer_is_lost_ends_and_leaves_nothing_behind() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::before(redis.socket());
    let site = Site {
        redis,
        place: Place::new(),
    };
    for fault in [
        Fault::Swallow,
        Fault::Hold,
        Fault::Cut,
        Fault::LoseReply,
        Fault::CutReply,
        Fault::Refuse,
    ] {
        proxy.set(fault);
        let options = ["--connect-timeout", "300ms", "--ttl", "2s"];
        let mut run = site.run(&options, "echo ran");
        ended(run.env("DISTLOCK_SERVER", proxy.url())).refused(69, "cannot ");
        proxy.set(Fault::None);
        site.redis.tell(&["PING"]);
        assert!(within(LIMIT, || site.is_free()), "{fault:?}");
    }
}
