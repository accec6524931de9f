//! Parse, run, exit.

use distlock::config::Environment;
use distlock::model::Outcome;
use distlock::{cli, commands, exit};

fn main() {
    let outcome = match cli::parse(std::env::args_os()) {
        Ok(cli) => commands::dispatch(cli, &Environment::of_this_process()),
        Err(refusal) => Outcome::Code(refusal.say()),
    };
    exit::exit(outcome);
}
