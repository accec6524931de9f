//! What the user wants done in each case.

use std::time::Duration;

/// How long to contend for a lock that another holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Give up at once.
    No,
    /// For so long.
    For(Duration),
    /// For ever.
    Forever,
}

/// What to do when the lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnLost {
    /// Stop the command.
    Stop,
    /// Warn and let it go on.
    Warn,
}

/// What to do with descendants that still run when the command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leftovers {
    /// Wait for those in the session with the lock held.
    Wait,
    /// End all of them, then release.
    Kill,
    /// Release at once.
    Ignore,
}
