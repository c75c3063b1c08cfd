//! The tested stores and their promises.

use fastrand::Rng;
use fondaco_simulation::versioned::Promise;

use super::cluster::Cluster;

/// The engines whose records outlive a process.
const ENGINES: [&str; 2] = ["disk", "log"];

/// The policies for nodes that keep hints.
const HANDOFFS: [&str; 3] = ["consistent", "any", "proximity"];

/// The number of replicas of each key.
pub const REPLICAS: u32 = 3;

/// A store.
pub struct Store {
    pub name: &'static str,
    /// The options at its creation.
    options: &'static [&'static str],
    /// The promise that it is checked against.
    pub promise: Promise,
    pub keeps: Keeps,
    /// Whether it cannot keep that promise: it is there to prove that the checker notices.
    pub is_weak: bool,
}

/// The kind of data that clients keep in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// Values; a plain read returns the latest one.
    Latest,
    /// Values; a plain read fails if there are several.
    All,
    /// Counters.
    Counters,
}

/// A read sees all writes acknowledged before it, and nothing is ever lost.
const STRICT: Promise = Promise {
    reads_see_writes: true,
    writes_stay: true,
};

/// A read may miss a write, but nothing is ever lost.
const EVENTUAL: Promise = Promise {
    reads_see_writes: false,
    writes_stay: true,
};

/// All stores, in the order of their creation.
pub const STORES: [Store; 6] = [
    Store {
        name: "strict",
        options: &["--reads", "2", "--writes", "2"],
        promise: STRICT,
        keeps: Keeps::Latest,
        is_weak: false,
    },
    Store {
        name: "sloppy",
        options: &["--reads", "2", "--writes", "2", "--sloppy"],
        promise: EVENTUAL,
        keeps: Keeps::Latest,
        is_weak: false,
    },
    Store {
        name: "siblings",
        options: &["--reads", "2", "--writes", "2", "--resolution", "all"],
        promise: STRICT,
        keeps: Keeps::All,
        is_weak: false,
    },
    Store {
        name: "counted",
        options: &["--reads", "2", "--writes", "2", "--resolution", "counter"],
        promise: STRICT,
        keeps: Keeps::Counters,
        is_weak: false,
    },
    Store {
        name: "relaxed",
        options: &["--reads", "1", "--writes", "1", "--handoff", "none"],
        promise: EVENTUAL,
        keeps: Keeps::All,
        is_weak: false,
    },
    // It reads and writes one replica, and is checked against the promise of majorities.
    Store {
        name: "weak",
        options: &["--reads", "1", "--writes", "1"],
        promise: STRICT,
        keeps: Keeps::Latest,
        is_weak: true,
    },
];

impl Store {
    /// Creates it. The engine and the handoff are chosen at random, unless the store fixes them.
    pub fn create(&self, cluster: &Cluster, rng: &mut Rng) {
        let replicas = REPLICAS.to_string();
        let kind = [
            "store",
            "create",
            self.name,
            "--kind",
            "versioned",
            "--replicas",
            &replicas,
        ];
        let chosen = ["--handoff", HANDOFFS[rng.usize(..HANDOFFS.len())]];
        let handoff = match self.options.contains(&"--handoff") {
            true => &[][..],
            false => &chosen,
        };
        let engine = ["--engine", ENGINES[rng.usize(..ENGINES.len())]];
        cluster
            .any()
            .done(&[&kind[..], self.options, handoff, &engine].concat());
    }
}
