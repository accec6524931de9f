//! The forced release: an operator ends the holder, or what is left of `--hold-at-least`.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::content::{self, Content};
use super::open::Locked;
use super::view::View;
use super::{FileStore, is_of_this_boot, proc};
use crate::model::Holding;
use crate::store::{ErrorKind, Evict, Evicted, StoreError};

impl FileStore {
    /// Frees a lock that nobody has but that stays taken for `--hold-at-least`.
    pub(super) fn end_cooling(
        &self,
        directory: &OwnedFd,
        leaf: &str,
        seen: &Holding,
    ) -> Result<Evicted, StoreError> {
        let changed = |view: View| Evicted::Changed(Box::new(view.into_holding(&seen.key)));
        let file = match self.lock(directory, leaf)? {
            Locked::Ours(file) => file,
            Locked::Busy(view) => return Ok(changed(view)),
        };
        let Some(content) = self.ours(&file, leaf, &seen.key.name)? else {
            return Ok(Evicted::Absent);
        };
        if content.value.as_bytes() != seen.value {
            return Ok(Evicted::Absent);
        }
        let free = Content {
            held_until: None,
            value: String::new(),
            ..content.clone()
        };
        content::write(&file, &free, Some(&content)).map_err(|e| self.at(leaf, e.into()))?;
        Ok(Evicted::Done)
    }

    /// Tells the holder's front to end: TERM, or KILL where it is to be free at once.
    pub(super) fn signal(
        &self,
        content: &Content,
        file: &OwnedFd,
        how: &Evict,
    ) -> Result<(), StoreError> {
        let pid = front_of(content)?;
        let ended = || {
            let text = format!(
                "its front (pid {pid}) has ended; it is free when what is left of the command has been stopped"
            );
            StoreError::new(ErrorKind::NoAnswer, text)
        };
        // The process is pinned first and looked at then: its pid may be another's already.
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(ended)?;
        let front = pidfd_open(raw, PidfdFlags::empty()).map_err(|_| ended())?;
        let identity = proc::FileIdentity::of(file).map_err(|e| self.at("", e.into()))?;
        match proc::is_locked_by_process(pid, &identity) {
            Some(true) => {}
            Some(false) => return Err(ended()),
            None => return Err(forbidden(pid, "look at")),
        }
        let signal = match how {
            Evict::Tombstone { .. } => Signal::TERM,
            Evict::Now => Signal::KILL,
        };
        pidfd_send_signal(&front, signal).map_err(|e| match e {
            Errno::SRCH => ended(),
            _ => forbidden(pid, "signal"),
        })
    }
}

fn forbidden(pid: u32, act: &str) -> StoreError {
    let text = format!("may not {act} pid {pid}: permission denied");
    StoreError::new(ErrorKind::Refused, text)
}

/// The pid of the holder's front, where it is one of ours to signal.
fn front_of(content: &Content) -> Result<u32, StoreError> {
    let no = |text: String| Err(StoreError::new(ErrorKind::Unsupported, text));
    let Some(record) = content.running() else {
        return no("held by a program that is not distlock; end that itself".to_owned());
    };
    let pid = record.pid;
    if content.pid_namespace != proc::pid_namespace() || !is_of_this_boot(&record) {
        return no(format!(
            "pid {pid} belongs to another pid namespace (a container); release it there"
        ));
    }
    Ok(pid)
}
