//! Stores get more replicas than the cluster's number, and fewer again, while they are used.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Commands;

use super::cluster::{Cluster, Shape};
use super::everywhere::{places, readers_go_on, replicas};
use super::node::until;
use super::readers::Readers;
use super::values::read_all;

#[test]
fn a_batch_store_gets_and_gives_up_replicas_under_reads() {
    let mut cluster = Cluster::start(Shape::steady());
    let refused = cluster.any().refused(1, &["store", "create", "t", "--replicas", "4"]);
    assert!(refused.contains("fondaco rebalance run --add"), "{refused}");
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    assert_eq!((places(&cluster), replicas(&cluster)), (2, 2.into()));
    let readers = Readers::start(&cluster.resp_addresses());
    cluster.any().done(&["store", "alter", "s", "--replicas", "3"]);
    until("each node has each partition", || places(&cluster) == 3);
    cluster.until_ready();
    readers_go_on(&readers);
    cluster.any().done(&["store", "alter", "s", "--replicas", "1"]);
    assert_eq!((places(&cluster), replicas(&cluster)), (1, 1.into()));
    readers_go_on(&readers);
    cluster.any().done(&["store", "alter", "s", "--replicas", "3"]);
    until("each node has each partition", || places(&cluster) == 3);
    cluster.until_ready();
    let failures = readers.stop();
    assert!(failures.is_empty(), "{failures:?}");
    cluster.kill("node-1");
    cluster.kill("node-2");
    until("the node that is left has everything", || {
        read_all(&mut cluster.get("node-3").redis()) == Ok(1)
    });
}

/// A client that writes each key once, and reads back keys that were acknowledged. Dropping it stops it.
struct Client {
    keys: &'static str,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Keys below this number that are not among the failed ones were acknowledged.
    written: AtomicU64,
    failed: Mutex<BTreeSet<u64>>,
    errors: Mutex<Vec<String>>,
    /// Acknowledged writes that a read has missed.
    missed: Mutex<Vec<String>>,
}

impl Client {
    /// It writes keys that begin with this, and reads them, through all processes in turn.
    fn start(keys: &'static str, cluster: &Cluster) -> Self {
        let addresses = cluster.resp_addresses();
        let shared = Arc::new(Shared::default());
        let thread = Some(std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.work(keys, &addresses)
        }));
        Self { keys, shared, thread }
    }

    fn go_on(&self, writes: u64) {
        // A failed write is counted as one before it is counted at all.
        let acknowledged = || {
            let failed = self.shared.failed.lock().len() as u64;
            self.shared.written.load(SeqCst).saturating_sub(failed)
        };
        let before = acknowledged();
        until("writes continue", || acknowledged() >= before + writes);
    }

    /// Returns how many writes were acknowledged, and the errors. Panics if a read has missed a write, or if a process misses one now.
    fn stop(mut self, cluster: &Cluster) -> (usize, Vec<String>) {
        self.end();
        let missed = self.shared.missed.lock();
        assert!(missed.is_empty(), "{} reads missed a write: {missed:?}", missed.len());
        let failed = self.shared.failed.lock();
        let keys = 0..self.shared.written.load(SeqCst);
        let acknowledged: Vec<u64> = keys.filter(|key| !failed.contains(key)).collect();
        for address in cluster.resp_addresses() {
            let mut connection = None;
            for keys in acknowledged.chunks(100) {
                let names: Vec<String> = keys.iter().map(|key| format!("s:{}{key}", self.keys)).collect();
                let found: Vec<Option<String>> = connected(&address, &mut connection).unwrap().mget(names).unwrap();
                let is_right = |found: &Option<String>| *found == Some(VALUE.repeat(10));
                assert!(found.iter().all(is_right), "{address}: {keys:?}: {found:?}");
            }
        }
        (acknowledged.len(), self.shared.errors.lock().clone())
    }

    fn end(&mut self) {
        self.shared.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
    }
}

impl Shared {
    fn work(&self, keys: &str, addresses: &[String]) {
        let mut connections: Vec<Option<redis::Connection>> = addresses.iter().map(|_| None).collect();
        for key in 0.. {
            if self.stop.load(SeqCst) {
                return;
            }
            let at = key as usize % addresses.len();
            let (address, connection) = (&addresses[at], &mut connections[at]);
            if let Err(error) = write(address, connection, &format!("{keys}{key}")) {
                self.failed.lock().insert(key);
                self.error(address, &error, connection);
            }
            self.written.store(key + 1, SeqCst);
            let at = (key + 1) as usize % addresses.len();
            let (address, connection) = (&addresses[at], &mut connections[at]);
            let asked = key - fastrand::u64(0..=key.min(500));
            if self.failed.lock().contains(&asked) {
                continue;
            }
            match read(address, connection, &format!("{keys}{asked}")) {
                Ok(Some(value)) if value == VALUE.repeat(10) => {}
                Ok(found) => self.missed.lock().push(format!("{address}: key {asked} is {found:?}")),
                Err(error) => self.error(address, &error, connection),
            }
        }
    }

    fn error(&self, address: &str, error: &redis::RedisError, connection: &mut Option<redis::Connection>) {
        self.errors.lock().push(format!("{address}: {error}"));
        if error.is_io_error() {
            *connection = None;
        }
    }
}

const VALUE: &str = "0123456789";

/// The connection to a process, which may be a new one.
fn connected<'a>(
    address: &str,
    connection: &'a mut Option<redis::Connection>,
) -> redis::RedisResult<&'a mut redis::Connection> {
    match connection {
        Some(connection) => Ok(connection),
        None => {
            let client = redis::Client::open(format!("redis://{address}"))?;
            let new = client.get_connection_with_timeout(Duration::from_secs(5))?;
            new.set_read_timeout(Some(Duration::from_secs(5)))?;
            Ok(connection.insert(new))
        }
    }
}

fn write(address: &str, connection: &mut Option<redis::Connection>, key: &str) -> redis::RedisResult<()> {
    connected(address, connection)?.set(format!("s:{key}"), VALUE.repeat(10))
}

fn read(address: &str, connection: &mut Option<redis::Connection>, key: &str) -> redis::RedisResult<Option<String>> {
    connected(address, connection)?.get(format!("s:{key}"))
}

/// Waits until the plan with this number is done, and all of it was.
fn until_counted(cluster: &Cluster, plan: u32, count: u32) {
    let path = format!("/v1/plans/{plan}");
    until("the plan is done", || cluster.any().http_get(&path)["state"] == "done");
    let shown = cluster.any().json(&["store", "show", "s"]);
    assert_eq!((&shown["replicas"], shown.get("replicas_next")), (&count.into(), None));
}

fn versioned() -> Cluster {
    let cluster = Cluster::start(Shape::steady());
    let created = cluster.any().done(&["store", "create", "s", "--kind", "versioned"]);
    assert!(created.contains("neither read nor written"), "{created}");
    until("all processes know the store", || {
        let knows = |address: &String| read(address, &mut None, "none").is_ok();
        cluster.resp_addresses().iter().all(knows)
    });
    cluster
}

#[test]
fn a_versioned_store_gets_and_gives_up_replicas_under_reads_and_writes() {
    let cluster = versioned();
    let clients = ["a", "b"].map(|keys| Client::start(keys, &cluster));
    let go_on = || clients.iter().for_each(|client| client.go_on(300));
    go_on();
    for (plan, count) in [(1, 3), (2, 2), (3, 1), (4, 2)] {
        let altered = cluster
            .any()
            .done(&["store", "alter", "s", "--replicas", &count.to_string()]);
        assert!(altered.contains("fondaco rebalance status"), "{altered}");
        go_on();
        until_counted(&cluster, plan, count);
        go_on();
    }
    for client in clients {
        let (_, errors) = client.stop(&cluster);
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn a_node_killed_while_a_store_gets_or_gives_up_a_replica_loses_no_acknowledged_write() {
    let mut cluster = versioned();
    let set_rate = |cluster: &Cluster, rate: u64| {
        let change = format!("move-rate-bytes-per-second={rate}");
        cluster.any().done(&["config", "set", &change]);
    };
    let client = Client::start("a", &cluster);
    client.go_on(3_000);
    for (plan, count) in [(1, 3), (2, 2)] {
        let number = cluster.number("node-3");
        if count == 3 {
            set_rate(&cluster, 2_000);
        }
        cluster
            .any()
            .done(&["store", "alter", "s", "--replicas", &count.to_string()]);
        client.go_on(50);
        cluster.kill("node-3");
        client.go_on(20);
        cluster.launch("node-3");
        cluster.until_live(number, true);
        set_rate(&cluster, 0);
        until_counted(&cluster, plan, count);
        client.go_on(300);
    }
    cluster.until_ready();
    let (acknowledged, _) = client.stop(&cluster);
    assert!(acknowledged > 3_000, "{acknowledged}");
}
