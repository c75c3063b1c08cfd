//! The world of one hybrid store: its topic, its versions, its nodes, and time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fastrand::Rng;
use fondaco_model::{PartitionId, PartitionSet, VersionNumber};
use fondaco_stream::Applied;
use parking_lot::Mutex;

use super::events;
use super::node::{Node, Shared, Version};
use super::scenario::{Flaw, Scenario, Source};
use super::topic::Topic;
use crate::kernel::{Notes, Violation};

/// When the world begins, in milliseconds since 1970.
const BEGINS_UNIX_MS: u64 = 1_700_000_000_000;
/// How many steps a node takes at once, at most, when all is well.
const STEPS_MAX: usize = 10_000;
/// How often nodes are looked at until all have read everything.
const LOOKS_MAX: usize = 600;
/// How often at least: an error is forgotten after a second.
const LOOKS_MIN: usize = 40;
/// How much time passes in between, in milliseconds: longer than a partition without records is left alone.
const LOOK_MS: u64 = 60;
/// Between what the keys of offsets are in the table of an overlay's progress.
const OFFSET_KEYS: [&[u8]; 2] = [&[1], &[2]];

/// Runs a scenario to its end.
///
/// # Errors
/// A node answers something else than the model, or does not read all events.
pub fn simulate(scenario: &Scenario) -> Result<Outcome, Violation> {
    World::new(scenario, false).run()
}

/// Runs a scenario to its end with notes: slower, but otherwise identical.
///
/// # Errors
/// Like [`simulate`].
pub fn simulate_traced(scenario: &Scenario) -> Result<Outcome, Violation> {
    World::new(scenario, true).run()
}

/// The statistics of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Records of the topic.
    pub records: u64,
    /// Events that were applied, added up over nodes and versions that could be compared.
    pub applied: u64,
    /// Of these, events that a version contains.
    pub cut: u64,
    /// Events that came too late.
    pub late: u64,
    /// Updates that came again.
    pub repeated: u64,
    /// Updates that count, on all nodes at the ends of rounds.
    pub updates: u64,
    /// Of these, the number that were kept: the others were replaced by their result.
    pub updates_kept: u64,
    /// Answers that were compared with the model.
    pub compared: u64,
    /// Of these, answers of nodes that say that they have lost no records, although some were deleted.
    pub compared_after_losses: u64,
    /// Of these, answers without a value, which had one that has expired.
    pub expired: u64,
    /// Keys whose expired events were deleted.
    pub deleted: u64,
    /// Answers that were looked at while things failed.
    pub peeked: u64,
    /// Processes that were killed.
    pub kills: u64,
    /// Losses of power.
    pub power_losses: u64,
    /// Writes that failed with an error that does not say whether they took effect.
    pub failures: u64,
    /// Changes of the partitions of nodes.
    pub moves: u64,
    /// Versions that were pushed.
    pub pushes: u64,
    /// How often records were deleted or lost.
    pub losses: u64,
    /// How much time has passed, in simulated milliseconds.
    pub took_ms: u64,
    /// A hash of all answers: another run of the scenario has the same one.
    pub trace: u64,
}

/// The counts of the processes of a node for a version.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    pub(super) by_killed: Applied,
    /// Whether it cannot be compared: events were read again, or for some partitions only.
    pub(super) is_vague: bool,
}

pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) shared: Arc<Shared>,
    pub(super) nodes: Vec<Arc<Node>>,
    /// Those that are kept.
    pub(super) versions: Vec<Version>,
    pub(super) keys: Vec<Bytes>,
    pub(super) rng: Rng,
    pub(super) now_ms: u64,
    pub(super) last_event: u64,
    pub(super) last_version: u64,
    pub(super) counted: BTreeMap<(usize, VersionNumber), Counted>,
    /// The times of values that were logged with one time.
    pub(super) times_ms: BTreeMap<Bytes, u64>,
    /// All values that were logged.
    pub(super) values: BTreeSet<Bytes>,
    /// The latest event that each node has answered for a key.
    pub(super) seen: BTreeMap<(usize, VersionNumber, Bytes), u64>,
    /// The partitions of versions that each node has answered for.
    pub(super) answered: BTreeMap<(usize, VersionNumber), PartitionSet>,
    /// Nodes whose partitions, or last writes, were lost in this round.
    pub(super) restless: BTreeSet<usize>,
    /// Nodes whose number of keys is not known.
    pub(super) unsure: BTreeSet<usize>,
    pub(super) outcome: Outcome,
    notes: Notes,
}

impl World {
    fn new(scenario: &Scenario, is_traced: bool) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let store = "s".parse().unwrap_or_else(|error| unreachable!("{error}"));
        let partitions = scenario.partitions.try_into();
        let shared = Arc::new(Shared {
            seed: scenario.seed,
            store,
            partitions: partitions.unwrap_or_else(|error| unreachable!("{error}")),
            partitioned: scenario
                .is_partitioned
                .then(|| scenario.topic_partitions.try_into())
                .transpose()
                .unwrap_or_else(|error| unreachable!("{error}")),
            grace_ms: scenario.grace_ms,
            lag_ms_max: scenario.lag_ms_max,
            ttl_ms: scenario.ttl_ms,
            flaw: scenario.flaw,
            is_traced,
            began: Instant::now(),
            nodes: Mutex::default(),
            begun_late: Mutex::default(),
            topic: Mutex::new(Topic::new(scenario.topic_partitions, Rng::with_seed(rng.u64(..)))),
        });
        let nodes = (0..scenario.nodes).map(|number| Node::new(&shared, number, Rng::with_seed(rng.u64(..))));
        let nodes: Vec<_> = nodes.collect();
        *shared.nodes.lock() = nodes.iter().map(Arc::downgrade).collect();
        let mut world = Self {
            scenario: scenario.clone(),
            shared,
            nodes,
            versions: Vec::new(),
            keys: events::keys(scenario),
            rng,
            now_ms: 0,
            last_event: 0,
            last_version: 0,
            counted: BTreeMap::new(),
            times_ms: BTreeMap::new(),
            values: BTreeSet::new(),
            seen: BTreeMap::new(),
            answered: BTreeMap::new(),
            restless: BTreeSet::new(),
            unsure: BTreeSet::new(),
            outcome: Outcome::default(),
            notes: Notes::new(is_traced),
        };
        world.pass(BEGINS_UNIX_MS);
        world.place();
        world.push();
        world
    }

    fn run(mut self) -> Result<Outcome, Violation> {
        if let Err(what) = self.run_rounds() {
            self.notes.broke(what);
        }
        let took_ms = self.now_ms - BEGINS_UNIX_MS;
        match self.notes.violation(self.scenario.seed, took_ms) {
            Some(violation) => Err(violation),
            None => Ok(Outcome {
                took_ms,
                ..self.outcome
            }),
        }
    }

    fn run_rounds(&mut self) -> Result<(), String> {
        for _ in 0..self.scenario.rounds {
            self.nodes.iter().for_each(|node| node.set_busy(true));
            for _ in 0..self.scenario.steps {
                self.let_time_pass();
                self.act();
                self.step_some();
                self.peek()?;
            }
            self.calm();
            self.settle()?;
            if self.versions.iter().any(|version| version.has_lost) {
                // A version that begins after the loss has all that is left.
                self.push();
                self.settle()?;
            }
        }
        Ok(())
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        let at_ms = self.now_ms - BEGINS_UNIX_MS;
        for note in self.nodes.iter().flat_map(|node| node.take_notes()) {
            self.notes.add(at_ms, || note);
        }
        self.notes.add(at_ms, what);
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.shared.topic.lock().now_ms = self.now_ms;
    }

    fn let_time_pass(&mut self) {
        let ms = match self.rng.u8(..20) {
            0..10 => self.rng.u64(..20),
            10..16 => self.rng.u64(..400),
            16..19 => self.rng.u64(..4_000),
            _ => self.rng.u64(..self.scenario.grace_ms),
        };
        self.pass(ms);
    }

    fn step_some(&mut self) {
        for number in 0..self.nodes.len() {
            let node = Arc::clone(&self.nodes[number]);
            if self.rng.u8(..3) > 0 {
                node.look(&self.versions);
            }
            for _ in 0..self.rng.usize(..8) {
                if node.is_dying() {
                    self.kill(number);
                }
                if !node.step() {
                    break;
                }
            }
            if node.is_dying() {
                self.kill(number);
            }
        }
    }

    /// Kills the process of a node, which has counted some events.
    pub(super) fn kill(&mut self, number: usize) {
        self.outcome.kills += 1;
        self.note(|| format!("node {number} is killed"));
        let disk = &self.nodes[number].disk;
        for (version, feed) in self.nodes[number].kill() {
            let counted = self.counted.entry((number, version)).or_default();
            add(&mut counted.by_killed, &feed.overlay().applied());
            if self.scenario.flaw == Some(Flaw::OffsetsApart) {
                let [_, progress, _] = feed.overlay().options().tables();
                disk.lose_power_for(&progress, OFFSET_KEYS)
                    .unwrap_or_else(|error| unreachable!("{error}"));
            }
        }
        self.unsure.remove(&number);
    }

    /// Gives each partition some nodes.
    pub(super) fn place(&mut self) {
        let mut held = vec![PartitionSet::EMPTY; self.nodes.len()];
        for partition in 0..self.scenario.partitions {
            let first = self.rng.usize(..held.len());
            for (number, held) in held.iter_mut().enumerate() {
                if number == first || self.rng.u8(..3) > 0 {
                    held.insert(PartitionId::new(partition));
                }
            }
        }
        for (number, held) in held.into_iter().enumerate() {
            self.hold(number, held);
        }
    }

    /// Assigns other partitions to a node.
    pub(super) fn hold(&mut self, number: usize, held: PartitionSet) {
        if self.nodes[number].held() == held {
            return;
        }
        self.note(|| format!("node {number} is to hold {:?}", held.iter().collect::<Vec<_>>()));
        self.nodes[number].set_held(held);
        self.restless.insert(number);
        for version in &self.versions {
            self.counted.entry((number, version.number)).or_default().is_vague = true;
        }
    }

    /// Pushes a version.
    pub(super) fn push(&mut self) {
        self.outcome.pushes += 1;
        self.last_version += 1;
        let number = VersionNumber::new(self.last_version).unwrap_or_else(|| unreachable!("it begins at 1"));
        let rewind_ms = self.scenario.rewind_ms(&mut self.rng);
        let as_of_ms = self.rng.bool().then(|| self.now_ms - self.rng.u64(..60_000));
        let version = Version {
            number,
            as_of_ms,
            data_ms: as_of_ms.unwrap_or(self.now_ms),
            start_ms: as_of_ms.unwrap_or(self.now_ms) - rewind_ms,
            losses: self.shared.topic.lock().losses,
            has_lost: false,
        };
        self.note(|| format!("push {version:?}"));
        for &node in &self.unsure {
            // Its next write may fail.
            self.counted.entry((node, number)).or_default().is_vague = true;
        }
        self.versions.push(version);
    }

    /// Ends all faults.
    fn calm(&mut self) {
        self.note(|| "all is well".to_owned());
        {
            let mut topic = self.shared.topic.lock();
            (topic.is_away, topic.is_there) = (false, true);
            (0..topic.partitions()).for_each(|partition| topic.set_away(partition, false));
        }
        for number in 0..self.nodes.len() {
            let node = Arc::clone(&self.nodes[number]);
            let mut topic = self.shared.topic.lock();
            for (partition, event) in node.take_expected() {
                let partition = partition % topic.partitions();
                topic.append(partition, event);
            }
            drop(topic);
            if node.is_dying() {
                self.kill(number);
            }
            node.set_busy(false);
            node.set_paused(false);
            node.set_version_open(true);
            node.disk.set_full(false);
            node.disk.fail_writes(None);
            node.start();
        }
    }

    /// Lets all nodes read all records, and compares them with the model.
    fn settle(&mut self) -> Result<(), String> {
        self.shared.topic.lock().is_plain = true;
        let mut unsettled = None;
        for look in 0..LOOKS_MAX {
            for node in &self.nodes {
                node.look(&self.versions);
                let steps = (0..STEPS_MAX).take_while(|_| node.step()).count();
                if steps == STEPS_MAX {
                    return Err(format!("{node:?} takes steps without end"));
                }
            }
            unsettled = self.unsettled();
            if look >= LOOKS_MIN && unsettled.is_none() {
                break;
            }
            self.pass(LOOK_MS);
        }
        if let Some(what) = unsettled {
            return Err(format!("although nothing fails any more, {what}"));
        }
        self.note(|| "all has been read".to_owned());
        self.compare()?;
        self.shared.topic.lock().is_plain = false;
        self.seen.clear();
        self.answered.clear();
        self.restless.clear();
        Ok(())
    }

    /// Whether records may be lost in this run.
    pub(super) fn loses(&self) -> bool {
        self.scenario.source != Source::Keeps
    }
}

/// Adds counts. Poison is remembered by the next process.
fn add(sum: &mut Applied, new: &Applied) {
    sum.applied += new.applied;
    sum.superseded += new.superseded;
    sum.cut += new.cut;
    sum.late += new.late;
    sum.elsewhere += new.elsewhere;
    sum.repeated += new.repeated;
}
