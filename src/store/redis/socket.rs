//! A non-blocking socket to the server, TCP or Unix.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr, connect,
    getsockopt, recv, send, setsockopt, socket, sockopt,
};

use super::super::{ErrorKind, StoreError};
use super::errors;
use super::wait::{Attempt, Wanted};

/// The next address is tried beside the first when that has not answered for so long
/// (RFC 8305, "Happy Eyeballs", section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// connect(2) to a Unix socket with a full queue cannot be polled for, only tried again.
const QUEUE_PAUSE: Duration = Duration::from_millis(10);

/// A connected socket.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Connects to the first of `addresses` that answers.
    pub(super) fn tcp(addresses: &[SocketAddr], attempt: &Attempt<'_>) -> Result<Self, StoreError> {
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let stagger = STAGGER.min(attempt.remaining() / count.saturating_add(1));
        let mut waiting = addresses.iter();
        let mut open: Vec<OwnedFd> = Vec::new();
        let mut last = StoreError::new(ErrorKind::NoAnswer, "look-up failed: no address");
        loop {
            let next = waiting.next();
            match next.map(begin) {
                Some(Ok(started)) => open.push(started),
                Some(Err(error)) => last = errors::of_system(error),
                None if open.is_empty() => return Err(last),
                None => {}
            }
            let more = waiting.len() > 0;
            if open.is_empty() {
                continue;
            }
            if let Some(connected) =
                first_connected(&mut open, more.then_some(stagger), attempt, &mut last)?
            {
                return Self::tuned(connected);
            }
        }
    }

    /// Connects to a Unix socket.
    pub(super) fn unix(path: &Path, attempt: &Attempt<'_>) -> Result<Self, StoreError> {
        let address = UnixAddr::new(path).map_err(errors::of_system)?;
        let fd = open(AddressFamily::Unix).map_err(errors::of_system)?;
        loop {
            match connect(fd.as_raw_fd(), &address) {
                Ok(()) => return Ok(Self(fd)),
                Err(Errno::EAGAIN) => attempt.wait(&[], Some(QUEUE_PAUSE))?,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(errors::of_system(error)),
            };
        }
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn tuned(fd: OwnedFd) -> Result<Self, StoreError> {
        setsockopt(&fd, sockopt::TcpNoDelay, &true).map_err(errors::of_system)?;
        // Keepalive only makes a dead peer known sooner; a system without it is no trouble.
        let _ = setsockopt(&fd, sockopt::KeepAlive, &true);
        let _ = setsockopt(&fd, sockopt::TcpKeepIdle, &15);
        let _ = setsockopt(&fd, sockopt::TcpKeepInterval, &5);
        let _ = setsockopt(&fd, sockopt::TcpKeepCount, &3);
        Ok(Self(fd))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0.as_raw_fd(), into, MsgFlags::empty())?)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A reset is an error to be told, not a SIGPIPE.
        Ok(send(self.0.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn open(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(family, SockType::Stream, flags, None)
}

/// Begins to connect.
fn begin(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let address = SockaddrStorage::from(*address);
    let fd = open(address.family().unwrap_or(AddressFamily::Inet))?;
    match connect(fd.as_raw_fd(), &address) {
        // An interrupted connect goes on in the background, as one in progress does.
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(fd),
        Err(error) => Err(error),
    }
}

/// Waits for one of `open` to connect; those that fail are dropped. `None`: none has so far.
fn first_connected(
    open: &mut Vec<OwnedFd>,
    pause: Option<Duration>,
    attempt: &Attempt<'_>,
    last: &mut StoreError,
) -> Result<Option<OwnedFd>, StoreError> {
    let wanted: Vec<Wanted<'_>> = open
        .iter()
        .map(|fd| (fd.as_fd(), PollFlags::POLLOUT))
        .collect();
    let ready = attempt.wait(&wanted, pause)?;
    for at in (0..ready.len()).rev().filter(|&at| ready[at]) {
        let fd = open.remove(at);
        match getsockopt(&fd, sockopt::SocketError).map(Errno::from_raw) {
            Ok(Errno::UnknownErrno) => return Ok(Some(fd)),
            Ok(error) | Err(error) => *last = errors::of_system(error),
        }
    }
    Ok(None)
}
