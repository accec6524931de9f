//! Every interleaving of a contest, and of the release loop that may follow it, explored.
//!
//! A world is the machine together with the truth of what it has presented. It must not share
//! arithmetic with the machines.

use std::collections::HashSet;
use std::hash::Hash;

use super::*;
use crate::release::{self, ReleaseLoop};

const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_millis(600);
const ATTEMPT: Duration = Duration::from_millis(200);

/// How long an attempt may take: it is bounded, but the host may sleep meanwhile.
const LENGTHS: [Duration; 3] = [
    Duration::from_millis(100),
    ATTEMPT,
    Duration::from_millis(1500),
];

/// Beyond this a contest without an end is not followed.
const HORIZON: Boot = Boot::at(Duration::from_millis(900));

/// Explores depth first what follows from `first`; returns how many worlds there are.
fn explore<W: Clone + Eq + Hash>(first: W, follow: impl Fn(&W) -> Vec<W>) -> usize {
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(world) = open.pop() {
        for next in follow(&world) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen.len()
}

// ---- the contest ----

/// What became of the claim that was presented last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Claim {
    /// There is none, or it never reached a server.
    Unsent,
    /// It was written and not answered.
    Unanswered,
    /// It was refused or released: its token is dead.
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    contest: Contest,
    now: Boot,
    claim: Claim,
    /// Until then some request that was presented may take effect.
    in_doubt: Option<Boot>,
    last: Option<Verdict>,
    resume_after: Boot,
}

fn at(ms: u32) -> Boot {
    Boot::at(ms * MS)
}

fn answers(now: Boot) -> Vec<Answer> {
    let failed = |kind, effective_until| Answer::Failed {
        kind,
        effective_until,
    };
    let later = Some(now.plus(2 * ATTEMPT));
    vec![
        Answer::Held(TimeLeft::For(100 * MS)),
        Answer::Held(TimeLeft::Never),
        failed(ErrorKind::Down, None),
        failed(ErrorKind::NoAnswer, None),
        failed(ErrorKind::NoAnswer, later),
        failed(ErrorKind::Refused, None),
        failed(ErrorKind::Refused, later),
    ]
}

impl World {
    fn end(&self) -> Option<Boot> {
        match self.contest.wait {
            Wait::No => Some(at(0).plus(PATIENCE)),
            Wait::For(limit) => Some(at(0).plus(limit)),
            Wait::Forever => None,
        }
    }

    fn follow(&self, jitter: Jitter) -> Vec<Self> {
        match self.contest.next(self.now) {
            Next::GiveUp(verdict) => {
                self.check_given_up(verdict);
                Vec::new()
            }
            Next::Pause(until) => {
                assert!(until > self.now, "{self:?}");
                assert!(self.end().is_none_or(|end| until <= end), "{self:?}");
                assert!(until <= self.now.plus(Duration::from_secs(1)), "{self:?}");
                vec![Self {
                    now: until,
                    ..self.clone()
                }]
            }
            Next::Attempt { fresh } => {
                self.check_attempt(fresh);
                if self.now >= HORIZON && self.end().is_none() {
                    return Vec::new();
                }
                self.after_attempts(jitter)
            }
        }
    }

    fn check_attempt(&self, fresh: bool) {
        match self.claim {
            Claim::Dead => assert!(fresh, "a dead claim is presented again: {self:?}"),
            Claim::Unanswered => assert!(!fresh, "an unanswered claim is dropped: {self:?}"),
            // It is as good as a new one.
            Claim::Unsent => {}
        }
        let over = self.end().is_some_and(|end| self.now >= end);
        assert!(!over || self.last.is_none(), "out of its bounds: {self:?}");
        let early = self.now < self.resume_after && !over;
        assert!(!early, "before the holder could be back: {self:?}");
    }

    fn after_attempts(&self, jitter: Jitter) -> Vec<Self> {
        let mut worlds = Vec::new();
        for length in LENGTHS {
            let now = self.now.plus(length);
            for answer in answers(now) {
                worlds.push(self.answered(answer, now, jitter));
            }
            let mut late = Self {
                now,
                claim: Claim::Dead,
                last: Some(Verdict::Failed(ErrorKind::NoAnswer)),
                ..self.clone()
            };
            late.contest.granted_too_late(now);
            // A grant that takes no time at all is not too late.
            if length >= ATTEMPT {
                worlds.push(late);
            }
        }
        worlds
    }

    fn answered(&self, answer: Answer, now: Boot, jitter: Jitter) -> Self {
        let mut world = Self {
            now,
            ..self.clone()
        };
        match answer {
            Answer::Held(_) => {
                world.claim = Claim::Dead;
                world.last = Some(Verdict::Held);
            }
            Answer::Failed {
                kind,
                effective_until,
            } => {
                if effective_until.is_some() {
                    world.claim = Claim::Unanswered;
                    world.in_doubt = world.in_doubt.max(effective_until);
                } else if self.claim == Claim::Dead {
                    // A fresh one was made for this attempt, and was not sent.
                    world.claim = Claim::Unsent;
                }
                let lost = self.last == Some(Verdict::Held) && kind == ErrorKind::Down;
                if lost && self.contest.wait != Wait::No {
                    world.resume_after = now.plus(Duration::from_secs(1));
                }
                world.last = Some(Verdict::Failed(kind));
            }
        }
        world.contest.answered(answer, now, jitter);
        world
    }

    fn check_given_up(&self, verdict: Verdict) {
        assert_eq!(Some(verdict), self.last, "another reason: {self:?}");
        let final_at_once = match verdict {
            Verdict::Held => self.contest.wait == Wait::No,
            Verdict::Failed(kind) => !kind.is_worth_retrying(),
        };
        let over = self.end().is_some_and(|end| self.now >= end);
        assert!(final_at_once || over, "gave up too soon: {self:?}");
        for later in [0, 1, 250, 60_000] {
            let next = self.contest.next(self.now.plus(later * MS));
            assert_eq!(next, Next::GiveUp(verdict), "takes it back: {self:?}");
        }
        let in_doubt = self.in_doubt.filter(|&until| until > self.now);
        assert!(
            self.contest.doubt_until() >= in_doubt,
            "forgets what it presented: {self:?}"
        );
    }
}

#[test]
fn every_interleaving_of_a_contest() {
    let mut worlds = 0;
    for wait in [Wait::No, Wait::For(900 * MS), Wait::Forever] {
        for bits in [0, u32::MAX] {
            let first = World {
                contest: Contest::new(at(0), wait, PATIENCE),
                now: at(0),
                claim: Claim::Unsent,
                in_doubt: None,
                last: None,
                resume_after: at(0),
            };
            let found = explore(first, |world| world.follow(Jitter::from_bits(bits)));
            println!("{found} worlds of {wait:?}");
            worlds += found;
        }
    }
    assert!(worlds > 20_000, "only {worlds} worlds");
}

// ---- the release loop ----

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ending {
    release: ReleaseLoop,
    now: Boot,
    doubt_until: Option<Boot>,
    gone_by: Option<Boot>,
    /// A definite answer was given to a request that was sent after all doubt.
    confirmed: bool,
}

impl Ending {
    fn follow(&self, jitter: Jitter) -> Vec<Self> {
        let mut world = self.clone();
        match world.release.next(self.now) {
            release::Next::Done { confirmed } => {
                let proven = self.gone_by.is_some_and(|end| self.now >= end);
                assert!(self.confirmed || proven, "no proof: {self:?}");
                assert!(!confirmed || self.confirmed, "nobody confirmed: {self:?}");
                assert_eq!(world.release.wake_at(), None);
                let again = world.release.next(self.now.plus(ATTEMPT));
                assert_eq!(again, release::Next::Done { confirmed });
                Vec::new()
            }
            release::Next::Pause(until) => {
                assert!(until > self.now, "{self:?}");
                assert_eq!(world.release.wake_at(), Some(until));
                assert!(self.gone_by.is_none_or(|end| until <= end), "{self:?}");
                world.now = until;
                vec![world]
            }
            release::Next::Attempt(limit) => world.after_attempt(limit, jitter),
        }
    }

    fn after_attempt(&self, limit: Duration, jitter: Jitter) -> Vec<Self> {
        let in_time = self.gone_by.is_none_or(|end| self.now.plus(limit) <= end);
        assert!(limit > Duration::ZERO && in_time, "{limit:?} {self:?}");
        let second = self.release.clone().next(self.now);
        assert!(matches!(second, release::Next::Pause(_)), "two at once");
        let mut worlds = Vec::new();
        for length in [limit / 10, limit, 2 * limit] {
            let now = self.now.plus(length);
            for kind in [None, Some(ErrorKind::NoAnswer), Some(ErrorKind::Refused)] {
                let mut world = Self {
                    now,
                    ..self.clone()
                };
                let answer = kind.map_or(release::Answer::Definite, release::Answer::Failed);
                world.release.answered(answer, now, jitter);
                let proves = self.doubt_until.is_none_or(|until| self.now >= until);
                world.confirmed |= kind.is_none() && proves;
                worlds.push(world);
            }
        }
        worlds.retain(|world| world.gone_by.is_some() || world.now <= HORIZON);
        worlds
    }
}

#[test]
fn every_interleaving_of_a_release() {
    let mut worlds = 0;
    for doubt_until in [None, Some(at(300)), Some(at(900))] {
        for gone_by in [None, Some(at(0)), Some(at(700)), Some(at(1700))] {
            for bits in [0, u32::MAX / 2, u32::MAX] {
                let first = Ending {
                    release: ReleaseLoop::new(at(0), doubt_until, gone_by, ATTEMPT),
                    now: at(0),
                    doubt_until,
                    gone_by,
                    confirmed: false,
                };
                worlds += explore(first, |world| world.follow(Jitter::from_bits(bits)));
            }
        }
    }
    println!("{worlds} worlds");
    assert!(worlds > 20_000, "only {worlds} worlds");
}
