//! The ownership and the state of a database.
//!
//! One row records both. A process that opens the database first leaves a mark in the row, and each of our transactions
//! increments the count of writes. The node remembers the count of its last committed transaction in memory, and in a
//! file in its data directory.
//!
//! The invariants: no other process has written to the database since this one opened it, and the database has all
//! acknowledged writes. Each statement and scan that reads rows also checks, in the same snapshot, that the mark is
//! still there, and that the count is not lower than the one remembered before. Otherwise nothing is read or written,
//! not even from memory. This lasts forever if another process owns the database. If the server went back to an older
//! state, as in a failover to a lagging replica, it lasts until [`resume`](Owner::resume).

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

use mysql::prelude::Queryable;
use mysql::{Conn, Error};
use parking_lot::Mutex;

use super::failure::{self, Failure};
use crate::error::EngineError;
use crate::high_water::{Found, HighWater, Mark, draw};
use crate::loss::OnLoss;

/// The states of a database.
const OURS: u8 = 0;
const WENT_BACK: u8 = 1;
const OF_ANOTHER: u8 = 2;

/// The number of the only mark in the file: it stands for the database.
const MARK_NUMBER: u64 = 1;

/// The mark of this engine in the database, and the current ownership.
pub(super) struct Owner {
    mark: String,
    identity: u64,
    /// The count of the last write that is known to be committed.
    writes: AtomicU64,
    state: AtomicU8,
    /// The loss since the server went back, until the engine resumes.
    gone: Mutex<Option<String>>,
    noted: HighWater,
}

/// The content of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    mark: String,
    writes: u64,
    identity: u64,
}

impl Owner {
    /// Leaves a new mark, by which a previous owner detects that it has lost the database. The directory `dir` has the
    /// remembered count.
    pub(super) fn open(
        connection: &mut Conn,
        dir: &Path,
        on_loss: &OnLoss,
        failure: &Failure<'_>,
    ) -> Result<Self, EngineError> {
        on_loss.take_former_note(dir)?;
        let failed = |error| failure.name("mark the database", error);
        prepare(connection).map_err(failed)?;
        let known = match HighWater::find(dir)? {
            Found::Something(_, Some(marks)) => marks.first().map_or(0, |mark| mark.length),
            _ => 0,
        };
        let row = read_row(connection).map_err(failed)?;
        let found = row.as_ref().map_or(0, |row| row.writes);
        let owner = Self {
            mark: new_mark(connection).map_err(failed)?,
            identity: row.map(|row| row.identity).filter(|&id| id > 0).unwrap_or_else(draw),
            writes: AtomicU64::new(known.max(found)),
            state: AtomicU8::new(OURS),
            gone: Mutex::default(),
            noted: HighWater::open(dir, None)?,
        };
        if found < known {
            on_loss.react(dir, &[lost(found, known)])?;
        }
        owner.leave_mark(connection).map_err(failed)?;
        owner.noted.note_durably(&owner.marks())?;
        Ok(owner)
    }

    /// A random number that was drawn when the database was opened for the first time.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// Describes the writes that the server has lost, if it went back to an older state and must not be used for now.
    pub(super) fn pending_loss(&self) -> Option<String> {
        self.gone.lock().clone()
    }

    /// The mark, for a statement that checks it together with the rows that it reads.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// The count of the last write that is known to be committed. Read it before you query the server.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Acquire)
    }

    /// Checks the mark and the count; within a transaction, as of its snapshot.
    pub(super) fn verify(&self, connection: &mut impl Queryable, known: u64) -> Result<(), Error> {
        let row = read_row(connection)?;
        self.saw(known, row.map(|row| (row.mark == self.mark, row.writes)));
        Ok(())
    }

    /// Evaluates the row after a query: `None` if the row does not exist, otherwise whether it has our mark, and its
    /// count. The count was at least `known` before the query.
    pub(super) fn saw(&self, known: u64, row: Option<(bool, u64)>) {
        let (is_own, writes) = row.unwrap_or((false, 0));
        let state = match () {
            () if writes < known => WENT_BACK,
            () if !is_own => OF_ANOTHER,
            () => {
                self.writes.fetch_max(writes, AcqRel);
                return;
            }
        };
        // The first change counts: later writes of another owner are no loss of ours.
        let mut gone = self.gone.lock();
        if self.state.load(Acquire) == OURS {
            *gone = (state == WENT_BACK).then(|| lost(writes, known));
            self.state.store(state, Release);
        }
    }

    /// Fails unless this process still owns the database, and the database has all acknowledged writes, as far as is
    /// known.
    ///
    /// # Errors
    /// [`EngineError::Refused`].
    pub(super) fn check(&self, action: &'static str, failure: &Failure<'_>) -> Result<(), EngineError> {
        let reason = match self.state.load(Acquire) {
            OURS => return Ok(()),
            WENT_BACK => "it went back to an older state, and lacks acknowledged writes: try again in a moment",
            _ => "another node has used it since the connection broke: give each node its own database, and restart",
        };
        Err(failure.refused(action, reason))
    }

    /// Begins the transaction of the next write, and returns its count. `None` if the mark or the count in the database
    /// has changed: then nothing may be written.
    pub(super) fn begin(&self, connection: &mut Conn) -> Result<Option<u64>, Error> {
        let known = self.writes();
        let next = known + 1;
        // Both statements in one round trip.
        let begin = format!(
            "START TRANSACTION; \
             UPDATE fondaco_owner SET writes = {next} WHERE one = 1 AND mark = '{}' AND writes = {known}",
            self.mark
        );
        let mut results = connection.query_iter(begin)?;
        let mut changed = 0;
        while let Some(mut result) = results.iter() {
            changed = result.affected_rows();
            result.try_for_each(|row| row.map(drop))?;
        }
        Ok((changed == 1).then_some(next))
    }

    /// Records that the transaction with this count was committed.
    pub(super) fn wrote(&self, count: u64) {
        self.writes.fetch_max(count, AcqRel);
        // If this fails, fewer losses are detected. It is not synced: after a loss of power, a loss of the last writes
        // is not detected either.
        let _ = self.noted.note(&self.marks());
    }

    /// Uses a database that went back, in its current state.
    pub(super) fn resume(&self, connection: &mut Conn, failure: &Failure<'_>) -> Result<(), EngineError> {
        let failed = |error| failure.name("mark the database", error);
        prepare(connection).map_err(failed)?;
        self.leave_mark(connection).map_err(failed)?;
        self.noted.note_durably(&self.marks())?;
        Ok(())
    }

    /// Marks the database as ours again.
    pub(super) fn resumed(&self) {
        let mut gone = self.gone.lock();
        // Not if another process owns it.
        let _ = self.state.compare_exchange(WENT_BACK, OURS, AcqRel, Acquire);
        *gone = None;
    }

    /// Writes the row, with a count that is higher than all before.
    fn leave_mark(&self, connection: &mut Conn) -> Result<(), Error> {
        let next = self.writes() + 1;
        connection.exec_drop(
            "REPLACE INTO fondaco_owner (one, mark, writes, identity) VALUES (1, ?, ?, ?)",
            (&self.mark, next, self.identity),
        )?;
        self.writes.fetch_max(next, AcqRel);
        Ok(())
    }

    fn marks(&self) -> [Mark; 1] {
        [Mark {
            number: MARK_NUMBER,
            length: self.writes(),
        }]
    }
}

/// Creates the table, or adds the columns that an earlier release did not have.
fn prepare(connection: &mut Conn) -> Result<(), Error> {
    connection.query_drop(
        "CREATE TABLE IF NOT EXISTS fondaco_owner (
             one TINYINT NOT NULL PRIMARY KEY,
             mark VARCHAR(36) NOT NULL,
             writes BIGINT UNSIGNED NOT NULL DEFAULT 0,
             identity BIGINT UNSIGNED NOT NULL DEFAULT 0
         ) ENGINE = InnoDB",
    )?;
    let has_count: Option<u8> = connection.query_first(
        "SELECT 1 FROM information_schema.columns
         WHERE table_schema = DATABASE() AND table_name = 'fondaco_owner' AND column_name = 'writes'",
    )?;
    match has_count {
        Some(_) => Ok(()),
        None => connection.query_drop(
            "ALTER TABLE fondaco_owner ADD COLUMN writes BIGINT UNSIGNED NOT NULL DEFAULT 0, \
             ADD COLUMN identity BIGINT UNSIGNED NOT NULL DEFAULT 0",
        ),
    }
}

fn new_mark(connection: &mut Conn) -> Result<String, Error> {
    Ok(connection.query_first("SELECT UUID()")?.unwrap_or_default())
}

/// The row; `None` if the row or its table does not exist.
fn read_row(connection: &mut impl Queryable) -> Result<Option<Row>, Error> {
    let found = connection.query_first("SELECT mark, writes, identity FROM fondaco_owner WHERE one = 1");
    let row = |(mark, writes, identity)| Row { mark, writes, identity };
    match found {
        Err(error) if failure::is_without_table(&error) => Ok(None),
        found => Ok(found?.map(row)),
    }
}

fn lost(found: u64, known: u64) -> String {
    format!(
        "the database server went back to an older state: it has {found} of the {known} writes that this node has counted"
    )
}
