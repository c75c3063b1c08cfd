//! A handle to a table in a database server.

use std::sync::Arc;

use bytes::Bytes;
use mysql::Error;
use mysql::prelude::Queryable;

use super::Shared;
use super::catalog::{self, rows_of};
use super::failure;
use super::rows::Parts;
use super::scan::MySqlScan;
use crate::engine::{Hot, Scan, Table};
use crate::error::EngineError;
use crate::limits::KEY_BYTES_MAX;
use crate::open_table::OpenTable;

/// Whether the mark is there, and the count of writes; then the tail and the value, if the key has a row.
type Row = (bool, u64, Option<Vec<u8>>, Option<Vec<u8>>);

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
        // One statement sees one snapshot: the mark is as current as the row.
        let statement = format!(
            "SELECT mark = ?, writes, tail, value FROM fondaco_owner LEFT JOIN {rows} ON head = ? AND tail_hash = ? \
             WHERE one = 1"
        );
        let owner = &self.shared.owner;
        let parameters = (owner.mark(), parts.head, parts.tail_hash());
        let mut connection = self.shared.connection()?;
        let known = owner.writes();
        let row: Result<Option<Row>, Error> = connection.exec_first(statement, parameters);
        let row = match row {
            // The database may have gone back to a state without the table.
            Err(error) if failure::is_without_table(&error) => {
                let checked = owner.verify(&mut connection, known);
                checked.map_err(|error| self.shared.failure().name("read", error))?;
                self.shared.check_owner("read")?;
                Err(error)
            }
            row => row,
        };
        let row = row.map_err(|error| self.shared.failure().name("read", error))?;
        owner.saw(known, row.as_ref().map(|(is_own, writes, ..)| (*is_own, *writes)));
        self.shared.check_owner("read")?;
        let (tail, value) = row.map_or((None, None), |(_, _, tail, value)| (tail, value));
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
