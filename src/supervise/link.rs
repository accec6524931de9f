//! The messages between front and keeper: fixed size, over a socket that keeps their borders.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

/// What the front tells the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToKeeper {
    /// A signal arrived, with this code and sender.
    Signal { signal: i32, code: i32, sender: i32 },
    /// The front was continued after it had heard of the command's stop number `stop`.
    Resumed { stop: i32 },
    /// The front is about to stop because the command has.
    Mirror,
    /// The terminal was given to this group: continue it.
    Go { group: i32 },
}

/// What the keeper tells the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToFront {
    /// The command was executed.
    Running { pid: i32 },
    /// This signal stopped the command; its number and the command's group.
    Stopped { signal: i32, stop: i32, group: i32 },
    /// The command runs again.
    Continued,
    /// The command ended with this wait(2) status, in this group; it is not reaped yet.
    Ended { status: i32, group: i32 },
    /// It is over: how to end, and what to report.
    Done(Done),
}

/// How a run ended, as the keeper knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// An exit code, or a signal as a negative number.
    pub(super) outcome: i32,
    /// The error of an exec that failed, or 0.
    pub(super) exec_error: i32,
    /// 1: the lease was lost, 2: stopped by `--max-runtime`, 3: never started, 0: none of these.
    pub(super) stopped: i32,
    /// Whether the release was confirmed.
    pub(super) released: bool,
    /// How long the command ran, in milliseconds.
    pub(super) ran_ms: u64,
}

impl Done {
    /// What came of it, in one word.
    pub(super) fn reported(self) -> &'static str {
        match (self.exec_error, self.stopped) {
            (0, 1) => "lost",
            (0, 2) => "max-runtime",
            (0, 3) => "error",
            (0, _) => "completed",
            _ => "not-started",
        }
    }
}

/// A message is seven numbers: what it is, and up to six values.
const WORDS: usize = 7;

type Words = [i64; WORDS];

/// One end of the link.
#[derive(Debug)]
pub(super) struct Link(OwnedFd);

impl Link {
    /// A pair of ends.
    pub(super) fn pair() -> Result<(Self, Self), nix::Error> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        Ok((Self(one), Self(other)))
    }

    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(super) fn tell_keeper(&self, message: ToKeeper) {
        let (kind, a, b, c) = match message {
            ToKeeper::Signal {
                signal,
                code,
                sender,
            } => (1, signal, code, sender),
            ToKeeper::Resumed { stop } => (2, stop, 0, 0),
            ToKeeper::Mirror => (3, 0, 0, 0),
            ToKeeper::Go { group } => (4, group, 0, 0),
        };
        self.send([kind, a.into(), b.into(), c.into(), 0, 0, 0]);
    }

    pub(super) fn tell_front(&self, message: ToFront) {
        let words: Words = match message {
            ToFront::Running { pid } => [1, pid.into(), 0, 0, 0, 0, 0],
            ToFront::Stopped {
                signal,
                stop,
                group,
            } => [2, signal.into(), stop.into(), group.into(), 0, 0, 0],
            ToFront::Continued => [3, 0, 0, 0, 0, 0, 0],
            ToFront::Ended { status, group } => [4, status.into(), group.into(), 0, 0, 0, 0],
            ToFront::Done(done) => [
                5,
                done.outcome.into(),
                done.exec_error.into(),
                done.stopped.into(),
                done.released.into(),
                i64::try_from(done.ran_ms).unwrap_or(i64::MAX),
                0,
            ],
        };
        self.send(words);
    }

    /// The next message for the keeper; `Err` when the front is gone.
    pub(super) fn next_for_keeper(&self) -> Result<Option<ToKeeper>, Gone> {
        let Some([kind, a, b, c, ..]) = self.receive()? else {
            return Ok(None);
        };
        let (a, b, c) = (narrow(a), narrow(b), narrow(c));
        Ok(match kind {
            1 => Some(ToKeeper::Signal {
                signal: a,
                code: b,
                sender: c,
            }),
            2 => Some(ToKeeper::Resumed { stop: a }),
            3 => Some(ToKeeper::Mirror),
            _ => Some(ToKeeper::Go { group: a }),
        })
    }

    /// The next message for the front; `Err` when the keeper is gone.
    pub(super) fn next_for_front(&self) -> Result<Option<ToFront>, Gone> {
        let Some([kind, first, second, third, released, ran, _]) = self.receive()? else {
            return Ok(None);
        };
        let (x, y, z) = (narrow(first), narrow(second), narrow(third));
        Ok(match kind {
            1 => Some(ToFront::Running { pid: x }),
            2 => Some(ToFront::Stopped {
                signal: x,
                stop: y,
                group: z,
            }),
            3 => Some(ToFront::Continued),
            4 => Some(ToFront::Ended {
                status: x,
                group: y,
            }),
            _ => Some(ToFront::Done(Done {
                outcome: x,
                exec_error: y,
                stopped: z,
                released: released != 0,
                ran_ms: u64::try_from(ran).unwrap_or_default(),
            })),
        })
    }

    /// A full buffer or a peer that is gone: nothing to be done here, the peer's end shows as EOF.
    fn send(&self, words: Words) {
        let mut bytes = [0; WORDS * 8];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        let _ = send(self.raw(), &bytes, MsgFlags::MSG_NOSIGNAL);
    }

    fn receive(&self) -> Result<Option<Words>, Gone> {
        let mut bytes = [0; WORDS * 8];
        loop {
            return match recv(self.raw(), &mut bytes, MsgFlags::empty()) {
                Ok(0) => Err(Gone),
                Ok(_) => {
                    let mut words = [0; WORDS];
                    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                        *word = i64::from_ne_bytes(chunk.try_into().unwrap_or_default());
                    }
                    Ok(Some(words))
                }
                Err(nix::Error::EINTR) => continue,
                Err(nix::Error::EAGAIN) => Ok(None),
                Err(_) => Err(Gone),
            };
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The process at the other end is gone.
#[derive(Debug)]
pub(super) struct Gone;

fn narrow(word: i64) -> i32 {
    i32::try_from(word).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_the_end_is_seen() {
        let (front, keeper) = Link::pair().unwrap();
        let sent = [
            ToFront::Running { pid: 7 },
            ToFront::Stopped {
                signal: 20,
                stop: 3,
                group: 9,
            },
            ToFront::Continued,
            ToFront::Ended {
                status: 256,
                group: 9,
            },
            ToFront::Done(Done {
                outcome: -15,
                exec_error: 2,
                stopped: 1,
                released: true,
                ran_ms: u64::from(u32::MAX) + 1,
            }),
        ];
        for message in sent {
            keeper.tell_front(message);
            assert_eq!(front.next_for_front().unwrap(), Some(message));
        }
        assert_eq!(front.next_for_front().unwrap(), None);
        let message = ToKeeper::Signal {
            signal: 15,
            code: -6,
            sender: 1,
        };
        front.tell_keeper(message);
        assert_eq!(keeper.next_for_keeper().unwrap(), Some(message));
        drop(keeper);
        assert!(front.next_for_front().is_err());
    }
}
