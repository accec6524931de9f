//! The three processes of a run: the front, the keeper and the command.
//!
//! The front contends for the lock and from then on is a thin proxy; the keeper holds the
//! lock, and is the parent of the command; the command shares session, group and terminal with
//! the front. ARCHITECTURE.md has the picture.

mod anchor;
mod command;
mod contend;
mod front;
mod inherited;
mod keeper;
mod link;
mod report;
mod signals;
mod sys;
mod tree;
mod words;

use std::os::fd::{BorrowedFd, RawFd};

pub use self::front::run;

/// A descriptor for poll(2), by number.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    sys::borrow(fd)
}

/// Dies by `signal`, without a core file; returns if that is not possible.
pub(crate) fn die_by(signal: i32) {
    sys::die_by(signal);
}
