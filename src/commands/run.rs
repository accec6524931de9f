//! `distlock run`.

use super::Trouble;
use crate::cli;
use crate::config::{self, Environment};
use crate::model::Outcome;
use crate::supervise;

/// Takes the lock, runs the command, releases the lock.
pub(super) fn run(flags: &cli::Run, environment: &Environment) -> Result<Outcome, Trouble> {
    let settings = config::run_settings(flags, environment)?;
    Ok(supervise::run(settings))
}
