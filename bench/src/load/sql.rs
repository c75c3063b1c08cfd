//! Load on the MariaDB table of a dataset, by prepared statements. The client library blocks, so each connection has a
//! thread, with one request in flight.
//!
//! Written values differ each time: MariaDB would not write an unchanged row.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use mysql::prelude::Queryable;
use mysql::{Conn, Statement};

use super::{GroupReport, KeyChoice, Keys, Writes, new_histogram, record};
use crate::dataset::{KEY_BYTES, append_value, is_value_of, key};
use crate::machine::prefer_thread;

const READ: &str = "SELECT value FROM records WHERE id = ?";
const WRITE: &str = "INSERT INTO records (id, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)";

/// More than a connection writes in one load.
const WRITES_MAX: u64 = 1_000_000_000;

/// The options of a load.
#[derive(Debug, Clone)]
pub struct SqlLoad {
    /// The URL with the user, the server and the database.
    pub url: String,
    /// The number of connections.
    pub connections: usize,
    /// The distribution of keys.
    pub keys: KeyChoice,
    /// The share of writes among the statements.
    pub writes: Writes,
}

/// One connection with its statements.
struct Client {
    connection: Conn,
    read: Statement,
    write: Statement,
    keys: Keys,
    writes: Writes,
    value: Vec<u8>,
    /// The number of its last write, unique among connections.
    written: u64,
}

/// Generates load for a time.
///
/// # Errors
/// A statement that fails, or an answer that is not the value of its key.
pub fn run(load: &SqlLoad, measured: Duration, seed: u64) -> Result<GroupReport> {
    let keys = Keys::new(load.keys.clone(), seed);
    let clients = (0..load.connections as u64).map(|number| {
        let keys = keys.reseeded(seed.wrapping_mul(1009).wrapping_add(number));
        Client::connect(load, keys, number * WRITES_MAX)
    });
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let end = Instant::now() + measured;
    let reports = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(move || client.run_until(end, measured)))
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a connection to MariaDB panicked"))?);
        joined.collect::<Result<Vec<_>>>()
    })?;
    GroupReport::of_all(reports)
}

impl Client {
    fn connect(load: &SqlLoad, keys: Keys, written: u64) -> Result<Self> {
        let mut connection =
            Conn::new(load.url.as_str()).with_context(|| format!("could not connect to {}", load.url))?;
        Ok(Self {
            read: connection.prep(READ)?,
            write: connection.prep(WRITE)?,
            connection,
            keys,
            writes: load.writes,
            value: Vec::new(),
            written,
        })
    }

    fn run_until(mut self, end: Instant, measured: Duration) -> Result<GroupReport> {
        prefer_thread();
        let mut latencies = new_histogram()?;
        let mut requests = 0;
        loop {
            let due = Instant::now();
            if due >= end {
                break;
            }
            let id = self.keys.next();
            match self.writes.share > 0.0 && self.keys.chance(self.writes.share) {
                true => self.write(id)?,
                false => self.read(id)?,
            }
            let answered = Instant::now();
            record(&mut latencies, answered - due);
            // A request in flight at the end counts only by its latency.
            requests += u64::from(answered < end);
        }
        Ok(GroupReport {
            requests,
            late: 0,
            seconds: measured.as_secs_f64(),
            latencies,
            each: Vec::new(),
            error: None,
        })
    }

    fn read(&mut self, id: u64) -> Result<()> {
        let found: Option<Vec<u8>> = self.connection.exec_first(&self.read, (&key(id)[..],))?;
        ensure!(
            found.is_some_and(|value| is_value_of(id, &value)),
            "MariaDB has another value for record {id}"
        );
        Ok(())
    }

    fn write(&mut self, id: u64) -> Result<()> {
        self.written += 1;
        self.value.clear();
        append_value(id, self.writes.value_bytes, &mut self.value);
        if let Some(version) = self.value.get_mut(KEY_BYTES..2 * KEY_BYTES) {
            version.copy_from_slice(&key(self.written));
        }
        let parameters = (&key(id)[..], &self.value[..]);
        Ok(self.connection.exec_drop(&self.write, parameters)?)
    }
}
