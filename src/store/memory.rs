//! Locks in memory, for tests.
