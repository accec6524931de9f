//! Durations as people write them, and the TTL of a lock.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

/// The shortest TTL.
pub const MIN_TTL: Duration = Duration::from_secs(1);
/// The longest TTL.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// The longest duration that any option takes: ten years.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    /// Not a number and not units that we know.
    #[error("{0:?} is not a duration: write 500ms, 60s, 5m, 1h30m or 2d; a bare number is seconds")]
    Form(String),
    /// Below or above what the option takes.
    #[error("{text:?} is out of range: from {least} to {most}", least = human(*least), most = human(*most))]
    Range {
        /// What was given.
        text: String,
        /// The smallest that is accepted.
        least: Duration,
        /// The largest that is accepted.
        most: Duration,
    },
}

/// Reads `500ms`, `60s`, `5m`, `1h30m`, `2d`; a bare number (fractions too) is seconds.
///
/// Months and years are refused: `5M` must not silently become five months.
///
/// # Errors
/// Anything else, and more than ten years.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let form = || DurationError::Form(text.to_owned());
    let range = || DurationError::Range {
        text: text.to_owned(),
        least: Duration::ZERO,
        most: LONGEST,
    };
    if text.is_empty() || !text.is_ascii() {
        return Err(form());
    }
    let value = if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        let seconds: f64 = text.parse().map_err(|_| form())?;
        Duration::try_from_secs_f64(seconds).map_err(|_| range())?
    } else {
        let known = |unit: &str| {
            matches!(
                unit,
                "" | "us" | "ms" | "s" | "sec" | "m" | "min" | "h" | "d"
            )
        };
        if !text
            .split(|c: char| c.is_ascii_digit() || c == '.')
            .all(known)
        {
            return Err(form());
        }
        humantime::parse_duration(text).map_err(|_| form())?
    };
    if value > LONGEST {
        Err(range())
    } else {
        Ok(value)
    }
}

/// How long the store keeps a lock without renewal: 1 s to 24 h, in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

impl Ttl {
    /// The TTL of this length.
    ///
    /// # Errors
    /// Shorter than [`MIN_TTL`] or longer than [`MAX_TTL`].
    pub fn new(length: Duration) -> Result<Self, DurationError> {
        if (MIN_TTL..=MAX_TTL).contains(&length) {
            Ok(Self(Duration::from_millis(millis(length))))
        } else {
            Err(DurationError::Range {
                text: human(length),
                least: MIN_TTL,
                most: MAX_TTL,
            })
        }
    }

    /// Its length.
    pub const fn length(self) -> Duration {
        self.0
    }

    /// Its length as stores take it.
    pub fn millis(self) -> u64 {
        millis(self.0)
    }

    /// The bound of one attempt at a renewal or a release, all of it.
    pub fn attempt(self) -> Duration {
        (self.0 / 20).clamp(Duration::from_millis(100), Duration::from_secs(2))
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&human(self.0))
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// A duration as we write it in messages: the two largest units are enough, without blanks.
pub(crate) fn human(length: Duration) -> String {
    let milliseconds = millis(length);
    let seconds = milliseconds / 1000;
    let two = |big: u64, small: u64, unit: &str, below: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{below}")
        }
    };
    match milliseconds {
        0..1000 => format!("{milliseconds}ms"),
        1000..10_000 if !milliseconds.is_multiple_of(1000) => {
            format!("{}.{}s", seconds, milliseconds % 1000 / 100)
        }
        _ if seconds < 60 => format!("{seconds}s"),
        _ if seconds < 3600 => two(seconds / 60, seconds % 60, "m", "s"),
        _ if seconds < 86_400 => two(seconds / 3600, seconds % 3600 / 60, "h", "m"),
        _ => two(seconds / 86_400, seconds % 86_400 / 3600, "d", "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let cases = [
            ("500ms", 500),
            ("60s", 60_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("60", 60_000),
            ("0.5", 500),
            (".5", 500),
            ("0", 0),
            ("1.5s", 1500),
            ("0s", 0),
        ];
        for (text, expected) in cases {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(expected)),
                "{text}"
            );
        }
    }

    #[test]
    fn months_signs_and_nonsense_are_refused() {
        for text in [
            "5M", "-1s", "-1", "", "1y", "1month", "5 m", "s", "1w", "1e3", "inf", "nan", ".",
            "1..2", "٣",
        ] {
            assert!(
                matches!(parse_duration(text), Err(DurationError::Form(_))),
                "{text}"
            );
        }
        assert!(parse_duration("99999999999d").is_err());
        assert!(parse_duration("1e400").is_err());
    }

    #[test]
    fn out_of_range_says_the_range() {
        let message = Ttl::new(Duration::from_millis(500))
            .unwrap_err()
            .to_string();
        assert_eq!(message, "\"500ms\" is out of range: from 1s to 1d");
        assert!(Ttl::new(Duration::from_secs(86_401)).is_err());
    }

    #[test]
    fn lengths_are_written_with_two_units() {
        for (ms, text) in [
            (0, "0ms"),
            (250, "250ms"),
            (1500, "1.5s"),
            (48_300, "48s"),
            (750_000, "12m30s"),
            (720_000, "12m"),
            (90_061_000, "1d1h"),
        ] {
            assert_eq!(human(Duration::from_millis(ms)), text);
        }
    }

    proptest! {
        #[test]
        fn durations_in_any_unit_are_read_as_what_they_are(ms in 0_u64..86_400_000_000) {
            let length = Duration::from_millis(ms);
            let (seconds, rest) = (ms / 1000, ms % 1000);
            let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
            for text in [
                format!("{ms}ms"),
                format!("{seconds}s{rest}ms"),
                format!("{days}d{hours}h{minutes}m{}s{rest}ms", seconds % 60),
            ] {
                prop_assert_eq!(parse_duration(&text), Ok(length), "{}", text);
            }
            prop_assert_eq!(parse_duration(&seconds.to_string()), Ok(Duration::from_secs(seconds)));
        }

        /// Nothing is lost but what is smaller than the second unit that is written.
        #[test]
        fn what_is_written_can_be_read_and_is_never_more(ms in 0_u64..86_400_000_000) {
            let length = Duration::from_millis(ms);
            let read = parse_duration(&human(length)).unwrap();
            prop_assert!(read <= length);
            prop_assert!(length.saturating_sub(read) <= (length / 24).max(Duration::from_millis(100)));
        }

        #[test]
        fn no_text_is_read_as_more_than_ten_years(text in "\\PC{0,30}|[0-9.]{0,12}(ms|s|m|h|d|M|y)?") {
            if let Ok(length) = parse_duration(&text) {
                prop_assert!(length <= LONGEST);
            }
        }

        #[test]
        fn a_ttl_is_a_length_in_its_range_in_whole_milliseconds(us in 0_u64..100_000_000_000) {
            let length = Duration::from_micros(us);
            match Ttl::new(length) {
                Ok(ttl) => {
                    prop_assert!((MIN_TTL..=MAX_TTL).contains(&ttl.length()));
                    prop_assert_eq!(u128::from(ttl.millis()), length.as_millis());
                    prop_assert!(ttl.attempt() <= ttl.length() / 10);
                }
                Err(_) => prop_assert!(!(MIN_TTL..=MAX_TTL).contains(&length)),
            }
        }
    }
}
