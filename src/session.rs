//! One run from the moment its lock is held: what to do next. Pure: no I/O, no clock, no
//! threads; the keeper carries the effects out.
//!
//! `Starting → Running → (Lingering | Ending → Killing) → Releasing → Done`
//!
//! It must not know pids, servers or words. What it promises is explored exhaustively in
//! `session/explore.rs`.

#[cfg(test)]
mod explore;

use std::time::Duration;

use crate::backoff::{Backoff, Jitter};
use crate::clock::{Boot, Stamp};
use crate::lease::{Lease, MARGIN, gone_by};
use crate::model::{CommandEnd, Leftovers, OnLost, Outcome, Ttl, code};
use crate::release::{self, ReleaseLoop};
use crate::store::ErrorKind;

/// After this a person is told what is being waited for.
const SAY_AFTER: Duration = Duration::from_secs(1);

/// After a refused or closed connection at most one attempt in this time.
const DOWN_PAUSE: Duration = Duration::from_millis(100);

/// What was agreed for this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The TTL; `None` for a store where a hold does not end by itself.
    pub ttl: Option<Ttl>,
    /// The grace between the first signal and KILL.
    pub kill_after: Duration,
    /// The same when another may hold the lock already.
    pub lost_grace: Duration,
    /// Stop the command when it has run for so long.
    pub max_runtime: Option<Duration>,
    /// What to do when the lease is lost.
    pub on_lost: OnLost,
    /// What to do with descendants that outlive the command.
    pub leftovers: Leftovers,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The command was executed.
    Started,
    /// It could not be executed.
    NotStarted,
    /// A renewal sent at `sent` was confirmed; it found this time to live.
    Renewed {
        /// The stamp from before its sending.
        sent: Stamp,
        /// The time to live before it.
        found: Option<Duration>,
    },
    /// The key had vanished and was put back by a renewal sent at this moment.
    TakenBack(Stamp),
    /// A renewal was answered: not ours any more.
    Lost(Cause),
    /// A renewal was not answered.
    NoAnswer(ErrorKind),
    /// The connection was lost between two renewals.
    News,
    /// The heartbeat ended without being asked to.
    HeartbeatDied,
    /// The command ended, and this was left running.
    Ended(CommandEnd, Left),
    /// What is still left running.
    Left(Left),
    /// No descendant is alive.
    TreeGone,
    /// The front is gone.
    FrontGone,
    /// A signal to end us arrived after the command had ended.
    StopAsked,
    /// An attempt to release was answered.
    Released(Answer),
}

impl Event {
    /// Whether it says that nothing of the command is alive.
    fn leaves_nothing(self) -> bool {
        matches!(
            self,
            Self::NotStarted
                | Self::Ended(_, Left::Nothing)
                | Self::Left(Left::Nothing)
                | Self::TreeGone
        )
    }
}

/// Descendants that are alive after the command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// None.
    Nothing,
    /// Only such as left the session.
    Daemons,
    /// Some in the command's session.
    Jobs,
}

/// Why the lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Another has it.
    Taken,
    /// The key is missing.
    Absent,
    /// The key holds something that is not a lock.
    Foreign,
    /// An operator released it by force: nobody else has it before its expiry.
    Released,
    /// No renewal was confirmed in time.
    Unanswered,
    /// The wall clock says that it is over, and no renewal proved the opposite.
    ClockStepped,
    /// The heartbeat died.
    Heartbeat,
}

/// What an attempt to release brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It was ours and is free now.
    Freed,
    /// Nothing was there.
    Absent,
    /// An operator's tombstone was there; it is gone.
    Tombstone,
    /// Another has it.
    Other,
    /// No answer that counts.
    Failed(ErrorKind),
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// One attempt at a renewal, bounded by this.
    Renew(Duration),
    /// One attempt at the release, bounded by this; a renewal under way is broken off.
    Release(Duration),
    /// The first signal, and CONT, to every descendant.
    Terminate,
    /// KILL to every descendant until none is alive.
    Kill,
    /// Tell the people.
    Say(Note),
    /// It is over.
    Finish,
}

/// What people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// The lease is lost; `stopping` unless it was asked to go on.
    Lost {
        /// Why.
        cause: Cause,
        /// Until KILL; `None` if the command goes on.
        grace: Option<Duration>,
        /// How long no renewal had been confirmed.
        silent: Duration,
    },
    /// The key had vanished and was taken back.
    TakenBack,
    /// A renewal found another time to live than it should have.
    OddTimeLeft {
        /// What it found.
        found: Duration,
        /// What it should have found.
        expected: Duration,
    },
    /// The command has run for `--max-runtime`.
    MaxRuntime,
    /// The front is gone.
    FrontGone,
    /// The leftovers are being ended.
    EndingLeftovers,
    /// The leftovers are being waited for.
    WaitingForLeftovers,
    /// Descendants survived the first signal.
    Killing,
    /// The release has not succeeded yet.
    CannotRelease {
        /// Free by itself after this.
        left: Option<Duration>,
    },
    /// The release found the key missing.
    AbsentAtRelease,
    /// The release found another's value.
    TakenAtRelease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Starting,
    Running,
    Lingering { since: Boot, said: bool },
    Ending { kill_at: Boot },
    Killing,
    Releasing { release: ReleaseLoop, said: bool },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Renewal {
    Due(Boot),
    UnderWay { asked: Boot },
}

/// Why the command was stopped, if we stopped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stopped {
    /// We did not.
    No,
    /// It had run for `--max-runtime`.
    MaxRuntime,
    /// The front was gone.
    FrontGone,
    /// Only what it left running was ended.
    Leftovers,
}

/// One run from the moment its lock is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    terms: Terms,
    phase: Phase,
    lease: Option<Lease>,
    renewal: Renewal,
    retries: Backoff,
    /// The wall clock says that the lease is over, seen at this instant.
    suspected: Option<Boot>,
    last_asked: Boot,
    started: Option<Boot>,
    command: Option<CommandEnd>,
    lost: Option<Cause>,
    stopped: Stopped,
    released: bool,
    /// Nobody is left who could be asked for anything.
    heartbeat_died: bool,
}

impl Session {
    /// A run whose lock was granted by a request sent at `sent`.
    pub fn new(terms: Terms, sent: Stamp, jitter: Jitter) -> Self {
        let lease = terms.ttl.map(|ttl| Lease::new(sent, ttl, terms.kill_after));
        let due = lease
            .as_ref()
            .map_or(sent.boot, |lease| lease.renew_at(jitter));
        let cap = terms
            .ttl
            .map_or(Duration::from_secs(1), |ttl| ttl.length() / 20);
        Self {
            terms,
            phase: Phase::Starting,
            lease,
            renewal: Renewal::Due(due),
            retries: Backoff::new(Duration::from_millis(50), cap),
            suspected: None,
            last_asked: sent.boot,
            started: None,
            command: None,
            lost: None,
            stopped: Stopped::No,
            released: false,
            heartbeat_died: false,
        }
    }

    /// How the command ended, if it did.
    pub fn command(&self) -> Option<CommandEnd> {
        self.command
    }

    /// Why the lease was lost, if it was.
    pub fn lost(&self) -> Option<Cause> {
        self.lost
    }

    /// Why we stopped the command, if we did.
    pub fn stopped(&self) -> Stopped {
        self.stopped
    }

    /// Whether the release was confirmed.
    pub fn released(&self) -> bool {
        self.released
    }

    /// Whether the command has ended and only its leftovers or the release are waited for.
    pub fn command_has_ended(&self) -> bool {
        self.command.is_some()
    }

    /// How the run is to end for the caller. `preserve`: the command's status instead of our
    /// own for a loss or the end of the runtime; `strict`: an unconfirmed release is an error.
    pub fn outcome(&self, preserve: bool, strict: bool) -> Outcome {
        let own = match (self.lost, self.stopped) {
            (Some(_), _) => Some(code::LOST),
            (None, Stopped::MaxRuntime) => Some(code::MAX_RUNTIME),
            _ => None,
        };
        match (own, self.command) {
            (Some(own), None) => Outcome::Code(own),
            (Some(own), Some(_)) if !preserve => Outcome::Code(own),
            (_, Some(end)) if strict && end.success() && !self.released => {
                Outcome::Code(code::RELEASE)
            }
            (_, Some(end)) => end.into(),
            (None, None) => Outcome::Code(code::OS),
        }
    }

    /// Whether it is over.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// When the lease is over if it is not renewed.
    pub fn expiry(&self) -> Option<Stamp> {
        let lease = self.lease.as_ref()?;
        let left = lease.expiry().since(lease.sent().boot);
        Some(Stamp {
            boot: lease.expiry(),
            real: lease.sent().real.saturating_add(left),
        })
    }

    /// The next instant at which [`Event::Tick`] has an effect.
    pub fn wake_at(&self) -> Option<Boot> {
        match self.phase {
            Phase::Starting | Phase::Running => {
                earliest([self.deadline(), self.renewal_due(), self.runtime_end()])
            }
            Phase::Lingering { since, said } => {
                let say = (!said).then(|| since.plus(SAY_AFTER));
                earliest([self.deadline(), self.renewal_due(), self.runtime_end(), say])
            }
            Phase::Ending { kill_at } => {
                earliest([Some(kill_at), self.kill_deadline(), self.renewal_due()])
            }
            Phase::Killing => earliest([self.renewal_due(), self.end_of_lease()]),
            Phase::Releasing { release, said } => earliest([
                release.wake_at(),
                (!said).then(|| release.began().plus(SAY_AFTER)),
            ]),
            Phase::Done => None,
        }
    }

    /// Something happened at `now`. Deadlines come before everything else: after a stop or a
    /// suspend the first act is to end what must not run any more. Where the event says that
    /// nothing runs there is nothing to end, and a lease that was good until then was held
    /// throughout.
    pub fn step(&mut self, event: Event, now: Stamp, jitter: Jitter) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.is_done() {
            return effects;
        }
        if event.leaves_nothing() {
            self.note_expiry(now.boot, &mut effects);
        } else {
            self.keep_deadlines(now.boot, &mut effects);
        }
        self.take(event, now, jitter, &mut effects);
        self.keep_deadlines(now.boot, &mut effects);
        self.ask(now, &mut effects);
        effects
    }

    fn take(&mut self, event: Event, now: Stamp, jitter: Jitter, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick => {}
            Event::Started => self.started(now.boot),
            Event::NotStarted => self.begin_release(now.boot, effects),
            Event::Renewed { sent, found } => self.renewed(sent, found, jitter, effects),
            Event::TakenBack(sent) => self.taken_back(sent, jitter, effects),
            Event::Lost(cause) => self.lose(cause, now.boot, effects),
            Event::NoAnswer(kind) => self.unanswered(kind, now.boot, jitter, effects),
            Event::News => self.renew_soon(now.boot),
            Event::HeartbeatDied => self.heartbeat_died(now.boot, effects),
            Event::Ended(end, left) => self.ended(end, left, now.boot, effects),
            Event::Left(left) => self.left(left, now.boot, effects),
            Event::TreeGone => self.tree_gone(now.boot, effects),
            Event::FrontGone => self.front_gone(now.boot, effects),
            Event::StopAsked => self.stop_asked(now.boot, effects),
            Event::Released(answer) => self.release_answered(answer, now.boot, jitter, effects),
        }
    }

    // ---- time ----

    fn keep_deadlines(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        if matches!(
            self.phase,
            Phase::Starting | Phase::Running | Phase::Lingering { .. }
        ) {
            if self.deadline().is_some_and(|deadline| now >= deadline) {
                self.lose(Cause::Unanswered, now, effects);
            } else if self.runtime_end().is_some_and(|end| now >= end) {
                self.runtime_over(now, effects);
            }
        }
        // Past the last moment at once, not at the next wake-up.
        if let Phase::Ending { kill_at } = self.phase
            && earliest([Some(kill_at), self.kill_deadline()]).is_some_and(|at| now >= at)
        {
            self.phase = Phase::Killing;
            effects.push(Effect::Kill);
            effects.push(Effect::Say(Note::Killing));
        }
        if self.phase == Phase::Killing && self.end_of_lease().is_some_and(|end| now >= end) {
            self.lose(Cause::Unanswered, now, effects);
        }
    }

    /// Nothing runs any more, but the lease may have ended before it did.
    fn note_expiry(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        let holds = !matches!(self.phase, Phase::Releasing { .. } | Phase::Done);
        if holds && self.end_of_lease().is_some_and(|end| now >= end) {
            self.mark_lost(Cause::Unanswered, Some(Duration::ZERO), now, effects);
        }
    }

    fn ask(&mut self, now: Stamp, effects: &mut Vec<Effect>) {
        match self.phase {
            Phase::Releasing { .. } => return self.drive_release(now.boot, effects),
            Phase::Done => return,
            Phase::Lingering { since, said: false } if now.boot >= since.plus(SAY_AFTER) => {
                self.phase = Phase::Lingering { since, said: true };
                effects.push(Effect::Say(Note::WaitingForLeftovers));
            }
            _ => {}
        }
        self.watch_wall_clock(now);
        self.renew_if_due(now.boot, effects);
    }

    fn runtime_over(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        if self.command.is_some() {
            return self.end_leftovers(now, effects);
        }
        self.stopped = Stopped::MaxRuntime;
        self.terminate(self.terms.kill_after, now, effects);
        effects.push(Effect::Say(Note::MaxRuntime));
    }

    /// Only the wall clock is past the expiry: a paused machine or a clock that was set. One
    /// attempt shall tell.
    fn watch_wall_clock(&mut self, now: Stamp) {
        let over = self.lost.is_none()
            && self
                .lease
                .as_ref()
                .is_some_and(|lease| lease.is_over_by_wall_clock(now));
        if over && self.suspected.is_none() {
            self.suspected = Some(now.boot);
            self.renew_soon(now.boot);
        }
    }

    fn renew_soon(&mut self, now: Boot) {
        if let Renewal::Due(at) = self.renewal {
            self.renewal = Renewal::Due(at.min(now.max(self.last_asked.plus(DOWN_PAUSE))));
        }
    }

    fn renew_if_due(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        let (Some(due), Some(ttl)) = (self.renewal_due(), self.terms.ttl) else {
            return;
        };
        // Never past the instant at which the command is told to stop.
        let Some(deadline) = self.deadline().filter(|_| now >= due) else {
            return;
        };
        let rest = deadline.since(now);
        if rest.is_zero() {
            // Too late for it: none to come, and none to wake up for.
            self.renewal = Renewal::Due(deadline);
        } else {
            self.renewal = Renewal::UnderWay { asked: now };
            self.last_asked = now;
            effects.push(Effect::Renew(ttl.attempt().min(rest)));
        }
    }

    fn renewal_due(&self) -> Option<Boot> {
        match self.renewal {
            Renewal::Due(at) if self.lease.is_some() && self.lost.is_none() => {
                // Once the command is being stopped for want of a renewal there is none to come.
                self.deadline()
                    .filter(|&deadline| at < deadline)
                    .map(|_| at)
            }
            _ => None,
        }
    }

    /// When the command is told to stop if no renewal is confirmed.
    fn deadline(&self) -> Option<Boot> {
        self.lease.as_ref().map(Lease::terminate_at)
    }

    /// When the lease is over, unless it is lost already.
    fn end_of_lease(&self) -> Option<Boot> {
        let lease = self.lease.as_ref().filter(|_| self.lost.is_none())?;
        Some(lease.expiry())
    }

    fn kill_deadline(&self) -> Option<Boot> {
        self.lease.as_ref().map(Lease::kill_at)
    }

    fn runtime_end(&self) -> Option<Boot> {
        match self.phase {
            Phase::Running | Phase::Lingering { .. } => {
                Some(self.started?.plus(self.terms.max_runtime?))
            }
            _ => None,
        }
    }

    // ---- the command ----

    fn started(&mut self, now: Boot) {
        if self.phase == Phase::Starting {
            self.started = Some(now);
            self.phase = Phase::Running;
        }
    }

    fn ended(&mut self, end: CommandEnd, left: Left, now: Boot, effects: &mut Vec<Effect>) {
        self.command = Some(end);
        if !matches!(self.phase, Phase::Starting | Phase::Running) {
            return self.left(left, now, effects);
        }
        match (self.terms.leftovers, left) {
            (Leftovers::Wait, Left::Jobs) => {
                self.phase = Phase::Lingering {
                    since: now,
                    said: false,
                }
            }
            (Leftovers::Kill, Left::Jobs | Left::Daemons) => self.end_leftovers(now, effects),
            _ => self.begin_release(now, effects),
        }
    }

    fn left(&mut self, left: Left, now: Boot, effects: &mut Vec<Effect>) {
        if left == Left::Nothing {
            self.tree_gone(now, effects);
        } else if matches!(self.phase, Phase::Lingering { .. }) && left == Left::Daemons {
            self.begin_release(now, effects);
        }
    }

    fn tree_gone(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        if matches!(
            self.phase,
            Phase::Lingering { .. } | Phase::Ending { .. } | Phase::Killing
        ) {
            self.begin_release(now, effects);
        }
    }

    fn end_leftovers(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        self.stopped = Stopped::Leftovers;
        self.terminate(self.terms.kill_after, now, effects);
        effects.push(Effect::Say(Note::EndingLeftovers));
    }

    fn front_gone(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        if matches!(
            self.phase,
            Phase::Starting | Phase::Running | Phase::Lingering { .. }
        ) {
            self.stopped = Stopped::FrontGone;
            self.terminate(self.terms.kill_after, now, effects);
            effects.push(Effect::Say(Note::FrontGone));
        }
    }

    fn stop_asked(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        match self.phase {
            Phase::Lingering { .. } => self.end_leftovers(now, effects),
            Phase::Releasing { .. } => self.finish(effects),
            _ => {}
        }
    }

    /// Signals first, words afterwards: the callers' notes come behind this.
    fn terminate(&mut self, grace: Duration, now: Boot, effects: &mut Vec<Effect>) {
        self.phase = Phase::Ending {
            kill_at: now.plus(grace),
        };
        effects.push(Effect::Terminate);
    }

    // ---- the lease ----

    fn renewed(
        &mut self,
        sent: Stamp,
        found: Option<Duration>,
        jitter: Jitter,
        effects: &mut Vec<Effect>,
    ) {
        let Some(lease) = &mut self.lease else { return };
        if let (Some(ttl), Some(found)) = (self.terms.ttl, found) {
            let expected = lease.expected_left(sent);
            let tolerance = Duration::from_secs(1).max(ttl.length() / 20);
            // An unanswered renewal in between may have been carried out: then more is left.
            let more_is_odd = !self.retries.has_failed();
            let odd = expected > found + tolerance || (more_is_odd && found > expected + tolerance);
            if odd {
                effects.push(Effect::Say(Note::OddTimeLeft { found, expected }));
            }
        }
        self.confirmed(sent, jitter);
    }

    fn taken_back(&mut self, sent: Stamp, jitter: Jitter, effects: &mut Vec<Effect>) {
        if self.lease.is_some() && self.lost.is_none() {
            effects.push(Effect::Say(Note::TakenBack));
            self.confirmed(sent, jitter);
        }
    }

    fn confirmed(&mut self, sent: Stamp, jitter: Jitter) {
        if self.lost.is_some() {
            return;
        }
        let Some(lease) = &mut self.lease else { return };
        lease.renewed(sent);
        self.renewal = Renewal::Due(lease.renew_at(jitter));
        self.retries.reset();
        if self.suspected.is_some_and(|since| sent.boot >= since) {
            self.suspected = None;
        } else if self.suspected.is_some() {
            self.renewal = Renewal::Due(sent.boot);
        }
    }

    fn unanswered(
        &mut self,
        kind: ErrorKind,
        now: Boot,
        jitter: Jitter,
        effects: &mut Vec<Effect>,
    ) {
        let Renewal::UnderWay { asked } = self.renewal else {
            return;
        };
        let pause = self.retries.next(jitter);
        self.renewal = Renewal::Due(match kind {
            ErrorKind::Down => now.max(asked.plus(DOWN_PAUSE)),
            _ => now.plus(pause),
        });
        if let Some(since) = self.suspected {
            if asked >= since {
                self.lose(Cause::ClockStepped, now, effects);
            } else {
                self.renewal = Renewal::Due(now);
            }
        }
    }

    fn heartbeat_died(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        self.heartbeat_died = true;
        if matches!(self.phase, Phase::Releasing { .. }) {
            self.finish(effects);
        } else {
            self.lose(Cause::Heartbeat, now, effects);
        }
    }

    fn lose(&mut self, cause: Cause, now: Boot, effects: &mut Vec<Effect>) {
        if self.lost.is_some() || matches!(self.phase, Phase::Releasing { .. } | Phase::Done) {
            return;
        }
        let grace = match self.terms.on_lost {
            OnLost::Stop => Some(self.stop_lost(cause, now, effects)),
            OnLost::Warn => None,
        };
        self.mark_lost(cause, grace, now, effects);
    }

    fn mark_lost(
        &mut self,
        cause: Cause,
        grace: Option<Duration>,
        now: Boot,
        effects: &mut Vec<Effect>,
    ) {
        self.lost = Some(cause);
        let silent = self
            .lease
            .as_ref()
            .map_or(Duration::ZERO, |lease| now.since(lease.sent().boot));
        if self.terms.on_lost == OnLost::Warn {
            self.lease = None;
        }
        effects.push(Effect::Say(Note::Lost {
            cause,
            grace,
            silent,
        }));
    }

    /// Stops the command because the lease is lost; returns the grace.
    fn stop_lost(&mut self, cause: Cause, now: Boot, effects: &mut Vec<Effect>) -> Duration {
        let grace = match cause {
            Cause::Taken | Cause::Absent | Cause::Foreign => self.terms.lost_grace,
            Cause::Released | Cause::Unanswered | Cause::ClockStepped | Cause::Heartbeat => {
                self.terms.kill_after
            }
        };
        let rest = self
            .kill_deadline()
            .map_or(grace, |deadline| deadline.since(now).min(grace));
        match self.phase {
            Phase::Ending { kill_at } => {
                self.phase = Phase::Ending {
                    kill_at: kill_at.min(now.plus(rest)),
                }
            }
            Phase::Killing => {}
            _ => self.terminate(rest, now, effects),
        }
        rest
    }

    // ---- the release ----

    fn begin_release(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Releasing { .. } | Phase::Done) {
            return;
        }
        let warned = self.lost.is_some() && self.terms.on_lost == OnLost::Warn;
        let others = matches!(self.lost, Some(Cause::Taken | Cause::Foreign));
        if warned || others || self.heartbeat_died {
            return self.finish(effects);
        }
        let attempt = self.terms.ttl.map_or(Duration::from_secs(2), Ttl::attempt);
        // The last renewal may have been carried out at the end of its attempt.
        let gone = self
            .terms
            .ttl
            .map(|ttl| gone_by(self.last_asked.plus(attempt), ttl));
        let release = ReleaseLoop::new(now, None, gone, attempt);
        self.phase = Phase::Releasing {
            release,
            said: false,
        };
    }

    fn drive_release(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        let Phase::Releasing {
            mut release,
            mut said,
        } = self.phase
        else {
            return;
        };
        let next = release.next(now);
        if !said
            && now >= release.began().plus(SAY_AFTER)
            && !matches!(next, release::Next::Done { .. })
        {
            said = true;
            let left = release.gone_by().map(|end| end.since(now));
            effects.push(Effect::Say(Note::CannotRelease { left }));
        }
        self.phase = Phase::Releasing { release, said };
        match next {
            release::Next::Attempt(limit) => effects.push(Effect::Release(limit)),
            release::Next::Pause(_) => {}
            release::Next::Done { confirmed } => {
                self.released = confirmed && self.released;
                self.finish(effects);
            }
        }
    }

    fn release_answered(
        &mut self,
        answer: Answer,
        now: Boot,
        jitter: Jitter,
        effects: &mut Vec<Effect>,
    ) {
        let Phase::Releasing {
            mut release,
            mut said,
        } = self.phase
        else {
            return;
        };
        let definite = match answer {
            Answer::Freed | Answer::Tombstone => true,
            Answer::Absent => {
                if self.lost.is_none() && !release.may_have_succeeded() {
                    effects.push(Effect::Say(Note::AbsentAtRelease));
                }
                true
            }
            // An earlier attempt may have freed it, and another came.
            Answer::Other if release.may_have_succeeded() => true,
            Answer::Other => {
                if self.lost.is_none() {
                    self.lost = Some(Cause::Taken);
                    effects.push(Effect::Say(Note::TakenAtRelease));
                }
                return self.finish(effects);
            }
            Answer::Failed(kind) => {
                if !said && !kind.is_worth_retrying() {
                    said = true;
                    let left = release.gone_by().map(|end| end.since(now));
                    effects.push(Effect::Say(Note::CannotRelease { left }));
                }
                release.answered(release::Answer::Failed(kind), now, jitter);
                false
            }
        };
        if definite {
            self.released = true;
            release.answered(release::Answer::Definite, now, jitter);
        }
        self.phase = Phase::Releasing { release, said };
    }

    fn finish(&mut self, effects: &mut Vec<Effect>) {
        if self.phase != Phase::Done {
            self.phase = Phase::Done;
            effects.push(Effect::Finish);
        }
    }
}

fn earliest<const N: usize>(instants: [Option<Boot>; N]) -> Option<Boot> {
    instants.into_iter().flatten().min()
}

/// The shortest TTL at which two attempts at a renewal fit between the first one and the
/// instant at which the command is told to stop: `0.99·ttl − 2 ms − kill_after − 250 ms ≥
/// 1.1·ttl/3 + 2·attempt`.
pub fn fits(ttl: Ttl, kill_after: Duration) -> bool {
    let length = ttl.length();
    let usable = length.saturating_sub(length / 100);
    let needed =
        length * 11 / 30 + ttl.attempt() * 2 + kill_after + MARGIN + Duration::from_millis(2);
    usable >= needed
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SUCCESS: CommandEnd = CommandEnd::Exited(0);

    fn at(ms: u32) -> Stamp {
        Stamp {
            boot: Boot::at(ms * MS),
            real: Duration::from_secs(1_000_000) + ms * MS,
        }
    }

    /// With a TTL of 10 s: renewed at 3 s, told at 8.648 s, killed at 9.648 s, over at 9.898 s.
    fn terms() -> Terms {
        Terms {
            ttl: Some(Ttl::new(Duration::from_secs(10)).unwrap()),
            kill_after: Duration::from_secs(1),
            lost_grace: Duration::from_secs(1),
            max_runtime: None,
            on_lost: OnLost::Stop,
            leftovers: Leftovers::Wait,
        }
    }

    fn running(terms: Terms) -> Session {
        let mut session = Session::new(terms, at(0), Jitter::default());
        assert_eq!(step(&mut session, Event::Started, 1), []);
        session
    }

    fn step(session: &mut Session, event: Event, ms: u32) -> Vec<Effect> {
        session.step(event, at(ms), Jitter::default())
    }

    #[test]
    fn a_command_that_ends_at_the_deadline_while_the_lease_is_good_keeps_its_code() {
        let mut session = running(terms());
        let ended = Event::Ended(SUCCESS, Left::Nothing);
        let effects = step(&mut session, ended, 8_700);
        assert!(matches!(effects[..], [Effect::Release(_)]), "{effects:?}");
        assert_eq!(session.outcome(false, false), Outcome::Code(0));
    }

    #[test]
    fn a_command_that_ends_at_its_runtime_is_not_stopped() {
        let mut session = running(Terms {
            max_runtime: Some(Duration::from_secs(2)),
            ..terms()
        });
        let ended = Event::Ended(CommandEnd::Exited(3), Left::Nothing);
        let effects = step(&mut session, ended, 2_001);
        assert!(matches!(effects[..], [Effect::Release(_)]), "{effects:?}");
        assert_eq!(session.outcome(false, false), Outcome::Code(3));
    }

    #[test]
    fn a_command_whose_end_is_seen_after_the_expiry_was_lost_and_nobody_is_signalled() {
        let mut session = running(terms());
        let effects = step(&mut session, Event::Ended(SUCCESS, Left::Nothing), 10_000);
        assert!(!effects.contains(&Effect::Terminate) && !effects.contains(&Effect::Kill));
        assert_eq!(session.lost(), Some(Cause::Unanswered));
        assert_eq!(session.outcome(false, false), Outcome::Code(79));
    }

    fn releasing_after_an_unanswered_attempt() -> Session {
        let mut session = running(terms());
        step(&mut session, Event::Ended(SUCCESS, Left::Nothing), 100);
        let unanswered = Event::Released(Answer::Failed(ErrorKind::NoAnswer));
        let effects = step(&mut session, unanswered, 600);
        assert!(matches!(effects[..], [Effect::Release(_)]), "{effects:?}");
        session
    }

    #[test]
    fn a_key_that_an_unanswered_release_deleted_is_not_called_missing() {
        let mut session = releasing_after_an_unanswered_attempt();
        let effects = step(&mut session, Event::Released(Answer::Absent), 710);
        assert_eq!(effects, [Effect::Finish]);
        assert!(session.released());
    }

    #[test]
    fn another_who_came_after_an_unanswered_release_did_not_take_the_lock_from_us() {
        let mut session = releasing_after_an_unanswered_attempt();
        let effects = step(&mut session, Event::Released(Answer::Other), 710);
        assert_eq!(effects, [Effect::Finish]);
        assert_eq!(session.outcome(false, false), Outcome::Code(0));
    }

    #[test]
    fn an_end_that_leaves_nothing_while_the_command_is_being_stopped_is_the_end() {
        let mut session = running(terms());
        step(&mut session, Event::FrontGone, 10);
        let ended = Event::Ended(CommandEnd::Killed(15), Left::Nothing);
        let effects = step(&mut session, ended, 20);
        assert!(matches!(effects[..], [Effect::Release(_)]), "{effects:?}");
    }

    #[test]
    fn a_lease_that_ends_while_a_stopped_command_survives_the_kill_is_lost() {
        let mut session = running(terms());
        step(&mut session, Event::FrontGone, 2_000);
        assert!(step(&mut session, Event::Tick, 3_000).contains(&Effect::Kill));
        step(&mut session, Event::NoAnswer(ErrorKind::NoAnswer), 8_600);
        step(&mut session, Event::Tick, 9_898);
        assert_eq!(session.lost(), Some(Cause::Unanswered));
    }

    #[test]
    fn a_renewal_that_can_no_longer_be_made_is_not_woken_up_for() {
        let mut session = running(terms());
        step(&mut session, Event::FrontGone, 100);
        // The host slept over the renewal's time and the kill.
        step(&mut session, Event::Tick, 9_700);
        assert!(session.wake_at().unwrap() > at(9_700).boot);
    }

    #[test]
    fn a_release_that_hangs_is_waited_for_without_spinning() {
        let mut session = running(Terms {
            ttl: None,
            ..terms()
        });
        step(&mut session, Event::Ended(SUCCESS, Left::Nothing), 100);
        step(&mut session, Event::Tick, 5_000);
        assert_eq!(session.wake_at(), None);
    }

    #[test]
    fn a_heartbeat_that_died_after_the_loss_is_not_asked_to_release() {
        let mut session = running(terms());
        step(&mut session, Event::Lost(Cause::Released), 100);
        step(&mut session, Event::HeartbeatDied, 200);
        let ended = Event::Ended(CommandEnd::Killed(15), Left::Nothing);
        assert_eq!(step(&mut session, ended, 300), [Effect::Finish]);
    }

    #[test]
    fn no_renewal_is_asked_for_in_the_step_that_begins_the_release() {
        let mut session = running(terms());
        let effects = step(&mut session, Event::Ended(SUCCESS, Left::Daemons), 4_000);
        assert!(matches!(effects[..], [Effect::Release(_)]), "{effects:?}");
    }

    #[test]
    fn a_late_answer_after_the_end_says_nothing() {
        let mut session = running(terms());
        step(&mut session, Event::Tick, 3_500);
        step(&mut session, Event::Ended(SUCCESS, Left::Nothing), 3_600);
        step(&mut session, Event::Released(Answer::Freed), 3_610);
        assert!(session.is_done());
        assert_eq!(step(&mut session, Event::TakenBack(at(3_500)), 3_620), []);
    }
}
