//! The batches of the process that is killed: what it writes, and how the test reads it.

use std::path::Path;

use bytes::Bytes;
use fondaco_engine::{Engine, Table};

use super::engines::{Kind, Options};

/// How many keys are written again and again.
pub const KEYS: u64 = 500;
const PADDING_BYTES: u64 = 3000;

/// Opens an engine that flushes, merges and cleans all the time, so that kills interrupt that too.
pub fn open(kind: Kind, dir: &Path) -> Box<dyn Engine> {
    // Lost writes would be refused.
    kind.open(dir, Options::default()).unwrap()
}

/// The number of a batch, and as much padding as the number says.
pub fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(8 + (number * 37 % PADDING_BYTES) as usize, number as u8);
    value
}

/// The number of the batch that wrote a value.
pub fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// A key that is put and deleted once, and long, so that deletions are much of what is stored.
pub fn once(number: u64) -> Bytes {
    format!("once-{number:0200}").into()
}

/// The number of the last batch in a table.
pub fn last(table: &dyn Table) -> u64 {
    table.get(b"last").unwrap().map_or(0, |value| number(&value))
}
