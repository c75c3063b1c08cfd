//! A rolling upgrade to a build that plays the next release: it speaks the next protocol, and writes the next version
//! of the format. Clients read and write all the time.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

use fondaco_client::Client;
use fondaco_model::PROTOCOL;
use parking_lot::Mutex;
use redis::Commands;

use super::cluster::{Cluster, Shape, is_ready};
use super::node::{program, until};
use super::values::{self, KEYS, STORE, read_all, value};

/// The protocol of the next release.
const NEXT: u32 = PROTOCOL + 1;
/// The processes that answer clients.
const SERVING: [&str; 4] = ["node-1", "node-2", "node-3", "router-1"];
/// The number of keys that are counted up.
const COUNTERS: u64 = 100;
/// The number of keys of the batch store that are read at once.
const KEYS_AT_ONCE: u64 = 50;

/// Clients of all processes, which read and write without pause. No request may fail, except at a process that is away.
struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    addresses: Vec<String>,
    /// Processes that are restarted: their clients have gone to others.
    away: Mutex<BTreeSet<String>>,
    /// For each key that is counted up, the last acknowledged count.
    counts: Vec<AtomicU64>,
    reads: AtomicU64,
    writes: AtomicU64,
    failures: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Clients {
    fn start(addresses: Vec<String>) -> Self {
        let shared = Arc::new(Shared {
            addresses,
            away: Mutex::default(),
            counts: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            failures: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let run = |work: fn(&Shared, &mut redis::Connection, u64) -> Result<(), String>| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.run(work))
        };
        let threads = vec![run(Shared::read), run(Shared::write)];
        Self { shared, threads }
    }

    /// Waits until each client has done its work at all processes again.
    fn go_on(&self) {
        let done = || [self.shared.reads.load(SeqCst), self.shared.writes.load(SeqCst)];
        let before = done();
        until("clients continue", || {
            let now = done();
            (0..2).all(|client| now[client] > before[client] + 100) || !self.shared.failures.lock().is_empty()
        });
        self.shared.check();
    }

    /// Makes all clients of a process go to others.
    fn leave(&self, address: &str) {
        self.shared.away.lock().insert(address.to_owned());
        self.go_on();
    }

    /// Lets clients use the process again.
    fn return_to(&self, address: &str) {
        self.shared.away.lock().remove(address);
        self.go_on();
    }

    /// Stops them; returns the last acknowledged count of each key.
    fn stop(self) -> Vec<u64> {
        self.go_on();
        self.shared.stop.store(true, SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.shared.check();
        let [reads, writes] = [&self.shared.reads, &self.shared.writes].map(|done| done.load(SeqCst));
        println!("{reads} reads and {writes} writes, and none failed");
        self.shared.counts.iter().map(|count| count.load(SeqCst)).collect()
    }
}

impl Shared {
    /// Works at one process after the other, each over one connection for as long as it is not away.
    fn run(&self, work: fn(&Self, &mut redis::Connection, u64) -> Result<(), String>) {
        let mut connections: Vec<Option<redis::Connection>> = self.addresses.iter().map(|_| None).collect();
        for round in 0.. {
            if self.stop.load(SeqCst) {
                return;
            }
            let at = round as usize % self.addresses.len();
            let address = &self.addresses[at];
            if self.away.lock().contains(address) {
                connections[at] = None;
                continue;
            }
            let connection = connections[at].get_or_insert_with(|| connect(address));
            if let Err(failure) = work(self, connection, round) {
                self.failures.lock().push(format!("{address}: {failure}"));
                return;
            }
        }
    }

    /// Fails if a request failed.
    fn check(&self) {
        let failures = self.failures.lock();
        let first = failures.first();
        assert!(first.is_none(), "{} failures, such as {first:?}", failures.len());
    }

    /// Reads keys of both stores.
    fn read(&self, redis: &mut redis::Connection, round: u64) -> Result<(), String> {
        let keys: Vec<u64> = (0..KEYS_AT_ONCE).map(|step| (round * 101 + step * 13) % KEYS).collect();
        values::read(redis, &keys)?;
        let key = round % COUNTERS;
        let acknowledged = self.counts[key as usize].load(SeqCst);
        let found: Option<u64> = redis.get(counter(key)).map_err(|error| error.to_string())?;
        if found.unwrap_or(0) < acknowledged {
            return Err(format!("{} is {found:?}, and {acknowledged} was written", counter(key)));
        }
        self.reads.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Counts a key up.
    fn write(&self, redis: &mut redis::Connection, round: u64) -> Result<(), String> {
        let key = round % COUNTERS;
        let count = self.counts[key as usize].load(SeqCst) + 1;
        let written: redis::RedisResult<()> = redis.set(counter(key), count);
        written.map_err(|error| error.to_string())?;
        self.counts[key as usize].store(count, SeqCst);
        self.writes.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// A key that is counted up.
fn counter(key: u64) -> String {
    format!("counts:{key}")
}

fn connect(address: &str) -> redis::Connection {
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    let connection = client.get_connection().unwrap();
    connection.set_read_timeout(Some(super::node::DEADLINE)).unwrap();
    connection
}

/// The protocol in force.
fn in_force(cluster: &Cluster) -> u64 {
    cluster.any().http_get("/v1/cluster")["protocol"].as_u64().unwrap()
}

/// Restarts a process with another build; `None` is the one under test.
fn restart(cluster: &mut Cluster, clients: &Clients, name: &str, program: Option<&Path>) {
    let address = cluster.get(name).resp.clone();
    clients.leave(&address);
    cluster.stop(name);
    cluster.install(name, program);
    cluster.launch(name);
    until("the process is ready", || is_ready(cluster.get(name)));
    clients.return_to(&address);
}

/// Fails unless the process refuses a version of the next format, and the store stays as it is.
fn refuse_push(cluster: &Cluster, name: &str, version: &Path) {
    let store = || cluster.any().http_get("/v1/stores/s");
    let before = store();
    let refused = cluster
        .get(name)
        .refused(1, &["deploy", STORE, version.to_str().unwrap(), "--quiet"]);
    assert!(
        refused.contains("format version 3") && refused.contains("upgrade all nodes and routers"),
        "{name}: {refused}"
    );
    assert_eq!(store(), before, "{name}");
}

/// Fails unless a process of the former build refuses to start.
fn refuse_start(cluster: &mut Cluster, name: &str) {
    let (code, error) = cluster.launch_in_vain(name);
    let numbers = [format!("speaks protocol {PROTOCOL}"), format!("uses protocol {NEXT}")];
    assert!(
        code != Some(0) && numbers.iter().all(|number| error.contains(number)),
        "{name}: {code:?}, {error}"
    );
}

/// Asks a node for a key in an envelope of the next protocol.
fn ask_next(cluster: &Cluster, name: &str) -> redis::RedisResult<redis::Value> {
    let mut read = redis::cmd("FONDACO.READ");
    let read = read.arg(format!("v{NEXT};timeout=10000")).arg(0).arg(0).arg(STORE);
    read.arg(1).query(&mut cluster.get(name).redis())
}

/// Fails unless this program, as a client library of the former release, reads the batch store at this version.
fn read_by_library(cluster: &Cluster, version: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let seeds = cluster.resp_addresses();
        let client = Client::builder().seeds(seeds).connect().await.unwrap();
        for key in 0..100 {
            let found = client
                .get(&STORE.parse().unwrap(), key.to_string().as_bytes())
                .await
                .unwrap();
            assert_eq!(found.unwrap(), value(version, key));
        }
    });
}

fn start() -> (Cluster, Clients) {
    let cluster = Cluster::start(Shape {
        replicas: 3,
        ..Shape::steady()
    });
    cluster.create(&["--replicas", "2"]);
    let create = ["store", "create", "counts", "--kind", "versioned"];
    let quorums = ["--replicas", "3", "--reads", "2", "--writes", "2"];
    cluster.any().done(&[&create[..], &quorums].concat());
    cluster.deploy(&cluster.build(1));
    until("all processes know both stores", || {
        SERVING.iter().all(|name| {
            let mut redis = cluster.get(name).redis();
            read_all(&mut redis) == Ok(1) && redis.set::<_, _, ()>("counts:first", 1).is_ok()
        })
    });
    let clients = Clients::start(cluster.resp_addresses());
    clients.go_on();
    (cluster, clients)
}

#[test]
fn a_rolling_upgrade_fails_no_request() {
    let (mut cluster, clients) = start();
    // By this name it plays the next release.
    let next = cluster.dir.path().join("fondaco-next");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fondaco"), &next).unwrap();
    let next = next.as_path();
    let first = u64::from(PROTOCOL);

    // Half of the way: each build reads what the other one writes.
    cluster.stop("controller-1");
    cluster.install("controller-1", Some(next));
    cluster.launch("controller-1");
    restart(&mut cluster, &clients, "node-1", Some(next));
    restart(&mut cluster, &clients, "node-2", Some(next));
    assert_eq!(in_force(&cluster), first);
    assert!(ask_next(&cluster, "node-1").is_ok());
    let refused = ask_next(&cluster, "node-3").unwrap_err().to_string();
    assert!(refused.contains("upgrade the node"), "{refused}");
    cluster.deploy(&cluster.build(2));
    let later = values::build_by(program(next), cluster.dir.path(), 3, cluster.shape.partitions);
    for name in ["controller-1", "node-1", "node-3"] {
        refuse_push(&cluster, name, &later);
    }

    // Back, and on.
    restart(&mut cluster, &clients, "node-1", None);
    assert_eq!(in_force(&cluster), first);
    restart(&mut cluster, &clients, "node-1", Some(next));
    restart(&mut cluster, &clients, "node-3", Some(next));
    until("all nodes speak the next protocol", || {
        let nodes = cluster.any().http_get("/v1/nodes");
        let speaks = |node: &serde_json::Value| node["protocol"] == NEXT;
        nodes["nodes"].as_array().unwrap().iter().all(speaks)
    });
    assert_eq!(in_force(&cluster), first, "the router is left");
    refuse_push(&cluster, "node-3", &later);
    restart(&mut cluster, &clients, "router-1", Some(next));
    until("the next protocol is in force", || {
        in_force(&cluster) == u64::from(NEXT)
    });

    assert_eq!(cluster.deploy(&later)["state"], "swapped");
    for name in SERVING {
        let mut redis = cluster.get(name).redis();
        until("the version is served", || read_all(&mut redis) == Ok(3));
        let (_, topology): (String, String) = redis::cmd("FONDACO.TOPOLOGY").query(&mut redis).unwrap();
        assert!(
            topology.contains(&format!(r#""protocol":{NEXT}"#)),
            "{name}: {topology}"
        );
    }
    read_by_library(&cluster, 3);

    // There is no way back.
    let address = cluster.get("node-2").resp.clone();
    clients.leave(&address);
    cluster.stop("node-2");
    cluster.install("node-2", None);
    for name in ["node-4", "router-2", "controller-2"] {
        cluster.add(name, "");
    }
    for name in ["node-2", "node-4", "router-2", "controller-2"] {
        refuse_start(&mut cluster, name);
    }
    assert_eq!(in_force(&cluster), u64::from(NEXT));
    cluster.install("node-2", Some(next));
    cluster.launch("node-2");
    until("the process is ready", || is_ready(cluster.get("node-2")));
    clients.return_to(&address);

    let counts = clients.stop();
    for name in SERVING {
        let mut redis = cluster.get(name).redis();
        for (key, count) in (0..).zip(&counts) {
            assert_eq!(redis.get(counter(key)), Ok(Some(*count)), "{name}, {}", counter(key));
        }
    }
}
