//! The logic of reads, driven by a seed: nodes that answer wrongly, lag, lose requests and time out, topologies that
//! come early and late. Checks the invariants in all cases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use fondaco_client::operation::{AskId, Environment, Operation};
use fondaco_client::read::{Answer, Element, Failure, Read, SUB_REQUESTS_UNDER_WAY_MAX, SteeringPolicy};
use fondaco_client::{BatchReply, ClientError, Partial, ReadOptions};
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{NodeId, PartitionCount, VersionNumber};
use fondaco_protocol::WireKey;
use fondaco_simulation::{Agenda, Caller};
use proptest::prelude::*;

const STORES: [&str; 2] = ["a", "b"];
const NODES: u32 = 4;
const REPLICAS: u32 = 3;
/// The zone of the client.
const ZONE: Option<&str> = Some("zone-1");

/// The rates of faults: chances in a thousand, for each sub-request.
#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    unsent: u32,
    lost: u32,
    never: u32,
    refused_elsewhere: u32,
    errors: u32,
    /// For each answer: the chance that a store gets another version, or is recreated.
    swaps: u32,
}

struct World {
    random: Rng,
    faults: Faults,
    /// Whether answers are taken before all are there.
    is_streamed: bool,
    now_us: u64,
    /// The number of each store, and its current version.
    current: BTreeMap<&'static str, (u16, u64)>,
    /// All that the client has learnt of it.
    learnt: Vec<BTreeMap<&'static str, (u16, u64)>>,
    caller: Caller,
}

enum Event {
    Answer(AskId, Answer),
    Failure(AskId, Failure),
    Directory,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let current: BTreeMap<_, _> = STORES.iter().zip(1..).map(|(&store, id)| (store, (id, 1))).collect();
        Self {
            random: Rng::with_seed(seed),
            faults,
            is_streamed: false,
            now_us: 1,
            caller: Caller::new(topology(&current), ZONE),
            learnt: vec![current.clone()],
            current,
        }
    }

    /// The current time.
    fn env(&self) -> Environment<'_> {
        self.caller.env(self.now_us, 0)
    }

    fn happens(&mut self, chance: u32) -> bool {
        self.random.u32(..1000) < chance
    }

    fn swap(&mut self) {
        let store = STORES[self.random.usize(..STORES.len())];
        let (id, _) = self.current[store];
        // Sometimes it is dropped, and another one created under its name.
        let id = id
            + if self.random.u8(..4) == 0 {
                STORES.len() as u16
            } else {
                0
            };
        let version = self.random.u64(1..6);
        self.current.insert(store, (id, version));
    }

    /// A node's outcome for a sub-request, and its time; `None` if it never answers.
    fn node(
        &mut self,
        keys: &[WireKey],
        store_id: u16,
        version: VersionNumber,
    ) -> Option<(u64, Result<Answer, Failure>)> {
        let after_us = 200 + self.random.u64(..800);
        if self.happens(self.faults.never) {
            return None;
        }
        if self.happens(self.faults.lost) {
            return Some((after_us, Err(Failure::Lost("it broke".into()))));
        }
        if self.happens(self.faults.swaps) {
            self.swap();
        }
        let error = |text: &'static str| Some((after_us, Ok(Answer::Error(Bytes::from_static(text.as_bytes())))));
        if self.happens(self.faults.errors) {
            return error(["ERR odd", "TIMEOUT late", "CORRUPT rotten"][self.random.usize(..3)]);
        }
        if self.happens(self.faults.refused_elsewhere) {
            return error(["NOTHERE moved", "NOSTORE unheard of"][self.random.usize(..2)]);
        }
        // A version is open where it is current, and on some nodes for longer; likewise a dropped store.
        if self.current[keys[0].store()] != (store_id, version.get()) && self.random.bool() {
            return error("VERSIONGONE closed");
        }
        let value = |key: &WireKey| match key.key()[0] {
            b'-' => Element::Value(None),
            _ => Element::Value(Some(value(key, store_id, version))),
        };
        Some((after_us, Ok(Answer::Elements(keys.iter().map(value).collect()))))
    }

    /// Carries out one request, and checks the invariants on the way.
    fn read(&mut self, keys: &Arc<Vec<WireKey>>, options: &ReadOptions) -> Result<BatchReply, ClientError> {
        let began_us = self.now_us;
        let deadline_us = began_us + options.deadline.as_micros() as u64;
        let mut read = Read::start(Arc::clone(keys), options.clone(), &self.env())?;
        let mut taken = BTreeMap::new();
        if self.is_streamed {
            read = read.streamed();
        }
        let mut events = Agenda::default();
        let mut asked: BTreeSet<(u32, NodeId)> = BTreeSet::new();
        // The time until which each unanswered request counts.
        let mut under_way: BTreeMap<AskId, u64> = BTreeMap::new();
        let mut flux = false;
        loop {
            while let Some(sub) = read.next_send(&self.env()) {
                let of_sub: Vec<WireKey> = sub.request.keys().cloned().collect();
                assert!(!of_sub.is_empty());
                assert!(of_sub.iter().all(|key| key.store() == of_sub[0].store()), "one store");
                for &key in &sub.request.places {
                    let partition = self
                        .caller
                        .directory
                        .topology()
                        .partitions
                        .partition_of(keys[key as usize].slot());
                    let owners = &self.caller.directory.topology().owners[partition.get() as usize];
                    assert!(owners.contains(&sub.node), "it holds the key");
                    assert!(asked.insert((key, sub.node)) || flux, "it was asked already");
                }
                let (id, store_id, version) = (sub.id, sub.request.store_id, sub.request.version);
                if self.happens(self.faults.unsent) {
                    read.on_failure(id, Failure::Unsent("no connection".into()), &self.env());
                    continue;
                }
                under_way.retain(|_, until_us| *until_us > self.now_us);
                under_way.insert(id, self.now_us + options.deadline.as_micros() as u64 / 2);
                assert!(under_way.len() <= SUB_REQUESTS_UNDER_WAY_MAX);
                if let Some((after_us, back)) = self.node(&of_sub, store_id, version) {
                    let event = match back {
                        Ok(answer) => Event::Answer(id, answer),
                        Err(failure) => Event::Failure(id, failure),
                    };
                    events.put(self.now_us + after_us, event);
                }
            }
            while read.take_suspended().is_some() {}
            if read.take_refresh() {
                flux = true;
                let after_us = self.random.u64(..50_000);
                events.put(self.now_us + after_us, Event::Directory);
            }
            if self.is_streamed && (read.is_over() || self.random.u8(..4) == 0) {
                for (key, answer) in read.take_fresh().answers {
                    assert!(taken.insert(key, answer).is_none(), "a key has one answer");
                }
            }
            if read.is_over() {
                break;
            }
            let wake_us = read.wake_at_us();
            assert!(wake_us <= deadline_us, "it sleeps past its deadline");
            match events.next_at() {
                Some(at_us) if at_us <= wake_us => {
                    self.now_us = self.now_us.max(at_us);
                    match events.take().unwrap().2 {
                        Event::Answer(id, answer) => {
                            under_way.remove(&id);
                            read.on_reply(id, answer, &self.env());
                        }
                        Event::Failure(id, failure) => {
                            under_way.remove(&id);
                            read.on_failure(id, failure, &self.env());
                        }
                        Event::Directory => {
                            self.caller.learn(topology(&self.current), ZONE);
                            self.learnt.push(self.current.clone());
                            read.on_directory(&self.env());
                        }
                    }
                }
                _ => {
                    assert!(wake_us >= self.now_us, "it wakes in the past");
                    self.now_us = wake_us;
                    read.on_time(&self.env());
                }
            }
        }
        assert!(self.now_us <= deadline_us);
        self.now_us += 1_000;
        self.probe();
        let mut reply = read.finish()?;
        if self.is_streamed {
            reply.values = taken.into_values().collect();
        }
        self.check(keys, &reply, options);
        Ok(reply)
    }

    /// Answers every probe that is due.
    fn probe(&mut self) {
        for member in self.caller.directory.members() {
            if member.health.probe_at_us().is_some_and(|at_us| at_us <= self.now_us) {
                member.health.probe_succeeded(self.now_us);
            }
        }
    }

    fn check(&self, keys: &[WireKey], reply: &BatchReply, options: &ReadOptions) {
        assert_eq!(reply.values.len(), keys.len());
        let found = keys.iter().zip(&reply.values).filter(|(_, value)| value.is_ok());
        let found: BTreeSet<&str> = found.map(|(key, _)| key.store()).collect();
        let pinned = reply.stores.iter().filter(|store| found.contains(store.name.as_str()));
        let pinned: Vec<_> = pinned
            .map(|store| (store.name.as_str(), (store.id, store.version.get())))
            .collect();
        let is_one = |learnt: &BTreeMap<&str, (u16, u64)>| pinned.iter().all(|(name, of)| learnt[name] == *of);
        assert!(
            self.learnt.iter().any(is_one),
            "versions of different topologies: {pinned:?}"
        );
        for (key, found) in keys.iter().zip(&reply.values) {
            match found {
                Ok(None) => assert_eq!(key.key()[0], b'-', "an existing key was not found"),
                Ok(Some(found)) => {
                    let mut pinned = reply.stores.iter();
                    let pinned = pinned.find(|store| store.name.as_str() == key.store()).unwrap();
                    let value = value(key, pinned.id, pinned.version);
                    assert_eq!(*found, value, "of the store and version that the answer names");
                }
                Err(_) => assert_eq!(options.partial, Partial::PerKey),
            }
        }
    }
}

fn value(key: &WireKey, store_id: u16, version: VersionNumber) -> Bytes {
    format!("{}@{store_id}.{version}", String::from_utf8_lossy(key.as_bytes())).into()
}

fn topology(current: &BTreeMap<&'static str, (u16, u64)>) -> Topology {
    let id = |number: u32| NodeId::new(number).unwrap();
    let node = |number: u32| {
        let node = TopologyNode::live(format!("node-{number}:6500"), format!("zone-{}", number % 2));
        (id(number), node)
    };
    let store = |(&name, &(id, version)): (&&str, &(u16, u64))| {
        let store = TopologyStore {
            id,
            current: VersionNumber::new(version),
            ..TopologyStore::batch(REPLICAS)
        };
        (name.parse().unwrap(), store)
    };
    let owners = |partition: u32| {
        (0..REPLICAS)
            .map(|replica| id((partition + replica) % NODES + 1))
            .collect()
    };
    Topology {
        routers: vec!["127.0.0.1:6400".into()],
        ..Topology::first(
            PartitionCount::try_from(16).unwrap(),
            (0..16).map(owners).collect(),
            (1..=NODES).map(node),
            current.iter().map(store),
        )
    }
}

fn keys(random: &mut Rng, count: usize) -> Arc<Vec<WireKey>> {
    let mut key = || {
        let (store, absent) = (STORES[random.usize(..2)], random.u8(..10) == 0);
        let text = format!("{store}:{}{}", if absent { "-" } else { "k" }, random.u32(..1000));
        WireKey::parse(text.into()).unwrap()
    };
    Arc::new((0..count).map(|_| key()).collect())
}

fn options(partial: Partial, hedge: bool) -> ReadOptions {
    ReadOptions {
        deadline: Duration::from_millis(500),
        partial,
        hedge,
        ..ReadOptions::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_read_always_ends_in_time_at_one_version(
        seed: u64,
        counts in prop::collection::vec(0usize..200, 1..20),
        faults in (0u32..300, 0u32..300, 0u32..300, 0u32..300, 0u32..300, 0u32..300),
        per_key: bool,
        hedge: bool,
        is_streamed: bool,
    ) {
        let (unsent, lost, never, refused_elsewhere, errors, swaps) = faults;
        let faults = Faults { unsent, lost, never, refused_elsewhere, errors, swaps };
        let mut world = World::new(seed, faults);
        world.is_streamed = is_streamed;
        let options = options(if per_key { Partial::PerKey } else { Partial::Fail }, hedge);
        for count in counts {
            let keys = keys(&mut world.random, count);
            let reply = world.read(&keys, &options);
            prop_assert!(!per_key || reply.is_ok());
        }
    }

    #[test]
    fn without_faults_each_node_is_asked_once_per_store(seed: u64, count in 1usize..300) {
        let mut world = World::new(seed, Faults::default());
        let keys = keys(&mut world.random, count);
        let reply = world.read(&keys, &options(Partial::Fail, true)).unwrap();
        prop_assert!(reply.sub_requests <= NODES * STORES.len() as u32);
        prop_assert_eq!((reply.retried, reply.hedged), (0, 0));
    }

    #[test]
    fn swaps_alone_fail_no_request(seed: u64, counts in prop::collection::vec(1usize..100, 1..30)) {
        let mut world = World::new(seed, Faults { swaps: 30, ..Faults::default() });
        for count in counts {
            let keys = keys(&mut world.random, count);
            let reply = world.read(&keys, &options(Partial::Fail, true));
            prop_assert!(reply.is_ok(), "{:?}", reply);
        }
    }

    #[test]
    fn extra_requests_stay_within_their_budgets(seed: u64, lost in 0u32..400, never in 0u32..400) {
        let mut world = World::new(seed, Faults { lost, never, ..Faults::default() });
        for _ in 0..300 {
            let keys = keys(&mut world.random, 1);
            let _ = world.read(&keys, &options(Partial::PerKey, true));
        }
        let counts = world.caller.steering.counts();
        let policy = SteeringPolicy::default();
        let first = (counts.sub_requests - counts.retries - counts.hedges - counts.redirects) as f64;
        prop_assert!(counts.hedges as f64 <= first * policy.hedge_share + 10.0);
        let stock = f64::from(policy.retry_stock_max);
        prop_assert!(counts.retries as f64 <= first * policy.retry_share + stock);
        prop_assert_eq!(counts.requests, 300);
    }
}

#[test]
fn a_client_with_enough_samples_hedges_unanswered_requests() {
    let mut world = World::new(1, Faults::default());
    for _ in 0..500 {
        let keys = keys(&mut world.random, 1);
        world.read(&keys, &options(Partial::Fail, true)).unwrap();
    }
    let before = world.caller.steering.counts();
    world.faults.never = 50;
    let mut longest_us = 0;
    for _ in 0..200 {
        let keys = keys(&mut world.random, 1);
        let began_us = world.now_us;
        world.read(&keys, &options(Partial::Fail, true)).unwrap();
        longest_us = longest_us.max(world.now_us - began_us);
    }
    let after = world.caller.steering.counts();
    assert!(after.hedges > before.hedges + 5);
    assert!(after.hedges_won > before.hedges_won + 5);
    assert!(longest_us < 600_000, "{longest_us}");
}

#[test]
fn keys_without_a_node_fail_at_the_deadline() {
    let mut world = World::new(1, Faults::default());
    let keys = Arc::new(vec![WireKey::parse("a:k".into()).unwrap()]);
    let options = options(Partial::Fail, false);
    world.now_us = 0;
    let mut read = Read::start(keys, options.clone(), &world.env()).unwrap();
    for _ in 0..REPLICAS {
        let id = read.next_send(&world.env()).unwrap().id;
        let gone = Answer::Error(Bytes::from_static(b"VERSIONGONE closed"));
        read.on_reply(id, gone, &world.env());
    }
    assert!(
        read.next_send(&world.env()).is_none(),
        "all nodes that may have it were asked"
    );
    world.now_us = read.wake_at_us();
    read.on_time(&world.env());
    assert!(read.next_send(&world.env()).is_some(), "it is asked for once more");
    world.now_us = options.deadline.as_micros() as u64;
    read.on_time(&world.env());
    let error = read.finish().unwrap_err();
    assert!(matches!(error, ClientError::NoReplica { .. }), "{error:?}");
}
