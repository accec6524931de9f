//! The release loop: repeated until the release is certain, with a proof of its end. Pure.
//!
//! It serves the session, whose command has ended, and the contest, which gives up while an
//! acquire is unanswered.

use std::time::Duration;

use crate::backoff::{Backoff, Jitter};
use crate::clock::Boot;
use crate::store::ErrorKind;

/// What the loop wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// One attempt, bounded by this.
    Attempt(Duration),
    /// Nothing until this instant.
    Pause(Boot),
    /// It is over: the lock is not ours any more for certain.
    Done {
        /// A server confirmed it; otherwise the lease has provably ended.
        confirmed: bool,
    },
}

/// What an attempt brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// A verified primary said that the lock is not ours (any more).
    Definite,
    /// No answer that counts.
    Failed(ErrorKind),
}

/// A release that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReleaseLoop {
    /// An unanswered acquire or renewal can take effect until then: an answer to a request
    /// sent before it proves nothing.
    doubt_until: Option<Boot>,
    /// Nothing of ours can exist on the server after this instant. `None`: no TTL, no proof.
    gone_by: Option<Boot>,
    attempt: Duration,
    began: Boot,
    asked: Option<Boot>,
    resume_at: Boot,
    backoff: Backoff,
    done: Option<bool>,
}

impl ReleaseLoop {
    /// A loop that begins at `now`. `attempt` bounds each attempt.
    pub fn new(
        now: Boot,
        doubt_until: Option<Boot>,
        gone_by: Option<Boot>,
        attempt: Duration,
    ) -> Self {
        Self {
            doubt_until,
            gone_by,
            attempt,
            began: now,
            asked: None,
            resume_at: now,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            done: None,
        }
    }

    /// When it began.
    pub fn began(&self) -> Boot {
        self.began
    }

    /// Whether an attempt that was not answered may have released it.
    pub fn may_have_succeeded(&self) -> bool {
        self.backoff.has_failed()
    }

    /// When the lock is free by itself at the latest.
    pub fn gone_by(&self) -> Option<Boot> {
        self.gone_by
    }

    /// What to do now. An attempt that was asked for counts as under way until it is answered.
    pub fn next(&mut self, now: Boot) -> Next {
        if let Some(confirmed) = self.done {
            return Next::Done { confirmed };
        }
        if self.gone_by.is_some_and(|end| now >= end) {
            self.done = Some(false);
            return Next::Done { confirmed: false };
        }
        if self.asked.is_some() {
            return Next::Pause(self.gone_by.unwrap_or(now.plus(self.attempt)));
        }
        if now < self.resume_at {
            return Next::Pause(self.resume_at);
        }
        self.asked = Some(now);
        let rest = self.gone_by.map_or(self.attempt, |end| end.since(now));
        Next::Attempt(self.attempt.min(rest))
    }

    /// When [`Self::next`] has something else to say, if nothing is answered before. An attempt
    /// under way is bounded by whoever carries it out.
    pub fn wake_at(&self) -> Option<Boot> {
        match (self.done, self.asked) {
            (Some(_), _) => None,
            (None, Some(_)) => self.gone_by,
            (None, None) => Some(self.resume_at),
        }
    }

    /// The attempt under way was answered.
    pub fn answered(&mut self, answer: Answer, now: Boot, jitter: Jitter) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        match answer {
            Answer::Definite => match self.doubt_until.filter(|&until| asked < until) {
                Some(until) => self.pause_until(until),
                None => self.done = Some(true),
            },
            Answer::Failed(kind) => {
                // "Refused" may end with a rotated password, but not soon.
                let pause = if kind.is_worth_retrying() {
                    self.backoff.next(jitter)
                } else {
                    Duration::from_secs(1)
                };
                self.pause_until(now.plus(pause));
            }
        }
    }

    fn pause_until(&mut self, at: Boot) {
        self.resume_at = self.gone_by.map_or(at, |end| at.min(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Boot {
        Boot::at(Duration::from_millis(ms))
    }

    const ATTEMPT: Duration = Duration::from_millis(500);

    #[test]
    fn a_definite_answer_ends_it() {
        let mut release = ReleaseLoop::new(at(0), None, Some(at(5000)), ATTEMPT);
        assert_eq!(release.next(at(0)), Next::Attempt(ATTEMPT));
        assert!(matches!(release.next(at(1)), Next::Pause(_)));
        release.answered(Answer::Definite, at(2), Jitter::default());
        assert_eq!(release.next(at(2)), Next::Done { confirmed: true });
    }

    #[test]
    fn an_answer_before_the_doubt_ends_is_asked_again_after_it() {
        let mut release = ReleaseLoop::new(at(0), Some(at(2000)), Some(at(9000)), ATTEMPT);
        assert_eq!(release.next(at(0)), Next::Attempt(ATTEMPT));
        release.answered(Answer::Definite, at(10), Jitter::default());
        assert_eq!(release.next(at(10)), Next::Pause(at(2000)));
        assert_eq!(release.next(at(2000)), Next::Attempt(ATTEMPT));
        release.answered(Answer::Definite, at(2010), Jitter::default());
        assert_eq!(release.next(at(2010)), Next::Done { confirmed: true });
    }

    #[test]
    fn it_ends_at_the_provable_end_even_while_an_attempt_hangs() {
        let mut release = ReleaseLoop::new(at(0), None, Some(at(1000)), ATTEMPT);
        assert_eq!(release.next(at(0)), Next::Attempt(ATTEMPT));
        release.answered(
            Answer::Failed(ErrorKind::NoAnswer),
            at(500),
            Jitter::from_bits(u32::MAX),
        );
        let Next::Pause(until) = release.next(at(500)) else {
            panic!("no pause")
        };
        assert!(until <= at(550));
        assert_eq!(
            release.next(at(900)),
            Next::Attempt(Duration::from_millis(100))
        );
        assert_eq!(release.next(at(1000)), Next::Done { confirmed: false });
    }

    proptest! {
        /// Whatever is answered and however long each attempt takes: it is over as soon as it is
        /// looked at after the provable end, and no attempt is planned to outlast that.
        #[test]
        fn it_is_over_at_the_provable_end_or_after_the_attempt_under_way(
            gone_by in 0_u64..20_000,
            doubt in proptest::option::of(0_u64..5000),
            attempts in proptest::collection::vec((any::<u32>(), 0_u64..700, 0_u8..4), 1..300),
        ) {
            let end = at(gone_by);
            let mut release = ReleaseLoop::new(at(0), doubt.map(at), Some(end), ATTEMPT);
            let mut now = at(0);
            for (bits, takes, answer) in attempts {
                let mut next = release.next(now);
                if let Next::Pause(until) = next {
                    prop_assert!(until > now && until <= end);
                    now = until;
                    next = release.next(now);
                }
                match next {
                    Next::Attempt(limit) => {
                        prop_assert!(now.plus(limit) <= end);
                        now = now.plus(limit.min(Duration::from_millis(takes)));
                    }
                    Next::Done { confirmed } => {
                        prop_assert!(confirmed || now >= end);
                        return Ok(());
                    }
                    Next::Pause(_) => prop_assert!(false, "a pause after a pause"),
                }
                let answer = match answer {
                    0 => Answer::Definite,
                    1 => Answer::Failed(ErrorKind::Down),
                    2 => Answer::Failed(ErrorKind::NoAnswer),
                    _ => Answer::Failed(ErrorKind::Refused),
                };
                release.answered(answer, now, Jitter::from_bits(bits));
            }
            prop_assert!(now <= end);
            let over = matches!(release.next(end), Next::Done { .. });
            prop_assert!(over);
        }
    }
}
