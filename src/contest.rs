//! Contending for a lock: when to ask, how long to pause, when to give up. Pure.
//!
//! What it promises is explored exhaustively in `contest/explore.rs`.

#[cfg(test)]
mod explore;

use std::time::Duration;

use crate::backoff::{Backoff, Jitter};
use crate::clock::Boot;
use crate::model::{TimeLeft, Wait};
use crate::store::ErrorKind;

/// Other libraries' waiters poll at up to 250 ms; a slower one would lose every race.
const POLL_CAP: Duration = Duration::from_millis(250);

/// After a lost connection a holder shall be back before the waiters are.
const AFTER_LOST_CONNECTION: Duration = Duration::from_secs(1);

/// What an attempt brought, other than the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Another has it, for so long unless renewed.
    Held(TimeLeft),
    /// No answer that counts; `effective_until` if the request may yet take effect.
    Failed {
        /// What follows from it.
        kind: ErrorKind,
        /// See [`crate::store::StoreError::effective_until`].
        effective_until: Option<Boot>,
    },
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask, with the same claim as before or with a fresh one.
    Attempt {
        /// The last claim was definitely refused: its token is dead.
        fresh: bool,
    },
    /// Nothing until this instant.
    Pause(Boot),
    /// Enough.
    GiveUp(Verdict),
}

/// Why a contest was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Another has the lock.
    Held,
    /// An error, and no better answer in time.
    Failed(ErrorKind),
}

/// One contest for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contest {
    wait: Wait,
    patience: Duration,
    began: Boot,
    fresh: bool,
    resume_at: Boot,
    verdict: Option<Verdict>,
    doubt_until: Option<Boot>,
    connected: bool,
    polls: Backoff,
    errors: Backoff,
}

impl Contest {
    /// A contest that begins at `now`. Without a wait, errors are retried for `patience` in all.
    pub fn new(now: Boot, wait: Wait, patience: Duration) -> Self {
        Self {
            wait,
            patience,
            began: now,
            fresh: true,
            resume_at: now,
            verdict: None,
            doubt_until: None,
            connected: false,
            polls: Backoff::new(Duration::from_millis(50), POLL_CAP),
            errors: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
        }
    }

    /// When it began.
    pub fn began(&self) -> Boot {
        self.began
    }

    /// An acquire of this contest may take effect until then.
    pub fn doubt_until(&self) -> Option<Boot> {
        self.doubt_until
    }

    /// What to do now.
    pub fn next(&self, now: Boot) -> Next {
        if let Some(verdict) = self.verdict.filter(|&verdict| self.is_enough(verdict, now)) {
            return Next::GiveUp(verdict);
        }
        if now < self.resume_at {
            return Next::Pause(self.resume_at);
        }
        Next::Attempt { fresh: self.fresh }
    }

    /// An attempt was answered, at `now`.
    pub fn answered(&mut self, answer: Answer, now: Boot, jitter: Jitter) {
        let pause = match answer {
            Answer::Held(left) => self.held(left, jitter),
            Answer::Failed {
                kind,
                effective_until,
            } => {
                self.doubt_until = self.doubt_until.max(effective_until);
                // Unanswered: the same claim again, so that finding our own is success.
                self.fresh &= effective_until.is_none();
                self.verdict = Some(Verdict::Failed(kind));
                self.after_error(kind, jitter)
            }
        };
        self.resume_at = now.plus(pause);
        if let Some(end) = self.end() {
            self.resume_at = self.resume_at.min(end);
        }
    }

    /// The lock was granted too late to be used and was released again: ask afresh, if there
    /// is time left. An earlier request may still take effect, so the doubt remains.
    pub fn granted_too_late(&mut self, now: Boot) {
        self.fresh = true;
        self.verdict = Some(Verdict::Failed(ErrorKind::NoAnswer));
        self.resume_at = now;
    }

    fn held(&mut self, left: TimeLeft, jitter: Jitter) -> Duration {
        self.fresh = true;
        self.connected = true;
        self.errors.reset();
        self.verdict = Some(Verdict::Held);
        let poll = self.polls.next(jitter);
        match left {
            TimeLeft::For(left) => {
                poll.min(left.saturating_add(jitter.of(Duration::from_millis(50))))
            }
            TimeLeft::Never | TimeLeft::WhileHeld => poll,
        }
    }

    fn after_error(&mut self, kind: ErrorKind, jitter: Jitter) -> Duration {
        let pause = self.errors.next(jitter);
        let lost_connection = std::mem::take(&mut self.connected);
        if lost_connection && kind == ErrorKind::Down && self.wait != Wait::No {
            pause.max(AFTER_LOST_CONNECTION)
        } else {
            pause
        }
    }

    fn is_enough(&self, verdict: Verdict, now: Boot) -> bool {
        match verdict {
            Verdict::Failed(kind) if !kind.is_worth_retrying() => true,
            Verdict::Held if self.wait == Wait::No => true,
            _ => self.end().is_some_and(|end| now >= end),
        }
    }

    fn end(&self) -> Option<Boot> {
        match self.wait {
            Wait::No => Some(self.began.plus(self.patience)),
            Wait::For(limit) => Some(self.began.plus(limit)),
            Wait::Forever => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Boot {
        Boot::at(Duration::from_millis(ms))
    }

    const PATIENCE: Duration = Duration::from_secs(2);
    const LEFT: TimeLeft = TimeLeft::For(Duration::from_secs(30));

    fn failed(kind: ErrorKind, until: Option<Boot>) -> Answer {
        Answer::Failed {
            kind,
            effective_until: until,
        }
    }

    #[test]
    fn without_a_wait_held_ends_it_at_once() {
        let mut contest = Contest::new(at(0), Wait::No, PATIENCE);
        assert_eq!(contest.next(at(0)), Next::Attempt { fresh: true });
        contest.answered(Answer::Held(LEFT), at(1), Jitter::default());
        assert_eq!(contest.next(at(1)), Next::GiveUp(Verdict::Held));
    }

    #[test]
    fn without_a_wait_errors_are_retried_for_the_patience() {
        let mut contest = Contest::new(at(0), Wait::No, PATIENCE);
        let jitter = Jitter::from_bits(u32::MAX);
        let mut now = at(0);
        let mut attempts = 0;
        loop {
            match contest.next(now) {
                Next::Attempt { .. } => {
                    attempts += 1;
                    contest.answered(failed(ErrorKind::Down, None), now, jitter);
                }
                Next::Pause(until) => {
                    assert!(until > now);
                    now = until;
                }
                Next::GiveUp(verdict) => {
                    assert_eq!(verdict, Verdict::Failed(ErrorKind::Down));
                    break;
                }
            }
        }
        assert_eq!(now, at(2000));
        assert!((3..20).contains(&attempts), "{attempts}");
    }

    #[test]
    fn an_unanswered_claim_is_presented_again_and_a_refused_one_never() {
        let mut contest = Contest::new(at(0), Wait::Forever, PATIENCE);
        contest.answered(
            failed(ErrorKind::NoAnswer, Some(at(2500))),
            at(500),
            Jitter::default(),
        );
        assert_eq!(contest.next(at(500)), Next::Attempt { fresh: false });
        assert_eq!(contest.doubt_until(), Some(at(2500)));
        // A refused connection tells nothing of the unanswered acquire.
        contest.answered(failed(ErrorKind::Down, None), at(600), Jitter::default());
        assert_eq!(contest.next(at(600)), Next::Attempt { fresh: false });
        contest.answered(Answer::Held(LEFT), at(700), Jitter::default());
        assert_eq!(contest.next(at(700)), Next::Attempt { fresh: true });
        assert_eq!(contest.doubt_until(), Some(at(2500)));
    }

    #[test]
    fn grants_that_come_too_late_do_not_prolong_the_contest() {
        let mut contest = Contest::new(at(0), Wait::No, PATIENCE);
        contest.granted_too_late(at(1500));
        assert_eq!(contest.next(at(1500)), Next::Attempt { fresh: true });
        contest.granted_too_late(at(3000));
        let verdict = Verdict::Failed(ErrorKind::NoAnswer);
        assert_eq!(contest.next(at(3000)), Next::GiveUp(verdict));
    }

    #[test]
    fn a_grant_that_comes_too_late_does_not_end_the_doubt_of_an_older_claim() {
        let mut contest = Contest::new(at(0), Wait::Forever, PATIENCE);
        let unanswered = failed(ErrorKind::NoAnswer, Some(at(4500)));
        contest.answered(unanswered, at(500), Jitter::default());
        contest.answered(Answer::Held(LEFT), at(600), Jitter::default());
        contest.granted_too_late(at(2600));
        assert_eq!(contest.doubt_until(), Some(at(4500)));
    }

    #[test]
    fn refusals_end_even_a_wait_for_ever() {
        for kind in [
            ErrorKind::Refused,
            ErrorKind::Foreign,
            ErrorKind::Local,
            ErrorKind::Unsupported,
        ] {
            let mut contest = Contest::new(at(0), Wait::Forever, PATIENCE);
            contest.answered(failed(kind, None), at(1), Jitter::default());
            assert_eq!(contest.next(at(1)), Next::GiveUp(Verdict::Failed(kind)));
        }
    }

    #[test]
    fn a_wait_that_ran_out_says_what_the_last_answer_was() {
        let mut contest = Contest::new(at(0), Wait::For(Duration::from_secs(1)), PATIENCE);
        contest.answered(Answer::Held(LEFT), at(1), Jitter::default());
        contest.answered(failed(ErrorKind::Down, None), at(999), Jitter::default());
        assert_eq!(
            contest.next(at(1000)),
            Next::GiveUp(Verdict::Failed(ErrorKind::Down))
        );
    }

    #[test]
    fn waiters_let_the_holder_come_back_first_after_a_lost_connection() {
        let mut contest = Contest::new(at(0), Wait::Forever, PATIENCE);
        contest.answered(Answer::Held(LEFT), at(1), Jitter::default());
        contest.answered(failed(ErrorKind::Down, None), at(100), Jitter::default());
        assert_eq!(contest.next(at(1099)), Next::Pause(at(1100)));
    }
}
