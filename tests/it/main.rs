//! The integration tests: one binary, a file for each subject.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests; the exceptions for them in clippy.toml do not reach their helpers"
)]

mod file;
