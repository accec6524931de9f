//! Places where locks live: what one must be able to do, and the table of their URL schemes.
//!
//! A call makes one attempt, bounded as a whole by the limit that it is given, and never
//! retries: when to try again is decided by [`crate::contest`] and [`crate::session`].

pub mod file;
pub mod memory;
pub mod redis;
mod url;

use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::clock::{Boot, ServerTime, Stamp};
use crate::model::{Claim, FencingToken, Hold, Holding, LockKey, code};

pub use self::url::{ServerUrl, UrlError};

/// A place where locks live.
///
/// `limit` bounds all of a call: look-up, connect, TLS, greeting, request and answer.
pub trait LockStore: Send {
    /// Connects where there is no connection, and tells the store's clock.
    fn clock(&mut self, limit: Duration) -> Result<ServerTime, StoreError>;

    /// Takes the lock if it is free or already has this very claim. Carries "not after": once
    /// `limit` has passed on the server's clock the request does nothing.
    fn acquire(&mut self, claim: &Claim, limit: Duration) -> Result<Acquired, StoreError>;

    /// Renews the lease; takes a vanished lock back where nobody of ours had it in between.
    fn renew(&mut self, hold: &Hold, limit: Duration) -> Result<Renewed, StoreError>;

    /// Frees the lock if it still has this claim, and keeps late renewals from bringing it
    /// back. With `keep` above zero a cooling record holds it for so much longer; repeated
    /// calls must pass the same `cooling` value.
    fn release(
        &mut self,
        hold: &Hold,
        keep: &Keep,
        limit: Duration,
    ) -> Result<Released, StoreError>;

    /// Acts on the value that was seen, and on no other: a lock that changed hands is left alone.
    fn evict(
        &mut self,
        seen: &Holding,
        how: &Evict,
        limit: Duration,
    ) -> Result<Evicted, StoreError>;

    /// What is there; `None` if the lock is free.
    fn inspect(&mut self, key: &LockKey, limit: Duration) -> Result<Option<Holding>, StoreError>;

    /// Every lock under our prefix, ordered by name.
    fn list(&mut self, limit: Duration) -> Result<Vec<Holding>, StoreError>;

    /// Whether a hold ends by itself.
    fn lease(&self) -> LeaseKind;

    /// A descriptor that becomes readable when the store has news for a holder (its connection
    /// was closed). `None` if there is none.
    fn watch(&self) -> Option<RawFd> {
        None
    }

    /// From now on a call ends early, with [`ErrorKind::Interrupted`], when one of these
    /// descriptors is readable. The store keeps duplicates of them.
    fn interrupt_by(&mut self, _descriptors: &[BorrowedFd<'_>]) {}

    /// Forgets the connection without a word to the server.
    fn disconnect(&mut self) {}
}

/// Whether a hold ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// After the TTL, unless renewed.
    Ttl,
    /// Never while its descriptor is open: nothing to renew.
    Descriptor,
}

/// What became of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lock is ours.
    Granted {
        /// Taken immediately before the first byte of the request was written.
        sent: Stamp,
        /// The fencing token, where the store gives one.
        fence: Option<FencingToken>,
    },
    /// Another has it.
    Held(Box<Holding>),
}

/// What became of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease runs on from `sent`.
    Renewed {
        /// Taken immediately before the first byte of the request was written.
        sent: Stamp,
        /// The time to live that the store found before it renewed.
        found: Option<Duration>,
    },
    /// The key had vanished, nobody had it in between, and it was put back.
    TakenBack {
        /// Taken immediately before the first byte of the request was written.
        sent: Stamp,
    },
    /// The lock is not ours any more, said by a verified primary.
    Lost(Loss),
}

/// Why a lock is not ours any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The key is not there (evicted, flushed or deleted), and may not be taken back.
    Absent,
    /// The key has another value.
    Taken(Box<Holding>),
    /// An operator released it by force: our tombstone is there.
    Released {
        /// Who did.
        by: String,
    },
    /// The key holds something that is not a lock (a list, a hash).
    Foreign(String),
}

/// How long a released lock shall stay taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// For so long from now; zero frees it at once.
    pub rest: Duration,
    /// The cooling record that keeps it taken; the same bytes at each repetition.
    pub cooling: String,
}

/// What became of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was ours and is free (or cooling) now.
    Freed,
    /// Nothing was there.
    Absent,
    /// Our tombstone was there, and is gone now.
    Tombstone {
        /// Who had released it by force.
        by: String,
    },
    /// Another has it, said by a verified primary. Left alone.
    Other(Box<Holding>),
}

/// How a forced release is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Replace the value by this tombstone and keep the time to live (`otherwise`, if it had none).
    Tombstone {
        /// The new value.
        value: String,
        /// The time to live of a value that had none.
        otherwise: Duration,
    },
    /// Delete it at once.
    Now,
}

/// What became of a forced release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// Done.
    Done,
    /// Nothing was there any more.
    Absent,
    /// It has changed hands meanwhile; left alone.
    Changed(Box<Holding>),
}

/// Why a call brought no answer that counts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct StoreError {
    /// What follows from it.
    pub kind: ErrorKind,
    /// What happened, without user-info and passwords; completes "cannot …: ".
    pub text: String,
    /// For an acquire that was written but not answered: the instant from which on it can no
    /// longer take effect. `None`: nothing was written that could take effect.
    pub effective_until: Option<Boot>,
}

impl StoreError {
    /// An error after which nothing can take effect later.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            effective_until: None,
        }
    }
}

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The server is down or starting (refused, closed, loading): worth retrying soon.
    Down,
    /// No answer, or one that may be another soon (timed out, read-only, full, busy): worth retrying.
    NoAnswer,
    /// The server refuses us (authentication, permission, TLS verification, no EVAL): exit 77.
    Refused,
    /// The key is something else than a lock, or the place is not fit for locks: exit 78.
    Foreign,
    /// This store cannot do that.
    Unsupported,
    /// A descriptor given to [`LockStore::interrupt_by`] became readable.
    Interrupted,
    /// This host lacks something (descriptors, memory): exit 71.
    Local,
}

impl ErrorKind {
    /// Whether the next attempt may bring another answer.
    pub fn is_worth_retrying(self) -> bool {
        matches!(self, Self::Down | Self::NoAnswer | Self::Interrupted)
    }

    /// The exit code when it is final and nothing was run.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Down | Self::NoAnswer | Self::Interrupted => code::UNAVAILABLE,
            Self::Refused => code::REFUSED,
            Self::Foreign | Self::Unsupported => code::CONFIG,
            Self::Local => code::OS,
        }
    }
}

/// How we show ourselves to a server.
#[derive(Clone, Default)]
pub struct Access {
    /// The user, if not in the URL.
    pub user: Option<String>,
    /// The password, if not in the URL.
    pub password: Option<String>,
    /// A file with the password: an absolute path, read at the first connection and again when
    /// the server refuses the password.
    pub password_file: Option<PathBuf>,
    /// Certificates of authorities to trust instead of the system's.
    pub cacert: Option<PathBuf>,
    /// Our own certificate.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Do not verify the server's certificate.
    pub insecure: bool,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("user", &self.user)
            .field("insecure", &self.insecure)
            .finish_non_exhaustive()
    }
}

/// What a renewal is said to have found on a key without an expiry: longer than any TTL.
const NO_EXPIRY: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Who released this very claim by force, if that is what was found.
fn released_by(found: &Holding, claim: &Claim) -> Option<String> {
    let record = found.record.as_ref()?;
    let by = record.released_by.clone();
    by.filter(|_| record.id == claim.id.as_str())
}

/// A store that was opened, or why it cannot be.
type Opened = Result<Box<dyn LockStore>, StoreError>;

/// One kind of store: its URL schemes and how it is opened.
struct Scheme {
    names: &'static [&'static str],
    open: fn(&ServerUrl, &Access) -> Opened,
}

/// A new store is one file and one row here.
const SCHEMES: &[Scheme] = &[
    Scheme {
        names: redis::SCHEMES,
        open: redis::open,
    },
    Scheme {
        names: file::SCHEMES,
        open: file::open,
    },
];

/// All known schemes, for messages.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    SCHEMES.iter().flat_map(|scheme| scheme.names).copied()
}

/// Opens the store at `server`; connects to nothing yet.
///
/// # Errors
/// Files that `access` names cannot be read, or the place is not fit for locks.
pub fn open(server: &ServerUrl, access: &Access) -> Opened {
    let scheme = SCHEMES
        .iter()
        .find(|scheme| scheme.names.contains(&server.scheme()));
    match scheme {
        Some(scheme) => (scheme.open)(server, access),
        None => Err(StoreError::new(
            ErrorKind::Unsupported,
            format!("unknown scheme {:?}", server.scheme()),
        )),
    }
}
