//! Long values over a slow network between a router and nodes: their transfer takes longer than any time limit, and neither they
//! nor the requests beside them fail.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_node::Setting;
use fondaco_testing::Proxy;
use redis::Value;

use crate::harness::{Cluster, Node, Shape, bulk};

/// Near the limit of a value.
const LONG_BYTES: usize = 15 << 20;
/// A transfer of the value takes longer than a request may.
const BYTES_PER_SECOND: u64 = 12 << 20;
const TIMEOUT_MS: u64 = 1000;
const SMALL_KEYS: usize = 50;

struct SlowNetwork {
    cluster: Cluster,
    _proxies: Vec<Proxy>,
}

impl SlowNetwork {
    /// Three nodes, and a network to them for routers.
    fn start() -> Self {
        let mut cluster = Cluster::start(Shape {
            nodes: 3,
            replicas: 3,
            ..Shape::default()
        });
        let to = |node: &Node| {
            let proxy = Proxy::to(node.address().port());
            proxy.limit(BYTES_PER_SECOND);
            proxy
        };
        let proxies: Vec<Proxy> = cluster.nodes.iter().map(to).collect();
        for (node, proxy) in cluster.topology.nodes.values_mut().zip(&proxies) {
            node.resp = proxy.address();
        }
        Self {
            cluster,
            _proxies: proxies,
        }
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
