//! `distlock status` and `distlock list`, against locks in files.

use std::fs;

use serde_json::Value;

use crate::call::{Place, ended};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_free_lock_is_free_in_every_form() {
    let place = Place::new();
    place.call(&["status", "x"]).printed("x: free\n");
    let object = json(&place.call(&["status", "--json", "x"]).stdout);
    assert_eq!(
        (&object["name"], &object["state"]),
        (&"x".into(), &"free".into())
    );
    assert_eq!(object["server"], place.server());
    assert_eq!(object["id"], Value::Null);
    let quiet = place.call(&["status", "-q", "x"]);
    assert_eq!(
        (quiet.code, quiet.stdout + &quiet.stderr),
        (1, String::new())
    );
}

#[test]
fn a_holder_is_shown_with_all_that_is_known() {
    let place = Place::new();
    let run = place.run(&["--name", "x", "--reason", "nightly"]);
    let shown = place.call(&["status", "x"]);
    let first = shown.stdout.lines().next().unwrap();
    assert!(first.starts_with("x: held by "), "{shown:?}");
    assert!(
        first.ends_with(&format!(" pid {} (sh)", run.pid())),
        "{shown:?}"
    );
    for label in ["id", "since", "left", "reason   nightly", "fence    1"] {
        assert!(shown.stdout.contains(&format!("\n  {label}")), "{shown:?}");
    }
    let object = json(&place.call(&["status", "--json", "x"]).stdout);
    assert_eq!(object["state"], "held");
    assert_eq!(object["pid"], run.pid());
    assert_eq!(object["program"], "sh");
    assert_eq!(object["reason"], "nightly");
    assert_eq!(object["fence"], 1);
    assert_eq!(object["expiry"], "holder");
    for time in ["since", "now"] {
        let time = object[time].as_str().unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok() && time.ends_with('Z'));
    }
    assert_eq!(place.call(&["status", "-q", "x"]).code, 0);
}

#[test]
fn a_lock_that_cools_is_not_free() {
    let place = Place::new();
    let words = ["run", "--name", "x", "--hold-at-least", "1h", "true"];
    place.call(&words).printed("");
    let shown = place.call(&["status", "x"]).stdout;
    assert!(
        shown.starts_with("x: cooling (--hold-at-least) after a run of "),
        "{shown}"
    );
    assert!(
        shown.contains("\n  ended    ") && shown.contains("\n  left     59m"),
        "{shown}"
    );
    let object = json(&place.call(&["status", "--json", "x"]).stdout);
    assert_eq!(object["state"], "cooling");
    assert!(object["left_ms"].as_u64().unwrap() > 3_500_000, "{object}");
    assert!(object["ended"].is_string());
    assert_eq!(place.call(&["status", "-q", "x"]).code, 0);
}

#[test]
fn several_names_are_answered_one_by_one() {
    let place = Place::new();
    let _held = place.hold("b");
    let shown = place.call(&["status", "a", "b", "c"]);
    assert_eq!(shown.code, 0);
    let heads: Vec<&str> = shown
        .stdout
        .lines()
        .filter(|line| !line.starts_with(' '))
        .collect();
    assert_eq!((heads.len(), heads[0], heads[2]), (3, "a: free", "c: free"));
    let objects = place.call(&["status", "--json", "a", "b", "c"]).stdout;
    let states: Vec<Value> = objects
        .lines()
        .map(|line| json(line)["state"].clone())
        .collect();
    assert_eq!(states, ["free", "held", "free"]);
    assert_eq!(place.call(&["status", "-q", "a", "b"]).code, 0);
    assert_eq!(place.call(&["status", "-q", "a", "c"]).code, 1);
}

#[test]
fn what_cannot_be_told_is_69_and_the_others_are_answered() {
    let place = Place::new();
    let _held = place.hold("b");
    fs::write(place.path("locks/a.lock"), "something else\n").unwrap();
    let shown = place.call(&["status", "a", "b"]);
    assert_eq!(shown.code, 69);
    assert!(
        shown.stdout.starts_with("a: unknown\nb: held by "),
        "{shown:?}"
    );
    assert!(
        shown.stderr.starts_with("distlock: a: cannot ask file:///"),
        "{shown:?}"
    );
    let objects = place.call(&["status", "--json", "a"]).stdout;
    let object = json(&objects);
    assert_eq!(object["state"], "unknown");
    assert!(
        object["error"]
            .as_str()
            .unwrap()
            .contains("not a lock file")
    );
    let quiet = |names: &[&str]| {
        let ended = place.call(&[&["status", "-q"], names].concat());
        assert_eq!(ended.stdout + &ended.stderr, "");
        ended.code
    };
    assert_eq!(quiet(&["a"]), 69);
    assert_eq!(quiet(&["a", "c"]), 69);
    assert_eq!(quiet(&["a", "b"]), 0, "one is held, whatever the other is");
}

#[test]
fn a_table_of_the_file_can_send_each_lock_to_its_own_server() {
    let place = Place::new();
    fs::create_dir(place.path("others")).unwrap();
    let _held = place.hold("x");
    let others = place.path("others");
    let text = format!(
        "server = '{}'\n[lock.y]\nserver = 'file://{}'\n",
        place.server(),
        others.display()
    );
    place.write("distlock.toml", &text);
    let _other = crate::support::hold(&others, "y");
    let shown = ended(place.bare().args(["status", "--json", "x", "y"])).stdout;
    let states: Vec<Value> = shown
        .lines()
        .map(|line| json(line)["state"].clone())
        .collect();
    assert_eq!(states, ["held", "held"]);
}

#[test]
fn a_list_has_a_line_for_each_lock_that_is_taken() {
    let place = Place::new();
    place.call(&["list"]).printed("");
    place.call(&["list", "--json"]).printed("");
    let (_b, _a) = (place.hold("b"), place.hold("a/é"));
    place.call(&["run", "--name", "free", "true"]).printed("");
    place
        .call(&["run", "--name", "c", "--hold-at-least", "1h", "true"])
        .printed("");
    let list = place.call(&["list"]).stdout;
    let columns = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = list.lines().map(columns).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["a/é", "b", "c"]);
    assert_eq!(rows[0][1..3], ["held", "somebody@elsewhere"]);
    assert_eq!(rows[2][1], "cooling");
    assert!(rows.iter().all(|row| row.len() == 9), "{rows:?}");
    let objects = place.call(&["list", "--json"]).stdout;
    let names: Vec<Value> = objects
        .lines()
        .map(|line| json(line)["name"].clone())
        .collect();
    assert_eq!(names, ["a/é", "b", "c"]);
}

#[test]
fn a_list_on_a_terminal_is_a_table() {
    let place = Place::new();
    let _held = place.hold("x");
    let mut call = place.distlock();
    call.arg("list");
    let mut terminal = rexpect::session::spawn_command(call, Some(10_000)).unwrap();
    let shown = terminal.exp_eof().unwrap();
    let mut lines = shown.lines();
    assert!(
        lines.next().unwrap().starts_with("NAME  STATE  HOLDER"),
        "{shown}"
    );
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("x     held   somebody@elsewhere"),
        "{shown}"
    );
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    let _held = place.hold("x");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = ended(place.distlock().args(["list"]).stdout(full));
    ended.refused(71, "cannot write: ");
}
