//! Whose a database is, and how far it is.
//!
//! One row says both: a process that opens the database leaves a mark in it, before it changes anything else, and each transaction of
//! ours raises its count of writes. The node remembers the count of the last transaction that was committed: in memory, and
//! in a file in its data directory.
//!
//! The invariants: no process has written what is read since this one opened the database, and it has all that was acknowledged. Each
//! statement and each scan that reads rows sees, at the moment that it sees them at, whether the mark is still there, and
//! a count that is no lower than the one remembered before. Otherwise nothing is read or written, not even from memory: for
//! ever, if another one has the database; until [`resume`](Owner::resume), if the server went back to an older state, as it
//! does when it fails over to a replica that lagged.

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

use mysql::prelude::Queryable;
use mysql::{Conn, Error};
use parking_lot::Mutex;

use super::failure::{self, Failure};
use crate::error::EngineError;
use crate::high_water::{Found, HighWater, Mark, draw};
use crate::loss::LossNote;

/// The states of a database.
const OURS: u8 = 0;
const WENT_BACK: u8 = 1;
const OF_ANOTHER: u8 = 2;

/// What the file calls the database, which is all that it is about.
const MARK_NUMBER: u64 = 1;

/// What this engine has left in the database, and what became of that since.
pub(super) struct Owner {
    mark: String,
    identity: u64,
    /// The count of the last write that is known to be committed.
    writes: AtomicU64,
    state: AtomicU8,
    /// What is lost since the server went back, in words, until it is noted.
    gone: Mutex<Option<String>>,
    noted: HighWater,
    lost: LossNote,
}

/// What is in the row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    mark: String,
    writes: u64,
    identity: u64,
}

impl Owner {
    /// Leaves a new mark, by which a process that had the database before finds that it lost it. What is remembered of it is in `dir`.
    pub(super) fn open(connection: &mut Conn, dir: &Path, failure: &Failure<'_>) -> Result<Self, EngineError> {
        let failed = |error| failure.name("mark the database", error);
        prepare(connection).map_err(failed)?;
        let known = match HighWater::find(dir)? {
            Found::Something(_, Some(marks)) => marks.first().map_or(0, |mark| mark.length),
            _ => 0,
        };
        let row = look(connection).map_err(failed)?;
        let found = row.as_ref().map_or(0, |row| row.writes);
        let owner = Self {
            mark: new_mark(connection).map_err(failed)?,
            identity: row.map(|row| row.identity).filter(|&id| id > 0).unwrap_or_else(draw),
            writes: AtomicU64::new(known.max(found)),
            state: AtomicU8::new(OURS),
            gone: Mutex::default(),
            noted: HighWater::open(dir, None)?,
            lost: LossNote::open(dir)?,
        };
        if found < known {
            owner.lost.add(&lost(found, known))?;
        }
        owner.leave_mark(connection).map_err(failed)?;
        owner.noted.note_durably(&owner.marks())?;
        Ok(owner)
    }

    /// A number that was drawn when the database was opened first.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// What the server has lost, in words.
    pub(super) fn lost_writes(&self) -> Option<String> {
        let texts = [self.lost.text(), self.gone.lock().clone()];
        let texts: Vec<String> = texts.into_iter().flatten().collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// What is noted of losses.
    pub(super) fn losses(&self) -> &LossNote {
        &self.lost
    }

    /// The mark, for a statement that looks for it beside what it reads.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// The count of the last write that is known to be committed: to be asked for before the server is.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Acquire)
    }

    /// Looks for the mark and the count; within a transaction, as that sees the database.
    pub(super) fn look(&self, connection: &mut impl Queryable, known: u64) -> Result<(), Error> {
        let row = look(connection)?;
        self.saw(known, row.map(|row| (row.mark == self.mark, row.writes)));
        Ok(())
    }

    /// The row was looked at, and is not there, or has the mark or another one, and a count, which was no lower than `known`
    /// before that.
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
        // The first one counts: what another one has written since is no loss of ours.
        let mut gone = self.gone.lock();
        if self.state.load(Acquire) == OURS {
            *gone = (state == WENT_BACK).then(|| lost(writes, known));
            self.state.store(state, Release);
        }
    }

    /// Whether the server has gone back, and is not to be used for now.
    pub(super) fn went_back(&self) -> bool {
        self.state.load(Acquire) == WENT_BACK
    }

    /// Whether no other process has had the database, and it has all that was acknowledged, as far as is known.
    ///
    /// # Errors
    /// [`EngineError::Refused`].
    pub(super) fn check(&self, action: &'static str, failure: &Failure<'_>) -> Result<(), EngineError> {
        let reason = match self.state.load(Acquire) {
            OURS => return Ok(()),
            WENT_BACK => "it went back to an older state, and lacks what was acknowledged: try again in a moment",
            _ => "another node has used it since the connection broke: give each node its own, and start again",
        };
        Err(failure.refused(action, reason))
    }

    /// Begins a transaction that counts as the next write. Its count; `None` if the row is not as it was left, and nothing
    /// is to be written.
    pub(super) fn begin(&self, connection: &mut Conn) -> Result<Option<u64>, Error> {
        let known = self.writes();
        let next = known + 1;
        // Both at once: the server is asked no more often for it.
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

    /// A transaction of this count is committed.
    pub(super) fn wrote(&self, count: u64) {
        self.writes.fetch_max(count, AcqRel);
        // Otherwise less is noticed. It is not synced: what a loss of power takes of it is not noticed either.
        let _ = self.noted.note(&self.marks());
    }

    /// Uses a database that went back, as it is now. What it has lost is noted.
    pub(super) fn resume(&self, connection: &mut Conn, failure: &Failure<'_>) -> Result<(), EngineError> {
        {
            let mut gone = self.gone.lock();
            if let Some(lost) = &*gone {
                self.lost.add(lost)?;
            }
            *gone = None;
        }
        let failed = |error| failure.name("mark the database", error);
        prepare(connection).map_err(failed)?;
        self.leave_mark(connection).map_err(failed)?;
        self.noted.note_durably(&self.marks())?;
        Ok(())
    }

    /// From now on the database is ours again.
    pub(super) fn resumed(&self) {
        // Not if it is another one's.
        let _ = self.state.compare_exchange(WENT_BACK, OURS, AcqRel, Acquire);
    }

    /// Writes the row, with a count that is higher than any before.
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

/// Makes the table, or gives that of an earlier release what it lacks.
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

/// The row; `None` if it or its table is not there.
fn look(connection: &mut impl Queryable) -> Result<Option<Row>, Error> {
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
