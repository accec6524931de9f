//! Locks as people and programs want to see them.
