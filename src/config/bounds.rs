//! The arithmetic between TTL, grace and attempts.

use std::time::Duration;

use crate::model::{MAX_TTL, MIN_TTL, Ttl};
use crate::session::fits;

/// The grace if none was given: a short TTL has no room for ten seconds.
pub(super) fn default_kill_after(ttl: Ttl) -> Duration {
    if ttl.length() < Duration::from_secs(60) {
        ttl.length() / 6
    } else {
        Duration::from_secs(10)
    }
}

/// The smallest TTL that leaves room for this grace, in whole seconds; `None` if none does.
pub(super) fn smallest(kill_after: Duration) -> Option<Duration> {
    // What is left grows with the TTL, so the first that fits can be searched by halving.
    let (mut low, mut high) = (MIN_TTL.as_secs(), MAX_TTL.as_secs());
    let works =
        |seconds| Ttl::new(Duration::from_secs(seconds)).is_ok_and(|ttl| fits(ttl, kill_after));
    if !works(high) {
        return None;
    }
    while low < high {
        let middle = low.midpoint(high);
        if works(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(Duration::from_secs(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ttl(length: Duration) -> Ttl {
        Ttl::new(length).unwrap()
    }

    #[test]
    fn the_defaults_fit_every_ttl() {
        for ms in (1000..120_000).step_by(7) {
            let ttl = ttl(Duration::from_millis(ms));
            assert!(fits(ttl, default_kill_after(ttl)), "{ms}");
        }
    }

    #[test]
    fn no_ttl_is_long_enough_for_a_grace_of_a_day() {
        assert_eq!(smallest(Duration::from_secs(86_400)), None);
        assert_eq!(smallest(Duration::from_secs(86_400 * 3660)), None);
    }

    proptest! {
        #[test]
        fn the_smallest_ttl_fits_and_the_one_below_does_not(seconds in 0_u64..50_000) {
            let grace = Duration::from_secs(seconds);
            let least = smallest(grace).unwrap();
            prop_assert!(fits(ttl(least), grace));
            let below = least.saturating_sub(Duration::from_secs(1));
            if below >= MIN_TTL {
                prop_assert!(!fits(ttl(below), grace));
            }
        }
    }
}
