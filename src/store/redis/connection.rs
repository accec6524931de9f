//! One connection: requests out, replies in, within one attempt.

use std::os::fd::{AsFd, RawFd};

use nix::poll::PollFlags;
use redis::Value;

use super::super::{ErrorKind, StoreError};
use super::errors;
use super::frame::{self, Frame};
use super::sample::Sample;
use super::stream::{Step, Stream};
use super::wait::Attempt;
use crate::clock::{Boot, Stamp};

const CHUNK: usize = 16 << 10;

/// A connection that was let in.
pub(super) struct Connection {
    stream: Stream,
    received: Vec<u8>,
    /// The newest reading of the server's clock on this connection.
    pub(super) sample: Option<Sample>,
    /// What the server calls it.
    pub(super) name: String,
}

/// The replies to one request.
pub(super) struct Replies {
    /// One for each command, in order; errors of the server among them.
    pub(super) values: Vec<Value>,
    /// Taken immediately before the first byte of the request was written.
    pub(super) sent: Stamp,
    /// When the last reply was there.
    pub(super) answered: Boot,
}

/// Why there are no replies.
pub(super) struct Failure {
    pub(super) error: StoreError,
    /// Whether the server may have done, or may yet do, what it was asked to.
    pub(super) in_doubt: bool,
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self {
            error,
            in_doubt: false,
        }
    }
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            sample: None,
            name: String::new(),
        }
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.stream.socket().as_raw_fd()
    }

    /// Itself, if nothing speaks against using it: it is not closed, and no late answer is there.
    pub(super) fn if_quiet(mut self) -> Option<Self> {
        let quiet =
            self.received.is_empty() && matches!(self.stream.read(&mut [0; 64]), Ok(Step::Blocked));
        quiet.then_some(self)
    }

    /// Writes a request and reads `count` replies.
    pub(super) fn exchange(
        &mut self,
        request: &[u8],
        count: usize,
        attempt: &Attempt<'_>,
    ) -> Result<Replies, Failure> {
        attempt.check()?;
        self.stream.queue(request)?;
        let sent = Stamp::now();
        match self.replies(count, attempt) {
            Ok(values) => Ok(Replies {
                values,
                sent,
                answered: Boot::now(),
            }),
            Err(error) => Err(Failure {
                error,
                in_doubt: true,
            }),
        }
    }

    fn replies(&mut self, count: usize, attempt: &Attempt<'_>) -> Result<Vec<Value>, StoreError> {
        let mut values = Vec::with_capacity(count);
        loop {
            let written = match self.stream.flush() {
                Ok(step) => step == Step::Done(()),
                Err(error) => return Err(self.last_words(&mut values, count).unwrap_or(error)),
            };
            if written && self.read(&mut values, count)? {
                return Ok(values);
            }
            let wanted: PollFlags = self.stream.wants();
            attempt.wait(&[(self.stream.socket().as_fd(), wanted)], None)?;
        }
    }

    /// Reads what is there; whether all replies are complete.
    fn read(&mut self, values: &mut Vec<Value>, count: usize) -> Result<bool, StoreError> {
        let mut chunk = [0; CHUNK];
        loop {
            self.decode(values, count)?;
            if values.len() == count {
                return Ok(true);
            }
            // What the server said before it closed the connection says more than its end.
            match self.stream.read(&mut chunk) {
                Ok(Step::Done(0)) => return Err(said(values).unwrap_or_else(errors::closed)),
                Ok(Step::Done(size)) => self.received.extend_from_slice(&chunk[..size]),
                Ok(Step::Blocked) => return Ok(false),
                Err(error) => return Err(said(values).unwrap_or(error)),
            }
        }
    }

    /// Decodes the replies that are complete.
    fn decode(&mut self, values: &mut Vec<Value>, count: usize) -> Result<(), StoreError> {
        while values.len() < count {
            let size = match frame::scan(&self.received) {
                Frame::Complete(size) => size,
                Frame::Partial if self.received.len() > 2 * frame::MAX_REPLY => {
                    return Err(StoreError::new(
                        ErrorKind::NoAnswer,
                        "its reply is too long",
                    ));
                }
                Frame::Partial => return Ok(()),
                Frame::Refused(why) => return Err(StoreError::new(ErrorKind::NoAnswer, why)),
            };
            let mut frame: Vec<u8> = self.received.drain(..size).collect();
            frame::make_text(&mut frame);
            values.push(redis::parse_redis_value(&frame).map_err(|_| errors::garbled())?);
        }
        Ok(())
    }

    /// What a server said before it closed the connection in our face, such as "max number of
    /// clients reached".
    fn last_words(&mut self, values: &mut Vec<Value>, count: usize) -> Option<StoreError> {
        let error = self.read(values, count).err();
        said(values).or(error.filter(|error| error.kind == ErrorKind::Refused))
    }
}

/// The first error among replies.
fn said(values: &[Value]) -> Option<StoreError> {
    values.iter().find_map(|value| match value {
        Value::ServerError(error) => Some(errors::of_server(error)),
        _ => None,
    })
}
