//! Pushes, swaps and rolls back versions.

use fondaco_model::cluster::{ClusterView, PushRecord, Revised, StoreRecord, VersionDetail, VersionEvents};
use fondaco_model::{
    CanaryReads, CanaryRecord, CanaryTerms, ConfirmationState, GateReport, Gates, PROTOCOL_OF_CANARIES,
    PROTOCOL_OF_GATES, PROTOCOL_OF_SERVING_WHILE_COPYING, PushEvent, PushState, StoreKind, StoreName, VersionNumber,
};

use super::OperatorError;
use crate::change::{Change, Write};
use crate::controller::awaits_comparison;
use crate::readiness::{late_among, unready_partition};

/// How many stores can be pushed to at a time: they share the disks and the rates of the nodes.
pub const PUSHES_MAX: usize = 8;

/// The origin of a version to be pushed, and the conditions of its push.
#[derive(Debug, Clone, Default)]
pub struct PushTerms {
    /// The checksum of the manifest of the version that it is a difference to. The push fails if another one becomes
    /// current.
    pub base: Option<String>,
    /// The version contains all events up to this time, in milliseconds since 1970. Only for hybrid stores.
    pub as_of_unix_ms: Option<u64>,
    /// The time that its build was told, which counts if no other is said, and not for batch stores.
    pub cut_unix_ms: Option<u64>,
    /// The time of its records that have none of their own, in milliseconds since 1970, if others have: its manifest says so.
    pub undated_unix_ms: Option<u64>,
    /// When the push began in the first of several clusters, in milliseconds since 1970, if that was earlier: then the
    /// same events count in all of them.
    pub started_unix_ms: Option<u64>,
    /// The version that must be the current one: another one with the same content may have other events on top.
    pub if_current: Option<VersionNumber>,
    /// The run that the push belongs to, as its caller names it.
    pub run: Option<String>,
    /// Whether to push a version with the content of the current one.
    pub again: bool,
    /// The terms of its canary, if it has one.
    pub canary: Option<CanaryTerms>,
    /// Gates beside those of the store.
    pub gates: Gates,
    /// Whether it goes live while nodes copy it.
    pub serve_while_copying: bool,
}

/// The answer to a request for a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// The push: a new one, or an earlier one that answers the request.
    pub push: PushRecord,
    /// Whether it is an earlier one.
    pub is_repeated: bool,
    /// The change to the records, if there is one.
    pub change: Option<Change>,
}

/// Begins a push as [`push`] does, unless an earlier one answers the request: that of the same run, whatever became of it;
/// or the one of the current version, if that has the same content.
///
/// # Errors
/// As [`push`].
pub fn push_once(
    view: &ClusterView,
    name: &StoreName,
    detail: VersionDetail,
    terms: PushTerms,
    now_unix_ms: u64,
) -> Result<Pushed, OperatorError> {
    let before = batch(view, name)?;
    let record = &before.record;
    let repeated = |push: &PushRecord, change| Pushed {
        push: push.clone(),
        is_repeated: true,
        change,
    };
    if let Some(push) = terms.run.as_ref().and_then(|run| record.push_of_run(run)) {
        return Ok(repeated(push, None));
    }
    if let Some(version) = same_as_current(record, &detail, &terms) {
        let push = PushRecord {
            version,
            source: detail.source,
            base: None,
            state: PushState::Swapped,
            error: None,
            bytes_total: detail.bytes,
            records: detail.records,
            started_unix_ms: now_unix_ms,
            ended_unix_ms: Some(now_unix_ms),
            run: terms.run,
            with: Default::default(),
            canary: None,
            gates: Gates::default(),
            compared: None,
            confirmation: None,
            serve_while_copying: false,
        };
        // A later request of the run has the same answer, though another version may be current then.
        let mut after = record.clone();
        after.remember_run(push.clone());
        let change = (after != *record).then(|| Change::of([Write::over(before, after)]));
        return Ok(repeated(&push, change));
    }
    let change = push(view, name, detail, terms, now_unix_ms)?;
    let begun = change.store().and_then(|record| record.push.clone());
    Ok(Pushed {
        push: begun.ok_or_else(|| OperatorError::PushNotFound { store: name.clone() })?,
        is_repeated: false,
        change: Some(change),
    })
}

/// The current version, if another one of this detail would answer the same. On top of a version of a hybrid store it
/// matters which events count.
fn same_as_current(record: &StoreRecord, detail: &VersionDetail, terms: &PushTerms) -> Option<VersionNumber> {
    let version = record.versions.current()?;
    let current = record.details.get(&version)?;
    let as_of_unix_ms = terms.as_of_unix_ms.or(terms.cut_unix_ms);
    let same_events = match &record.definition.stream {
        None => terms.as_of_unix_ms.is_none(),
        Some(stream) => {
            let of_current = current.events.map(|events| (events.as_of_unix_ms, events.ttl_ms));
            as_of_unix_ms.is_some() && of_current == Some((as_of_unix_ms, stream.ttl_ms))
        }
    };
    let is_same = current.manifest_checksum == detail.manifest_checksum && same_events;
    (is_same && !terms.again && record.pushing().is_none()).then_some(version)
}

/// Checks that a version which was built from a difference was built from the current version of the store; it may also
/// be the current one itself.
///
/// # Errors
/// No such store, or another current version.
pub fn check_base(view: &ClusterView, name: &StoreName, base: &str, own: &str) -> Result<(), OperatorError> {
    let record = &super::store(view, name)?.record;
    let current = record
        .versions
        .current()
        .and_then(|current| record.details.get(&current));
    match current.map(|current| &*current.manifest_checksum) {
        Some(current) if current != base && current != own => Err(OperatorError::BaseChanged {
            store: name.clone(),
            base: base.to_owned(),
            current: current.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Begins a push of the version with this detail. On top of a version of a hybrid store count the events since the
/// start of the push less the store's rewind, or on top of a difference those that count on top of its base; and if the
/// version is known to contain all events up to a time, those after it.
///
/// # Errors
/// No such store, a versioned one, another current version than the one it is built from or meant for, such a time for a batch store
/// or in the future, another push of it, too many pushes, a version beyond the store's space quota.
pub fn push(
    view: &ClusterView,
    name: &StoreName,
    mut detail: VersionDetail,
    terms: PushTerms,
    now_unix_ms: u64,
) -> Result<Change, OperatorError> {
    let before = batch(view, name)?;
    let record = &before.record;
    let current = record.versions.current();
    if let Some(version) = terms.if_current.filter(|_| terms.if_current != current) {
        let store = name.clone();
        return Err(OperatorError::CurrentChanged { store, version });
    }
    if let Some(base) = &terms.base {
        check_base(view, name, base, &detail.manifest_checksum)?;
    }
    detail.events = events_on_top(record, &terms, now_unix_ms)?;
    check_canary(view, record, &terms)?;
    check_room(view, record)?;
    check_space_quota(record, detail.bytes)?;
    let gates = gates_of(view, record, &terms)?;
    check_serving(view, record, &gates, &terms)?;
    let mut record = record.clone();
    let version = record.versions.allocate();
    if let Some(mut before) = record.push.take() {
        // A version that was held gives way.
        if !before.state.is_end() {
            before.error = Some(format!("version {version} was pushed in its place"));
            before.advance(PushEvent::Cancelled, now_unix_ms);
        }
        record.remember_run(before);
    }
    record.push = Some(PushRecord {
        version,
        source: detail.source.clone(),
        base: terms.base.and(current),
        state: PushState::Fetching,
        error: None,
        bytes_total: detail.bytes,
        records: detail.records,
        started_unix_ms: now_unix_ms,
        ended_unix_ms: None,
        run: terms.run,
        with: Default::default(),
        canary: terms.canary.map(CanaryRecord::new),
        gates,
        compared: None,
        confirmation: None,
        serve_while_copying: terms.serve_while_copying,
    });
    record.details.insert(version, detail);
    record.forget_details();
    Ok(Change::of([Write::over(before, record)]))
}

/// The gates of a new push: those of the store, and its own.
fn gates_of(view: &ClusterView, record: &StoreRecord, terms: &PushTerms) -> Result<Gates, OperatorError> {
    let gates = record.definition.gates.clone().unwrap_or_default().with(&terms.gates);
    let (store, in_force) = (record.definition.name.clone(), view.protocol());
    match gates.iter().count() {
        0 => Ok(gates),
        _ if in_force < PROTOCOL_OF_GATES => Err(OperatorError::NotYetSpoken {
            store,
            what: "--gate".to_owned(),
            in_force,
        }),
        count if count > Gates::MAX => Err(OperatorError::InvalidDefinition {
            store,
            reason: format!("{count} gates, of the store and the push: use at most {}", Gates::MAX),
        }),
        _ => Ok(gates),
    }
}

/// Checks that all members know versions that are served while they are copied, and that this one may be.
fn check_serving(
    view: &ClusterView,
    record: &StoreRecord,
    gates: &Gates,
    terms: &PushTerms,
) -> Result<(), OperatorError> {
    let (store, in_force) = (record.definition.name.clone(), view.protocol());
    let reason = match &record.definition.kind {
        _ if !terms.serve_while_copying => return Ok(()),
        _ if in_force < PROTOCOL_OF_SERVING_WHILE_COPYING => {
            let what = "--serve-while-copying".to_owned();
            return Err(OperatorError::NotYetSpoken { store, what, in_force });
        }
        StoreKind::Batch if gates.iter().count() == 0 => return Ok(()),
        StoreKind::Batch => {
            "its gates compare whole versions, which nodes must have first: leave out --serve-while-copying"
        }
        _ => "only versions of batch stores are served while they are copied: leave out --serve-while-copying",
    };
    let reason = reason.to_owned();
    Err(OperatorError::InvalidDefinition { store, reason })
}

/// The events that count on top of a new version of a hybrid store; `None` for a batch store.
///
/// # Errors
/// A version of a batch store goes up to a time, or that of a hybrid store up to a time in the future.
fn events_on_top(
    record: &StoreRecord,
    terms: &PushTerms,
    now_unix_ms: u64,
) -> Result<Option<VersionEvents>, OperatorError> {
    let store = || record.definition.name.clone();
    let Some(stream) = &record.definition.stream else {
        return match terms.as_of_unix_ms {
            Some(_) => Err(OperatorError::NotHybrid { store: store() }),
            None => Ok(None),
        };
    };
    let current = record.versions.current();
    let current = current.and_then(|current| record.details.get(&current)?.events);
    // A difference contains no more events than what it changes.
    let of_base = current.filter(|_| terms.base.is_some());
    let as_of_unix_ms = terms.as_of_unix_ms.or(terms.cut_unix_ms);
    let as_of_unix_ms = as_of_unix_ms.or_else(|| of_base?.as_of_unix_ms);
    if let Some(as_of_unix_ms) = as_of_unix_ms.filter(|&as_of_unix_ms| as_of_unix_ms > now_unix_ms) {
        let store = store();
        return Err(OperatorError::AsOfLater { store, as_of_unix_ms });
    }
    let started_unix_ms = terms.started_unix_ms.unwrap_or(now_unix_ms).min(now_unix_ms);
    // Events may be logged before they happen, by clocks that are not equal.
    let from_unix_ms = as_of_unix_ms.map_or(started_unix_ms, |as_of_unix_ms| as_of_unix_ms.min(started_unix_ms));
    let from_unix_ms = from_unix_ms.saturating_sub(stream.rewind_ms);
    // If it is not known which events a difference contains, all that are on top of its base are on top of it.
    let of_base = of_base.filter(|_| as_of_unix_ms.is_none());
    let expires = stream.ttl_ms.is_some() || terms.undated_unix_ms.is_some();
    let data_unix_ms = as_of_unix_ms.unwrap_or(started_unix_ms);
    Ok(Some(VersionEvents {
        from_unix_ms: of_base.map_or(from_unix_ms, |base| base.from_unix_ms.min(from_unix_ms)),
        as_of_unix_ms,
        ttl_ms: stream.ttl_ms,
        undated_unix_ms: expires.then(|| terms.undated_unix_ms.unwrap_or(data_unix_ms)),
    }))
}

/// Checks that all members know canaries, and that the nodes and zones of this one exist.
fn check_canary(view: &ClusterView, record: &StoreRecord, terms: &PushTerms) -> Result<(), OperatorError> {
    let Some(canary) = &terms.canary else {
        return Ok(());
    };
    let store = record.definition.name.clone();
    let in_force = view.protocol();
    if in_force < PROTOCOL_OF_CANARIES {
        let what = "--canary".to_owned();
        return Err(OperatorError::NotYetSpoken { store, what, in_force });
    }
    let unknown = match &canary.reads {
        CanaryReads::Share(_) => None,
        CanaryReads::Nodes(nodes) => {
            let unknown = nodes.iter().find(|node| !view.nodes.contains_key(node));
            unknown.map(|node| format!("node {node}"))
        }
        CanaryReads::Zones(zones) => {
            let has_zone = |zone: &&String| view.nodes.values().any(|node| node.record.zone == **zone);
            let unknown = zones.iter().find(|zone| !has_zone(zone));
            unknown.map(|zone| format!("node in zone {zone:?}"))
        }
    };
    match unknown {
        Some(what) => Err(OperatorError::CanaryNowhere { store, what }),
        None => Ok(()),
    }
}

/// Checks that a store is not being pushed to, and that not too many others are.
fn check_room(view: &ClusterView, record: &StoreRecord) -> Result<(), OperatorError> {
    if let Some(version) = record.pushing() {
        let store = record.definition.name.clone();
        return Err(OperatorError::PushInProgress { store, version });
    }
    let pushing = view.stores.values().filter(|store| store.record.pushing().is_some());
    match pushing.count() < PUSHES_MAX {
        true => Ok(()),
        false => Err(OperatorError::TooManyPushes { max: PUSHES_MAX }),
    }
}

/// Checks that a version of this size fits into the space quota of a store. The versions that would be kept for rollback once it is
/// current count, and those that it would replace do not.
///
/// # Errors
/// [`OperatorError::OverSpaceQuota`].
pub fn check_space_quota(store: &StoreRecord, bytes: u64) -> Result<(), OperatorError> {
    let Some(quota_bytes) = store.definition.space_quota_bytes else {
        return Ok(());
    };
    let kept = store.versions.kept().take(store.definition.backups as usize);
    let kept_bytes: u64 = kept
        .filter_map(|version| store.details.get(&version))
        .map(|detail| detail.bytes)
        .sum();
    if bytes.saturating_add(kept_bytes) <= quota_bytes {
        return Ok(());
    }
    Err(OperatorError::OverSpaceQuota {
        store: store.definition.name.clone(),
        bytes,
        kept_bytes,
        quota_bytes,
    })
}

/// Cancels the push under way of a store; if a version is given, only that of this version.
///
/// # Errors
/// No such store, a versioned one, it was never pushed to, or the push has ended.
pub fn cancel_push(
    view: &ClusterView,
    name: &StoreName,
    version: Option<VersionNumber>,
    now_unix_ms: u64,
) -> Result<Change, OperatorError> {
    let before = batch(view, name)?;
    let mut record = before.record.clone();
    match &mut record.push {
        None => return Err(OperatorError::PushNotFound { store: name.clone() }),
        Some(push) if push.state.is_end() || version.is_some_and(|version| version != push.version) => {
            return Err(OperatorError::PushEnded { store: name.clone() });
        }
        Some(push) => push.advance(PushEvent::Cancelled, now_unix_ms),
    }
    record.forget_details();
    Ok(Change::of([Write::over(before, record)]))
}

/// Writes the comparison of the current version with the pushed one into the push whose gates wait for it; `None` if none does any
/// more.
///
/// # Errors
/// No such store, or a versioned one.
pub fn put_comparison(
    view: &ClusterView,
    name: &StoreName,
    version: VersionNumber,
    report: &GateReport,
) -> Result<Option<Change>, OperatorError> {
    let before = batch(view, name)?;
    if awaits_comparison(&before.record) != Some((report.from, version)) {
        return Ok(None);
    }
    let mut record = before.record.clone();
    if let Some(push) = &mut record.push {
        push.compared = Some(Box::new(report.clone()));
    }
    Ok(Some(Change::of([Write::over(before, record)])))
}

/// Makes a kept version current; `None` if it is current already. The view must have the reports of nodes.
///
/// # Errors
/// No such store or version, a versioned store, or a version with a partition that is ready on no node.
pub fn swap(view: &ClusterView, name: &StoreName, version: VersionNumber) -> Result<Option<Change>, OperatorError> {
    let before = batch(view, name)?;
    let record = &before.record;
    if !record.versions.contains(version) {
        return Err(OperatorError::VersionNotFound {
            store: name.clone(),
            version,
            kept: kept(record),
        });
    }
    if record.versions.current() == Some(version) {
        return Ok(None);
    }
    let record = with_current(view, record, version)?;
    Ok(Some(Change::of([Write::over(before, record)]).while_same_routing(view)))
}

/// Makes a version current that the gates of its push hold; `None` if it is not held. The view must have the reports of nodes.
///
/// # Errors
/// No such store, a versioned store, or a version with a partition that is ready on no node.
pub fn swap_held(
    view: &ClusterView,
    name: &StoreName,
    version: VersionNumber,
    now_unix_ms: u64,
) -> Result<Option<Change>, OperatorError> {
    let before = batch(view, name)?;
    let is_it = |push: &PushRecord| push.state == PushState::Held && push.version == version;
    if !before.record.push.as_ref().is_some_and(is_it) {
        return Ok(None);
    }
    let mut record = with_current(view, &before.record, version)?;
    if let Some(push) = &mut record.push {
        if push.awaits_confirmation() {
            push.error = None;
        }
        push.confirmation = push.confirmation.map(|_| ConfirmationState::Given);
        push.advance(PushEvent::Swapped, now_unix_ms);
    }
    record.versions.expire(record.definition.backups);
    record.forget_details();
    Ok(Some(Change::of([Write::over(before, record)]).while_same_routing(view)))
}

/// The record of a store with another current version.
fn with_current(
    view: &ClusterView,
    record: &StoreRecord,
    version: VersionNumber,
) -> Result<StoreRecord, OperatorError> {
    let name = &record.definition.name;
    if let Some(partition) = unready_partition(view, name, version) {
        return Err(OperatorError::VersionNotReady {
            store: name.clone(),
            version,
            partition,
        });
    }
    let late = late_among(view, record, version, view.replicas(record));
    let mut record = record.clone();
    record.versions.make_current(version);
    record.late = late;
    Ok(record)
}

/// Goes back to the given version, or to the one before the current one. The view must have the reports of nodes.
///
/// # Errors
/// As [`swap`], and [`OperatorError::NoRollback`] if there is no earlier version.
pub fn roll_back(
    view: &ClusterView,
    name: &StoreName,
    to: Option<VersionNumber>,
) -> Result<Option<Change>, OperatorError> {
    let record = &batch(view, name)?.record;
    swap(view, name, to.map_or_else(|| rollback_target(record), Ok)?)
}

/// The version that a store goes back to.
///
/// # Errors
/// [`OperatorError::NoRollback`] if there is none.
pub(super) fn rollback_target(record: &StoreRecord) -> Result<VersionNumber, OperatorError> {
    let target = record.versions.rollback_target();
    target.ok_or_else(|| OperatorError::NoRollback {
        store: record.definition.name.clone(),
        kept: kept(record),
    })
}

/// A store that is pushed to.
pub(super) fn batch<'a>(view: &'a ClusterView, name: &StoreName) -> Result<&'a Revised<StoreRecord>, OperatorError> {
    let store = super::store(view, name)?;
    match store.record.definition.kind {
        StoreKind::Batch | StoreKind::Hybrid => Ok(store),
        StoreKind::Versioned => Err(OperatorError::Versioned { store: name.clone() }),
    }
}

fn kept(record: &StoreRecord) -> String {
    let kept: Vec<_> = record.versions.kept().map(|version| version.to_string()).collect();
    match kept.is_empty() {
        true => "none".to_owned(),
        false => kept.join(", "),
    }
}
