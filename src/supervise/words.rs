//! What the keeper says of its lease and of its command.

use std::time::Duration;

use crate::config::RunSettings;
use crate::model::{Holding, escape};
use crate::output::words::{length, who};
use crate::session::{Cause, Note};
use crate::store::Loss;

/// What is known when a note is said.
pub(super) struct Situation<'a> {
    pub(super) settings: &'a RunSettings,
    /// Who took the lock, if someone did.
    pub(super) loss: &'a str,
    /// What the last attempt that failed had to say.
    pub(super) last_error: &'a str,
    /// The descendants that are left, with pid and name.
    pub(super) left: &'a str,
}

impl Situation<'_> {
    /// The sentence for a note of the session.
    pub(super) fn sentence(&self, note: Note) -> String {
        let left = self.left;
        match note {
            Note::Lost { cause, grace, silent } => self.lost(cause, grace, silent),
            Note::TakenBack => "the key was missing (server restarted empty, evicted, flushed or deleted) and nobody had taken it: taken back".into(),
            Note::OddTimeLeft { found, expected } => format!(
                "{} left where {} was to be expected: the server's clock stepped or someone changed the TTL",
                length(found),
                length(expected)
            ),
            Note::MaxRuntime => {
                let most = length(self.settings.max_runtime.unwrap_or_default());
                format!("the command has run for {most} (--max-runtime); {}", self.stopping(self.settings.kill_after))
            }
            Note::FrontGone => format!("the front process is gone; {}", self.stopping(self.settings.kill_after)),
            Note::EndingLeftovers => format!("ending what the command left running: {left}"),
            Note::WaitingForLeftovers => {
                format!("the command has ended; waiting for what it left running: {left}; --leftovers ignore does not wait")
            }
            Note::Killing => "killing what has not ended in time".into(),
            Note::CannotRelease { left } => self.cannot_release(left),
            Note::AbsentAtRelease => "the key was missing at the release (evicted, flushed or deleted): another may have held the lock meanwhile".into(),
            Note::TakenAtRelease => format!("at the release the lock was not ours any more: {}", self.loss),
        }
    }

    fn lost(&self, cause: Cause, grace: Option<Duration>, silent: Duration) -> String {
        let why = match cause {
            Cause::Taken | Cause::Foreign | Cause::Released => self.loss.to_owned(),
            Cause::Absent => "key missing (evicted, flushed or deleted)".into(),
            Cause::Unanswered if self.last_error.is_empty() => {
                format!("the server did not answer for {}", length(silent))
            }
            Cause::Unanswered => format!(
                "the server did not answer for {} ({})",
                length(silent),
                self.last_error
            ),
            Cause::ClockStepped => "clock stepped past the expiry".into(),
            Cause::Heartbeat if self.last_error.is_empty() => "the heartbeat ended".into(),
            Cause::Heartbeat => format!("the heartbeat ended ({})", self.last_error),
        };
        let then = grace.map_or_else(
            || "the command goes on without it (--on-lost warn)".into(),
            |grace| self.stopping(grace),
        );
        format!("lease lost: {why}; {then}")
    }

    fn stopping(&self, grace: Duration) -> String {
        if grace.is_zero() {
            return "killing the command".into();
        }
        let number = self.settings.signal;
        let name = signal_hook::low_level::signal_name(number).map_or_else(
            || number.to_string(),
            |name| name.trim_start_matches("SIG").to_owned(),
        );
        format!("stopping the command ({name}, KILL in {})", length(grace))
    }

    fn cannot_release(&self, left: Option<Duration>) -> String {
        let server = &self.settings.connection.server;
        let error = if self.last_error.is_empty() {
            "no answer yet"
        } else {
            self.last_error
        };
        let free = left.map_or_else(String::new, |left| {
            format!("free by itself in {}; ", length(left))
        });
        format!("cannot release: {server}: {error}; {free}TERM ends the waiting")
    }
}

/// Why a lock is not ours any more, as a part of a sentence.
pub(super) fn loss(loss: &Loss) -> String {
    match loss {
        Loss::Absent => "key missing (evicted, flushed or deleted)".into(),
        Loss::Taken(holding) => format!("taken by {}", taker(holding)),
        Loss::Released { by } => format!("released by {}", escape(by, 96)),
        Loss::Foreign(kind) => format!("overwritten: the key is a {} now", escape(kind, 40)),
    }
}

fn taker(holding: &Holding) -> String {
    let value = || escape(&String::from_utf8_lossy(&holding.value), 60);
    holding
        .record
        .as_ref()
        .map_or_else(|| format!("another program (value {:?})", value()), who)
}
