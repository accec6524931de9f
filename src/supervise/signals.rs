//! Which signal of whom reaches the command: the origin rule and the broadcast rule.

use std::time::Duration;

use super::inherited::Inherited;
use super::sys;
use crate::clock::Boot;

/// What `si_code` says when the kernel itself (the terminal, a timer) sent a signal.
const SI_KERNEL: i32 = 0x80;

/// How long the second copy of a signal to the whole service is waited for.
const PAIR: Duration = Duration::from_millis(50);

/// A signal that arrived at one of our processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) signal: i32,
    pub(super) code: i32,
    pub(super) sender: i32,
}

impl Arrival {
    /// The next one from a signalfd.
    pub(super) fn read(fd: std::os::fd::RawFd) -> Option<Self> {
        sys::read_signal(fd).map(|(signal, code, sender)| Self {
            signal,
            code,
            sender,
        })
    }

    /// Whether it asks us to end.
    pub(super) fn is_end(self) -> bool {
        matches!(
            self.signal,
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT
        )
    }

    /// Whether its default action would have ended the process.
    pub(super) fn is_deadly(self) -> bool {
        !matches!(
            self.signal,
            libc::SIGCHLD
                | libc::SIGCONT
                | libc::SIGWINCH
                | libc::SIGURG
                | libc::SIGTSTP
                | libc::SIGTTIN
                | libc::SIGTTOU
        )
    }

    /// Whether the command, in process group `group`, shall get this signal that the front got.
    /// (As in sudo, but a member of our group other than the command itself is forwarded.)
    pub(super) fn is_for_command(self, command: i32, group: i32, inherited: &Inherited) -> bool {
        let from_terminal = matches!(
            self.signal,
            libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP | libc::SIGWINCH
        );
        let stops = matches!(
            self.signal,
            libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU | libc::SIGWINCH
        );
        if self.code == SI_KERNEL {
            return match self.signal {
                _ if from_terminal => group != inherited.group,
                libc::SIGTTIN | libc::SIGTTOU => false,
                // A closed terminal is told to the session's leader only.
                libc::SIGHUP => inherited.session == inherited.pid,
                _ => true,
            };
        }
        let sender_group = group_of(self.sender);
        if self.sender == command || sender_group == Some(command) {
            return false;
        }
        !(stops && sender_group == Some(inherited.group))
    }
}

/// The process group of a process.
pub(super) fn group_of(pid: i32) -> Option<i32> {
    (pid > 0)
        .then(|| nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid))).ok())
        .flatten()
        .map(nix::unistd::Pid::as_raw)
}

/// Which process got a copy of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    Front,
    /// The front's, forwarded already: only the keeper's copy is to be dropped.
    Forwarded,
    Keeper,
}

/// Tells a signal to one process from one to the whole service (systemd's
/// `KillMode=control-group`), where the command has its own copy: then the keeper has one too.
#[derive(Debug, Default)]
pub(super) struct Broadcast {
    waiting: Vec<(Arrival, Copy, Boot)>,
}

impl Broadcast {
    /// The front got it and it is for the command: whether to forward it now.
    pub(super) fn front_got(&mut self, arrival: Arrival, inherited: &Inherited, now: Boot) -> bool {
        let whole_service = arrival.sender == 1 || arrival.sender == inherited.parent;
        if self.take(arrival, Copy::Keeper) {
            return !whole_service;
        }
        let copy = if whole_service {
            Copy::Front
        } else {
            Copy::Forwarded
        };
        self.waiting.push((arrival, copy, now.plus(PAIR)));
        !whole_service
    }

    /// The keeper got a copy of its own.
    pub(super) fn keeper_got(&mut self, arrival: Arrival, now: Boot) {
        let known = self.take(arrival, Copy::Front) || self.take(arrival, Copy::Forwarded);
        let for_us = arrival.code != SI_KERNEL && arrival.is_deadly();
        if !known && for_us {
            self.waiting.push((arrival, Copy::Keeper, now.plus(PAIR)));
        }
    }

    /// Those whose second copy did not come: they are to be forwarded now.
    pub(super) fn overdue(&mut self, now: Boot) -> Vec<Arrival> {
        let due = self.waiting.extract_if(.., |(_, _, due)| *due <= now);
        due.filter(|(_, copy, _)| *copy != Copy::Forwarded)
            .map(|(arrival, ..)| arrival)
            .collect()
    }

    /// When the next is overdue.
    pub(super) fn wake_at(&self) -> Option<Boot> {
        self.waiting.iter().map(|(_, _, due)| *due).min()
    }

    fn take(&mut self, arrival: Arrival, copy: Copy) -> bool {
        let same = |entry: &(Arrival, Copy, Boot)| {
            entry.0.signal == arrival.signal && entry.0.sender == arrival.sender && entry.1 == copy
        };
        self.waiting
            .iter()
            .position(same)
            .map(|index| self.waiting.remove(index))
            .is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited() -> Inherited {
        Inherited {
            handled: 0,
            descriptors: Vec::new(),
            parent: 500,
            pid: 600,
            group: 600,
            session: 400,
        }
    }

    fn term(sender: i32) -> Arrival {
        Arrival {
            signal: libc::SIGTERM,
            code: 0,
            sender,
        }
    }

    const LATER: Boot = Boot::at(Duration::from_secs(1));

    #[test]
    fn a_signal_to_the_whole_service_is_not_forwarded_in_either_order() {
        for keeper_first in [true, false] {
            let mut broadcast = Broadcast::default();
            if keeper_first {
                broadcast.keeper_got(term(1), Boot::default());
            }
            assert!(!broadcast.front_got(term(1), &inherited(), Boot::default()));
            if !keeper_first {
                broadcast.keeper_got(term(1), Boot::default());
            }
            assert_eq!(broadcast.overdue(LATER), []);
        }
    }

    #[test]
    fn a_signal_to_one_of_us_is_forwarded_once() {
        let mut broadcast = Broadcast::default();
        assert!(!broadcast.front_got(term(500), &inherited(), Boot::default()));
        assert_eq!(broadcast.overdue(LATER), [term(500)]);
        broadcast.keeper_got(term(77), Boot::default());
        assert_eq!(broadcast.overdue(LATER), [term(77)]);
        assert!(broadcast.front_got(term(77), &inherited(), Boot::default()));
        broadcast.keeper_got(term(77), Boot::default());
        assert_eq!(broadcast.overdue(LATER), []);
    }

    #[test]
    fn the_terminals_signals_are_the_commands_own_while_it_shares_our_group() {
        let interrupt = Arrival {
            signal: libc::SIGINT,
            code: SI_KERNEL,
            sender: 0,
        };
        assert!(!interrupt.is_for_command(601, 600, &inherited()));
        assert!(interrupt.is_for_command(601, 601, &inherited()));
        let alarm = Arrival {
            signal: libc::SIGALRM,
            code: SI_KERNEL,
            sender: 0,
        };
        assert!(alarm.is_for_command(601, 600, &inherited()));
    }
}
