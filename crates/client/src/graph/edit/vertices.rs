//! Vertices: the record of a vertex, the record by which its name is found, and its place among those of its labels.

use std::collections::BTreeMap;

use bytes::Bytes;
use fondaco_graph::Vertex;
use fondaco_graph::keys::{self, Direction};
use fondaco_ids::ID_MAX;
use fondaco_model::versioned::{Record, Resolution, Update, resolve};
use fondaco_model::{PartitionCount, member, slot_of_key};
use fondaco_protocol::{WireKey, now_unix_ms};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::records::TOGETHER_MIN;
use super::{EdgeEnds, GraphEdit, MEMBER, WRITES_AT_ONCE, add_names, check_depth, check_name};
use crate::bulk_write::KeyWrite;
use crate::error::ClientError;
use crate::quorum::{Decide, Edit, Expiry, Intent, WriteTimes};

/// A change of a vertex.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VertexChange {
    /// Labels that it gets, besides those that it has.
    pub labels: Vec<String>,
    /// Properties that it gets; one that is null is removed.
    pub properties: Map<String, Value>,
}

impl GraphEdit {
    /// Changes vertices, and makes those that are not there.
    ///
    /// # Errors
    /// An invalid name or label, and errors of writes. Some of the vertices may have changed then.
    pub async fn put_vertices(&self, names: &[Bytes], change: &VertexChange) -> Result<(), ClientError> {
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
        let partitions = description.partitions;
        let ids = self.ids(names, Some(partitions)).await?;
        if *change == VertexChange::default() {
            return Ok(());
        }
        let of_names = ids.into_iter().zip(names.iter().cloned());
        let vertices: Vec<(u64, Bytes)> = of_names.filter_map(|(id, name)| Some((id?, name))).collect();
        let put = |(id, name)| self.put_vertex(partitions, id, name, change);
        self.each(vertices, put).await?;
        // They may have been removed meanwhile.
        self.ids(names, Some(partitions)).await.map(drop)
    }

    /// Changes a vertex that is there.
    async fn put_vertex(
        &self,
        partitions: PartitionCount,
        id: u64,
        name: Bytes,
        change: &VertexChange,
    ) -> Result<(), ClientError> {
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
            let key = self.label_member(partitions, label, id);
            self.put(&key, Bytes::from_static(MEMBER)).await?;
        }
        Ok(())
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
        // If the vertex is missing, the records that a concurrent change has left of it are removed, too.
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
            self.write_edges(&edge_type, found.symmetric, &ends, false).await?;
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

    /// The ids of vertices by their names. Those that are not there are made, if the partitions of labels are given.
    pub(super) async fn ids(
        &self,
        names: &[Bytes],
        make: Option<PartitionCount>,
    ) -> Result<Vec<Option<u64>>, ClientError> {
        let found = self.get(names.iter().map(|name| keys::id(name)).collect()).await?;
        let id = |value: Option<Bytes>| value.and_then(|value| str::from_utf8(&value).ok()?.parse().ok());
        let mut ids: Vec<Option<u64>> = found.into_iter().map(id).collect();
        let Some(partitions) = make else {
            return Ok(ids);
        };
        let missing = names.iter().zip(&ids).filter(|(_, id)| id.is_none());
        let missing: Vec<Bytes> = missing.map(|(name, _)| name.clone()).collect();
        let made = self.each_part(missing, |some| self.make_vertices(partitions, some));
        let made: BTreeMap<Bytes, u64> = made.await?.into_iter().flatten().collect();
        for (name, id) in names.iter().zip(&mut ids) {
            *id = id.or_else(|| made.get(name).copied());
        }
        Ok(ids)
    }

    /// Makes vertices, and returns their ids. An id is a hash of the name, so that concurrent writers make the same vertex. The record
    /// by which a vertex is found is written last. Vertices that are half there, or whose id another name has, are made one by one.
    async fn make_vertices(
        &self,
        partitions: PartitionCount,
        names: Vec<Bytes>,
    ) -> Result<Vec<(Bytes, u64)>, ClientError> {
        names.iter().try_for_each(check_vertex_name)?;
        let (mut made, others) = match names.len() < TOGETHER_MIN {
            true => (Vec::new(), names),
            false => self.make_new_vertices(partitions, names).await?,
        };
        let make = |name: Bytes| async move {
            let id = self.make_vertex(partitions, &name).await?;
            Ok::<_, ClientError>((name, id))
        };
        let others = stream::iter(others.into_iter().map(make)).buffer_unordered(WRITES_AT_ONCE);
        made.extend(others.try_collect::<Vec<_>>().await?);
        Ok(made)
    }

    /// Makes those of these vertices of which there is nothing yet. Returns their ids, and the names of all others.
    async fn make_new_vertices(
        &self,
        partitions: PartitionCount,
        names: Vec<Bytes>,
    ) -> Result<(Vec<(Bytes, u64)>, Vec<Bytes>), ClientError> {
        let vertex = |name: &Bytes| WireKey::new(&self.store, &keys::vertex(hashed(name, 0)));
        let vertices = names.iter().map(vertex).collect::<Result<Vec<_>, _>>()?;
        let seen = self.read_all(vertices.clone()).await?;
        let now_unix_ms = now_unix_ms();
        let is_new = |seen: &Record| resolve(seen, Resolution::Latest, now_unix_ms).value().is_none();
        let (mut new, mut writes, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for ((name, key), seen) in names.into_iter().zip(vertices).zip(seen) {
            match seen {
                Ok(seen) if is_new(&seen) => {
                    writes.push(KeyWrite {
                        key,
                        intent: Intent::Unchanged(seen.context().clone()),
                        update: Update::put(new_vertex(&name), now_unix_ms, None),
                    });
                    new.push(name);
                }
                _ => others.push(name),
            }
        }
        let is_written = self.client.write_to_all(&writes, self.left()? / 4).await;
        let mut made = Vec::with_capacity(new.len() + others.len());
        for (name, is_written) in new.into_iter().zip(is_written) {
            let id = hashed(&name, 0);
            match is_written {
                true => made.push((name, id)),
                false => others.push(name),
            }
        }
        let member = |&(_, id): &(Bytes, u64)| {
            let key = self.label_member(partitions, "", id);
            (key, Some(Bytes::from_static(MEMBER)))
        };
        self.write_all(made.iter().map(member).collect()).await?;
        let found = |(name, id): &(Bytes, u64)| (keys::id(name), Some(Bytes::from(id.to_string())));
        self.write_all(made.iter().map(found).collect()).await?;
        Ok((made, others))
    }

    /// Makes one vertex, whatever is stored under its id.
    async fn make_vertex(&self, partitions: PartitionCount, name: &Bytes) -> Result<u64, ClientError> {
        for seed in 0.. {
            let id = hashed(name, seed);
            if self.write_vertex(id, name).await? {
                let key = self.label_member(partitions, "", id);
                self.put(&key, Bytes::from_static(MEMBER)).await?;
                self.put(&keys::id(name), id.to_string().into()).await?;
                return Ok(id);
            }
            // Another name has the same hash.
        }
        unreachable!("some seed gives a free id")
    }

    /// Writes the record of a vertex, also if it is there: a write that failed may have left it on one replica alone. Returns whether
    /// the id is that of this name.
    async fn write_vertex(&self, id: u64, name: &Bytes) -> Result<bool, ClientError> {
        let key = WireKey::new(&self.store, &keys::vertex(id))?;
        let own = name.clone();
        let decide: Decide = Box::new(move |record, now_unix_ms| {
            let value = match resolve(record, Resolution::Latest, now_unix_ms).value() {
                None => new_vertex(&own),
                Some(vertex) if record.siblings().len() == 1 && is_record_of(vertex, &own) => vertex.clone(),
                // Concurrent changes are resolved as the store says, and another name keeps its id.
                Some(_) => return Edit::Keep,
            };
            let expiry = Expiry::Never;
            Edit::Put { value, expiry }
        });
        let written = self.client.edit(key, decide, WriteTimes::from(self.left()?)).await?;
        let before = resolve(&written.before, Resolution::Latest, now_unix_ms());
        Ok(written.context.is_some() || before.value().is_some_and(|vertex| is_record_of(vertex, name)))
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

    /// The key of a vertex's record among those of a label. Labels have as many partitions as the description says, which a
    /// backup may have brought from another cluster.
    fn label_member(&self, partitions: PartitionCount, label: &str, id: u64) -> Vec<u8> {
        let slot = slot_of_key(&self.store, &keys::vertex(id));
        let partition = partitions.partition_of(slot);
        let tag = &keys::tags(partitions)[partition.get() as usize];
        member::key(&keys::label(tag, label), id)
    }
}

/// The id of a vertex with this name; of the next seed, if another name has it.
fn hashed(name: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(name, seed) & ID_MAX
}

/// The record of a vertex that has nothing but its name.
fn new_vertex(name: &[u8]) -> Bytes {
    json!({ "properties": { "name": String::from_utf8_lossy(name) } })
        .to_string()
        .into()
}

fn check_vertex_name(name: &Bytes) -> Result<(), ClientError> {
    match str::from_utf8(name).map_or(true, str::is_empty) {
        true => Err(ClientError::Graph(format!(
            "ERR {:?} names no vertex: a name is a text in UTF-8 of at least one byte",
            String::from_utf8_lossy(name)
        ))),
        false => Ok(()),
    }
}

/// Whether this is the record of the vertex with this name.
fn is_record_of(record: &[u8], name: &[u8]) -> bool {
    serde_json::from_slice(record).is_ok_and(|vertex: Vertex| has_name(&vertex, name))
}

fn has_name(vertex: &Vertex, name: &[u8]) -> bool {
    vertex.properties.get("name").and_then(Value::as_str).map(str::as_bytes) == Some(name)
}
