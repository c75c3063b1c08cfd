//! Creates and alters stores.

use std::collections::BTreeSet;

use fondaco_model::cluster::{ClusterView, NodeRecord, Numbers, Revised, StoreRecord};
use fondaco_model::versioned::{EngineKind, Resolution, VersionedChange, VersionedSettings};
use fondaco_model::{
    PROTOCOL_OF_CENTERS, PROTOCOL_OF_EVENT_WRITES, PROTOCOL_OF_TYPES, STORES_MAX, StoreChange, StoreDefinition,
    StoreKind, StoreName, StreamSettings, ValueType,
};

use super::count::{QuorumChange, next_settings};
use super::lists::{ReplicasMax, lengthened};
use super::schema::deleted_schemas;
use super::{OperatorError, store};
use crate::change::{Change, RecordPath, Write};
use crate::readiness::{late_among, unready_among};

/// The settings of a new versioned store: the operator's, with defaults that follow from the number of its replicas.
///
/// # Errors
/// No cluster; or the placement determines the number of replicas, and there are no nodes yet.
pub fn versioned_settings(
    view: &ClusterView,
    replicas: Option<u32>,
    change: &VersionedChange,
) -> Result<VersionedSettings, OperatorError> {
    Ok(VersionedSettings::of(nominal_replicas(view, replicas)?).with(change))
}

/// A new store. If it has more replicas than the lists of the routing table have nodes, the lists become longer.
///
/// # Errors
/// A store of this name exists, there are too many stores, or the definition is invalid; or lists cannot become longer now.
pub fn create_store(
    view: &ClusterView,
    definition: StoreDefinition,
    now_unix_ms: u64,
) -> Result<Change, OperatorError> {
    check(view, &definition)?;
    check_engine(view, &definition)?;
    check_spoken(view, &definition)?;
    let name = definition.name.clone();
    if view.stores.contains_key(&name) {
        return Err(OperatorError::StoreExists { store: name });
    }
    let id = free_id(view).ok_or(OperatorError::TooManyStores { max: STORES_MAX })?;
    let longer = definition.replicas.map(|replicas| lengthened(view, replicas));
    let longer = longer.transpose()?.flatten();
    let given_out = view.numbers.as_ref().map(|numbers| numbers.record).unwrap_or_default();
    let numbers = Numbers {
        last_store: id,
        stores_created: given_out.stores_created + 1,
        ..given_out
    };
    let writes = [
        Write::of(None, StoreRecord::new(definition, id, now_unix_ms)),
        Write::of(view.numbers.as_ref().map(|numbers| numbers.revision), numbers),
    ];
    let routing = view.routing.as_ref().zip(longer);
    let routing = routing.map(|(table, longer)| Write::over(table, longer));
    // If the number was that of a dropped store, so were they.
    let former = deleted_schemas(view, id);
    Ok(Change::of(writes.into_iter().chain(routing).chain(former)))
}

/// Changes the definition of a store. Surplus versions are given up.
///
/// A versioned store changes its number of replicas by a plan. Of other stores a lower number needs the reports of nodes in the view:
/// the remaining replicas must have all kept versions. For a higher number lists become longer, as for a new store; the new
/// nodes fetch what they lack.
///
/// # Errors
/// No such store, or a value that is invalid, or not possible now.
pub fn alter_store(
    view: &ClusterView,
    name: &StoreName,
    change: &StoreChange,
    now_unix_ms: u64,
) -> Result<Change, OperatorError> {
    let before = store(view, name)?;
    let mut record = before.record.clone();
    apply(change, &mut record)?;
    let replicas_now = view.replicas(&before.record) as u32;
    let replicas_next = change.replicas.map(|own| nominal_replicas(view, own)).transpose()?;
    let replicas_next = replicas_next.unwrap_or(replicas_now);
    record.definition.versioned = next_settings(view, &before.record, replicas_next, change);
    check_unchangeable(&before.record.definition, &record.definition)?;
    check(view, &record.definition)?;
    let resolution = change.versioned.as_ref().and_then(|change| change.resolution);
    let stream = change.stream.as_ref();
    let has_limits = stream.is_some_and(|stream| stream.ttl_ms.is_some() || stream.write_keys_per_second.is_some());
    let has_gates = change.gates.as_ref().is_some_and(Option::is_some);
    if has_limits || has_gates || resolution == Some(Resolution::Fields) {
        check_spoken(view, &record.definition)?;
    }
    record.versions.expire(record.definition.backups);
    record.forget_details();
    if let (Some(now), Some(next)) = (view.settings(&before.record), record.definition.versioned) {
        let versioned = change.versioned.as_ref();
        let change = QuorumChange {
            view,
            before,
            record,
            now: now.quorums(replicas_now),
            next: next.quorums(replicas_next),
            names_quorums: versioned.is_some_and(|change| change.reads.is_some() || change.writes.is_some()),
        };
        return change.carry_out(now_unix_ms);
    }
    change_copies(view, before, record)
}

/// Makes a change in a store's record, but for the settings of a versioned store.
fn apply(change: &StoreChange, record: &mut StoreRecord) -> Result<(), OperatorError> {
    let definition = &mut record.definition;
    let store = definition.name.clone();
    if let Some(change) = &change.stream {
        let settings = definition.stream.take();
        let settings = settings.ok_or_else(|| OperatorError::NotHybrid { store: store.clone() })?;
        definition.stream = Some(settings.with(change));
    }
    if change.versioned.is_some() && definition.versioned.is_none() {
        return Err(OperatorError::NotVersioned { store });
    }
    definition.apply(change);
    // A store is everywhere, or has a number of replicas: each takes the other back, and both at once are refused later.
    match (change.replicas, change.everywhere) {
        (Some(_), None) => definition.everywhere = false,
        (None, Some(true)) => definition.replicas = None,
        _ => {}
    }
    if change.space_quota_bytes.is_some() {
        // The leading controller says so again if it is over the new one, too.
        record.over_quota = false;
    }
    Ok(())
}

/// The change of a batch or hybrid store. If fewer nodes are to have its partitions, these must have all kept versions.
fn change_copies(
    view: &ClusterView,
    before: &Revised<StoreRecord>,
    mut record: StoreRecord,
) -> Result<Change, OperatorError> {
    let (replicas, replicas_before) = (view.replicas(&record), view.replicas(&before.record));
    // Of a store that was everywhere, nodes give up partitions whatever the numbers are: some placements have a whole list.
    let (was_everywhere, is_everywhere) = (before.record.definition.everywhere, record.definition.everywhere);
    let shrinks = !is_everywhere && (was_everywhere || replicas < replicas_before);
    let longer = match !is_everywhere && replicas != replicas_before {
        true => lengthened(view, replicas as u32)?,
        false => None,
    };
    if shrinks && view.routing.is_some() {
        if let Some(current) = record.versions.current() {
            record.late = late_among(view, &before.record, current, replicas);
        }
        let unready = |version| Some((version, unready_among(view, &before.record, version, replicas)?));
        if let Some((version, partition)) = record.versions.kept().find_map(unready) {
            let store = record.definition.name;
            return Err(OperatorError::VersionNotReady {
                store,
                version,
                partition,
            });
        }
    }
    let mut change = Change::of([Write::over(before, record)]);
    match (&view.routing, longer) {
        (Some(table), Some(longer)) => change.writes.push(Write::over(table, longer)),
        (Some(table), None) if shrinks => change.unchanged.push((RecordPath::Routing, table.revision)),
        _ => {}
    }
    Ok(change)
}

/// A number for a new store: the next unused one; once those are used up, the number of a dropped store, preferably one
/// that is no longer remembered.
fn free_id(view: &ClusterView) -> Option<u16> {
    let stores = view.stores.values().map(|store| store.record.id);
    let counted = view
        .routing
        .iter()
        .flat_map(|table| table.record.counts().keys().copied());
    let taken: BTreeSet<u16> = stores.chain(counted).collect();
    let remembered = view.numbers.as_ref().map_or(0, |numbers| numbers.record.last_store);
    let last = remembered
        .max(taken.last().copied().unwrap_or(0))
        .min(STORES_MAX as u16);
    let after = last + 1..=STORES_MAX as u16;
    let before = 1..=last;
    let mut free = after.chain(before).filter(|id| !taken.contains(id));
    let forgotten = free.clone().find(|id| !view.dropped.contains_key(id));
    forgotten.or_else(|| free.next())
}

/// Refuses changes of a versioned store that would require all its data to be written again.
fn check_unchangeable(before: &StoreDefinition, after: &StoreDefinition) -> Result<(), OperatorError> {
    let engine = |definition: &StoreDefinition| definition.versioned.map(|settings| settings.engine);
    let what = match before.kind {
        StoreKind::Versioned if engine(before) != engine(after) => "engine",
        StoreKind::Versioned | StoreKind::Batch | StoreKind::Hybrid => return Ok(()),
    };
    let store = before.name.clone();
    Err(OperatorError::Unchangeable { store, what })
}

fn invalid(definition: &StoreDefinition, reason: impl Into<String>) -> OperatorError {
    OperatorError::InvalidDefinition {
        store: definition.name.clone(),
        reason: reason.into(),
    }
}

fn check(view: &ClusterView, definition: &StoreDefinition) -> Result<(), OperatorError> {
    if view.cluster.is_none() {
        return Err(OperatorError::NoCluster);
    }
    let refuse = |reason: &str| Err(invalid(definition, reason));
    let StoreDefinition {
        kind,
        backups,
        replicas,
        read_keys_per_second,
        space_quota_bytes,
        ..
    } = *definition;
    if backups > StoreDefinition::BACKUPS_MAX {
        return refuse(&format!(
            "{backups} backups: keep 0 to {}",
            StoreDefinition::BACKUPS_MAX
        ));
    }
    if definition.everywhere && (replicas.is_some() || kind == StoreKind::Versioned) {
        return refuse("only batch and hybrid stores can be on all nodes, and then it has no number of replicas");
    }
    if let Some(replicas) = replicas {
        let ReplicasMax { number, reason } = ReplicasMax::of(view)?;
        if !(1..=number).contains(&replicas) {
            return refuse(&format!("{replicas} replicas: a store has 1 to {number}, {reason}"));
        }
    }
    if read_keys_per_second == Some(0) {
        return refuse("the limit of keys read a second is 0: allow 1 or more, or leave out the limit");
    }
    if space_quota_bytes == Some(0) {
        return refuse("the space quota is 0 bytes: allow more, or leave out the quota");
    }
    if let (StoreKind::Versioned, Some(fan_out)) = (kind, definition.fan_out) {
        return refuse(&format!(
            "fan-out {fan_out}: a versioned store is read from the replicas that its quorums need"
        ));
    }
    if definition.value_type == ValueType::Graph && !definition.key_type.is_bytes() {
        return refuse("the keys of a graph are those of its vertices: leave out the type of keys");
    }
    check_stream(definition)?;
    match (kind, &definition.versioned) {
        (StoreKind::Versioned, None) => refuse("a versioned store needs settings: give all of them, or none"),
        (StoreKind::Versioned, Some(settings)) => check_versioned(view, definition, settings),
        (StoreKind::Batch | StoreKind::Hybrid, None) => Ok(()),
        (StoreKind::Batch | StoreKind::Hybrid, Some(_)) => Err(OperatorError::NotVersioned {
            store: definition.name.clone(),
        }),
    }
}

/// Whether registries of the producers of events have schemas for values of this type.
fn has_outside_schemas(value_type: ValueType) -> bool {
    value_type.has_schemas() || value_type == ValueType::Json
}

fn check_stream(definition: &StoreDefinition) -> Result<(), OperatorError> {
    let reason = match (definition.kind, &definition.stream) {
        (StoreKind::Hybrid, None) => "a hybrid store needs a stream: say where events come from".to_owned(),
        (StoreKind::Hybrid, Some(stream)) => match stream.check() {
            Err(reason) => reason,
            Ok(()) if stream.registry.is_some() && !has_outside_schemas(definition.value_type) => format!(
                "a registry is for values of type avro, protobuf or json, and not of type {}: say which, with --value-type",
                definition.value_type
            ),
            Ok(()) if definition.value_type == ValueType::Graph && stream.ttl_ms.is_some() => {
                "the records of a graph belong together: a graph has no time to live".to_owned()
            }
            Ok(()) => return Ok(()),
        },
        (_, Some(_)) => "only a hybrid store has a stream".to_owned(),
        (_, None) => return Ok(()),
    };
    Err(invalid(definition, reason))
}

fn check_versioned(
    view: &ClusterView,
    definition: &StoreDefinition,
    settings: &VersionedSettings,
) -> Result<(), OperatorError> {
    let evicts = settings.engine == EngineKind::Cache;
    if evicts && definition.space_quota_bytes.is_some() {
        let reason = "a store of the engine cache has no space quota: it evicts when its cache is full";
        return Err(invalid(definition, reason));
    }
    if definition.value_type == ValueType::Graph && (settings.ttl_ms.is_some() || evicts) {
        let reason = "the records of a graph belong together: a graph has no time to live, and no engine that evicts";
        return Err(invalid(definition, reason));
    }
    let zones: BTreeSet<&str> = view.nodes.values().map(|node| node.record.zone.as_str()).collect();
    let checked = settings.check(nominal_replicas(view, definition.replicas)?, zones.len() as u32);
    checked.map_err(|error| OperatorError::InvalidSettings {
        store: definition.name.clone(),
        error,
    })
}

/// Checks that all live nodes have the engine of a new store.
fn check_engine(view: &ClusterView, definition: &StoreDefinition) -> Result<(), OperatorError> {
    let engine = definition.versioned.map(|settings| settings.engine);
    let nodes = view.nodes.values().map(|node| &node.record);
    let lacks = |node: &&NodeRecord| {
        let announcement = view.announcements.get(&node.identity);
        announcement.is_some_and(|announcement| !announcement.mysql)
    };
    let nodes: Vec<String> = nodes.filter(lacks).map(|node| node.id.to_string()).collect();
    match engine {
        Some(EngineKind::Mysql) if !nodes.is_empty() => Err(OperatorError::NoMysql {
            store: definition.name.clone(),
            nodes: nodes.join(", "),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Checks that all members of the cluster know the types and options of a store.
fn check_spoken(view: &ClusterView, definition: &StoreDefinition) -> Result<(), OperatorError> {
    let in_force = view.protocol();
    let is_old = matches!(definition.value_type, ValueType::Bytes) || definition.value_type.has_sets();
    let settings = definition.versioned.as_ref();
    let is_by_field = settings.is_some_and(|settings| settings.resolution == Resolution::Fields);
    let stream = definition.stream.as_ref();
    let what = match (is_old, definition.key_type.is_bytes()) {
        _ if in_force >= PROTOCOL_OF_TYPES.max(PROTOCOL_OF_EVENT_WRITES).max(PROTOCOL_OF_CENTERS) => return Ok(()),
        _ if stream.is_some_and(|stream| stream.data_center.is_some()) => "--data-center".to_owned(),
        _ if stream.is_some_and(|stream| stream.clock_ahead_ms != StreamSettings::CLOCK_AHEAD_MS) => {
            "--max-clock-ahead".to_owned()
        }
        _ if is_by_field => format!("--resolution {}", Resolution::Fields),
        _ if stream.is_some_and(|stream| stream.ttl_ms.is_some()) => "--ttl for a hybrid store".to_owned(),
        _ if stream.is_some_and(|stream| stream.write_keys_per_second.is_some()) => {
            "--write-keys-per-second for a hybrid store".to_owned()
        }
        _ if definition.gates.is_some() => "--gate".to_owned(),
        _ if stream.is_some_and(|stream| !stream.acknowledge.is_default()) => "--acknowledge".to_owned(),
        _ if stream.is_some() && definition.value_type.has_sets() => {
            format!("--value-type {} for a hybrid store", definition.value_type)
        }
        (false, _) => format!("--value-type {}", definition.value_type),
        (true, false) => format!("--key-type {}", definition.key_type),
        (true, true) => return Ok(()),
    };
    Err(OperatorError::NotYetSpoken {
        store: definition.name.clone(),
        what,
        in_force,
    })
}

/// How many replicas a store has when all nodes are live, given the number that its operator set.
fn nominal_replicas(view: &ClusterView, own: Option<u32>) -> Result<u32, OperatorError> {
    let cluster = view.cluster.as_ref().ok_or(OperatorError::NoCluster)?;
    match own {
        Some(own) => Ok(own),
        None if cluster.placement.is_whole() => Ok(ReplicasMax::of(view)?.number),
        None => Ok(cluster.replicas),
    }
}
