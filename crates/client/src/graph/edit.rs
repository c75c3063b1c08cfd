//! Changes of versioned graphs, edge by edge.
//!
//! An edge is two records, each in the partition of one of its ends: `out:TYPE{FROM}TO`, which says whether the edge is there,
//! and its mirror `in:TYPE{TO}FROM`. Of a symmetric edge the one at the smaller id says so, and the other is the mirror. The first
//! is written first: what is left half done by a crash is completed by [`GraphEdit::repair`], or by the same change made again.
//! After it has written a mirror, each writer looks at the edge again, and makes the mirror as the edge is by then: so the two
//! agree when concurrent changes are over.
//!
//! Records are resolved one by one, so that concurrent changes merge per edge: of an edge that is added and removed at the same
//! time, the later change stays. The properties of a removed edge stay, and mean nothing: if they were deleted, an edge that is
//! added at the same time could lose its own.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_graph::keys::{self, Direction};
use fondaco_graph::{Description, EdgeType, Vertex};
use fondaco_ids::{ID_MAX, IdSet};
use fondaco_model::{PartitionCount, StoreName, ValueType, member, slot_of_key};
use fondaco_protocol::WireKey;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Graph;
use crate::client::Client;
use crate::error::ClientError;
use crate::options::{PutOptions, ReadOptions};
use crate::sets::{SetOptions, What};

/// How many records are written at the same time.
const WRITES_AT_ONCE: usize = 64;

/// How many vertices one call of [`GraphEdit::repair`] looks at.
const REPAIRED_AT_ONCE: usize = 64;

/// How often a mirror is written again because its edge changed meanwhile.
const MIRROR_ATTEMPTS: usize = 16;

/// How deep properties may nest. Their record has two levels more, and JSON is read to a depth of 127.
const DEPTH_MAX: usize = 100;

/// The value of the record of a member: its being there is all that it says.
const MEMBER: &[u8] = b"1";

/// Changes of a versioned graph, until a deadline.
///
/// A change that fails may be half done. It can be made again: each change says what is to be, and not what is to be different.
#[derive(Debug, Clone)]
pub struct GraphEdit {
    client: Client,
    store: StoreName,
    deadline: Instant,
}

/// An edge whose records were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EdgeEnds {
    /// The id of the vertex that it leads from.
    pub from: u64,
    /// The id of the vertex that it leads to.
    pub to: u64,
}

/// What is to be of a vertex.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VertexChange {
    /// Labels that it gets, besides those that it has.
    pub labels: Vec<String>,
    /// Properties that it gets; one that is null is removed.
    pub properties: Map<String, Value>,
}

/// Where [`GraphEdit::repair`] goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairCursor {
    /// The partition.
    pub partition: u32,
    /// The first vertex in it.
    pub vertex: u64,
}

/// The record of an edge and its mirror: keys of sets, and the member of each.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Records {
    edge: Vec<u8>,
    mirror: Vec<u8>,
}

impl Graph {
    /// Changes of this graph, all of which end within this time.
    pub fn edit(&self, timeout: Duration) -> GraphEdit {
        GraphEdit {
            client: self.client.clone(),
            store: self.store.clone(),
            deadline: Instant::now() + timeout,
        }
    }
}

impl GraphEdit {
    /// Declares a type of edges. It is no error if it is there already, with the same symmetry.
    ///
    /// # Errors
    /// An invalid name, a type with the other symmetry, or any reason why the description cannot be written.
    pub async fn declare(&self, edge_type: &str, symmetric: bool) -> Result<(), ClientError> {
        check_name(edge_type)?;
        let name = edge_type.to_owned();
        let described = self.describe(move |description| {
            description.types.entry(name.clone()).or_insert_with(|| EdgeType {
                symmetric,
                ..EdgeType::default()
            });
        });
        match described.await?.types.get(edge_type) {
            Some(declared) if declared.symmetric != symmetric => Err(ClientError::Graph(format!(
                "ERR edges of type {edge_type:?} are {} already: use another name",
                if declared.symmetric { "symmetric" } else { "directed" }
            ))),
            _ => Ok(()),
        }
    }

    /// Adds edges with these properties, and those of their vertices that are not there. An edge that is there already is
    /// replaced, its properties too.
    ///
    /// # Errors
    /// A type that is not declared, a name that no vertex can have, [`ClientError::NoQuorum`] and other errors of writes.
    pub async fn add_edges(
        &self,
        edge_type: &str,
        edges: &[(Bytes, Bytes)],
        properties: &Map<String, Value>,
    ) -> Result<Vec<EdgeEnds>, ClientError> {
        check_depth(properties)?;
        let description = self.description().await?;
        let mut found = self.edge_type(&description, edge_type)?;
        let is_known = |name: &String| description.properties.contains(name);
        let is_described = found.properties && properties.keys().all(is_known);
        if !properties.is_empty() && !is_described {
            let (edge_type, names) = (edge_type.to_owned(), properties.keys().cloned().collect::<Vec<_>>());
            let described = self.describe(move |description| {
                if let Some(edge_type) = description.types.get_mut(&edge_type) {
                    edge_type.properties = true;
                }
                add_names(&mut description.properties, &names);
            });
            described.await?;
            found.properties = true;
        }
        let ends = self
            .ends(edges, Some(description.partitions))
            .await?
            .into_iter()
            .flatten()
            .collect::<Vec<_>>();
        let value = (!properties.is_empty()).then(|| Bytes::from(Value::Object(properties.clone()).to_string()));
        self.each(ends.clone(), |EdgeEnds { from, to }| {
            let (found, value) = (&found, value.clone());
            async move {
                if found.properties {
                    let key = edge_key(edge_type, found.symmetric, from, to);
                    match value {
                        Some(value) => self.put(&key, value).await?,
                        None => self.delete(&key).await?,
                    }
                }
                let Records { edge, mirror } = Records::of(edge_type, found.symmetric, from, to);
                self.put(&edge, Bytes::from_static(MEMBER)).await?;
                self.mirror(&Records { edge, mirror }, true).await
            }
        })
        .await?;
        Ok(ends)
    }

    /// Removes edges, with their properties. Those that are not there are no error.
    ///
    /// # Errors
    /// As of [`add_edges`](Self::add_edges).
    pub async fn remove_edges(&self, edge_type: &str, edges: &[(Bytes, Bytes)]) -> Result<Vec<EdgeEnds>, ClientError> {
        let found = self.edge_type(&self.description().await?, edge_type)?;
        let ends = self.ends(edges, None).await?.into_iter().flatten().collect::<Vec<_>>();
        self.remove(edge_type, found.symmetric, ends.clone()).await?;
        Ok(ends)
    }

    /// Changes a vertex, and makes it if it is not there. Returns its id.
    ///
    /// # Errors
    /// An invalid name or label, and errors of writes.
    pub async fn put_vertex(&self, name: &[u8], change: &VertexChange) -> Result<u64, ClientError> {
        change.labels.iter().try_for_each(|label| check_name(label))?;
        if change.properties.contains_key("name") {
            return Err(ClientError::Graph(
                "ERR the property \"name\" is the name of the vertex, which never changes".into(),
            ));
        }
        check_depth(&change.properties)?;
        let description = self.description().await?;
        let is_property = |name: &String| description.properties.contains(name);
        let is_label = |label: &String| description.labels.contains_key(label);
        if !change.properties.keys().all(is_property) || !change.labels.iter().all(is_label) {
            let (labels, names) = (
                change.labels.clone(),
                change.properties.keys().cloned().collect::<Vec<_>>(),
            );
            let described = self.describe(move |description| {
                for label in &labels {
                    description.labels.entry(label.clone()).or_default();
                }
                add_names(&mut description.properties, &names);
            });
            described.await?;
        }
        let name = Bytes::copy_from_slice(name);
        let one = std::slice::from_ref(&name);
        let made = Some(description.partitions);
        let id = self.ids(one, made).await?[0].ok_or_else(|| no_vertex(&name))?;
        if *change != VertexChange::default() {
            let VertexChange { labels, properties } = change.clone();
            self.change_vertex(id, &name, move |vertex| {
                for label in &labels {
                    if let Err(at) = vertex.labels.binary_search(label) {
                        vertex.labels.insert(at, label.clone());
                    }
                }
                for (name, value) in &properties {
                    match value {
                        Value::Null => drop(vertex.properties.remove(name)),
                        value => drop(vertex.properties.insert(name.clone(), value.clone())),
                    }
                }
            })
            .await?;
            for label in &change.labels {
                let key = self.label_member(description.partitions, label, id);
                self.put(&key, Bytes::from_static(MEMBER)).await?;
            }
            // It may have been removed meanwhile.
            self.ids(one, made).await?;
        }
        Ok(id)
    }

    /// Removes a vertex with all its edges. Returns the edges by their types, and whether the vertex was there. An edge that is added
    /// at the same time may stay, and lead to no vertex.
    ///
    /// # Errors
    /// Errors of reads and writes.
    pub async fn remove_vertex(&self, name: &[u8]) -> Result<Option<BTreeMap<String, Vec<EdgeEnds>>>, ClientError> {
        let name = Bytes::copy_from_slice(name);
        let description = self.description().await?;
        let known = self.ids(std::slice::from_ref(&name), None).await?[0];
        // What a concurrent change has left of a vertex that is not there is removed, too.
        let id = known.unwrap_or_else(|| hashed(&name, 0));
        let record = self.get(vec![keys::vertex(id)]).await?.remove(0);
        let record: Option<Vertex> = record.and_then(|record| serde_json::from_slice(&record).ok());
        if known.is_none() && record.as_ref().is_some_and(|vertex| !has_name(vertex, &name)) {
            return Ok(None);
        }
        let was_there = known.is_some() || record.is_some();
        let mut removed = BTreeMap::new();
        for (edge_type, found) in description.types {
            let mut ends = Vec::new();
            for direction in [Direction::Out, Direction::In] {
                if direction == Direction::In && found.symmetric {
                    continue;
                }
                let sets = self.sets(vec![keys::neighbours(&edge_type, direction, id)]).await?;
                ends.extend(sets.into_iter().flatten().map(|other| match direction {
                    Direction::Out => EdgeEnds { from: id, to: other },
                    Direction::In => EdgeEnds { from: other, to: id },
                }));
            }
            self.remove(&edge_type, found.symmetric, ends.clone()).await?;
            removed.insert(edge_type, ends);
        }
        for label in description.labels.keys().map(String::as_str).chain([""]) {
            self.delete(&self.label_member(description.partitions, label, id))
                .await?;
        }
        self.delete(&keys::id(&name)).await?;
        self.delete(&keys::vertex(id)).await?;
        Ok(was_there.then_some(removed))
    }

    /// Makes the mirrors of the edges of some vertices as the edges are. Returns where to go on, `None` at the end, and how many
    /// mirrors were wrong. Begin with the default; other changes may be made at the same time.
    ///
    /// # Errors
    /// Errors of reads and writes.
    pub async fn repair(&self, cursor: RepairCursor) -> Result<(Option<RepairCursor>, u64), ClientError> {
        let description = self.description().await?;
        let tags = keys::tags(description.partitions);
        let Some(tag) = tags.get(cursor.partition as usize) else {
            return Ok((None, 0));
        };
        let vertices = self.sets(vec![keys::label(tag, "")]).await?.remove(0);
        let first = vertices.partition_point(|&vertex| vertex < cursor.vertex);
        let (some, rest) = vertices[first..].split_at(vertices[first..].len().min(REPAIRED_AT_ONCE));
        let mut repaired = 0;
        for (edge_type, found) in &description.types {
            repaired += self.repair_type(edge_type, found.symmetric, some).await?;
        }
        let next = match rest.first() {
            Some(&vertex) => Some(RepairCursor { vertex, ..cursor }),
            None => Some(RepairCursor {
                partition: cursor.partition + 1,
                vertex: 0,
            })
            .filter(|next| (next.partition as usize) < tags.len()),
        };
        Ok((next, repaired))
    }

    /// The ids of both ends of edges; `None` if a vertex is not there, and is not to be made.
    async fn ends(
        &self,
        edges: &[(Bytes, Bytes)],
        make: Option<PartitionCount>,
    ) -> Result<Vec<Option<EdgeEnds>>, ClientError> {
        let names: BTreeSet<&Bytes> = edges.iter().flat_map(|(from, to)| [from, to]).collect();
        let names: Vec<Bytes> = names.into_iter().cloned().collect();
        let ids = self.ids(&names, make).await?;
        let id = |name: &Bytes| names.binary_search(name).ok().and_then(|at| ids[at]);
        let ends = |(from, to): &(Bytes, Bytes)| {
            Some(EdgeEnds {
                from: id(from)?,
                to: id(to)?,
            })
        };
        Ok(edges.iter().map(ends).collect())
    }

    /// The ids of vertices by their names. Those that are not there are made, if the partitions of labels are given.
    async fn ids(&self, names: &[Bytes], make: Option<PartitionCount>) -> Result<Vec<Option<u64>>, ClientError> {
        let found = self.get(names.iter().map(|name| keys::id(name)).collect()).await?;
        let id = |value: Option<Bytes>| value.and_then(|value| str::from_utf8(&value).ok()?.parse().ok());
        let mut ids: Vec<Option<u64>> = found.into_iter().map(id).collect();
        let Some(partitions) = make else {
            return Ok(ids);
        };
        let missing: Vec<usize> = (0..ids.len()).filter(|&at| ids[at].is_none()).collect();
        let make =
            |at: usize| async move { Ok::<_, ClientError>((at, self.make_vertex(partitions, &names[at]).await?)) };
        let made = stream::iter(missing.into_iter().map(make)).buffer_unordered(WRITES_AT_ONCE);
        let made: Vec<(usize, u64)> = made.try_collect().await?;
        made.into_iter().for_each(|(at, id)| ids[at] = Some(id));
        Ok(ids)
    }

    /// Makes a vertex: its id is a hash of its name, so that concurrent writers make the same vertex. The record by which
    /// it is found is written last.
    async fn make_vertex(&self, partitions: PartitionCount, name: &Bytes) -> Result<u64, ClientError> {
        if str::from_utf8(name).map_or(true, str::is_empty) {
            return Err(ClientError::Graph(format!(
                "ERR {:?} names no vertex: a name is a text in UTF-8 of at least one byte",
                String::from_utf8_lossy(name)
            )));
        }
        for seed in 0.. {
            let id = hashed(name, seed);
            let vertex = self.change_vertex(id, name, |_| ()).await?;
            // Another name may have the same hash.
            if has_name(&vertex, name) {
                let key = self.label_member(partitions, "", id);
                self.put(&key, Bytes::from_static(MEMBER)).await?;
                self.put(&keys::id(name), id.to_string().into()).await?;
                return Ok(id);
            }
        }
        unreachable!("some seed gives a free id")
    }

    /// Changes the record of a vertex, which is made if it is not there. Returns what it is then.
    async fn change_vertex(
        &self,
        id: u64,
        name: &Bytes,
        change: impl Fn(&mut Vertex) + Send + 'static,
    ) -> Result<Vertex, ClientError> {
        let name = Value::from(String::from_utf8_lossy(name));
        let key = keys::vertex(id);
        let changed = self.client.update(&self.store, &key, move |value| {
            let mut vertex: Vertex = match value {
                Some(value) => match serde_json::from_slice(value) {
                    Ok(vertex) => vertex,
                    // It is said below.
                    Err(_) => return Some(value.to_vec()),
                },
                None => Vertex {
                    labels: Vec::new(),
                    properties: [("name".to_owned(), name.clone())].into_iter().collect(),
                },
            };
            if vertex.properties.get("name") == Some(&name) {
                change(&mut vertex);
            }
            serde_json::to_vec(&vertex).ok()
        });
        let changed = self.in_time(changed).await?.unwrap_or_default();
        serde_json::from_slice(&changed)
            .map_err(|error| ClientError::Graph(format!("ERR the record of vertex {id} is damaged: {error}")))
    }

    async fn remove(&self, edge_type: &str, symmetric: bool, ends: Vec<EdgeEnds>) -> Result<(), ClientError> {
        self.each(ends, |EdgeEnds { from, to }| async move {
            let records = Records::of(edge_type, symmetric, from, to);
            self.delete(&records.edge).await?;
            self.mirror(&records, false).await
        })
        .await
    }

    /// Makes the mirrors of the edges of a type and of some vertices as the edges are. Returns how many were wrong.
    async fn repair_type(&self, edge_type: &str, symmetric: bool, vertices: &[u64]) -> Result<u64, ClientError> {
        let directions = match symmetric {
            true => &[Direction::Out][..],
            false => &[Direction::Out, Direction::In],
        };
        let mut records = Vec::new();
        for &direction in directions {
            let keys = vertices
                .iter()
                .map(|&id| keys::neighbours(edge_type, direction, id))
                .collect();
            for (&vertex, others) in vertices.iter().zip(self.sets(keys).await?) {
                records.extend(others.into_iter().map(|other| match direction {
                    Direction::Out => Records::of(edge_type, symmetric, vertex, other),
                    Direction::In => Records::of(edge_type, symmetric, other, vertex),
                }));
            }
        }
        records.retain(|records| records.edge != records.mirror);
        let keys = records
            .iter()
            .flat_map(|records| [records.edge.clone(), records.mirror.clone()])
            .collect();
        let found = self.get(keys).await?;
        let wrong = records.into_iter().zip(found.chunks(2));
        let wrong = wrong.filter(|(_, found)| found[0].is_some() != found[1].is_some());
        let wrong: Vec<Records> = wrong.map(|(records, _)| records).collect();
        let number = wrong.len() as u64;
        self.each(wrong, |records| async move {
            let is_there = self.is_there(&records.edge).await?;
            self.mirror(&records, is_there).await
        })
        .await?;
        Ok(number)
    }

    /// Makes the mirror of an edge as the edge is: as it was last seen, and again if it changes meanwhile.
    async fn mirror(&self, Records { edge, mirror }: &Records, mut is_there: bool) -> Result<(), ClientError> {
        if edge == mirror {
            return Ok(());
        }
        for _ in 0..MIRROR_ATTEMPTS {
            match is_there {
                true => self.put(mirror, Bytes::from_static(MEMBER)).await?,
                false => self.delete(mirror).await?,
            }
            let now = self.is_there(edge).await?;
            if now == is_there {
                return Ok(());
            }
            is_there = now;
        }
        Err(ClientError::Graph(
            "CONFLICT the same edge is added and removed all the time: make the change again".into(),
        ))
    }

    async fn is_there(&self, key: &[u8]) -> Result<bool, ClientError> {
        Ok(self.get(vec![key.to_vec()]).await?[0].is_some())
    }

    fn edge_type(&self, description: &Description, name: &str) -> Result<EdgeType, ClientError> {
        description.types.get(name).cloned().ok_or_else(|| {
            ClientError::Graph(format!(
                "NOTYPE graph {:?} has no edges of type {name:?}: declare it with FONDACO.EDGE DECLARE",
                self.store
            ))
        })
    }

    /// The description; it is made if nothing was ever written.
    async fn description(&self) -> Result<Description, ClientError> {
        match self.get(vec![keys::DESCRIPTION.to_vec()]).await?.remove(0) {
            Some(value) => described(&value),
            None => self.describe(|_| ()).await,
        }
    }

    /// Changes the description.
    async fn describe(&self, change: impl Fn(&mut Description) + Send + 'static) -> Result<Description, ClientError> {
        let empty = self.empty_description()?;
        let changed = self.client.update(&self.store, keys::DESCRIPTION, move |value| {
            let mut description = match value {
                Some(value) => match described(value) {
                    Ok(description) => description,
                    // It is said below.
                    Err(_) => return Some(value.to_vec()),
                },
                None => empty.clone(),
            };
            change(&mut description);
            serde_json::to_vec(&description).ok()
        });
        described(&self.in_time(changed).await?.unwrap_or_default())
    }

    fn empty_description(&self) -> Result<Description, ClientError> {
        let inner = self.client.inner();
        let snapshot = inner.current.load_full().ok_or_else(|| inner.no_topology(0))?;
        let known = snapshot.directory.store(self.store.as_str()).map(|(_, store)| store);
        let known = known.ok_or_else(|| ClientError::UnknownStore {
            store: self.store.as_str().into(),
        })?;
        if known.value_type != ValueType::Graph || known.versioned.is_none() {
            return Err(ClientError::Graph(format!(
                "READONLY {:?} is no versioned graph: create one with fondaco store create --kind versioned --value-type graph",
                self.store
            )));
        }
        Ok(Description {
            vertices: 0,
            next_id: 0,
            is_versioned: true,
            partitions: snapshot.directory.topology().partitions,
            labels: BTreeMap::new(),
            types: BTreeMap::new(),
            properties: vec!["name".into()],
        })
    }

    /// The key of a vertex's record among those of a label. Labels have as many partitions as the description says, which a
    /// backup may have brought from another cluster.
    fn label_member(&self, partitions: PartitionCount, label: &str, id: u64) -> Vec<u8> {
        let slot = slot_of_key(&self.store, &keys::vertex(id));
        let partition = partitions.partition_of(slot);
        let tag = &keys::tags(partitions)[partition.get() as usize];
        member::key(&keys::label(tag, label), id)
    }

    /// Does the same with all, some at the same time.
    async fn each<T, F: Future<Output = Result<(), ClientError>>>(
        &self,
        all: Vec<T>,
        each: impl Fn(T) -> F,
    ) -> Result<(), ClientError> {
        let done = stream::iter(all.into_iter().map(each)).buffer_unordered(WRITES_AT_ONCE);
        done.try_for_each(|()| std::future::ready(Ok(()))).await
    }

    async fn get(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Bytes>>, ClientError> {
        self.find(keys, &What::Values).await
    }

    async fn sets(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Vec<u64>>, ClientError> {
        let sets = self.find(keys, &What::Sets).await?.into_iter();
        let ids = |set: Option<Bytes>| match set {
            Some(set) => Ok(IdSet::parse(&set)?.iter().collect()),
            None => Ok(Vec::new()),
        };
        sets.map(ids).collect()
    }

    async fn find(&self, keys: Vec<Vec<u8>>, what: &What) -> Result<Vec<Option<Bytes>>, ClientError> {
        let keys = keys
            .iter()
            .map(|key| WireKey::new(&self.store, key))
            .collect::<Result<Vec<_>, _>>()?;
        let read = ReadOptions {
            deadline: self.left()?,
            ..ReadOptions::default()
        };
        let options = SetOptions {
            read,
            ..SetOptions::default()
        };
        Ok(self.client.find(keys, what, &options).await?.elements)
    }

    async fn put(&self, key: &[u8], value: Bytes) -> Result<(), ClientError> {
        let options = self.writing()?;
        self.client.put(&self.store, key, value, &options).await.map(drop)
    }

    async fn delete(&self, key: &[u8]) -> Result<(), ClientError> {
        let options = self.writing()?;
        self.client.delete(&self.store, key, &options).await.map(drop)
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        tokio::time::timeout(self.left()?, work)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    fn writing(&self) -> Result<PutOptions, ClientError> {
        Ok(PutOptions {
            deadline: self.left()?,
            ..PutOptions::default()
        })
    }

    fn left(&self) -> Result<Duration, ClientError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(late()),
            false => Ok(left),
        }
    }
}

impl Records {
    fn of(edge_type: &str, symmetric: bool, from: u64, to: u64) -> Self {
        let (from, to, back) = match symmetric {
            true => (from.min(to), from.max(to), Direction::Out),
            false => (from, to, Direction::In),
        };
        Self {
            edge: member::key(&keys::neighbours(edge_type, Direction::Out, from), to),
            mirror: member::key(&keys::neighbours(edge_type, back, to), from),
        }
    }
}

/// The key of an edge's properties.
fn edge_key(edge_type: &str, symmetric: bool, from: u64, to: u64) -> Vec<u8> {
    match symmetric {
        true => keys::edge(edge_type, from.min(to), from.max(to)),
        false => keys::edge(edge_type, from, to),
    }
}

/// The id of a vertex with this name; of the next seed, if another name has it.
fn hashed(name: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(name, seed) & ID_MAX
}

fn has_name(vertex: &Vertex, name: &[u8]) -> bool {
    vertex.properties.get("name").and_then(Value::as_str).map(str::as_bytes) == Some(name)
}

fn check_depth(properties: &Map<String, Value>) -> Result<(), ClientError> {
    fn is_within(value: &Value, depth: usize) -> bool {
        match value {
            Value::Array(values) => depth > 0 && values.iter().all(|value| is_within(value, depth - 1)),
            Value::Object(map) => depth > 0 && map.values().all(|value| is_within(value, depth - 1)),
            _ => true,
        }
    }
    match properties.values().all(|value| is_within(value, DEPTH_MAX)) {
        true => Ok(()),
        false => Err(ClientError::Graph(format!(
            "LIMIT properties nest more than {DEPTH_MAX} deep: nest them less"
        ))),
    }
}

fn add_names(known: &mut Vec<String>, names: &[String]) {
    for name in names {
        if !known.contains(name) {
            known.push(name.clone());
        }
    }
}

fn described(value: &[u8]) -> Result<Description, ClientError> {
    serde_json::from_slice(value)
        .map_err(|error| ClientError::Graph(format!("ERR the description of the graph is damaged: {error}")))
}

fn check_name(name: &str) -> Result<(), ClientError> {
    match Description::is_name(name) {
        true => Ok(()),
        false => Err(ClientError::Graph(format!(
            "ERR {name:?} is no name of a label or an edge type: use up to {} letters, digits and underscores, the first no digit",
            Description::NAME_BYTES_MAX
        ))),
    }
}

fn no_vertex(name: &[u8]) -> ClientError {
    ClientError::Graph(format!(
        "NOVERTEX no vertex is named {:?}",
        String::from_utf8_lossy(name)
    ))
}

fn late() -> ClientError {
    ClientError::Graph(
        "TIMEOUT the change was not done in time, and may be half done: make it again, with fewer edges at a time"
            .into(),
    )
}
