//! How long to pause before the next attempt. Pure: the random number is passed in.

use std::time::Duration;

/// A random number in `[0, 1)`, passed in so that the machines stay pure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Jitter(u32);

impl Jitter {
    /// From any 32 random bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The share `[0, 1)` of `whole`.
    pub fn of(self, whole: Duration) -> Duration {
        whole.mul_f64(f64::from(self.0) / (f64::from(u32::MAX) + 1.0))
    }
}

/// Full jitter over an exponentially growing window: `rand(0, min(base·2ⁿ, cap))`.
/// (M. Brooker, "Exponential Backoff And Jitter", 2015.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// A window that starts at `base` and grows to `cap`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self {
            base,
            cap,
            failures: 0,
        }
    }

    /// The pause before the next attempt.
    pub fn next(&mut self, jitter: Jitter) -> Duration {
        let window = self
            .base
            .saturating_mul(1 << self.failures.min(20))
            .min(self.cap);
        self.failures = self.failures.saturating_add(1).min(21);
        jitter.of(window)
    }

    /// An attempt was answered: start anew.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Whether an attempt has failed since the last answer.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pauses_never_exceed_the_window_or_the_cap(bits: u32, failures in 0_usize..40) {
            let (base, cap) = (Duration::from_millis(50), Duration::from_secs(1));
            let mut backoff = Backoff::new(base, cap);
            for n in 0..failures {
                let pause = backoff.next(Jitter::from_bits(bits));
                prop_assert!(pause <= cap);
                prop_assert!(pause <= base.saturating_mul(1 << n.min(20)));
            }
            backoff.reset();
            prop_assert!(backoff.next(Jitter::from_bits(bits)) <= base);
        }
    }

    proptest! {
        #[test]
        fn pauses_of_any_window_stay_within_it(bits: u32, base in 1_u64..10_000, cap in 1_u64..100_000, failures in 0_usize..60) {
            let (base, cap) = (Duration::from_millis(base), Duration::from_millis(cap));
            let mut backoff = Backoff::new(base, cap);
            let mut window = base;
            for _ in 0..failures {
                prop_assert!(backoff.next(Jitter::from_bits(bits)) <= window.min(cap));
                prop_assert!(backoff.has_failed());
                window *= 2;
                window = window.min(Duration::from_secs(1 << 30));
            }
        }

        #[test]
        fn jitter_is_a_share_below_the_whole(bits: u32, ms in 1_u64..86_400_000) {
            let whole = Duration::from_millis(ms);
            prop_assert!(Jitter::from_bits(bits).of(whole) < whole);
        }
    }
}
