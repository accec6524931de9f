//! The only place that ends the process.

use crate::model::Outcome;
use crate::supervise;

/// Ends this process as `outcome` says: with a code, or by the signal that ended the command,
/// so that a shell sees the signal.
pub fn exit(outcome: Outcome) -> ! {
    match outcome {
        Outcome::Code(code) => now(i32::from(code)),
        Outcome::Signal(signal) => {
            supervise::die_by(signal);
            // Still alive: the first process of a namespace does not die of its own signals.
            now(128 + signal)
        }
    }
}

/// Ends this process at once; nothing is buffered that would be lost.
pub(crate) fn now(code: i32) -> ! {
    signal_hook::low_level::exit(code)
}
