//! `distlock run` against a real server: what the command gets and what the caller sees.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::call::{Ended, Place, ended};
use crate::servers::{RedisServer, within};
use crate::support::{distlock, program};

/// No step of a test takes longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A server, and a folder for what a test writes.
pub(crate) struct Site {
    pub(crate) redis: RedisServer,
    pub(crate) place: Place,
}

/// A run that goes on, and what it and its command have written.
pub(crate) struct Started {
    child: Child,
    stdout: File,
    stderr: File,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self {
            redis: RedisServer::start(),
            place: Place::new(),
        }
    }

    /// The binary, that knows the server from its environment.
    pub(crate) fn distlock(&self) -> Command {
        let mut command = self.place.bare();
        command.env("DISTLOCK_SERVER", self.redis.url());
        command
    }

    /// A run of a shell script under the lock `x`.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.distlock();
        command.args(["run", "--name", "x"]).args(options);
        command.args(["--", "sh", "-c", script]);
        command
    }

    pub(crate) fn sh(&self, options: &[&str], script: &str) -> Ended {
        ended(&mut self.run(options, script))
    }

    /// Starts it, and waits for its first word.
    pub(crate) fn start(&self, options: &[&str], script: &str) -> Started {
        let started = Started::spawn(&mut self.run(options, script));
        started.await_stdout("\n");
        started
    }

    /// A holder that ends with 0 once there is a file `go`.
    pub(crate) fn hold(&self, options: &[&str]) -> Started {
        let script = "echo $$; while [ ! -e go ]; do sleep 0.02; done";
        self.start(options, script)
    }

    pub(crate) fn go(&self) {
        self.place.write("go", "");
    }

    pub(crate) fn is_free(&self) -> bool {
        self.redis.command(&["EXISTS", "distlock:{x}"]) == ":0\r\n"
    }

    /// The server's pid, for a command that ends or stops it.
    fn server_pid(&self) -> String {
        let info = self.redis.command(&["INFO", "server"]);
        let (_, rest) = info.split_once("process_id:").unwrap();
        rest.split('\r').next().unwrap().to_owned()
    }
}

impl Started {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let stderr = tempfile::tempfile().unwrap();
        command.stderr(stderr.try_clone().unwrap());
        Self::spawn_aside(command, stderr)
    }

    /// With a stderr that nothing is read from.
    pub(crate) fn spawn_with_stderr(mut command: Command, stderr: impl Into<Stdio>) -> Self {
        command.stderr(stderr);
        Self::spawn_aside(&mut command, tempfile::tempfile().unwrap())
    }

    fn spawn_aside(command: &mut Command, stderr: File) -> Self {
        let stdout = tempfile::tempfile().unwrap();
        let child = command.stdout(stdout.try_clone().unwrap()).spawn().unwrap();
        Self {
            child,
            stdout,
            stderr,
        }
    }

    pub(crate) fn stdout(&self) -> String {
        content(&self.stdout)
    }

    pub(crate) fn stderr(&self) -> String {
        content(&self.stderr)
    }

    /// The pid in the first line of what the command wrote.
    pub(crate) fn command(&self) -> i32 {
        self.stdout().lines().next().unwrap().parse().unwrap()
    }

    pub(crate) fn front(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    #[track_caller]
    pub(crate) fn await_stdout(&self, text: &str) {
        let came = within(LIMIT, || self.stdout().contains(text));
        assert!(
            came,
            "no {text:?} in {:?}, {:?}",
            self.stdout(),
            self.stderr()
        );
    }

    #[track_caller]
    pub(crate) fn await_stderr(&self, text: &str) {
        let came = within(LIMIT, || self.stderr().contains(text));
        assert!(came, "no {text:?} in {:?}", self.stderr());
    }

    /// Waits for its end, with a limit.
    #[track_caller]
    pub(crate) fn end(&mut self) -> Ended {
        let mut status = None;
        within(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let Some(status) = status else {
            panic!("no end: {:?}", self.stderr())
        };
        Ended {
            code: status.code().or(status.signal().map(|n| 128 + n)).unwrap(),
            stdout: self.stdout(),
            stderr: self.stderr(),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn content(file: &File) -> String {
    let mut bytes = vec![0; 65536];
    let size = file.read_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes[..size]).into_owned()
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// The letter of a process's state; `None` when it is gone, or dead and not yet reaped.
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let letter = stat.rsplit_once(") ")?.1.chars().next()?;
    (!"ZX".contains(letter)).then_some(letter)
}

const CODES: [i32; 9] = [0, 1, 2, 42, 75, 126, 127, 200, 255];
const SIGNALS: [i32; 5] = [1, 2, 9, 11, 15];

#[test]
fn exit_codes_pass_through_without_a_word() {
    let site = Site::new();
    for code in CODES {
        let ended = site.sh(&[], &format!("exit {code}"));
        assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (code, "", ""));
        assert!(site.is_free());
    }
}

#[test]
fn signals_that_end_the_command_end_distlock() {
    let site = Site::new();
    for signal in SIGNALS {
        let script = format!("ulimit -c 0; kill -{signal} $$");
        let output = site.run(&[], &script).output().unwrap();
        assert_eq!(output.status.signal(), Some(signal), "{output:?}");
        assert!(!output.status.core_dumped());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert!(site.is_free());
    }
}

/// The command harms the server and ends; the release is ended by TERM to the front.
fn ends_after(harm: &str, options: &[&str], script: &str) -> (Site, Ended) {
    let site = Site::new();
    let script = format!(
        "echo; ulimit -c 0; kill -{harm} {}; {script}",
        site.server_pid()
    );
    let mut run = site.start(options, &script);
    run.await_stderr("cannot release: ");
    run.await_stderr("TERM ends the waiting");
    send(run.front(), Signal::SIGTERM);
    let ended = run.end();
    (site, ended)
}

#[test]
fn a_server_that_is_frozen_at_the_end_does_not_change_the_status() {
    for (script, code) in [("exit 0", 0), ("exit 42", 42), ("kill -9 $$", 137)] {
        let (_site, ended) = ends_after("STOP", &[], script);
        assert_eq!(ended.code, code, "{ended:?}");
    }
}

#[test]
fn a_server_that_is_gone_at_the_end_does_not_change_the_status() {
    for (script, code) in [("exit 0", 0), ("exit 255", 255), ("kill -15 $$", 143)] {
        let (_site, ended) = ends_after("KILL", &[], script);
        assert_eq!(ended.code, code, "{ended:?}");
    }
}

#[test]
fn a_release_that_was_not_confirmed_is_74_with_strict_release() {
    let (_site, ended) = ends_after("KILL", &["--strict-release"], "exit 0");
    assert_eq!(ended.code, 74, "{ended:?}");
    let (_site, ended) = ends_after("KILL", &["--strict-release"], "exit 3");
    assert_eq!(ended.code, 3, "{ended:?}");
}

#[test]
fn the_refused_are_told_all_about_the_holder_in_one_line() {
    let site = Site::new();
    let holder = site.hold(&["--reason", "nightly run"]);
    let refused = site.sh(&[], "echo ran");
    let host = nix::unistd::gethostname().unwrap();
    let shown = ended(site.distlock().args(["status", "--json", "x"])).stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let id = shown["id"].as_str().unwrap();
    let user = nix::unistd::User::from_uid(nix::unistd::getuid());
    for text in [
        &format!("distlock: x: held by {}@", user.unwrap().unwrap().name),
        &format!("@{} pid {} (sh) for ", host.display(), holder.front()),
        "s left unless renewed, reason \"nightly run\"; to free it: ",
        &format!("distlock release x --id {id}"),
    ] {
        refused.refused(75, text);
    }
    assert_eq!(refused.stderr.lines().count(), 1);
}

#[test]
fn another_code_for_the_refused_is_given_with_e() {
    let site = Site::new();
    let _holder = site.hold(&[]);
    for code in [0, 3, 255] {
        site.sh(&["-E", &code.to_string()], "echo ran")
            .refused(code, "held by");
    }
    let quiet = site.sh(&["-q"], "echo ran");
    assert_eq!(
        (quiet.code, quiet.stdout, quiet.stderr),
        (75, String::new(), String::new())
    );
}

#[test]
fn a_server_that_is_down_is_69() {
    let mut site = Site::new();
    site.redis.kill();
    site.sh(&["--connect-timeout", "200ms"], "echo ran")
        .refused(69, "distlock: x: cannot ");
}

#[test]
fn a_wrong_password_is_77() {
    let site = Site {
        redis: RedisServer::with(&["--requirepass", "right"]),
        place: Place::new(),
    };
    site.sh(&[], "echo ran").refused(77, "distlock: x: cannot ");
    let wrong = ended(site.run(&[], "echo ran").env("DISTLOCK_PASSWORD", "wr0ng"));
    wrong.refused(77, "distlock: x: cannot ");
    assert!(!wrong.stderr.contains("wr0ng"), "{wrong:?}");
    let right = ended(site.run(&[], "exit 6").env("DISTLOCK_PASSWORD", "right"));
    assert_eq!((right.code, &*right.stderr), (6, ""));
}

#[test]
fn a_key_that_is_something_else_is_78_and_left_alone() {
    let site = Site::new();
    site.redis.tell(&["LPUSH", "distlock:{x}", "theirs"]);
    site.sh(&[], "echo ran").refused(78, "list");
    assert_eq!(site.redis.command(&["LLEN", "distlock:{x}"]), ":1\r\n");
}

#[test]
fn without_a_server_the_three_ways_to_name_one_are_said() {
    let place = Place::new();
    let ended = ended(
        place
            .bare()
            .args(["run", "--name", "x", "--", "echo", "ran"]),
    );
    for way in [
        "--server",
        "DISTLOCK_SERVER",
        "/etc/distlock.toml",
        "--server local",
    ] {
        ended.refused(78, way);
    }
}

#[test]
fn names_that_cannot_be_are_refused_before_a_server_is_asked() {
    let place = Place::new();
    let long = "x".repeat(201);
    for name in ["", "a b", "a\nb", "a\tb", "{a", "a}", "a\u{7f}", &long] {
        let mut run = place.bare();
        run.env("DISTLOCK_SERVER", "redis+unix:///nowhere/socket");
        let ended = ended(run.args(["run", "--name", name, "--", "echo", "ran"]));
        ended.refused(64, "distlock: ");
    }
}

#[test]
fn odd_names_work() {
    let site = Site::new();
    let long = "x".repeat(200);
    for name in [
        "a/b", "../x", "%d", "*", "'", "\"", "é", "-n", "$x", "\\", &long,
    ] {
        let option = format!("--name={name}");
        let inner = "distlock run \"$1\" -- echo ran; [ $? = 64 ] && printf %s \"$DISTLOCK_NAME\"";
        let mut run = site.distlock();
        run.args(["run", &option, "--", "sh", "-c", inner, "sh", &option]);
        let ended = ended(&mut run);
        assert_eq!((ended.code, &*ended.stdout), (0, name), "{ended:?}");
        let key = format!("distlock:{{{name}}}");
        assert_eq!(site.redis.command(&["EXISTS", &key]), ":0\r\n");
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_126_or_127_and_the_lock_is_free() {
    let site = Site::new();
    site.place.write("plain", "");
    for (command, code) in [
        ("no-such-command", 127),
        ("./nowhere/x", 127),
        ("./plain", 126),
    ] {
        let mut run = site.distlock();
        run.args([
            "run",
            "--name",
            "x",
            "--hold-at-least",
            "60s",
            "--",
            command,
        ]);
        ended(&mut run).refused(code, command);
        assert!(site.is_free());
    }
}

#[test]
fn stdin_and_binary_output_are_untouched() {
    let site = Site::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    std::fs::write(site.place.path("data"), &bytes).unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = site
        .run(&[], "tee /dev/fd/2")
        .stdin(File::open(site.place.path("data")).unwrap())
        .output()
        .unwrap();
    assert!(status.success());
    assert!(stdout == bytes && stderr == bytes);
}

#[test]
fn a_nested_run_of_the_same_lock_is_64() {
    let site = Site::new();
    let inner = "distlock run --name x --wait -- echo ran";
    site.sh(&[], inner).refused(64, "nested");
    let deep = "distlock run --name y -- distlock run --name x -- echo ran";
    site.sh(&[], deep).refused(64, "nested");
    assert!(site.is_free());
}

#[test]
fn the_command_finds_its_hold_in_its_environment() {
    let site = Site::new();
    let mut run = site.run(&["--ttl", "60s"], "env | grep ^DISTLOCK_ | sort");
    let ended = ended(
        run.env("DISTLOCK_IDS", "01234567")
            .env("DISTLOCK_HELD", "no"),
    );
    let value = |name: &str| {
        let line = ended
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {ended:?}"))
    };
    assert_eq!(value("DISTLOCK_NAME="), "x");
    assert_eq!(value("DISTLOCK_HELD="), "1");
    let id = value("DISTLOCK_ID=");
    assert_eq!(id.len(), 8);
    assert!(value("DISTLOCK_IDS=").contains(id) && value("DISTLOCK_IDS=").contains("01234567"));
    let fence = site.redis.command(&["GET", "distlock:{x}:fence"]);
    let granted: u64 = value("DISTLOCK_FENCE=").parse().unwrap();
    let last: u64 = fence.lines().nth(1).unwrap().parse().unwrap();
    assert!(last >= granted && granted > 0);
    assert!(value("DISTLOCK_EXPIRY=").parse::<f64>().unwrap() > 1.7e9);
}

#[test]
fn no_password_reaches_the_command() {
    let site = Site {
        redis: RedisServer::tcp(&["--requirepass", "s3cret"]),
        place: Place::new(),
    };
    let script = "env; cat /proc/$$/environ /proc/$$/cmdline /proc/$PPID/cmdline; echo end";
    let url = site.redis.url().replace("//", "//:s3cret@");
    let in_url = ended(site.run(&[], script).env("DISTLOCK_SERVER", url));
    let apart = ended(site.run(&[], script).env("DISTLOCK_PASSWORD", "s3cret"));
    for ended in [in_url, apart] {
        assert!(
            ended.stdout.ends_with("end\n") && ended.stderr.is_empty(),
            "{ended:?}"
        );
        assert!(
            ended.stdout.contains("DISTLOCK_SERVER=redis://"),
            "{ended:?}"
        );
        assert!(!ended.stdout.contains("s3cret"), "{ended:?}");
        assert!(!ended.stdout.contains("DISTLOCK_PASSWORD"), "{ended:?}");
    }
}

fn report(site: &Site, options: &[&str], script: &str) -> Value {
    let options = [options, &["--report", "report.json"]].concat();
    site.sh(&options, script);
    let text = std::fs::read_to_string(site.place.path("report.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_report_tells_what_an_exit_code_cannot() {
    let site = Site::new();
    let done = report(&site, &[], "exit 75");
    assert_eq!(done["child_code"], 75);
    assert_eq!(done["released"], true);
    assert!(done["fence"].is_u64() && done["ran_ms"].is_u64() && done["waited_ms"].is_u64());
    let killed = report(&site, &[], "kill -9 $$");
    assert_eq!(
        (&killed["child_signal"], &killed["child_code"]),
        (&9.into(), &Value::Null)
    );
    let _holder = site.hold(&[]);
    let held = report(&site, &[], "exit 75");
    assert_eq!(
        (&held["outcome"], &held["child_code"]),
        (&"held".into(), &Value::Null)
    );
}

#[test]
fn a_command_that_runs_too_long_is_ended_with_124() {
    let site = Site::new();
    let options = ["--max-runtime", "100ms", "--preserve-status"];
    let ended = site.sh(&options[..2], "exec sleep 60");
    assert_eq!(ended.code, 124, "{ended:?}");
    // One line, and no second attempt at a release that was done.
    assert!(ended.stderr.contains("--max-runtime"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert_eq!(site.sh(&options, "exec sleep 60").code, 143);
    let stubborn = ["--max-runtime", "100ms", "--kill-after", "100ms"];
    assert_eq!(
        site.sh(&stubborn, "trap '' TERM; sleep 60; sleep 60").code,
        124
    );
    assert!(site.is_free());
}

#[test]
fn a_lock_to_be_held_at_least_cools_down() {
    let site = Site::new();
    let ended = site.sh(&["--hold-at-least", "60s"], "exit 4");
    assert_eq!((ended.code, &*ended.stderr), (4, ""));
    site.sh(&[], "echo ran")
        .refused(75, "cooling down after a run of ");
    let short = ["--hold-at-least", "150ms", "--raw-key", "other"];
    assert_eq!(site.sh(&short, "true").code, 0);
    let waited = ["--wait", "--raw-key", "other"];
    assert_eq!(site.sh(&waited, "exit 8").code, 8);
}

#[test]
fn leftovers_are_waited_for() {
    let site = Site::new();
    let script = "(while [ ! -e go ]; do sleep 0.02; done) & echo $!; exit 3";
    let mut run = site.start(&[], script);
    run.await_stderr("waiting for what it left running");
    site.sh(&[], "echo ran").refused(75, "held by");
    site.go();
    assert_eq!(run.end().code, 3);
    assert!(site.is_free());
}

#[test]
fn leftovers_are_killed_or_ignored_if_asked() {
    let site = Site::new();
    let script = "sleep 60 & echo $!; exit 3";
    let mut run = site.start(&["--leftovers", "kill"], script);
    assert_eq!(run.end().code, 3);
    assert_eq!(state(run.command()), None);
    let mut run = site.start(&["--leftovers", "ignore"], script);
    assert_eq!(run.end().code, 3);
    assert!(site.is_free());
    assert!(state(run.command()).is_some());
    send(run.command(), Signal::SIGKILL);
}

#[test]
fn a_waiter_gets_the_lock_when_the_holder_has_ended() {
    let site = Site::new();
    let mut holder = site.hold(&[]);
    let mut waiter = Started::spawn(&mut site.run(&["--wait"], "echo mine; exit 7"));
    site.sh(&["--wait=300ms"], "echo ran")
        .refused(75, "held by");
    assert_eq!(waiter.stdout(), "");
    site.go();
    assert_eq!(holder.end().code, 0);
    assert_eq!((waiter.end().code, &*waiter.stdout()), (7, "mine\n"));
}

#[test]
fn a_waiter_that_is_signalled_ends_by_the_signal() {
    let site = Site::new();
    let _holder = site.hold(&[]);
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
    ] {
        let mut waiter = Started::spawn(&mut site.run(&["--wait"], "echo ran"));
        let title = format!("/proc/{}/comm", waiter.front());
        within(LIMIT, || {
            std::fs::read_to_string(&title).is_ok_and(|name| name == "distlock\n")
        });
        send(waiter.front(), signal);
        assert_eq!((waiter.end().code, &*waiter.stdout()), (code, ""));
    }
}

#[test]
fn it_works_without_an_environment() {
    let site = Site::new();
    let mut run = program("env");
    let words = ["run", "--name", "x", "--", "/bin/sh", "-c", "exit 9"];
    run.args(["-i", distlock(), words[0], "--server", &site.redis.url()]);
    let ended = ended(run.args(&words[1..]).stdin(Stdio::null()));
    assert_eq!((ended.code, &*ended.stderr), (9, ""));
}

#[test]
fn it_works_with_closed_descriptors() {
    let site = Site::new();
    for closed in [">&- 2>&-", "<&- >&- 2>&-", "<&-", "2>&-"] {
        let mut run = program("sh");
        let line = format!("exec distlock run --name x -- sh -c 'exit 9' {closed}");
        run.args(["-c", &line])
            .env("DISTLOCK_SERVER", site.redis.url());
        let ended = ended(run.current_dir(site.place.path("")));
        assert_eq!((ended.code, &*ended.stderr), (9, ""), "{closed}");
        assert!(site.is_free());
    }
}

#[test]
fn messages_in_json_are_one_object_a_line() {
    let site = Site::new();
    let mut holder = site.hold(&[]);
    let options = ["--log-format", "json", "--reason", "a \"quoted\" one"];
    let refused = site.sh(&options, "echo ran");
    site.go();
    holder.end();
    let stopped = site.sh(
        &[&options[..], &["--max-runtime", "50ms"]].concat(),
        "sleep 60",
    );
    assert_eq!((refused.code, stopped.code), (75, 124));
    for line in refused.stderr.lines().chain(stopped.stderr.lines()) {
        let object: Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["lock"], "x");
        assert!(object["message"].is_string() && object["level"].is_string());
    }
    assert!(!refused.stderr.is_empty() && !stopped.stderr.is_empty());
}
