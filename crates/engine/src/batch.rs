//! Changes that are made together. A batch holds one change a key: a later one takes the place of an earlier.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::engine::Table;
use crate::error::EngineError;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Changes of any number of tables of one engine.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    /// Few: found by going through them.
    tables: Vec<(String, TableChanges)>,
    bytes: usize,
}

/// The new values of keys; `None` deletes one.
pub(crate) type TableChanges = BTreeMap<Bytes, Option<Bytes>>;

impl WriteBatch {
    /// A batch without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a key a value. Engines keep both in memory as they are given, for long: they must be no parts of larger
    /// buffers, which would be kept with them.
    pub fn put(&mut self, table: &dyn Table, key: Bytes, value: Bytes) {
        self.change(table, key, Some(value));
    }

    /// Deletes a key; one that has no value stays without.
    pub fn delete(&mut self, table: &dyn Table, key: Bytes) {
        // It may be a part of what it was found in.
        self.change(table, Bytes::copy_from_slice(&key), None);
    }

    fn change(&mut self, table: &dyn Table, key: Bytes, value: Option<Bytes>) {
        let at = self.tables.iter().position(|(name, _)| name == table.name());
        let at = at.unwrap_or_else(|| {
            self.tables.push((table.name().to_owned(), TableChanges::new()));
            self.tables.len() - 1
        });
        let value_bytes = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        let (key_bytes, new_bytes) = (key.len(), value_bytes(&value));
        match self.tables[at].1.insert(key, value) {
            Some(old) => self.bytes = self.bytes - value_bytes(&old) + new_bytes,
            None => self.bytes += key_bytes + new_bytes,
        }
    }

    /// What the batch does to a key: `Some(None)` if it deletes it, `None` if it leaves it alone.
    pub fn change_of(&self, table: &dyn Table, key: &[u8]) -> Option<Option<&Bytes>> {
        let (_, changes) = self.tables.iter().find(|(name, _)| name == table.name())?;
        changes.get(key).map(Option::as_ref)
    }

    /// How many keys it changes.
    pub fn len(&self) -> usize {
        self.tables.iter().map(|(_, changes)| changes.len()).sum()
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The length of all its keys and values together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its tables, and what it does to each.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&str, &TableChanges)> {
        self.tables.iter().map(|(name, changes)| (name.as_str(), changes))
    }

    /// Refuses what no engine stores.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        for (table, changes) in &self.tables {
            for (key, value) in changes {
                if key.is_empty() || key.len() > KEY_BYTES_MAX {
                    let (table, bytes) = (table.clone(), key.len());
                    return Err(EngineError::KeyTooLong { table, bytes });
                }
                let bytes = value.as_ref().map_or(0, Bytes::len);
                if bytes > VALUE_BYTES_MAX {
                    let table = table.clone();
                    return Err(EngineError::ValueTooLong { table, bytes });
                }
            }
        }
        Ok(())
    }
}
