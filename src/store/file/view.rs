//! A lock file looked at from outside, without locking it.

use std::time::Duration;

use nix::poll::{PollTimeout, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;

use super::content::{self, Content, Found};
use super::{FencingToken, Holding, LockKey, TimeLeft, is_of_this_boot, proc};
use crate::clock::{Boot, ServerTime};

/// How often a file that is just being written is read again, with a millisecond between.
const READINGS: usize = 10;

/// A lock at one moment.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// What stood in its file.
    pub(super) content: Content,
    /// What that and the kernel's table of locks say.
    pub(super) state: State,
    /// Whether the two agree; if not, the record may be that of an earlier holder.
    pub(super) is_certain: bool,
}

/// Whether a lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody has it.
    Free,
    /// A process has it.
    Held,
    /// Nobody has it, but it stays taken for so long.
    Cooling(Duration),
}

/// Why a file tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// A system call failed.
    System(Errno),
    /// It is not a lock file of ours.
    Foreign,
    /// Who has it is hidden from us.
    Hidden,
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl View {
    /// What is known beyond doubt.
    pub(super) fn certain(content: Content, state: State) -> Self {
        Self {
            content,
            state,
            is_certain: true,
        }
    }

    /// Looks at a lock file.
    pub(super) fn of(file: impl AsFd) -> Result<Self, Error> {
        Self::look(file, false)
    }

    /// Looks at a lock file that another had locked a moment ago.
    pub(super) fn of_locked(file: impl AsFd) -> Result<Self, Error> {
        Self::look(file, true)
    }

    fn look(file: impl AsFd, known_held: bool) -> Result<Self, Error> {
        let file = file.as_fd();
        let identity = proc::FileIdentity::of(file)?;
        let boot = proc::boot_id();
        let mut last = Content::default();
        for reading in 0..READINGS {
            if reading > 0 {
                // A pause of a millisecond; the holder writes its record right after locking.
                let _ = poll(&mut [], PollTimeout::from(1u8));
            }
            let Some(content) = read(file)? else { continue };
            let held = match is_held(&identity, &content) {
                Err(Error::Hidden) if known_held => false,
                other => other?,
            };
            if read(file)?.as_ref() != Some(&content) {
                continue;
            }
            last = content;
            if let Some(rest) = last.cooling(&boot, Boot::now()) {
                return Ok(Self::certain(last, State::Cooling(rest)));
            }
            match (held, last.running().is_some()) {
                (true, true) => return Ok(Self::certain(last, State::Held)),
                (false, _) if !known_held => return Ok(Self::certain(last, State::Free)),
                (false, _) => return Ok(Self::doubtful(last)),
                // Locked, and its record not written yet.
                (true, false) => {}
            }
        }
        // Nobody of ours takes so long: a program that locks without a record, as flock(1), or
        // a file that was cut by a crash of the host.
        let content = Content {
            value: String::new(),
            ..last
        };
        let state = if known_held || proc::is_locked(&identity) {
            State::Held
        } else {
            State::Free
        };
        Ok(Self::certain(content, state))
    }

    fn doubtful(content: Content) -> Self {
        Self {
            content,
            state: State::Held,
            is_certain: false,
        }
    }

    /// As others are told it.
    pub(super) fn into_holding(self, key: &LockKey) -> Holding {
        let left = match self.state {
            State::Cooling(rest) => TimeLeft::For(rest),
            State::Held | State::Free => TimeLeft::WhileHeld,
        };
        let now = ServerTime::of_this_host();
        let mut holding = Holding::new(key.clone(), self.content.value.into_bytes(), left, now);
        holding.fence = (self.content.fence > 0).then_some(FencingToken(self.content.fence));
        holding
    }
}

/// `None`: half written, to be read again.
fn read(file: impl AsFd) -> Result<Option<Content>, Error> {
    match content::read(file)? {
        Found::Whole(content) => Ok(Some(content)),
        Found::Empty => Ok(Some(Content::default())),
        Found::Damaged => Ok(None),
        Found::Foreign => Err(Error::Foreign),
    }
}

fn is_held(identity: &proc::FileIdentity, content: &Content) -> Result<bool, Error> {
    if proc::is_locked(identity) {
        return Ok(true);
    }
    let namespace = proc::pid_namespace();
    let may_run = content.running().is_some_and(|r| is_of_this_boot(&r));
    if !may_run || !proc::hides_locks(namespace) {
        return Ok(false);
    }
    if content.pid_namespace != namespace {
        return Err(Error::Hidden);
    }
    Ok(proc::is_locked_by_any_process(identity))
}
