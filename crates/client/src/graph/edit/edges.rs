//! Edges.
//!
//! An edge is two records, each in the partition of one of its ends: `out:TYPE{FROM}TO`, which says whether the edge is there,
//! and its mirror `in:TYPE{TO}FROM`. Of a symmetric edge the one at the smaller id says so, and the other is the
//! mirror. The first is written first. A change that a crash left half done is completed by [`GraphEdit::repair`], or
//! by the same change made again. After it has written a mirror, each writer reads the edge again, and makes the
//! mirror equal to it. So the two agree when concurrent changes are over.
//!
//! Many edges are written in parts: first all records of a part, then all mirrors, and then all records are read again.
//!
//! The properties of a removed edge stay, and mean nothing: if they were deleted, an edge that is added at the same time could
//! lose its own.

use std::collections::BTreeSet;

use bytes::Bytes;
use fondaco_graph::keys::{self, Direction};
use fondaco_graph::{Description, EdgeType};
use fondaco_model::{PartitionCount, member};
use serde_json::{Map, Value};

use super::{GraphEdit, MEMBER, add_names, check_depth};
use crate::error::ClientError;

/// How often a mirror is written again because its edge changed meanwhile.
const MIRROR_ATTEMPTS: usize = 16;

/// An edge whose records were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EdgeEnds {
    /// The id of the vertex that it leads from.
    pub from: u64,
    /// The id of the vertex that it leads to.
    pub to: u64,
}

/// The record of an edge and its mirror: keys of sets, and the member of each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Records {
    pub(super) edge: Vec<u8>,
    pub(super) mirror: Vec<u8>,
}

impl GraphEdit {
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
        if found.properties {
            let value = (!properties.is_empty()).then(|| Bytes::from(Value::Object(properties.clone()).to_string()));
            let record = |&EdgeEnds { from, to }: &EdgeEnds| {
                let (from, to) = keys::ends(found.symmetric, from, to);
                (keys::edge(edge_type, from, to), value.clone())
            };
            let records = ends.iter().map(record).collect();
            self.each_part(records, |some| self.write_all(some)).await?;
        }
        self.write_edges(edge_type, found.symmetric, &ends, true).await?;
        Ok(ends)
    }

    /// Removes edges. Those that are not there are no error.
    ///
    /// # Errors
    /// As of [`add_edges`](Self::add_edges).
    pub async fn remove_edges(&self, edge_type: &str, edges: &[(Bytes, Bytes)]) -> Result<Vec<EdgeEnds>, ClientError> {
        let found = self.edge_type(&self.description().await?, edge_type)?;
        let ends = self.ends(edges, None).await?.into_iter().flatten().collect::<Vec<_>>();
        self.write_edges(edge_type, found.symmetric, &ends, false).await?;
        Ok(ends)
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

    /// Writes the records of edges and their mirrors: the edges are there from then on, or not.
    pub(super) async fn write_edges(
        &self,
        edge_type: &str,
        symmetric: bool,
        ends: &[EdgeEnds],
        are_there: bool,
    ) -> Result<(), ClientError> {
        let of = |end: &EdgeEnds| Records::of(edge_type, symmetric, end.from, end.to);
        let records: Vec<Records> = ends.iter().map(of).collect();
        self.each_part(records, |some| self.write_some_edges(some, are_there))
            .await
            .map(drop)
    }

    async fn write_some_edges(&self, mut records: Vec<Records>, are_there: bool) -> Result<(), ClientError> {
        let value = are_there.then(|| Bytes::from_static(MEMBER));
        let edges = records.iter().map(|records| (records.edge.clone(), value.clone()));
        self.write_all(edges.collect()).await?;
        records.retain(|records| records.edge != records.mirror);
        let mirrors = records.iter().map(|records| (records.mirror.clone(), value.clone()));
        self.write_all(mirrors.collect()).await?;
        let edges = records.iter().map(|records| records.edge.clone());
        let now = self.get(edges.collect()).await?;
        let changed = records.into_iter().zip(now);
        let changed = changed.filter(|(_, now)| now.is_some() != are_there);
        let changed: Vec<Records> = changed.map(|(records, _)| records).collect();
        let mirror = |records: Records| async move { self.mirror(&records, !are_there).await };
        self.each(changed, mirror).await
    }

    /// Makes the mirror of an edge as the edge is: as it was last seen, and again if it changes meanwhile.
    pub(super) async fn mirror(
        &self,
        Records { edge, mirror }: &Records,
        mut is_there: bool,
    ) -> Result<(), ClientError> {
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

    pub(super) async fn is_there(&self, key: &[u8]) -> Result<bool, ClientError> {
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
}

impl Records {
    pub(super) fn of(edge_type: &str, symmetric: bool, from: u64, to: u64) -> Self {
        let (from, to) = keys::ends(symmetric, from, to);
        let back = match symmetric {
            true => Direction::Out,
            false => Direction::In,
        };
        Self {
            edge: member::key(&keys::neighbours(edge_type, Direction::Out, from), to),
            mirror: member::key(&keys::neighbours(edge_type, back, to), from),
        }
    }
}
