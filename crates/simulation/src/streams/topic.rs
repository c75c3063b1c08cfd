//! The topic: all logged records, those that are still there, and its answers.

use std::collections::VecDeque;

use fastrand::Rng;
use fondaco_stream::{Batch, Event, Logged, Poison, StreamError};

/// How old an end may be that the topic names, in milliseconds.
pub(super) const END_KNOWN_MS: u64 = 5_000;
/// Of how many records the topic says nothing of a time, at most.
const GAP_MAX: u64 = 3;

const NAME: &str = "events";

#[derive(Debug)]
pub(super) struct Topic {
    partitions: Vec<Partition>,
    pub(super) is_away: bool,
    pub(super) is_there: bool,
    /// Whether it answers with all its records.
    pub(super) is_plain: bool,
    pub(super) now_ms: u64,
    /// How often records were deleted or lost.
    pub(super) losses: u64,
    /// How often it was made again.
    pub(super) identity: u128,
    rng: Rng,
}

#[derive(Debug, Default)]
struct Partition {
    /// Those that are still there.
    records: VecDeque<Logged>,
    /// Those that were deleted, and by which loss.
    deleted: Vec<(Logged, u64)>,
    /// The first offset that there is.
    first: u64,
    /// The offset after the last record.
    end: u64,
    /// Its ends of late, and until when each was the end.
    ends: VecDeque<(u64, u64)>,
    /// How far its clock is off.
    skew_ms: i64,
    is_away: bool,
}

impl Topic {
    pub(super) fn new(partitions: u32, rng: Rng) -> Self {
        Self {
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
            is_away: false,
            is_there: true,
            is_plain: false,
            now_ms: 0,
            losses: 0,
            identity: 0,
            rng,
        }
    }

    pub(super) fn partitions(&self) -> u32 {
        self.partitions.len() as u32
    }

    /// When the next record of a partition would be logged.
    pub(super) fn logged_ms(&self, partition: u32) -> u64 {
        self.now_ms
            .saturating_add_signed(self.partitions[partition as usize].skew_ms)
    }

    pub(super) fn set_skew(&mut self, partition: u32, skew_ms: i64) {
        self.partitions[partition as usize].skew_ms = skew_ms;
    }

    /// Appends an event. Sometimes there are gaps before or after it, as markers of transactions leave them.
    pub(super) fn append(&mut self, partition: u32, event: Result<Event, Poison>) {
        let logged_ms = self.logged_ms(partition);
        let gaps: [u64; 2] = [0; 2].map(|none| match self.rng.u8(..6) {
            0 => self.rng.u64(1..=GAP_MAX),
            _ => none,
        });
        let known = &mut self.partitions[partition as usize];
        known.ends.push_back((self.now_ms, known.end));
        let record = Logged {
            offset: known.end + gaps[0],
            logged_ms,
            event,
        };
        known.end = record.offset + 1 + gaps[1];
        known.records.push_back(record);
    }

    pub(super) fn grow(&mut self) {
        self.partitions.push(Partition::default());
    }

    pub(super) fn set_away(&mut self, partition: u32, is_away: bool) {
        self.partitions[partition as usize].is_away = is_away;
    }

    /// Deletes the first records of a partition.
    pub(super) fn forget(&mut self, partition: u32, records: usize) {
        self.losses += 1;
        let known = &mut self.partitions[partition as usize];
        let deleted = known.records.drain(..records.min(known.records.len()));
        known.deleted.extend(deleted.map(|record| (record, self.losses)));
        known.first = known.records.front().map_or(known.end, |record| record.offset);
    }

    /// Loses the last records of a partition.
    pub(super) fn lose_end(&mut self, partition: u32, records: usize) {
        self.losses += 1;
        let known = &mut self.partitions[partition as usize];
        let kept = known.records.len().saturating_sub(records);
        known.records.truncate(kept);
        known.end = known.records.back().map_or(known.first, |record| record.offset + 1);
        known.ends.clear();
    }

    /// Makes the topic again, empty.
    pub(super) fn begin_again(&mut self, partitions: u32) {
        self.losses += 1;
        self.identity += 1;
        self.partitions = (0..partitions).map(|_| Partition::default()).collect();
    }

    /// A record of those that are there.
    pub(super) fn any(&mut self) -> Option<Logged> {
        let partition = self.rng.usize(..self.partitions.len());
        let records = &self.partitions[partition].records;
        (!records.is_empty()).then(|| records[self.rng.usize(..records.len())].clone())
    }

    /// The records from a time on that this number of losses had left.
    pub(super) fn records(&self, start_ms: u64, losses: u64) -> impl Iterator<Item = (u32, &Logged)> {
        (0..).zip(&self.partitions).flat_map(move |(number, partition)| {
            let deleted = partition.deleted.iter().filter(move |(_, loss)| *loss > losses);
            let all = deleted.map(|(record, _)| record).chain(&partition.records);
            let begun = all.skip_while(move |record| record.logged_ms < start_ms);
            begun.map(move |record| (number, record))
        })
    }

    fn known(&self, partition: u32) -> Result<&Partition, StreamError> {
        let there = self.partitions.get(partition as usize);
        let known = there.ok_or_else(|| StreamError::NoPartition {
            topic: NAME.to_owned(),
            partition,
            partitions: self.partitions(),
        })?;
        match self.is_away || known.is_away {
            true => Err(unavailable()),
            false => Ok(known),
        }
    }

    pub(super) fn count(&self) -> Result<u32, StreamError> {
        if !self.is_there {
            return Err(StreamError::NoTopic { topic: NAME.to_owned() });
        }
        if self.is_away {
            Err(unavailable())
        } else {
            Ok(self.partitions())
        }
    }

    pub(super) fn offset_at(&self, partition: u32, time_ms: u64) -> Result<u64, StreamError> {
        let known = self.known(partition)?;
        let later = known.records.iter().find(|record| record.logged_ms >= time_ms);
        Ok(later.map_or(known.end, |record| record.offset))
    }

    pub(super) fn first(&self, partition: u32) -> Result<u64, StreamError> {
        Ok(self.known(partition)?.first)
    }

    pub(super) fn read(&mut self, partition: u32, offset: u64) -> Result<Batch, StreamError> {
        let (choice, some) = match self.is_plain {
            true => (7, 0),
            false => (self.rng.u8(..8), self.rng.usize(1..=8)),
        };
        let now_ms = self.now_ms;
        let known = self.known(partition)?;
        if offset < known.first || offset > known.end {
            return Err(StreamError::Lost {
                topic: NAME.to_owned(),
                partition,
                offset,
                first: known.first,
                end: known.end,
            });
        }
        let begin = known.records.partition_point(|record| record.offset < offset);
        let rest = known.records.len() - begin;
        let count = match choice {
            0 => 0,
            1..5 => rest.min(some),
            _ => rest,
        };
        let records: Vec<Logged> = known.records.range(begin..begin + count).cloned().collect();
        let next = match records.last() {
            _ if count == rest => known.end,
            None => offset,
            Some(last) => last.offset + 1,
        };
        // An end that was known before is not asked for again.
        let old = known
            .ends
            .iter()
            .rev()
            .take_while(|(until_ms, _)| until_ms + END_KNOWN_MS > now_ms);
        let old = old.last().map(|(_, end)| *end).filter(|_| choice % 2 == 0);
        let end = old.unwrap_or(known.end).max(next);
        Ok(Batch { records, next, end })
    }
}

fn unavailable() -> StreamError {
    StreamError::Unavailable {
        topic: NAME.to_owned(),
        reason: "the broker is away".to_owned(),
    }
}
