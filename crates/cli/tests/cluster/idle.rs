//! The work of a cluster that has nothing to do: next to none, whatever stores it has.

use std::fs;
use std::thread;
use std::time::Duration;

use fondaco_testing::Kafka;
use serde_json::Value;

use super::cluster::{Cluster, Shape};
use super::node::{until, write_csv};

/// How long a cluster is observed.
const WINDOW: Duration = Duration::from_secs(10);

/// How many windows are observed: the first ones may see the end of what came before.
const WINDOWS_MAX: usize = 6;

/// The most that a process of an idle cluster does in a window.
const PROCESSOR_MS_MAX: u64 = 300;
const LOG_LINES_MAX: u64 = 0;
const WRITTEN_BYTES_MAX: u64 = 64 << 10;
const COORDINATION_REQUESTS_MAX: u64 = 10;

/// The work of a process since its start.
#[derive(Debug, Clone, Copy)]
struct Work {
    processor_ms: u64,
    log_lines: u64,
    written_bytes: u64,
    coordination_requests: u64,
}

impl Work {
    fn of(cluster: &Cluster, name: &str) -> Self {
        let process = cluster.get(name);
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", process.pid())).unwrap();
        let stat = read("stat");
        // After the name, which may contain blanks: the 12th and 13th field are ticks of a hundredth of a second.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
        let io = read("io");
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
        let metrics = ureq::get(format!("http://{}/metrics", process.http)).call().unwrap();
        let metrics = metrics.into_body().read_to_string().unwrap();
        let request = |line: &&str| {
            ["reads", "writes", "full_reads"]
                .iter()
                .any(|kind| line.starts_with(&format!("fondaco_coordination_{kind}")))
        };
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64;
        Self {
            processor_ms: (ticks(11) + ticks(12)) * 10,
            log_lines: fs::read_to_string(cluster.log(name)).unwrap().lines().count() as u64,
            written_bytes: written.parse().unwrap(),
            coordination_requests: metrics.lines().filter(request).map(value).sum(),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            processor_ms: self.processor_ms - before.processor_ms,
            log_lines: self.log_lines - before.log_lines,
            written_bytes: self.written_bytes - before.written_bytes,
            coordination_requests: self.coordination_requests - before.coordination_requests,
        }
    }

    fn is_idle(self) -> bool {
        self.processor_ms <= PROCESSOR_MS_MAX
            && self.log_lines == LOG_LINES_MAX
            && self.written_bytes <= WRITTEN_BYTES_MAX
            && self.coordination_requests <= COORDINATION_REQUESTS_MAX
    }
}

/// Makes a store of each kind and engine. Most partitions of the batch and hybrid ones have no records.
fn make_stores(cluster: &Cluster, kafka: &Kafka) {
    let dir = cluster.dir.path();
    let rows = dir.join("rows.csv");
    write_csv(&rows, (0..3).map(|key| (key.to_string(), "value".to_owned())));
    let none = dir.join("none.csv");
    write_csv(&none, None);
    let edges = dir.join("edges.csv");
    fs::write(&edges, "from,to\nann,bob\nbob,cid\n").unwrap();
    let (rows, none, edges) = (rows.to_str().unwrap(), none.to_str().unwrap(), edges.to_str().unwrap());
    let run = |arguments: &[&str]| drop(cluster.any().done(arguments));
    run(&["store", "create", "batch", "--replicas", "2"]);
    run(&["store", "create", "single", "--replicas", "1"]);
    run(&["store", "create", "everywhere", "--everywhere"]);
    let pushed = ["batch", "single", "everywhere"];
    let columns = ["--key", "key", "--value", "value", "--quiet"];
    pushed
        .iter()
        .for_each(|store| run(&[&["push", store, rows], &columns[..]].concat()));
    // A backup, too.
    run(&[&["push", "batch", rows], &columns[..], &["--compress", "zstd"]].concat());
    run(&[
        "push", "graph", edges, "--edges", "from,to", "--type", "KNOWS", "--create", "--quiet",
    ]);
    for engine in ["log", "disk"] {
        let (topic, hybrid) = (format!("events-{engine}"), format!("hybrid-{engine}"));
        let writer = kafka.make_topic(&topic, 3);
        writer.send(0, Some("key"), Some("value"), None);
        writer.flush();
        let stream = format!("kafka://{}/{topic}", kafka.address());
        run(&[
            "store", "create", &hybrid, "--kind", "hybrid", "--stream", &stream, "--engine", engine,
        ]);
        run(&[&["push", &hybrid, none, "--allow-empty"], &columns[..]].concat());
    }
    for engine in ["log", "disk", "memory", "cache"] {
        let store = format!("versioned-{engine}");
        run(&["store", "create", &store, "--kind", "versioned", "--engine", engine]);
        let mut redis = cluster.get("node-1").redis();
        for key in 0..100 {
            let key = format!("{store}:{key}");
            until("the node to know the store", || {
                redis::cmd("SET").arg(&key).arg("value").exec(&mut redis).is_ok()
            });
        }
    }
}

/// The partitions whose stream a node reads for a store.
fn stream_partitions(cluster: &Cluster, name: &str, store: &str) -> u64 {
    let stream = cluster
        .get(name)
        .http_get(&format!("/v1/stores/{store}/stream?own=true"));
    let versions = stream["versions"].as_array().unwrap();
    let held = |version: &Value| version["partitions_ready"].as_u64().unwrap();
    versions.iter().map(held).sum()
}

#[test]
fn a_cluster_with_nothing_to_do_does_nothing() {
    let kafka = Kafka::shared();
    let cluster = Cluster::start(Shape::steady());
    make_stores(&cluster, kafka);
    let names = ["controller-1", "node-1", "node-2", "node-3", "router-1"];
    let look = || names.map(|name| Work::of(&cluster, name));
    let mut before = look();
    for window in 1.. {
        // The time over which the work is counted.
        thread::sleep(WINDOW);
        let after = look();
        let work: Vec<_> = names
            .iter()
            .zip(after.iter().zip(before).map(|(after, before)| after.since(before)))
            .collect();
        if work.iter().all(|(_, work)| work.is_idle()) {
            break;
        }
        assert!(window < WINDOWS_MAX, "an idle cluster works: {work:#?}");
        before = after;
    }
    for engine in ["log", "disk"] {
        let store = format!("hybrid-{engine}");
        let read: u64 = cluster
            .nodes()
            .iter()
            .map(|name| stream_partitions(&cluster, name, &store))
            .sum();
        let copies = u64::from(cluster.shape.partitions * cluster.shape.replicas);
        assert_eq!(read, copies, "nodes read the stream of their own partitions only");
    }
}
