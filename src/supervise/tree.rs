//! The descendants of this process: who they are, and signalling all of them.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::sys;

/// A process as `/proc/PID/stat` shows it.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) state: char,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    pub(super) name: String,
    started: u64,
}

impl Process {
    /// Reads `/proc/PID/stat`; `None` if there is no such process.
    pub(super) fn read(pid: i32) -> Option<Self> {
        // One read: the line is shorter than this, and half a millisecond is spent here where
        // all processes are looked at.
        let mut line = [0; 512];
        let length = File::open(format!("/proc/{pid}/stat"))
            .ok()?
            .read(&mut line)
            .ok()?;
        let stat = String::from_utf8_lossy(&line[..length]);
        // The name stands in parentheses and may hold any character, parentheses too: proc(5).
        let (open, close) = (stat.find('(')?, stat.rfind(')')?);
        let mut fields = stat[close + 1..].split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.parse::<i64>().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        let started = fields.nth(15)?.parse().ok()?;
        Some(Self {
            pid,
            state,
            parent: i32::try_from(parent).ok()?,
            group: i32::try_from(group).ok()?,
            session: i32::try_from(session).ok()?,
            name: stat[open + 1..close].to_owned(),
            started,
        })
    }

    /// Whether both are the same process, and not one that got its pid later.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.pid == other.pid && self.started == other.started
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// Every process that `/proc` shows.
pub(super) fn all_processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(Process::read).collect()
}

/// The living descendants of `root`, itself left out.
pub(super) fn descendants(root: i32) -> Vec<Process> {
    let mut by_parent: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all_processes() {
        by_parent.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut todo) = (Vec::new(), vec![root]);
    while let Some(parent) = todo.pop() {
        for process in by_parent.remove(&parent).unwrap_or_default() {
            todo.push(process.pid);
            found.push(process);
        }
    }
    found.retain(Process::is_alive);
    found
}

/// Sends `signal` to all of them; the pids that may not be signalled.
pub(super) fn signal_all(processes: &[Process], signal: i32) -> Vec<i32> {
    processes
        .iter()
        .filter(|process| signal_one(process, signal) == Err(nix::Error::EPERM))
        .map(|process| process.pid)
        .collect()
}

/// A pid may be another process by now: the descriptor pins the process, the second look at
/// its start time tells whether it is still the one that was seen (`pidfd_open(2)`).
fn signal_one(process: &Process, signal: i32) -> Result<(), nix::Error> {
    let Some(pid) = Pid::from_raw(process.pid) else {
        return Ok(());
    };
    let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
        return same(process).map_or(Ok(()), |()| sys::kill(process.pid, signal));
    };
    if same(process).is_none() {
        return Ok(());
    }
    match Signal::from_named_raw(signal) {
        Some(named) => pidfd_send_signal(&descriptor, named)
            .map_err(|e| nix::Error::from_raw(e.raw_os_error())),
        None => sys::kill(process.pid, signal),
    }
}

fn same(process: &Process) -> Option<()> {
    Process::read(process.pid)?.is(process).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read_from_proc() {
        let own = i32::try_from(std::process::id()).unwrap();
        let process = Process::read(own).unwrap();
        assert_eq!(process.parent, nix::unistd::getppid().as_raw());
        assert_eq!(process.group, nix::unistd::getpgrp().as_raw());
        assert!(all_processes().iter().any(|process| process.pid == own));
    }
}
