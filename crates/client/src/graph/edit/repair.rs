//! Repairs edges whose record and mirror disagree, for a part of the vertices at a time.

use fondaco_graph::keys::{self, Direction};

use super::GraphEdit;
use super::edges::Records;
use crate::error::ClientError;

/// How many vertices one call of [`GraphEdit::repair`] looks at.
const REPAIRED_AT_ONCE: usize = 64;

/// The position at which [`GraphEdit::repair`] continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairCursor {
    /// The partition.
    pub partition: u32,
    /// The first vertex in it.
    pub vertex: u64,
}

impl GraphEdit {
    /// Makes the mirrors of the edges of some vertices equal to the edges. Returns the position of the next vertices,
    /// `None` at the end, and how many mirrors were wrong. Begin with the default; other changes may be made at the
    /// same time.
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

    /// Makes the mirrors of the edges of a type and of some vertices equal to the edges. Returns how many were wrong.
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
}
