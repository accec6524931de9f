//! Contending for the lock, in the front, before there is a keeper: attempts that are bounded,
//! pauses that end with a signal, and giving up without leaving anything behind.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::inherited::Inherited;
use super::keeper::jitter;
use super::signals::Arrival;
use super::sys::{self, bit};
use crate::clock::{Boot, Stamp};
use crate::config::RunSettings;
use crate::contest::{Answer, Contest, Next, Verdict};
use crate::identity;
use crate::lease::{Lease, gone_by};
use crate::model::{Claim, Hold, Holding, Outcome, Wait, code};
use crate::output::message::Log;
use crate::output::words;
use crate::release::{self, ReleaseLoop};
use crate::store::{self, Acquired, ErrorKind, Keep, LeaseKind, LockStore, Released, StoreError};

/// A person at a terminal is told after this what is waited for, a log file after that.
const SAY_ON_TERMINAL: Duration = Duration::from_millis(400);
const SAY_ELSEWHERE: Duration = Duration::from_secs(30);

/// After this a person is told that giving up takes its time.
const SAY_GIVING_UP: Duration = Duration::from_secs(1);

/// Signals whose default is to be ignored; they do not end an attempt.
const INDIFFERENT: u64 =
    bit(libc::SIGCHLD) | bit(libc::SIGCONT) | bit(libc::SIGWINCH) | bit(libc::SIGURG);

/// A lock that is ours.
pub(super) struct Granted {
    pub(super) store: Box<dyn LockStore>,
    pub(super) hold: Hold,
    /// The stamp from before the request.
    pub(super) sent: Stamp,
}

/// A contest that was not won.
pub(super) struct NotGranted {
    /// How we are to end.
    pub(super) outcome: Outcome,
    /// The same for the report.
    pub(super) report: &'static str,
}

impl NotGranted {
    fn new(outcome: Outcome, report: &'static str) -> Self {
        Self { outcome, report }
    }

    fn unavailable(code: u8) -> Self {
        Self::new(
            Outcome::Code(code),
            if code == code::REFUSED {
                "refused"
            } else {
                "unavailable"
            },
        )
    }
}

/// Contends for the lock until it is held, or until it is not worth while any more.
pub(super) fn contend(
    settings: &RunSettings,
    inherited: &Inherited,
    log: &mut Log,
) -> Result<Granted, NotGranted> {
    let signals = sys::signal_descriptor(inherited.handled & !INDIFFERENT).map_err(|error| {
        log.error(&format!("cannot read signals: {}", error.desc()));
        NotGranted::new(Outcome::Code(code::OS), "error")
    })?;
    let connection = &settings.connection;
    let store = store::open(&connection.server, &connection.access).map(|mut store| {
        store.interrupt_by(&[signals.as_fd()]);
        store
    });
    let now = Boot::now();
    let mut contender = Contender {
        contest: Contest::new(now, settings.wait, connection.connect_timeout),
        settings,
        inherited,
        log,
        signals,
        claim: None,
        unanswered: Vec::new(),
        last: Last::Nothing,
        said: false,
    };
    match store {
        Ok(mut store) => {
            contender.pause_by_jitter()?;
            let (hold, sent) = contender.contend(store.as_mut())?;
            store.interrupt_by(&[]);
            Ok(Granted { store, hold, sent })
        }
        Err(error) => Err(contender.refused_by_error(error.kind, &error.text)),
    }
}

struct Contender<'a> {
    settings: &'a RunSettings,
    inherited: &'a Inherited,
    log: &'a mut Log,
    signals: OwnedFd,
    contest: Contest,
    /// What is presented; `None` after a definite refusal.
    claim: Option<Claim>,
    /// Claims that were presented and not answered: they may yet take effect.
    unanswered: Vec<Claim>,
    last: Last,
    /// The waiting line was said.
    said: bool,
}

/// The last answer.
enum Last {
    Nothing,
    Held(Box<Holding>),
    Error(String),
}

impl Contender<'_> {
    fn contend(&mut self, store: &mut dyn LockStore) -> Result<(Hold, Stamp), NotGranted> {
        loop {
            if let Some(signal) = self.signal() {
                self.leave(store);
                return Err(NotGranted::new(Outcome::Signal(signal), "signalled"));
            }
            match self.contest.next(Boot::now()) {
                Next::Attempt { fresh } => {
                    if let Some(granted) = self.attempt(store, fresh)? {
                        return Ok(granted);
                    }
                }
                Next::Pause(until) => self.pause(until),
                Next::GiveUp(verdict) => return Err(self.give_up(store, verdict)),
            }
        }
    }

    fn attempt(
        &mut self,
        store: &mut dyn LockStore,
        fresh: bool,
    ) -> Result<Option<(Hold, Stamp)>, NotGranted> {
        if fresh {
            self.claim = None;
        }
        match self.ask(store) {
            Ok((claim, Acquired::Granted { sent, fence })) => {
                let hold = Hold { claim, fence };
                Ok(self.use_if_in_time(store, hold, sent))
            }
            Ok((_, Acquired::Held(holding))) => {
                self.held(store, *holding)?;
                Ok(None)
            }
            Err(error) => {
                self.failed(error);
                Ok(None)
            }
        }
    }

    /// The greeting brings the server's time, the claim is made with it, the acquire follows.
    fn ask(&mut self, store: &mut dyn LockStore) -> Result<(Claim, Acquired), StoreError> {
        let limit = self.settings.connection.connect_timeout;
        let now = store.clock(limit)?;
        let claim = match self.claim.take() {
            Some(claim) => claim,
            None => self.fresh_claim(now)?,
        };
        let answer = store.acquire(&claim, limit);
        if let Err(StoreError {
            effective_until: Some(_),
            ..
        }) = &answer
        {
            self.claim = Some(claim.clone());
            if !self.unanswered.contains(&claim) {
                self.unanswered.push(claim.clone());
            }
        }
        answer.map(|answer| (claim, answer))
    }

    fn fresh_claim(&self, now: crate::clock::ServerTime) -> Result<Claim, StoreError> {
        let settings = self.settings;
        let holder = identity::holder(&settings.command[0], settings.reason.clone());
        Claim::new(settings.key.clone(), &holder, now, settings.ttl).map_err(|error| {
            StoreError::new(ErrorKind::Local, format!("no random numbers: {error}"))
        })
    }

    /// The command must still have time to start and to be stopped.
    fn use_if_in_time(
        &mut self,
        store: &mut dyn LockStore,
        hold: Hold,
        sent: Stamp,
    ) -> Option<(Hold, Stamp)> {
        let settings = self.settings;
        let lease = Lease::new(sent, settings.ttl, settings.kill_after);
        let latest = lease.terminate_at().minus(settings.ttl.attempt());
        if store.lease() == LeaseKind::Descriptor || Boot::now() < latest {
            return Some((hold, sent));
        }
        self.log.step("granted too late to be used; released");
        let gone = gone_by(Boot::now(), settings.ttl);
        self.release(
            store,
            &hold,
            ReleaseLoop::new(Boot::now(), None, Some(gone), settings.ttl.attempt()),
        );
        self.contest.granted_too_late(Boot::now());
        None
    }

    fn held(&mut self, store: &mut dyn LockStore, holding: Holding) -> Result<(), NotGranted> {
        let now = Boot::now();
        if let Some(at) = self
            .unanswered
            .iter()
            .position(|claim| claim.value.as_bytes() == holding.value)
        {
            // Our own earlier request took effect after its time.
            let hold = Hold {
                claim: self.unanswered[at].clone(),
                fence: None,
            };
            let _ = store.release(
                &hold,
                &Keep::default(),
                self.settings.connection.connect_timeout,
            );
            self.contest.granted_too_late(now);
            return Ok(());
        }
        if let Some(id) = self.enclosing(&holding) {
            self.log.error(&format!(
                "held by the run that this one is nested in (id {id}): waiting for it would never end; use another name, or do not lock twice"
            ));
            return Err(NotGranted::new(Outcome::Code(code::USAGE), "usage"));
        }
        self.contest
            .answered(Answer::Held(holding.left), now, jitter());
        self.last = Last::Held(Box::new(holding));
        Ok(())
    }

    fn enclosing(&self, holding: &Holding) -> Option<String> {
        let id = &holding.record.as_ref()?.id;
        self.settings
            .enclosing
            .iter()
            .any(|known| known.as_str() == id)
            .then(|| id.clone())
    }

    fn failed(&mut self, error: StoreError) {
        let (kind, effective_until) = (error.kind, error.effective_until);
        if kind != ErrorKind::Interrupted {
            self.log.step(&format!(
                "{}: {}",
                self.settings.connection.server, error.text
            ));
            self.last = Last::Error(error.text);
        }
        self.contest.answered(
            Answer::Failed {
                kind,
                effective_until,
            },
            Boot::now(),
            jitter(),
        );
    }

    // ---- pausing ----

    fn pause_by_jitter(&mut self) -> Result<(), NotGranted> {
        let until = Boot::now().plus(jitter().of(self.settings.jitter));
        while Boot::now() < until {
            self.poll_until(until);
            if let Some(signal) = self.signal() {
                return Err(NotGranted::new(Outcome::Signal(signal), "signalled"));
            }
        }
        // The time to wait counts from the first attempt.
        self.contest = Contest::new(
            Boot::now(),
            self.settings.wait,
            self.settings.connection.connect_timeout,
        );
        Ok(())
    }

    fn pause(&mut self, until: Boot) {
        let say_at = self.say_at();
        if say_at.is_some_and(|at| Boot::now() >= at) {
            self.said = true;
            self.say_waiting();
            return;
        }
        self.poll_until(say_at.map_or(until, |at| at.min(until)));
    }

    fn say_at(&self) -> Option<Boot> {
        if self.said || self.settings.wait == Wait::No {
            return None;
        }
        let after = if self.log.is_on_terminal() {
            SAY_ON_TERMINAL
        } else {
            SAY_ELSEWHERE
        };
        Some(self.contest.began().plus(after))
    }

    fn say_waiting(&mut self) {
        let text = match &self.last {
            Last::Held(holding) => format!("waiting: {}", words::refusal(holding)),
            Last::Error(text) => format!(
                "waiting: cannot ask {}: {text}",
                self.settings.connection.server
            ),
            Last::Nothing => "waiting".into(),
        };
        self.log.notice(&text);
    }

    fn poll_until(&self, until: Boot) {
        let rest = until.since(Boot::now()) + Duration::from_millis(1);
        let mut descriptors = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let _ = poll(
            &mut descriptors,
            PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX),
        );
    }

    /// A signal that ends us; those that stop us do so here.
    fn signal(&self) -> Option<i32> {
        while let Some(arrival) = Arrival::read(self.signals.as_raw_fd()) {
            if arrival.is_deadly() {
                return Some(arrival.signal);
            }
            sys::stop_by(arrival.signal, self.inherited.mask());
        }
        None
    }

    // ---- giving up ----

    fn give_up(&mut self, store: &mut dyn LockStore, verdict: Verdict) -> NotGranted {
        self.leave(store);
        match (verdict, std::mem::replace(&mut self.last, Last::Nothing)) {
            (Verdict::Held, Last::Held(holding)) => {
                let waited = self.waited();
                self.log
                    .notice(&format!("{waited}{}", words::refusal(&holding)));
                NotGranted::new(Outcome::Code(self.settings.conflict_exit_code), "held")
            }
            (Verdict::Failed(kind), Last::Error(text)) => self.refused_by_error(kind, &text),
            (Verdict::Held | Verdict::Failed(_), _) => {
                self.refused_by_error(ErrorKind::NoAnswer, "no answer")
            }
        }
    }

    fn waited(&self) -> String {
        match self.settings.wait {
            Wait::For(limit) => format!("waited {}: ", words::length(limit)),
            Wait::No | Wait::Forever => String::new(),
        }
    }

    fn refused_by_error(&mut self, kind: ErrorKind, text: &str) -> NotGranted {
        let server = &self.settings.connection.server;
        self.log
            .error(&format!("cannot take the lock on {server}: {text}"));
        NotGranted::unavailable(kind.exit_code())
    }

    /// Releases what may have been taken by requests that were not answered.
    fn leave(&mut self, store: &mut dyn LockStore) {
        let Some(doubt) = self.contest.doubt_until() else {
            return;
        };
        let gone = gone_by(doubt, self.settings.ttl);
        for claim in std::mem::take(&mut self.unanswered) {
            let hold = Hold { claim, fence: None };
            let attempt = self.settings.connection.connect_timeout;
            if !self.release(
                store,
                &hold,
                ReleaseLoop::new(Boot::now(), Some(doubt), Some(gone), attempt),
            ) {
                return;
            }
        }
    }

    /// Whether it came to its end; a signal ends it early.
    fn release(
        &mut self,
        store: &mut dyn LockStore,
        hold: &Hold,
        mut release: ReleaseLoop,
    ) -> bool {
        let (mut said, mut error) = (false, String::from("no answer to the acquire"));
        loop {
            if self.signal().is_some() {
                return false;
            }
            let now = Boot::now();
            if !said && now >= release.began().plus(SAY_GIVING_UP) {
                said = true;
                self.say_giving_up(&error, release.gone_by());
            }
            match release.next(now) {
                release::Next::Attempt(limit) => {
                    let limit = if said {
                        limit
                    } else {
                        limit.min(SAY_GIVING_UP)
                    };
                    let answer = match store.release(hold, &Keep::default(), limit) {
                        Ok(
                            Released::Freed
                            | Released::Absent
                            | Released::Tombstone { .. }
                            | Released::Other(_),
                        ) => release::Answer::Definite,
                        Err(failed) => {
                            error = failed.text;
                            release::Answer::Failed(failed.kind)
                        }
                    };
                    release.answered(answer, Boot::now(), jitter());
                }
                release::Next::Pause(until) => self.poll_until(if said {
                    until
                } else {
                    until.min(release.began().plus(SAY_GIVING_UP))
                }),
                release::Next::Done { .. } => return true,
            }
        }
    }

    fn say_giving_up(&mut self, error: &str, gone_by: Option<Boot>) {
        let server = &self.settings.connection.server;
        let free = gone_by.map_or_else(String::new, |end| {
            format!(
                "; free by itself in {}",
                words::length(end.since(Boot::now()))
            )
        });
        self.log.warning(&format!("cannot make sure that the lock was not taken: {server}: {error}{free}; TERM ends the waiting"));
    }
}
