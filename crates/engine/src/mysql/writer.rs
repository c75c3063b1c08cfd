//! The one connection that changes anything: it holds the lock on the database.
//!
//! The server gives the lock up with the connection, however that ends: an idle one that it closes, a restart, a
//! network that breaks. The database may be another node's then. So nothing is changed over any other connection:
//! what is not held cannot be written to. A new connection takes the lock again, and goes on only if no other node has had
//! the database meanwhile, and it has all that was written ([`Owner`]).

use std::path::Path;
use std::sync::Arc;

use mysql::prelude::Queryable;
use mysql::{Conn, Error, Opts};

use super::failure::Failure;
use super::owner::Owner;
use crate::error::EngineError;

/// How long the server leaves the connection alone that nothing is asked over: the longest that it takes.
const IDLE_SECONDS_MAX: u32 = 31_536_000;

/// The connection, or what one is made by.
pub(super) struct Writer {
    opts: Opts,
    /// None once it has failed, until the next is made.
    connection: Option<Conn>,
    owner: Arc<Owner>,
}

impl Writer {
    /// Takes a database, of which something is remembered in a directory.
    pub(super) fn open(opts: Opts, dir: &Path, failure: &Failure<'_>) -> Result<Self, EngineError> {
        let mut connection = locked(&opts, failure)?;
        let owner = Owner::open(&mut connection, dir, failure)?;
        Ok(Self {
            opts,
            connection: Some(connection),
            owner: Arc::new(owner),
        })
    }

    /// Whose the database is.
    pub(super) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    /// The connection, made anew if the last one has failed.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if another engine has the database, or has had it since; from then on always.
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
        let looked = self.owner.look(&mut connection, self.owner.writes());
        looked.map_err(|error| failure.name("look for its mark", error))?;
        self.owner.check("lock the database", failure)?;
        Ok(connection)
    }

    /// A new connection to a database that went back, which is used as it is now.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if another engine has the database.
    pub(super) fn resume(&mut self, failure: &Failure<'_>) -> Result<&mut Conn, EngineError> {
        self.connection = None;
        let mut connection = locked(&self.opts, failure)?;
        self.owner.resume(&mut connection, failure)?;
        Ok(self.connection.insert(connection))
    }

    /// The connection is of no more use.
    pub(super) fn let_go(&mut self) {
        self.connection = None;
    }
}

/// A connection with the lock.
fn locked(opts: &Opts, failure: &Failure<'_>) -> Result<Conn, EngineError> {
    let mut connection = Conn::new(opts.clone()).map_err(|error| failure.name("connect", error))?;
    let mut lock = || {
        connection.query_drop(format!("SET SESSION wait_timeout = {IDLE_SECONDS_MAX}"))?;
        connection.query_first("SELECT GET_LOCK(CONCAT('fondaco.', DATABASE()), 1)")
    };
    let locked: Result<Option<Option<u8>>, Error> = lock();
    match locked.map_err(|error| failure.name("lock the database", error))? {
        Some(Some(1)) => Ok(connection),
        _ => Err(failure.refused("lock the database", "another node uses it: give each node its own")),
    }
}
