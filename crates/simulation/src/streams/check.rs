//! The comparisons: answers with the model, answers with earlier answers, and the counts of nodes.

use std::collections::BTreeSet;

use bytes::Bytes;
use fondaco_engine::Engine;
use fondaco_model::{PartitionId, PartitionSet, VersionNumber};
use fondaco_stream::{Feed, Found, Overlay};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::events::{WHOLE, base};
use super::model::{Counts, Model};
use super::node::{Node, Version};
use super::scenario::Source;
use super::world::World;

impl World {
    /// The next record that has yet to be read; `None` if all were read.
    pub(super) fn unsettled(&self) -> Option<String> {
        let topic_partitions = self.shared.topic.lock().partitions();
        for node in &self.nodes {
            let (feeds, held) = (node.feeds(), node.held());
            let read = (0..topic_partitions).filter(|&partition| self.shared.reads(&held, partition));
            let partitions = read.count();
            for version in self.versions.iter().filter(|_| !held.is_empty()) {
                let told = |what: String| Some(format!("{node:?}, version {}: {what}", version.number));
                let Some(feed) = feeds.get(&version.number) else {
                    return told("it is not open".to_owned());
                };
                let (status, ready) = (feed.status(), feed.overlay().ready());
                let all_read = status.partitions.len() == partitions
                    && status.partitions.iter().all(|status| status.lag_records == Some(0));
                if *ready != held || !all_read || status.error.is_some() {
                    let ready: Vec<_> = ready.iter().collect();
                    let held: Vec<_> = held.iter().collect();
                    return told(format!("{ready:?} of {held:?} answer, and {status:?}"));
                }
            }
        }
        None
    }

    /// Compares all nodes with the model.
    pub(super) fn compare(&mut self) -> Result<(), String> {
        let versions = self.versions.clone();
        for version in &versions {
            for number in 0..self.nodes.len() {
                let feed = self.nodes[number].feeds().get(&version.number).cloned();
                if let Some(feed) = feed {
                    self.compare_node(number, version, &feed)
                        .map_err(|what| format!("node {number}, version {}: {what}", version.number))?;
                }
            }
        }
        Ok(())
    }

    fn compare_node(&mut self, number: usize, version: &Version, feed: &Feed) -> Result<(), String> {
        let overlay = feed.overlay();
        let (node, held) = (&self.nodes[number], self.nodes[number].held());
        let is_held = |key: &[u8]| held.contains(self.shared.partition_of(key));
        // It must have those that were deleted since the push, if it says that none is lost.
        let has_all = !version.has_lost
            || self.scenario.source == Source::Forgets
                && overlay.lost().is_empty()
                && !self.shared.begun_late.lock().contains(&version.number);
        let mut model = Model::default();
        {
            let topic = self.shared.topic.lock();
            let records = topic.records(version.start_ms, version.losses);
            for (partition, record) in records.filter(|(partition, _)| self.shared.reads(&held, *partition)) {
                let belongs = |key: &[u8]| {
                    self.shared
                        .topic_partition_of(key)
                        .is_none_or(|right| right == partition)
                };
                model.add(record, &belongs, version.as_of_ms, self.scenario.grace_ms, &is_held);
            }
        }
        model.sort();
        for key in &self.keys {
            let found = find(overlay, key)?;
            if !is_held(key) {
                if found != Found::Behind {
                    return Err(format!("{key:?}, which it does not hold: {found:?}"));
                }
                continue;
            }
            self.outcome.compared += 1;
            self.outcome.compared_after_losses += u64::from(has_all && version.has_lost);
            let below = base(self.shared.seed, version.number, key);
            let below_lives = self
                .scenario
                .ttl_ms
                .is_none_or(|ttl_ms| self.now_ms < version.data_ms + ttl_ms);
            let answer = match found {
                Found::Nothing => below.clone().filter(|_| below_lives),
                Found::Value(value) => Some(value),
                Found::Deleted => None,
                found @ (Found::Unknown | Found::Behind) => return Err(format!("{key:?}: {found:?}")),
            };
            let (last, end_ms) = model.value(key, below, version.data_ms, self.scenario.ttl_ms);
            self.outcome.expired += u64::from(last.is_some() && end_ms <= self.now_ms);
            let expected = last.filter(|_| self.now_ms < end_ms);
            if has_all && answer != expected {
                let told = model.told(key);
                return Err(format!(
                    "{key:?} is {answer:?}, and should be {expected:?}, by:\n{told}"
                ));
            }
            let text = answer.as_deref().unwrap_or(b"none");
            self.outcome.trace = xxh3_64_with_seed(text, self.outcome.trace);
        }
        if !has_all {
            return Ok(());
        }
        self.outcome.updates += model.updates();
        self.outcome.updates_kept += kept(node, version, self)?;
        let expired_ms = self.scenario.ttl_ms.map(|ttl_ms| self.now_ms.saturating_sub(ttl_ms));
        self.outcome.deleted += compare_keys(overlay, &model, expired_ms, !self.unsure.contains(&number))?;
        if !version.has_lost {
            self.compare_counts(number, version, overlay, &model.counts)?;
        }
        Ok(())
    }

    fn compare_counts(
        &mut self,
        number: usize,
        version: &Version,
        overlay: &Overlay,
        expected: &Counts,
    ) -> Result<(), String> {
        let counted = self.counted.entry((number, version.number)).or_default();
        if counted.is_vague || self.scenario.flaw.is_some() {
            return Ok(());
        }
        let (now, before) = (overlay.applied(), counted.by_killed);
        let has_wholes = self.scenario.updates < 100;
        let sum = now.applied + before.applied + now.superseded + before.superseded;
        let repeated = now.repeated + before.repeated;
        let mut found = Counts {
            records: 0,
            cut: now.cut + before.cut,
            late: now.late + before.late,
            poison: now.poison,
            elsewhere: now.elsewhere + before.elsewhere,
            // An update that comes again after a value that replaces it is superseded.
            repeated: if has_wholes { expected.repeated } else { repeated },
        };
        found.records = sum + found.cut + found.late + found.poison + found.elsewhere + repeated;
        if found != *expected {
            return Err(format!("it has counted {found:?} of {expected:?}"));
        }
        self.outcome.applied += now.applied + before.applied;
        self.outcome.cut += found.cut;
        self.outcome.late += found.late;
        self.outcome.repeated += repeated;
        Ok(())
    }

    /// Looks at an answer while things fail: it was logged once, counts, and is no earlier event than the last answer.
    pub(super) fn peek(&mut self) -> Result<(), String> {
        let number = self.rng.usize(..self.nodes.len());
        let key = self.keys[self.rng.usize(..self.keys.len())].clone();
        let feeds = self.nodes[number].feeds();
        let version = self.versions[self.rng.usize(..self.versions.len())].clone();
        let Some(feed) = feeds.get(&version.number) else {
            return Ok(());
        };
        self.peek_at_partitions(number, version.number, feed)?;
        if !key.starts_with(WHOLE) {
            return Ok(());
        }
        let Found::Value(value) = find(feed.overlay(), &key)? else {
            return Ok(());
        };
        self.outcome.peeked += 1;
        let told = |what: String| Err(format!("node {number}, version {}, {key:?}: {what}", version.number));
        if !self.values.contains(&value) {
            return told(format!("{value:?} was never logged"));
        }
        let Some(&time_ms) = self.times_ms.get(&value) else {
            return Ok(());
        };
        if self
            .scenario
            .ttl_ms
            .is_some_and(|ttl_ms| time_ms + ttl_ms <= self.now_ms)
        {
            return told(format!("{value:?} of {time_ms} has expired"));
        }
        if version.as_of_ms.is_some_and(|as_of_ms| time_ms <= as_of_ms) {
            return told(format!("{value:?} of {time_ms} is cut"));
        }
        if self.restless.contains(&number) {
            return Ok(());
        }
        let last = self.seen.entry((number, version.number, key.clone())).or_insert(0);
        if *last > time_ms {
            return told(format!("it had an event of {last}, and has {value:?} of {time_ms}"));
        }
        *last = time_ms;
        Ok(())
    }

    /// A partition that has answered continues to answer.
    fn peek_at_partitions(&mut self, number: usize, version: VersionNumber, feed: &Feed) -> Result<(), String> {
        if self.restless.contains(&number) {
            return Ok(());
        }
        let ready = feed.overlay().ready();
        let answered = self.answered.entry((number, version)).or_default();
        let gone: Vec<_> = answered.without(&ready).iter().collect();
        if !gone.is_empty() {
            return Err(format!(
                "node {number}, version {version}: {gone:?} do not answer any more"
            ));
        }
        *answered = PartitionSet::clone(&ready);
        Ok(())
    }
}

/// The answer of an overlay; checks that the look-up in memory alone agrees.
fn find(overlay: &Overlay, key: &[u8]) -> Result<Found, String> {
    let found = overlay.find(key).map_err(|error| error.to_string())?;
    let hot = &overlay.find_hot(&[key], usize::MAX)[0];
    match *hot == found || *hot == Found::Unknown {
        true => Ok(found),
        false => Err(format!("{key:?} is {found:?}, and {hot:?} by memory")),
    }
}

/// How many updates a node keeps for a version.
fn kept(node: &Node, version: &Version, world: &World) -> Result<u64, String> {
    let [_, _, events] = world.shared.options(version).tables();
    let table = node.disk.open_table(&events).map_err(|error| error.to_string())?;
    let rows = table.scan(&[], None).map_err(|error| error.to_string())?;
    Ok(rows.count() as u64)
}

/// Compares the keys that have events. Those whose events have expired by a time may have been deleted: returns how many.
fn compare_keys(overlay: &Overlay, model: &Model, expired_ms: Option<u64>, is_sure: bool) -> Result<u64, String> {
    let all = overlay.keys((PartitionId::new(0), 0), None, usize::MAX);
    let (keys, _) = all.map_err(|error| error.to_string())?;
    let keys: BTreeSet<&Bytes> = keys.iter().map(|(key, _)| key).collect();
    let expected: BTreeSet<&Bytes> = model.keys().collect();
    let may_be_gone = |key: &Bytes| {
        expired_ms.is_some_and(|expired_ms| model.latest_ms(key).is_some_and(|last_ms| last_ms <= expired_ms))
    };
    let gone: BTreeSet<&Bytes> = expected.difference(&keys).copied().collect();
    if !keys.is_subset(&expected) || !gone.iter().all(|key| may_be_gone(key)) {
        return Err(format!(
            "it has events of the keys {keys:?}, and should of {expected:?}"
        ));
    }
    let counted = overlay.size().0;
    if is_sure && counted != keys.len() as u64 {
        return Err(format!("it counts {counted} keys, and has {}", keys.len()));
    }
    Ok(gone.len() as u64)
}
