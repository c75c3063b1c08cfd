//! A scan of a table in a database server: page by page, within one transaction with a consistent snapshot.

use std::sync::Arc;

use bytes::Bytes;
use mysql::prelude::Queryable;
use mysql::{Error, PooledConn};

use super::Shared;
use super::catalog::{HEAD_BYTES_MAX, rows_of};
use super::rows::Parts;
use crate::error::EngineError;

const PAGE_ROWS_MAX: usize = 1000;
/// A page ends after this many bytes.
const PAGE_BYTES_MAX: usize = 4 << 20;

pub(super) struct MySqlScan {
    connection: PooledConn,
    shared: Arc<Shared>,
    rows: String,
    from: Bytes,
    to: Option<Bytes>,
    /// The last head that was read. All keys with this head have been read.
    last_head: Option<Vec<u8>>,
    /// The next entries, in reverse order.
    ahead: Vec<(Bytes, Bytes)>,
    ended: bool,
}

type Row = (Vec<u8>, Vec<u8>, Vec<u8>);

impl MySqlScan {
    pub(super) fn start(
        mut connection: PooledConn,
        shared: Arc<Shared>,
        number: u64,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let known = shared.owner.writes();
        connection.query_drop("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        connection.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        let rows = rows_of(number);
        // Locks the table, so that dropping it does not delete rows that this scan still reads.
        connection.query_drop(format!("SELECT 1 FROM {rows} LIMIT 1"))?;
        // In the snapshot of the transaction, like all reads.
        shared.owner.verify(&mut connection, known)?;
        Ok(Self {
            connection,
            shared,
            rows,
            from: Bytes::copy_from_slice(from),
            to: to.map(Bytes::copy_from_slice),
            last_head: None,
            ahead: Vec::new(),
            ended: false,
        })
    }

    /// Reads the next keys, whose heads are greater than the last one.
    fn read_page(&mut self) -> Result<(), Error> {
        let rows = &self.rows;
        let select = format!("SELECT head, tail, value FROM {rows}");
        let order = format!("ORDER BY head, tail_hash LIMIT {PAGE_ROWS_MAX}");
        let result = match &self.last_head {
            Some(head) => self
                .connection
                .exec_iter(format!("{select} WHERE head > ? {order}"), (head,))?,
            None => {
                let head = Parts::of(&self.from).head;
                self.connection
                    .exec_iter(format!("{select} WHERE head >= ? {order}"), (head,))?
            }
        };
        let mut page: Vec<Row> = Vec::new();
        let mut bytes = 0;
        for row in result {
            let row: Row = mysql::from_row(row?);
            bytes += row.0.len() + row.1.len() + row.2.len();
            page.push(row);
            if bytes > PAGE_BYTES_MAX {
                break;
            }
        }
        let Some((last, _, _)) = page.last() else {
            self.ended = true;
            return Ok(());
        };
        let last = last.clone();
        if last.len() == HEAD_BYTES_MAX {
            // More keys may have the same head: reads all of them, since the index does not have them in order.
            page.retain(|(head, _, _)| *head != last);
            let same = self.connection.exec(format!("{select} WHERE head = ?"), (&last,))?;
            page.extend::<Vec<Row>>(same);
        }
        let key = |(head, tail, value): Row| (Bytes::from([head, tail].concat()), Bytes::from(value));
        let mut ahead: Vec<_> = page.into_iter().map(key).collect();
        ahead.sort_by(|(one, _), (other, _)| one.cmp(other));
        ahead.retain(|(key, _)| *key >= self.from);
        if let Some(to) = &self.to {
            let within = ahead.partition_point(|(key, _)| key < to);
            self.ended = within < ahead.len();
            ahead.truncate(within);
        }
        ahead.reverse();
        self.ahead = ahead;
        self.last_head = Some(last);
        Ok(())
    }
}

impl Iterator for MySqlScan {
    type Item = Result<(Bytes, Bytes), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ahead.is_empty() && !self.ended {
            if let Err(error) = self.read_page() {
                self.ended = true;
                return Some(Err(self.shared.failure().name("scan", error)));
            }
        }
        self.ahead.pop().map(Ok)
    }
}

impl Drop for MySqlScan {
    fn drop(&mut self) {
        // If this fails, the connection is gone, and the transaction with it.
        let _ = self.connection.query_drop("ROLLBACK");
    }
}
