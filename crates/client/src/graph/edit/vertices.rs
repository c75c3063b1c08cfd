//! Vertices: the record of a vertex, the record by which its name is found, and its place among those of its labels.

use std::collections::BTreeMap;

use bytes::Bytes;
use fondaco_graph::Vertex;
use fondaco_graph::keys::{self, Direction};
use fondaco_ids::ID_MAX;
use fondaco_model::{PartitionCount, member, slot_of_key};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{EdgeEnds, GraphEdit, MEMBER, WRITES_AT_ONCE, add_names, check_depth, check_name};
use crate::error::ClientError;

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

fn has_name(vertex: &Vertex, name: &[u8]) -> bool {
    vertex.properties.get("name").and_then(Value::as_str).map(str::as_bytes) == Some(name)
}
