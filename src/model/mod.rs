//! The words of the domain as types: names, tokens, durations, holders, claims, outcomes.
//!
//! Nothing here does I/O or reads a clock.

mod claim;
mod holder;
mod name;
mod outcome;
mod policy;
mod token;
mod ttl;

pub use claim::{Claim, Hold};
pub use holder::{Condition, Holder, Holding, Record, TimeLeft, escape};
pub use name::{LockKey, LockName, NameError, RawKey};
pub use outcome::{CommandEnd, Outcome, code};
pub use policy::{Leftovers, OnLost, Wait};
pub use token::{FencingToken, HolderId, Token};
pub(crate) use ttl::human;
pub use ttl::{DurationError, MAX_TTL, MIN_TTL, Ttl, parse_duration};
