//! When to renew a lease, when to stop what relies on it, and when it has expired. Pure.

use std::time::Duration;

use crate::backoff::Jitter;
use crate::clock::{Boot, Stamp};
use crate::model::Ttl;

/// What is killed this long before the expiry has stopped when it comes.
pub const MARGIN: Duration = Duration::from_millis(250);

/// The right to the lock until an instant.
///
/// The server counts the TTL from some moment after the request was sent, so an expiry that is
/// counted from the stamp taken before sending is early whatever the round trip was. One per
/// cent covers the drift between the two clocks, two milliseconds their resolution (Redlock's
/// figures).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    sent: Stamp,
    ttl: Duration,
    grace: Duration,
}

impl Lease {
    /// A lease that was granted by a request sent at `sent`. `grace`: between the first signal
    /// and KILL.
    pub fn new(sent: Stamp, ttl: Ttl, grace: Duration) -> Self {
        Self {
            sent,
            ttl: ttl.length(),
            grace,
        }
    }

    /// A renewal sent at `sent` was confirmed. The expiry never moves backwards.
    pub fn renewed(&mut self, sent: Stamp) {
        if sent.boot > self.sent.boot {
            self.sent = sent;
        }
    }

    /// The stamp of the last request that was confirmed.
    pub fn sent(&self) -> Stamp {
        self.sent
    }

    /// After this we rely on the lock no more.
    pub fn expiry(&self) -> Boot {
        self.sent.boot.plus(self.length())
    }

    /// When the command is told to stop, if no renewal is confirmed until then.
    pub fn terminate_at(&self) -> Boot {
        self.expiry().minus(MARGIN).minus(self.grace)
    }

    /// When all of it is killed.
    pub fn kill_at(&self) -> Boot {
        self.expiry().minus(MARGIN)
    }

    /// Whether the wall clock says that it has expired. Alone this may be a step of the clock
    /// or a machine that was paused: one attempt at a renewal decides.
    pub fn is_over_by_wall_clock(&self, now: Stamp) -> bool {
        now.real >= self.sent.real.saturating_add(self.length())
    }

    /// When the next renewal is due: a third of the TTL after the last confirmed sending, give
    /// or take a tenth.
    pub fn renew_at(&self, jitter: Jitter) -> Boot {
        let third = self.ttl / 3;
        self.sent
            .boot
            .plus(third * 9 / 10)
            .plus(jitter.of(third / 5))
    }

    /// The time to live that a renewal sent at `sent` should find on the server.
    pub fn expected_left(&self, sent: Stamp) -> Duration {
        self.ttl.saturating_sub(sent.boot.since(self.sent.boot))
    }

    fn length(&self) -> Duration {
        self.ttl
            .saturating_sub(self.ttl / 100)
            .saturating_sub(Duration::from_millis(2))
    }
}

/// The latest instant at which a key can still exist if the last request that may have set its
/// TTL could take effect until `effective_until`.
pub fn gone_by(effective_until: Boot, ttl: Ttl) -> Boot {
    let ttl = ttl.length();
    effective_until
        .plus(ttl)
        .plus(ttl / 100)
        .plus(Duration::from_millis(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp(ms: u64) -> Stamp {
        Stamp {
            boot: Boot::at(Duration::from_millis(ms)),
            real: Duration::from_millis(1_000_000 + ms),
        }
    }

    proptest! {
        /// The server starts to count when the request arrives, at the earliest when it was
        /// sent, on a clock that is at most one per cent faster.
        #[test]
        fn expiry_is_never_later_than_the_servers(sent in 0_u64..1_000_000, trip in 0_u64..10_000, ttl in 1_000_u64..86_400_000) {
            let lease = Lease::new(stamp(sent), Ttl::new(Duration::from_millis(ttl)).unwrap(), Duration::ZERO);
            let server = Duration::from_millis(sent + trip) + Duration::from_millis(ttl).mul_f64(1.0 / 1.01);
            prop_assert!(lease.expiry().since_boot() <= server);
        }

        #[test]
        fn only_a_later_renewal_moves_the_expiry(first in 0_u64..100_000, second in 0_u64..100_000) {
            let mut lease = Lease::new(stamp(first), Ttl::new(Duration::from_secs(10)).unwrap(), Duration::ZERO);
            let before = lease.expiry();
            lease.renewed(stamp(second));
            prop_assert!(lease.expiry() >= before);
        }

        #[test]
        fn renewals_are_due_at_a_third_give_or_take_a_tenth(bits: u32) {
            let lease = Lease::new(stamp(0), Ttl::new(Duration::from_secs(30)).unwrap(), Duration::ZERO);
            let due = lease.renew_at(Jitter::from_bits(bits)).since_boot();
            prop_assert!((Duration::from_secs(9)..=Duration::from_secs(11)).contains(&due));
        }
    }

    #[test]
    fn everything_stops_in_order_before_the_expiry() {
        let lease = Lease::new(
            stamp(0),
            Ttl::new(Duration::from_secs(60)).unwrap(),
            Duration::from_secs(10),
        );
        assert_eq!(lease.expiry().since_boot(), Duration::from_millis(59_398));
        assert_eq!(lease.kill_at().since_boot(), Duration::from_millis(59_148));
        assert_eq!(
            lease.terminate_at().since_boot(),
            Duration::from_millis(49_148)
        );
    }

    proptest! {
        /// Any offset between the two clocks, any rates that differ by less than one per cent,
        /// any trips: when the server lets the lock go, we had stopped relying on it.
        #[test]
        fn the_server_keeps_the_lock_past_the_expiry_for_any_pair_of_clocks(
            ttl in 1_000_u64..86_400_000,
            offset in 0_u64..1_000_000_000,
            per_mille in -9_i32..=9,
            renewals in proptest::collection::vec((0_u64..30_000, 0_u64..10_000), 0..10),
        ) {
            let ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
            let rate = 1.0 + f64::from(per_mille) / 1000.0;
            let server_clock = |local: Boot| Duration::from_millis(offset) + local.since_boot().mul_f64(rate);
            let mut lease = Lease::new(stamp(0), ttl, Duration::ZERO);
            let mut sent = 0;
            let mut server_end = server_clock(Boot::default()) + ttl.length();
            for (pause, trip) in renewals {
                sent += pause;
                let arrives = server_clock(Boot::at(Duration::from_millis(sent + trip)));
                server_end = server_end.max(arrives + ttl.length());
                lease.renewed(stamp(sent));
            }
            prop_assert!(server_clock(lease.expiry()) <= server_end);
        }
    }
}
