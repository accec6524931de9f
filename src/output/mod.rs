//! The only place that prints.

pub mod message;
pub mod words;
