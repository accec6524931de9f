//! `distlock release`, against locks in files and commands that run.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use nix::sys::wait::WaitStatus;
use serde_json::Value;

use crate::call::{Place, Running};

fn id(place: &Place, name: &str) -> String {
    let shown = place.call(&["status", "--json", name]).stdout;
    let object: Value = serde_json::from_str(&shown).unwrap();
    object["id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn assert_free(place: &Place, name: &str) {
    place
        .call(&["status", name])
        .printed(&format!("{name}: free\n"));
}

#[test]
fn a_free_lock_is_released_already() {
    let place = Place::new();
    place
        .call(&["release", "x", "--force", "--yes"])
        .printed("x: already free\n");
    place
        .call(&["release", "x", "--id", "7f3a91c2"])
        .printed("x: already free\n");
}

#[test]
fn by_its_id_a_holder_is_told_to_end() {
    let place = Place::new();
    let mut run = place.run(&["--name", "x"]);
    let ended = place.call(&["release", "x", "--id", &id(&place, "x")]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    assert!(ended.stdout.starts_with("x: told "), "{ended:?}");
    assert!(
        ended
            .stdout
            .ends_with(" to end; free when its command has ended\n")
    );
    assert_eq!(run.end().signal(), Some(15));
    assert_free(&place, "x");
}

#[test]
fn a_holder_with_another_id_is_left_alone() {
    let place = Place::new();
    let mut run = place.run(&["--name", "x"]);
    let own = id(&place, "x");
    let other = if own == "00000000" {
        "00000001"
    } else {
        "00000000"
    };
    let ended = place.call(&["release", "x", "--id", other]);
    ended.refused(1, &format!("its id is {own} and not {other}; nothing done"));
    assert_eq!(id(&place, "x"), own);
    place.call(&["release", "x", "--id", &own.to_uppercase()]);
    run.end();
}

#[test]
fn by_force_needs_a_yes_where_there_is_no_terminal() {
    let place = Place::new();
    let mut run = place.run(&["--name", "x"]);
    place
        .call(&["release", "x", "--force"])
        .refused(64, "add --yes");
    assert_eq!(place.call(&["status", "-q", "x"]).code, 0);
    assert_eq!(place.call(&["release", "x", "--force", "--yes"]).code, 0);
    assert_eq!(run.end().signal(), Some(15));
}

#[test]
fn at_once_kills_and_says_so() {
    let place = Place::new();
    let mut run = place.run(&["--name", "x"]);
    let ended = place.call(&["release", "x", "--force", "--yes", "--now"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.stdout.contains("free when its command is dead"),
        "{ended:?}"
    );
    assert_eq!(run.end().signal(), Some(9));
    let free = || place.call(&["status", "-q", "x"]).code == 1;
    assert!(crate::support::within(
        std::time::Duration::from_secs(10),
        free
    ));
}

#[test]
fn what_only_cools_is_free_at_once() {
    let place = Place::new();
    let cool = || place.call(&["run", "--name", "x", "--hold-at-least", "1h", "true"]);
    for how in [&["--force", "--yes"][..], &["--force", "--yes", "--now"]] {
        cool().printed("");
        let ended = place.call(&[&["release", "x"], how].concat());
        ended.printed("x: released; its command had ended\n");
        assert_free(&place, "x");
    }
    cool().printed("");
    let id = id(&place, "x");
    assert_eq!(place.call(&["release", "x", "--id", &id]).code, 0);
    assert_free(&place, "x");
}

/// Asks on a terminal and answers.
fn answered(place: &Place, answer: &str) -> (i32, String) {
    let mut call = place.distlock();
    // The terminal, and not what the other tests have.
    call.args(["release", "x", "--force"])
        .stdin(Stdio::inherit());
    let mut terminal = rexpect::session::spawn_command(call, Some(10_000)).unwrap();
    let shown = terminal.exp_string("Release x? [y/N]").unwrap();
    terminal.send_line(answer).unwrap();
    let rest = terminal.exp_eof().unwrap();
    let status = terminal.process().wait().unwrap();
    let WaitStatus::Exited(_, code) = status else {
        panic!("{status:?}");
    };
    (code, shown + &rest)
}

#[test]
fn on_a_terminal_the_holder_is_shown_and_a_yes_is_asked_for() {
    let place = Place::new();
    let mut run: Running = place.run(&["--name", "x"]);
    for no in ["n", "", "what?"] {
        let (code, shown) = answered(&place, no);
        assert_eq!(code, 1, "{shown}");
        assert!(
            shown.contains(&format!(" pid {} (sh) for ", run.pid())),
            "{shown}"
        );
    }
    assert_eq!(place.call(&["status", "-q", "x"]).code, 0);
    let (code, shown) = answered(&place, "y");
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("x: told "), "{shown}");
    assert_eq!(run.end().signal(), Some(15));
}

#[test]
fn a_lock_of_another_program_is_named_and_left_alone() {
    let place = Place::new();
    let mut flock = crate::support::program("flock");
    flock
        .arg(place.path("locks/x.lock"))
        .args(["sh", "-c", "echo started; exec sleep 60"]);
    if !crate::support::is_installed("flock") {
        return;
    }
    let mut child = flock.stdout(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
    let by_id = place.call(&["release", "x", "--id", "7f3a91c2"]);
    by_id.refused(1, "held by another program");
    let by_force = place.call(&["release", "x", "--force", "--yes"]);
    by_force.refused(78, "x: cannot release it at file:///");
    child.kill().unwrap();
    child.wait().unwrap();
}
