//! The parameters of a run, derived from its seed, and rules that can be broken on purpose.

use fastrand::Rng;

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// All randomness comes from it.
    pub seed: u64,
    /// How many nodes there are.
    pub nodes: usize,
    /// How many partitions versions have.
    pub partitions: u32,
    /// How many partitions the topic has at first.
    pub topic_partitions: u32,
    /// Whether the topic is partitioned as the store is: then nodes read only some of its partitions.
    pub is_partitioned: bool,
    /// How many keys have events.
    pub keys: usize,
    /// How late events may be, in milliseconds.
    pub grace_ms: u64,
    /// How old the newest event that was read may be when a version begins to answer, in milliseconds.
    pub lag_ms_max: u64,
    /// How long events and records of versions live, in milliseconds, if they expire.
    pub ttl_ms: Option<u64>,
    /// The percentage of updates among events. The others are values and deletions.
    pub updates: u8,
    /// The losses of records that the topic may have.
    pub source: Source,
    /// Whether nodes lose power, and the last writes.
    pub loses_power: bool,
    /// Rounds of faults. Each ends when all faults are repaired.
    pub rounds: usize,
    /// Steps of the world in each.
    pub steps: usize,
    /// A rule that is broken.
    pub flaw: Option<Flaw>,
}

/// The losses of records that the topic may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// They stay.
    Keeps,
    /// The first ones are deleted.
    Forgets,
    /// The last ones are lost, or the topic is made again.
    BeginsAgain,
}

/// A rule that is broken on purpose, outside of overlays: in what they read, or on their disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The offsets of a node that is killed are older than the effects of its events.
    OffsetsApart,
    /// Node 0 gets the events with the times at which they are read.
    OrdersByArrival,
    /// Node 0 assumes that a day has passed in each partition: it replaces updates by their result at once.
    FoldsEarly,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Self; 3] = [Self::OffsetsApart, Self::OrdersByArrival, Self::FoldsEarly];
}

impl Scenario {
    /// A few nodes with many faults, all derived from the seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut scenario = Self {
            seed,
            nodes: rng.usize(1..=3),
            partitions: 1 << rng.u32(0..=3),
            topic_partitions: rng.u32(1..=3),
            is_partitioned: false,
            keys: [rng.usize(1..=4), rng.usize(5..=24)][rng.usize(..2)],
            grace_ms: [2_000, 20_000, 120_000][rng.usize(..3)],
            lag_ms_max: [0, 500, 10_000][rng.usize(..3)],
            // Drawn by itself: the other choices of a seed do not depend on it.
            ttl_ms: [None, Some(2_000), Some(30_000), Some(300_000)][Rng::with_seed(seed ^ 0x771).usize(..4)],
            updates: [0, 60, 90, 100][rng.usize(..4)],
            source: match rng.u8(..8) {
                0 => Source::Forgets,
                1 => Source::BeginsAgain,
                _ => Source::Keeps,
            },
            loses_power: rng.u8(..3) == 0,
            rounds: rng.usize(2..=3),
            steps: rng.usize(60..=160),
            flaw: None,
        };
        if scenario.source == Source::Keeps && rng.u8(..4) == 0 {
            scenario.is_partitioned = true;
            scenario.topic_partitions = 1 << rng.u32(0..=2);
        }
        scenario
    }

    /// The same scenario with a flaw.
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// How far the clocks of the topic's partitions are off at most, in milliseconds. They may differ, and go back, by
    /// less than what overlays wait for beside the grace, and for how long the end of a partition may be an old one.
    pub(super) fn skew_ms_max(&self) -> i64 {
        (self.grace_ms.clamp(10_000, 3_600_000) as i64 - super::topic::END_KNOWN_MS as i64) / 2 - 1
    }

    /// How long before a push its version reads the stream: no record that comes later has an earlier time.
    pub(super) fn rewind_ms(&self, rng: &mut Rng) -> u64 {
        2 * self.skew_ms_max() as u64 + rng.u64(1..200_000)
    }
}
