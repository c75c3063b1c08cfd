//! A cluster in three zones. One zone is lost while clients write and read, and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;

use fondaco_model::Placement;
use serde_json::{Value, json};

use crate::harness::TestCluster;
use crate::single::until;

/// How many keys are written again and again.
const KEYS: usize = 40;

/// The nodes of each zone.
const ZONES: [[&str; 2]; 3] = [["node-1", "node-4"], ["node-2", "node-5"], ["node-3", "node-6"]];

/// A client that writes all keys of a store and reads them, in a loop: any failure fails the test.
struct Load {
    is_to_end: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(cluster: &TestCluster) -> Self {
        let mut connection = cluster.resp();
        let (is_to_end, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (told, count) = (Arc::clone(&is_to_end), Arc::clone(&rounds));
        let run = move || {
            while !told.load(SeqCst) {
                let round = count.load(SeqCst);
                for key in 0..KEYS {
                    assert_eq!(connection.ask(&format!("SET cart:{key} {round}-{key}")), "+OK", "{key}");
                    assert_eq!(connection.ask(&format!("GET cart:{key}")), format!("{round}-{key}"));
                }
                count.store(round + 1, SeqCst);
            }
        };
        Self {
            is_to_end,
            rounds,
            thread: std::thread::spawn(run),
        }
    }

    /// Waits until all keys have been written and read once more, from now on.
    fn continues(&self) {
        // The present round began earlier.
        let goal = self.rounds.load(SeqCst) + 2;
        until("writes and reads to continue", || {
            assert!(!self.thread.is_finished(), "one of them failed");
            self.rounds.load(SeqCst) >= goal
        });
    }

    /// Stops it. Returns the round that was written last.
    fn end(self) -> usize {
        self.is_to_end.store(true, SeqCst);
        self.thread.join().unwrap();
        self.rounds.load(SeqCst) - 1
    }
}

fn create(cluster: &TestCluster, store: &str, versioned: Value) {
    let body = json!({"name": store, "kind": "versioned", "versioned": versioned});
    cluster.client.done("POST", "/v1/stores", body, 201);
    let mut connection = cluster.resp();
    until("the store to be known", || {
        connection.ask(&format!("SET {store}:first x")) == "+OK"
    });
}

#[test]
fn a_lost_zone_recovers_missed_writes_when_it_is_back() {
    let cluster = TestCluster::start_of(6, 3, |config| {
        config.cluster.placement = Placement::Zoned;
        config.cluster.replicas = 3;
    });
    create(
        &cluster,
        "cart",
        json!({"zone_reads": 1, "zone_writes": 1, "handoff": "proximity"}),
    );
    create(
        &cluster,
        "ledger",
        json!({"zone_reads": 2, "zone_writes": 2, "sloppy": true}),
    );
    let load = Load::start(&cluster);
    load.continues();
    for node in ZONES[1] {
        cluster.stop(node);
    }
    load.continues();

    let mut connection = cluster.resp();
    for (command, part) in [("SET ledger:first y", "writes"), ("GET ledger:first", "reads")] {
        let said = connection.ask(command);
        assert!(
            said.starts_with("-NOQUORUM ")
                && said.contains(part)
                && said.contains(" of 2 other zones (none in \"zone-2\"): "),
            "{said}"
        );
    }
    for node in ZONES[0] {
        until("hints in the zone of the router", || {
            cluster.metric(node, "fondaco_hinted_nodes") > 0
        });
    }

    for node in ZONES[1] {
        cluster.start_again(node);
    }
    cluster.wait_ready();
    until("the store that wants all zones to be written to", || {
        connection.ask("SET ledger:first z") == "+OK"
    });
    assert_eq!(connection.ask("GET ledger:first"), "z");
    load.continues();
    let last = load.end();
    for node in cluster.nodes() {
        until("hints to be delivered", || {
            cluster.metric(&node, "fondaco_hinted_nodes") == 0
        });
    }
    replicas_become_equal(&cluster);
    for key in 0..KEYS {
        assert_eq!(connection.ask(&format!("GET cart:{key}")), format!("{last}-{key}"));
    }
}

/// Waits until each key of the first store is on one node of each zone, with the same bytes.
fn replicas_become_equal(cluster: &TestCluster) {
    let mut zones = ZONES.map(|zone| zone.map(|node| cluster.resp_of(node)));
    for key in 0..KEYS {
        until("the replicas to be equal", || {
            let mut records = zones.each_mut().map(|zone| {
                let replies = zone.each_mut().map(|node| {
                    node.bytes(&format!("FONDACO.RGET v1;timeout=1000 1 FULL cart {key}"))
                        .unwrap()
                });
                let mut held = replies.into_iter().filter(|reply| !reply.starts_with(b"-"));
                let record = held.next().expect("each zone has a replica");
                assert!(held.next().is_none(), "and no second one");
                record
            });
            records.sort_unstable();
            records[0] == records[2] && records[0] != b"$-1"
        });
    }
}
