//! The leading controller carries on pushes: it waits for nodes that make progress, gives up on others, and swaps or
//! fails.
//!
//! Each of the nodes of a push becomes ready, or fails, or is absent or without progress for longer than the
//! controller's patience. Then either enough nodes are ready, or too many are given up, and the push ends. Only while
//! nodes read the stream on top of a version, a push waits for as long as that takes.

use std::collections::BTreeMap;

use fondaco_model::cluster::{ClusterView, PushRecord, ReplicaReport, ReplicaState, Revised, StoreRecord};
use fondaco_model::{CanaryCounts, ConfirmationState, NodeId, PushEvent, StoreName, VersionNumber};

use super::Input;
use crate::agent::FETCH_ATTEMPTS_MAX;
use crate::layout::Layout;
use crate::readiness::Reports;

/// The pushes under way, and when their nodes last made progress.
#[derive(Debug, Default)]
pub(super) struct Pushes(BTreeMap<StoreName, Progress>);

#[derive(Debug)]
struct Progress {
    store: u16,
    version: VersionNumber,
    nodes: BTreeMap<NodeId, NodeProgress>,
}

#[derive(Debug, Clone, Copy)]
struct NodeProgress {
    /// The most bytes that it has ever reported.
    bytes_done_max: u64,
    /// The bytes in its last report: a fetch that restarts first verifies its files, which takes as long as reading
    /// them.
    bytes_done_last: u64,
    /// How often it restarted. A node that restarts again and again makes no progress by that.
    begun_again: u32,
    at_ms: u64,
}

/// The next step of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The version goes live, without these nodes.
    Swap {
        /// These get it later.
        late: Vec<NodeId>,
    },
    /// It answers a share of the reads first.
    BeginCanary,
    /// Another step ends its canary.
    EndCanary {
        /// The counts of the nodes.
        counts: CanaryCounts,
        /// Why it ends.
        reason: String,
        /// The step.
        step: Box<Step>,
    },
    /// Its nodes have it, and its gates need a comparison with the current version.
    Compare,
    /// It has passed its gates, and has to be confirmed.
    Await,
    /// A gate does not let it pass.
    Hold {
        /// Why.
        reason: String,
    },
    /// It fails.
    Fail {
        /// Why.
        reason: String,
    },
}

impl Pushes {
    /// Forgets pushes that are no longer under way.
    pub(super) fn forget_others(&mut self, view: &ClusterView) {
        self.0.retain(|name, progress| {
            let store = view.stores.get(name).map(|store| &store.record);
            store.is_some_and(|store| store.id == progress.store && store.pushing() == Some(progress.version))
        });
    }

    /// Records the progress of a push's nodes.
    pub(super) fn observe(
        &mut self,
        input: &Input<'_>,
        store: &StoreRecord,
        version: VersionNumber,
        reports: &Reports<'_>,
    ) {
        let owned = &reports.layout.owned;
        let progress = self.0.entry(store.definition.name.clone());
        let progress = progress.or_insert_with(|| Progress {
            store: store.id,
            version,
            nodes: BTreeMap::new(),
        });
        progress.nodes.retain(|node, _| owned.contains_key(node));
        for &node in owned.keys() {
            let seen = progress.nodes.entry(node).or_insert(NodeProgress {
                bytes_done_max: 0,
                bytes_done_last: 0,
                begun_again: 0,
                at_ms: input.at_ms,
            });
            let replica = reports.replica(node, version);
            let bytes_done = replica.map_or(0, |replica| replica.bytes_done);
            let is_more = bytes_done > seen.bytes_done_last;
            let reads_stream = replica.is_some_and(|replica| replica.reads_stream);
            if reads_stream || bytes_done > seen.bytes_done_max || is_more && seen.begun_again <= FETCH_ATTEMPTS_MAX {
                seen.at_ms = input.at_ms;
            }
            seen.begun_again += u32::from(bytes_done < seen.bytes_done_last);
            seen.bytes_done_last = bytes_done;
            seen.bytes_done_max = seen.bytes_done_max.max(bytes_done);
        }
    }

    /// Why a live node is no longer waited for; `None` while it makes progress.
    pub(super) fn given_up(
        &self,
        input: &Input<'_>,
        store: &StoreRecord,
        node: NodeId,
        replica: Option<&ReplicaReport>,
        stall_after_ms: u64,
    ) -> Option<String> {
        if let Some(replica) = replica.filter(|replica| replica.state == ReplicaState::Failed) {
            return Some(replica.error.clone().unwrap_or_else(|| "it gives no reason".to_owned()));
        }
        let seen = self.0.get(&store.definition.name)?.nodes.get(&node)?;
        let still_ms = input.at_ms - seen.at_ms;
        (still_ms >= stall_after_ms).then(|| {
            let last = replica.and_then(|replica| replica.error.as_deref());
            let last = last.map(|error| format!(", and failed last with: {error}"));
            format!(
                "it has made no progress for {} s{}",
                still_ms / 1_000,
                last.unwrap_or_default()
            )
        })
    }
}

/// Why a push fails whatever its nodes do: the version that it was built from is not current any more.
pub(super) fn lost_base(store: &StoreRecord, push: &PushRecord) -> Option<Step> {
    let base = push.base.filter(|&base| store.versions.current() != Some(base))?;
    let reason = format!(
        "version {} was built from version {base}, which is not current any more: build it again from the current one, \
         or deploy it with --any-base, to replace that all the same",
        push.version
    );
    Some(Step::Fail { reason })
}

/// The next step of a push, given the nodes that lack the version, each with the reason if it was given up.
pub(super) fn step(
    store: &StoreRecord,
    version: VersionNumber,
    layout: &Layout,
    missing: &[(NodeId, Option<String>)],
) -> Option<Step> {
    let given_up: Vec<_> = missing
        .iter()
        .filter_map(|(node, reason)| Some((*node, reason.as_ref()?)))
        .collect();
    let reasons = || {
        let shown = given_up.iter().take(REASONS_MAX);
        let mut text: Vec<_> = shown.map(|(node, reason)| format!("node {node}: {reason}")).collect();
        if given_up.len() > REASONS_MAX {
            text.push(format!("and {} nodes more", given_up.len() - REASONS_MAX));
        }
        text.join("; ")
    };
    let tolerated = store.definition.tolerate_failures;
    if let Some(tolerated) = tolerated.filter(|&tolerated| given_up.len() > tolerated as usize) {
        let reason = format!(
            "{} of {} nodes could not get version {version}, and the store tolerates {tolerated}: {}; \
             to do without nodes while every partition has another: \
             fondaco store alter {} --tolerate-failures any",
            given_up.len(),
            layout.owned.len(),
            reasons(),
            store.definition.name
        );
        return Some(Step::Fail { reason });
    }
    let hopeful = layout.owned.keys().copied();
    let hopeful = hopeful.filter(|node| !given_up.iter().any(|(given_up, _)| given_up == node));
    let lost = layout.all().without(&layout.covered(hopeful));
    if let Some(partition) = lost.iter().next() {
        let reason = format!(
            "no node is left that could get version {version} of partition {partition}: {}",
            reasons()
        );
        return Some(Step::Fail { reason });
    }
    // All other nodes are ready, and they have a replica of each partition.
    (missing.len() == given_up.len()).then(|| Step::Swap {
        late: missing.iter().map(|(node, _)| *node).collect(),
    })
}

/// The stores whose pushes end together with that of this one, in the order of their names; none if it is not being pushed to, or the
/// view does not have the pushes of all of them yet, which began by one write.
///
/// # Errors
/// Why the push fails: that of another store has ended otherwise.
pub(super) fn set_of<'a>(
    view: &'a ClusterView,
    store: &'a Revised<StoreRecord>,
) -> Result<Vec<&'a Revised<StoreRecord>>, String> {
    let Some(push) = store.record.push.as_ref().filter(|_| store.record.pushing().is_some()) else {
        return Ok(Vec::new());
    };
    let mut set = vec![store];
    for (name, &version) in &push.with {
        match view.stores.get(name) {
            Some(other) if other.record.pushing() == Some(version) => set.push(other),
            Some(other) if other.record.versions.last() < Some(version) => return Ok(Vec::new()),
            Some(_) | None => {
                let reason = format!(
                    "the push of version {version} of store {name}, which it was to be swapped with, has ended"
                );
                return Err(reason);
            }
        }
    }
    set.sort_by(|one, other| one.record.definition.name.cmp(&other.record.definition.name));
    Ok(set)
}

/// The steps of pushes that end together, given those that each would take alone: they swap when all can. If one fails, all do; if a
/// gate stops one, all are held; if one has to be confirmed, all have.
pub(super) fn joint_steps(set: &[&Revised<StoreRecord>], steps: Vec<Option<Step>>) -> Option<Vec<Step>> {
    let find = |reason_of: fn(&Step) -> Option<&String>| {
        let mut found = set.iter().zip(&steps);
        found.find_map(|(store, step)| Some((&store.record, reason_of(step.as_ref()?)?)))
    };
    let failure = find(|step| match step {
        Step::Fail { reason } => Some(reason),
        _ => None,
    });
    if let Some(because) = failure {
        return Some(with_reason(set, because, |reason| Step::Fail { reason }));
    }
    let gate = find(|step| match step {
        Step::Hold { reason } => Some(reason),
        _ => None,
    });
    match gate {
        Some(because) if steps.iter().all(Option::is_some) => {
            Some(with_reason(set, because, |reason| Step::Hold { reason }))
        }
        _ if steps.iter().all(Option::is_some) && steps.contains(&Some(Step::Await)) => {
            Some(vec![Step::Await; set.len()])
        }
        _ => steps.into_iter().collect(),
    }
}

/// The same step for all stores of a set, because of one of them.
fn with_reason(
    set: &[&Revised<StoreRecord>],
    (because, reason): (&StoreRecord, &String),
    step: fn(String) -> Step,
) -> Vec<Step> {
    let of_store = |store: &&Revised<StoreRecord>| match store.record.id == because.id {
        true => reason.clone(),
        false => {
            let name = &because.definition.name;
            format!("store {name}, which it was to be swapped with: {reason}")
        }
    };
    set.iter().map(|store| step(of_store(store))).collect()
}

/// Why a version is held that has to be confirmed, for people.
const AWAITS: &str = "it awaits a confirmation, by the program that pushes it or by an operator";

/// How many nodes the reason of a failed push names.
const REASONS_MAX: usize = 5;

impl Step {
    /// The store after this step.
    pub(super) fn apply(self, store: &StoreRecord, now_unix_ms: u64) -> StoreRecord {
        let mut store = store.clone();
        match self {
            Self::Swap { late } => {
                if let Some(push) = store.push.as_mut().filter(|push| !push.state.is_end()) {
                    push.advance(PushEvent::Fetched, now_unix_ms);
                    push.advance(PushEvent::Swapped, now_unix_ms);
                    store.versions.make_current(push.version);
                    store.versions.expire(store.definition.backups);
                    store.late = late.into_iter().collect();
                }
            }
            Self::BeginCanary => {
                let current = store.versions.current();
                if let Some(push) = store.push.as_mut() {
                    push.advance(PushEvent::Fetched, now_unix_ms);
                    if let Some(canary) = &mut push.canary {
                        canary.against = current;
                        canary.run(now_unix_ms);
                    }
                }
            }
            Self::EndCanary { counts, reason, step } => {
                if let Some(canary) = store.push.as_mut().and_then(|push| push.canary.as_mut()) {
                    (canary.counts, canary.reason) = (counts, Some(reason));
                }
                return step.apply(&store, now_unix_ms);
            }
            Self::Compare => {
                if let Some(push) = store.push.as_mut() {
                    push.advance(PushEvent::Fetched, now_unix_ms);
                }
            }
            Self::Hold { reason } => {
                if let Some(push) = store.push.as_mut() {
                    push.advance(PushEvent::Fetched, now_unix_ms);
                    push.advance(PushEvent::Held, now_unix_ms);
                    push.error = Some(reason);
                }
            }
            Self::Await => {
                store = Self::Hold {
                    reason: AWAITS.to_owned(),
                }
                .apply(&store, now_unix_ms);
                if let Some(push) = store.push.as_mut() {
                    push.confirmation = Some(ConfirmationState::Awaited);
                }
            }
            Self::Fail { reason } => {
                if let Some(push) = store.push.as_mut() {
                    push.advance(PushEvent::Failed, now_unix_ms);
                    push.error = Some(reason);
                }
            }
        }
        store.forget_details();
        store
    }
}
