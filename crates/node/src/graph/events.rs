//! Changes of hybrid graphs: events of the records that a pushed version has, written to the topic of the store.
//!
//! An edge changes the sets of both its ends, so it is two events. All changes may be made again: a vertex that is made by an event has
//! a hash of its name as its id, and members are added to sets and removed from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use fondaco_catalog::EventStore;
use fondaco_client::graph::VertexChange;
use fondaco_graph::keys::{self, Direction};
use fondaco_graph::{Ask, Description, EdgeType, Source, Vertex};
use fondaco_ids::IdSet;
use fondaco_model::slot_of_key;
use fondaco_stream::{Change as EventChange, Written};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Change, Changed, Graph};
use crate::compute::Stop;
use crate::server::{ServerState, log_event};

/// How many members one event adds or removes.
const MEMBERS_MAX: usize = 10_000;
/// How many events wait for the brokers at a time.
const WAITING_MAX: usize = 1000;

/// The outcome, and the keys with events, each with the place of its last one.
pub(crate) type ChangedByEvents = (Changed, Vec<(Bytes, Written)>);

/// A change of a graph that is being made.
struct Editing<'a> {
    shared: &'a Arc<ServerState>,
    store: &'a EventStore,
    graph: Graph,
    written: Vec<(Bytes, Written)>,
}

/// Changes of sets, by their keys: the members to add, or to remove.
type Members = BTreeMap<Vec<u8>, BTreeSet<u64>>;

/// Makes a change.
///
/// # Errors
/// The error to answer with. A part of the change may be made.
pub(crate) async fn change_by_events(
    shared: Arc<ServerState>,
    store: Arc<EventStore>,
    change: &Change,
    stop: Stop,
) -> Result<ChangedByEvents, String> {
    let catalog = Arc::clone(&shared.catalog.load());
    let mut editing = Editing {
        graph: Graph::open(&shared, &catalog, store.id, &stop).await?,
        shared: &shared,
        store: &store,
        written: Vec::new(),
    };
    let changed = match change {
        Change::Declare { edge_type, symmetric } => editing.declare(edge_type, *symmetric).await?,
        Change::AddEdges {
            edge_type,
            edges,
            properties,
        } => editing.add_edges(edge_type, edges, properties).await?,
        Change::RemoveEdges { edge_type, edges } => editing.remove_edges(edge_type, edges).await?,
        Change::PutVertices { names, change } => editing.put_vertices(names, change).await?,
        Change::RemoveVertices { names } => editing.remove_vertices(names).await?,
        Change::Repair { .. } => {
            return Err("ERR REPAIR is for versioned graphs: in a hybrid graph, make the change again that was not acknowledged".into());
        }
    };
    Ok((changed, editing.written))
}

impl Editing<'_> {
    async fn declare(&mut self, name: &str, symmetric: bool) -> Result<Changed, String> {
        check_name(name)?;
        match self.description().types.get(name) {
            Some(known) if known.symmetric == symmetric => return Ok(Changed::All),
            Some(_) => {
                return Err(format!(
                    "ERR edges of type {name:?} are declared already, and lead otherwise"
                ));
            }
            None => {}
        }
        let edge_type = EdgeType {
            symmetric,
            ..EdgeType::default()
        };
        let change = json!({"add": {"types": {name: edge_type}}});
        self.log(vec![(keys::DESCRIPTION.to_vec(), update(&change))]).await?;
        Ok(Changed::All)
    }

    async fn add_edges(
        &mut self,
        edge_type: &str,
        edges: &[(Bytes, Bytes)],
        properties: &Map<String, Value>,
    ) -> Result<Changed, String> {
        let mut found = self.edge_type(edge_type)?;
        let names: BTreeSet<&Bytes> = edges.iter().flat_map(|(from, to)| [from, to]).collect();
        let ids = self.made(names).await?;
        if !properties.is_empty() && !found.properties {
            found.properties = true;
            self.describe(json!({"types": {edge_type: found}})).await?;
        }
        self.name_properties(properties).await?;
        let (mut sets, mut records) = (Members::new(), Vec::new());
        for (from, to) in edges.iter().map(|(from, to)| (ids[from], ids[to])) {
            note_edge(&mut sets, edge_type, found.symmetric, (from, to));
            let ends = keys::ends(found.symmetric, from, to);
            let key = keys::edge(edge_type, ends.0, ends.1);
            match properties.is_empty() {
                true if !found.properties => {}
                true => records.push((key, EventChange::Delete)),
                false => records.push((
                    key,
                    EventChange::Put(Value::Object(properties.clone()).to_string().into()),
                )),
            }
        }
        self.log(records).await?;
        self.log(members("add", &sets)).await?;
        Ok(Changed::All)
    }

    async fn remove_edges(&mut self, edge_type: &str, edges: &[(Bytes, Bytes)]) -> Result<Changed, String> {
        let found = self.edge_type(edge_type)?;
        let names: BTreeSet<&Bytes> = edges.iter().flat_map(|(from, to)| [from, to]).collect();
        let ids = self.ids(&names).await?;
        let mut sets = Members::new();
        for (from, to) in edges {
            if let (Some(&from), Some(&to)) = (ids.get(from), ids.get(to)) {
                note_edge(&mut sets, edge_type, found.symmetric, (from, to));
            }
        }
        self.log(members("remove", &sets)).await?;
        Ok(Changed::All)
    }

    async fn put_vertices(&mut self, names: &[Bytes], change: &VertexChange) -> Result<Changed, String> {
        change.labels.iter().try_for_each(|label| check_name(label))?;
        if change.properties.contains_key("name") {
            return Err("ERR the property \"name\" is the name of the vertex, which never changes".into());
        }
        let known = &self.description().labels;
        let new = change.labels.iter().filter(|label| !known.contains_key(*label));
        let new: Map<String, Value> = new.map(|label| (label.clone(), 0.into())).collect();
        if !new.is_empty() {
            self.describe(json!({"labels": new})).await?;
        }
        self.name_properties(&change.properties).await?;
        let ids = self.made(names.iter().collect()).await?;
        let (set, removed): (Vec<_>, Vec<_>) = change.properties.iter().partition(|(_, value)| !value.is_null());
        let set: Map<String, Value> = set
            .into_iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let removed: Vec<&String> = removed.into_iter().map(|(name, _)| name).collect();
        let changed = json!({"remove": {"properties": removed}, "add": {"labels": change.labels, "properties": set}});
        let mut sets = Members::new();
        for &id in ids.values() {
            for label in &change.labels {
                sets.entry(self.label_key(label, id)).or_default().insert(id);
            }
        }
        self.log(ids.values().map(|&id| (keys::vertex(id), update(&changed))).collect())
            .await?;
        self.log(members("add", &sets)).await?;
        Ok(Changed::All)
    }

    async fn remove_vertices(&mut self, names: &[Bytes]) -> Result<Changed, String> {
        let ids = self.ids(&names.iter().collect()).await?;
        let types = self.description().types.clone();
        if let Some((name, _)) = types.iter().find(|(_, found)| found.indexed) {
            return Err(has_index(name));
        }
        for (name, &id) in &ids {
            let (mut sets, mut deleted) = (Members::new(), Vec::new());
            for (edge_type, found) in &types {
                for direction in [Direction::Out, Direction::In] {
                    if found.symmetric && direction == Direction::In {
                        continue;
                    }
                    let key = keys::neighbours(edge_type, direction, id);
                    for other in self.set(&key).await? {
                        let back = if found.symmetric {
                            direction
                        } else {
                            direction.reverse()
                        };
                        sets.entry(keys::neighbours(edge_type, back, other))
                            .or_default()
                            .insert(id);
                        let (from, to) = match direction {
                            Direction::Out => keys::ends(found.symmetric, id, other),
                            Direction::In => (other, id),
                        };
                        if found.properties {
                            deleted.push((keys::edge(edge_type, from, to), EventChange::Delete));
                        }
                    }
                    deleted.push((key, EventChange::Delete));
                }
            }
            let labels = self.record(id).await?.map(|vertex| vertex.labels).unwrap_or_default();
            for label in labels.iter().map(String::as_str).chain([""]) {
                sets.entry(self.label_key(label, id)).or_default().insert(id);
            }
            self.log(members("remove", &sets)).await?;
            deleted.push((keys::vertex(id), EventChange::Delete));
            // Last: without it, the rest would not be found again.
            self.log(deleted).await?;
            self.log(vec![(keys::id(name), EventChange::Delete)]).await?;
        }
        Ok(Changed::Number(ids.len() as u64))
    }

    fn description(&self) -> &Description {
        &self.graph.description
    }

    fn edge_type(&self, name: &str) -> Result<EdgeType, String> {
        match self.description().types.get(name) {
            Some(found) if found.indexed => Err(has_index(name)),
            Some(found) => Ok(found.clone()),
            None => Err(format!(
                "NOTYPE graph {:?} has no edges of type {name:?}: declare it with FONDACO.EDGE DECLARE",
                self.store.name
            )),
        }
    }

    /// Adds to the description of the graph.
    async fn describe(&mut self, added: Value) -> Result<(), String> {
        self.log(vec![(keys::DESCRIPTION.to_vec(), update(&json!({"add": added})))])
            .await
    }

    /// Adds names of properties to the description of the graph, unless it has them.
    async fn name_properties(&mut self, properties: &Map<String, Value>) -> Result<(), String> {
        let known = &self.description().properties;
        let new: Vec<&String> = properties.keys().filter(|name| !known.contains(name)).collect();
        match new.is_empty() {
            true => Ok(()),
            false => self.describe(json!({"properties": new})).await,
        }
    }

    /// The ids of vertices, of those that are there.
    async fn ids(&self, names: &BTreeSet<&Bytes>) -> Result<BTreeMap<Bytes, u64>, String> {
        let keys = names.iter().map(|name| keys::id(name).into()).collect();
        let found = self.graph.source.values(keys).await?;
        let id = |value: Option<Bytes>| value.and_then(|value| str::from_utf8(&value).ok()?.parse().ok());
        let ids = names
            .iter()
            .zip(found)
            .filter_map(|(name, value)| Some(((*name).clone(), id(value)?)));
        Ok(ids.collect())
    }

    /// The ids of vertices. Those that are not there are made.
    async fn made(&mut self, names: BTreeSet<&Bytes>) -> Result<BTreeMap<Bytes, u64>, String> {
        let mut ids = self.ids(&names).await?;
        let (mut records, mut sets, mut named) = (Vec::new(), Members::new(), Vec::new());
        for name in names
            .into_iter()
            .filter(|name| !ids.contains_key(*name))
            .cloned()
            .collect::<Vec<_>>()
        {
            let text = str::from_utf8(&name).ok().filter(|text| !text.is_empty());
            let text = text.ok_or_else(|| {
                let name = String::from_utf8_lossy(&name);
                format!("ERR {name:?} names no vertex: a name is a text in UTF-8 of at least one byte")
            })?;
            let id = self.free_id(text).await?;
            records.push((
                keys::vertex(id),
                update(&json!({"add": {"properties": {"name": text}}})),
            ));
            sets.entry(self.label_key("", id)).or_default().insert(id);
            named.push((keys::id(&name), EventChange::Put(id.to_string().into())));
            ids.insert(name, id);
        }
        self.log(records).await?;
        self.log(members("add", &sets)).await?;
        // Last: a vertex that is found is whole.
        self.log(named).await?;
        Ok(ids)
    }

    /// An id for a new vertex, which no vertex of another name has.
    async fn free_id(&self, name: &str) -> Result<u64, String> {
        for seed in 0.. {
            let first = Description::FIRST_ID_OF_EVENTS;
            let id = xxh3_64_with_seed(name.as_bytes(), seed) & (first - 1) | first;
            let known = self.record(id).await?;
            if known.is_none_or(|vertex| vertex.properties.get("name").and_then(Value::as_str) == Some(name)) {
                return Ok(id);
            }
        }
        unreachable!("some seed gives a free id")
    }

    async fn record(&self, id: u64) -> Result<Option<Vertex>, String> {
        let found = self.graph.source.values(vec![keys::vertex(id).into()]).await?;
        let record = found.into_iter().next().flatten();
        let parsed = record.map(|record| serde_json::from_slice(&record)).transpose();
        parsed.map_err(|error| format!("ERR the record of vertex {id} is damaged: {error}"))
    }

    async fn set(&self, key: &[u8]) -> Result<Vec<u64>, String> {
        let found = self
            .graph
            .source
            .sets(vec![Bytes::copy_from_slice(key)], Ask::NonUnion)
            .await?;
        let Some(set) = found.into_iter().next().flatten() else {
            return Ok(Vec::new());
        };
        let set = IdSet::parse(&set).map_err(|error| format!("CORRUPT {error}"))?;
        Ok(set.iter().collect())
    }

    /// The key of the vertices of a label in the partition of a vertex.
    fn label_key(&self, label: &str, id: u64) -> Vec<u8> {
        let partitions = self.description().partitions;
        let partition = partitions.partition_of(slot_of_key(&self.store.name, &keys::vertex(id)));
        keys::label(&keys::tags(partitions)[partition.get() as usize], label)
    }

    /// Writes events, and waits until brokers have acknowledged them.
    async fn log(&mut self, events: Vec<(Vec<u8>, EventChange)>) -> Result<(), String> {
        for some in events.chunks(WAITING_MAX) {
            let begun = some.iter().map(|(key, change)| {
                let key = Bytes::copy_from_slice(key);
                Ok((key.clone(), log_event(self.shared, self.store, key, change.clone())?))
            });
            let begun = begun.collect::<Result<Vec<_>, String>>()?;
            for (key, written) in begun {
                self.written.push((key, written.await?));
            }
        }
        Ok(())
    }
}

/// Notes an edge in the sets of both its ends.
fn note_edge(sets: &mut Members, edge_type: &str, symmetric: bool, (from, to): (u64, u64)) {
    let back = if symmetric { Direction::Out } else { Direction::In };
    sets.entry(keys::neighbours(edge_type, Direction::Out, from))
        .or_default()
        .insert(to);
    sets.entry(keys::neighbours(edge_type, back, to))
        .or_default()
        .insert(from);
}

/// The events that add members to sets, or remove them.
fn members(operation: &str, sets: &Members) -> Vec<(Vec<u8>, EventChange)> {
    let mut events = Vec::new();
    for (key, ids) in sets {
        let ids: Vec<&u64> = ids.iter().collect();
        let some = ids.chunks(MEMBERS_MAX);
        events.extend(some.map(|ids| (key.clone(), update(&json!({operation: ids})))));
    }
    events
}

fn update(change: &Value) -> EventChange {
    EventChange::Update(change.to_string().into())
}

fn has_index(edge_type: &str) -> String {
    format!("ERR edges of type {edge_type:?} have an index, which events do not change: push the graph without --index")
}

fn check_name(name: &str) -> Result<(), String> {
    match Description::is_name(name) {
        true => Ok(()),
        false => Err(format!(
            "ERR {name:?} is no name of a label or a type of edges: use letters, digits and underscores"
        )),
    }
}
