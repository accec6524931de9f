//! The object that `--report` writes at the end: what a shared exit code cannot tell.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::model::{CommandEnd, FencingToken};

/// The object, and the file that it goes to.
#[derive(Debug)]
pub(super) struct Report {
    file: Option<File>,
    pub(super) content: Content,
}

/// What is reported.
#[derive(Debug, Default, Serialize)]
pub(super) struct Content {
    outcome: &'static str,
    child_code: Option<u8>,
    child_signal: Option<i32>,
    fence: Option<u64>,
    waited_ms: u64,
    ran_ms: u64,
    released: bool,
}

impl Report {
    /// Opens the file beforehand: a place that cannot be written is found out before anything
    /// runs, and the name does not depend on a later working directory.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub(super) fn open(path: Option<&Path>) -> io::Result<Self> {
        // A FIFO without a reader is an error and not a reason to wait for ever.
        let open = |path| {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .custom_flags(libc::O_NONBLOCK)
                .open(path)
        };
        Ok(Self {
            file: path.map(open).transpose()?,
            content: Content::default(),
        })
    }

    /// What came of it: `completed`, `held`, `lost`, and so on.
    pub(super) fn outcome(&mut self, outcome: &'static str) {
        self.content.outcome = outcome;
    }

    pub(super) fn waited(&mut self, waited: Duration) {
        self.content.waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    }

    pub(super) fn fence(&mut self, fence: Option<FencingToken>) {
        self.content.fence = fence.map(|fence| fence.0);
    }

    pub(super) fn command(&mut self, end: CommandEnd) {
        match end {
            CommandEnd::Exited(code) => self.content.child_code = Some(code),
            CommandEnd::Killed(signal) => self.content.child_signal = Some(signal),
        }
    }

    pub(super) fn ended(&mut self, ran_ms: u64, released: bool) {
        self.content.ran_ms = ran_ms;
        self.content.released = released;
    }

    /// Replaces what stood in the file.
    ///
    /// # Errors
    /// It cannot be written (a full disk).
    pub(super) fn write(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        // Pipes and devices have no length.
        let _ = file.set_len(0);
        let mut line = serde_json::to_string(&self.content)?;
        line.push('\n');
        file.write_all(line.as_bytes())
    }
}
