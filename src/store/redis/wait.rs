//! The bound of one attempt: everything that waits, waits here.
//!
//! The deadline is absolute and on `CLOCK_BOOTTIME`, kept by a timer descriptor, because the
//! timeout of poll(2) stands still while the host is suspended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::super::{ErrorKind, StoreError};
use super::errors;
use crate::clock::Boot;

/// A descriptor and what it is waited for.
pub(super) type Wanted<'a> = (BorrowedFd<'a>, PollFlags);

/// One attempt: ends at its deadline, or when one of the descriptors of the caller is readable.
pub(super) struct Attempt<'a> {
    end: Boot,
    limit: Duration,
    timer: &'a TimerFd,
    interrupts: &'a [OwnedFd],
}

/// What attempts share, one after the other.
pub(super) struct Limits {
    timer: TimerFd,
    interrupts: Result<Vec<OwnedFd>, io::Error>,
}

impl Limits {
    pub(super) fn new() -> Result<Self, StoreError> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags).map_err(errors::of_system)?;
        Ok(Self {
            timer,
            interrupts: Ok(Vec::new()),
        })
    }

    /// From now on attempts end when one of these descriptors is readable. Without room for
    /// the duplicates they fail.
    pub(super) fn interrupt_by(&mut self, descriptors: &[BorrowedFd<'_>]) {
        self.interrupts = descriptors
            .iter()
            .map(BorrowedFd::try_clone_to_owned)
            .collect();
    }

    /// Begins an attempt.
    pub(super) fn attempt(&self, limit: Duration) -> Result<Attempt<'_>, StoreError> {
        let interrupts = self.interrupts.as_ref().map_err(errors::of_io)?;
        Attempt::new(limit, &self.timer, interrupts)
    }
}

impl<'a> Attempt<'a> {
    fn new(
        limit: Duration,
        timer: &'a TimerFd,
        interrupts: &'a [OwnedFd],
    ) -> Result<Self, StoreError> {
        let end = Boot::now().plus(limit);
        // A time in the past makes the timer fire at once; only zero would disarm it.
        let at = TimeSpec::from(end.since_boot().max(Duration::from_nanos(1)));
        timer
            .set(
                Expiration::OneShot(at),
                TimerSetTimeFlags::TFD_TIMER_ABSTIME,
            )
            .map_err(errors::of_system)?;
        Ok(Self {
            end,
            limit,
            timer,
            interrupts,
        })
    }

    /// How long it may still take.
    pub(super) fn remaining(&self) -> Duration {
        self.end.since(Boot::now())
    }

    /// All that it may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Fails once the deadline has passed.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.remaining().is_zero() {
            Err(StoreError::new(ErrorKind::NoAnswer, "timed out"))
        } else {
            Ok(())
        }
    }

    /// Waits until one of `wanted` is ready or `pause` has passed, and says which are.
    pub(super) fn wait(
        &self,
        wanted: &[Wanted<'_>],
        pause: Option<Duration>,
    ) -> Result<Vec<bool>, StoreError> {
        self.check()?;
        let mut polled: Vec<PollFd<'_>> = wanted
            .iter()
            .map(|(fd, flags)| PollFd::new(*fd, *flags))
            .collect();
        polled.push(PollFd::new(self.timer.as_fd(), PollFlags::POLLIN));
        polled.extend(
            self.interrupts
                .iter()
                .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut polled, timeout(pause)) {
            // A handled signal is no news; the deadline is absolute.
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(errors::of_system(error)),
        }
        let mut ready: Vec<bool> = polled.iter().map(|fd| fd.any() == Some(true)).collect();
        if ready.drain(wanted.len() + 1..).any(|ready| ready) {
            return Err(StoreError::new(ErrorKind::Interrupted, "interrupted"));
        }
        // The timer's own readiness is decided by the clock, at the next wait.
        ready.truncate(wanted.len());
        Ok(ready)
    }
}

/// Rounded up: a pause that is cut short would be a busy loop.
fn timeout(pause: Option<Duration>) -> PollTimeout {
    pause.map_or(PollTimeout::NONE, |pause| {
        let millis = pause.as_micros().div_ceil(1000);
        i32::try_from(millis)
            .ok()
            .and_then(|ms| PollTimeout::try_from(ms).ok())
            .unwrap_or(PollTimeout::MAX)
    })
}
