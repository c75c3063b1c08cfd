//! The parameters of a simulation: its size, its settings, its duration, and its faults.

use fastrand::Rng;
use fondaco_model::Placement;
use fondaco_model::versioned::{Durability, EngineKind, Handoff, Resolution, VersionedSettings};

use super::history::Promise;

/// How long deletions are remembered, in milliseconds: longer than messages can be late.
const GRACE_MS: u64 = 15_000;

/// The usual maximum number of process ends in a run: the vector clocks of records have room for this many
/// incarnations, and keys with more of them are not covered by the rules here. Counters have room for more.
const DEATHS_MAX: u32 = 20;

/// A cluster with one versioned store, and its events. The same scenario always gives the same run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The seed of all randomness.
    pub seed: u64,
    /// The number of nodes: each one has replicas and a coordinator.
    pub nodes: usize,
    /// The number of coordinators without replicas.
    pub clients: usize,
    /// The number of zones of the nodes.
    pub zones: usize,
    /// How partitions are assigned to nodes. With groups, there are as many groups as replicas.
    pub placement: Placement,
    /// The number of partitions; a power of two.
    pub partitions: u32,
    /// The number of nodes that hold each partition.
    pub replicas: u32,
    /// The settings of the store.
    pub settings: VersionedSettings,
    /// The number of keys.
    pub keys: usize,
    /// Whether whole machines lose power, and not only processes end.
    pub loses_power: bool,
    /// Whether nodes lose their disks, or have them replaced by older copies.
    pub loses_disk: bool,
    /// The duration of operations and faults, in milliseconds.
    pub busy_ms: u64,
    /// The interval of faults, in milliseconds.
    pub fault_every_ms: u64,
    /// The maximum number of process ends.
    pub deaths_max: u32,
    /// The interval at which an operator begins to move partitions, in milliseconds; `None` if partitions do not move.
    pub plan_every_ms: Option<u64>,
    /// The interval of client operations, in milliseconds.
    pub operate_every_ms: u64,
    /// The minimum time to watch after the last fault, in milliseconds: deletions are forgotten meanwhile.
    pub watched_ms: u64,
    /// The maximum time until replicas become equal after the last fault, in milliseconds.
    pub settle_ms: u64,
    /// The rule that is broken on purpose.
    pub flaw: Option<Flaw>,
}

/// A rule broken on purpose, to show that the simulation detects it. None of them is in the real code: they falsify its
/// inputs, its outputs, or its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Coordinators consider a write successful with W - 1 replicas.
    CountsOneWriteTooFew,
    /// Coordinators consider a read successful with R - 1 replies.
    CountsOneReadTooFew,
    /// A replica that receives a record keeps its own if that has the newer write, instead of merging the two.
    MergesByTime,
    /// Deletions are forgotten as soon as all replicas have been compared: the grace period is zero.
    CollectsEarly,
    /// Replicas return empty contexts.
    TellsNoContext,
    /// Replicas that have lost their disk answer reads before they have recovered everything.
    AnswersForWhatItLost,
    /// Replicas that have lost their disk also count comparisons with replicas that have lost data themselves.
    CountsWhoIsBehind,
    /// Replicas that lose their disk while they are the next owner of a partition answer reads after they become its
    /// owner.
    OwnsWhatItLost,
    /// Replicas that receive the digest of another replica always reply that they have the same record.
    AlwaysHasTheSame,
    /// Replicas ignore the context that a client has read.
    IgnoresClientContext,
    /// A restarted node keeps its incarnation, although it was not stopped cleanly or has lost its disk.
    KeepsIncarnation,
    /// Replicas of stores that sync acknowledge writes before the sync.
    AcknowledgesUnsynced,
    /// A late increment is applied twice.
    AddsTwice,
    /// Replicas are never compared.
    NeverCompares,
    /// Replicas apply plain writes over everything that they hold, even if the writes are late.
    WritesOverAll,
    /// Hints are dropped when their target is back.
    DropsHints,
    /// Replicas serve requests with any routing table.
    TakesAnyTable,
    /// Plans are finished although former owners do not know the switch yet.
    FinishesAtOnce,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Self; 18] = [
        Self::CountsOneWriteTooFew,
        Self::CountsOneReadTooFew,
        Self::MergesByTime,
        Self::CollectsEarly,
        Self::TellsNoContext,
        Self::AlwaysHasTheSame,
        Self::AnswersForWhatItLost,
        Self::CountsWhoIsBehind,
        Self::OwnsWhatItLost,
        Self::IgnoresClientContext,
        Self::KeepsIncarnation,
        Self::AcknowledgesUnsynced,
        Self::AddsTwice,
        Self::NeverCompares,
        Self::WritesOverAll,
        Self::DropsHints,
        Self::TakesAnyTable,
        Self::FinishesAtOnce,
    ];
}

impl Scenario {
    /// A small cluster with many faults, all derived from the seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // One of two replicas loses its disk while the other one is away: only a hint is left.
        let relies_on_hints = rng.u8(..8) == 0;
        let replicas = match relies_on_hints {
            true => 2,
            false => [1, 2, 3, 3, 3, 3, 4][rng.usize(..7)],
        };
        let nodes = replicas as usize + rng.usize(usize::from(relies_on_hints)..=2);
        let mut settings = settings(replicas, nodes, &mut rng);
        if relies_on_hints {
            (settings.writes, settings.preferred_writes) = (2, 2);
            settings.handoff = [Handoff::Consistent, Handoff::Any, Handoff::Proximity][rng.usize(..3)];
            settings.sloppy = true;
        }
        let loses_power = settings.durability == Durability::Fsync || rng.u8(..5) == 0;
        let mut scenario = Self {
            seed,
            nodes,
            clients: rng.usize(0..=2),
            zones: rng.usize(1..=2),
            placement: Placement::Ring,
            partitions: 1 << rng.u32(0..=2),
            replicas,
            settings,
            keys: [rng.usize(1..=6), rng.usize(8..=40)][rng.usize(..2)],
            loses_power,
            loses_disk: relies_on_hints || (settings.writes > 1 && rng.u8(..4) == 0),
            busy_ms: rng.u64(20_000..=90_000),
            fault_every_ms: rng.u64(1_000..=8_000),
            deaths_max: DEATHS_MAX,
            plan_every_ms: None,
            operate_every_ms: rng.u64(50..=600),
            watched_ms: [1_000, 2 * GRACE_MS][rng.usize(..2)],
            settle_ms: 600_000,
            flaw: None,
        };
        if !relies_on_hints && rng.u8(..3) == 0 {
            scenario.let_partitions_move(&mut rng);
        }
        if scenario.loses_disk && !relies_on_hints && rng.u8(..3) == 0 {
            // Each replica answers alone: a missing write is noticed immediately, until it is written again.
            let settings = &mut scenario.settings;
            (settings.reads, settings.writes, settings.sloppy) = (1, replicas, false);
            (settings.preferred_reads, settings.preferred_writes) = (1, replicas);
            scenario.keys = rng.usize(8..=40);
        }
        scenario.placement = [Placement::Ring, Placement::Zoned, Placement::Grouped][rng.usize(..3)];
        scenario
    }

    /// A counter on a small cluster whose nodes restart many times: with many more incarnations than a record has
    /// concurrent values.
    pub fn counter_from_seed(seed: u64) -> Self {
        let mut scenario = Self::from_seed(seed);
        scenario.settings.resolution = Resolution::Counter;
        scenario.plan_every_ms = None;
        scenario.keys = 1;
        scenario.busy_ms = 600_000;
        scenario.fault_every_ms = 200;
        scenario.deaths_max = 500;
        scenario
    }

    /// Makes partitions move, to some nodes that do not have them at first.
    fn let_partitions_move(&mut self, rng: &mut Rng) {
        self.plan_every_ms = Some(rng.u64(1_000..=6_000));
        self.nodes = self.replicas as usize + rng.usize(1..=3);
        // Old tables are used only for moments, so these need many operations.
        self.keys = rng.usize(1..=3);
        self.operate_every_ms = rng.u64(20..=150);
        // A node that was away and owns nothing when it is back may have deletions that others have forgotten.
        self.settings.tombstone_grace_ms = 1_000 * GRACE_MS;
    }

    /// The same scenario with a flaw.
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Whether a flaw can have a detectable effect here: a cheap check before a run.
    pub fn may_show(&self, flaw: Flaw) -> bool {
        let moves = self.plan_every_ms.is_some();
        let promises = self.promise().reads_see_writes;
        match flaw {
            Flaw::AnswersForWhatItLost | Flaw::CountsWhoIsBehind => self.loses_disk && promises,
            Flaw::OwnsWhatItLost => self.loses_disk && moves && promises,
            Flaw::TakesAnyTable | Flaw::FinishesAtOnce => moves && promises,
            Flaw::KeepsIncarnation => self.loses_disk || self.loses_power,
            Flaw::AcknowledgesUnsynced => self.settings.durability == Durability::Fsync,
            Flaw::AddsTwice => self.counts(),
            Flaw::CollectsEarly => self.loses_disk && self.remembers_deletions_for_long(),
            Flaw::DropsHints => self.settings.handoff != Handoff::None,
            _ => true,
        }
    }

    /// The guarantees of the store, given its faults.
    pub fn promise(&self) -> Promise {
        let settings = &self.settings;
        let overlaps = settings.reads + settings.writes > self.replicas && !settings.sloppy;
        Promise {
            reads_see_writes: overlaps,
            writes_stay: settings.durability == Durability::Fsync || !self.loses_power,
        }
    }

    /// Whether deletions are remembered for longer than the age of any disk copy: otherwise an older copy would bring
    /// back values whose deletion was forgotten.
    pub(super) fn remembers_deletions_for_long(&self) -> bool {
        self.settings.tombstone_grace_ms > self.busy_ms + self.settle_ms
    }

    /// Whether the store has only counters.
    pub(super) fn counts(&self) -> bool {
        self.settings.resolution == Resolution::Counter
    }

    /// The settings that coordinators receive.
    pub(super) fn told(&self) -> VersionedSettings {
        let mut told = self.settings;
        match self.flaw {
            Some(Flaw::CountsOneWriteTooFew) if told.writes > 1 => {
                told.writes -= 1;
                told.preferred_writes = told.writes;
            }
            Some(Flaw::CountsOneReadTooFew) if told.reads > 1 => {
                told.reads -= 1;
                told.preferred_reads = told.reads;
            }
            _ => {}
        }
        told
    }
}

fn settings(replicas: u32, nodes: usize, rng: &mut Rng) -> VersionedSettings {
    let mut settings = VersionedSettings::of(replicas);
    if rng.u8(..3) == 0 {
        (settings.reads, settings.writes) = (rng.u32(1..=replicas), rng.u32(1..=replicas));
    }
    settings.preferred_reads = rng.u32(settings.reads..=replicas);
    settings.preferred_writes = rng.u32(settings.writes..=replicas);
    settings.handoff = Handoff::ALL[rng.usize(..Handoff::ALL.len())];
    settings.sloppy = settings.handoff != Handoff::None && nodes > 1 && rng.u8(..4) == 0;
    settings.durability = [Durability::Log, Durability::Fsync][rng.usize(..2)];
    settings.resolution = [
        Resolution::All,
        Resolution::Latest,
        Resolution::Latest,
        Resolution::Counter,
    ][rng.usize(..4)];
    settings.tombstone_grace_ms = GRACE_MS;
    settings.engine = EngineKind::Disk;
    settings
}
