//! the Redis protocol: requests parsed, replies written; no I/O
