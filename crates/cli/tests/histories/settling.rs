//! The end of a test: nothing fails any more, replicas converge, and their contents are checked against the promises.

use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::Value;

use super::clients::{number, siblings};
use super::ledger::{Account, Ledger, Seen};
use super::machines::Machines;
use super::stores::{Keeps, REPLICAS};

/// How long replicas may take to converge.
const EQUAL_WITHIN: Duration = Duration::from_secs(60);
/// The polling interval.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The timeout of a replica, in milliseconds.
const ANSWER_MS: u64 = 5000;

/// The nodes, queried as replicas for their local records.
struct Replicas {
    nodes: Vec<(String, redis::Connection)>,
}

/// Waits until all replicas have equal records of all keys, and no node keeps hints; then checks a read of each key.
pub fn settle(machines: &Machines, ledger: &Ledger) {
    let began = Instant::now();
    until_no_hints(machines);
    let mut replicas = Replicas::of(machines);
    for (at, account) in ledger.accounts().iter().enumerate() {
        for key in account.keys() {
            replicas.until_equal(at, account, &key, began + EQUAL_WITHIN);
        }
    }
    println!("replicas are equal {:?} after the last trouble", began.elapsed());
    let mut router = machines.cluster.get("router-1").redis();
    for (at, account) in ledger.accounts().iter().enumerate() {
        for key in account.keys() {
            let wire_key = [account.store.name.as_bytes(), b":", &key].concat();
            let seen = match account.store.keeps {
                Keeps::Counters => redis::cmd("GET")
                    .arg(wire_key)
                    .query(&mut router)
                    .map(|value| Seen::Total(number(&value))),
                Keeps::Latest | Keeps::All => {
                    let asked = redis::cmd("FONDACO.GET").arg(wire_key).query(&mut router);
                    asked.map(|value| Seen::All(siblings(value).1))
                }
            };
            let seen = seen.unwrap_or_else(|error| panic!("{}:{key:?}: {error}", account.store.name));
            ledger.settled(at, &key, &seen);
        }
    }
}

fn until_no_hints(machines: &Machines) {
    let hinted = || {
        let names = machines.cluster.nodes();
        names.into_iter().find(|name| {
            let url = format!("http://{}/metrics", machines.cluster.get(name).http);
            let told = ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap();
            !told.lines().any(|line| line == "fondaco_hinted_nodes 0")
        })
    };
    let deadline = Instant::now() + EQUAL_WITHIN;
    while let Some(name) = hinted() {
        assert!(
            Instant::now() < deadline,
            "{name} still keeps hints, though all nodes are there"
        );
        std::thread::park_timeout(LOOK_AGAIN);
    }
}

impl Replicas {
    fn of(machines: &Machines) -> Self {
        let connection = |name: String| {
            let connection = machines.cluster.get(&name).redis();
            (name, connection)
        };
        Self {
            nodes: machines.cluster.nodes().into_iter().map(connection).collect(),
        }
    }

    fn until_equal(&mut self, at: usize, account: &Account, key: &Bytes, deadline: Instant) {
        loop {
            let held: Vec<_> = self.held(at, account.store.name, key);
            let is_equal = held.len() == REPLICAS as usize && held.windows(2).all(|pair| pair[0].1 == pair[1].1);
            if is_equal {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "replicas of {}:{key:?} differ, though nothing fails any more: {held:?}",
                account.store.name
            );
            std::thread::park_timeout(LOOK_AGAIN);
        }
    }

    /// The owners of a key, and each one's record of it.
    fn held(&mut self, at: usize, store: &str, key: &Bytes) -> Vec<(&str, Option<Bytes>)> {
        let mut held = Vec::new();
        for (name, connection) in &mut self.nodes {
            let mut request = redis::cmd("FONDACO.RGET");
            // Stores are numbered in the order of their creation.
            request
                .arg(format!("v1;timeout={ANSWER_MS}"))
                .arg(at + 1)
                .arg("FULL")
                .arg(store)
                .arg(&key[..]);
            match request.query::<Vec<Value>>(connection).as_deref() {
                Ok([Value::BulkString(record)]) => held.push((&**name, Some(Bytes::copy_from_slice(record)))),
                Ok([Value::Nil]) => held.push((&**name, None)),
                Ok([Value::ServerError(error)]) if error.code() == "NOTHERE" => {}
                Err(error) if error.code() == Some("NOTHERE") => {}
                other => panic!("{name} says of {store}:{key:?}: {other:?}"),
            }
        }
        held
    }
}
