//! The local clocks, read here and nowhere else.
//!
//! A lease is measured on `CLOCK_BOOTTIME`, which goes on counting while the host is
//! suspended (`std::time::Instant` is `CLOCK_MONOTONIC` and stands still). The wall clock is
//! taken along because a paused virtual machine may advance only that one.

use std::fmt;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// An instant on `CLOCK_BOOTTIME`: the time since this host booted, suspends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(Duration);

impl Boot {
    /// The instant `since_boot` after the host booted.
    pub const fn at(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Now.
    pub fn now() -> Self {
        Self(read(ClockId::CLOCK_BOOTTIME))
    }

    /// The time since the host booted.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// This instant and `later`; saturates.
    #[must_use]
    pub const fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }

    /// This instant less `earlier`; saturates at the boot.
    #[must_use]
    pub const fn minus(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(earlier))
    }

    /// How long ago `earlier` was, seen from this instant; zero if it lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// One moment on both clocks: `boot` decides, `real` unmasks a paused machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// `CLOCK_BOOTTIME`.
    pub boot: Boot,
    /// `CLOCK_REALTIME`, since the epoch.
    pub real: Duration,
}

impl Stamp {
    /// Now, on both clocks.
    pub fn now() -> Self {
        Self {
            boot: Boot::now(),
            real: read(ClockId::CLOCK_REALTIME),
        }
    }
}

/// A time on a lock server's clock (this host's, for stores without a server), in
/// microseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerTime(pub u64);

impl ServerTime {
    /// This host's own wall clock, for a store that has no other.
    pub fn of_this_host() -> Self {
        Self(u64::try_from(read(ClockId::CLOCK_REALTIME).as_micros()).unwrap_or(u64::MAX))
    }

    /// This time and `later`; saturates.
    #[must_use]
    pub fn plus(self, later: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(later.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Reads the RFC 3339 form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let time = humantime::parse_rfc3339(text).ok()?;
        let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Self(u64::try_from(since.as_micros()).ok()?))
    }
}

impl fmt::Display for ServerTime {
    /// RFC 3339 in UTC, with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Year 9999 is the last that RFC 3339 can write.
        let micros = self.0.min(253_402_300_799_000_000);
        let time = std::time::UNIX_EPOCH + Duration::from_micros(micros);
        write!(f, "{}", humantime::format_rfc3339_millis(time))
    }
}

fn read(clock: ClockId) -> Duration {
    // clock_gettime(2) fails only for a clock that the kernel does not know; both are old.
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn server_time_round_trips_as_rfc_3339_in_milliseconds() {
        let time = ServerTime(1_796_000_000_123_000);
        assert_eq!(time.to_string(), "2026-11-30T00:53:20.123Z");
        assert_eq!(ServerTime::parse(&time.to_string()), Some(time));
    }

    #[test]
    fn boot_time_saturates_at_both_ends() {
        let start = Boot::at(Duration::from_secs(1));
        assert_eq!(
            start.minus(Duration::from_secs(2)),
            Boot::at(Duration::ZERO)
        );
        assert_eq!(start.plus(Duration::MAX), Boot::at(Duration::MAX));
        assert_eq!(
            start.since(Boot::at(Duration::from_secs(5))),
            Duration::ZERO
        );
    }

    proptest! {
        #[test]
        fn server_time_round_trips_in_whole_milliseconds(us in 0_u64..253_402_300_799_000_000) {
            let time = ServerTime(us);
            prop_assert_eq!(ServerTime::parse(&time.to_string()), Some(ServerTime(us / 1000 * 1000)));
        }
    }
}
