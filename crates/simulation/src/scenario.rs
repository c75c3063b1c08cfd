//! The parameters of a simulation: its size, its duration, and its faults.

use fastrand::Rng;
use fondaco_decisions::Patience;
use fondaco_model::Placement;

/// A cluster and its events. The same scenario always gives the same run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The seed of all randomness.
    pub seed: u64,
    /// The number of nodes at the beginning.
    pub nodes: usize,
    /// The number of nodes that join later, one by one.
    pub nodes_later: usize,
    /// The number of partitions; a power of two.
    pub partitions: u32,
    /// The number of nodes that hold each partition.
    pub replicas: u32,
    /// How partitions are assigned to nodes.
    pub placement: Placement,
    /// The number of controllers.
    pub controllers: usize,
    /// The number of routers.
    pub readers: usize,
    /// The number of stores that operators use.
    pub stores: usize,
    /// The duration of operations and faults, in milliseconds.
    pub busy_ms: u64,
    /// The interval of faults, in milliseconds; 0 for never.
    pub fault_every_ms: u64,
    /// The interval of operator requests, in milliseconds; 0 for never.
    pub operate_every_ms: u64,
    /// The time that the cluster may need to recover after the last fault, in milliseconds.
    pub settle_ms: u64,
    /// Whether a mirror reads everything new at once, and not entry by entry. For clusters so large that a separate
    /// copy for each process would not fit into memory.
    pub snapshots: bool,
    /// The patience of controllers.
    pub patience: Patience,
    /// Steps at fixed times, in milliseconds since the beginning, in addition to random operator requests.
    pub script: Vec<(u64, Step)>,
    /// The rule that is broken on purpose.
    pub flaw: Option<Flaw>,
}

/// A step at a fixed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The first store is created.
    Create,
    /// A version is pushed to it.
    Push,
    /// The leading controller ends, and does not come back.
    EndLeader,
    /// A node ends, and does not come back.
    EndNode,
    /// This many partitions begin to move, each from a node to another.
    Move(u32),
    /// Nothing, only the counts are recorded.
    Count,
}

/// A rule broken on purpose, to show that the simulation detects it. None of them is in the real code: they falsify its
/// inputs or its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The leader assumes that every node is ready.
    SwapsBeforeReady,
    /// Nodes answer with their current version, whatever version is requested.
    DoesNotPin,
    /// Nodes serve assigned partitions that they do not hold.
    ServesWhatIsNotHeld,
    /// The leader waits forever.
    NeverGivesUp,
    /// Late nodes stay late.
    LateForEver,
    /// A plan for the routing table is finished as soon as it has begun.
    FinishesPlansAtOnce,
    /// A failed fetch is not retried.
    NeverRetries,
    /// The coordination service applies writes based on old revisions.
    WritesUnconditionally,
    /// Versions are deleted while they are served.
    DropsWhatIsServed,
    /// The leader believes reports about former stores and routing tables.
    BelievesOldReports,
    /// Nodes answer for any store with the same name, not only for the requested one.
    TakesNamesForStores,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Self; 11] = [
        Self::SwapsBeforeReady,
        Self::DoesNotPin,
        Self::ServesWhatIsNotHeld,
        Self::NeverGivesUp,
        Self::LateForEver,
        Self::FinishesPlansAtOnce,
        Self::NeverRetries,
        Self::WritesUnconditionally,
        Self::DropsWhatIsServed,
        Self::BelievesOldReports,
        Self::TakesNamesForStores,
    ];
}

impl Scenario {
    /// A small cluster with many faults, all derived from the seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let nodes = rng.usize(1..=6);
        let placements = [Placement::Ring, Placement::Ring, Placement::Zoned, Placement::All];
        Self {
            seed,
            nodes,
            nodes_later: rng.usize(0..=2),
            partitions: 1 << rng.u32(0..=5),
            replicas: rng.u32(1..=3),
            placement: placements[rng.usize(..placements.len())],
            controllers: rng.usize(1..=3),
            readers: rng.usize(1..=2),
            stores: rng.usize(1..=3),
            busy_ms: rng.u64(20_000..=60_000),
            fault_every_ms: rng.u64(1_000..=8_000),
            operate_every_ms: rng.u64(500..=3_000),
            settle_ms: 300_000,
            snapshots: false,
            patience: Patience {
                absent_after_ms: 10_000,
                stall_after_ms: 20_000,
            },
            script: Vec::new(),
            flaw: None,
        }
    }

    /// The same scenario with a flaw.
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }
}
