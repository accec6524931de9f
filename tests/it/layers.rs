//! What may know what: the arrows of ARCHITECTURE.md held against the source.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::repository;

/// Each module at the top, and what of this crate it may use: a module, or one item of it.
///
/// `main` and `commands` put everything together, so they may use everything.
const ARROWS: &[(&str, &[&str])] = &[
    ("backoff", &[]),
    ("cli", &["model", "output"]),
    ("clock", &[]),
    // Which grace fits into which TTL, the session knows.
    ("config", &["cli", "model", "session::fits", "store"]),
    (
        "contest",
        &["backoff", "clock", "model", "store::ErrorKind"],
    ),
    // `die_by` is unsafe code, which is in one place.
    ("exit", &["model", "supervise"]),
    (
        "heartbeat",
        &["clock", "model", "store", "supervise::borrow"],
    ),
    ("identity", &["model"]),
    ("lease", &["backoff", "clock", "model"]),
    ("model", &["clock"]),
    ("output", &["clock", "config", "model", "store"]),
    ("release", &["backoff", "clock", "store::ErrorKind"]),
    (
        "session",
        &[
            "backoff",
            "clock",
            "lease",
            "model",
            "release",
            "store::ErrorKind",
        ],
    ),
    ("store", &["clock", "model"]),
    (
        "supervise",
        &[
            "backoff",
            "clock",
            "config",
            "contest",
            "exit",
            "heartbeat",
            "identity",
            "lease",
            "model",
            "output",
            "release",
            "session",
            "store",
        ],
    ),
];

/// Modules that may use everything.
const EVERYTHING: [&str; 3] = ["commands", "lib", "main"];

/// Other crates, and the only places that may use them.
const CRATES: &[(&str, &[&str])] = &[
    ("anyhow", &["commands", "main"]),
    ("clap", &["cli", "config"]),
    ("libc", &["exit", "store/file", "store/redis", "supervise"]),
    (
        "nix",
        &[
            "clock",
            "config/keys",
            "exit",
            "heartbeat",
            "identity",
            "output",
            "store/file",
            "store/redis",
            "store/url",
            "supervise",
        ],
    ),
    ("redis", &["store/cluster", "store/redis", "store/sentinel"]),
    ("rustix", &["store/file", "supervise"]),
    ("rustls", &["store/redis"]),
    ("signal_hook", &["exit", "supervise"]),
    ("toml", &["config"]),
    ("url", &["store"]),
];

/// Names of places that are nobody else's business.
const PRIVATE: [&str; 3] = [
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("file:///", "home/"),
];

/// A source file: its path below `src` without the ending, and its code.
struct Source {
    place: String,
    code: String,
}

impl Source {
    /// The module at the top that it belongs to.
    fn module(&self) -> &str {
        self.place.split('/').next().unwrap()
    }

    /// How deep in the tree of modules it is: 1 at the top.
    fn depth(&self) -> usize {
        self.place
            .strip_suffix("/mod")
            .unwrap_or(&self.place)
            .split('/')
            .count()
    }

    /// Whether this is in one of `places`.
    fn is_in(&self, places: &[&str]) -> bool {
        let below = |place: &&str| {
            self.place
                .strip_prefix(*place)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        places.iter().any(below)
    }

    /// What it uses of this crate, as `module` or `module::item`.
    fn uses(&self) -> BTreeSet<String> {
        let own_crate = if self.module() == "main" {
            "distlock::"
        } else {
            "crate::"
        };
        let mut found = paths_after(&self.code, own_crate);
        found.extend(paths_after(&self.code, &"super::".repeat(self.depth())));
        found
    }

    /// Whether it uses this other crate.
    fn uses_crate(&self, name: &str) -> bool {
        let own = [format!("mod {name};"), format!("mod {name} {{")];
        !own.iter().any(|own| self.code.contains(own))
            && starts_of(&self.code, &format!("{name}::")).next().is_some()
    }
}

/// Where `path` stands in `code` as the beginning of a path: the offsets behind it.
fn starts_of<'c>(code: &'c str, path: &'c str) -> impl Iterator<Item = usize> + 'c {
    let is_start = |before: &str| {
        let before = before.strip_suffix("::").unwrap_or(before);
        !before.ends_with(|c: char| c.is_alphanumeric() || "_:$>".contains(c))
    };
    code.match_indices(path)
        .filter(move |(at, _)| is_start(&code[..*at]))
        .map(|(at, path)| at + path.len())
}

/// What stands in `code` behind `start`, braces taken apart, in at most two parts.
fn paths_after(code: &str, start: &str) -> BTreeSet<String> {
    let first_two = |path: String| path.split("::").take(2).collect::<Vec<_>>().join("::");
    starts_of(code, start)
        .flat_map(|at| branches(&code[at..]))
        .map(first_two)
        .collect()
}

/// The paths of a tree like `a::{b, c::{d, e}}`; only what stands before and in its first braces.
fn branches(tree: &str) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let end = tree.find(|c| !is_path(c)).unwrap_or(tree.len());
    let (stem, rest) = tree.split_at(end);
    let Some(rest) = rest.strip_prefix('{') else {
        return vec![stem.trim_end_matches(':').to_owned()];
    };
    split_at_commas(rest)
        .flat_map(|branch| branches(branch.trim()))
        .map(|branch| format!("{stem}{branch}"))
        .collect()
}

/// The parts up to the brace that closes, at the commas that are not in inner braces.
fn split_at_commas(list: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut start, mut parts) = (1, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            parts.push(&list[start..at]);
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    parts.into_iter().filter(|part| !part.trim().is_empty())
}

/// Rust text without comments.
fn without_comments(text: &str) -> String {
    let code = |line: &'_ str| {
        let end = line.find("//").filter(|at| !line[..*at].ends_with(':'));
        line[..end.unwrap_or(line.len())].to_owned()
    };
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// All files below a folder, those that are made and those of git aside.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || name == "target" || name == ".git" {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
    found.sort();
}

fn sources() -> Vec<Source> {
    let folder = repository("src");
    let mut found = Vec::new();
    files(&folder, &mut found);
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|end| end == "rs");
    let read = |path: PathBuf| {
        let below = path.strip_prefix(&folder).unwrap().with_extension("");
        Source {
            place: below.to_str().unwrap().to_owned(),
            code: without_comments(&fs::read_to_string(&path).unwrap()),
        }
    };
    found.into_iter().filter(is_rust).map(read).collect()
}

/// Whether a use is one of `allowed`: a whole module, or this item.
fn is_allowed(used: &str, allowed: &[&str]) -> bool {
    let module = used.split("::").next().unwrap();
    allowed.iter().any(|one| *one == used || *one == module)
}

#[test]
fn modules_use_only_what_is_below_them() {
    let mut wrong = Vec::new();
    for source in sources() {
        let module = source.module();
        if EVERYTHING.contains(&module) {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!(
                "src/{} is not in the table of arrows",
                source.place
            ));
            continue;
        };
        for used in source.uses() {
            let target = used.split("::").next().unwrap();
            let is_module =
                EVERYTHING.contains(&target) || ARROWS.iter().any(|(name, _)| *name == target);
            if is_module && target != module && !is_allowed(&used, allowed) {
                wrong.push(format!("src/{} uses {used}", source.place));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn other_crates_are_used_in_their_places_only() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (name, places) in CRATES {
            if !source.is_in(places) && source.uses_crate(name) {
                wrong.push(format!("src/{} uses {name}", source.place));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_text_names_a_place_on_the_machine_of_its_author() {
    let mut all = Vec::new();
    files(&repository(""), &mut all);
    let mut wrong = Vec::new();
    for path in all {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (number, line) in (1..).zip(text.lines()) {
            if PRIVATE.iter().any(|place| line.contains(place)) {
                wrong.push(format!("{}:{number}: {line}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn dependencies_come_from_one_public_registry() {
    let lock = fs::read_to_string(repository("Cargo.lock")).unwrap();
    let sources = lock
        .lines()
        .filter_map(|line| line.strip_prefix("source = "));
    let sources: BTreeSet<_> = sources.collect();
    let expected = "\"registry+https://github.com/rust-lang/crates.io-index\"";
    assert_eq!(sources.into_iter().collect::<Vec<_>>(), [expected]);
}

#[test]
fn uses_are_found_in_every_form_of_writing() {
    let source = |place: &str, code: &str| Source {
        place: place.into(),
        code: without_comments(code),
    };
    let uses = |place, code| source(place, code).uses().into_iter().collect::<Vec<_>>();
    assert_eq!(uses("a", "use crate::b::C;"), ["b::C"]);
    assert_eq!(uses("a/b", "let x = super::super::c::d();"), ["c::d"]);
    assert_eq!(uses("a/mod", "use super::b::{C, D};"), ["b::C", "b::D"]);
    assert_eq!(
        uses("a", "use crate::{\n    b::{self, c},\n    d,\n};"),
        ["b::c", "b::self", "d"]
    );
    assert!(uses("a", "//! [`crate::b`]").is_empty());
    assert!(source("a", "use redis::Value;").uses_crate("redis"));
    assert!(source("a", "::redis::cmd()").uses_crate("redis"));
    assert!(!source("a", "mod redis;\nredis::open()").uses_crate("redis"));
    assert!(!source("a", "use super::redis::Open;").uses_crate("redis"));
    assert!(source("store/redis/mod", "").is_in(&["store/redis"]));
    assert!(!source("store/rediss", "").is_in(&["store/redis"]));
}
