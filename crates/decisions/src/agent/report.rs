//! A node's report about its replicas.

use std::collections::BTreeMap;

use fondaco_model::cluster::{ClusterView, ReplicaReport, ReplicaState, ReportRecord, StoreRecord, StoreReport};
use fondaco_model::{Copies, PROTOCOL_OF_SERVING_WHILE_COPYING, PartitionId, PartitionSet, StoreKind};

use super::failures::Failures;
use super::wanted::{Urgency, Want};
use super::{Agent, AgentAction, LocalReplicas, LocalVersion, ReplicaKey};

/// How often a report is written that only updates the progress of fetches, in milliseconds.
pub const REPORT_PROGRESS_MS: u64 = 2_000;

impl Agent {
    /// The report, if it has news.
    pub(super) fn report(
        &mut self,
        view: &ClusterView,
        local: &LocalReplicas,
        wants: &BTreeMap<ReplicaKey, Want<'_>>,
        at_ms: u64,
    ) -> Option<AgentAction> {
        let mut report = self.report_now(view, local, wants);
        self.add_versioned(view, local, &mut report);
        if let Some((last, last_ms)) = &self.reported {
            let holds = view.routing.as_ref().is_some_and(|table| {
                let layout = self.layouts.of(&table.record, Copies::of(1));
                layout.holds_since(self.node, last.epoch)
            });
            let without_epoch = |report: &ReportRecord| ReportRecord {
                epoch: last.epoch,
                ..report.clone()
            };
            let waits = at_ms - last_ms < REPORT_PROGRESS_MS
                && without_progress(&without_epoch(&report)) == without_progress(last);
            if holds && (waits || without_epoch(&report) == *last) {
                return None;
            }
        }
        self.reported = Some((report.clone(), at_ms));
        Some(AgentAction::Report(report))
    }

    fn report_now(
        &self,
        view: &ClusterView,
        local: &LocalReplicas,
        wants: &BTreeMap<ReplicaKey, Want<'_>>,
    ) -> ReportRecord {
        let mut report = ReportRecord {
            epoch: view.routing.as_ref().map_or(0, |table| table.record.epoch()),
            stores: BTreeMap::new(),
        };
        for (key, want) in wants {
            let (name, version) = key;
            let store = report.stores.entry(name.clone()).or_insert_with(|| StoreReport {
                id: want.store.id,
                replicas: view.replicas(want.store) as u32,
                swaps: want.store.versions.swaps(),
                versions: BTreeMap::new(),
                lacking: PartitionSet::EMPTY,
                held: 0,
                keys: 0,
                bytes: 0,
            });
            store.versions.insert(*version, self.replica(view, local, key, want));
        }
        report
    }

    /// Adds the state of versioned stores: which partitions that moves give to the node are not there yet.
    fn add_versioned(&mut self, view: &ClusterView, local: &LocalReplicas, report: &mut ReportRecord) {
        let Some(table) = view.routing.as_ref().map(|table| &table.record) else {
            return;
        };
        let dropped = view.dropped.values().map(|dropped| &dropped.record.record);
        // Nodes hold those that can be restored.
        let held = |store: &&StoreRecord| {
            let held = local.versioned.get(&store.definition.name);
            held.is_some_and(|held| held.id == store.id) && !view.stores.contains_key(&store.definition.name)
        };
        let stores = view.stores.values().map(|store| &store.record);
        for store in stores.chain(dropped.filter(held)) {
            let name = &store.definition.name;
            let layout = self.layouts.of(table, view.copies(store));
            let planned = layout.planned_for(self.node);
            let is_concerned = !planned.is_empty() || !layout.owned_by(self.node).is_empty();
            if store.definition.kind != StoreKind::Versioned || !is_concerned {
                continue;
            }
            let held = local.versioned.get(name);
            // Before a split, numbers mean other partitions.
            let held = held.filter(|held| held.id == store.id && held.partitions == table.partitions());
            let store = StoreReport {
                id: store.id,
                replicas: view.replicas(store) as u32,
                swaps: 0,
                versions: BTreeMap::new(),
                lacking: held.map_or_else(|| planned.clone(), |held| planned.without(&held.synchronised)),
                held: held.map_or(0, |held| held.held),
                keys: held.map_or(0, |held| three_digits(held.keys)),
                bytes: held.map_or(0, |held| three_digits(held.bytes)),
            };
            report.stores.insert(name.clone(), store);
        }
    }

    fn replica(&self, view: &ClusterView, local: &LocalReplicas, key: &ReplicaKey, want: &Want<'_>) -> ReplicaReport {
        let version = local.versions.get(key);
        let version = version.filter(|version| version.is_the_one(want.detail));
        let open = version.map_or(PartitionSet::EMPTY, |version| version.open.without(&version.behind));
        let has_files = version.is_some_and(|version| version.open.covers(&want.owned));
        let stream_error = version.and_then(|version| version.stream_error.clone());
        let fetch = local.fetches.get(key);
        let fetched_bytes = local.fetched_bytes.get(key).copied().unwrap_or(0);
        let failures = self.failures.get(key);
        let gave_up = |partition| failures.is_some_and(|failures| failures.are_final_for(partition));
        let state = match open.covers(&want.owned) {
            true if want.urgency == Urgency::Current => ReplicaState::Serving,
            true => ReplicaState::Ready,
            false if want.owned.iter().any(gave_up) => ReplicaState::Failed,
            false => ReplicaState::Fetching,
        };
        let built_for = want.detail.partitions;
        let count = view.partitions().unwrap_or(built_for);
        let of_version = |partition: PartitionId| built_for.covering(partition, count);
        let is_open = |partition: &PartitionId| open.contains(of_version(*partition));
        let lacking: PartitionSet = want.reported.iter().filter(|partition| !is_open(partition)).collect();
        let gave_up = lacking.iter().map(of_version).any(gave_up);
        let answered = version.map_or(PartitionSet::EMPTY, LocalVersion::answered);
        let is_known = view.protocol() >= PROTOCOL_OF_SERVING_WHILE_COPYING;
        ReplicaReport {
            state,
            lacking,
            gave_up,
            bytes_done: fetch.map_or(fetched_bytes, |fetch| fetch.bytes_done),
            bytes_total: fetch.map_or(fetched_bytes, |fetch| fetch.bytes_total),
            seconds_left: fetch.and_then(|fetch| fetch.seconds_left),
            reads_stream: has_files && !open.covers(&want.owned),
            on_demand: is_known && !open.covers(&want.owned) && want.on_demand && answered.covers(&want.owned),
            error: error(version.and_then(|version| version.damage.as_ref()), failures).or(stream_error),
            canary: local.canaries.get(key).copied(),
        }
    }
}

/// The damage, and why fetching again failed; either may be absent.
fn error(damage: Option<&String>, failures: Option<&Failures>) -> Option<String> {
    match (damage, failures.and_then(Failures::error)) {
        (Some(damage), Some(failure)) => Some(format!("{damage}; fetching it again failed: {failure}")),
        (damage, failure) => damage.map(String::as_str).or(failure).map(str::to_owned),
    }
}

/// The part of a report whose change is written at once.
fn without_progress(report: &ReportRecord) -> ReportRecord {
    let mut report = report.clone();
    let versions = report.stores.values_mut().flat_map(|store| store.versions.values_mut());
    for replica in versions {
        replica.bytes_done = 0;
        replica.bytes_total = 0;
        replica.seconds_left = None;
        replica.canary = None;
    }
    for store in report.stores.values_mut() {
        (store.keys, store.bytes) = (0, 0);
    }
    report
}

/// A number rounded down to three digits, so that the report is not rewritten for every few keys.
fn three_digits(number: u64) -> u64 {
    let unit = 10_u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(2));
    number / unit * unit
}
