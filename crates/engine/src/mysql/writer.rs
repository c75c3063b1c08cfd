//! The only connection that changes the database: it holds the lock.
//!
//! The server releases the lock when the connection ends, for whatever reason: the server closes an idle connection, a
//! restart, a network failure. Then another node may own the database. So changes only go through this connection:
//! without the lock, nothing can be written. A new connection takes the lock again, and continues only if no other node
//! has used the database meanwhile and the database has all acknowledged writes ([`Owner`]).

use std::path::Path;
use std::sync::Arc;

use mysql::prelude::Queryable;
use mysql::{Conn, Error, Opts};

use super::failure::Failure;
use super::owner::Owner;
use crate::error::EngineError;
use crate::loss::OnLoss;

/// The idle timeout of the connection in the server: the longest allowed one.
const IDLE_SECONDS_MAX: u32 = 31_536_000;

/// The connection, and the options to create it.
pub(super) struct Writer {
    opts: Opts,
    /// `None` after it has failed, until the next one is created.
    connection: Option<Conn>,
    owner: Arc<Owner>,
}

impl Writer {
    /// Takes ownership of a database, whose remembered state is in a directory.
    pub(super) fn open(opts: Opts, dir: &Path, on_loss: &OnLoss, failure: &Failure<'_>) -> Result<Self, EngineError> {
        let mut connection = locked(&opts, failure)?;
        let owner = Owner::open(&mut connection, dir, on_loss, failure)?;
        Ok(Self {
            opts,
            connection: Some(connection),
            owner: Arc::new(owner),
        })
    }

    /// The ownership of the database.
    pub(super) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    /// The connection; creates a new one if the last one has failed.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if another engine has used the database; from then on always.
    pub(super) fn connection(&mut self, failure: &Failure<'_>) -> Result<&mut Conn, EngineError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.again(failure)?,
        };
        Ok(self.connection.insert(connection))
    }

    fn again(&mut self, failure: &Failure<'_>) -> Result<Conn, EngineError> {
        self.owner.check("lock the database", failure)?;
        let mut connection = locked(&self.opts, failure)?;
        let checked = self.owner.verify(&mut connection, self.owner.writes());
        checked.map_err(|error| failure.name("look for its mark", error))?;
        self.owner.check("lock the database", failure)?;
        Ok(connection)
    }

    /// A new connection to a database that went back, which is used in its current state.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if another engine has the database.
    pub(super) fn resume(&mut self, failure: &Failure<'_>) -> Result<&mut Conn, EngineError> {
        self.connection = None;
        let mut connection = locked(&self.opts, failure)?;
        self.owner.resume(&mut connection, failure)?;
        Ok(self.connection.insert(connection))
    }

    /// Drops the connection after a failure.
    pub(super) fn let_go(&mut self) {
        self.connection = None;
    }
}

/// Creates a connection that holds the lock.
fn locked(opts: &Opts, failure: &Failure<'_>) -> Result<Conn, EngineError> {
    let mut connection = Conn::new(opts.clone()).map_err(|error| failure.name("connect", error))?;
    let mut lock = || {
        connection.query_drop(format!("SET SESSION wait_timeout = {IDLE_SECONDS_MAX}"))?;
        connection.query_first("SELECT GET_LOCK(CONCAT('fondaco.', DATABASE()), 1)")
    };
    let locked: Result<Option<Option<u8>>, Error> = lock();
    match locked.map_err(|error| failure.name("lock the database", error))? {
        Some(Some(1)) => Ok(connection),
        _ => Err(failure.refused(
            "lock the database",
            "another node uses it: give each node its own database",
        )),
    }
}
