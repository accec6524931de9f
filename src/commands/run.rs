//! `distlock run`.

use crate::config::RunSettings;
use crate::model::{Outcome, code};

/// Takes the lock, runs the command, releases the lock.
pub fn run(settings: RunSettings) -> Outcome {
    crate::output::complain(Some(settings.key.name.as_str()), "not built yet");
    Outcome::Code(code::SOFTWARE)
}
