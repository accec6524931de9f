//! Behaviours that every store has, and faults of the Redis store.
