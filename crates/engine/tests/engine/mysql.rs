//! A database in a server belongs to one node, even if the connection that holds its lock breaks, for example because
//! the server closes an idle connection. Also, a server that went back to an older state is detected.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::{CacheBudget, Engine, EngineError, MySqlEngine, MySqlOptions, OnLoss, Table, WriteBatch};
use fondaco_testing::{MariaDb, wait_until};
use mysql::prelude::Queryable;
use tempfile::TempDir;

use crate::losses::Noted;

/// The server in which most tests have databases of their own.
pub fn shared_server() -> &'static MariaDb {
    static SERVER: OnceLock<MariaDb> = OnceLock::new();
    SERVER.get_or_init(|| MariaDb::start(&["--max-allowed-packet=256M"]))
}

/// A database in the shared server.
struct Database {
    name: &'static str,
    url: String,
    operator: mysql::Conn,
    /// A directory for each node.
    nodes: TempDir,
}

fn open(url: &str, dir: &Path, on_loss: OnLoss) -> Result<MySqlEngine, EngineError> {
    MySqlEngine::open(&MySqlOptions {
        url: url.to_owned(),
        dir: dir.to_owned(),
        on_loss,
        cache: CacheBudget::new(1 << 20),
    })
}

impl Database {
    fn make(name: &'static str) -> Self {
        let server = shared_server();
        let mut operator = mysql::Conn::new(mysql::Opts::from_url(&server.url("mysql")).unwrap()).unwrap();
        operator.query_drop(format!("CREATE DATABASE {name}")).unwrap();
        let url = server.url(name);
        let nodes = TempDir::new().unwrap();
        Self {
            name,
            url,
            operator,
            nodes,
        }
    }

    fn open(&self, node: &str) -> Result<MySqlEngine, EngineError> {
        open(&self.url, &self.nodes.path().join(node), OnLoss::Refuse)
    }

    /// The number of the connection that holds the lock.
    fn holder(&mut self) -> Option<u64> {
        let asked = format!("SELECT IS_USED_LOCK('fondaco.{}')", self.name);
        let held: Option<Option<u64>> = self.operator.query_first(asked).unwrap();
        held.flatten()
    }

    /// Closes the connection that holds the lock.
    fn break_connection(&mut self) {
        let holder = self.holder().unwrap();
        self.operator.query_drop(format!("KILL {holder}")).unwrap();
        wait_until("the end of the connection", Duration::from_secs(30), || {
            self.holder().is_none()
        });
    }
}

fn put(engine: &MySqlEngine, table: &dyn Table, value: &'static str) -> Result<(), EngineError> {
    let mut batch = WriteBatch::new();
    batch.put(table, Bytes::from_static(b"k"), Bytes::from_static(value.as_bytes()));
    engine.write(batch)
}

#[test]
fn an_uncached_read_detects_that_another_node_owns_the_database() {
    let mut database = Database::make("seen");
    let first = database.open("first").unwrap();
    let table = first.open_table("t").unwrap();
    put(&first, &*table, "first").unwrap();
    database.break_connection();
    let second = database.open("second").unwrap();
    let theirs = second.open_table("t").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&*theirs, Bytes::from_static(b"new"), Bytes::from_static(b"second"));
    second.write(batch).unwrap();
    let refused = table.get(b"new").unwrap_err();
    assert!(refused.to_string().contains("another node has used it"), "{refused}");
    table.get(b"k").unwrap_err();
}

#[test]
fn a_writer_gets_the_lock_again_after_its_connection_broke() {
    let mut database = Database::make("kept");
    let engine = database.open("first").unwrap();
    let table = engine.open_table("t").unwrap();
    put(&engine, &*table, "before").unwrap();
    database.break_connection();
    put(&engine, &*table, "after").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"after"[..]));
    assert!(database.holder().is_some());
    let other = database.open("second").map(drop).unwrap_err();
    assert!(matches!(other, EngineError::Refused { .. }), "{other}");
}

#[test]
fn a_node_that_lost_its_lock_neither_reads_nor_writes() {
    let mut database = Database::make("lost");
    let first = database.open("first").unwrap();
    let table = first.open_table("t").unwrap();
    put(&first, &*table, "first").unwrap();
    database.break_connection();
    assert_eq!(table.get(b"other").unwrap(), None, "no other node has it yet");
    let begun = table.scan(b"", None).unwrap();
    let second = database.open("second").unwrap();
    let theirs = second.open_table("t").unwrap();
    put(&second, &*theirs, "second").unwrap();
    // The scan sees the state at its beginning.
    let seen: Vec<Bytes> = begun.map(|entry| entry.unwrap().1).collect();
    assert_eq!(seen, ["first"]);
    for refused in [
        table.scan(b"", None).map(drop).unwrap_err(),
        table.get(b"k").unwrap_err(),
        table.get_hot(b"k").map(drop).unwrap_err(),
        first.tables().unwrap_err(),
    ] {
        assert!(matches!(refused, EngineError::Refused { .. }), "{refused}");
    }
    for _ in 0..2 {
        let refused = put(&first, &*table, "late").unwrap_err();
        assert!(matches!(refused, EngineError::Refused { .. }), "{refused}");
        assert!(first.open_table("u").is_err());
    }
    drop((theirs, second));
    // Nor after the other node has stopped: its writes are not known here.
    wait_until("the end of the other", Duration::from_secs(30), || {
        database.holder().is_none()
    });
    let refused = put(&first, &*table, "late").unwrap_err();
    assert!(refused.to_string().contains("another node has used it"), "{refused}");
    drop((table, first));
    let third = database.open("third").unwrap();
    let table = third.open_table("t").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"second"[..]));
}

/// A separate server, with a copy of its data.
struct Server {
    server: MariaDb,
    url: String,
    dir: TempDir,
}

impl Server {
    fn start() -> Self {
        let server = MariaDb::start(&[]);
        let url = server.url("node");
        let server = Self {
            server,
            url,
            dir: TempDir::new().unwrap(),
        };
        server.operate("CREATE DATABASE node");
        server
    }

    fn operate(&self, statement: &str) {
        let opts = mysql::Opts::from_url(&self.server.url("mysql")).unwrap();
        mysql::Conn::new(opts).unwrap().query_drop(statement).unwrap();
    }

    fn open(&self) -> MySqlEngine {
        self.open_with(OnLoss::Refuse).unwrap()
    }

    fn open_with(&self, on_loss: OnLoss) -> Result<MySqlEngine, EngineError> {
        open(&self.url, &self.dir.path().join("node"), on_loss)
    }

    fn copy_data(&mut self) {
        self.server.copy_data(&self.dir.path().join("copy"));
    }

    fn fail_over(&mut self) {
        self.server.fail_over_to(&self.dir.path().join("copy"));
    }
}

fn went_back(result: Result<impl Sized, EngineError>) {
    let error = result.err().unwrap().to_string();
    assert!(error.contains("it went back to an older state"), "{error}");
}

fn value(table: &dyn Table) -> Option<Bytes> {
    table.get(b"k").unwrap()
}

#[test]
fn failover_to_a_lagging_replica_stops_the_engine_until_resumed() {
    let mut server = Server::start();
    let engine = server.open();
    let table = engine.open_table("t").unwrap();
    put(&engine, &*table, "a").unwrap();
    server.copy_data();
    // A restarted server has lost nothing.
    put(&engine, &*table, "b").unwrap();
    let later = engine.open_table("later").unwrap();
    put(&engine, &*later, "b").unwrap();
    assert_eq!(engine.pending_loss(), None);
    for round in 0..2 {
        server.fail_over();
        // A read or a write detects it; an error about a missing table alone does not.
        match round {
            0 => went_back(later.get(b"other")),
            _ => went_back(put(&engine, &*table, "c")),
        }
        assert!(engine.pending_loss().unwrap().contains("went back"));
        went_back(table.get_hot(b"k"));
        went_back(put(&engine, &*later, "c"));
        went_back(engine.open_table("another").map(drop));
        engine.resume().unwrap();
        assert_eq!(engine.pending_loss(), None);
        assert_eq!((value(&*table).as_deref(), value(&*later)), (Some(&b"a"[..]), None));
        put(&engine, &*later, "d").unwrap();
        put(&engine, &*table, "d").unwrap();
        assert_eq!(value(&*later).as_deref(), Some(&b"d"[..]));
        assert_eq!(engine.tables().unwrap(), ["later", "t"]);
    }
}

#[test]
fn failover_while_the_node_is_down_is_detected_at_startup() {
    let mut server = Server::start();
    let write = |engine: &MySqlEngine, value| {
        let table = engine.open_table("t").unwrap();
        put(engine, &*table, value).unwrap();
    };
    write(&server.open(), "a");
    server.copy_data();
    let engine = server.open();
    let identity = engine.identity().unwrap();
    // One write is enough.
    write(&engine, "b");
    drop(engine);
    server.fail_over();
    let refused = server.open_with(OnLoss::Refuse).err();
    assert!(matches!(refused, Some(EngineError::Corrupt { .. })), "{refused:?}");
    let noted = Arc::<Noted>::default();
    for _ in 0..2 {
        let engine = server.open_with(noted.reaction()).unwrap();
        assert_eq!(noted.text().unwrap().matches("went back").count(), 1);
        assert_eq!(engine.pending_loss(), None, "it is noted");
        assert_eq!(value(&*engine.open_table("t").unwrap()).as_deref(), Some(&b"a"[..]));
        assert_eq!(engine.identity(), Some(identity));
    }
    write(&server.open(), "c");
    drop(server.open());
    // Another database in its place has another identity.
    server.operate("DROP DATABASE node");
    server.operate("CREATE DATABASE node");
    let noted = Arc::<Noted>::default();
    let engine = server.open_with(noted.reaction()).unwrap();
    assert!(noted.text().is_some());
    assert_ne!(engine.identity(), Some(identity));
}

#[test]
fn writes_to_a_database_of_an_earlier_release_are_counted() {
    let database = Database::make("earlier");
    let mut connection = mysql::Conn::new(mysql::Opts::from_url(&database.url).unwrap()).unwrap();
    let earlier = "CREATE TABLE fondaco_owner (one TINYINT NOT NULL PRIMARY KEY, mark VARCHAR(36) NOT NULL)";
    connection.query_drop(earlier).unwrap();
    connection
        .query_drop("INSERT INTO fondaco_owner VALUES (1, 'x')")
        .unwrap();
    for _ in 0..2 {
        let engine = database.open("first").unwrap();
        let table = engine.open_table("t").unwrap();
        put(&engine, &*table, "a").unwrap();
    }
}
