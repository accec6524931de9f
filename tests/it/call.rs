//! One call of the built binary, with locks in a folder of the test.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use crate::support::{distlock, hold, program, within};
use distlock::store::LockStore;

/// No call takes longer.
const LIMIT: Duration = Duration::from_secs(20);

/// A folder with locks, and a configuration file where the binary looks first.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A run whose command has started.
pub(crate) struct Running {
    child: Child,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(place.path("locks")).unwrap();
        place.write("distlock.toml", "");
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn server(&self) -> String {
        format!("file://{}", self.path("locks").display())
    }

    /// The binary, that knows of this folder from its environment.
    pub(crate) fn distlock(&self) -> Command {
        let mut command = self.bare();
        command.env("DISTLOCK_SERVER", self.server());
        command
    }

    /// The same without a server.
    pub(crate) fn bare(&self) -> Command {
        let mut command = program(distlock());
        command
            .env("XDG_CONFIG_HOME", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Calls it with these words.
    pub(crate) fn call(&self, words: &[&str]) -> Ended {
        ended(self.distlock().args(words))
    }

    /// Holds a lock as long as the answer lives.
    pub(crate) fn hold(&self, name: &str) -> Box<dyn LockStore> {
        hold(&self.path("locks"), name)
    }

    /// Runs a command that goes on until it is ended.
    pub(crate) fn run(&self, options: &[&str]) -> Running {
        let mut child = self
            .distlock()
            .arg("run")
            .args(options)
            .args(["--", "sh", "-c", "echo started; exec sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "started\n");
        Running { child }
    }
}

/// Calls a command and waits for its end.
pub(crate) fn ended(command: &mut Command) -> Ended {
    Ended::from(command.output().unwrap())
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let signal = output.status.signal().map(|signal| 128 + signal);
        Self {
            code: output.status.code().or(signal).unwrap(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ended {
    /// It was refused with this code and this text, and wrote nothing to stdout.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, text: &str) {
        assert_eq!((self.code, self.stdout.as_str()), (code, ""), "{self:?}");
        assert!(self.stderr.contains(text), "{text:?} not in {self:?}");
    }

    /// It did it, with this on stdout and not a word on stderr.
    #[track_caller]
    pub(crate) fn printed(&self, text: &str) {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:?}");
        assert_eq!(self.stdout, text);
    }
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, with a limit.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let mut status = None;
        within(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.expect("it did not end in time")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
