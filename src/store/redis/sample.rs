//! What we know of the server's clock, and how it maps to ours.

use std::time::Duration;

use crate::clock::{Boot, ServerTime};

/// The clocks may run apart by one part in this (Redsync's figure; quartz is far better).
const DRIFT: u32 = 100;

/// The server's clock, read at some moment between two of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Before the question was written.
    pub(super) asked: Boot,
    /// When the answer was there.
    pub(super) answered: Boot,
    /// The answer.
    pub(super) time: ServerTime,
}

impl Sample {
    /// The latest that the server's clock can show at `now`.
    pub(super) fn latest(&self, now: Boot) -> ServerTime {
        let since = now.since(self.asked);
        self.time.plus(since.saturating_add(since / DRIFT))
    }

    /// The instant from which on the server's clock has surely passed `time`.
    pub(super) fn passed(&self, time: ServerTime) -> Boot {
        let ahead = time.since(self.time);
        let slowest = ahead.saturating_add(ahead / (DRIFT - 1));
        self.answered.plus(slowest).plus(Duration::from_micros(1))
    }

    /// How old it is.
    pub(super) fn age(&self, now: Boot) -> Duration {
        now.since(self.asked)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The server's clock at a boot instant, if it runs at `rate` parts in 10 000 of ours.
    fn server(boot: u64, rate: u64) -> u64 {
        1_700_000_000_000_000 + boot * rate / 10_000
    }

    proptest! {
        #[test]
        fn the_servers_clock_is_always_within_what_the_sample_says(
            asked in 0..1_000_000_u64,
            there in 0..2_000_000_u64,
            back in 0..2_000_000_u64,
            later in 0..100_000_000_u64,
            limit in 0..10_000_000_u64,
            rate in 9_901..10_100_u64,
        ) {
            let at = |micros| Boot::at(Duration::from_micros(micros));
            let read = asked + there;
            let sample = Sample {
                asked: at(asked),
                answered: at(read + back),
                time: ServerTime(server(read, rate)),
            };
            let now = read + back + later;
            prop_assert!(sample.latest(at(now)).0 + 1 >= server(now, rate));
            let not_after = sample.latest(at(now)).0 + limit;
            let passed = sample.passed(ServerTime(not_after)).since_boot();
            prop_assert!(server(u64::try_from(passed.as_micros()).unwrap() + 1, rate) >= not_after);
        }
    }
}
