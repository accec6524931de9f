//! `distlock` runs a command on one host of many at a time.
//!
//! The library behind the binary. ARCHITECTURE.md has the picture; README.md says what it is for.

pub mod backoff;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod contest;
pub mod exit;
pub mod heartbeat;
pub mod identity;
pub mod lease;
pub mod model;
pub mod output;
pub mod release;
pub mod session;
pub mod store;
pub mod supervise;
