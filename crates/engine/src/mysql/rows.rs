//! The encoding of a key and its value as a row, and the grouping of rows into statements.
//!
//! InnoDB's indexes allow 3072 bytes; a key may have 64 KiB. So a key is in two columns, the `head` with up to 2048
//! bytes and the `tail` with the rest. The index consists of the head and a hash of the tail. Keys with the same head
//! are sorted by the reader.

use mysql::prelude::Queryable;
use mysql::{Conn, Error, Value};
use xxhash_rust::xxh3::xxh3_128;

use super::catalog::{HEAD_BYTES_MAX, rows_of};
use crate::batch::{Pair, TableChanges};

/// A statement has this many rows, or a half, a quarter, an eighth… of it: so there are few statements to prepare.
const ROWS_MAX: usize = 256;
/// Larger groups are sent row by row.
const STATEMENT_BYTES_MAX: usize = 1 << 20;

/// The parts of a key.
pub(super) struct Parts<'a> {
    pub(super) head: &'a [u8],
    pub(super) tail: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(super) fn of(key: &'a [u8]) -> Self {
        let (head, tail) = key.split_at(key.len().min(HEAD_BYTES_MAX));
        Self { head, tail }
    }

    /// Empty if the key has no tail.
    pub(super) fn tail_hash(&self) -> Vec<u8> {
        match self.tail {
            [] => Vec::new(),
            tail => xxh3_128(tail).to_be_bytes().to_vec(),
        }
    }
}

/// Applies changes within a transaction.
pub(super) fn change(transaction: &mut Conn, number: u64, changes: &TableChanges) -> Result<(), Error> {
    let mut puts = Vec::new();
    let mut deletes = Vec::new();
    for change in changes.iter() {
        match change.pair() {
            Some(pair) => puts.push(pair),
            None => deletes.push(change.key()),
        }
    }
    // In the order of the table.
    puts.sort_unstable_by_key(|pair| pair.key());
    deletes.sort_unstable();
    put(transaction, number, &puts)?;
    delete(transaction, number, &deletes)
}

fn put(transaction: &mut Conn, number: u64, puts: &[&Pair]) -> Result<(), Error> {
    let rows = rows_of(number);
    for group in groups(puts, |pair| pair.key().len() + pair.value().len()) {
        let places = vec!["(?, ?, ?, ?)"; group.len()].join(", ");
        let statement = format!(
            "INSERT INTO {rows} (head, tail_hash, tail, value) VALUES {places} \
             ON DUPLICATE KEY UPDATE value = VALUES(value)"
        );
        let parameters: Vec<Value> = group.iter().flat_map(|pair| row(pair.key(), pair.value())).collect();
        transaction.exec_drop(statement, parameters)?;
    }
    Ok(())
}

fn row(key: &[u8], value: &[u8]) -> [Value; 4] {
    let parts = Parts::of(key);
    [
        Value::Bytes(parts.head.to_vec()),
        Value::Bytes(parts.tail_hash()),
        Value::Bytes(parts.tail.to_vec()),
        Value::Bytes(value.to_vec()),
    ]
}

fn delete(transaction: &mut Conn, number: u64, keys: &[&[u8]]) -> Result<(), Error> {
    let rows = rows_of(number);
    let (short, long): (Vec<&[u8]>, Vec<&[u8]>) = keys.iter().partition(|key| key.len() <= HEAD_BYTES_MAX);
    for group in groups(&short, |key| key.len()) {
        let places = vec!["?"; group.len()].join(", ");
        let statement = format!("DELETE FROM {rows} WHERE head IN ({places}) AND tail_hash = ''");
        let parameters: Vec<Value> = group.iter().map(|key| Value::Bytes(key.to_vec())).collect();
        transaction.exec_drop(statement, parameters)?;
    }
    for key in long {
        let parts = Parts::of(key);
        let statement = format!("DELETE FROM {rows} WHERE head = ? AND tail_hash = ?");
        transaction.exec_drop(statement, (parts.head, parts.tail_hash()))?;
    }
    Ok(())
}

/// Splits rows into groups, one for each statement.
fn groups<T>(rows: &[T], length: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut groups = Vec::new();
    let mut rest = rows;
    while !rest.is_empty() {
        let mut count = ROWS_MAX.min(rest.len()).next_power_of_two();
        if count > rest.len() {
            count /= 2;
        }
        while count > 1 && rest[..count].iter().map(&length).sum::<usize>() > STATEMENT_BYTES_MAX {
            count /= 2;
        }
        let (group, left) = rest.split_at(count);
        groups.push(group);
        rest = left;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_powers_of_two_and_bounded() {
        let rows = vec![1000_usize; 700];
        let sizes: Vec<_> = groups(&rows, |length| *length)
            .iter()
            .map(|group| group.len())
            .collect();
        assert_eq!(sizes, [256, 256, 128, 32, 16, 8, 4]);
        let rows = [10, STATEMENT_BYTES_MAX, STATEMENT_BYTES_MAX * 3, 10, 10];
        let sizes: Vec<_> = groups(&rows, |length| *length)
            .iter()
            .map(|group| group.len())
            .collect();
        assert_eq!(sizes, [1, 1, 1, 2]);
        assert!(groups(&[0; 0], |length| *length).is_empty());
    }

    #[test]
    fn short_keys_have_no_tail() {
        let key = vec![1; HEAD_BYTES_MAX + 1];
        assert!(Parts::of(&key[1..]).tail_hash().is_empty());
        assert_eq!(Parts::of(&key).tail, [1]);
        assert_eq!(Parts::of(&key).tail_hash().len(), 16);
    }
}
