//! Manual pages and completions are generated from the command line's types, committed, and
//! must be fresh: `BLESS=1 cargo test generated` writes them again.

use std::fs;

use clap_complete::{Shell, generate};
use clap_mangen::Man;
use distlock::cli;
use distlock::config::KEYS;
use distlock::model::code;

use crate::support::{is_installed, program, repository};

const PAGES: [&str; 5] = [
    "distlock",
    "distlock-run",
    "distlock-status",
    "distlock-list",
    "distlock-release",
];

/// Compares a committed file with what it should be, or writes it.
#[track_caller]
fn fresh(path: &str, content: &str) {
    let file = repository(path);
    if std::env::vars().any(|(name, value)| name == "BLESS" && value == "1") {
        fs::write(&file, content).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == content,
        "{path} is not fresh: BLESS=1 cargo test generated"
    );
}

/// The subcommand that a page is about.
fn command(page: &str) -> clap::Command {
    let mut command = cli::command();
    command.build();
    match page.strip_prefix("distlock-") {
        Some(name) => command.find_subcommand(name).unwrap().clone(),
        None => command,
    }
}

fn sections(name: &str) -> String {
    fs::read_to_string(repository(&format!("man/sections/{name}.roff"))).unwrap()
}

/// An option as roff writes it.
fn roff(text: &str) -> String {
    text.replace('-', "\\-")
}

/// The variables of the options that this subcommand has.
fn variables(command: &clap::Command) -> String {
    let has = |name: &str| {
        let mut arguments = command.get_arguments();
        arguments.any(|argument| argument.get_long() == Some(name))
    };
    let mut text = String::new();
    for key in KEYS.iter().filter(|key| has(key.name)) {
        if let Some(variable) = key.variable() {
            let option = roff(&format!("--{}", key.name));
            let entry = [".TP\n.B ", &variable, "\nAs \\fB", &option, "\\fR.\n"];
            text.extend(entry);
        }
    }
    text.trim_end().to_owned()
}

fn page(name: &str) -> String {
    let command = command(name);
    let own = sections(name)
        .replace("@CONNECTION@\n", &sections("connection"))
        .replace("@VARIABLES@", &variables(&command));
    let command = command.display_name(name.to_owned());
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(format!("distlock {}", env!("CARGO_PKG_VERSION")))
        .manual("distlock manual");
    let mut text = Vec::new();
    man.render_title(&mut text).unwrap();
    man.render_name_section(&mut text).unwrap();
    man.render_synopsis_section(&mut text).unwrap();
    man.render_description_section(&mut text).unwrap();
    man.render_options_section(&mut text).unwrap();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text).unwrap();
    }
    let text = String::from_utf8(text).unwrap() + &own;
    // A date that is empty must still be there, or the source is taken for it.
    text.replacen(" 1  \"distlock", " 1 \"\" \"distlock", 1)
}

#[test]
fn manual_pages_are_fresh() {
    for name in PAGES {
        fresh(&format!("man/{name}.1"), &page(name));
    }
}

#[test]
fn completions_are_fresh() {
    for (shell, file) in [
        (Shell::Bash, "distlock.bash"),
        (Shell::Zsh, "_distlock"),
        (Shell::Fish, "distlock.fish"),
    ] {
        let mut text = Vec::new();
        generate(shell, &mut cli::command(), "distlock", &mut text);
        let text = String::from_utf8(text).unwrap();
        fresh(&format!("completions/{file}"), &text);
    }
}

#[test]
fn every_subcommand_has_a_page_with_each_of_its_options() {
    let command = cli::command();
    let subcommands = command.get_subcommands().map(clap::Command::get_name);
    let expected: Vec<String> = subcommands.map(|name| format!("distlock-{name}")).collect();
    assert_eq!(expected, PAGES[1..]);
    for name in PAGES {
        let page = page(name);
        for argument in self::command(name).get_arguments() {
            let long = argument.get_long().map(|long| roff(&format!("--{long}")));
            let short = argument.get_short().map(|short| roff(&format!("-{short}")));
            for option in long.into_iter().chain(short) {
                assert!(
                    page.contains(&format!("\\fB{option}\\fR")),
                    "{name}: {option}"
                );
            }
        }
    }
}

#[test]
fn the_page_of_run_has_every_exit_code() {
    let page = page("distlock-run");
    let (_, rest) = page.split_once(".SH EXIT STATUS\n").unwrap();
    let (section, _) = rest.split_once(".SH ").unwrap();
    for code in [
        code::USAGE,
        code::UNAVAILABLE,
        code::SOFTWARE,
        code::OS,
        code::RELEASE,
        code::HELD,
        code::REFUSED,
        code::CONFIG,
        code::LOST,
        code::MAX_RUNTIME,
        code::NOT_EXECUTABLE,
        code::NOT_FOUND,
    ] {
        assert!(section.contains(&format!(".TP\n{code}\n")), "{code}");
    }
}

#[test]
fn the_page_of_run_has_every_variable() {
    let page = page("distlock-run");
    let set = [
        "NAME", "ID", "IDS", "FENCE", "EXPIRY", "HELD", "PASSWORD", "CONFIG",
    ];
    let set = set.map(|name| format!("DISTLOCK_{name}"));
    let read = KEYS.iter().filter_map(distlock::config::Key::variable);
    for variable in read.chain(set) {
        assert!(page.contains(&format!(".B {variable}\n")), "{variable}");
    }
}

#[test]
fn manual_pages_are_sound_roff() {
    if !is_installed("groff") {
        return;
    }
    for name in PAGES {
        let mut groff = program("groff");
        groff.args(["-man", "-Tutf8", "-ww", "-z"]);
        let output = groff
            .arg(repository(&format!("man/{name}.1")))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
    }
}

#[test]
fn the_shells_accept_their_completions() {
    for (shell, file) in [("bash", "distlock.bash"), ("zsh", "_distlock")] {
        if is_installed(shell) {
            let file = repository("completions").join(file);
            let output = program(shell).arg("-n").arg(file).output().unwrap();
            assert!(output.status.success(), "{shell}: {output:?}");
        }
    }
}
