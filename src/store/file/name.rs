//! The name of a lock file: a lock's name made fit for one component of a path.

use crate::model::LockName;

/// Ends each lock file's name.
pub(super) const SUFFIX: &str = ".lock";

/// File systems take 255 bytes a component; some room is left for what others may append.
const LONGEST: usize = 240;

/// What stays of a name that is too long, before its hash.
const PREFIX: usize = 200;

/// The file of the lock `name`.
pub(super) fn file_name(name: &LockName) -> String {
    let mut encoded = encode(name.as_str());
    if encoded.len() > LONGEST {
        encoded.truncate(prefix_end(&encoded));
        // No encoded name has "%-" in it, so that a cut one is never mistaken for a whole one.
        let hash = fnv(name.as_str().as_bytes());
        encoded = format!("{encoded}%-{hash:016x}");
    }
    encoded + SUFFIX
}

/// The lock that a file belongs to; `None` if the name was cut, or is not that of a lock file.
pub(super) fn lock_name(file: &str) -> Option<LockName> {
    let name: LockName = decode(file.strip_suffix(SUFFIX)?)?.parse().ok()?;
    (file_name(&name) == file).then_some(name)
}

/// FNV-1a with 64 bits: the same in each version and on each host, which is all that is needed
/// of it (the whole name stands in the file too).
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        match c {
            '/' => encoded.push_str("%2F"),
            '%' => encoded.push_str("%25"),
            '.' if at == 0 => encoded.push_str("%2E"),
            _ => encoded.push(c),
        }
    }
    encoded
}

fn decode(encoded: &str) -> Option<String> {
    let mut parts = encoded.split('%');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        name.push(match part.get(..2)? {
            "2F" => '/',
            "25" => '%',
            "2E" => '.',
            _ => return None,
        });
        name.push_str(&part[2..]);
    }
    Some(name)
}

/// Where to cut: between characters, and not within "%2F".
fn prefix_end(encoded: &str) -> usize {
    let whole = |&at: &usize| encoded.is_char_boundary(at);
    let cut = (0..=PREFIX).rev().find(whole).unwrap_or(0);
    match encoded[..cut].rfind('%') {
        Some(percent) if percent + 3 > cut => percent,
        _ => cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> LockName {
        text.parse().unwrap()
    }

    #[test]
    fn names_become_one_component_and_come_back() {
        for (name, file) in [
            ("backup", "backup.lock"),
            ("a/b", "a%2Fb.lock"),
            ("../x", "%2E.%2Fx.lock"),
            (".", "%2E.lock"),
            ("100%", "100%25.lock"),
            ("%2F", "%252F.lock"),
            ("é.b", "é.b.lock"),
            ("x.lock", "x.lock.lock"),
        ] {
            assert_eq!(file_name(&named(name)), file);
            assert_eq!(lock_name(file), Some(named(name)));
        }
    }

    #[test]
    fn other_files_are_not_lock_files() {
        for file in [
            "backup",
            ".lock",
            "a%2fb.lock",
            "a%.lock",
            "a%é.lock",
            "%41.lock",
            ".x.lock",
            "a b.lock",
        ] {
            assert_eq!(lock_name(file), None, "{file}");
        }
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let one = "/".repeat(199);
        for other in ["a", "%"] {
            let (one, other) = (named(&(one.clone() + "b")), named(&(one.clone() + other)));
            let (one, other) = (file_name(&one), file_name(&other));
            assert_ne!(one, other);
            assert!(one.len() <= LONGEST + SUFFIX.len());
            assert!(one.starts_with("%2F%2F") && !one.contains("%%"));
            assert_eq!(lock_name(&one), None);
        }
        let cut = file_name(&named(&format!("é{}", "%".repeat(190))));
        assert!(cut.contains("%25%-"), "{cut}");
        assert_eq!(
            file_name(&named(&"x".repeat(200))),
            "x".repeat(200) + SUFFIX
        );
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
