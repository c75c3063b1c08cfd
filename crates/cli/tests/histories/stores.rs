//! The stores that are put to the test, and what each promises.

use fastrand::Rng;
use fondaco_simulation::versioned::Promise;

use super::cluster::Cluster;

/// Where records may be that outlive a process.
const ENGINES: [&str; 2] = ["disk", "log"];

/// Who may keep hints.
const HANDOFFS: [&str; 3] = ["consistent", "any", "proximity"];

/// How many nodes have each key.
pub const REPLICAS: u32 = 3;

/// A store.
pub struct Store {
    pub name: &'static str,
    /// What it is created with.
    options: &'static [&'static str],
    /// What is held against it.
    pub promise: Promise,
    pub keeps: Keeps,
    /// Whether it cannot keep that, and is there to show that this is noticed.
    pub is_weak: bool,
}

/// What clients do with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// Values, of which a plain read sees the latest.
    Latest,
    /// Values, of which a plain read fails where there are several.
    All,
    /// Numbers that are added to.
    Counters,
}

/// A read sees what was acknowledged before it, and nothing is ever lost.
const STRICT: Promise = Promise {
    reads_see_writes: true,
    writes_stay: true,
};

/// A read may miss something, and nothing is ever lost.
const EVENTUAL: Promise = Promise {
    reads_see_writes: false,
    writes_stay: true,
};

/// All of them, in the order in which they are created.
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
    // It reads one replica and writes one, and is held to what takes a majority of them.
    Store {
        name: "weak",
        options: &["--reads", "1", "--writes", "1"],
        promise: STRICT,
        keeps: Keeps::Latest,
        is_weak: true,
    },
];

impl Store {
    /// Creates it. Where records are, and who keeps hints, is chosen by chance, unless the store says.
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
