//! Which keys a lock has on the server.

use crate::model::{LockKey, LockName};

const PREFIX: &str = "distlock:{";

/// The glob that matches the lock keys, and none of their side keys. A brace is nothing special
/// in the server's globs.
pub(super) const PATTERN: &str = "distlock:{*}";

/// The lock key and its side key. All of them share one hash tag, so that a cluster keeps them
/// in one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) lock: String,
    pub(super) fence: String,
}

impl From<&LockKey> for Keys {
    fn from(key: &LockKey) -> Self {
        match &key.raw {
            None => Self {
                lock: format!("{PREFIX}{}}}", key.name),
                fence: format!("{PREFIX}{}}}:fence", key.name),
            },
            Some(raw) if has_hash_tag(raw.as_str()) => Self {
                lock: raw.as_str().to_owned(),
                fence: format!("distlock:{}:fence", raw.as_str()),
            },
            Some(raw) => Self {
                lock: raw.as_str().to_owned(),
                fence: format!("{PREFIX}{}}}:fence", raw.as_str()),
            },
        }
    }
}

/// The name whose lock key this is; `None` for side keys and for whatever else is there.
pub(super) fn name_of(key: &[u8]) -> Option<LockName> {
    let text = std::str::from_utf8(key).ok()?;
    text.strip_prefix(PREFIX)?.strip_suffix('}')?.parse().ok()
}

/// Whether the server hashes only a part of the key: what stands between the first `{` and the
/// first `}` after it, unless that is empty (Redis cluster specification, "Hash tags").
fn has_hash_tag(key: &str) -> bool {
    key.split_once('{')
        .and_then(|(_, rest)| rest.find('}'))
        .is_some_and(|length| length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(key: &str) -> Keys {
        Keys::from(&LockKey {
            name: "n".parse().unwrap(),
            raw: Some(key.parse().unwrap()),
        })
    }

    #[test]
    fn a_name_becomes_a_hash_tag() {
        let keys = Keys::from(&LockKey::from("a/b".parse::<LockName>().unwrap()));
        assert_eq!(keys.lock, "distlock:{a/b}");
        assert_eq!(keys.fence, "distlock:{a/b}:fence");
        assert_eq!(
            name_of(keys.lock.as_bytes()).map(|n| n.to_string()),
            Some("a/b".to_owned())
        );
        assert_eq!(name_of(keys.fence.as_bytes()), None);
    }

    #[test]
    fn the_fence_key_of_a_raw_key_is_in_its_slot() {
        assert_eq!(raw("my-lock").fence, "distlock:{my-lock}:fence");
        assert_eq!(raw("{user}:7").fence, "distlock:{user}:7:fence");
        assert_eq!(raw("a{}b").fence, "distlock:{a{}b}:fence");
        assert_eq!(raw("a{b").fence, "distlock:{a{b}:fence");
    }

    #[test]
    fn keys_of_another_shape_have_no_name() {
        for key in [
            &b"distlock:{}"[..],
            b"distlock:{a b}",
            b"distlock:{\xff}",
            b"x",
            b"distlock:{a}}",
        ] {
            assert_eq!(name_of(key), None, "{key:?}");
        }
    }
}
