//! What we were started with, and what of it we put aside.

use std::os::fd::RawFd;

use super::sys::{self, bit};

/// What the caller gave us.
#[derive(Clone, Debug)]
pub(super) struct Inherited {
    /// Signals that we block and read from a descriptor.
    pub(super) handled: u64,
    /// Descriptors above 2 that the command shall have too.
    pub(super) descriptors: Vec<RawFd>,
    /// The caller's pid.
    pub(super) parent: i32,
    /// Our own pid.
    pub(super) pid: i32,
    /// Our process group, which the command shares.
    pub(super) group: i32,
    /// Our session.
    pub(super) session: i32,
}

/// Faults are ours alone; PIPE stays ignored; KILL and STOP cannot be handled.
const NOT_HANDLED: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGABRT)
    | bit(libc::SIGSYS)
    | bit(libc::SIGPIPE)
    | bit(libc::SIGKILL)
    | bit(libc::SIGSTOP)
    | bit(32)
    | bit(33);

impl Inherited {
    /// Takes stock, blocks the signals that we shall handle, and makes SIGCHLD default: an
    /// inherited "ignore" would make the kernel reap the command and lose its status.
    pub(super) fn take() -> Self {
        let (ignored, _, _, pid) = sys::started_with();
        sys::set_default(libc::SIGCHLD);
        // A blocked signal is queued even if it is ignored: leave those alone.
        let handled = !NOT_HANDLED & !(ignored & !bit(libc::SIGCHLD));
        let inherited = Self {
            handled,
            descriptors: descriptors_without_cloexec(),
            parent: nix::unistd::getppid().as_raw(),
            pid,
            group: nix::unistd::getpgrp().as_raw(),
            session: nix::unistd::getsid(None).map_or(0, nix::unistd::Pid::as_raw),
        };
        inherited.block();
        inherited
    }

    /// Blocks what is handled, on top of what the caller had blocked.
    pub(super) fn block(&self) {
        sys::block_only(self.mask());
    }

    /// The mask of blocked signals.
    pub(super) fn mask(&self) -> u64 {
        let (_, blocked, _, _) = sys::started_with();
        self.handled | blocked
    }

    /// Lets go of what only the command needs, so that its closing a pipe closes the pipe.
    pub(super) fn drop_descriptors(&self) {
        for &fd in &self.descriptors {
            sys::close(fd);
        }
        if let Ok(null) = nix::fcntl::open(
            "/dev/null",
            nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_CLOEXEC,
            nix::sys::stat::Mode::empty(),
        ) {
            use std::os::fd::AsRawFd as _;
            sys::point_to_null(null.as_raw_fd(), 0);
            sys::point_to_null(null.as_raw_fd(), 1);
        }
        // No mount shall be pinned by us.
        let _ = nix::unistd::chdir("/");
    }
}

/// All of ours are closed on exec, so what is not was inherited.
fn descriptors_without_cloexec() -> Vec<RawFd> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    numbers
        .filter(|&fd| fd > 2)
        .filter(|&fd| {
            let borrowed = super::borrow(fd);
            fcntl(borrowed, FcntlArg::F_GETFD)
                .is_ok_and(|flags| !FdFlag::from_bits_truncate(flags).contains(FdFlag::FD_CLOEXEC))
        })
        .collect()
}
