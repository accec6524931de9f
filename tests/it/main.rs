//! The integration tests: one binary, a file for each subject.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests; the exceptions for them in clippy.toml do not reach their helpers"
)]

mod cron;
mod documents;
mod examples;
mod file;
mod layers;
mod support;
