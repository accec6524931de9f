//! Parse, run, exit.

use std::process::ExitCode;

use distlock::config::Environment;
use distlock::model::Outcome;
use distlock::{cli, commands};

fn main() -> ExitCode {
    let outcome = match cli::parse(std::env::args_os()) {
        Ok(cli) => commands::dispatch(cli, &Environment::of_this_process()),
        Err(refusal) => Outcome::Code(refusal.say()),
    };
    match outcome {
        Outcome::Code(code) => ExitCode::from(code),
        Outcome::Signal(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
    }
}
