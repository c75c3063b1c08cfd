//! Long values over a slow network between a router and nodes, and between nodes: their transfer takes longer than any time limit,
//! and neither they nor the requests beside them fail.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_client::Client;
use fondaco_model::cluster::Topology;
use fondaco_model::versioned::{Update, VectorClock, VersionedChange};
use fondaco_model::{NodeId, PartitionId, RoutingTable, StoreName};
use fondaco_node::Setting;
use fondaco_protocol::replica::{
    Held, OnReply, PutOver, RecordPart, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest,
};
use fondaco_replica::{Peers, ReplicaCounter, ReplicaOptions};
use fondaco_testing::{Proxy, until};
use redis::Value;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::harness::{STORE_ID, Shape};
use crate::harness::{Cluster, Node, PATIENCE, bulk};

/// Near the limit of a value.
const LONG_BYTES: usize = 15 << 20;
/// A transfer of the value takes longer than a request may.
const BYTES_PER_SECOND: u64 = 12 << 20;
const TIMEOUT_MS: u64 = 1000;
const SMALL_KEYS: usize = 50;

struct SlowNetwork {
    cluster: Cluster,
    proxies: Vec<Proxy>,
}

impl SlowNetwork {
    /// Three nodes, and a network to them for routers.
    fn start() -> Self {
        Self::of(Shape {
            nodes: 3,
            replicas: 3,
            ..Shape::default()
        })
    }

    fn of(shape: Shape) -> Self {
        let mut cluster = Cluster::versioned(shape);
        let to = |node: &Node| {
            let proxy = Proxy::to(node.address().port());
            proxy.limit(BYTES_PER_SECOND);
            proxy
        };
        let proxies: Vec<Proxy> = cluster.nodes.iter().map(to).collect();
        for (node, proxy) in cluster.topology.nodes.values_mut().zip(&proxies) {
            node.resp = proxy.address();
        }
        Self { cluster, proxies }
    }

    fn router(&self) -> Node {
        let router = self.cluster.router();
        router.settings.set(Setting::ForwardTimeoutMs, TIMEOUT_MS).unwrap();
        router
    }
}

/// Does something, and meanwhile reads and writes small values through the router, all of which must succeed. Returns how long
/// the reads took.
fn beside(router: &Node, long: impl FnOnce()) -> Vec<Duration> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let small = scope.spawn(|| {
            let mut connection = router.connect();
            let mut took = Vec::new();
            while !is_over.load(Relaxed) || took.len() < SMALL_KEYS {
                let number = took.len() % SMALL_KEYS;
                let set = connection.send(&format!("SET s:small-{number} {number}"));
                assert_eq!(set, Ok(Value::Okay));
                let began = Instant::now();
                let got = connection.send(&format!("GET s:small-{number}"));
                took.push(began.elapsed());
                assert_eq!(got, Ok(bulk(&number.to_string())));
            }
            took
        });
        long();
        is_over.store(true, Relaxed);
        let mut took = small.join().unwrap();
        took.sort_unstable();
        took
    })
}

fn report(what: &str, took: &[Duration]) {
    let at = |share: usize| took[(took.len() - 1) * share / 100];
    println!("{what}: {} small reads, p50 {:?}, p99 {:?}", took.len(), at(50), at(99));
}

#[test]
fn a_long_value_takes_its_time_and_fails_no_other_request() {
    let network = SlowNetwork::start();
    let router = network.router();
    let value = vec![b'x'; LONG_BYTES];
    report("nothing beside them", &beside(&router, || ()));
    let mut connection = router.connect();
    let began = Instant::now();
    let took = beside(&router, || {
        assert_eq!(connection.ask(&[&b"SET"[..], b"s:long", &value]), Ok(Value::Okay));
    });
    report("a long value is written", &took);
    assert!(
        began.elapsed() > Duration::from_millis(TIMEOUT_MS),
        "the network was not slow"
    );
    // A router that has not seen the value does not know that it is long.
    for (what, router) in [
        ("a long value is read", &router),
        ("… by another router", &network.router()),
    ] {
        let mut connection = router.connect();
        let took = beside(router, || {
            let got = connection.send("GET s:long");
            assert!(got == Ok(Value::BulkString(value.clone())), "another value");
        });
        report(what, &took);
    }
    assert_eq!(
        connection.send("APPEND s:long y"),
        Ok(Value::Int(LONG_BYTES as i64 + 1))
    );
}

/// Other nodes as the client library reaches them, with the connections of a node.
struct Background {
    runtime: Runtime,
    client: Client,
    topology: watch::Sender<Option<Arc<Topology>>>,
}

impl Background {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let (topology, latest) = watch::channel(None);
        let _within = runtime.enter();
        let client = Client::builder().topology(latest).build().unwrap();
        drop(_within);
        Self {
            runtime,
            client,
            topology,
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Background")
    }
}

impl Peers for Background {
    fn ask(&self, node: NodeId, request: ReplicaRequest, answer: OnReply) {
        let client = self.client.clone();
        self.runtime.spawn(async move {
            let timeout = Duration::from_millis(request.timeout_ms);
            let reply = client.ask_replica(node, request, timeout).await;
            answer(reply.unwrap_or_else(|error| {
                let error = ReplicaError::new(ReplicaErrorCode::Timeout, error.to_string());
                ReplicaReply::Error(error)
            }));
        });
    }
}

/// Asks the replica of a node itself.
fn ask(node: &Node, operation: ReplicaOperation) -> ReplicaReply {
    let (sender, receiver) = mpsc::channel();
    let store: StoreName = "s".parse().unwrap();
    let request = ReplicaRequest {
        epoch: None,
        store_id: STORE_ID,
        store,
        timeout_ms: PATIENCE.as_millis() as u64,
        operation,
    };
    node.replicas().request(request, move |reply| drop(sender.send(reply)));
    receiver.recv_timeout(PATIENCE).unwrap()
}

/// Whether the replica of a node has a record of this length at least.
fn has_long(node: &Node, key: &str) -> bool {
    let operation = ReplicaOperation::Get {
        part: RecordPart::Full,
        keys: vec![Bytes::copy_from_slice(key.as_bytes())],
    };
    match ask(node, operation) {
        ReplicaReply::Records(records) => match &records[..] {
            [Ok(Held::Record(record))] => record.len() > LONG_BYTES,
            _ => false,
        },
        // It has yet to hear of the partition.
        _ => false,
    }
}

#[test]
fn long_values_reach_replicas_by_hints_anti_entropy_and_moves() {
    let background = Arc::new(Background::start());
    let network = SlowNetwork::of(Shape {
        nodes: 3,
        replicas: 2,
        settings: VersionedChange {
            reads: Some(1),
            writes: Some(1),
            ..VersionedChange::default()
        },
        background: Arc::clone(&background) as Arc<dyn Peers>,
        replica_options: ReplicaOptions {
            exchange_period: Duration::from_millis(100),
            peer_timeout: Duration::from_millis(TIMEOUT_MS),
            ..Shape::default().replica_options
        },
        ..Shape::default()
    });
    let SlowNetwork { mut cluster, proxies } = network;
    // A transfer takes more than twice the time limit.
    proxies.iter().for_each(|proxy| proxy.limit(BYTES_PER_SECOND / 2));
    // Both are in one partition.
    let [hinted, compared] = ["{k}hinted", "{k}compared"];
    let owners = cluster.owners_of(hinted);
    let (first, second) = (owners[0], owners[1]);
    let other = 3 - first - second;
    let id = |node: usize| NodeId::new(node as u32 + 1).unwrap();
    let set_live = |cluster: &mut Cluster, is_live: bool| {
        let node = cluster.topology.nodes.get_mut(&id(second)).unwrap();
        node.live = is_live;
        cluster.publish();
        background
            .topology
            .send_replace(Some(Arc::new(cluster.topology.clone())));
    };
    let hinting =
        |cluster: &Cluster| -> usize { cluster.nodes.iter().map(|node| node.replicas().hinted_nodes()).sum() };

    // A hint.
    proxies[second].cut();
    set_live(&mut cluster, false);
    let value = vec![b'x'; LONG_BYTES];
    let set = cluster.nodes[first]
        .connect()
        .ask(&[&b"SET"[..], format!("s:{hinted}").as_bytes(), &value]);
    assert_eq!(set, Ok(Value::Okay));
    until("a node to have the hint", || hinting(&cluster) == 1);
    assert!(!has_long(&cluster.nodes[second], hinted));
    proxies[second].heal();
    set_live(&mut cluster, true);
    until("the hint to be delivered", || hinting(&cluster) == 0);
    assert!(has_long(&cluster.nodes[second], hinted));
    let delivered = || -> u64 {
        let nodes = cluster.nodes.iter();
        nodes
            .map(|node| node.replicas().counter(ReplicaCounter::HintsDelivered))
            .sum()
    };
    assert_eq!(delivered(), 1);

    // Anti-entropy: only one replica has the record, and no node has a hint.
    let put = ReplicaOperation::Put {
        over: PutOver::All,
        key: Bytes::copy_from_slice(compared.as_bytes()),
        context: VectorClock::new(),
        update: Update::put(value.into(), 1, None),
        is_charged: false,
    };
    assert!(matches!(ask(&cluster.nodes[first], put), ReplicaReply::Written(_)));
    until("the other replica to get the record", || {
        has_long(&cluster.nodes[second], compared)
    });
    assert_eq!(delivered(), 1);

    // A move.
    let slot = fondaco_model::slot_of_key(&"s".parse().unwrap(), hinted.as_bytes());
    let partition: PartitionId = cluster.topology.partitions.partition_of(slot);
    let table = RoutingTable::first(cluster.topology.partitions, cluster.topology.owners.clone()).unwrap();
    let mut next = cluster.topology.owners.clone();
    next[partition.get() as usize] = vec![id(other), id(second)];
    let table = table.with_plan(next).unwrap();
    for node in &cluster.nodes {
        node.publish_with(&cluster.topology, table.clone());
    }
    until("the next owner to have everything", || {
        let status = cluster.nodes[other].replicas().status(STORE_ID).unwrap();
        status.synchronised.contains(partition)
    });
    for key in [hinted, compared] {
        assert!(has_long(&cluster.nodes[other], key), "{key}");
    }
}
