//! Parse, run, exit.

fn main() {}
