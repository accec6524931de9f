//! Every interleaving of a session and what surrounds it on a time grid, explored.
//!
//! A `World` is a session together with the truth that it cannot see: what runs, what the
//! heartbeat is doing, which renewals were confirmed. The exploration takes every move that is
//! possible in a world, holds what the session did against the truth, and goes on from there
//! until no new world is found. It must not share arithmetic with the session: the deadlines
//! are computed here once more.

use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};

use super::*;

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_millis(1200);
const KILL_AFTER: Duration = Duration::from_millis(200);

/// Events happen at multiples of this, and whenever the session wants to be woken.
const GRID: u64 = 300;

/// A host that is stopped or suspended sleeps for one of these.
const SLEEPS: [Duration; 2] = [Duration::from_millis(GRID), Duration::from_secs(3)];

/// What is explored.
#[derive(Clone, Copy, Debug)]
struct Setting {
    terms: Terms,
    jitter: Jitter,
    /// How the command will end.
    end: CommandEnd,
    /// How often something may go wrong around it: a sleep, a clock that is set, the front or
    /// the heartbeat gone, a lost connection, a wish to stop.
    troubles: u8,
    /// Beyond this only the way to the end is explored.
    horizon: Boot,
}

/// What is alive of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tree {
    Starting,
    Running,
    Jobs,
    Daemons,
    Gone,
}

/// What the thread that talks to the server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Beat {
    Idle,
    Renewing { asked: Boot, until: Boot },
    Releasing { asked: Boot, until: Boot },
    Dead,
}

/// One move of what surrounds the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// Time passes until something may happen.
    Wait,
    /// The host sleeps for so long; nobody is woken meanwhile.
    Sleep(Duration),
    /// The wall clock is set forward.
    SetClock,
    /// The session is told.
    Tell(Event),
}

/// A session and the truth around it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "what has happened so far")]
struct World {
    session: Session,
    jitter: Jitter,
    /// How the command will end.
    end: CommandEnd,
    now: Boot,
    tree: Tree,
    beat: Beat,
    /// A renewal that was broken off by the release; its answer may be on the way.
    stale: Option<Boot>,
    /// When the last request was sent whose confirmation the session knows.
    confirmed: Boot,
    /// When KILL is due because of the grace.
    grace_ends: Option<Boot>,
    terminated: bool,
    killed: bool,
    freed: bool,
    /// An attempt to release was not answered.
    release_unanswered: bool,
    front_gone: bool,
    clock_was_set: bool,
    /// How much may still go wrong around it.
    troubles: u8,
}

impl World {
    fn new(setting: &Setting) -> Self {
        let start = Boot::at(Duration::ZERO);
        Self {
            session: Session::new(setting.terms, stamp(start, false), setting.jitter),
            jitter: setting.jitter,
            end: setting.end,
            now: start,
            tree: Tree::Starting,
            beat: Beat::Idle,
            stale: None,
            confirmed: start,
            grace_ends: None,
            terminated: false,
            killed: false,
            freed: false,
            release_unanswered: false,
            front_gone: false,
            clock_was_set: false,
            troubles: setting.troubles,
        }
    }

    // ---- what may happen ----

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        if self.session.wake_at().is_none_or(|at| at > self.now) {
            moves.push(Move::Wait);
        } else {
            moves.push(Move::Tell(Event::Tick));
        }
        if self.troubles > 0 && !self.has_begun_to_release() {
            moves.extend(SLEEPS.map(Move::Sleep));
            if !self.clock_was_set && self.session.terms.ttl.is_some() {
                moves.push(Move::SetClock);
            }
        }
        let mut events = Vec::new();
        self.events_of_the_command(&mut events);
        self.events_of_the_heartbeat(&mut events);
        if !self.front_gone && self.troubles > 0 {
            events.push(Event::FrontGone);
            if self.session.command_has_ended() {
                events.push(Event::StopAsked);
            }
        }
        moves.extend(events.into_iter().map(Move::Tell));
        moves
    }

    fn events_of_the_command(&self, events: &mut Vec<Event>) {
        match self.tree {
            Tree::Starting => events.extend([Event::Started, Event::NotStarted]),
            Tree::Running => {
                let ended = |left| Event::Ended(self.end, left);
                events.extend([Left::Nothing, Left::Daemons, Left::Jobs].map(ended));
            }
            Tree::Jobs => events.extend([
                Event::Left(Left::Jobs),
                Event::Left(Left::Daemons),
                Event::Left(Left::Nothing),
                Event::TreeGone,
            ]),
            Tree::Daemons => events.extend([Event::Left(Left::Nothing), Event::TreeGone]),
            Tree::Gone => events.push(Event::TreeGone),
        }
    }

    fn events_of_the_heartbeat(&self, events: &mut Vec<Event>) {
        if let Some(sent) = self.stale.map(|at| stamp(at, self.clock_was_set)) {
            events.extend([
                Event::Renewed { sent, found: None },
                Event::TakenBack(sent),
                Event::Lost(Cause::Taken),
                Event::NoAnswer(ErrorKind::Interrupted),
            ]);
        }
        match self.beat {
            Beat::Idle if self.troubles > 0 => events.push(Event::News),
            Beat::Renewing { asked, .. } if asked < self.now => {
                let sent = stamp(asked, self.clock_was_set);
                events.extend([
                    Event::Renewed { sent, found: None },
                    Event::TakenBack(sent),
                    Event::Lost(Cause::Taken),
                    Event::Lost(Cause::Absent),
                    Event::Lost(Cause::Released),
                    Event::NoAnswer(ErrorKind::Down),
                    Event::NoAnswer(ErrorKind::NoAnswer),
                ]);
            }
            Beat::Releasing { asked, .. } if asked < self.now => events.extend([
                Event::Released(Answer::Freed),
                Event::Released(Answer::Absent),
                Event::Released(Answer::Tombstone),
                Event::Released(Answer::Other),
                Event::Released(Answer::Failed(ErrorKind::NoAnswer)),
                Event::Released(Answer::Failed(ErrorKind::Refused)),
            ]),
            _ => {}
        }
        if self.beat != Beat::Dead && self.troubles > 0 {
            events.push(Event::HeartbeatDied);
        }
    }

    // ---- moving ----

    /// The world after this move, or what is wrong with it.
    fn after(&self, step: Move) -> Result<Self, String> {
        let mut world = self.clone();
        match step {
            Move::Wait => world.now = self.next_instant(),
            Move::Sleep(length) => {
                world.troubles -= 1;
                world.now = self.now.plus(length);
            }
            Move::SetClock => {
                world.troubles -= 1;
                world.clock_was_set = true;
                world.tell(Event::Tick)?;
            }
            Move::Tell(event) => {
                world.happens(event);
                world.tell(event)?;
            }
        }
        Ok(world)
    }

    fn next_instant(&self) -> Boot {
        let passed = u64::try_from(self.now.since_boot().as_millis()).unwrap();
        let grid = Boot::at(Duration::from_millis((passed / GRID + 1) * GRID));
        let answer = match self.beat {
            Beat::Renewing { until, .. } | Beat::Releasing { until, .. } if until > self.now => {
                Some(until)
            }
            _ => None,
        };
        earliest([Some(grid), self.session.wake_at(), answer]).unwrap()
    }

    /// The truth changes before the session is told.
    fn happens(&mut self, event: Event) {
        match event {
            Event::Started => self.tree = Tree::Running,
            Event::Ended(_, left) | Event::Left(left) => {
                self.tree = match left {
                    Left::Nothing => Tree::Gone,
                    Left::Daemons => Tree::Daemons,
                    Left::Jobs => Tree::Jobs,
                }
            }
            Event::NotStarted | Event::TreeGone => self.tree = Tree::Gone,
            Event::Renewed { .. } | Event::TakenBack(_) | Event::Lost(_) | Event::NoAnswer(_) => {
                if self.stale.take().is_none() {
                    self.beat = Beat::Idle;
                }
            }
            Event::Released(answer) => {
                self.beat = Beat::Idle;
                self.stale = None;
                self.freed |= match answer {
                    Answer::Freed | Answer::Absent | Answer::Tombstone => true,
                    // An unanswered attempt may have freed it for the other.
                    Answer::Other => self.release_unanswered,
                    Answer::Failed(_) => false,
                };
                self.release_unanswered |= answer == Answer::Failed(ErrorKind::NoAnswer);
            }
            Event::HeartbeatDied => {
                self.troubles -= 1;
                self.beat = Beat::Dead;
                self.stale = None;
            }
            Event::FrontGone => {
                self.troubles -= 1;
                self.front_gone = true;
            }
            Event::News | Event::StopAsked => self.troubles -= 1,
            Event::Tick => {}
        }
    }

    fn tell(&mut self, event: Event) -> Result<(), String> {
        let before = self.clone();
        let now = stamp(self.now, self.clock_was_set);
        let effects = self.session.step(event, now, self.jitter);
        if let (Event::Renewed { sent, .. } | Event::TakenBack(sent), None) =
            (event, self.session.lost())
            && !before.has_begun_to_release()
        {
            self.confirmed = self.confirmed.max(sent.boot);
        }
        self.note_grace(&before, &effects);
        for effect in effects {
            self.carry_out(effect, &before)
                .map_err(|fault| format!("{fault}: {effect:?} after {event:?}"))?;
        }
        self.check(&before, event)
            .map_err(|fault| format!("{fault} after {event:?}"))
    }

    /// When KILL is due because of a grace that has begun now.
    fn note_grace(&mut self, before: &Self, effects: &[Effect]) {
        let terms = self.session.terms;
        let mut ends = |grace| {
            let end = self.now.plus(grace);
            self.grace_ends = Some(self.grace_ends.map_or(end, |other| other.min(end)));
        };
        let stop = terms.on_lost == OnLost::Stop;
        match self.session.lost() {
            Some(cause) if stop && before.session.lost().is_none() => ends(match cause {
                Cause::Taken | Cause::Absent | Cause::Foreign => terms.lost_grace,
                _ => terms.kill_after,
            }),
            _ if effects.contains(&Effect::Terminate) => ends(terms.kill_after),
            _ => {}
        }
    }

    // ---- what the session may do ----

    fn carry_out(&mut self, effect: Effect, before: &Self) -> Result<(), String> {
        let ensure = |holds: bool, what: &str| holds.then_some(()).ok_or_else(|| what.to_owned());
        ensure(!before.session.is_done(), "an effect after the end")?;
        match effect {
            Effect::Terminate => {
                ensure(!before.has_begun_to_release(), "a signal after the release")?;
                ensure(self.tree != Tree::Gone, "a signal to nobody")?;
                ensure(!self.terminated, "terminated twice")?;
                self.terminated = true;
            }
            Effect::Kill => {
                ensure(!before.has_begun_to_release(), "a kill after the release")?;
                ensure(self.tree != Tree::Gone, "a kill of nobody")?;
                ensure(self.terminated, "killed without a first signal")?;
                ensure(!self.killed, "killed twice")?;
                let due = before.kill_due().min(self.kill_due());
                ensure(due.is_some_and(|at| self.now >= at), "killed too soon").or_else(
                    |fault| match self.kill_due() {
                        Some(at) if self.now >= at => Ok(()),
                        _ => Err(fault),
                    },
                )?;
                self.killed = true;
            }
            Effect::Renew(limit) => self.renew(limit, ensure)?,
            Effect::Release(limit) => self.release(limit, ensure)?,
            Effect::Finish => ensure(self.may_be_released(), "finished while it runs")?,
            Effect::Say(_) => {}
        }
        Ok(())
    }

    fn renew(
        &mut self,
        limit: Duration,
        ensure: impl Fn(bool, &str) -> Result<(), String>,
    ) -> Result<(), String> {
        ensure(self.beat == Beat::Idle, "two asks at once, or of the dead")?;
        ensure(self.session.lost().is_none(), "renewed what is lost")?;
        ensure(!self.has_begun_to_release(), "renewed what is released")?;
        ensure(limit > Duration::ZERO, "no time for the attempt")?;
        let until = self.now.plus(limit);
        let end = self.terminate_due().unwrap();
        ensure(until <= end, "renewed for longer than may be waited")?;
        self.beat = Beat::Renewing {
            asked: self.now,
            until,
        };
        Ok(())
    }

    fn release(
        &mut self,
        limit: Duration,
        ensure: impl Fn(bool, &str) -> Result<(), String>,
    ) -> Result<(), String> {
        ensure(self.may_be_released(), "released while it runs")?;
        let lost = self.session.lost();
        ensure(
            lost.is_none() || self.session.terms.on_lost == OnLost::Stop,
            "released although it was only to warn",
        )?;
        let others = matches!(lost, Some(Cause::Taken | Cause::Foreign));
        ensure(!others, "released another's lock")?;
        ensure(limit > Duration::ZERO, "no time for the attempt")?;
        match self.beat {
            Beat::Idle => {}
            Beat::Renewing { asked, .. } => self.stale = Some(asked),
            Beat::Releasing { .. } => return Err("two releases at once".into()),
            Beat::Dead => return Err("asked the dead".into()),
        }
        self.beat = Beat::Releasing {
            asked: self.now,
            until: self.now.plus(limit),
        };
        Ok(())
    }

    fn has_begun_to_release(&self) -> bool {
        matches!(self.session.phase, Phase::Releasing { .. } | Phase::Done)
    }

    /// Whether nothing is alive that the lock protects.
    fn may_be_released(&self) -> bool {
        match (self.tree, self.session.terms.leftovers) {
            (Tree::Gone, _) => true,
            (Tree::Daemons, Leftovers::Wait | Leftovers::Ignore)
            | (Tree::Jobs, Leftovers::Ignore) => !self.terminated,
            _ => false,
        }
    }

    /// Whether there is a lease that the session must keep to.
    fn leased(&self) -> bool {
        let terms = self.session.terms;
        terms.ttl.is_some() && (terms.on_lost == OnLost::Stop || self.session.lost().is_none())
    }

    fn expiry(&self) -> Option<Boot> {
        self.leased()
            .then(|| self.confirmed.plus((TTL * 99 / 100).saturating_sub(2 * MS)))
    }

    fn last_kill(&self) -> Option<Boot> {
        Some(self.expiry()?.minus(250 * MS))
    }

    fn terminate_due(&self) -> Option<Boot> {
        Some(self.last_kill()?.minus(self.session.terms.kill_after))
    }

    fn kill_due(&self) -> Option<Boot> {
        earliest([self.grace_ends, self.last_kill()])
    }

    // ---- what must hold after each step ----

    fn check(&self, before: &Self, event: Event) -> Result<(), String> {
        let session = &self.session;
        let ensure = |holds: bool, what: &str| holds.then_some(()).ok_or_else(|| what.to_owned());
        let past = |at: Option<Boot>| at.is_some_and(|at| self.now >= at);
        if !session.is_done() {
            let wake = session.wake_at();
            ensure(
                wake.is_none_or(|at| at > self.now),
                "wants to be woken in the past",
            )?;
            if !self.has_begun_to_release() {
                ensure(!past(self.last_kill()) || self.killed, "not killed in time")?;
                ensure(
                    !self.terminated || self.killed || !past(self.kill_due()),
                    "outlived its grace",
                )?;
                ensure(!past(self.terminate_due()) || self.terminated, "not told")?;
                let next = if self.terminated {
                    self.kill_due().filter(|_| !self.killed)
                } else {
                    self.terminate_due()
                };
                ensure(
                    next.is_none_or(|next| wake.is_some_and(|at| at <= next)),
                    "does not want to be woken for its deadline",
                )?;
                ensure(self.tree != Tree::Gone, "does not see that nothing is left")?;
                let over = past(self.expiry());
                ensure(!over || session.lost().is_some(), "expired but not lost")?;
            }
        }
        self.check_end(before, event)?;
        ensure(!session.released() || self.freed, "released by nobody")?;
        self.check_outcome()
    }

    /// A command that ended by itself while the lease was good was neither lost nor stopped.
    fn check_end(&self, before: &Self, event: Event) -> Result<(), String> {
        let nothing_left = matches!(event, Event::Ended(_, Left::Nothing));
        let good = before.expiry().is_none_or(|at| self.now < at);
        let same = self.session.lost() == before.session.lost()
            && self.session.stopped() == before.session.stopped();
        if nothing_left && good && !same {
            return Err("blamed a command that had ended in time".into());
        }
        if nothing_left && !good && self.session.lost().is_none() {
            return Err("took no notice of the expiry".into());
        }
        Ok(())
    }

    fn check_outcome(&self) -> Result<(), String> {
        let session = &self.session;
        for (preserve, strict) in [(false, false), (false, true), (true, false), (true, true)] {
            let outcome = session.outcome(preserve, strict);
            let own = match (session.lost(), session.stopped()) {
                (Some(_), _) => Some(79),
                (None, Stopped::MaxRuntime) => Some(124),
                _ => None,
            };
            let expected = match (session.command(), own) {
                (None, own) => Outcome::Code(own.unwrap_or(71)),
                (Some(_), Some(own)) if !preserve => Outcome::Code(own),
                (Some(CommandEnd::Exited(0)), _) if strict && !session.released() => {
                    Outcome::Code(74)
                }
                (Some(CommandEnd::Exited(code)), _) => Outcome::Code(code),
                (Some(CommandEnd::Killed(signal)), _) => Outcome::Signal(signal),
            };
            if outcome != expected {
                return Err(format!("{outcome:?} instead of {expected:?}"));
            }
        }
        Ok(())
    }

    // ---- the way to the end ----

    /// The worst that can still happen: no server answers, the command heeds no signal.
    fn worst(&self) -> Move {
        let wake = self.session.wake_at();
        if wake.is_some_and(|at| at <= self.now) {
            return Move::Tell(Event::Tick);
        }
        let endless = self.session.terms.ttl.is_none();
        match (self.tree, self.beat) {
            (Tree::Starting, _) => Move::Tell(Event::Started),
            // Without a deadline it runs for ever unless it ends by itself.
            (Tree::Running, _) if self.killed || !self.leased() => {
                Move::Tell(Event::Ended(self.end, Left::Jobs))
            }
            (Tree::Jobs | Tree::Daemons, _)
                if !self.has_begun_to_release() && (self.killed || !self.leased()) =>
            {
                Move::Tell(Event::TreeGone)
            }
            (_, Beat::Renewing { until, .. }) if self.now >= until => {
                Move::Tell(Event::NoAnswer(ErrorKind::NoAnswer))
            }
            (_, Beat::Releasing { until, .. }) if self.now >= until => {
                Move::Tell(Event::Released(if endless {
                    Answer::Freed
                } else {
                    Answer::Failed(ErrorKind::NoAnswer)
                }))
            }
            _ => Move::Wait,
        }
    }
}

impl World {
    /// Without what can have no effect any more.
    fn essence(&self) -> Self {
        let mut world = self.clone();
        let releasing = self.has_begun_to_release();
        let session = &mut world.session;
        let may_be_stopped = matches!(
            session.phase,
            Phase::Starting | Phase::Running | Phase::Lingering { .. }
        );
        if session.terms.max_runtime.is_none() || !may_be_stopped {
            session.started = None;
        }
        if session.lost.is_some() || releasing {
            session.renewal = Renewal::Due(Boot::default());
            session.retries.reset();
            session.suspected = None;
        }
        if self.killed || releasing {
            world.grace_ends = None;
        }
        if releasing {
            session.lease = None;
            session.last_asked = Boot::default();
            world.confirmed = Boot::default();
        }
        if session.is_done() {
            world.now = Boot::default();
        }
        world
    }
}

fn stamp(boot: Boot, clock_was_set: bool) -> Stamp {
    let ahead = TTL * if clock_was_set { 10 } else { 0 };
    Stamp {
        boot,
        real: Duration::from_secs(1_000_000) + boot.since_boot() + ahead,
    }
}

// ---- the exploration ----

/// A hasher that is fast where nobody attacks it.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(32)
    }
}

/// Worlds that were seen, by 64 bits of their hash: among a million the chance that two share
/// one is below one in ten millions.
#[derive(Default)]
struct Seen(HashSet<u64>);

impl Seen {
    fn is_new(&mut self, world: &World) -> bool {
        let mut hasher = Mixer::default();
        world.essence().hash(&mut hasher);
        self.0.insert(hasher.finish())
    }
}

/// How each world was reached: the number of the one before, the time, the move.
#[derive(Default)]
struct Trail(Vec<(usize, Boot, Move)>);

impl Trail {
    fn tell(&self, mut at: usize) -> String {
        let mut lines = Vec::new();
        while let Some(&(before, now, step)) = self.0.get(at) {
            lines.push(format!("{:?} {step:?}", now.since_boot()));
            at = before;
        }
        lines.reverse();
        lines.join("\n")
    }
}

/// Explores everything that can follow; returns how many worlds there are.
fn explore(setting: &Setting) -> usize {
    let (mut seen, mut ending, mut trail) = (Seen::default(), Seen::default(), Trail::default());
    let first = World::new(setting);
    let mut queue = VecDeque::from([(first, usize::MAX)]);
    while let Some((world, at)) = queue.pop_front() {
        if world.session.is_done() {
            stays_done(&world);
            continue;
        }
        if let Err((fault, world)) = reaches_the_end(&world, &mut ending) {
            panic!("{fault}\n{world:#?}\n{}", trail.tell(at));
        }
        if world.now >= setting.horizon {
            continue;
        }
        for step in world.moves() {
            let next = world.after(step).unwrap_or_else(|fault| {
                let path = trail.tell(at);
                panic!("{fault}\n{world:#?}\n{path}\n{:?} {step:?}", world.now);
            });
            if seen.is_new(&next) {
                queue.push_back((next, trail.0.len()));
                trail.0.push((at, world.now, step));
            }
        }
    }
    seen.0.len()
}

/// Nothing has an effect any more.
fn stays_done(world: &World) {
    let sent = stamp(world.now, world.clock_was_set);
    let late = [
        Event::Tick,
        Event::Renewed { sent, found: None },
        Event::TakenBack(sent),
        Event::Lost(Cause::Taken),
        Event::NoAnswer(ErrorKind::Down),
        Event::News,
        Event::HeartbeatDied,
        Event::Ended(CommandEnd::Exited(0), Left::Jobs),
        Event::TreeGone,
        Event::FrontGone,
        Event::StopAsked,
        Event::Released(Answer::Freed),
    ];
    assert_eq!(world.session.wake_at(), None);
    for event in late {
        let mut session = world.session.clone();
        let now = stamp(world.now.plus(10 * TTL), true);
        assert_eq!(session.step(event, now, world.jitter), [], "{event:?}");
        assert!(session.is_done());
    }
}

/// Follows the worst that can happen until the session is done. Where it has been before the
/// end is known to be reached.
fn reaches_the_end(world: &World, ending: &mut Seen) -> Result<(), (String, Box<World>)> {
    let mut at = world.clone();
    let last = world.now.plus(4 * TTL);
    while !at.session.is_done() && ending.is_new(&at) {
        if at.now > last {
            return Err(("never ends".into(), Box::new(at)));
        }
        at = match at.after(at.worst()) {
            Ok(next) => next,
            Err(fault) => return Err((fault, Box::new(at))),
        };
    }
    Ok(())
}

fn terms(leftovers: Leftovers) -> Terms {
    Terms {
        ttl: Some(Ttl::new(TTL).unwrap()),
        kill_after: KILL_AFTER,
        lost_grace: 50 * MS,
        max_runtime: None,
        on_lost: OnLost::Stop,
        leftovers,
    }
}

const SUCCESS: CommandEnd = CommandEnd::Exited(0);

fn setting(terms: Terms) -> Setting {
    Setting {
        terms,
        jitter: Jitter::default(),
        end: SUCCESS,
        troubles: 1,
        horizon: Boot::at(750 * MS),
    }
}

/// Explores a setting of which there must be at least so many worlds: an exploration that has
/// become empty shall not pass for one that found nothing.
fn explore_at_least(least: usize, setting: &Setting) {
    let found = explore(setting);
    println!("{found} worlds of {setting:?}");
    assert!(found >= least, "only {found} worlds of {setting:?}");
}

#[test]
fn every_interleaving_of_a_run_that_is_stopped_when_its_lease_is_lost() {
    let (wait, kill, ignore) = (
        terms(Leftovers::Wait),
        terms(Leftovers::Kill),
        terms(Leftovers::Ignore),
    );
    explore_at_least(25_000, &setting(wait));
    explore_at_least(35_000, &setting(kill));
    explore_at_least(20_000, &setting(ignore));
    let longest = Setting {
        jitter: Jitter::from_bits(u32::MAX),
        end: CommandEnd::Killed(15),
        ..setting(wait)
    };
    explore_at_least(30_000, &longest);
    let no_grace = Terms {
        kill_after: Duration::ZERO,
        lost_grace: Duration::ZERO,
        ..wait
    };
    explore_at_least(15_000, &setting(no_grace));
}

#[test]
fn every_interleaving_of_a_run_whose_time_is_limited() {
    let limited = Terms {
        max_runtime: Some(450 * MS),
        ..terms(Leftovers::Wait)
    };
    explore_at_least(40_000, &setting(limited));
    let warned = Terms {
        on_lost: OnLost::Warn,
        ..limited
    };
    let failing = Setting {
        end: CommandEnd::Exited(5),
        ..setting(warned)
    };
    explore_at_least(30_000, &failing);
}

#[test]
fn every_interleaving_of_a_run_that_is_only_warned() {
    for leftovers in [Leftovers::Wait, Leftovers::Kill, Leftovers::Ignore] {
        let warned = Terms {
            on_lost: OnLost::Warn,
            ..terms(leftovers)
        };
        explore_at_least(15_000, &setting(warned));
    }
}

#[test]
fn every_interleaving_of_a_run_whose_lock_does_not_end_by_itself() {
    for (leftovers, max_runtime) in [
        (Leftovers::Wait, None),
        (Leftovers::Kill, Some(450 * MS)),
        (Leftovers::Ignore, Some(450 * MS)),
    ] {
        let terms = Terms {
            ttl: None,
            max_runtime,
            ..terms(leftovers)
        };
        let setting = Setting {
            troubles: 3,
            horizon: Boot::at(1300 * MS),
            ..setting(terms)
        };
        explore_at_least(5_000, &setting);
    }
}

#[test]
fn every_interleaving_of_two_troubles_and_of_a_long_run() {
    let wait = setting(terms(Leftovers::Wait));
    let two = Setting {
        troubles: 2,
        horizon: Boot::at(550 * MS),
        ..wait
    };
    explore_at_least(20_000, &two);
    let long = Setting {
        troubles: 0,
        horizon: Boot::at(1300 * MS),
        ..wait
    };
    explore_at_least(25_000, &long);
}
