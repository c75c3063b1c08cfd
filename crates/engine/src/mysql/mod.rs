//! An engine in a MySQL or MariaDB server: one InnoDB table for each of ours, in a database that belongs to one node.
//!
//! The database belongs to this node until another node opens it: from then on, this node neither writes nor reads it
//! (`owner`, `writer`). Both the database and the node keep a count of writes. With it the node detects that the
//! server went back to an older state, for example by a failover to a lagging replica.
//!
//! This engine is for operators who already run such a server, with backups and expertise, and want their records
//! there. When `write` returns, its batch has been committed. Whether it survives a loss of power depends on the
//! server's setting (`innodb_flush_log_at_trx_commit`); `sync` fails if it does not.

mod catalog;
mod failure;
mod owner;
mod rows;
mod scan;
mod table;
mod writer;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use mysql::prelude::Queryable;
use mysql::{Conn, Error, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, PooledConn};
use parking_lot::{Mutex, RwLock};

use self::failure::Failure;
use self::owner::Owner;
use self::table::MySqlTable;
use self::writer::Writer;
use crate::batch::{TableChanges, WriteBatch};
use crate::budget::CacheBudget;
use crate::engine::{Engine, Table};
use crate::error::EngineError;
use crate::loss::OnLoss;
use crate::name;
use crate::open_table::OpenTable;
use crate::record_cache::{Known, RecordCache};

/// The timeout for connecting and for each answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The maximum number of attempts for a transaction that fails because of concurrent transactions.
const ATTEMPTS_MAX: usize = 10;
/// For each table, there is a statement per number of rows.
const STATEMENTS_MAX: usize = 512;
const CONNECTIONS_MAX: usize = 16;

/// The address of the server, and the settings of the engine.
#[derive(Clone)]
pub struct MySqlOptions {
    /// `mysql://user:password@host:port/database`. The database must exist, and no other program may write to it.
    pub url: String,
    /// The directory in which the node remembers the database's count of writes. Created if it does not exist.
    pub dir: PathBuf,
    /// The reaction to a database that went back to an older state since it was last open.
    pub on_loss: OnLoss,
    /// Memory for cached records, of all tables together.
    pub cache: CacheBudget,
}

impl fmt::Debug for MySqlOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL: it has a password.
        formatter
            .debug_struct("MySqlOptions")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// Tables in a database server.
pub struct MySqlEngine {
    shared: Arc<Shared>,
}

struct Shared {
    /// Replaced after the server went back: old connections may lead to a server that is no longer in charge.
    pool: ArcSwap<Pool>,
    opts: Opts,
    /// For messages: without the password.
    server: String,
    owner: Arc<Owner>,
    cache: RecordCache,
    tables: RwLock<HashMap<String, Arc<OpenTable>>>,
    /// Held while writing: the cache must see batches in the order of the server.
    writer: Mutex<Writer>,
}

impl MySqlEngine {
    /// Connects to a server, and takes ownership of the database.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`]; [`EngineError::Refused`] if the URL, the user or the database is wrong, or
    /// another engine has the database.
    pub fn open(options: &MySqlOptions) -> Result<Self, EngineError> {
        let parsed = Opts::from_url(&options.url).map_err(|error| EngineError::Refused {
            server: "(invalid address)".to_owned(),
            action: "connect",
            reason: format!("{error}; use mysql://user:password@host:port/database"),
        })?;
        let database = parsed.get_db_name().unwrap_or_default().to_owned();
        let server = format!("{}:{}/{database}", parsed.get_ip_or_hostname(), parsed.get_tcp_port());
        let failure = Failure { server: &server };
        if database.is_empty() {
            return Err(failure.refused("open", "the address has no database: add /database at its end"));
        }
        let constraints = PoolConstraints::new(1, CONNECTIONS_MAX).unwrap_or(PoolConstraints::DEFAULT);
        // A reset of a connection would drop its prepared statements. Scans end their transactions themselves.
        let pool = PoolOpts::new()
            .with_constraints(constraints)
            .with_reset_connection(false);
        let builder = OptsBuilder::from_opts(parsed)
            .pool_opts(pool)
            .stmt_cache_size(STATEMENTS_MAX)
            .tcp_connect_timeout(Some(ANSWER_MAX))
            .read_timeout(Some(ANSWER_MAX))
            .write_timeout(Some(ANSWER_MAX))
            .init(vec![
                "SET SESSION sql_mode = 'STRICT_ALL_TABLES', lock_wait_timeout = 1, innodb_lock_wait_timeout = 10",
            ]);
        let opts = Opts::from(builder);
        let pool = Pool::new(opts.clone()).map_err(|error| failure.name("connect", error))?;
        let (dir, on_loss) = (&options.dir, &options.on_loss);
        fondaco_durable::create_directory(dir).map_err(|error| crate::failure::io("create", dir, error))?;
        let mut writer = Writer::open(opts.clone(), dir, on_loss, &failure)?;
        let prepared = catalog::prepare(writer.connection(&failure)?);
        prepared.map_err(|error| failure.name("create the list of tables", error))?;
        Ok(Self {
            shared: Arc::new(Shared {
                pool: ArcSwap::from_pointee(pool),
                opts,
                owner: Arc::clone(writer.owner()),
                cache: RecordCache::new(&options.cache),
                tables: RwLock::default(),
                writer: Mutex::new(writer),
                server,
            }),
        })
    }
}

impl Shared {
    fn failure(&self) -> Failure<'_> {
        Failure { server: &self.server }
    }

    fn connection(&self) -> Result<PooledConn, EngineError> {
        self.pool
            .load()
            .get_conn()
            .map_err(|error| self.failure().name("connect", error))
    }

    /// Whether this node still owns the database, as far as it knows.
    fn check_owner(&self, action: &'static str) -> Result<(), EngineError> {
        self.owner.check(action, &self.failure())
    }

    fn open_table_of(&self, name: &str) -> Option<Arc<OpenTable>> {
        let tables = self.tables.read();
        tables.get(name).cloned()
    }

    fn write(&self, batch: &WriteBatch) -> Result<(), EngineError> {
        let mut tables = Vec::new();
        for (name, changes) in batch.tables() {
            let no_table = || EngineError::NoTable { table: name.to_owned() };
            tables.push((self.open_table_of(name).ok_or_else(no_table)?, changes));
        }
        let mut writer = self.writer.lock();
        if let Err(error) = self.transact(&mut writer, &tables) {
            // The batch may have been committed nevertheless.
            for (table, changes) in &tables {
                changes
                    .iter()
                    .for_each(|change| self.cache.forget(table.number(), change.key()));
            }
            return Err(error);
        }
        self.cache.put(tables.iter().flat_map(|(table, changes)| {
            changes.iter().map(|change| Known {
                table: table.number(),
                pair: change.shared_pair(),
                is_there: change.pair().is_some(),
            })
        }));
        Ok(())
    }

    /// Applies all changes or none. The changes are idempotent, so they are retried over a new connection if the
    /// connection breaks.
    fn transact(&self, writer: &mut Writer, tables: &[(Arc<OpenTable>, &TableChanges)]) -> Result<(), EngineError> {
        let (mut attempts, mut has_broken) = (0, false);
        loop {
            attempts += 1;
            self.check_owner("write")?;
            let connection = writer.connection(&self.failure())?;
            let error = match commit(connection, tables, &self.owner) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    // As far as the node knows, it still owns the database, and the count is unchanged.
                    let checked = self.owner.verify(connection, self.owner.writes());
                    checked.map_err(|error| self.failure().name("look for its mark", error))?;
                    self.check_owner("write")?;
                    if attempts < ATTEMPTS_MAX {
                        continue;
                    }
                    return Err(self
                        .failure()
                        .refused("write", "its count of writes changes during every attempt"));
                }
                Err(error) => error,
            };
            let is_over = failure::ends_the_connection(&error);
            if is_over {
                writer.let_go();
            }
            let again = match is_over {
                true => !std::mem::replace(&mut has_broken, true),
                false => failure::others_were_in_the_way(&error) && attempts < ATTEMPTS_MAX,
            };
            if !again {
                return Err(self.failure().name("write", error));
            }
        }
    }

    /// Changes the list of tables. If the connection breaks, the change may or may not have been made; the caller must
    /// retry it.
    fn change<T>(
        &self,
        writer: &mut Writer,
        action: &'static str,
        change: impl FnOnce(&mut Conn) -> Result<T, Error>,
    ) -> Result<T, EngineError> {
        self.check_owner(action)?;
        change(writer.connection(&self.failure())?).map_err(|error| {
            if failure::ends_the_connection(&error) {
                writer.let_go();
            }
            self.failure().name(action, error)
        })
    }

    fn open_table(self: &Arc<Self>, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        name::check(name)?;
        let mut writer = self.writer.lock();
        let table = match self.open_table_of(name) {
            Some(table) => table,
            None => {
                let open = |connection: &mut Conn| catalog::open_table(connection, name);
                let number = self.change(&mut writer, "create a table", open)?;
                let table = Arc::new(OpenTable::new(name, number));
                let mut tables = self.tables.write();
                tables.insert(name.to_owned(), table.clone());
                table
            }
        };
        Ok(Arc::new(MySqlTable::new(self.clone(), table)))
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        let mut writer = self.writer.lock();
        let forget = |connection: &mut Conn| catalog::forget_table(connection, name);
        self.change(&mut writer, "drop a table", forget)?;
        {
            let mut tables = self.tables.write();
            if let Some(table) = tables.remove(name) {
                table.set_dropped();
            }
        }
        // Rows that a scan still reads are deleted by a later sweep.
        self.change(&mut writer, "drop a table", catalog::sweep)
    }

    /// Uses the database that went back, in its current state: keeps the open tables, and nothing else from memory.
    fn resume(&self) -> Result<(), EngineError> {
        let mut writer = self.writer.lock();
        let failed = |error| self.failure().name("open its tables again", error);
        let connection = writer.resume(&self.failure())?;
        catalog::prepare(connection).map_err(failed)?;
        let tables: Vec<_> = {
            let tables = self.tables.read();
            tables.values().cloned().collect()
        };
        for table in tables {
            let restored = catalog::restore_table(connection, table.name(), table.number());
            restored.map_err(failed)?;
        }
        let pool = Pool::new(self.opts.clone()).map_err(|error| self.failure().name("connect", error))?;
        self.pool.store(Arc::new(pool));
        self.cache.clear();
        self.owner.resumed();
        Ok(())
    }

    fn sync(&self) -> Result<(), EngineError> {
        let flushed = self
            .connection()?
            .query_first("SELECT @@innodb_flush_log_at_trx_commit");
        let flushed: Option<u8> = flushed.map_err(|error| self.failure().name("sync", error))?;
        match flushed {
            // Each commit has already waited for the disk.
            Some(1) => Ok(()),
            _ => {
                let reason = "it commits without waiting for its disk: set innodb_flush_log_at_trx_commit = 1";
                Err(self.failure().refused("sync", reason))
            }
        }
    }
}

/// Commits changes as the next write. Returns false, without changes, if the mark or the count in the database has
/// changed.
fn commit(connection: &mut Conn, tables: &[(Arc<OpenTable>, &TableChanges)], owner: &Owner) -> Result<bool, Error> {
    let mut write = || {
        let Some(count) = owner.begin(connection)? else {
            return Ok(None);
        };
        for (table, changes) in tables {
            rows::change(connection, table.number(), changes)?;
        }
        connection.query_drop("COMMIT")?;
        Ok(Some(count))
    };
    let written = write();
    match written {
        Ok(Some(count)) => owner.wrote(count),
        // If this fails, the connection is gone, and the transaction with it.
        Ok(None) | Err(_) => drop(connection.query_drop("ROLLBACK")),
    }
    written.map(|count| count.is_some())
}

impl Engine for MySqlEngine {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        self.shared.open_table(name)
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        self.shared.drop_table(name)
    }

    fn tables(&self) -> Result<Vec<String>, EngineError> {
        let mut connection = self.shared.connection()?;
        let known = self.shared.owner.writes();
        let names = catalog::table_names(&mut connection);
        // Checked afterwards: if another node had changed the names, its mark would be visible by now.
        let names = names.and_then(|names| self.shared.owner.verify(&mut connection, known).map(|()| names));
        let names = names.map_err(|error| self.shared.failure().name("list its tables", error))?;
        self.shared.check_owner("list its tables")?;
        Ok(names)
    }

    fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        batch.check()?;
        if batch.is_empty() {
            return Ok(());
        }
        self.shared.write(&batch)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.shared.sync()
    }

    fn disk_bytes(&self) -> u64 {
        let Ok(mut connection) = self.shared.connection() else {
            return 0;
        };
        catalog::disk_bytes(&mut connection).unwrap_or(0)
    }

    fn identity(&self) -> Option<u64> {
        Some(self.shared.owner.identity())
    }

    fn pending_loss(&self) -> Option<String> {
        self.shared.owner.pending_loss()
    }

    fn resume(&self) -> Result<(), EngineError> {
        self.shared.resume()
    }

    fn is_durable(&self) -> bool {
        true
    }
}
