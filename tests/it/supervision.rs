//! The command's end, what it inherits, and the death of our processes. The oracle is the same
//! script without distlock.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::call::{Ended, Place, ended};
use crate::support::{program, within};

const LIMIT: Duration = Duration::from_secs(20);

const OPTIONS: [&str; 8] = [
    "run",
    "--name",
    "t",
    "--ttl",
    "5s",
    "--kill-after",
    "300ms",
    "--",
];

/// Runs a script in bash with `$D` as the prefix of a command.
fn script(place: &Place, prefix: &str, text: &str) -> Ended {
    ended(
        program("bash")
            .args(["-c", text])
            .env("D", prefix)
            .env("DISTLOCK_SERVER", place.server())
            .env("XDG_CONFIG_HOME", place.path(""))
            .current_dir(place.path(""))
            .stdin(Stdio::null()),
    )
}

/// The script does the same with distlock as without.
#[track_caller]
fn same(text: &str) -> Ended {
    let place = Place::new();
    let plain = script(&place, "", text);
    let wrapped = script(&place, &format!("distlock {}", OPTIONS.join(" ")), text);
    let all = |e: &Ended| (e.code, e.stdout.clone(), e.stderr.clone());
    assert_eq!(all(&wrapped), all(&plain), "{text}");
    released(&place);
    wrapped
}

/// The lock is free, or becomes so.
#[track_caller]
fn released(place: &Place) {
    let mut last = None;
    let free = within(LIMIT, || {
        let call = place.call(&["run", "--name", "t", "--", "true"]);
        let free = call.code == 0;
        last = Some(call);
        free
    });
    assert!(free, "{last:?}");
}

fn wrapped(place: &Place, words: &[&str]) -> Command {
    let mut command = place.distlock();
    command.args(OPTIONS).args(words);
    command
}

fn status(place: &Place, words: &[&str]) -> ExitStatus {
    let mut child = wrapped(place, words).stderr(Stdio::null()).spawn().unwrap();
    end(&mut child)
}

fn end(child: &mut Child) -> ExitStatus {
    let mut status = None;
    within(LIMIT, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.expect("it did not end in time")
}

fn send(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid.try_into().unwrap()), signal);
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}

/// A number of seconds that nobody else sleeps.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}.{next}", 7_000_000_u32 + std::process::id())
}

/// Processes other than distlock's with this argument.
fn alive(mark: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| {
            let mut words = line.split(|&byte| byte == 0);
            words.next() == Some(b"sleep") && words.next() == Some(mark.as_bytes())
        })
        .count()
}

/// A tree that ignores TERM, with a grandchild in its own session and a daemon.
fn tree(place: &Place, mark: &str) -> Command {
    let text = "trap '' TERM HUP INT; sleep $0 & setsid sleep $0 & \
        (setsid sh -c 'sleep $0 &' $0 &); echo started; sleep $0; :";
    wrapped(place, &["sh", "-c", text, mark])
}

fn started_tree(place: &Place, mark: &str) -> Child {
    let mut command = tree(place, mark);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    assert!(within(LIMIT, || alive(mark) == 4));
    child
}

#[track_caller]
fn gone(place: &Place, mark: &str) {
    assert!(within(LIMIT, || alive(mark) == 0), "{} left", alive(mark));
    released(place);
}

#[test]
fn the_exit_code_is_the_commands() {
    let place = Place::new();
    for code in [0, 1, 7, 124, 125, 126, 127, 128, 129, 255] {
        let ended = status(&place, &["sh", "-c", &format!("exit {code}")]);
        assert_eq!(ended.code(), Some(code));
    }
}

#[test]
fn a_command_that_dies_by_a_signal_makes_us_die_by_it() {
    let place = Place::new();
    for signal in [1, 2, 3, 6, 9, 10, 11, 13, 14, 15, 31, 34, 35, 64] {
        let text = format!("ulimit -c 0; exec perl -e 'kill {signal}, $$; sleep 5'");
        let ended = status(&place, &["sh", "-c", &text]);
        assert_eq!(ended.signal(), Some(signal));
    }
    released(&place);
}

#[test]
fn what_cannot_be_executed_says_so_with_126_or_127() {
    let place = Place::new();
    let file = |name: &str, text: &str, mode| {
        place.write(name, text);
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    file("plain", "", 0o644);
    file("lost", "#!/nowhere/interpreter\n", 0o755);
    file("empty", "", 0o755);
    file("script", "exit 5\n", 0o755);
    let cases = [
        ("./nothing", 127),
        ("./plain", 126),
        ("/tmp", 126),
        ("./lost", 127),
    ];
    for (name, code) in cases.into_iter().chain([("./empty", 0), ("./script", 5)]) {
        assert_eq!(status(&place, &[name]).code(), Some(code), "{name}");
    }
    for _ in 0..20 {
        assert_eq!(status(&place, &["/tmp"]).code(), Some(126));
    }
    released(&place);
}

#[test]
fn a_missing_command_is_not_waited_with() {
    let place = Place::new();
    let _held = place.hold("t");
    let words = [
        "run",
        "--name",
        "t",
        "--wait=60s",
        "--",
        "surely-no-such-command",
    ];
    assert_eq!(place.call(&words).code, 127);
}

#[test]
fn an_ignored_sigchld_does_not_lose_the_status() {
    let shown = same(
        "perl -e '$SIG{CHLD} = \"IGNORE\"; exec @ARGV' $D sh -c 'grep SigIgn /proc/$$/status; exit 7'; echo $?",
    );
    assert!(shown.stdout.ends_with("7\n"), "{shown:?}");
}

#[test]
fn pipelines_end_as_without_us() {
    let first = same("$D yes | head -1; echo ${PIPESTATUS[@]}");
    assert_eq!(first.stdout, "y\n141 0\n");
    let last = same("seq 100000 | $D head -1; echo ${PIPESTATUS[@]}");
    assert_eq!(last.stdout, "1\n141 0\n");
}

#[test]
fn ignored_and_blocked_signals_reach_the_command_unchanged() {
    same(
        "perl -MPOSIX -e '$SIG{$_} = \"IGNORE\" for qw(PIPE HUP TTIN CHLD); \
        sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR1, SIGTERM)); exec @ARGV' \
        $D grep -E 'Sig(Blk|Ign)' /proc/self/status",
    );
    same("$D grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status");
}

#[test]
fn closed_and_open_descriptors_reach_the_command_unchanged() {
    same("$D sh -c 'ls /proc/$$/fd' <&-");
    same("$D sh -c 'ls /proc/$$/fd >&2' >&-");
    same("$D sh -c 'ls /proc/$$/fd' 2>&-");
    same("exec 3</dev/null 9>/dev/null; $D sh -c 'ls /proc/$$/fd'");
    same("perl -e 'open F, \"/dev/null\"; exec @ARGV' $D sh -c 'ls /proc/$$/fd'");
}

#[test]
fn a_reader_sees_the_end_while_the_command_still_runs() {
    let place = Place::new();
    let mut command = wrapped(&place, &["sh", "-c", "exec >&-; exec sleep 8"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(child.try_wait().unwrap().is_none());
    send(child.id(), Signal::SIGTERM);
    assert_eq!(end(&mut child).signal(), Some(libc::SIGTERM));
}

#[test]
fn a_writer_sees_the_broken_pipe_while_the_command_still_runs() {
    let place = Place::new();
    let mut command = wrapped(&place, &["sh", "-c", "exec <&-; exec sleep 8"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    let broken = within(LIMIT, || nix::unistd::write(&stdin, b"x").is_err());
    assert!(broken && child.try_wait().unwrap().is_none());
    send(child.id(), Signal::SIGTERM);
    assert_eq!(end(&mut child).signal(), Some(libc::SIGTERM));
}

#[test]
fn arguments_variables_and_the_folder_reach_the_command_unchanged() {
    same(r#"export E= B=$'\xff\xfe'; $D sh -c 'printf "%s|%s\n" "$E" "$B" | od -c'"#);
    same(r"$D printf '%s|' a -- -x '' $'\xff' --name --help | od -c");
    same("umask 027; ulimit -n 77; cd /usr; $D sh -c 'umask; ulimit -n; pwd; nice'");
    let own = same("LISTEN_PID=1 $D sh -c 'echo $LISTEN_PID'");
    assert_eq!(own.stdout, "1\n");
    same("sh -c 'export LISTEN_PID=$$; exec \"$@\"' - $D sh -c 'test $LISTEN_PID = $$; echo $?'");
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let place = Place::new();
    let mut command = program("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$@\"", "-", "distlock"])
        .args(OPTIONS)
        .args(["sh", "-c", "echo started; read line; exit 4"])
        .env("DISTLOCK_SERVER", place.server())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    send(child.id(), Signal::SIGHUP);
    drop(child.stdin.take());
    assert_eq!(end(&mut child).code(), Some(4));
}

#[test]
fn each_signal_reaches_the_command_once() {
    let text = "@n = qw(TERM HUP INT USR1 ALRM); for my $s (@n) { $SIG{$s} = sub { $c{$s}++; print \".\" } } \
        $SIG{USR2} = sub { print join(',', map { \"$_=$c{$_}\" } @n), \"\\n\"; exit 0 }; \
        $| = 1; print \".\"; select undef, undef, undef, 10 while 1";
    let place = Place::new();
    let mut child = wrapped(&place, &["perl", "-e", text])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    for signal in ["TERM", "HUP", "INT", "USR1", "ALRM"] {
        send(child.id(), format!("SIG{signal}").parse().unwrap());
        stdout.read_exact(&mut first).unwrap();
    }
    send(child.id(), Signal::SIGUSR2);
    let mut counts = String::new();
    stdout.read_to_string(&mut counts).unwrap();
    assert_eq!(counts, "TERM=1,HUP=1,INT=1,USR1=1,ALRM=1\n");
    assert!(end(&mut child).success());
}

#[test]
fn a_signal_at_the_very_start_is_never_swallowed() {
    let place = Place::new();
    for round in 0..60_u8 {
        let mark = unique();
        let mut child = wrapped(&place, &["sleep", &mark]).spawn().unwrap();
        nix::poll::poll(&mut [], round % 7).unwrap();
        send(child.id(), Signal::SIGTERM);
        assert_eq!(end(&mut child).signal(), Some(libc::SIGTERM), "{round}");
        assert_eq!(alive(&mark), 0);
    }
    released(&place);
}

#[test]
fn killing_the_front_ends_the_whole_tree() {
    let (place, mark) = (Place::new(), unique());
    let mut child = started_tree(&place, &mark);
    child.kill().unwrap();
    end(&mut child);
    gone(&place, &mark);
}

#[test]
fn killing_the_keeper_ends_the_whole_tree_with_71() {
    let (place, mark) = (Place::new(), unique());
    let mut child = started_tree(&place, &mark);
    send(children(child.id())[0], Signal::SIGKILL);
    assert_eq!(end(&mut child).code(), Some(71));
    assert_eq!(alive(&mark), 0);
    gone(&place, &mark);
}

#[test]
fn killing_front_or_keeper_at_any_moment_leaves_nothing() {
    let place = Place::new();
    for round in 0..40_u8 {
        let mark = unique();
        let mut command = tree(&place, &mark);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        nix::poll::poll(&mut [], round / 2).unwrap();
        let keeper = children(child.id())
            .first()
            .copied()
            .filter(|_| round % 2 == 1);
        send(keeper.unwrap_or(child.id()), Signal::SIGKILL);
        end(&mut child);
        gone(&place, &mark);
    }
}

#[test]
fn a_stopped_keeper_is_continued_and_a_stopped_front_loses_nothing() {
    let place = Place::new();
    let mut child = wrapped(&place, &["sh", "-c", "echo .; read line; exit 9"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    let keeper = children(child.id())[0];
    let state = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    send(keeper, Signal::SIGSTOP);
    assert!(within(LIMIT, || state(keeper) != 'T'));
    send(child.id(), Signal::SIGSTOP);
    assert!(within(LIMIT, || state(child.id()) == 'T'));
    drop(child.stdin.take());
    send(child.id(), Signal::SIGCONT);
    assert_eq!(end(&mut child).code(), Some(9));
    released(&place);
}

#[test]
fn a_bare_environment_and_a_closed_stderr_do_no_harm() {
    same("setsid -w $D sh -c 'cat; echo out; exit 3' < <(echo in); echo $?");
    same("{ $D sh -c 'exit 6'; echo $?; } 2> >(:)");
}

#[test]
fn what_is_left_running_holds_the_lock_unless_told_otherwise() {
    for (how, left) in [("kill", 0), ("ignore", 1)] {
        let (place, mark) = (Place::new(), unique());
        let text = "sleep $0 >/dev/null 2>&1 & echo $!; exit 5";
        let words = ["run", "--name", "t", "-k", "300ms", "--leftovers", how];
        let call = ended(
            place
                .distlock()
                .args(words)
                .args(["--", "sh", "-c", text, &mark]),
        );
        assert_eq!((call.code, alive(&mark)), (5, left), "{how} {call:?}");
        if left > 0 {
            send(call.stdout.trim().parse().unwrap(), Signal::SIGKILL);
        }
        gone(&place, &mark);
    }
}

#[test]
fn killing_distlock_by_its_name_ends_the_tree() {
    let (place, mark) = (Place::new(), unique());
    let mut child = started_tree(&place, &mark);
    let name = fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
    let keeper = children(child.id())[0];
    let keepers = fs::read_to_string(format!("/proc/{keeper}/comm")).unwrap();
    assert_eq!(
        (name.trim(), keepers.trim()),
        ("distlock", "distlock-keeper")
    );
    child.kill().unwrap();
    end(&mut child);
    gone(&place, &mark);
}
