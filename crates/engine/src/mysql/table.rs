//! A handle to a table in a database server.

use std::sync::Arc;

use bytes::Bytes;
use mysql::prelude::Queryable;

use super::Shared;
use super::catalog::{self, rows_of};
use super::rows::Parts;
use super::scan::MySqlScan;
use crate::engine::{Hot, Scan, Table};
use crate::error::EngineError;
use crate::limits::KEY_BYTES_MAX;
use crate::open_table::OpenTable;

pub(super) struct MySqlTable {
    shared: Arc<Shared>,
    table: Arc<OpenTable>,
}

impl MySqlTable {
    pub(super) fn new(shared: Arc<Shared>, table: Arc<OpenTable>) -> Self {
        Self { shared, table }
    }

    fn read(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let parts = Parts::of(key);
        let rows = rows_of(self.table.number());
        let statement = format!("SELECT tail, value FROM {rows} WHERE head = ? AND tail_hash = ?");
        let row = self
            .shared
            .connection()?
            .exec_first(statement, (parts.head, parts.tail_hash()));
        let row: Option<(Vec<u8>, Vec<u8>)> = row.map_err(|error| self.shared.failure().name("read", error))?;
        Ok(row
            .filter(|(tail, _)| tail == parts.tail)
            .map(|(_, value)| value.into()))
    }
}

impl Table for MySqlTable {
    fn name(&self) -> &str {
        self.table.name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.table.check()?;
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Ok(None);
        }
        self.shared
            .cache
            .get_or_read(self.table.number(), key, || self.read(key))
    }

    fn get_hot(&self, key: &[u8]) -> Result<Hot, EngineError> {
        self.table.check()?;
        Ok(self.shared.cache.get_hot(self.table.number(), key))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
        self.table.check()?;
        let connection = self.shared.connection()?;
        let scan = MySqlScan::start(connection, self.shared.clone(), self.table.number(), from, to);
        let scan = scan.map_err(|error| self.shared.failure().name("scan", error))?;
        Ok(Box::new(scan))
    }

    fn approximate_len(&self) -> u64 {
        let Ok(mut connection) = self.shared.connection() else {
            return 0;
        };
        catalog::approximate_len(&mut connection, self.table.number()).unwrap_or(0)
    }
}
