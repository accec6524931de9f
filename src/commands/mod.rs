//! The subcommands, one file each.

pub mod run;

use crate::cli::{Cli, Task};
use crate::config::{self, Environment};
use crate::model::{Outcome, code};
use crate::output::complain;

/// Carries out what was typed, and says how the process is to end.
pub fn dispatch(cli: Cli, environment: &Environment) -> Outcome {
    match cli.task {
        Task::Run(flags) => match config::run_settings(*flags, environment) {
            Ok(settings) => run::run(settings),
            Err(e) => {
                complain(None, &e.to_string());
                Outcome::Code(e.code())
            }
        },
        _ => Outcome::Code(code::SOFTWARE),
    }
}
