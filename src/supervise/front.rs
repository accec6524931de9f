//! The front: the process that the caller started. It contends for the lock, forks the keeper,
//! and from then on passes signals on, mirrors the command's stops and the command's end.
//!
//! It knows no lock then, and waits for nothing but signals and the keeper's messages. If the
//! keeper dies it ends the command's tree itself.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Duration;

use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use super::anchor;
use super::command::{self, Variables};
use super::contend::{Granted, contend};
use super::inherited::Inherited;
use super::keeper::{self, Handover, end_of};
use super::link::{Done, Gone, Link, ToFront, ToKeeper};
use super::report::Report;
use super::signals::Arrival;
use super::sys::{self, Change};
use super::tree::{self, Process};
use crate::clock::Boot;
use crate::config::RunSettings;
use crate::lease::Lease;
use crate::model::{Hold, Outcome, code};
use crate::output::message::Log;
use crate::store::{Keep, LeaseKind, LockStore};

/// How often the tree is looked at while it is being killed.
const KILL_ROUND: Duration = Duration::from_millis(2);

/// Takes the lock, runs the command, and says how this process is to end.
pub fn run(settings: RunSettings) -> Outcome {
    let mut log = Log::new(settings.key.name.as_str(), settings.logging);
    for warning in &settings.warnings {
        log.warning(warning);
    }
    if let Some(file) = &settings.connection.config_file {
        log.step(&format!("settings from {}", file.display()));
    }
    let mut report = match Report::open(settings.report.as_deref()) {
        Ok(report) => report,
        Err(error) => {
            log.error(&format!("cannot write the report: {error}"));
            return Outcome::Code(code::USAGE);
        }
    };
    let outcome = run_and_report(settings, &mut log, &mut report);
    if let Err(error) = report.write() {
        log.error(&format!("cannot write the report: {error}"));
    }
    log.flush();
    outcome
}

fn run_and_report(settings: RunSettings, log: &mut Log, report: &mut Report) -> Outcome {
    let inherited = Inherited::take();
    if std::fs::exists("/proc/self").is_ok_and(|is_there| !is_there) {
        log.warning(
            "/proc is not mounted: what the command leaves running cannot be found and ended",
        );
    }
    if command::is_missing(&settings.command[0]) {
        report.outcome("not-started");
        return not_executed(libc::ENOENT, &settings.command[0], log);
    }
    let began = Boot::now();
    let granted = contend(&settings, &inherited, log);
    report.waited(Boot::now().since(began));
    match granted {
        Ok(granted) => {
            report.fence(granted.hold.fence);
            let id = &granted.hold.claim.id;
            let fence = granted
                .hold
                .fence
                .map_or_else(String::new, |fence| format!(", fencing token {fence}"));
            log.step(&format!("held as {id}{fence}"));
            hold(settings, inherited, granted, log, report)
        }
        Err(refused) => {
            report.outcome(refused.report);
            refused.outcome
        }
    }
}

/// Forks the keeper and waits for the end of it.
fn hold(
    settings: RunSettings,
    inherited: Inherited,
    granted: Granted,
    log: &mut Log,
    report: &mut Report,
) -> Outcome {
    let lease = granted.store.lease();
    let limit = settings.ttl.attempt();
    match Front::start(settings, inherited, granted, log) {
        Ok(mut front) => {
            if lease == LeaseKind::Ttl {
                // Without a word: the connection is the keeper's now. A descriptor that holds
                // the lock stays open until nothing of the command is left.
                front.store = None;
            }
            front.stand(log, report)
        }
        Err(failure) => {
            let Failure {
                mut store,
                hold,
                error,
            } = *failure;
            log.error(&format!("cannot start the command: {}", error.desc()));
            let released = store.release(&hold, &Keep::default(), limit).is_ok();
            report.outcome("error");
            report.ended(0, released);
            Outcome::Code(code::OS)
        }
    }
}

/// The keeper could not be started.
struct Failure {
    store: Box<dyn LockStore>,
    hold: Hold,
    error: nix::Error,
}

struct Front {
    inherited: Inherited,
    program: std::ffi::OsString,
    signals: OwnedFd,
    link: Link,
    /// Nothing comes over the link any more.
    link_ended: bool,
    keeper: i32,
    /// Children that were there before: the caller's, none of the command's tree.
    strangers: Vec<Process>,
    store: Option<Box<dyn LockStore>>,
    command: Option<i32>,
    status: Option<i32>,
    done: Option<Done>,
    /// The command has stopped and we have not yet.
    wish: Option<Stop>,
    /// The number of the command's last stop.
    last_stop: i32,
    terminal: Option<OwnedFd>,
    /// The command's group where it was seen to be another than ours.
    own_group: Option<i32>,
}

#[derive(Clone, Copy)]
struct Stop {
    signal: i32,
    group: i32,
}

impl Front {
    fn start(
        settings: RunSettings,
        inherited: Inherited,
        granted: Granted,
        log: &mut Log,
    ) -> Result<Self, Box<Failure>> {
        sys::become_subreaper();
        let strangers = if sys::peek_any_ended().is_ok() {
            tree::descendants(inherited.pid)
        } else {
            Vec::new()
        };
        let made = sys::signal_descriptor(inherited.handled)
            .and_then(|signals| Ok((signals, Link::pair()?)));
        let Granted { store, hold, sent } = granted;
        let (signals, (link, keepers_end)) = match made {
            Ok(made) => made,
            Err(error) => return Err(Box::new(Failure { store, hold, error })),
        };
        let handover = Handover {
            variables: variables(&settings, &hold, sent, store.lease()),
            anchor: anchor::find(&inherited),
            link: keepers_end,
            log: log.clone(),
            settings,
            inherited,
            store,
            hold,
            sent,
        };
        debug_assert_eq!(threads(), 1, "fork(2) copies one thread only");
        match sys::fork() {
            Ok(Some(keeper)) => {
                log.use_thread();
                Ok(Self::new(handover, keeper, signals, link, strangers))
            }
            Ok(None) => {
                // The front's end must exist nowhere else: its closing is how its death is seen.
                drop((link, signals));
                keeper::run(handover)
            }
            Err(error) => {
                let Handover { store, hold, .. } = handover;
                Err(Box::new(Failure { store, hold, error }))
            }
        }
    }

    fn new(
        handover: Handover,
        keeper: i32,
        signals: OwnedFd,
        link: Link,
        strangers: Vec<Process>,
    ) -> Self {
        let mut command = handover.settings.command.into_iter();
        Self {
            inherited: handover.inherited,
            program: command.next().unwrap_or_default(),
            signals,
            link,
            link_ended: false,
            keeper,
            strangers,
            store: Some(handover.store),
            command: None,
            status: None,
            done: None,
            wish: None,
            last_stop: 0,
            terminal: None,
            own_group: None,
        }
    }

    fn stand(&mut self, log: &mut Log, report: &mut Report) -> Outcome {
        let mut keeper_has_ended = false;
        loop {
            self.wait(PollTimeout::NONE);
            // Messages before signals: a stop that was undone meanwhile must not be mirrored.
            self.read_link();
            if self.done.is_none() {
                keeper_has_ended |= self.read_signals();
            }
            if self.done.is_none() && keeper_has_ended {
                // Its last words may have come in between.
                self.read_link();
                if self.done.is_none() {
                    return self.keeper_died(log, report);
                }
            }
            if let Some(done) = self.done {
                return self.finish(done, log, report);
            }
            keeper_has_ended |= self.mirror();
        }
    }

    fn wait(&self, timeout: PollTimeout) {
        let mut descriptors = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if !self.link_ended {
            descriptors.push(PollFd::new(self.link.as_fd(), PollFlags::POLLIN));
        }
        // EINTR cannot come: no handler is installed.
        let _ = poll(&mut descriptors, timeout);
    }

    fn read_link(&mut self) {
        loop {
            match self.link.next_for_front() {
                Ok(Some(message)) => self.hear(message),
                Ok(None) => return,
                Err(Gone) => {
                    self.link_ended = true;
                    return;
                }
            }
        }
    }

    fn hear(&mut self, message: ToFront) {
        match message {
            ToFront::Running { pid } => {
                self.command = Some(pid);
                self.inherited.drop_descriptors();
            }
            ToFront::Stopped {
                signal,
                stop,
                group,
            } => {
                self.last_stop = stop;
                self.see_group(group);
                self.wish = Some(Stop { signal, group });
            }
            ToFront::Continued => self.wish = None,
            ToFront::Ended { status, group } => {
                self.see_group(group);
                self.status = Some(status);
                self.wish = None;
            }
            ToFront::Done(done) => self.done = Some(done),
        }
    }

    fn see_group(&mut self, group: i32) {
        self.own_group = Some(group).filter(|&own| own != 0 && own != self.inherited.group);
    }

    /// Whether the keeper has ended.
    fn read_signals(&mut self) -> bool {
        let mut keeper_has_ended = false;
        while let Some(arrival) = Arrival::read(self.signals.as_raw_fd()) {
            match arrival.signal {
                libc::SIGCHLD => keeper_has_ended |= self.look_after_children(),
                libc::SIGCONT => {
                    self.wish = None;
                    self.pass_terminal_on();
                    self.link.tell_keeper(ToKeeper::Resumed {
                        stop: self.last_stop,
                    });
                }
                signal => self.link.tell_keeper(ToKeeper::Signal {
                    signal,
                    code: arrival.code,
                    sender: arrival.sender,
                }),
            }
        }
        keeper_has_ended
    }

    /// Continues the keeper if someone stopped it, and reaps strangers.
    fn look_after_children(&mut self) -> bool {
        while let Some(change) = sys::take_stop_or_continue(self.keeper) {
            if matches!(change, Change::Stopped(_)) {
                let _ = sys::kill(self.keeper, libc::SIGCONT);
            }
        }
        while let Ok(Some((pid, _))) = sys::peek_any_ended() {
            if pid == self.keeper {
                return true;
            }
            if Some(pid) == self.command {
                // Only a keeper that is dead leaves it to us; its own end is seen next.
                return true;
            }
            sys::reap(pid);
        }
        false
    }

    // ---- job control ----

    /// Stops as the command has stopped, so that the caller's shell sees it. Whether the keeper
    /// has ended meanwhile.
    fn mirror(&mut self) -> bool {
        let (Some(stop), Some(command)) = (self.wish.take(), self.command) else {
            return false;
        };
        if self.hand_over_terminal(stop)
            || !Process::read(command).is_some_and(|process| process.is_stopped())
        {
            return false;
        }
        self.link.tell_keeper(ToKeeper::Mirror);
        sys::stop_by(stop.signal, self.inherited.mask());
        // What has continued us belongs to this stop: it is read before the message of a next
        // one, which it must not undo.
        self.read_signals()
    }

    /// A command in a group of its own was stopped because it is not in the foreground, while
    /// its job is: the terminal is given to its group. (As in sudo.)
    fn hand_over_terminal(&mut self, stop: Stop) -> bool {
        let reads_or_writes = matches!(stop.signal, libc::SIGTTIN | libc::SIGTTOU);
        if !reads_or_writes || stop.group == self.inherited.group || stop.group == 0 {
            return false;
        }
        let Some(terminal) = self.terminal() else {
            return false;
        };
        if sys::foreground_group(terminal) != Some(self.inherited.group)
            || !sys::set_foreground_group(terminal, stop.group)
        {
            return false;
        }
        self.link.tell_keeper(ToKeeper::Go { group: stop.group });
        true
    }

    /// `fg` gave the terminal to our group. Where we lead it, that was meant for the command,
    /// even if it has made a group of its own: without us that would be the job's group.
    fn pass_terminal_on(&mut self) {
        let Some(group) = self.own_group else { return };
        if self.inherited.group == self.inherited.pid
            && let Some(terminal) = self.terminal()
            && sys::foreground_group(terminal) == Some(self.inherited.group)
        {
            sys::set_foreground_group(terminal, group);
        }
    }

    /// A shell takes the terminal back only from the group that its job began with.
    fn take_terminal_back(&mut self) {
        let Some(group) = self.own_group.take() else {
            return;
        };
        if let Some(terminal) = self.terminal()
            && sys::foreground_group(terminal) == Some(group)
        {
            sys::set_foreground_group(terminal, self.inherited.group);
        }
    }

    fn terminal(&mut self) -> Option<i32> {
        if self.terminal.is_none() {
            self.terminal = open(
                "/dev/tty",
                OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOCTTY,
                Mode::empty(),
            )
            .ok();
        }
        self.terminal.as_ref().map(OwnedFd::as_raw_fd)
    }

    // ---- the end ----

    fn finish(&mut self, done: Done, log: &mut Log, report: &mut Report) -> Outcome {
        // Reaped, so that the caller's `time` counts the command.
        sys::wait_for(self.keeper);
        self.take_terminal_back();
        report.ended(done.ran_ms, done.released);
        report.outcome(done.reported());
        if let Some(status) = self.status {
            report.command(end_of(status));
        }
        if done.exec_error != 0 {
            return not_executed(done.exec_error, &self.program, log);
        }
        match u8::try_from(done.outcome) {
            Ok(code) => Outcome::Code(code),
            Err(_) => Outcome::Signal(-done.outcome),
        }
    }

    /// Everything below the keeper is ours now, and is ended.
    fn keeper_died(&mut self, log: &mut Log, report: &mut Report) -> Outcome {
        sys::wait_for(self.keeper);
        self.kill_tree(log);
        self.take_terminal_back();
        log.error("the keeper was killed: the command's processes are ended; the lock is free by itself when its TTL is over");
        report.outcome("keeper-killed");
        match self.status {
            Some(status) => {
                report.command(end_of(status));
                end_of(status).into()
            }
            None => Outcome::Code(code::OS),
        }
    }

    /// Until no child is left, which proves that no descendant lives: we are their reaper.
    fn kill_tree(&mut self, log: &mut Log) {
        let mut told = Vec::new();
        while self.reap_all() {
            let mut doomed = tree::descendants(self.inherited.pid);
            doomed.retain(|process| !self.strangers.iter().any(|stranger| stranger.is(process)));
            if doomed.is_empty() && !self.strangers.is_empty() {
                return;
            }
            for pid in tree::signal_all(&doomed, libc::SIGKILL) {
                if !told.contains(&pid) {
                    told.push(pid);
                    log.error(&format!(
                        "cannot stop pid {pid}: not permitted; waiting for it to end"
                    ));
                }
            }
            self.link_ended = true;
            self.wait(PollTimeout::try_from(KILL_ROUND).unwrap_or(PollTimeout::ZERO));
            while Arrival::read(self.signals.as_raw_fd()).is_some() {}
        }
    }

    /// Reaps what has ended; whether a child is left.
    fn reap_all(&mut self) -> bool {
        loop {
            match sys::peek_any_ended() {
                Ok(Some((pid, status))) => {
                    // KILL was the keeper's death or ours: that says nothing of the command.
                    if Some(pid) == self.command
                        && self.status.is_none()
                        && status & 0x7f != libc::SIGKILL
                    {
                        self.status = Some(status);
                    }
                    sys::reap(pid);
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// The exec failed: what is said, and the exit code.
fn not_executed(errno: i32, program: &OsStr, log: &mut Log) -> Outcome {
    let (code, why) = command::exec_failure(errno);
    let shown = crate::model::escape(&program.to_string_lossy(), 160);
    let hint = if command::is_shell_builtin(program) {
        format!("; it is a shell builtin: use -c '{shown} ...'")
    } else {
        String::new()
    };
    log.error(&format!("cannot run {shown:?}: {why}{hint}"));
    Outcome::Code(code)
}

fn variables(
    settings: &RunSettings,
    hold: &Hold,
    sent: crate::clock::Stamp,
    lease: LeaseKind,
) -> Variables {
    let id = hold.claim.id.to_string();
    let ids = settings
        .enclosing
        .iter()
        .map(ToString::to_string)
        .chain([id.clone()])
        .collect::<Vec<_>>()
        .join(" ");
    let mut variables = vec![
        ("DISTLOCK_NAME", Some(settings.key.name.to_string())),
        ("DISTLOCK_ID", Some(id)),
        ("DISTLOCK_IDS", Some(ids)),
        ("DISTLOCK_FENCE", hold.fence.map(|fence| fence.to_string())),
        ("DISTLOCK_HELD", Some("1".into())),
    ];
    let expiry = Lease::new(sent, settings.ttl, settings.kill_after)
        .expiry()
        .since(sent.boot);
    let expiry = sent.real.saturating_add(expiry).as_secs().to_string();
    variables.push((
        "DISTLOCK_EXPIRY",
        (lease == LeaseKind::Ttl).then_some(expiry),
    ));
    Variables(variables)
}

/// How many threads this process has.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}
