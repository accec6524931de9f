//! Our lines on stderr. None of them is ever waited for: a line that would block is dropped.
//!
//! Before the keeper is forked the process has one thread: a line is written when poll(2) says
//! that it fits. Afterwards the command shares stderr and could fill it between the two calls,
//! so a thread of its own writes, fed through a bounded queue.

use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::ServerTime;
use crate::config::{Logging, Verbosity};

/// What is written at once into a pipe is not mixed with other text, and not written in part (pipe(7)).
const PIPE_BUF: usize = 4096;

/// How many lines wait for a slow reader before further ones are dropped.
const QUEUE: usize = 32;

/// At the end, lines have this long to get out.
const FLUSH: Duration = Duration::from_millis(100);

/// The lines of one run.
#[derive(Clone, Debug)]
pub struct Log {
    name: String,
    logging: Logging,
    mode: Mode,
}

#[derive(Clone, Debug)]
enum Mode {
    Direct,
    Thread(Option<SyncSender<Job>>),
}

enum Job {
    Line(String),
    Flush(SyncSender<()>),
}

impl Log {
    /// Lines that speak of the lock `name`.
    pub fn new(name: &str, logging: Logging) -> Self {
        Self {
            name: name.to_owned(),
            logging,
            mode: Mode::Direct,
        }
    }

    /// From now on lines are written by a thread, started with the first.
    pub fn use_thread(&mut self) {
        self.mode = Mode::Thread(None);
    }

    /// Always said.
    pub fn error(&mut self, text: &str) {
        self.line("error", text);
    }

    /// Always said.
    pub fn warning(&mut self, text: &str) {
        self.line("warning", text);
    }

    /// Said unless `--quiet`.
    pub fn notice(&mut self, text: &str) {
        if self.logging.verbosity >= Verbosity::Normal {
            self.line("notice", text);
        }
    }

    /// Said with `--verbose`.
    pub fn step(&mut self, text: &str) {
        if self.logging.verbosity >= Verbosity::Verbose {
            self.line("info", text);
        }
    }

    /// Whether stderr is a terminal.
    pub fn is_on_terminal(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    /// Gives the lines that are on their way a moment to get out.
    pub fn flush(&mut self) {
        let Mode::Thread(Some(queue)) = &self.mode else {
            return;
        };
        let (done, wait) = sync_channel(1);
        if queue.try_send(Job::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH);
        }
    }

    fn line(&mut self, level: &str, text: &str) {
        let line = if self.logging.json {
            self.json(level, text)
        } else {
            format!("distlock: {}: {text}\n", self.name)
        };
        match &mut self.mode {
            Mode::Direct => write_if_it_fits(&line),
            Mode::Thread(queue) => {
                if queue.is_none() {
                    *queue = start_writer();
                }
                if let Some(Err(TrySendError::Disconnected(_))) =
                    queue.as_ref().map(|queue| queue.try_send(Job::Line(line)))
                {
                    *queue = None;
                }
            }
        }
    }

    fn json(&self, level: &str, text: &str) -> String {
        let time = ServerTime::of_this_host().to_string();
        let object =
            serde_json::json!({"time": time, "level": level, "lock": self.name, "message": text});
        format!("{object}\n")
    }
}

fn write_if_it_fits(line: &str) {
    let stderr = std::io::stderr();
    let mut descriptors = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    let ready =
        line.len() <= PIPE_BUF && poll(&mut descriptors, PollTimeout::ZERO).is_ok_and(|n| n > 0);
    let writable = descriptors[0]
        .revents()
        .is_some_and(|events| events.contains(PollFlags::POLLOUT));
    if ready && writable {
        let _ = stderr.lock().write_all(line.as_bytes());
    }
}

fn start_writer() -> Option<SyncSender<Job>> {
    let (queue, jobs) = sync_channel(QUEUE);
    let write = move || {
        for job in jobs {
            match job {
                Job::Line(line) => drop(std::io::stderr().lock().write_all(line.as_bytes())),
                Job::Flush(done) => drop(done.try_send(())),
            }
        }
    };
    std::thread::Builder::new()
        .name("printer".into())
        .spawn(write)
        .ok()?;
    Some(queue)
}
