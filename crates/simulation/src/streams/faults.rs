//! The events of a run: records, pushes, moves, and all kinds of faults.

use bytes::Bytes;
use fondaco_model::{PartitionId, PartitionSet};
use fondaco_stream::{Change, Event, Poison};

use super::events;
use super::scenario::Source;
use super::world::World;
use crate::kernel::WriteFailure;

/// The most partitions of the topic.
const TOPIC_PARTITIONS_MAX: u32 = 4;
/// The most versions that are kept.
const VERSIONS_MAX: usize = 3;
/// How far the clock of a node is off, at most, in milliseconds.
const CLOCK_OFF_MS_MAX: i64 = 2 * 60 * 60 * 1000;

impl World {
    /// One thing happens.
    pub(super) fn act(&mut self) {
        let number = self.rng.usize(..self.nodes.len());
        match self.rng.u8(..100) {
            0..38 => self.log(1, 6),
            38..41 => self.log(20, 60),
            41..47 => self.log_meanwhile(number),
            47..52 => self.kill(number),
            52..60 => self.nodes.iter().for_each(|node| node.start()),
            60..62 => self.lose_power(number),
            62..67 => self.fail_writes(number),
            67..70 => {
                let is_full = self.rng.bool();
                self.nodes[number].disk.set_full(is_full);
            }
            70..73 => {
                let off_ms = self.rng.i64(-CLOCK_OFF_MS_MAX..CLOCK_OFF_MS_MAX);
                self.nodes[number].set_clock(off_ms);
            }
            73..80 => self.change_topic(),
            80..83 => self.push_or_drop(),
            83..89 => self.change_held(number),
            89..92 => {
                let is_paused = self.rng.bool();
                self.nodes.iter().for_each(|node| node.set_paused(is_paused));
            }
            92..95 => {
                let is_open = self.rng.bool();
                self.nodes[number].set_version_open(is_open);
            }
            95..97 if self.loses() => self.lose_records(),
            _ => self.set_skew(),
        }
    }

    fn log(&mut self, least: usize, most: usize) {
        for _ in 0..self.rng.usize(least..=most) {
            let (partition, event) = self.event();
            self.shared.topic.lock().append(partition, event);
        }
    }

    fn log_meanwhile(&mut self, number: usize) {
        let events = (0..self.rng.usize(1..=4)).map(|_| self.event()).collect();
        self.nodes[number].expect(events);
    }

    /// An event, mostly for the partition in which it belongs.
    fn event(&mut self) -> (u32, Result<Event, Poison>) {
        let (partition, event) = self.event_for_any();
        let right = event
            .as_ref()
            .ok()
            .and_then(|event| self.shared.topic_partition_of(&event.key));
        let right = right.filter(|_| self.rng.u8(..30) > 0);
        (right.unwrap_or(partition), event)
    }

    /// A new event, or one that was logged before.
    fn event_for_any(&mut self) -> (u32, Result<Event, Poison>) {
        self.outcome.records += 1;
        let (partition, again) = {
            let mut topic = self.shared.topic.lock();
            let partition = self.rng.u32(..topic.partitions());
            let again = (self.rng.u8(..5) == 0).then(|| topic.any()).flatten();
            (partition, again)
        };
        if let Some(again) = again {
            return (partition, again.event);
        }
        self.last_event += 1;
        let logged_ms = self.shared.topic.lock().logged_ms(partition);
        let event = events::event(&mut self.rng, &self.scenario, &self.keys, logged_ms, self.last_event);
        if let Ok(event) = &event {
            self.remember(event);
        }
        (partition, event)
    }

    fn remember(&mut self, event: &Event) {
        if let (Change::Put(value), true) = (&event.change, event.key.starts_with(events::WHOLE)) {
            let value: Bytes = value.clone();
            if let Some(time_ms) = event.time_ms {
                self.times_ms.insert(value.clone(), time_ms);
            }
            self.values.insert(value);
        }
    }

    fn lose_power(&mut self, number: usize) {
        if !self.scenario.loses_power {
            return;
        }
        self.kill(number);
        self.outcome.power_losses += 1;
        let first = self.rng.usize(..=self.nodes[number].disk.unsynced());
        self.note(|| format!("node {number} loses power, and all but {first} of the last writes"));
        self.nodes[number].disk.lose_power(first);
        self.restless.insert(number);
        self.blur(number);
    }

    /// The counts of a node cannot be compared any more.
    fn blur(&mut self, number: usize) {
        for version in &self.versions {
            self.counted.entry((number, version.number)).or_default().is_vague = true;
        }
    }

    fn fail_writes(&mut self, number: usize) {
        let failure = WriteFailure::After {
            writes: self.rng.u32(..4),
            has_effect: self.rng.bool(),
        };
        self.outcome.failures += 1;
        self.note(|| format!("a write of node {number} will fail: {failure:?}"));
        self.nodes[number].disk.fail_writes(Some(failure));
        self.unsure.insert(number);
        self.blur(number);
    }

    fn change_topic(&mut self) {
        let (choice, is_away) = (self.rng.u8(..6), self.rng.bool());
        let mut topic = self.shared.topic.lock();
        let partition = self.rng.u32(..topic.partitions());
        match choice {
            0 => topic.is_away = is_away,
            1..5 => topic.set_away(partition, is_away),
            _ if topic.partitions() < TOPIC_PARTITIONS_MAX && !self.scenario.is_partitioned => topic.grow(),
            _ => topic.is_there = is_away,
        }
        drop(topic);
        self.note(|| format!("the topic changes: {choice}, partition {partition} {is_away}"));
    }

    fn push_or_drop(&mut self) {
        match self.versions.len() {
            1 => self.push(),
            VERSIONS_MAX.. => self.drop_version(),
            _ if self.rng.bool() => self.push(),
            _ => self.drop_version(),
        }
    }

    fn drop_version(&mut self) {
        // After a rollback, it is the newest one that is dropped.
        let at = self.rng.usize(..self.versions.len());
        let version = self.versions.remove(at);
        self.note(|| format!("drop version {}", version.number));
    }

    fn change_held(&mut self, number: usize) {
        self.outcome.moves += 1;
        if self.rng.u8(..4) == 0 {
            return self.place();
        }
        let mut held: PartitionSet = self.nodes[number].held();
        let partition = PartitionId::new(self.rng.u32(..self.scenario.partitions));
        match held.contains(partition) {
            true => held = held.without(&std::iter::once(partition).collect()),
            false => held.insert(partition),
        }
        self.hold(number, held);
    }

    fn set_skew(&mut self) {
        let most = self.scenario.skew_ms_max();
        let skew_ms = self.rng.i64(-most..=most);
        let mut topic = self.shared.topic.lock();
        let partition = self.rng.u32(..topic.partitions());
        topic.set_skew(partition, skew_ms);
    }

    fn lose_records(&mut self) {
        self.outcome.losses += 1;
        let (choice, records) = (self.rng.u8(..4), self.rng.usize(1..20));
        let mut topic = self.shared.topic.lock();
        let partition = self.rng.u32(..topic.partitions());
        match (self.scenario.source, choice) {
            (Source::Forgets | Source::Keeps, _) => topic.forget(partition, records),
            (Source::BeginsAgain, 0) => topic.begin_again(self.rng.u32(1..=TOPIC_PARTITIONS_MAX)),
            (Source::BeginsAgain, _) => topic.lose_end(partition, records),
        }
        drop(topic);
        self.note(|| format!("the topic loses records: {choice}, {records} of partition {partition}"));
        self.versions.iter_mut().for_each(|version| version.has_lost = true);
    }
}
