//! A database in a server is one node's: also when the connection breaks that holds its lock, as the server does
//! with one that was idle for long.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::{CacheBudget, Engine, EngineError, MySqlEngine, MySqlOptions, Table, WriteBatch};
use fondaco_testing::{MariaDb, wait_until};
use mysql::prelude::Queryable;

/// A database in a server that all tests share, which ends with the process.
struct Database {
    name: &'static str,
    url: String,
    operator: mysql::Conn,
}

impl Database {
    fn make(name: &'static str) -> Self {
        static SERVER: OnceLock<MariaDb> = OnceLock::new();
        let server = SERVER.get_or_init(|| MariaDb::start(&[]));
        let mut operator = mysql::Conn::new(mysql::Opts::from_url(&server.url("mysql")).unwrap()).unwrap();
        operator.query_drop(format!("CREATE DATABASE {name}")).unwrap();
        let url = server.url(name);
        Self { name, url, operator }
    }

    fn open(&self) -> Result<MySqlEngine, EngineError> {
        MySqlEngine::open(&MySqlOptions {
            url: self.url.clone(),
            cache: CacheBudget::new(1 << 20),
        })
    }

    /// The number of the connection that has the lock.
    fn holder(&mut self) -> Option<u64> {
        let asked = format!("SELECT IS_USED_LOCK('fondaco.{}')", self.name);
        let held: Option<Option<u64>> = self.operator.query_first(asked).unwrap();
        held.flatten()
    }

    /// Closes the connection that has the lock.
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
fn a_read_of_what_memory_does_not_have_finds_that_another_has_the_database() {
    let mut database = Database::make("seen");
    let first = database.open().unwrap();
    let table = first.open_table("t").unwrap();
    put(&first, &*table, "first").unwrap();
    database.break_connection();
    let second = database.open().unwrap();
    let theirs = second.open_table("t").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&*theirs, Bytes::from_static(b"new"), Bytes::from_static(b"second"));
    second.write(batch).unwrap();
    let refused = table.get(b"new").unwrap_err();
    assert!(refused.to_string().contains("another node has used it"), "{refused}");
    table.get(b"k").unwrap_err();
}

#[test]
fn who_writes_has_the_lock_again_after_its_connection_broke() {
    let mut database = Database::make("kept");
    let engine = database.open().unwrap();
    let table = engine.open_table("t").unwrap();
    put(&engine, &*table, "before").unwrap();
    database.break_connection();
    put(&engine, &*table, "after").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"after"[..]));
    assert!(database.holder().is_some());
    let other = database.open().map(drop).unwrap_err();
    assert!(matches!(other, EngineError::Refused { .. }), "{other}");
}

#[test]
fn a_node_that_lost_its_lock_to_another_reads_and_writes_nothing_more() {
    let mut database = Database::make("lost");
    let first = database.open().unwrap();
    let table = first.open_table("t").unwrap();
    put(&first, &*table, "first").unwrap();
    database.break_connection();
    assert_eq!(table.get(b"other").unwrap(), None, "nobody else has it yet");
    let begun = table.scan(b"", None).unwrap();
    let second = database.open().unwrap();
    let theirs = second.open_table("t").unwrap();
    put(&second, &*theirs, "second").unwrap();
    // The scan sees what was there when it began.
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
    // Nor when the other has gone: what it wrote is not known here.
    wait_until("the end of the other", Duration::from_secs(30), || {
        database.holder().is_none()
    });
    let refused = put(&first, &*table, "late").unwrap_err();
    assert!(refused.to_string().contains("another node has used it"), "{refused}");
    drop((table, first));
    let third = database.open().unwrap();
    let table = third.open_table("t").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"second"[..]));
}
