//! The thread that owns the store while the command runs: it does one ask at a time, and
//! watches the connection in between.
//!
//! It must not decide anything, and it never signals anyone.

use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::model::Hold;
use crate::store::{Keep, LockStore, Released, Renewed, StoreError};

/// What the heartbeat is to do.
#[derive(Debug)]
pub enum Ask {
    /// One attempt at a renewal, bounded by this.
    Renew(Duration),
    /// One attempt at the release, bounded by this.
    Release(Keep, Duration),
}

/// What it has to say.
#[derive(Debug)]
pub enum Answer {
    /// To [`Ask::Renew`].
    Renewed(Result<Renewed, StoreError>),
    /// To [`Ask::Release`].
    Released(Result<Released, StoreError>),
    /// The connection was closed between two asks.
    ConnectionLost,
    /// It ended without being asked to.
    Died,
}

/// The handle of the thread.
#[derive(Debug)]
pub struct Heartbeat {
    asks: Sender<Ask>,
    wake: Arc<EventFd>,
    answers: Receiver<Answer>,
    answered: Arc<EventFd>,
}

impl Heartbeat {
    /// Starts the thread, which owns `store` from now on.
    ///
    /// # Errors
    /// No thread or no descriptor is to be had.
    pub fn start(store: Box<dyn LockStore>, hold: Hold) -> Result<Self, std::io::Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags)?);
        let answered = Arc::new(EventFd::from_flags(flags)?);
        let (asks, inbox) = channel();
        let (outbox, answers) = channel();
        let mut worker = Worker {
            store,
            hold,
            inbox,
            wake: Arc::clone(&wake),
            post: Post {
                outbox,
                answered: Arc::clone(&answered),
            },
        };
        // The signals of the process are blocked in every thread already.
        std::thread::Builder::new()
            .name("heartbeat".into())
            .spawn(move || worker.work())?;
        Ok(Self {
            asks,
            wake,
            answers,
            answered,
        })
    }

    /// Hands over an ask; a call that is under way is broken off.
    pub fn ask(&self, ask: Ask) {
        // A thread that is gone has said so with `Answer::Died`.
        if self.asks.send(ask).is_ok() {
            let _ = self.wake.write(1);
        }
    }

    /// Readable when there is an answer.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.answered.as_fd()
    }

    /// The next answer.
    pub fn answer(&self) -> Option<Answer> {
        let _ = self.answered.read();
        self.answers.try_recv().ok()
    }
}

struct Post {
    outbox: Sender<Answer>,
    answered: Arc<EventFd>,
}

impl Post {
    fn say(&self, answer: Answer) {
        if self.outbox.send(answer).is_ok() {
            let _ = self.answered.write(1);
        }
    }
}

impl Drop for Post {
    /// Whatever ends the thread, a panic too, is told.
    fn drop(&mut self) {
        self.say(Answer::Died);
    }
}

struct Worker {
    store: Box<dyn LockStore>,
    hold: Hold,
    inbox: Receiver<Ask>,
    wake: Arc<EventFd>,
    post: Post,
}

impl Worker {
    fn work(&mut self) {
        self.store.interrupt_by(&[self.wake.as_fd()]);
        // The handle lives as long as the process.
        loop {
            if self.wait() {
                self.store.disconnect();
                self.post.say(Answer::ConnectionLost);
                continue;
            }
            while let Ok(ask) = self.inbox.try_recv() {
                // The wake-up is taken before the call: one that comes later breaks the call off.
                // An ask that came meanwhile takes the place of the older one.
                let _ = self.wake.read();
                let ask = self.inbox.try_iter().last().unwrap_or(ask);
                self.carry_out(ask);
            }
        }
    }

    fn carry_out(&mut self, ask: Ask) {
        let answer = match ask {
            Ask::Renew(limit) => Answer::Renewed(self.store.renew(&self.hold, limit)),
            Ask::Release(keep, limit) => {
                Answer::Released(self.store.release(&self.hold, &keep, limit))
            }
        };
        self.post.say(answer);
    }

    /// Waits for an ask; true if the connection had news first.
    fn wait(&self) -> bool {
        let watched: Option<RawFd> = self.store.watch();
        let wake = PollFd::new(self.wake.as_fd(), PollFlags::POLLIN);
        match watched {
            None => {
                let _ = poll(&mut [wake], PollTimeout::NONE);
                false
            }
            Some(fd) => {
                let mut descriptors = [
                    wake,
                    PollFd::new(crate::supervise::borrow(fd), PollFlags::POLLIN),
                ];
                let _ = poll(&mut descriptors, PollTimeout::NONE);
                let ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
                !ready(&descriptors[0]) && ready(&descriptors[1])
            }
        }
    }
}
