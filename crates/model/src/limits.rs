//! The limits on data that all parts of fondaco keep.

/// The longest key, in bytes. A key has at least one byte.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// The longest value, in bytes, before compression. A value may be empty.
pub const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How many stores a cluster can have: scan cursors cannot number more.
pub const STORES_MAX: usize = 4095;
