//! Stores that are swapped by one write: no MGET over several of them mixes old and new values, whatever happens meanwhile, and one
//! that cannot be swapped holds all back.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use super::cluster::{Cluster, Shape};
use super::node::{fondaco, of_csv, until, write_csv};

const STORES: [&str; 2] = ["cities", "people"];
const KEYS: u64 = 400;
const PUSHES: u64 = 8;
const SWAPS: u64 = 80;
const KEYS_PER_REQUEST: u64 = 20;

/// Builds a version of a store whose values are its number.
fn build(cluster: &Cluster, store: &str, version: u64) -> PathBuf {
    let dir = cluster.dir.path();
    let (csv, output) = (
        dir.join(format!("{store}-{version}.csv")),
        dir.join(format!("{store}-{version}")),
    );
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), version.to_string())));
    let partitions = cluster.shape.partitions.to_string();
    let more = ["--partitions", &partitions, "--output", output.to_str().unwrap()];
    let done = fondaco().args(of_csv("build", store, &csv, &more)).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    output
}

/// The arguments that deploy a version of both stores.
fn deploy(versions: &[PathBuf; 2]) -> [String; 5] {
    let [one, other] = versions.each_ref().map(|path| path.display().to_string());
    [
        "deploy".into(),
        STORES[0].into(),
        one,
        "--with".into(),
        format!("{}={other}", STORES[1]),
    ]
}

/// Readers of both stores through every process.
struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answers: AtomicU64,
    mixed: Mutex<Vec<String>>,
}

impl Readers {
    fn start(addresses: &[String]) -> Self {
        let shared = Arc::new(Shared::default());
        let reader = |address: &String| {
            let (shared, address) = (Arc::clone(&shared), address.clone());
            std::thread::spawn(move || shared.read(&address))
        };
        // Two of each, so that requests meet on a router.
        let threads = addresses.iter().chain(addresses).map(reader).collect();
        Self { threads, shared }
    }

    fn stop(self) -> u64 {
        self.shared.stop.store(true, SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mixed = self.shared.mixed.lock();
        assert!(mixed.is_empty(), "{} wrong answers, such as {}", mixed.len(), mixed[0]);
        self.shared.answers.load(SeqCst)
    }
}

impl Shared {
    fn read(&self, address: &str) {
        let mut first = 0;
        while !self.stop.load(SeqCst) {
            // A process that is killed is tried again.
            let client = redis::Client::open(format!("redis://{address}")).unwrap();
            let Ok(mut redis) = client.get_connection_with_timeout(Duration::from_secs(1)) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            redis.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            while !self.stop.load(SeqCst) {
                first += KEYS_PER_REQUEST;
                let keys =
                    (first..first + KEYS_PER_REQUEST).map(|key| format!("{}:{}", STORES[key as usize % 2], key % KEYS));
                let found: redis::RedisResult<Vec<Option<String>>> =
                    redis::cmd("MGET").arg(keys.collect::<Vec<_>>()).query(&mut redis);
                let Ok(found) = found else { break };
                self.answers.fetch_add(1, SeqCst);
                if found.iter().any(|value| value.is_none() || *value != found[0]) {
                    self.mixed.lock().push(format!("{address}: {found:?}"));
                }
                std::thread::sleep(Duration::from_millis(4));
            }
        }
    }
}

fn started(shape: Shape, backups: &str) -> Cluster {
    let cluster = Cluster::start(shape);
    for store in STORES {
        cluster.any().done(&["store", "create", store, "--backups", backups]);
    }
    cluster
}

fn run(cluster: &Cluster, name: &str, arguments: &[String]) -> String {
    cluster
        .get(name)
        .done(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn no_mget_over_stores_that_are_swapped_together_mixes_old_and_new() {
    let mut cluster = started(
        Shape {
            controllers: 2,
            ..Shape::default()
        },
        "1",
    );
    let versions: Vec<_> = (1..=PUSHES)
        .map(|version| STORES.map(|store| build(&cluster, store, version)))
        .collect();
    run(&cluster, "node-1", &deploy(&versions[0]));
    let readers = Readers::start(&cluster.resp_addresses());
    let names = ["node-1", "node-2", "node-3", "router-1"];
    for (number, version) in versions.iter().enumerate().skip(1) {
        if number == PUSHES as usize / 2 {
            let leader = cluster.get("node-1").http_get("/v1/cluster")["leader"].clone();
            let leads = |name: &&str| leader == json!(cluster.http_of(name));
            let leader = ["controller-1", "controller-2"].into_iter().find(leads).unwrap();
            // It dies while the push is under way, whose command is told what became of it.
            let pushing = {
                let mut command = cluster.get("node-2").command(&[]);
                command.args(deploy(version)).spawn().unwrap()
            };
            cluster.kill(leader);
            assert!(pushing.wait_with_output().unwrap().status.success());
            cluster.launch(leader);
        } else {
            run(&cluster, names[number % names.len()], &deploy(version));
        }
    }
    // Kept versions, back and forth, by any process.
    for swap in 0..SWAPS {
        let asked = cluster.get(names[swap as usize % names.len()]);
        match swap % 2 {
            0 => asked.http_post(
                &format!("/v1/stores/{}/rollback?wait=false", STORES[0]),
                json!({ "set": true }),
            ),
            _ => {
                let body = json!({ "version": PUSHES, "with": { STORES[0]: PUSHES } });
                asked.http_post(&format!("/v1/stores/{}/swap?wait=false", STORES[1]), body)
            }
        };
    }
    let answers = readers.stop();
    println!("{answers} answers");
    assert!(answers > SWAPS);
}

#[test]
fn a_node_that_lacks_one_of_the_versions_mixes_nothing() {
    let cluster = started(Shape::default(), "1");
    let versions: Vec<_> = (1..=3)
        .map(|version| STORES.map(|store| build(&cluster, store, version)))
        .collect();
    run(&cluster, "node-1", &deploy(&versions[0]));
    // It cannot fetch the next version of one store.
    let obstacle = cluster.data("node-3").join("stores").join(STORES[1]).join("fetching-2");
    fs::write(&obstacle, "in the way").unwrap();
    let readers = Readers::start(&cluster.resp_addresses());
    run(&cluster, "node-1", &deploy(&versions[1]));
    let late = || cluster.get("node-1").http_get(&format!("/v1/stores/{}", STORES[1]))["late"].clone();
    assert_eq!(late(), json!([cluster.number("node-3")]));
    std::thread::sleep(Duration::from_millis(500));
    fs::remove_file(&obstacle).unwrap();
    run(&cluster, "node-2", &deploy(&versions[2]));
    until("no node is late", || late() == json!([]));
    assert!(readers.stop() > 100);
}

#[test]
fn if_one_store_of_a_set_cannot_be_swapped_none_is() {
    let cluster = started(Shape::steady(), "2");
    let node = cluster.get("node-1");
    let versions: Vec<_> = (1..=2)
        .map(|version| STORES.map(|store| build(&cluster, store, version)))
        .collect();
    let currents = || STORES.map(|store| node.http_get(&format!("/v1/stores/{store}"))["current_version"].clone());
    let refused = |arguments: &[String]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        node.refused(1, &arguments)
    };
    run(&cluster, "node-1", &deploy(&versions[0]));
    assert_eq!(currents(), [1, 1]);
    // A check says no.
    let missing = refused(&deploy(&[versions[1][0].clone(), cluster.dir.path().join("nowhere")]));
    assert!(missing.contains("nowhere"), "{missing}");
    assert_eq!(
        node.http_get(&format!("/v1/stores/{}", STORES[0]))["push"]["version"],
        1,
        "no push was begun"
    );
    // A fetch fails.
    let damaged = versions[1][1].clone();
    let is_data = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "data");
    let mut files = fs::read_dir(&damaged).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(is_data).unwrap();
    let whole = fs::read(&file).unwrap();
    fs::write(&file, vec![7; whole.len()]).unwrap();
    let failed = refused(&deploy(&versions[1]));
    assert!(
        failed.contains(STORES[1]) && failed.contains("which it was to be swapped with"),
        "{failed}"
    );
    assert_eq!(currents(), [1, 1]);
    fs::write(&file, whole).unwrap();
    // Both go together, and come back together or apart.
    let done = run(&cluster, "router-1", &deploy(&versions[1]));
    assert!(
        done.contains("store people serves version 3, swapped by the same write"),
        "{done}"
    );
    assert_eq!(currents(), [3, 3]);
    let asked = node.refused(1, &["rollback", STORES[0]]);
    assert!(asked.contains("--set") && asked.contains(STORES[1]), "{asked}");
    let code = node.http_refused(&format!("/v1/stores/{}/rollback", STORES[1]), json!({}));
    assert_eq!(code, "swapped_together");
    node.done(&["rollback", STORES[0], "--set"]);
    assert_eq!(currents(), [1, 1]);
    node.done(&["swap", STORES[0], "--to", "3", "--with", &format!("{}=3", STORES[1])]);
    assert_eq!(currents(), [3, 3]);
    node.done(&["rollback", STORES[0], "--alone"]);
    assert_eq!(currents(), [1, 3]);
    let twice = node.refused(2, &["deploy", STORES[0], "/x", "--with", &format!("{}=/y", STORES[0])]);
    assert!(twice.contains("named twice"), "{twice}");
}
