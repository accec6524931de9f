//! README.md: what it shows happens, its recipes are the files in examples/, what it names is
//! there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use distlock::model::Holder;

use crate::support::{distlock, hold_as, program, repository};

/// Stands for text that differs from run to run, in one line.
const ANY: char = '…';

/// Options that the documents mention of other programs.
const OF_OTHERS: [&str; 4] = ["--no-default-features", "--path", "--release", "--root"];

/// A block between fences: the line before it, what stands behind the fence, the text.
struct Block {
    before: String,
    language: String,
    text: String,
}

fn read(name: &str) -> String {
    fs::read_to_string(repository(name)).unwrap()
}

fn blocks(document: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = document.lines();
    let mut before = "";
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inside: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push(Block {
                before: before.to_owned(),
                language: language.to_owned(),
                text: inside.join("\n") + "\n",
            });
        }
        before = line;
    }
    found
}

/// The commands of a block, each with what it is to print.
fn commands(block: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push((command.to_owned(), String::new()));
        } else {
            let (_, output) = found.last_mut().expect("a command before its output");
            output.push_str(line);
            output.push('\n');
        }
    }
    found
}

/// Whether a line is as it should be.
fn is_like(found: &str, expected: &str) -> bool {
    let mut parts = expected.split(ANY);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = found.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        let at = if parts.peek().is_some() {
            rest.find(part)
        } else {
            rest.ends_with(part).then(|| rest.len() - part.len())
        };
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// What a shell line prints, on both streams, with the locks in `folder`.
fn run(line: &str, folder: &Path) -> String {
    let output = program("/bin/sh")
        .arg("-c")
        .arg(format!("exec 2>&1\n{line}"))
        .env("DISTLOCK_SERVER", format!("file://{}", folder.display()))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The other host of README's example, with the lock `backup`.
fn other_host() -> Holder {
    Holder {
        host: "web3".into(),
        user: "deploy".into(),
        pid: std::process::id(),
        boot: String::new(),
        program: "pg_dump".into(),
        reason: Some("nightly".into()),
    }
}

#[test]
fn the_console_of_the_readme_shows_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let _held = hold_as(folder.path(), "backup", &other_host());
    let mut count = 0;
    for block in blocks(&read("README.md")) {
        if block.language != "console" {
            continue;
        }
        for (command, expected) in commands(&block.text) {
            let found = run(&command, folder.path());
            let same_length = found.lines().count() == expected.lines().count();
            let mut pairs = found.lines().zip(expected.lines());
            assert!(
                same_length && pairs.all(|(found, expected)| is_like(found, expected)),
                "$ {command}\nexpected:\n{expected}\nfound:\n{found}"
            );
            count += 1;
        }
    }
    assert!(count > 5, "only {count} commands found in README.md");
}

#[test]
fn the_recipes_of_the_readme_are_the_examples() {
    let mut count = 0;
    for block in blocks(&read("README.md")) {
        let name = block.before.strip_prefix("<!-- examples/");
        let Some(name) = name.and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        let example = read(&format!("examples/{name}"));
        assert_eq!(block.text, example, "README.md has another {name}");
        count += 1;
    }
    assert!(count > 5, "only {count} examples found in README.md");
}

#[test]
fn the_documents_name_only_options_that_exist() {
    let mut known: BTreeSet<String> = OF_OTHERS.map(str::to_owned).into();
    for subcommand in ["run", "status", "list", "release"] {
        let help = program(distlock()).args([subcommand, "--help"]).output();
        known.extend(options(&String::from_utf8(help.unwrap().stdout).unwrap()));
    }
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ] {
        let unknown: Vec<_> = options(&read(document))
            .difference(&known)
            .cloned()
            .collect();
        assert!(unknown.is_empty(), "{document} names {unknown:?}");
    }
}

/// The long options that a text names.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    text.match_indices("--")
        .filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '-'))
        .map(|(at, _)| &text[at..])
        .map(|rest| {
            rest.split(|c| !is_part(c))
                .next()
                .unwrap()
                .trim_end_matches('-')
        })
        .filter(|option| option.len() > 2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_readme_tells_every_exit_code() {
    let readme = read("README.md");
    let outcome = read("src/model/outcome.rs");
    let codes = outcome
        .lines()
        .filter_map(|line| line.split_once(": u8 = "));
    let codes: Vec<_> = codes.map(|(_, code)| code.trim_end_matches(';')).collect();
    assert!(codes.len() > 5);
    let rows: Vec<_> = readme
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    for code in codes {
        let is_told = |row: &&str| {
            let first = row.split('|').nth(1).unwrap();
            first.split([' ', ',']).any(|word| word == code)
        };
        assert!(rows.iter().any(is_told), "README.md does not tell {code}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ] {
        let text = read(document);
        let targets = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            assert!(repository(target).exists(), "{document} links to {target}");
        }
    }
}

#[test]
fn a_line_with_gaps_is_compared() {
    assert!(is_like("abc", "abc"));
    assert!(!is_like("abcd", "abc"));
    assert!(is_like("pid 47 (x) for 3s", "pid … (x) for …"));
    assert!(is_like("a, b, c", "…, c"));
    assert!(!is_like("a, b, d", "…, c"));
    assert!(!is_like("ab", "abc…"));
}
