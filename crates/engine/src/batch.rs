//! Changes that are applied atomically. A batch holds at most one change per key: a later change replaces an earlier
//! one.

use bytes::Bytes;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::{Spot, Table};
use crate::error::EngineError;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Changes to any number of tables of one engine.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    /// Few tables: found by linear search.
    tables: Vec<(String, TableChanges)>,
    bytes: usize,
}

/// A key and its value, concatenated in one buffer. Engines keep the buffer in memory for a long time; a buffer that is
/// not shared needs no reference count.
#[derive(Clone, Debug)]
pub struct Pair {
    bytes: Bytes,
    key_bytes: usize,
}

/// The changes to the keys of one table, in the order in which the keys were first named.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableChanges {
    changes: Vec<Change>,
    /// Indexes into `changes`, by the hashes of the keys.
    places: HashTable<usize>,
}

/// The change to one key.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pair: Pair,
    /// Whether the key gets the value; otherwise it is deleted.
    is_put: bool,
    hash: u64,
    spot: Spot,
}

impl Pair {
    /// A pair from a buffer whose first `key_bytes` bytes are the key.
    ///
    /// # Panics
    /// If the buffer is shorter than `key_bytes`.
    pub fn new(bytes: Vec<u8>, key_bytes: usize) -> Self {
        // `Bytes` made from a boxed slice (length = capacity) allocate no reference count until they are shared.
        Self::of_shared(bytes.into_boxed_slice().into(), key_bytes)
    }

    /// Like [`new`](Self::new), for a buffer that may be shared.
    ///
    /// # Panics
    /// Like [`new`](Self::new).
    pub(crate) fn of_shared(bytes: Bytes, key_bytes: usize) -> Self {
        assert!(
            key_bytes <= bytes.len(),
            "a key of {key_bytes} of {} bytes",
            bytes.len()
        );
        Self { bytes, key_bytes }
    }

    /// A pair with copies of the key and the value.
    pub fn copied(key: &[u8], value: &[u8]) -> Self {
        Self::new([key, value].concat(), key.len())
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_bytes]
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.key_bytes..]
    }

    /// The value, as a slice that shares the buffer.
    pub fn shared_value(&self) -> Bytes {
        self.bytes.slice(self.key_bytes..)
    }

    /// The key, followed by the value.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The whole buffer.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The key, as a slice that shares the buffer.
    pub(crate) fn shared_key(&self) -> Bytes {
        self.bytes.slice(..self.key_bytes)
    }
}

impl Change {
    pub(crate) fn key(&self) -> &[u8] {
        self.pair.key()
    }

    /// The key and its new value; `None` if the change deletes the key.
    pub(crate) fn pair(&self) -> Option<&Pair> {
        self.is_put.then_some(&self.pair)
    }

    /// The key and its new value; only the key if the change deletes it.
    pub(crate) fn shared_pair(&self) -> Pair {
        self.pair.clone()
    }

    /// The place at which the caller saw the key.
    pub(crate) fn spot(&self) -> Spot {
        self.spot
    }

    /// The pair, and whether the change is a put.
    pub(crate) fn into_parts(self) -> (Pair, bool) {
        (self.pair, self.is_put)
    }

    /// The key, as a slice that shares its buffer.
    pub(crate) fn shared_key(&self) -> Bytes {
        self.pair.shared_key()
    }

    /// The new value, as a slice that shares its buffer; `None` if the key is deleted.
    pub(crate) fn shared_value(&self) -> Option<Bytes> {
        self.pair().map(Pair::shared_value)
    }

    fn bytes(&self) -> usize {
        self.pair.bytes.len()
    }
}

impl TableChanges {
    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |&at: &usize| self.changes[at].hash == hash && self.changes[at].key() == key;
        self.places.find(hash, is_it).copied()
    }

    /// Adds a change. Returns the change that it replaces, if any.
    fn put(&mut self, change: Change) -> Option<Change> {
        if let Some(at) = self.find(change.hash, change.key()) {
            return Some(std::mem::replace(&mut self.changes[at], change));
        }
        let (at, changes) = (self.changes.len(), &self.changes);
        self.places
            .insert_unique(change.hash, at, |&at| changes.get(at).map_or(0, |change| change.hash));
        self.changes.push(change);
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter()
    }

    pub(crate) fn into_changes(self) -> impl Iterator<Item = Change> {
        self.changes.into_iter()
    }
}

impl WriteBatch {
    /// A batch without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of a key. Copies both; [`put_pair`](Self::put_pair) does not.
    pub fn put(&mut self, table: &dyn Table, key: Bytes, value: Bytes) {
        self.put_pair(table, Pair::copied(&key, &value));
    }

    /// Sets the value of a key.
    pub fn put_pair(&mut self, table: &dyn Table, pair: Pair) {
        self.put_pair_at(table, pair, Spot::default());
    }

    /// Sets the value of a key that the table has at this [spot](Table::look_at_hot).
    pub fn put_pair_at(&mut self, table: &dyn Table, pair: Pair, spot: Spot) {
        self.change(table, pair, true, spot);
    }

    /// Deletes a key; does nothing if the key has no value.
    pub fn delete(&mut self, table: &dyn Table, key: Bytes) {
        // Copied: the key may be a slice of a larger buffer.
        self.change(table, Pair::copied(&key, &[]), false, Spot::default());
    }

    fn change(&mut self, table: &dyn Table, pair: Pair, is_put: bool, spot: Spot) {
        let at = self.tables.iter().position(|(name, _)| name == table.name());
        let at = at.unwrap_or_else(|| {
            self.tables.push((table.name().to_owned(), TableChanges::default()));
            self.tables.len() - 1
        });
        let hash = xxh3_64(pair.key());
        let change = Change {
            pair,
            is_put,
            hash,
            spot,
        };
        self.bytes += change.bytes();
        if let Some(old) = self.tables[at].1.put(change) {
            self.bytes -= old.bytes();
        }
    }

    /// The change to a key: `Some(None)` if the batch deletes the key, `None` if it does not change the key.
    pub fn change_of(&self, table: &dyn Table, key: &[u8]) -> Option<Option<Bytes>> {
        let (_, changes) = self.tables.iter().find(|(name, _)| name == table.name())?;
        let at = changes.find(xxh3_64(key), key)?;
        Some(changes.changes[at].shared_value())
    }

    /// Whether the batch changes a key.
    pub fn changes_key(&self, table: &dyn Table, key: &[u8]) -> bool {
        let changes = self.tables.iter().find(|(name, _)| name == table.name());
        changes.is_some_and(|(_, changes)| changes.find(xxh3_64(key), key).is_some())
    }

    /// How many keys the batch changes.
    pub fn len(&self) -> usize {
        self.tables.iter().map(|(_, changes)| changes.len()).sum()
    }

    /// Whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Whether the batch only deletes keys.
    pub(crate) fn only_deletes(&self) -> bool {
        let mut changes = self.tables.iter().flat_map(|(_, changes)| changes.iter());
        changes.all(|change| !change.is_put)
    }

    /// The total length of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The tables, and the changes to each.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&str, &TableChanges)> {
        self.tables.iter().map(|(name, changes)| (name.as_str(), changes))
    }

    /// The changes to each table.
    pub(crate) fn into_tables(self) -> impl Iterator<Item = TableChanges> {
        self.tables.into_iter().map(|(_, changes)| changes)
    }

    /// Fails if a key or a value exceeds the limits.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        for (table, changes) in &self.tables {
            for change in changes.iter() {
                let bytes = change.key().len();
                if !(1..=KEY_BYTES_MAX).contains(&bytes) {
                    let table = table.clone();
                    return Err(EngineError::KeyTooLong { table, bytes });
                }
                let bytes = change.pair().map_or(0, |pair| pair.value().len());
                if bytes > VALUE_BYTES_MAX {
                    let table = table.clone();
                    return Err(EngineError::ValueTooLong { table, bytes });
                }
            }
        }
        Ok(())
    }
}
