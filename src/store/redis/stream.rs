//! Bytes to and from the server, with TLS or without; never blocks.

use std::io::{self, Read, Write};

use nix::poll::PollFlags;

use super::super::StoreError;
use super::errors;
use super::socket::Socket;
#[cfg(feature = "tls")]
use super::tls::TlsStream;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<T> {
    Done(T),
    /// Wait for the socket, then try again.
    Blocked,
}

/// A connection's bytes.
pub(super) enum Stream {
    Plain(PlainStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

impl Stream {
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(plain) => &plain.socket,
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Takes bytes to be written by [`Self::flush`].
    #[cfg_attr(
        not(feature = "tls"),
        expect(clippy::unnecessary_wraps, reason = "as with TLS")
    )]
    pub(super) fn queue(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Self::Plain(plain) => {
                plain.queued.extend_from_slice(bytes);
                Ok(())
            }
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.queue(bytes),
        }
    }

    /// Writes what is queued.
    pub(super) fn flush(&mut self) -> Result<Step<()>, StoreError> {
        match self {
            Self::Plain(plain) => plain.flush(),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Reads what is there; zero bytes mean that the server closed the connection.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Step<usize>, StoreError> {
        match self {
            Self::Plain(plain) => step(plain.socket.read(into)),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.read(into),
        }
    }

    /// What the socket is to be polled for after [`Step::Blocked`].
    pub(super) fn wants(&self) -> PollFlags {
        match self {
            Self::Plain(plain) if plain.queued.is_empty() => PollFlags::POLLIN,
            Self::Plain(_) => PollFlags::POLLOUT,
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.wants(),
        }
    }
}

/// A socket and what is still to be written to it.
pub(super) struct PlainStream {
    socket: Socket,
    queued: Vec<u8>,
}

impl PlainStream {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            queued: Vec::new(),
        }
    }

    fn flush(&mut self) -> Result<Step<()>, StoreError> {
        while !self.queued.is_empty() {
            match step(self.socket.write(&self.queued))? {
                Step::Done(written) => drop(self.queued.drain(..written)),
                Step::Blocked => return Ok(Step::Blocked),
            }
        }
        Ok(Step::Done(()))
    }
}

/// A result of a non-blocking call.
pub(super) fn step(result: io::Result<usize>) -> Result<Step<usize>, StoreError> {
    match result {
        Ok(count) => Ok(Step::Done(count)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(Step::Blocked)
        }
        Err(error) => Err(errors::of_io(&error)),
    }
}
