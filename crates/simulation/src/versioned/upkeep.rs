//! What nodes do by themselves: they bring hints to those whose they are, compare partitions with other
//! replicas, and forget deletions, each by the real rules.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use bytes::Bytes;
use fondaco_client::read::Failure;
use fondaco_model::versioned::{Horizon, Record};
use fondaco_model::{NodeId, PartitionId};
use fondaco_protocol::replica::{KeyRecord, ReplicaCommand, ReplicaOperation, ReplicaReply, ReplicaRequest};

use super::comparing::Comparing;
use super::disk::HintKey;
use super::message::{Asker, Event, Happening, Matter};
use super::replica::{decode, horizon};
use super::scenario::Flaw;
use super::world::World;

/// How many hints are brought at a time.
const HINTS_MAX: usize = 4;

/// How long a piece of work waits for an answer, in microseconds.
const CHORE_US: u64 = 2_000_000;

/// How often a partition is compared, in microseconds, about.
const EXCHANGE_EVERY_US: u64 = 4_000_000;

/// The same where a plan waits for it, or what is no longer held is to be given away.
const EXCHANGE_IN_PLAN_US: u64 = 300_000;

/// How often a node looks for deletions to forget, in microseconds.
const SWEEP_EVERY_US: u64 = 3_000_000;

/// A piece of work that waits for an answer.
#[derive(Debug)]
pub(super) enum Chore {
    /// Hints were sent, as they were then.
    Handoff(Vec<(HintKey, Bytes)>),
    /// A partition is compared.
    Comparing(Box<Comparing>),
    /// Nodes are asked for their oldest hints, and the time that they have, before deletions are forgotten.
    Sweep {
        waiting: BTreeSet<u64>,
        oldest: u64,
        earliest: u64,
    },
    /// A node is asked for its oldest hint, for this sweep.
    OldestHint { sweep: u64 },
}

impl World {
    /// A node looks for something to do.
    pub(super) fn look_after(&mut self, process: usize) {
        self.hand_over(process);
        if self.scenario.flaw != Some(Flaw::NeverCompares) {
            self.begin_exchanges(process);
            self.clear_given_away(process);
        }
        self.begin_sweep(process);
    }

    /// Begins a piece of work that waits for one answer, and not for ever. Returns its number.
    pub(super) fn begin_chore(&mut self, process: usize, chore: Chore) -> u64 {
        self.last_number += 1;
        let (number, life) = (self.last_number, self.processes[process].life);
        if let Some(replica) = &mut self.processes[process].replica {
            replica.chores.insert(number, chore);
        }
        let event = Event::ChoreEnds(number);
        self.after(CHORE_US, Happening::To { process, life, event });
        number
    }

    /// Asks another node something for a piece of work.
    pub(super) fn ask_for_chore(
        &mut self,
        process: usize,
        number: u64,
        to: NodeId,
        operation: ReplicaOperation,
        epoch: Option<NonZeroU64>,
    ) {
        let asker = Asker {
            process,
            life: self.processes[process].life,
            of: Matter::Chore(number),
        };
        let is_compared = matches!(operation.command(), ReplicaCommand::Tree | ReplicaCommand::Sync);
        let request = ReplicaRequest {
            store_id: 1,
            store: self.store.name.clone(),
            timeout_ms: 1_000,
            epoch: epoch.filter(|_| is_compared),
            operation,
        };
        self.send(asker, to, request);
    }

    /// What a piece of work has waited for.
    pub(super) fn chore_answered(&mut self, process: usize, number: u64, answer: Result<ReplicaReply, Failure>) {
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        let Some(chore) = replica.chores.remove(&number) else {
            return;
        };
        match (chore, answer) {
            (Chore::Handoff(hints), Ok(ReplicaReply::Done)) => {
                for (key, delivered) in hints {
                    // Otherwise there is something new in it.
                    if replica.disk.hints().get(&key) == Some(&delivered) {
                        replica.disk.set_hint(key, None);
                    }
                }
            }
            (Chore::Comparing(comparing), Ok(reply)) => self.go_on_comparing(process, comparing, Some(reply)),
            (
                Chore::OldestHint { sweep },
                Ok(ReplicaReply::OldestHint {
                    now_unix_ms,
                    oldest_unix_ms,
                }),
            ) => {
                if let Some(Chore::Sweep {
                    waiting,
                    oldest,
                    earliest,
                }) = replica.chores.get_mut(&sweep)
                {
                    *oldest = oldest_unix_ms.unwrap_or(u64::MAX).min(*oldest);
                    *earliest = now_unix_ms.min(*earliest);
                    waiting.remove(&number);
                    if waiting.is_empty() {
                        let (oldest, earliest) = (*oldest, *earliest);
                        replica.chores.remove(&sweep);
                        self.sweep(process, oldest, earliest);
                    }
                }
            }
            // Another time.
            _ => {}
        }
    }

    fn hand_over(&mut self, process: usize) {
        let live = self.processes[process].coordinator.live();
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        if replica.chores.values().any(|chore| matches!(chore, Chore::Handoff(_))) {
            return;
        }
        let destination = |(target, key): &HintKey| {
            let partition = PartitionId::new(self.store.place(key).0);
            match replica.table.holds(*target, partition, self.store.replicas) {
                true => live.contains(target).then_some(*target),
                // It may be the only copy.
                false => replica
                    .table
                    .owners(partition)
                    .iter()
                    .copied()
                    .find(|node| live.contains(node)),
            }
        };
        let hints = replica.disk.hints().iter();
        let there = hints.filter_map(|(key, record)| Some((destination(key)?, (key.clone(), record.clone()))));
        let there: Vec<(NodeId, (HintKey, Bytes))> = there.collect();
        if self.scenario.flaw == Some(Flaw::DropsHints) {
            return there
                .into_iter()
                .for_each(|(_, (key, _))| replica.disk.set_hint(key, None));
        }
        let Some(target) = there.first().map(|(target, _)| *target) else {
            return;
        };
        let hints = there.into_iter().filter(|(node, _)| *node == target).take(HINTS_MAX);
        let hints: Vec<(HintKey, Bytes)> = hints.map(|(_, hint)| hint).collect();
        let pair = |((_, key), record): &(HintKey, Bytes)| KeyRecord {
            key: key.clone(),
            record: record.clone(),
        };
        let records = hints.iter().map(pair).collect();
        let number = self.begin_chore(process, Chore::Handoff(hints));
        self.ask_for_chore(process, number, target, ReplicaOperation::Merge { records }, None);
    }

    fn begin_exchanges(&mut self, process: usize) {
        let live = self.processes[process].coordinator.live();
        let now_us = self.now_us;
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        replica.catch_up(&self.store, &live);
        let is_due = |(&number, partition): (&u32, &super::replica::Partition)| {
            let owners = replica.table.owners(PartitionId::new(number));
            let is_compared_with_all = owners.iter().all(|owner| partition.exchanged.contains_key(owner));
            let others = match partition.is_held {
                true if replica.is_to_own(number) && !is_compared_with_all => owners.to_vec(),
                true => replica.others(number),
                // The plan may be given up.
                false if replica.table.is_in_plan() => Vec::new(),
                false => owners.to_vec(),
            };
            let others = others.into_iter().filter(|node| live.contains(node));
            // One that it was never compared with comes first.
            let peer = others.min_by_key(|node| partition.exchanged.get(node).map_or(0, |began_ms| began_ms + 1))?;
            (partition.exchange_at_us <= now_us).then_some((number, peer))
        };
        let due: Vec<(u32, NodeId)> = replica.partitions.iter().filter_map(is_due).collect();
        for (number, peer) in due {
            let every_us = EXCHANGE_EVERY_US / 2..EXCHANGE_EVERY_US * 3 / 2;
            let (first_us, next_us) = (self.rng.u64(..EXCHANGE_EVERY_US), self.rng.u64(every_us));
            let Some(replica) = &mut self.processes[process].replica else {
                continue;
            };
            let is_owner = replica.table.owners(PartitionId::new(number)).contains(&replica.node);
            let Some(partition) = replica.partitions.get_mut(&number) else {
                continue;
            };
            let is_waited_for = !is_owner || partition.is_behind;
            let is_first = partition.exchange_at_us == 0;
            partition.exchange_at_us = match (is_waited_for, is_first) {
                (true, _) => now_us + EXCHANGE_IN_PLAN_US,
                (false, true) => now_us + first_us.max(1),
                (false, false) => now_us + next_us,
            };
            if is_waited_for || !is_first {
                self.begin_comparing(process, number, peer);
            }
        }
    }

    /// Deletes what others own, once all of them have been compared with it.
    fn clear_given_away(&mut self, process: usize) {
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        let is_given = |(&number, partition): (&u32, &super::replica::Partition)| {
            let mut owners = replica.table.owners(PartitionId::new(number)).iter();
            let is_given = !partition.is_held
                && !replica.table.is_in_plan()
                && owners.all(|owner| partition.exchanged.contains_key(owner));
            is_given.then_some(number)
        };
        let given: Vec<u32> = replica.partitions.iter().filter_map(is_given).collect();
        given.into_iter().for_each(|number| replica.clear(number));
    }

    /// Asks all nodes for their oldest hints, if all are there.
    fn begin_sweep(&mut self, process: usize) {
        let live = self.processes[process].coordinator.live();
        let now_us = self.now_us;
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        if replica.sweep_at_us > now_us {
            return;
        }
        replica.sweep_at_us = now_us + SWEEP_EVERY_US;
        let mut waiting = BTreeSet::new();
        if live.len() < self.scenario.nodes {
            return self.sweep(process, 0, u64::MAX);
        }
        let sweep = self.begin_chore(
            process,
            Chore::Sweep {
                waiting: BTreeSet::new(),
                oldest: u64::MAX,
                earliest: u64::MAX,
            },
        );
        for node in live {
            let number = self.begin_chore(process, Chore::OldestHint { sweep });
            waiting.insert(number);
            self.ask_for_chore(process, number, node, ReplicaOperation::OldestHint, None);
        }
        let replica = self.processes[process].replica.as_mut();
        if let Some(Chore::Sweep { waiting: for_all, .. }) = replica.and_then(|replica| replica.chores.get_mut(&sweep))
        {
            *for_all = waiting;
        }
    }

    /// Forgets what was found before, is still so, and may be forgotten by the earliest of all clocks. 0 as the oldest
    /// hint if that is not known.
    fn sweep(&mut self, process: usize, oldest_hint_unix_ms: u64, earliest_unix_ms: u64) {
        let (now_ms, now_unix_ms) = (self.now_us / 1000, self.unix_ms(process).min(earliest_unix_ms));
        let flaw = self.scenario.flaw;
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        let numbers = 0..self.scenario.partitions;
        let others: Vec<Vec<NodeId>> = numbers.map(|number| replica.others(number)).collect();
        let mut forgotten = Vec::new();
        for (&number, partition) in &mut replica.partitions {
            let mut compared_ms = Some(u64::MAX);
            for node in &others[number as usize] {
                let last = partition.exchanged.get(node);
                compared_ms = compared_ms.zip(last).map(|(earliest, &last)| last.min(earliest));
            }
            let horizon = Horizon {
                compared_ms,
                oldest_hint_unix_ms: Some(oldest_hint_unix_ms),
                ..horizon(&self.store, now_unix_ms)
            };
            let mut found = std::collections::BTreeMap::new();
            let records = replica.disk.records().range((number, 0, Bytes::new())..);
            for (place, bytes) in records.take_while(|(place, _)| place.0 == number) {
                let Ok(record) = decode(bytes) else { continue };
                let is_early = flaw == Some(Flaw::CollectsEarly) && record.is_deleted(now_unix_ms);
                if !is_early && !horizon.is_past(&record) {
                    continue;
                }
                let digest = Record::digest(bytes);
                let before = partition.found.get(place).filter(|(known, _)| *known == digest);
                let found_ms = before.map(|&(_, found_ms)| found_ms);
                match is_early || horizon.remembers(&record, found_ms).is_none() {
                    true => forgotten.push(place.clone()),
                    false => drop(found.insert(place.clone(), (digest, found_ms.unwrap_or(now_ms)))),
                }
            }
            partition.found = found;
        }
        self.outcome.forgotten += forgotten.len() as u64;
        for place in forgotten {
            replica.set(place, None);
        }
    }
}
