//! A handle to a table in a database server.

use std::sync::Arc;

use bytes::Bytes;
use mysql::prelude::Queryable;

use super::Shared;
use super::catalog::{self, rows_of};
use super::rows::Parts;
use super::scan::MySqlScan;
use crate::engine::{Extent, Hot, Scan, Spot, Table};
use crate::error::EngineError;
use crate::limits::KEY_BYTES_MAX;
use crate::open_table::OpenTable;

/// Whether the mark is there; then what is beside it, if there is something.
type Row = (bool, Option<Vec<u8>>, Option<Vec<u8>>);

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
        // One statement sees one moment: the mark is of the same as the row.
        let statement = format!(
            "SELECT mark = ?, tail, value FROM fondaco_owner LEFT JOIN {rows} ON head = ? AND tail_hash = ? \
             WHERE one = 1"
        );
        let parameters = (self.shared.owner.mark(), parts.head, parts.tail_hash());
        let row = self.shared.connection()?.exec_first(statement, parameters);
        let row: Option<Row> = row.map_err(|error| self.shared.failure().name("read", error))?;
        self.shared.owner.saw(row.as_ref().is_some_and(|(is_own, ..)| *is_own));
        self.shared.check_owner("read")?;
        let (tail, value) = row.map_or((None, None), |(_, tail, value)| (tail, value));
        Ok(value.filter(|_| tail.as_deref() == Some(parts.tail)).map(Bytes::from))
    }
}

impl Table for MySqlTable {
    fn name(&self) -> &str {
        self.table.name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.table.check()?;
        self.shared.check_owner("read")?;
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Ok(None);
        }
        self.shared
            .cache
            .get_or_read(self.table.number(), key, || self.read(key))
    }

    fn get_hot(&self, key: &[u8]) -> Result<Hot<Bytes>, EngineError> {
        self.table.check()?;
        self.shared.check_owner("read")?;
        Ok(self.shared.cache.get(self.table.number(), key))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
        self.table.check()?;
        self.shared.check_owner("scan")?;
        let connection = self.shared.connection()?;
        let scan = MySqlScan::start(connection, self.shared.clone(), self.table.number(), from, to);
        let scan = scan.map_err(|error| self.shared.failure().name("scan", error))?;
        self.shared.check_owner("scan")?;
        Ok(Box::new(scan))
    }

    fn approximate_len(&self) -> u64 {
        let Ok(mut connection) = self.shared.connection() else {
            return 0;
        };
        catalog::approximate_len(&mut connection, self.table.number()).unwrap_or(0)
    }
}
