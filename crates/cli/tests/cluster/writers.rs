//! Versioned stores: clients write without pause while nodes are killed and restarted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Commands, Value};

use super::cluster::{Cluster, Shape};
use super::node::until;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of keys that each client writes repeatedly.
const KEYS: u64 = 200;

/// Clients that write and read back their writes. Dropping this stops them.
pub struct Writers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<BTreeMap<String, u64>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    writes: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Writers {
    /// Starts a client for each of these addresses.
    pub fn start(addresses: &[String]) -> Self {
        let shared = Arc::new(Shared::default());
        let writer = |(number, address): (usize, &String)| {
            let (shared, address) = (Arc::clone(&shared), address.clone());
            std::thread::spawn(move || shared.write(number, &address))
        };
        Self {
            threads: addresses.iter().enumerate().map(writer).collect(),
            shared,
        }
    }

    fn writes(&self) -> u64 {
        self.shared.writes.load(SeqCst)
    }

    /// Waits until this many more writes were acknowledged.
    pub fn go_on(&self, writes: u64) {
        let before = self.writes();
        until("writers have gone on", || {
            self.writes() > before + writes || !self.shared.failures.lock().is_empty()
        });
    }

    /// Stops the clients, which must not have met a failure; returns the last acknowledged write of each key.
    pub fn stop(mut self) -> BTreeMap<String, u64> {
        self.shared.stop.store(true, SeqCst);
        let threads = std::mem::take(&mut self.threads);
        let acknowledged = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let failures = self.shared.failures.lock();
        assert!(
            failures.is_empty(),
            "{} failures, such as {}",
            failures.len(),
            failures[0]
        );
        acknowledged
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
    }
}

impl Shared {
    fn write(&self, number: usize, address: &str) -> BTreeMap<String, u64> {
        let client = redis::Client::open(format!("redis://{address}")).unwrap();
        let mut connection = client.get_connection_with_timeout(PATIENCE).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
        for round in 1.. {
            if self.stop.load(SeqCst) {
                break;
            }
            let key = format!("s:{number}-{}", round % KEYS);
            // Plain writes and conditional writes, in turn.
            let wanted = match round % 3 {
                0 => acknowledged.get(&key).copied().unwrap_or(0) + 1,
                _ => round,
            };
            let written: redis::RedisResult<Value> = match round % 3 {
                0 => redis::cmd("INCR").arg(&key).query(&mut connection),
                _ => redis::cmd("SET").arg(&key).arg(round).query(&mut connection),
            };
            let read: redis::RedisResult<Option<u64>> = written.and_then(|_| connection.get(&key));
            match read {
                Ok(value) if value == Some(wanted) => {
                    acknowledged.insert(key, wanted);
                    self.writes.fetch_add(1, SeqCst);
                }
                Ok(value) => self.fail(format!("{address}: {key} is {value:?}, and not {wanted}")),
                Err(error) => self.fail(format!("{address}: {key}: {error}")),
            }
        }
        acknowledged
    }

    fn fail(&self, failure: String) {
        self.failures.lock().push(failure);
    }
}

#[test]
fn a_node_killed_and_restarted_under_load_causes_no_error() {
    lose_and_return("disk");
}

#[test]
fn an_empty_returning_node_causes_no_error_or_stale_read() {
    lose_and_return("memory");
}

fn lose_and_return(engine: &str) {
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        ..Shape::default()
    });
    let options = [
        "--kind",
        "versioned",
        "--replicas",
        "3",
        "--reads",
        "2",
        "--writes",
        "2",
        "--engine",
        engine,
    ];
    cluster.create(&options);
    let survivors = ["node-1", "node-2", "router-1"];
    cluster.until_written(&survivors);
    let lost = cluster.number("node-3");
    let writers = Writers::start(&survivors.map(|name| cluster.get(name).resp.clone()));
    writers.go_on(300);
    cluster.kill("node-3");
    writers.go_on(300);
    cluster.until_live(lost, false);
    writers.go_on(300);
    cluster.launch("node-3");
    cluster.until_live(lost, true);
    writers.go_on(300);
    let acknowledged = writers.stop();
    assert!(acknowledged.len() > 100);

    cluster.assert_read(&["node-1", "node-2", "node-3", "router-1"], &acknowledged);
    // The other replicas send it the writes that it missed, so that it has all of them itself.
    let mut returned = cluster.get("node-3").redis();
    until("the node that was away has all", || {
        acknowledged.keys().all(|key| {
            let mut held = redis::cmd("FONDACO.RGET");
            held.arg("v1;timeout=1000")
                .arg(1)
                .arg("FULL")
                .arg("s")
                .arg(key.trim_start_matches("s:"));
            matches!(held.query(&mut returned), Ok(Value::Array(found)) if matches!(found[..], [Value::BulkString(_)]))
        })
    });
}
