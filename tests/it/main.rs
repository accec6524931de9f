//! The integration tests: one binary, a file for each subject.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests; the exceptions for them in clippy.toml do not reach their helpers"
)]

mod call;
mod cli;
mod config;
mod cron;
mod documents;
mod examples;
mod faults;
mod file;
mod generated;
mod layers;
mod proxy;
mod redis;
mod release;
mod run;
mod servers;
mod status;
mod store;
mod supervision;
mod support;
mod terminal;
