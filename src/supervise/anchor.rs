//! Where the keeper goes, so that the kernel treats the command's process group as if we were
//! not there.
//!
//! A group is orphaned, and cannot be stopped by the terminal, when no member has a parent in
//! the same session and another group (setpgid(2), credentials(7)). The *anchor* is such a
//! parent, usually the interactive shell. The keeper is the command's parent: in a group of
//! its own it is an anchor too, in a session of its own it is none.

use std::os::fd::OwnedFd;

use nix::unistd::{Pid, getpgid, getsid, setpgid, setsid};
use rustix::process::{PidfdFlags, pidfd_open};

use super::inherited::Inherited;
use super::sys;
use super::tree::{Process, all_processes};

/// The anchor of the front's group, if it has one.
pub(super) fn find(inherited: &Inherited) -> Option<i32> {
    if inherited.group == inherited.session {
        // The parent of a session's leader is in another session.
        return None;
    }
    // Mostly an ancestor is the anchor: the shell, above a script that called us.
    let mut ancestor = inherited.parent;
    while getsid(Some(Pid::from_raw(ancestor))).is_ok_and(|id| id.as_raw() == inherited.session) {
        if getpgid(Some(Pid::from_raw(ancestor))).is_ok_and(|id| id.as_raw() != inherited.group) {
            return Some(ancestor);
        }
        ancestor = Process::read(ancestor)?.parent;
    }
    scan(inherited, 0)
}

/// Leaves the front's group, in the keeper; a descriptor that is readable when the anchor ends.
pub(super) fn settle(anchor: Option<i32>, inherited: &Inherited, keeper: i32) -> Option<OwnedFd> {
    let own = Pid::from_raw(0);
    if anchor.is_none() || setpgid(own, own).is_err() {
        let _ = setsid();
        return None;
    }
    let watched = anchor.and_then(watch);
    if watched.is_some() {
        watched
    } else {
        lost(inherited, keeper)
    }
}

/// The anchor has ended: another one is watched, or the group is orphaned as it would be
/// without us, with what the kernel does then to a group that has stopped members.
pub(super) fn lost(inherited: &Inherited, keeper: i32) -> Option<OwnedFd> {
    if let Some(watched) = scan(inherited, keeper).and_then(watch) {
        return Some(watched);
    }
    // The leader of a group cannot make a session: back into the front's group first.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(inherited.group));
    let _ = setsid();
    let is_stopped = |process: &Process| process.group == inherited.group && process.is_stopped();
    if all_processes().iter().any(is_stopped) {
        let _ = sys::kill(-inherited.group, libc::SIGHUP);
        let _ = sys::kill(-inherited.group, libc::SIGCONT);
    }
    None
}

/// Looks for a member of the group with a parent in the same session and another group, the
/// keeper left out.
fn scan(inherited: &Inherited, keeper: i32) -> Option<i32> {
    let processes = all_processes();
    let members = processes
        .iter()
        .filter(|process| process.group == inherited.group);
    let mut parents = members
        .map(|member| member.parent)
        .filter(|&parent| parent != keeper);
    parents.find(|&parent| {
        processes.iter().any(|process| {
            process.pid == parent
                && process.session == inherited.session
                && process.group != inherited.group
        })
    })
}

fn watch(pid: i32) -> Option<OwnedFd> {
    pidfd_open(rustix::process::Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}
