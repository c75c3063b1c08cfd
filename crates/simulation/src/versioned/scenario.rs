//! What is simulated: how large, with which settings, for how long, and what is wrong with it.

use fastrand::Rng;
use fondaco_model::Placement;
use fondaco_model::versioned::{Durability, EngineKind, Handoff, Resolution, VersionedSettings};

use super::history::Promise;

/// How long deletions are remembered, in milliseconds: longer than messages are late.
const GRACE_MS: u64 = 15_000;

/// The most ends of processes in a run, mostly: clocks of records have room for so many incarnations, and keys that
/// had more of them are none of the rules here. Counters have room for more.
const DEATHS_MAX: u32 = 20;

/// A cluster with one versioned store, and what happens to it. The same scenario always runs the same.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Where everything random comes from.
    pub seed: u64,
    /// How many nodes there are: each has replicas and a coordinator.
    pub nodes: usize,
    /// How many coordinators there are that have no replicas.
    pub clients: usize,
    /// How many zones the nodes stand in.
    pub zones: usize,
    /// How partitions get their nodes. Grouped, there are as many groups as replicas.
    pub placement: Placement,
    /// How many partitions there are; a power of two.
    pub partitions: u32,
    /// How many nodes hold each.
    pub replicas: u32,
    /// What is said of the store.
    pub settings: VersionedSettings,
    /// How many keys there are.
    pub keys: usize,
    /// Whether nodes lose power, and not only their processes.
    pub loses_power: bool,
    /// Whether nodes lose all that is on their disks, or have it replaced by an older copy.
    pub loses_disk: bool,
    /// How long clients work and faults happen, in milliseconds.
    pub busy_ms: u64,
    /// How often something breaks, in milliseconds.
    pub fault_every_ms: u64,
    /// How often processes end at most.
    pub deaths_max: u32,
    /// How often an operator begins to move partitions, in milliseconds; none if they stay where they are.
    pub plan_every_ms: Option<u64>,
    /// How often a client does something, in milliseconds.
    pub operate_every_ms: u64,
    /// How long it is watched at least what happens after the last fault, in milliseconds: deletions are forgotten.
    pub watched_ms: u64,
    /// How long replicas may take to become equal after the last fault, in milliseconds.
    pub settle_ms: u64,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
}

/// A rule broken on purpose, to show that the simulation notices. None of them is in the real code: they falsify
/// what it is told, or what becomes of what it says, or what is on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Coordinators take a write for done when one replica fewer has it than W.
    CountsOneWriteTooFew,
    /// Coordinators take a read for done when one replica fewer has answered than R.
    CountsOneReadTooFew,
    /// Of two records, a replica that is sent one keeps its own where that has the newer write, and does not join them.
    MergesByTime,
    /// Deletions are forgotten as soon as all have been compared: replicas are told of no time for which to remember them.
    CollectsEarly,
    /// Replicas say that they have seen nothing when they are asked for contexts.
    TellsNoContext,
    /// Replicas that have lost their disk answer reads before they have everything again.
    AnswersForWhatItLost,
    /// Replicas that have lost their disk count what they were compared with that has lost something, too.
    CountsWhoIsBehind,
    /// Replicas that lose their disk while they are to own a partition answer reads when they own it.
    OwnsWhatItLost,
    /// Replicas that are told what another one has say that they have the same.
    AlwaysHasTheSame,
    /// Replicas do not look at the context that a client has read.
    IgnoresClientContext,
    /// A node that comes back goes on with its incarnation, although it did not end in good order, or its disk was lost.
    KeepsIncarnation,
    /// Replicas of stores that sync acknowledge before.
    AcknowledgesUnsynced,
    /// What is added is added twice when it comes late.
    AddsTwice,
    /// Replicas are never compared.
    NeverCompares,
    /// Replicas carry plain writes out over all that they hold, however late.
    WritesOverAll,
    /// Hints are thrown away when those are there whose they are.
    DropsHints,
    /// Replicas do what they are asked by whatever routing table.
    TakesAnyTable,
    /// Plans are finished although former owners have not heard of their switch.
    FinishesAtOnce,
}

impl Flaw {
    /// All of them.
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
    /// A small cluster with much trouble, all of it derived from the seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // The disk of one of two replicas is lost while the other is away: there is a hint, and nothing else.
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
            // Each replica answers alone: what one lacks is missed at once, until it is written again.
            let settings = &mut scenario.settings;
            (settings.reads, settings.writes, settings.sloppy) = (1, replicas, false);
            (settings.preferred_reads, settings.preferred_writes) = (1, replicas);
            scenario.keys = rng.usize(8..=40);
        }
        scenario.placement = [Placement::Ring, Placement::Zoned, Placement::Grouped][rng.usize(..3)];
        scenario
    }

    /// A counter on a small cluster whose nodes end and start again many times: under many more incarnations than a record
    /// has concurrent values.
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

    /// Partitions move, to some nodes that do not have them at first.
    fn let_partitions_move(&mut self, rng: &mut Rng) {
        self.plan_every_ms = Some(rng.u64(1_000..=6_000));
        self.nodes = self.replicas as usize + rng.usize(1..=3);
        // What goes by an old table does so for moments: much is to happen in them.
        self.keys = rng.usize(1..=3);
        self.operate_every_ms = rng.u64(20..=150);
        // A node that is away, and owns nothing any more when it is back, may have what others have forgotten.
        self.settings.tombstone_grace_ms = 1_000 * GRACE_MS;
    }

    /// The same with a flaw.
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Whether a flaw can make a difference here that is noticed: a cheap look, before a run.
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
            Flaw::DropsHints => self.settings.handoff != Handoff::None,
            _ => true,
        }
    }

    /// What the store promises, given what happens to it.
    pub fn promise(&self) -> Promise {
        let settings = &self.settings;
        let overlaps = settings.reads + settings.writes > self.replicas && !settings.sloppy;
        Promise {
            reads_see_writes: overlaps,
            writes_stay: settings.durability == Durability::Fsync || !self.loses_power,
        }
    }

    /// Whether deletions are remembered for longer than a copy of a disk can be old: it would bring back what was deleted
    /// and forgotten since.
    pub(super) fn remembers_deletions_for_long(&self) -> bool {
        self.settings.tombstone_grace_ms > self.busy_ms + self.settle_ms
    }

    /// Whether the store has counters, and nothing else.
    pub(super) fn counts(&self) -> bool {
        self.settings.resolution == Resolution::Counter
    }

    /// What coordinators are told of the settings.
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
