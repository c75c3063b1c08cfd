//! Whose a database is: who opens it leaves a mark in it, before it changes anything else.
//!
//! The invariant: what is read was not written by who has had the database since. Each statement and each scan that
//! reads rows sees, at the moment that it sees them at, whether the mark is still there. Once it is not, nothing
//! is read or written any more, not even from memory.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use mysql::prelude::Queryable;
use mysql::{Conn, Error};

use super::failure::Failure;
use crate::error::EngineError;

/// What this engine has left in the database when it was opened, and whether another one has had that since.
pub(super) struct Owner {
    mark: String,
    is_lost: AtomicBool,
}

impl Owner {
    /// Leaves a new mark. Whoever had the database before finds it.
    pub(super) fn leave_mark(connection: &mut Conn) -> Result<Self, Error> {
        connection.query_drop(
            "CREATE TABLE IF NOT EXISTS fondaco_owner (
                 one TINYINT NOT NULL PRIMARY KEY,
                 mark VARCHAR(36) NOT NULL
             ) ENGINE = InnoDB",
        )?;
        connection.query_drop("REPLACE INTO fondaco_owner (one, mark) VALUES (1, UUID())")?;
        Ok(Self {
            mark: found(connection)?.unwrap_or_default(),
            is_lost: AtomicBool::new(false),
        })
    }

    /// The mark, for a statement that looks for it beside what it reads.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Looks for the mark; within a transaction, as that sees the database.
    pub(super) fn look(&self, connection: &mut impl Queryable) -> Result<(), Error> {
        let found = found(connection)?;
        self.saw(found.as_ref() == Some(&self.mark));
        Ok(())
    }

    /// The mark was looked for, and was there or not.
    pub(super) fn saw(&self, is_there: bool) {
        if !is_there {
            self.is_lost.store(true, Relaxed);
        }
    }

    /// Whether nobody else has had the database, as far as is known.
    ///
    /// # Errors
    /// [`EngineError::Refused`]; from then on always.
    pub(super) fn check(&self, action: &'static str, failure: &Failure<'_>) -> Result<(), EngineError> {
        if !self.is_lost.load(Relaxed) {
            return Ok(());
        }
        let reason = "another node has used it since the connection broke: give each node its own, and start again";
        Err(failure.refused(action, reason))
    }
}

fn found(connection: &mut impl Queryable) -> Result<Option<String>, Error> {
    connection.query_first("SELECT mark FROM fondaco_owner WHERE one = 1")
}
