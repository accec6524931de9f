//! The only unsafe code: system calls that have no safe wrapper, each a function of its own.
//!
//! Nothing here decides anything.

#![expect(
    unsafe_code,
    reason = "this file is where the system calls without a safe wrapper live"
)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};

/// Signals that were ignored when the process began, bit `n - 1` for signal `n`.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Signals that were blocked then.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// Which of the descriptors 0 to 2 were closed then.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// The process that took the snapshot.
static PID: AtomicI32 = AtomicI32::new(0);

/// The number of signals, as in `NSIG - 1`.
const SIGNALS: c_int = 64;

/// Runs before `main`, and before Rust's runtime ignores SIGPIPE and opens closed descriptors.
extern "C" fn snapshot() {
    let mut ignored = 0;
    for signal in 1..=SIGNALS {
        if disposition(signal) == Some(libc::SIG_IGN) {
            ignored |= bit(signal);
        }
    }
    IGNORED.store(ignored, Ordering::Relaxed);
    BLOCKED.store(blocked_now(), Ordering::Relaxed);
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD takes no pointer and changes nothing.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            closed |= 1 << fd;
        }
    }
    CLOSED.store(closed, Ordering::Relaxed);
    // SAFETY: getpid(2) has no preconditions.
    PID.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions that the loader calls before `main`; the
// function only makes system calls that are safe at that time.
#[used]
#[unsafe(link_section = ".init_array")]
static SNAPSHOT: extern "C" fn() = snapshot;

/// What the process was started with: ignored signals, blocked signals, closed descriptors, its pid.
pub(super) fn started_with() -> (u64, u64, u8, i32) {
    let load = Ordering::Relaxed;
    (
        IGNORED.load(load),
        BLOCKED.load(load),
        CLOSED.load(load),
        PID.load(load),
    )
}

/// The bit of a signal in a 64-bit set.
pub(super) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn disposition(signal: c_int) -> Option<usize> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads; `action` is valid for writing one.
    let answer = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed is a valid `sigaction`, and the call filled it where it succeeded.
    (answer == 0).then(|| unsafe { action.assume_init() }.sa_sigaction)
}

fn blocked_now() -> u64 {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a null new set only reads; `set` is valid for writing one.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, ptr::null(), set.as_mut_ptr()) };
    let mut blocked = 0;
    for signal in 1..=SIGNALS {
        // SAFETY: zeroed is a valid `sigset_t`, and the call filled it.
        if unsafe { libc::sigismember(set.as_ptr(), signal) } == 1 {
            blocked |= bit(signal);
        }
    }
    blocked
}

fn set_of(bits: u64) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is valid for writing; sigemptyset(3) initialises it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in 1..=SIGNALS {
        if bits & bit(signal) != 0 {
            // SAFETY: initialised above; numbers that are not signals are refused by it.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
    }
    // SAFETY: initialised by sigemptyset(3).
    unsafe { set.assume_init() }
}

/// Sets the mask of blocked signals of this (single) thread.
pub(super) fn block_only(bits: u64) {
    let set = set_of(bits);
    // SAFETY: `set` is a valid set; a null old set is allowed.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) };
}

/// A signalfd(2) for these signals: non-blocking, closed on exec.
pub(super) fn signal_descriptor(bits: u64) -> Result<OwnedFd, nix::Error> {
    let set = set_of(bits);
    // SAFETY: -1 asks for a new descriptor; `set` is a valid set.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
    let fd = nix::Error::result(fd)?;
    // SAFETY: the descriptor is new, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor for poll(2), by number.
///
/// The callers have it from an owner that lives on while they poll.
pub(super) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the number is not -1: it comes from an open descriptor. A closed one makes
    // poll(2) and fcntl(2) answer with an error, nothing else is done with it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// One signal from a signalfd(2): its number, code and sender.
pub(super) fn read_signal(fd: RawFd) -> Option<(i32, i32, i32)> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer has exactly the size that is passed.
    let read = unsafe { libc::read(fd, info.as_mut_ptr().cast(), size) };
    if usize::try_from(read) != Ok(size) {
        return None;
    }
    // SAFETY: the kernel filled all of it.
    let info = unsafe { info.assume_init() };
    let number = |n: u32| i32::try_from(n).unwrap_or_default();
    Some((number(info.ssi_signo), info.ssi_code, number(info.ssi_pid)))
}

/// Sets a signal's disposition to default.
pub(super) fn set_default(signal: c_int) {
    // SAFETY: SIG_DFL is a valid handler for every signal; KILL and STOP are refused.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// kill(2) with any number, real-time signals too (which `nix::Signal` does not know).
pub(super) fn kill(pid: i32, signal: c_int) -> Result<(), nix::Error> {
    // SAFETY: kill(2) takes no pointers.
    nix::Error::result(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// What fork(2) returned: `None` in the child, the child's pid in the parent.
///
/// The caller must be single-threaded: then the child may do everything.
pub(super) fn fork() -> Result<Option<i32>, nix::Error> {
    // SAFETY: the process has one thread (callers check), so no lock can be left taken in the child.
    let pid = nix::Error::result(unsafe { libc::fork() })?;
    Ok((pid != 0).then_some(pid))
}

/// A child's change of state, left where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It has ended, with this wait(2) status.
    Ended(i32),
    /// This signal stopped it.
    Stopped(i32),
    /// It runs again.
    Continued,
}

/// Looks at the next child that has ended, without reaping it. `Err(ECHILD)`: there is no child.
pub(super) fn peek_any_ended() -> Result<Option<(i32, i32)>, nix::Error> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let found = wait_id(libc::P_ALL, 0, flags)?;
    Ok(found.and_then(|(pid, change)| match change {
        Change::Ended(status) => Some((pid, status)),
        _ => None,
    }))
}

/// The next stop or continuation of a child, taken.
pub(super) fn take_stop_or_continue(pid: i32) -> Option<Change> {
    let flags = libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG;
    let id = libc::id_t::try_from(pid).ok()?;
    wait_id(libc::P_PID, id, flags)
        .ok()
        .flatten()
        .map(|(_, change)| change)
}

fn wait_id(
    kind: libc::idtype_t,
    id: libc::id_t,
    flags: c_int,
) -> Result<Option<(i32, Change)>, nix::Error> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is valid for writing one siginfo_t.
    nix::Error::result(unsafe { libc::waitid(kind, id, info.as_mut_ptr(), flags) })?;
    // SAFETY: zeroed is valid; waitid(2) filled it or, with WNOHANG, left si_pid zero.
    let (info, pid, status) = unsafe {
        let info = info.assume_init();
        (info, info.si_pid(), info.si_status())
    };
    if pid == 0 {
        return Ok(None);
    }
    let change = match info.si_code {
        libc::CLD_EXITED => Change::Ended((status & 0xff) << 8),
        libc::CLD_STOPPED | libc::CLD_TRAPPED => Change::Stopped(status),
        libc::CLD_CONTINUED => Change::Continued,
        libc::CLD_DUMPED => Change::Ended(status | 0x80),
        _ => Change::Ended(status),
    };
    Ok(Some((pid, change)))
}

/// Reaps a child that has ended.
pub(super) fn reap(pid: i32) {
    let mut status = 0;
    // SAFETY: `status` is valid for writing.
    unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG | libc::__WALL) };
}

/// Waits for a child that is about to end, and reaps it; continues it if it is stopped.
pub(super) fn wait_for(pid: i32) {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for writing.
        let answer = unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED | libc::__WALL) };
        if answer == pid && libc::WIFSTOPPED(status) {
            let _ = kill(pid, libc::SIGCONT);
        } else if answer == pid || nix::Error::last() != nix::Error::EINTR {
            return;
        }
    }
}

/// The pointers of this process' environment, for an exec that passes it on byte for byte.
pub(super) fn environment() -> Vec<&'static CStr> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: `environ` is a null-terminated list of C strings, or null; nothing in this
    // program changes it, so the strings live as long as the process.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(CStr::from_ptr(*entry));
            entry = entry.add(1);
        }
    }
    entries
}

/// Everything that the child needs between fork and exec; made before the fork.
#[derive(Debug)]
pub(super) struct Image {
    /// The command and its arguments.
    pub(super) argv: Vec<CString>,
    /// The environment, `NAME=value` each.
    pub(super) envp: Vec<CString>,
    /// Entries of `envp` whose value is to become the child's own pid (`LISTEN_PID`).
    pub(super) own_pid: Vec<usize>,
}

/// In the child: restores what the caller had, executes the command, and reports on
/// `error_pipe` why that failed.
pub(super) fn become_command(image: &mut Image, parent: i32, error_pipe: RawFd) -> ! {
    let (ignored, blocked, closed, _) = started_with();
    // The buffers have room for any pid after the `=`: see command.rs.
    for &index in &image.own_pid {
        write_pid(&mut image.envp[index]);
    }
    let argv = pointers(&image.argv);
    let envp = pointers(&image.envp);
    // SAFETY: single-threaded after fork; only system calls. Both lists are null-terminated and
    // outlive the call.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(71);
        }
        if ignored & bit(libc::SIGPIPE) == 0 {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        if ignored & bit(libc::SIGCHLD) != 0 {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        for fd in 0..3 {
            if closed & (1 << fd) != 0 {
                libc::close(fd);
            }
        }
        // A signal that is pending takes effect here, with its default action.
        block_only(blocked);
        libc::execvpe(argv[0], argv.as_ptr(), envp.as_ptr());
        let errno = *libc::__errno_location();
        libc::write(error_pipe, (&raw const errno).cast(), size_of::<c_int>());
        libc::_exit(127)
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([ptr::null()])
        .collect()
}

fn write_pid(entry: &mut CString) {
    let name_end = entry
        .as_bytes()
        .iter()
        .position(|&b| b == b'=')
        .unwrap_or_default();
    let mut bytes = entry.as_bytes()[..=name_end].to_vec();
    bytes.extend_from_slice(std::process::id().to_string().as_bytes());
    // Digits hold no NUL.
    *entry = CString::new(bytes).unwrap_or_default();
}

/// No core file of ours, then dies by `signal`; returns if it survives (pid 1 of a namespace).
pub(super) fn die_by(signal: c_int) {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `none` is a valid limit; the other calls take no pointers.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
    }
    block_only(!bit(signal));
}

/// Stops this process by `signal`, as the terminal would; returns when it is continued.
pub(super) fn stop_by(signal: c_int, blocked: u64) {
    // SAFETY: no pointers.
    unsafe { libc::kill(libc::getpid(), signal) };
    if signal != libc::SIGSTOP {
        // Unblocked, the pending signal stops us here.
        block_only(blocked & !bit(signal));
        block_only(blocked);
    }
}

/// The names itself, as in `ps` and `killall`; at most 15 bytes.
pub(super) fn set_process_name(name: &CStr) {
    // SAFETY: `name` is a C string; the kernel copies 16 bytes at most.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Orphans below this process become its children.
pub(super) fn become_subreaper() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Closes a descriptor by number; for those that were inherited and have no owner in Rust.
pub(super) fn close(fd: RawFd) {
    // SAFETY: the callers close descriptors that no Rust value owns.
    unsafe { libc::close(fd) };
}

/// Makes `fd` another name of `/dev/null`.
pub(super) fn point_to_null(null: RawFd, fd: RawFd) {
    // SAFETY: 0 and 1 are used by nothing of ours after the command was started.
    unsafe { libc::dup2(null, fd) };
}

/// The terminal's foreground group, and setting it.
pub(super) fn foreground_group(tty: RawFd) -> Option<i32> {
    // SAFETY: no pointers.
    let group = unsafe { libc::tcgetpgrp(tty) };
    (group > 0).then_some(group)
}

/// Makes `group` the terminal's foreground group. SIGTTOU is blocked in the caller.
pub(super) fn set_foreground_group(tty: RawFd, group: i32) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::tcsetpgrp(tty, group) == 0 }
}
