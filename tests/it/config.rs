//! Where settings come from: flags, environment, file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use distlock::cli::{self, Task};
use distlock::config::{self, ConfigError, Environment, KEYS, RunSettings};

use crate::call::{Ended, Place, ended};
use crate::support::distlock;

/// A lock server that nobody runs.
const NOWHERE: &str = "redis://127.0.0.1:1";

/// What the library makes of these words and variables.
fn settings(words: &[&str], variables: &[(&str, &str)]) -> Result<RunSettings, ConfigError> {
    let words = ["distlock", "run", "--name", "x"].iter().chain(words);
    let words = words.chain(&["true"]).map(OsString::from);
    let Task::Run(run) = cli::parse(words).unwrap().task else {
        panic!("not a run");
    };
    let variables = variables.iter().copied();
    let environment = Environment::new(variables).with_system_file("/nonexistent");
    config::run_settings(&run, &environment)
}

#[test]
fn flags_beat_variables_and_these_the_table_of_the_lock_and_this_the_top_of_the_file() {
    let place = Place::new();
    let _held = place.hold("x");
    let code = |variable: Option<&str>, flag: &[&str]| {
        let mut call = place.distlock();
        if let Some(variable) = variable {
            call.env("DISTLOCK_CONFLICT_EXIT_CODE", variable);
        }
        call.args(["run", "--name", "x"]).args(flag).arg("true");
        ended(&mut call).code
    };
    assert_eq!(code(None, &[]), 75);
    let top = "conflict-exit-code = 1\n[lock.y]\nconflict-exit-code = 9\n";
    place.write("distlock.toml", top);
    assert_eq!(code(None, &[]), 1);
    place.write(
        "distlock.toml",
        &format!("{top}[lock.x]\nconflict-exit-code = 2\n"),
    );
    assert_eq!(code(None, &[]), 2);
    assert_eq!(code(Some("3"), &[]), 3);
    assert_eq!(code(Some(""), &[]), 2, "an empty variable is not set");
    assert_eq!(code(Some("3"), &["-E", "4"]), 4);
}

#[test]
fn only_the_first_file_that_is_found_is_read() {
    let place = Place::new();
    let _held = place.hold("x");
    fs::create_dir_all(place.path("home/.config")).unwrap();
    place.write("home/.config/distlock.toml", "conflict-exit-code = 1");
    place.write("distlock.toml", "");
    place.write("named.toml", "conflict-exit-code = 3");
    let code = |change: &dyn Fn(&mut Command)| {
        let mut call = place.distlock();
        call.env("HOME", place.path("home"));
        call.args(["run", "--name", "x"]);
        change(&mut call);
        ended(call.arg("true")).code
    };
    assert_eq!(code(&|_| {}), 75, "the one in XDG_CONFIG_HOME says nothing");
    let home = |call: &mut Command| {
        call.env_remove("XDG_CONFIG_HOME");
    };
    assert_eq!(code(&home), 1);
    let relative = |call: &mut Command| {
        call.env("XDG_CONFIG_HOME", ".");
    };
    assert_eq!(code(&relative), 1, "a relative XDG_CONFIG_HOME is ignored");
    let variable = |call: &mut Command| {
        call.env("DISTLOCK_CONFIG", place.path("named.toml"));
    };
    assert_eq!(code(&variable), 3);
    let flag = |call: &mut Command| {
        call.env("DISTLOCK_CONFIG", "/nonexistent");
        call.args(["--config", "named.toml"]);
    };
    assert_eq!(code(&flag), 3);
}

#[test]
fn mistakes_in_the_file_name_file_line_and_key() {
    let place = Place::new();
    for (text, at) in [
        ("\nfrobnicate = 1", "2: frobnicate: unknown key"),
        (
            "kill_after = 1",
            "1: kill_after: unknown key; write kill-after",
        ),
        (
            "password = 'secret'",
            "1: password: unknown key; use password-file",
        ),
        ("config = 'x'", "1: config: unknown key"),
        ("ttl = true", "1: ttl: must be a duration"),
        ("ttl = '5M'", "1: ttl: \"5M\" is not a duration"),
        (
            "insecure = 'yes'",
            "1: insecure: must be true or false, not a string",
        ),
        (
            "conflict-exit-code = '1'",
            "1: conflict-exit-code: must be a number",
        ),
        ("conflict-exit-code = 256", "1: conflict-exit-code: "),
        ("user = 5", "1: user: must be a string, not a whole number"),
        (
            "raw-key = 'k'",
            "1: raw-key: belongs into the table of a lock",
        ),
        (
            "[lock.x]\nttl = '1s'\nttk = 1",
            "3: [lock.x] ttk: unknown key",
        ),
        ("[lock.y]\non-lost = 'x'", "2: [lock.y] on-lost: "),
        ("[lock.'a b']", "1: [lock.a b]: "),
        ("lock = 1", "1: lock must be a table"),
        ("[locks.x]", "1: locks: unknown key"),
        ("ttl = ", "1: "),
        ("ttl = 1\nttl = 2", "2: "),
        ("server = 'redis//:secret@h'", "1: server: "),
        ("server = ['a', 'b']", "1: server: one server only"),
    ] {
        place.write("distlock.toml", text);
        let ended = place.call(&["run", "--name", "x", "true"]);
        let at = format!("{}:{at}", place.path("distlock.toml").display());
        ended.refused(78, &at);
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_78_however_it_was_named() {
    let place = Place::new();
    let words = ["run", "--name", "x", "--config", "missing.toml", "true"];
    place
        .call(&words)
        .refused(78, "missing.toml: cannot read the file that --config names");
    let mut call = place.distlock();
    call.env("DISTLOCK_CONFIG", "/nonexistent").args(["list"]);
    ended(&mut call).refused(
        78,
        "/nonexistent: cannot read the file that DISTLOCK_CONFIG names",
    );
    fs::remove_file(place.path("distlock.toml")).unwrap();
    fs::create_dir(place.path("distlock.toml")).unwrap();
    place
        .call(&["list"])
        .refused(78, "distlock.toml: cannot read: ");
}

#[test]
fn mistakes_in_the_environment_name_the_variable() {
    let place = Place::new();
    for (variable, value) in [
        ("DISTLOCK_TTL", "5M"),
        ("DISTLOCK_WAIT", "soon"),
        ("DISTLOCK_SIGNAL", "NOISE"),
        ("DISTLOCK_INSECURE", "perhaps"),
        ("DISTLOCK_LEFTOVERS", "eat"),
        ("DISTLOCK_CONNECT_TIMEOUT", "0"),
        ("DISTLOCK_SERVER", "http://h"),
        ("DISTLOCK_LOST_GRACE", "11s"),
    ] {
        let mut call = place.distlock();
        call.env(variable, value)
            .args(["run", "--name", "x", "true"]);
        ended(&mut call).refused(78, &format!("distlock: {variable}: "));
    }
}

#[test]
fn without_a_server_the_three_ways_to_name_one_are_said() {
    let place = Place::new();
    for words in [
        &["run", "--name", "x", "true"][..],
        &["list"],
        &["status", "x"],
    ] {
        let ended = ended(place.bare().args(words));
        ended.refused(
            78,
            "no lock server configured: --server, DISTLOCK_SERVER or",
        );
        assert!(ended.stderr.contains("--server local for this host only"));
    }
}

#[test]
fn an_empty_environment_is_enough() {
    let place = Place::new();
    let mut call = Command::new(distlock());
    call.env_clear().args(["run", "--server", &place.server()]);
    call.args(["--name", "x", "/bin/echo", "ran"]);
    ended(&mut call).printed("ran\n");
}

#[test]
fn variables_set_for_commands_are_not_options() {
    let place = Place::new();
    let mut call = place.distlock();
    for name in [
        "NAME", "ID", "IDS", "FENCE", "EXPIRY", "HELD", "RAW_KEY", "REASON", "REPORT", "C",
    ] {
        call.env(format!("DISTLOCK_{name}"), "no such thing");
    }
    let mut nameless = place.distlock();
    nameless.env("DISTLOCK_NAME", "x").args(["run", "true"]);
    ended(&mut nameless).refused(64, "--name");
    ended(call.args(["run", "--name", "x", "echo", "ran"])).printed("ran\n");
}

#[test]
fn nested_runs_inherit_options() {
    let place = Place::new();
    let _held = place.hold("inner");
    let mut call = place.distlock();
    call.env("DISTLOCK_CONFLICT_EXIT_CODE", "42");
    call.args([
        "run", "--name", "outer", "distlock", "run", "--name", "inner", "true",
    ]);
    assert_eq!(ended(&mut call).code, 42);
}

#[test]
fn every_option_has_a_key_and_a_variable_but_those_that_say_why_not() {
    let command = cli::command();
    let run = command.find_subcommand("run").unwrap();
    let mut options: BTreeSet<String> = run
        .get_arguments()
        .filter_map(|argument| {
            let short = argument.get_short().map(String::from);
            argument.get_long().map(str::to_owned).or(short)
        })
        .collect();
    for not in ["config", "help"] {
        options.remove(not);
    }
    // Another way to write --wait.
    options.remove("w");
    let keys: BTreeSet<String> = KEYS.iter().map(|key| key.name.to_owned()).collect();
    assert_eq!(options, keys);
    let silent: BTreeSet<&str> = KEYS
        .iter()
        .filter(|key| key.variable().is_none())
        .map(|key| key.name)
        .collect();
    assert_eq!(
        silent,
        BTreeSet::from(["c", "name", "raw-key", "reason", "report"])
    );
}

#[test]
fn passwords_are_refused_on_the_command_line_and_accepted_elsewhere() {
    let place = Place::new();
    let secret = "redis://user:secret@127.0.0.1:1";
    let run = |call: &mut Command| -> Ended {
        call.args(["run", "--name", "x", "--connect-timeout", "20ms", "true"]);
        ended(call)
    };
    let words = ["run", "--server", secret, "--name", "x", "true"];
    let refused = ended(place.bare().args(words));
    refused.refused(64, "--password-file");
    assert!(!refused.stderr.contains("secret"));
    let variable = run(place.bare().env("DISTLOCK_SERVER", secret));
    place.write("distlock.toml", &format!("server = '{secret}'"));
    let file = run(&mut place.bare());
    for ended in [variable, file] {
        assert_ne!(ended.code, 64, "{ended:?}");
        assert!(!ended.stderr.contains("secret") && !ended.stderr.contains("user"));
    }
}

#[test]
fn a_password_file_becomes_absolute() {
    let words = ["--server", NOWHERE, "--password-file", "some.pass"];
    let access = settings(&words, &[]).unwrap().connection.access;
    let here = std::env::current_dir().unwrap();
    assert_eq!(access.password_file, Some(here.join("some.pass")));
    let place = Place::new();
    place.write("distlock.toml", "password-file = 'some.pass'\n");
    let folder = place.path("");
    let folder = folder.to_str().unwrap();
    let variables = [("XDG_CONFIG_HOME", folder), ("DISTLOCK_SERVER", NOWHERE)];
    let access = settings(&[], &variables).unwrap().connection.access;
    assert_eq!(
        access.password_file,
        Some(Path::new(folder).join("some.pass"))
    );
}

#[test]
fn what_is_given_at_a_more_important_place_beats_the_user_info_of_the_address() {
    let address = ("DISTLOCK_SERVER", "redis://old:secret@127.0.0.1:1");
    let connection = |words: &[&str]| settings(words, &[address]).unwrap().connection;
    let plain = connection(&[]);
    assert!(plain.server.has_password() && plain.server.has_user());
    let other = connection(&["--user", "new", "--password-file", "/p"]);
    assert!(!other.server.has_password() && !other.server.has_user());
    assert_eq!(other.access.user.as_deref(), Some("new"));
}

#[test]
fn a_ttl_that_leaves_no_time_for_renewals_is_refused_with_the_smallest_that_works() {
    let run =
        |ttl: &str, grace: &str| settings(&["--server", NOWHERE, "--ttl", ttl, "-k", grace], &[]);
    let error = run("30s", "30s").unwrap_err();
    let text = error.to_string();
    assert_eq!(error.code(), 64, "{text}");
    let (_, smallest) = text.rsplit_once("with it is ").unwrap();
    let seconds: u64 = smallest.strip_suffix('s').unwrap().parse().unwrap();
    assert!(run(smallest, "30s").is_ok(), "{text}");
    assert!(run(&format!("{}s", seconds - 1), "30s").is_err(), "{text}");

    let variable = settings(&["--server", NOWHERE], &[("DISTLOCK_KILL_AFTER", "1m")]).unwrap_err();
    assert_eq!(variable.code(), 78);
    assert!(variable.to_string().starts_with("DISTLOCK_KILL_AFTER: "));
    let file = ["--server", "file:///locks", "-k", "1h"];
    assert!(settings(&file, &[]).is_ok(), "locks in files have no TTL");
}

#[test]
fn graces_follow_the_ttl_unless_they_are_given() {
    let run = |words: &[&str]| settings(&[&["--server", NOWHERE], words].concat(), &[]).unwrap();
    let graces = |words: &[&str]| {
        let run = run(words);
        (run.kill_after, run.lost_grace)
    };
    let (second, ten) = (Duration::from_secs(1), Duration::from_secs(10));
    assert_eq!(graces(&[]), (ten, second));
    assert_eq!(graces(&["--ttl", "2h"]), (ten, second));
    assert_eq!(graces(&["--ttl", "30s"]), (Duration::from_secs(5), second));
    let short = Duration::from_millis(500);
    assert_eq!(graces(&["--ttl", "3s"]), (short, short));
    assert_eq!(graces(&["-k", "3", "--lost-grace", "3"]).1, 3 * second);
    assert!(run(&["--ttl", "5s"]).warnings.is_empty());
    assert_eq!(run(&["--ttl", "4.9"]).warnings.len(), 1);
}

#[test]
fn a_lost_grace_above_the_other_grace_is_refused() {
    let words = ["--server", NOWHERE, "--lost-grace", "11s"];
    assert_eq!(settings(&words, &[]).unwrap_err().code(), 64);
    let words = ["--server", NOWHERE, "-k", "1s", "--lost-grace", "1.1"];
    assert_eq!(settings(&words, &[]).unwrap_err().code(), 64);
}
