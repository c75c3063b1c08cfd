//! The changes of versioned stores: each partition's come from one of its replicas, which continues its own positions exactly, and those of
//! others with repeats. So the replica that gave a position is asked again as long as it is live and can answer, also after a timeout.
//!
//! A position covers all partitions, and is long. So only the last change of a step has one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fondaco_api::{ChangesPart, PartChange, RecordsPart};
use fondaco_catalog::VersionedStore;
use fondaco_model::cluster::{ClusterView, StoreRecord};
use fondaco_model::versioned::resolve_with;
use fondaco_model::{NodeId, PartitionId, RoutingTable, StoreName, first_replicas};
use fondaco_node::FollowedChange;
use fondaco_replica::{ChangePosition, Changes, ChangesError, ChangesFrom, RecordChange};
use fondaco_schema::merge_fields;
use tokio::task::JoinSet;

use super::follow::{Begin, PAGE_BYTES, Step};
use super::owners::ask_part;
use super::part::Asked;
use super::position::{POSITION_CHARS_MAX, Place, Position, RecordsPlace};
use super::too_far_behind;
use crate::app::App;
use crate::error::ApiError;

/// How long a node waits for changes. Those of other nodes wait as long.
const NODE_WAIT: Duration = Duration::from_millis(200);
const NODE_WAIT_MS_MAX: u64 = 1000;

/// How many changes a node is asked for at most.
const COUNT_MAX: usize = 1000;

/// How long a node reads for a request. Partitions that it has not come to are read by a later one.
const READ_TIME_MAX: Duration = Duration::from_secs(2);

/// How long it may take until a follower that begins now has a position in each partition.
const START_TIME_MAX: Duration = Duration::from_secs(8);

/// The place of a follower that begins.
pub(super) async fn start(app: &App, store: &StoreRecord, begin: &Begin) -> Result<RecordsPlace, ApiError> {
    let partitions = app.operator.mirror().view().partitions();
    let partitions = partitions.ok_or_else(|| ApiError::new("unavailable", "no node has partitions yet"))?;
    let since_unix_ms = match begin {
        Begin::Beginning => 0,
        &Begin::Time(time_unix_ms) => time_unix_ms.clamp(1, u64::MAX - 1),
        Begin::Now | Begin::At(_) => u64::MAX,
        Begin::Version(version) => {
            let name = &store.definition.name;
            return Err(ApiError::invalid(format!(
                "version:{version} is no place to begin in store {name:?}: it is versioned by key; use now, beginning or time:MILLISECONDS"
            )));
        }
    };
    let place = RecordsPlace {
        partitions,
        since_unix_ms,
        of: partitions.partitions().map(|partition| (partition, None)).collect(),
    };
    if since_unix_ms != u64::MAX {
        return Ok(place);
    }
    // Now is a moment: it must not be another one when a partition is asked later.
    let (begun, mut all, mut missing) = (Instant::now(), place.clone(), place);
    loop {
        let step = step(app, store, &missing, (COUNT_MAX, Duration::ZERO)).await?;
        if let Place::Records(place) = step.position.place {
            all.partitions = place.partitions;
            all.of.extend(place.of.clone());
            missing = place;
            missing.of.retain(|_, position| position.is_none());
        }
        if missing.of.is_empty() {
            return Ok(all);
        }
        if step.waits_for.is_some() || begun.elapsed() > START_TIME_MAX {
            let reason = step
                .waits_for
                .unwrap_or_else(|| "the partitions are being read".to_owned());
            return Err(ApiError::new("unavailable", reason));
        }
    }
}

/// The next changes after a place: at most so many, waited for for a while.
pub(super) async fn step(
    app: &App,
    store: &StoreRecord,
    place: &RecordsPlace,
    (limit, wait): (usize, Duration),
) -> Result<Step, ApiError> {
    let view = app.operator.mirror().view();
    let table = view.routing.as_ref().map(|table| &table.record);
    let table = table.ok_or_else(|| ApiError::new("unavailable", "no node has partitions yet"))?;
    let place = place.among(table.partitions());
    let place = place.ok_or_else(|| ApiError::new("unavailable", "this process does not know of a split yet"))?;
    let answered = ask(app, store, (&view, table), &place, (limit, wait)).await?;
    join(store, place, answered, limit)
}

/// The answers of the nodes that were asked for a step.
#[derive(Default)]
struct Answered {
    /// What each partition's node has read of it.
    found: Vec<(PartitionId, NodeId, RecordsPart)>,
    /// Why partitions are not among them, if there is a reason.
    waits_for: Option<String>,
    /// Whether a node did not come to all partitions.
    has_more: bool,
}

/// Asks the nodes that gave the positions of a place, then the other owners of partitions that these could not answer for.
async fn ask(
    app: &App,
    store: &StoreRecord,
    (view, table): (&ClusterView, &RoutingTable),
    place: &RecordsPlace,
    (limit, wait): (usize, Duration),
) -> Result<Answered, ApiError> {
    let owners = |partition: PartitionId, issuer: Option<NodeId>| {
        let owners = first_replicas(table.owners(partition), view.replicas(store))
            .iter()
            .copied();
        let mut owners: Vec<NodeId> = owners.filter(|&node| view.is_live(node)).collect();
        owners.sort_by_key(|&node| Some(node) != issuer);
        owners
    };
    let mut wait_ms = wait.min(NODE_WAIT).as_millis();
    let (mut left, mut answered) = (place.of.clone(), Answered::default());
    for attempt in 0.. {
        let mut by_node = BTreeMap::<NodeId, RecordsPlace>::new();
        for (partition, position) in std::mem::take(&mut left) {
            match owners(partition, position.as_ref().map(|(node, _)| *node)).get(attempt) {
                Some(&node) => {
                    let none = || RecordsPlace {
                        of: BTreeMap::new(),
                        ..place.clone()
                    };
                    by_node.entry(node).or_insert_with(none).of.insert(partition, position);
                }
                None => {
                    let reason = || format!("partition {partition} has no live owner");
                    answered.waits_for.get_or_insert_with(reason);
                }
            }
        }
        if by_node.is_empty() {
            break;
        }
        let mut asked = JoinSet::new();
        for (node, theirs) in by_node {
            let port = app
                .peers
                .port(view.nodes.get(&node).map_or("", |node| &node.record.http));
            let (name, count) = (&store.definition.name, limit.min(COUNT_MAX));
            let position = position_of(store, &theirs).encode();
            let epoch = table.epoch();
            let target = format!(
                "/v1/stores/{name}/changes/part?kind=records&epoch={epoch}&count={count}&wait_ms={wait_ms}&position={position}"
            );
            asked.spawn(async move { (node, theirs, ask_part(port, node, target).await) });
        }
        wait_ms = 0;
        while let Some(answer) = asked.join_next().await {
            let (node, theirs, part) = answer.map_err(|error| ApiError::internal(&error))?;
            let mut part = match part {
                Ok(part) => part,
                Err(error) if error.code() == "unavailable" => {
                    answered.waits_for = Some(error.message().to_owned());
                    // Another node would repeat changes after the positions that this one gave.
                    let is_its = |position: &Option<(NodeId, _)>| position.as_ref().is_some_and(|(of, _)| *of == node);
                    left.extend(theirs.of.into_iter().filter(|(_, position)| !is_its(position)));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for (partition, position) in theirs.of {
                match part.records.remove(&partition.get()) {
                    Some(read) if read.position.is_some() => answered.found.push((partition, node, read)),
                    Some(read) => {
                        answered.waits_for = read.reason;
                        if read.is_elsewhere {
                            left.insert(partition, position);
                        }
                    }
                    None => answered.has_more = true,
                }
            }
        }
    }
    Ok(answered)
}

/// A step of as many changes as a page may have, from the answers of nodes to a place.
fn join(store: &StoreRecord, mut place: RecordsPlace, answered: Answered, limit: usize) -> Result<Step, ApiError> {
    let Answered {
        mut found,
        waits_for,
        has_more,
    } = answered;
    let mut step = Step {
        changes: Vec::new(),
        position: position_of(store, &place),
        lag_events: 0,
        waits_for: waits_for.filter(|_| found.len() < place.of.len()),
        has_more,
    };
    // No partition is always the last one, and comes too late for a page.
    found.sort_unstable_by_key(|(partition, ..)| *partition);
    let turn = turn(found.len());
    found.rotate_left(turn);
    let mut bytes = 0;
    for (partition, node, read) in found {
        let unreadable = || ApiError::new("unavailable", format!("node {node} sent an invalid position"));
        let decoded = |position: Option<String>| {
            let bytes = STANDARD.decode(position?).ok()?;
            Some(Some((node, ChangePosition::decode(&bytes)?)))
        };
        let mut changes = read.changes.into_iter();
        while step.changes.len() < limit
            && bytes < PAGE_BYTES
            && let Some(change) = changes.next()
        {
            let position = decoded(change.position).ok_or_else(unreadable)?;
            place.of.insert(partition, position);
            let bytes_of = |text: String| STANDARD.decode(text).unwrap_or_default();
            step.changes.push(FollowedChange {
                key: bytes_of(change.key),
                before: None,
                after: change.after.map(bytes_of),
                version: 0,
                time_unix_ms: change.time_unix_ms,
                position: String::new(),
            });
            bytes += step.changes.last().map_or(0, FollowedChange::bytes);
        }
        if changes.len() == 0 {
            place
                .of
                .insert(partition, decoded(read.position).ok_or_else(unreadable)?);
            step.has_more |= !read.is_end;
        } else {
            step.has_more = true;
        }
    }
    step.position = position_of(store, &place);
    let text = step.position.encode();
    if text.len() > POSITION_CHARS_MAX {
        let (name, chars, partitions) = (&store.definition.name, text.len(), place.partitions);
        let message = format!(
            "store {name:?} cannot be followed: a position in its {partitions} partitions has {chars} characters, more than \
             {POSITION_CHARS_MAX}; versioned stores of up to 1024 partitions can be followed"
        );
        return Err(ApiError::new("not_followable", message));
    }
    if let Some(last) = step.changes.last_mut() {
        last.position = text;
    }
    Ok(step)
}

fn position_of(store: &StoreRecord, place: &RecordsPlace) -> Position {
    Position {
        created_unix_ms: store.created_unix_ms,
        place: Place::Records(place.clone()),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// The first of some partitions to be read now: each one comes first at some time.
fn turn(partitions: usize) -> usize {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.subsec_micros() as usize) % partitions.max(1)
}

/// The changes of the partitions of a place that this node has.
pub(super) async fn part(app: &App, name: &StoreName, asked: &Asked) -> Result<ChangesPart, ApiError> {
    let invalid = || ApiError::invalid(format!("invalid position {:?}", asked.position));
    let position = Position::decode(&asked.position).ok_or_else(invalid)?;
    let Place::Records(place) = position.place else {
        return Err(invalid());
    };
    let asked_of = place.of.len();
    let count = (asked.count / asked_of.max(1)).clamp(1, COUNT_MAX);
    let mut wait = Duration::from_millis(asked.wait_ms.min(NODE_WAIT_MS_MAX));
    loop {
        let (place, name) = (place.clone(), name.clone());
        // Scans read the disk: clients get most of it. The semaphore is never closed.
        let permit = app.limits.parts.acquire().await.ok();
        let read = app.blocking(move |app| read(app, &name, position.created_unix_ms, &place, count));
        let (part, idle) = read.await?;
        drop(permit);
        if wait.is_zero()
            || part.records.len() < asked_of
            || part
                .records
                .values()
                .any(|read| !read.is_end || !read.changes.is_empty())
        {
            return Ok(part);
        }
        let mut news = JoinSet::new();
        for mut changes in idle {
            news.spawn(async move { changes.wait().await });
        }
        if tokio::time::timeout(wait, news.join_next()).await.is_err() {
            return Ok(part);
        }
        wait = Duration::ZERO;
    }
}

fn read(
    app: &App,
    name: &StoreName,
    created_unix_ms: u64,
    place: &RecordsPlace,
    count: usize,
) -> Result<(ChangesPart, Vec<Changes>), ApiError> {
    let record = app.operator.store(name)?;
    let catalog = app.catalog.load();
    let place_of_store = catalog.store_on_wire(name.as_str().as_bytes());
    let store = place_of_store
        .and_then(|place| catalog.versioned(place))
        .filter(|_| record.created_unix_ms == created_unix_ms);
    let (Some(store), Some(replicas)) = (store, &app.cluster_client.replicas) else {
        let message = format!("this node does not have store {name:?} yet");
        return Err(ApiError::new("unavailable", message));
    };
    let (mut part, mut idle, mut bytes) = (ChangesPart::default(), Vec::new(), 0);
    let begun = Instant::now();
    let first = turn(place.of.len());
    for (&partition, position) in place.of.iter().cycle().skip(first).take(place.of.len()) {
        // The follower takes no more than a page of all.
        if bytes >= PAGE_BYTES || begun.elapsed() >= READ_TIME_MAX {
            break;
        }
        let from = match (position, place.since_unix_ms) {
            (Some((_, position)), _) => ChangesFrom::After(position.clone()),
            (None, 0) => ChangesFrom::Start,
            (None, u64::MAX) => ChangesFrom::Now,
            (None, since_unix_ms) => ChangesFrom::Since(since_unix_ms),
        };
        let read = match replicas.changes(record.id, (place.partitions, partition), &from, count) {
            Ok(mut changes) => {
                let read = RecordsPart {
                    changes: changes
                        .changes
                        .drain(..)
                        .map(|change| resolved(store, change))
                        .collect(),
                    position: Some(STANDARD.encode(changes.position.to_bytes())),
                    is_end: changes.is_end,
                    ..RecordsPart::default()
                };
                let length = |change: &PartChange| change.key.len() + change.after.as_ref().map_or(0, String::len);
                bytes += read.changes.iter().map(length).sum::<usize>();
                idle.push(changes);
                read
            }
            Err(ChangesError::TooFarBehind { reason }) => return Err(too_far_behind(&record, reason)),
            Err(error @ ChangesError::Evicts { .. }) => return Err(ApiError::new("not_followable", error.to_string())),
            Err(error) => RecordsPart {
                reason: Some(error.to_string()),
                is_elsewhere: !matches!(error, ChangesError::Busy),
                ..RecordsPart::default()
            },
        };
        part.records.insert(partition.get(), read);
    }
    Ok((part, idle))
}

/// A change with the value that reads see; of several that clients resolve, the latest.
fn resolved(store: &VersionedStore, change: RecordChange) -> PartChange {
    let merge = |base: Option<&_>, fields: &[(&str, Option<&_>)]| merge_fields(&store.rules(), base, fields);
    let resolved = resolve_with(&change.record, store.settings.resolution, unix_ms(), &merge);
    let written = change.record.siblings().iter().map(|sibling| sibling.written_unix_ms);
    let written = written.max().or_else(|| change.record.context().newest_unix_ms());
    PartChange {
        key: STANDARD.encode(&change.key),
        before: None,
        after: resolved.value().map(|value| STANDARD.encode(value)),
        time_unix_ms: written,
        place: [0, 0],
        position: Some(STANDARD.encode(change.position.to_bytes())),
    }
}
