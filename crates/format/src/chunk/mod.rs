//! A chunk: a contiguous range of hashes of one partition, as a data and an index file.
//!
//! [`writer`] makes one from records in hash order; [`reader`] opens and searches it. [`data`] and [`index`] document
//! the two layouts.

pub(crate) mod data;
pub(crate) mod index;
mod places;
pub(crate) mod reader;
pub(crate) mod sink;
pub(crate) mod writer;

use fondaco_model::PartitionId;

/// The chunk and partition that a file belongs to. They are in the headers of both files, so that opening detects a
/// swapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkIdentity {
    pub(crate) partition: PartitionId,
    pub(crate) chunk: u32,
    pub(crate) chunk_count: u32,
}

impl ChunkIdentity {
    /// The bytes in a header: partition, chunk and count of chunks, four bytes each.
    pub(crate) fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.partition.get().to_le_bytes());
        bytes[4..8].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[8..].copy_from_slice(&self.chunk_count.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; 12]) -> Self {
        Self {
            partition: PartitionId::new(u32_at(&bytes, 0)),
            chunk: u32_at(&bytes, 4),
            chunk_count: u32_at(&bytes, 8),
        }
    }
}

/// The little-endian number at an offset; the caller must ensure that it is within `bytes`.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
}
