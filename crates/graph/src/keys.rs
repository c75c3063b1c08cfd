//! The keys of a graph's store. All are text, so that any client can look at them:
//!
//! | key | value |
//! |---|---|
//! | `graph` | the [`Description`](crate::Description), as JSON |
//! | `id:NAME` | the id of the vertex with this name, in decimal digits |
//! | `vertex{ID}` | its labels and properties, as JSON: [`Vertex`](crate::Vertex) |
//! | `out:TYPE{ID}` | the ids that edges of this type lead to from this vertex, as an encoded set |
//! | `in:TYPE{ID}` | the ids that edges of this type lead from to this vertex; not of symmetric types, where it is `out:TYPE{ID}` |
//! | `edge:TYPE{FROM}TO` | the properties of an edge, as a JSON object; the smaller id first in symmetric types |
//! | `index:TYPE:{TAG}:ID` | of the vertices in the tag's partition: those with an edge of this type to this vertex; batch graphs only |
//! | `label:LABEL{TAG}` | of the vertices in the tag's partition: those with this label; all, if it is empty |
//!
//! The id is a hash tag: all keys of a vertex are in one partition. The [tag](tags) of a partition makes keys that belong to
//! the partition's own keys stand beside them.
//!
//! In a batch graph a set is one value. In a versioned graph each of its members is a record of its own. Its key is
//! that of the set, followed by the member's id ([`fondaco_model::member`]): `out:KNOWS{7}12` says that 7 has an edge
//! to 12.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use fondaco_model::{PartitionCount, PartitionId, slot_of_wire_key};

/// The key of the description.
pub const DESCRIPTION: &[u8] = b"graph";

/// The direction in which edges are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From their source to their target.
    Out,
    /// From their target to their source.
    In,
}

impl Direction {
    /// The other one.
    pub fn reverse(self) -> Self {
        match self {
            Self::Out => Self::In,
            Self::In => Self::Out,
        }
    }
}

/// The key of the id of the vertex with this name.
pub fn id(name: &[u8]) -> Vec<u8> {
    [b"id:", name].concat()
}

/// The key of a vertex's labels and properties.
pub fn vertex(id: u64) -> Vec<u8> {
    format!("vertex{{{id}}}").into_bytes()
}

/// The key of a vertex's neighbours, as stored: of a symmetric type in direction [`Out`](Direction::Out) only.
pub fn neighbours(edge_type: &str, direction: Direction, id: u64) -> Vec<u8> {
    let direction = match direction {
        Direction::Out => "out",
        Direction::In => "in",
    };
    format!("{direction}:{edge_type}{{{id}}}").into_bytes()
}

/// The ends of an edge as they are stored: of a symmetric type with the smaller id first.
pub fn ends(symmetric: bool, from: u64, to: u64) -> (u64, u64) {
    match symmetric {
        true => (from.min(to), from.max(to)),
        false => (from, to),
    }
}

/// The key of an edge's properties, as stored: of a symmetric type with the smaller id first.
pub fn edge(edge_type: &str, from: u64, to: u64) -> Vec<u8> {
    format!("edge:{edge_type}{{{from}}}{to}").into_bytes()
}

/// The key of those vertices of a tag's partition that have an edge of this type to a vertex.
pub fn index(edge_type: &str, tag: &str, id: u64) -> Vec<u8> {
    format!("index:{edge_type}:{{{tag}}}:{id}").into_bytes()
}

/// The key of those vertices of a tag's partition that have a label; all of them, if the label is empty.
pub fn label(tag: &str, label: &str) -> Vec<u8> {
    format!("label:{label}{{{tag}}}").into_bytes()
}

/// A hash tag for each partition, in their order: the smallest number whose slot the partition has.
pub fn tags(partitions: PartitionCount) -> Arc<[String]> {
    // A cluster has one number of partitions. To make the tags of many takes milliseconds.
    static MADE: Mutex<Option<(PartitionCount, Arc<[String]>)>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*made {
        Some((of, tags)) if *of == partitions => Arc::clone(tags),
        _ => {
            let tags: Arc<[String]> = make_tags(partitions).into();
            *made = Some((partitions, Arc::clone(&tags)));
            tags
        }
    }
}

fn make_tags(partitions: PartitionCount) -> Vec<String> {
    let mut tags = vec![String::new(); partitions.get() as usize];
    let mut missing = tags.len();
    let mut text = String::new();
    for number in 0_u64.. {
        if missing == 0 {
            break;
        }
        text.clear();
        // Writing to a string does not fail.
        let _ = write!(text, "{number}");
        let partition: PartitionId = partitions.partition_of(slot_of_wire_key(text.as_bytes()));
        let tag = &mut tags[partition.get() as usize];
        if tag.is_empty() {
            tag.push_str(&text);
            missing -= 1;
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_a_tag_whose_slot_is_its_own() {
        for count in [1, 4, 256, 16384] {
            let partitions = PartitionCount::try_from(count).unwrap();
            let tags = tags(partitions);
            for (partition, tag) in partitions.partitions().zip(&*tags) {
                for key in [index("KNOWS", tag, 42), label(tag, "Person"), label(tag, "")] {
                    let wire_key = [b"social:", &key[..]].concat();
                    assert_eq!(partitions.partition_of(slot_of_wire_key(&wire_key)), partition);
                }
            }
        }
    }
}
