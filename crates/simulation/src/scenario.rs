//! What is simulated: how large, for how long, and what is wrong with it.

use fastrand::Rng;
use fondaco_model::Placement;
use fondaco_model::cluster::Patience;

/// A cluster and what happens to it. The same scenario always runs the same.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Where everything random comes from.
    pub seed: u64,
    /// How many nodes there are in the beginning.
    pub nodes: usize,
    /// How many more come later, one by one.
    pub nodes_later: usize,
    /// How many partitions there are; a power of two.
    pub partitions: u32,
    /// How many nodes hold each.
    pub replicas: u32,
    /// How partitions get their nodes.
    pub placement: Placement,
    /// How many controllers run.
    pub controllers: usize,
    /// How many routers read.
    pub readers: usize,
    /// How many stores operators work with.
    pub stores: usize,
    /// How long operators work and faults happen, in milliseconds.
    pub busy_ms: u64,
    /// How often something breaks, in milliseconds; 0 for never.
    pub fault_every_ms: u64,
    /// How often an operator does something, in milliseconds; 0 for never.
    pub operate_every_ms: u64,
    /// How long the cluster may take to come right after the last fault, in milliseconds.
    pub settle_ms: u64,
    /// Whether a mirror gets all that it does not know at once, and not entry by entry. For clusters so
    /// large that a copy of everything for every process would not fit.
    pub snapshots: bool,
    /// How patient controllers are.
    pub patience: Patience,
    /// What is done when, in milliseconds since the beginning, besides what operators do by chance.
    pub script: Vec<(u64, Step)>,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
}

/// Something that is done at a set time.
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
    /// Nothing: what was done until now is counted.
    Count,
}

/// A rule broken on purpose, to show that the simulation notices. None of them is in the real code: they
/// falsify what it is told, or what becomes of what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The leader takes every node for ready.
    SwapsBeforeReady,
    /// Nodes answer with their current version, whichever is asked for.
    DoesNotPin,
    /// Nodes serve what they are to hold, whether or not it is there.
    ServesWhatIsNotHeld,
    /// The leader waits for ever.
    NeverGivesUp,
    /// Nodes that were late stay so.
    LateForEver,
    /// A plan for the routing table is finished when it has begun.
    FinishesPlansAtOnce,
    /// A fetch that failed is not tried again.
    NeverRetries,
    /// The coordination service writes what rests on old revisions.
    WritesUnconditionally,
    /// Versions are deleted, and still served.
    DropsWhatIsServed,
    /// The leader believes reports about stores and routing tables of the past.
    BelievesOldReports,
    /// Nodes answer for whichever store has the name, not for the one that is asked for.
    TakesNamesForStores,
}

impl Flaw {
    /// All of them.
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
    /// A small cluster with much trouble, all of it derived from the seed.
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

    /// The same with a flaw.
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }
}
