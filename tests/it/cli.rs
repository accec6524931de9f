//! The command line of the built binary.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::call::{Place, ended};

#[test]
fn everything_after_the_first_word_that_is_no_option_belongs_to_the_command() {
    let place = Place::new();
    let print = ["printf", "[%s]", "--name", "y", "--", "-c", "", "--help"];
    for separator in [&[][..], &["--"]] {
        let words = [&["run", "--name", "x"], separator, &print].concat();
        place.call(&words).printed("[--name][y][--][-c][][--help]");
    }
}

#[test]
fn words_of_the_command_need_not_be_text() {
    let place = Place::new();
    let mut call = place.distlock();
    call.args(["run", "--name", "x", "printf", "%s"]);
    call.arg(OsStr::from_bytes(b"\xff\xfe"));
    assert_eq!(call.output().unwrap().stdout, b"\xff\xfe");
}

#[test]
fn help_and_version_succeed_on_stdout() {
    let place = Place::new();
    let version = format!("distlock {}\n", env!("CARGO_PKG_VERSION"));
    place.call(&["--version"]).printed(&version);
    for words in [
        &["--help"][..],
        &["run", "--help"],
        &["run", "-h"],
        &["status", "--help"],
        &["list", "--help"],
        &["release", "--help"],
    ] {
        let help = place.call(words);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""));
        assert!(help.stdout.contains("Usage: distlock"), "{help:?}");
        assert!(help.stdout.ends_with('\n'));
    }
}

#[test]
fn help_names_every_exit_code_of_run() {
    let help = Place::new().call(&["run", "--help"]).stdout;
    for code in [
        "128+N", "124", "126", "127", "75", "69", "77", "79", "74", "64", "78", "70", "71",
    ] {
        assert!(help.contains(code), "{code}");
    }
}

#[test]
fn wrong_usage_is_64_and_never_the_2_of_commands() {
    let place = Place::new();
    for words in [
        &[][..],
        &["frobnicate"],
        &["run"],
        &["run", "--name", "x"],
        &["run", "--name", "x", "--"],
        &["run", "--name", "x", "--frobnicate", "true"],
        &["run", "--name", "x", "--wait", "-n", "true"],
        &["run", "--name", "x", "--wait", "-w", "5", "true"],
        &["run", "--name", "x", "--wait=", "true"],
        &["run", "--name", "x", "-q", "-v", "true"],
        &["run", "--name", "x", "-c", "true", "true"],
        &["run", "--name", "x", "--on-lost", "shrug", "true"],
        &["run", "--name", "x", "--signal", "NOISE", "true"],
        &["run", "--name", "x", "-E", "256", "true"],
        &["run", "--name", "x", "--ttl", "5M", "true"],
        &["run", "--name", "x", "--max-runtime", "-1", "true"],
        &["run", "--name", "", "true"],
        &["run", "--name", "a b", "true"],
        &["run", "--name", "a{b}", "true"],
        &[
            "run",
            "--name",
            "x",
            "--server",
            "file:///a",
            "--server",
            "file:///b",
            "true",
        ],
        &["status"],
        &["status", "a b"],
        &["status", "-q", "--json", "x"],
        &["status", "--raw-key", "k", "x"],
        &["status", "--raw-key", "k", "x", "y"],
        &["list", "x"],
        &["release", "x"],
        &["release", "--id", "7f3a91c2"],
        &["release", "x", "--id", "short"],
        &["release", "x", "--id", "7f3a91c2", "--force"],
        &["release", "x", "--id", "7f3a91c2", "--yes"],
    ] {
        let ended = place.call(words);
        assert_eq!(ended.code, 64, "{words:?}: {ended:?}");
        assert!(ended.stdout.is_empty() && !ended.stderr.is_empty());
    }
}

#[test]
fn a_duration_after_a_bare_wait_is_answered_with_the_right_form() {
    let place = Place::new();
    for words in [
        &["run", "--name", "x", "--wait", "25m", "true"][..],
        &["run", "--name", "x", "--wait", "--", "25m", "true"],
    ] {
        place.call(words).refused(64, "say --wait=25m");
    }
    let run = |wait| place.call(&["run", "--name", "x", wait, "echo", "25m"]);
    run("--wait").printed("25m\n");
    run("--wait=1s").printed("25m\n");
    run("-w1s").printed("25m\n");
}

#[test]
fn timeout_is_answered_with_the_two_options_that_it_may_mean() {
    let place = Place::new();
    for words in [
        &["run", "--name", "x", "--timeout", "5", "true"][..],
        &["run", "--timeout=5", "--name", "x", "true"],
    ] {
        let answer = "say --wait (for the lock) or --max-runtime (for the command)";
        place.call(words).refused(64, answer);
    }
    let words = ["run", "--name", "x", "echo", "--timeout", "5"];
    place.call(&words).printed("--timeout 5\n");
}

#[test]
fn durations_out_of_range_say_the_range() {
    let place = Place::new();
    let ttl = |ttl| place.call(&["run", "--name", "x", "--ttl", ttl, "true"]);
    ttl("25h").refused(64, "\"25h\" is out of range: from 1s to 1d");
    ttl("999ms").refused(64, "from 1s to 1d");
    ttl("5M").refused(64, "\"5M\" is not a duration: write 500ms");
}

#[test]
fn a_shell_line_is_run_by_the_shell() {
    let place = Place::new();
    let ended = place.call(&["run", "--name", "x", "-c", "printf '%s|' a b; exit 3"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (3, "a|b|"));
}

#[test]
fn the_last_of_a_repeated_option_counts() {
    let place = Place::new();
    let _held = place.hold("x");
    let words = [
        "run", "-E", "3", "--name", "y", "-E", "4", "--name", "x", "true",
    ];
    assert_eq!(place.call(&words).code, 4);
}

#[test]
fn whoever_is_refused_is_told_who_holds_it() {
    let place = Place::new();
    let _held = place.hold("x");
    let run = |option| place.call(&["run", "--name", "x", option, "echo", "ran"]);
    run("-n").refused(75, "distlock: x: held by somebody@elsewhere pid ");
    run("-w0").refused(75, "to free it: distlock release x --id ");
    run("-E0").refused(0, "held by");
    let quiet = run("-q");
    assert_eq!((quiet.code, quiet.stderr.as_str()), (75, ""));
}

#[test]
fn an_unknown_scheme_lists_the_known_ones() {
    let place = Place::new();
    let mut call = place.bare();
    call.args(["list", "--server", "http://u:secret@h/"]);
    let ended = ended(&mut call);
    ended.refused(64, "known are: redis, rediss, ");
    assert!(ended.stderr.contains("file, local") && !ended.stderr.contains("secret"));
}
