//! Every interleaving of a session on a time grid, explored.
