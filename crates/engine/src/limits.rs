//! The limits of every engine, independent of its storage.

/// The longest key of a table, in bytes: LSM trees store lengths of keys in 16 bits.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// The longest value of a table, in bytes: room for a record with several of the largest values of a store.
pub const VALUE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The longest name of a table, in bytes: MySQL allows 64, including our prefix.
pub const TABLE_NAME_BYTES_MAX: usize = 48;
