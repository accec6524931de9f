//! The keeper: parent of the command and holder of the lock. It waits for an event or the
//! session's next deadline, lets the session decide, and carries the effects out.
//!
//! Its main thread alone spawns, signals and reaps. It never waits for the network while the
//! command runs.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::command::{self, Forked};
use super::inherited::Inherited;
use super::link::{Done, Link, ToFront, ToKeeper};
use super::signals::{Arrival, Broadcast, group_of};
use super::sys::{self, Change};
use super::tree::{self, Process};
use super::{anchor, borrow, words};
use crate::backoff::Jitter;
use crate::clock::{Boot, Stamp};
use crate::config::RunSettings;
use crate::heartbeat::{self, Ask, Heartbeat};
use crate::model::{CommandEnd, Hold, Outcome, Token, code, escape};
use crate::output::message::Log;
use crate::session::{Answer, Cause, Effect, Event, Left, Note, Session, Stopped, Terms};
use crate::store::{Keep, LeaseKind, LockStore, Loss, Released, Renewed, StoreError};

/// How often the tree is looked at while it is being killed.
const KILL_ROUND: Duration = Duration::from_millis(2);
/// How often the front is told to go on while the command runs.
const MIRROR_ROUND: Duration = Duration::from_millis(10);
/// How often leftovers are looked at; their ends are told by signals.
const LEFTOVERS_ROUND: Duration = Duration::from_millis(500);

/// The first attempt to release is made without a thread: it must not hold up what is to be
/// said when the release takes its time.
const FIRST_RELEASE: Duration = Duration::from_secs(1);

/// What the front hands over by the fork.
pub(super) struct Handover {
    pub(super) settings: RunSettings,
    pub(super) inherited: Inherited,
    pub(super) store: Box<dyn LockStore>,
    pub(super) hold: Hold,
    pub(super) sent: Stamp,
    pub(super) variables: command::Variables,
    pub(super) log: Log,
    pub(super) link: Link,
    pub(super) anchor: Option<i32>,
}

/// The keeper's life, in the child of the fork.
pub(super) fn run(handover: Handover) -> ! {
    sys::set_process_name(c"distlock-keeper");
    sys::become_subreaper();
    match Keeper::start(handover) {
        Ok(mut keeper) => keeper.keep(),
        Err(failure) => {
            let (mut handover, error) = *failure;
            // Nothing was started: give the lock back and say so by the exit code.
            handover
                .log
                .error(&format!("cannot start the command: {error}"));
            let released = handover
                .store
                .release(
                    &handover.hold,
                    &Keep::default(),
                    handover.settings.ttl.attempt(),
                )
                .is_ok();
            let outcome = i32::from(code::OS);
            handover.link.tell_front(ToFront::Done(Done {
                outcome,
                released,
                stopped: 3,
                ..Done::default()
            }));
            crate::exit::now(0)
        }
    }
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own; the states of the run are the session's"
)]
struct Keeper {
    settings: RunSettings,
    inherited: Inherited,
    session: Session,
    /// `None` once the heartbeat owns it.
    store: Option<Box<dyn LockStore>>,
    /// The first attempt to release has failed: the others are the heartbeat's.
    release_failed: bool,
    heartbeat: Option<Heartbeat>,
    hold: Hold,
    acquired: Boot,
    cooling: String,
    link: Link,
    front_is_there: bool,
    signals: OwnedFd,
    timer: TimerFd,
    clock_set: Option<TimerFd>,
    armed: Option<Boot>,
    anchor: Option<OwnedFd>,
    broadcast: Broadcast,
    log: Log,
    pid: i32,
    command: Forked,
    exec_known: bool,
    exec_error: i32,
    reaped: bool,
    started: Boot,
    ran: Duration,
    /// How often the command has stopped.
    stop: i32,
    stopped: bool,
    /// The front has announced that it stops with the command.
    mirrored: bool,
    killing: bool,
    told_unkillable: Vec<i32>,
    /// What the last failed attempt said, for the messages.
    last_error: String,
    /// What took the lock, for the messages.
    loss: String,
}

impl Keeper {
    fn start(mut handover: Handover) -> Result<Self, Box<(Handover, std::io::Error)>> {
        let pid = nix::unistd::getpid().as_raw();
        let made = Descriptors::make(&handover.inherited).and_then(|descriptors| {
            let front = handover.inherited.pid;
            Ok((
                descriptors,
                command::fork(&handover.settings.command, &handover.variables, front)?,
            ))
        });
        let (descriptors, command) = match made {
            Ok(made) => made,
            Err(error) => return Err(Box::new((handover, error.into()))),
        };
        let anchor = anchor::settle(handover.anchor, &handover.inherited, pid);
        handover.log.use_thread();
        let terms = terms(&handover.settings, handover.store.lease());
        Ok(Self {
            session: Session::new(terms, handover.sent, jitter()),
            settings: handover.settings,
            inherited: handover.inherited,
            store: Some(handover.store),
            release_failed: false,
            heartbeat: None,
            acquired: handover.sent.boot,
            hold: handover.hold,
            cooling: String::new(),
            link: handover.link,
            front_is_there: true,
            signals: descriptors.signals,
            timer: descriptors.timer,
            clock_set: descriptors.clock_set,
            armed: None,
            anchor,
            broadcast: Broadcast::default(),
            log: handover.log,
            pid,
            command,
            exec_known: false,
            exec_error: 0,
            reaped: false,
            started: Boot::now(),
            ran: Duration::ZERO,
            stop: 0,
            stopped: false,
            mirrored: false,
            killing: false,
            told_unkillable: Vec::new(),
            last_error: String::new(),
            loss: String::new(),
        })
    }

    fn keep(&mut self) -> ! {
        loop {
            let ready = self.wait();
            // Deadlines before anything else: we may have been stopped.
            self.step(Event::Tick);
            if self.killing {
                self.kill_round();
            }
            self.hear(&ready);
            self.forward_overdue();
            if self.mirrored && !self.stopped {
                self.wake_front();
            }
            if self.session.is_done() {
                self.finish();
            }
        }
    }

    // ---- waiting ----

    fn wait(&mut self) -> Ready {
        self.arm();
        let timeout = self.round().map_or(PollTimeout::NONE, |round| {
            // Rounded up: a timeout of zero would spin until the instant has come.
            PollTimeout::try_from(round + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        let mut descriptors = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
        ];
        let mut add = |fd: Option<BorrowedFd<'_>>| {
            fd.map(|fd| {
                // The lifetime is that of `self`, which outlives the call.
                descriptors.push(PollFd::new(
                    borrow(std::os::fd::AsRawFd::as_raw_fd(&fd)),
                    PollFlags::POLLIN,
                ));
                descriptors.len() - 1
            })
        };
        let link = add(self.front_is_there.then(|| self.link.as_fd()));
        let clock = add(self.clock_set.as_ref().map(TimerFd::as_fd));
        let exec = add((!self.exec_known).then(|| self.command.exec_error.as_fd()));
        let heartbeat = add(self.heartbeat.as_ref().map(Heartbeat::descriptor));
        let anchor = add(self.anchor.as_ref().map(OwnedFd::as_fd));
        let watch = add(self
            .store
            .as_ref()
            .and_then(|store| store.watch())
            .map(borrow));
        // EINTR cannot come: no handler is installed.
        let _ = poll(&mut descriptors, timeout);
        let is = |index: Option<usize>| {
            index.is_some_and(|index| {
                descriptors[index]
                    .revents()
                    .is_some_and(|events| !events.is_empty())
            })
        };
        Ready {
            signals: is(Some(0)),
            link: is(link),
            clock: is(clock),
            exec: is(exec),
            heartbeat: is(heartbeat),
            anchor: is(anchor),
            watch: is(watch),
        }
    }

    /// What is to be looked at again and again, and how often.
    fn round(&self) -> Option<Duration> {
        let killing = self.killing.then_some(KILL_ROUND);
        let mirror = (self.mirrored && !self.stopped).then_some(MIRROR_ROUND);
        let left = (self.reaped && !self.session.is_done()).then_some(LEFTOVERS_ROUND);
        let pair = self.broadcast.wake_at().map(|at| at.since(Boot::now()));
        [killing, mirror, left, pair].into_iter().flatten().min()
    }

    /// A timer on `CLOCK_BOOTTIME`, which goes on while the host is suspended; poll(2)'s does not.
    fn arm(&mut self) {
        let wake_at = self.session.wake_at();
        if wake_at == self.armed {
            return;
        }
        self.armed = wake_at;
        let _ = match wake_at {
            // A time of zero would disarm it.
            Some(at) => {
                let at = TimeSpec::from_duration(at.since_boot().max(Duration::from_nanos(1)));
                self.timer.set(
                    Expiration::OneShot(at),
                    TimerSetTimeFlags::TFD_TIMER_ABSTIME,
                )
            }
            None => self.timer.unset(),
        };
    }

    fn hear(&mut self, ready: &Ready) {
        if ready.exec {
            self.exec_verdict();
        }
        if ready.signals {
            self.read_signals();
        }
        if ready.link {
            self.read_link();
        }
        if ready.clock {
            self.clock_set = clock_set_timer();
        }
        if ready.heartbeat {
            self.read_heartbeat();
        }
        if ready.anchor {
            self.anchor = anchor::lost(&self.inherited, self.pid);
        }
        if ready.watch && !self.session.command_has_ended() {
            self.connection_lost();
        }
        if self.reaped && !self.killing {
            let left = self.left();
            self.step(Event::Left(left));
        }
        // A timer that has fired stays readable until it is set anew.
        if self.armed.is_some_and(|at| Boot::now() >= at) {
            self.armed = None;
        }
    }

    // ---- the command ----

    fn exec_verdict(&mut self) {
        if std::mem::replace(&mut self.exec_known, true) {
            return;
        }
        match self.command.exec_error() {
            None => {
                self.link.tell_front(ToFront::Running {
                    pid: self.command.pid,
                });
                self.inherited.drop_descriptors();
                self.step(Event::Started);
                self.log
                    .step(&format!("the command runs as pid {}", self.command.pid));
                self.check_command_can_be_signalled();
            }
            Some(errno) => {
                self.exec_error = errno;
                self.step(Event::NotStarted);
            }
        }
    }

    fn check_command_can_be_signalled(&mut self) {
        if !self.reaped && sys::kill(self.command.pid, 0) == Err(nix::Error::EPERM) {
            self.log.warning("the command has changed its user: it cannot be stopped from here; run distlock under sudo instead");
        }
    }

    fn reap(&mut self) {
        self.see_stops();
        loop {
            match sys::peek_any_ended() {
                Ok(Some((pid, status))) if pid == self.command.pid && !self.reaped => {
                    self.command_ended(status);
                }
                Ok(Some((pid, _))) => sys::reap(pid),
                Ok(None) => return,
                Err(_) => return self.step(Event::TreeGone),
            }
        }
    }

    /// The status is told before it is taken: if we are killed in between, the front finds it.
    fn command_ended(&mut self, status: i32) {
        // Before its end is believed: whether it was ever executed.
        self.exec_verdict();
        if self.exec_error == 0 {
            let group = group_of(self.command.pid).unwrap_or(0);
            self.link.tell_front(ToFront::Ended { status, group });
        }
        sys::reap(self.command.pid);
        self.reaped = true;
        self.ran = Boot::now().since(self.started);
        if self.exec_error == 0 {
            let left = self.left();
            self.step(Event::Ended(end_of(status), left));
        }
    }

    fn left(&self) -> Left {
        if sys::peek_any_ended().is_err() {
            return Left::Nothing;
        }
        let descendants = tree::descendants(self.pid);
        if descendants
            .iter()
            .any(|process| process.session == self.inherited.session)
        {
            Left::Jobs
        } else if descendants.is_empty() {
            Left::Nothing
        } else {
            Left::Daemons
        }
    }

    fn see_stops(&mut self) {
        while !self.reaped {
            match sys::take_stop_or_continue(self.command.pid) {
                Some(Change::Stopped(signal)) => {
                    self.stop += 1;
                    self.stopped = true;
                    let group = group_of(self.command.pid).unwrap_or(0);
                    self.link.tell_front(ToFront::Stopped {
                        signal,
                        stop: self.stop,
                        group,
                    });
                }
                Some(_) => {
                    self.stopped = false;
                    self.link.tell_front(ToFront::Continued);
                }
                None => return,
            }
        }
    }

    fn signal_command(&self, signal: i32) {
        if !self.reaped {
            let _ = sys::kill(self.command.pid, signal);
        }
    }

    // ---- signals and the front ----

    fn read_signals(&mut self) {
        while let Some(arrival) = Arrival::read(std::os::fd::AsRawFd::as_raw_fd(&self.signals)) {
            if arrival.signal == libc::SIGCHLD {
                self.reap();
            } else {
                self.broadcast.keeper_got(arrival, Boot::now());
            }
        }
    }

    fn read_link(&mut self) {
        loop {
            match self.link.next_for_keeper() {
                Ok(Some(ToKeeper::Signal {
                    signal,
                    code,
                    sender,
                })) => self.front_got(Arrival {
                    signal,
                    code,
                    sender,
                }),
                Ok(Some(ToKeeper::Mirror)) => self.mirrored = true,
                Ok(Some(ToKeeper::Resumed { stop })) => self.resumed(stop),
                Ok(Some(ToKeeper::Go { group })) => drop(sys::kill(-group, libc::SIGCONT)),
                Ok(None) => return,
                Err(_) => {
                    self.front_is_there = false;
                    return self.step(Event::FrontGone);
                }
            }
        }
    }

    fn front_got(&mut self, arrival: Arrival) {
        if self.session.command_has_ended() {
            if arrival.is_end() {
                self.step(Event::StopAsked);
            }
            return;
        }
        let group = group_of(self.command.pid).unwrap_or(self.inherited.group);
        if arrival.is_for_command(self.command.pid, group, &self.inherited)
            && self
                .broadcast
                .front_got(arrival, &self.inherited, Boot::now())
        {
            self.signal_command(arrival.signal);
        }
    }

    fn forward_overdue(&mut self) {
        for arrival in self.broadcast.overdue(Boot::now()) {
            if self.session.command_has_ended() {
                if arrival.is_end() {
                    self.step(Event::StopAsked);
                }
                continue;
            }
            let group = group_of(self.command.pid).unwrap_or(self.inherited.group);
            if arrival.is_for_command(self.command.pid, group, &self.inherited) {
                self.signal_command(arrival.signal);
            }
        }
    }

    /// The front runs again after `stop`: if that is still the newest stop, so shall the command.
    fn resumed(&mut self, stop: i32) {
        self.mirrored = false;
        self.see_stops();
        let is_stopped =
            Process::read(self.command.pid).is_some_and(|process| process.is_stopped());
        if stop == self.stop && is_stopped && !self.reaped {
            let leads = group_of(self.command.pid) == Some(self.command.pid);
            let target = if leads {
                -self.command.pid
            } else {
                self.command.pid
            };
            let _ = sys::kill(target, libc::SIGCONT);
        }
    }

    /// The command runs while the front is stopped, or about to be: it shall run too.
    fn wake_front(&mut self) {
        if Process::read(self.inherited.pid).is_some_and(|front| front.is_stopped()) {
            let _ = sys::kill(self.inherited.pid, libc::SIGCONT);
        }
    }

    // ---- the lock ----

    fn connection_lost(&mut self) {
        if let Some(store) = &mut self.store {
            store.disconnect();
        }
        self.step(Event::News);
    }

    fn ask(&mut self, ask: Ask) {
        if let (None, Some(store)) = (&self.heartbeat, self.store.take()) {
            self.heartbeat = Heartbeat::start(store, self.hold.clone())
                .inspect_err(|error| {
                    self.last_error = format!("cannot start the heartbeat: {error}");
                })
                .ok();
        }
        match &self.heartbeat {
            Some(heartbeat) => heartbeat.ask(ask),
            None => self.step(Event::HeartbeatDied),
        }
    }

    fn read_heartbeat(&mut self) {
        while let Some(answer) = self.heartbeat.as_ref().and_then(Heartbeat::answer) {
            match answer {
                heartbeat::Answer::Renewed(result) => self.renewed(result),
                heartbeat::Answer::Released(result) => self.released(result),
                heartbeat::Answer::ConnectionLost => self.step(Event::News),
                heartbeat::Answer::Died => self.step(Event::HeartbeatDied),
            }
        }
    }

    fn renewed(&mut self, result: Result<Renewed, StoreError>) {
        let event = match result {
            Ok(Renewed::Renewed { sent, found }) => {
                self.log.step("renewed");
                Event::Renewed { sent, found }
            }
            Ok(Renewed::TakenBack { sent }) => Event::TakenBack(sent),
            Ok(Renewed::Lost(loss)) => {
                self.loss = words::loss(&loss);
                Event::Lost(cause(&loss))
            }
            Err(error) => {
                self.log.step(&format!("cannot renew: {error}"));
                self.last_error = error.text;
                Event::NoAnswer(error.kind)
            }
        };
        self.step(event);
    }

    fn release(&mut self, limit: Duration) {
        let keep = self.keep_taken();
        let Some(store) = self.store.as_mut().filter(|_| !self.release_failed) else {
            return self.ask(Ask::Release(keep, limit));
        };
        // The first attempt is made here, a thread is not worth its while; the front's
        // messages break it off.
        if self.front_is_there {
            store.interrupt_by(&[self.link.as_fd()]);
        }
        let result = store.release(&self.hold, &keep, limit.min(FIRST_RELEASE));
        self.release_failed = result.is_err();
        self.released(result);
    }

    fn released(&mut self, result: Result<Released, StoreError>) {
        let answer = match result {
            Ok(Released::Freed) => {
                self.log.step("released");
                Answer::Freed
            }
            Ok(Released::Absent) => Answer::Absent,
            Ok(Released::Tombstone { .. }) => Answer::Tombstone,
            Ok(Released::Other(holding)) => {
                self.loss = words::loss(&Loss::Taken(holding));
                Answer::Other
            }
            Err(error) => {
                self.last_error = error.text;
                Answer::Failed(error.kind)
            }
        };
        self.step(Event::Released(answer));
    }

    /// The rest of `--hold-at-least`; nothing ran, nothing is kept.
    fn keep_taken(&mut self) -> Keep {
        let least = self.settings.hold_at_least;
        if least.is_zero() || self.exec_error != 0 {
            return Keep::default();
        }
        let elapsed = Boot::now().since(self.acquired);
        let record = &self.hold.claim.record;
        if self.cooling.is_empty()
            && let (Ok(token), Some(since)) = (Token::random(), record.since())
        {
            self.cooling = record.cooling(&token, since.plus(elapsed)).to_json();
        }
        Keep {
            rest: least.saturating_sub(elapsed),
            cooling: self.cooling.clone(),
        }
    }

    // ---- the session ----

    fn step(&mut self, event: Event) {
        let effects = self.session.step(event, Stamp::now(), jitter());
        // Signals first, words afterwards.
        let (says, acts): (Vec<_>, Vec<_>) = effects
            .into_iter()
            .partition(|effect| matches!(effect, Effect::Say(_)));
        for effect in acts.into_iter().chain(says) {
            match effect {
                Effect::Renew(limit) => self.ask(Ask::Renew(limit)),
                Effect::Release(limit) => self.release(limit),
                Effect::Terminate => self.terminate(),
                Effect::Kill => {
                    self.killing = true;
                    self.kill_round();
                }
                Effect::Say(note) => self.say(note),
                Effect::Finish => {}
            }
        }
    }

    fn terminate(&mut self) {
        let signal = self.settings.signal;
        self.signal_command(signal);
        self.signal_command(libc::SIGCONT);
        let mut others = tree::descendants(self.pid);
        others.retain(|process| process.pid != self.command.pid || self.reaped);
        let refused = tree::signal_all(&others, signal);
        tree::signal_all(&others, libc::SIGCONT);
        self.tell_unkillable(&refused);
        self.reap();
    }

    /// Until no child is left, which proves that no descendant lives: we are their reaper.
    fn kill_round(&mut self) {
        self.signal_command(libc::SIGKILL);
        let refused = tree::signal_all(&tree::descendants(self.pid), libc::SIGKILL);
        self.tell_unkillable(&refused);
        self.reap();
    }

    fn tell_unkillable(&mut self, pids: &[i32]) {
        for &pid in pids {
            if !self.told_unkillable.contains(&pid) {
                self.told_unkillable.push(pid);
                self.log.error(&format!(
                    "cannot stop pid {pid}: not permitted; waiting for it to end"
                ));
            }
        }
    }

    fn say(&mut self, note: Note) {
        let left = match note {
            Note::WaitingForLeftovers | Note::EndingLeftovers => self.name_leftovers(),
            _ => String::new(),
        };
        let situation = words::Situation {
            settings: &self.settings,
            loss: &self.loss,
            last_error: &self.last_error,
            left: &left,
        };
        let text = situation.sentence(note);
        match note {
            Note::WaitingForLeftovers | Note::EndingLeftovers => self.log.notice(&text),
            Note::Lost { .. } | Note::TakenAtRelease => self.log.error(&text),
            Note::MaxRuntime if self.settings.preserve_status => self.log.notice(&text),
            _ => self.log.warning(&text),
        }
    }

    fn name_leftovers(&self) -> String {
        let names = tree::descendants(self.pid)
            .into_iter()
            .map(|process| format!("{} ({})", process.pid, process.name));
        escape(&names.collect::<Vec<_>>().join(", "), 200)
    }

    fn finish(&mut self) -> ! {
        let (preserve, strict) = (self.settings.preserve_status, self.settings.strict_release);
        let outcome = match self.session.outcome(preserve, strict) {
            Outcome::Code(code) => i32::from(code),
            Outcome::Signal(signal) => -signal,
        };
        let stopped = match (self.session.lost(), self.session.stopped()) {
            (Some(_), _) => 1,
            (None, Stopped::MaxRuntime) => 2,
            _ => 0,
        };
        let exec_error = self.exec_error;
        let ran_ms = u64::try_from(self.ran.as_millis()).unwrap_or(u64::MAX);
        if let (1, Some(end)) = (stopped, self.session.command()) {
            self.log.notice(&format!("the command {end}"));
        }
        self.log.flush();
        self.link.tell_front(ToFront::Done(Done {
            outcome,
            exec_error,
            stopped,
            released: self.session.released(),
            ran_ms,
        }));
        if self.stop > 0 || self.mirrored {
            self.wake_front();
        }
        crate::exit::now(0)
    }
}

/// What poll(2) found.
#[expect(clippy::struct_excessive_bools, reason = "one for each descriptor")]
struct Ready {
    signals: bool,
    link: bool,
    clock: bool,
    exec: bool,
    heartbeat: bool,
    anchor: bool,
    watch: bool,
}

/// The descriptors that the keeper needs, made before the command.
struct Descriptors {
    signals: OwnedFd,
    timer: TimerFd,
    clock_set: Option<TimerFd>,
}

impl Descriptors {
    fn make(inherited: &Inherited) -> Result<Self, nix::Error> {
        Ok(Self {
            signals: sys::signal_descriptor(inherited.handled)?,
            timer: TimerFd::new(
                ClockId::CLOCK_BOOTTIME,
                TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
            )?,
            clock_set: clock_set_timer(),
        })
    }
}

/// Readable when the wall clock is set (`timerfd_create(2)`, `TFD_TIMER_CANCEL_ON_SET`).
fn clock_set_timer() -> Option<TimerFd> {
    let timer = TimerFd::new(
        ClockId::CLOCK_REALTIME,
        TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
    )
    .ok()?;
    let never = Stamp::now().real + Duration::from_secs(10 * 365 * 86_400);
    let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
    timer
        .set(Expiration::OneShot(TimeSpec::from_duration(never)), flags)
        .ok()?;
    Some(timer)
}

fn terms(settings: &RunSettings, lease: LeaseKind) -> Terms {
    Terms {
        ttl: (lease == LeaseKind::Ttl).then_some(settings.ttl),
        kill_after: settings.kill_after,
        lost_grace: settings.lost_grace,
        max_runtime: settings.max_runtime,
        on_lost: settings.on_lost,
        leftovers: settings.leftovers,
    }
}

fn cause(loss: &Loss) -> Cause {
    match loss {
        Loss::Absent => Cause::Absent,
        Loss::Taken(_) => Cause::Taken,
        Loss::Released { .. } => Cause::Released,
        Loss::Foreign(_) => Cause::Foreign,
    }
}

/// Decodes a wait(2) status; real-time signals too.
pub(super) fn end_of(status: i32) -> CommandEnd {
    use std::os::unix::process::ExitStatusExt as _;
    let status = std::process::ExitStatus::from_raw(status);
    match (status.code(), status.signal()) {
        (_, Some(signal)) => CommandEnd::Killed(signal),
        (code, None) => {
            CommandEnd::Exited(u8::try_from(code.unwrap_or_default()).unwrap_or(u8::MAX))
        }
    }
}

/// A random number for the pure machines; a fixed one if the system has none.
pub(super) fn jitter() -> Jitter {
    Jitter::from_bits(getrandom::u32().unwrap_or(1 << 31))
}
