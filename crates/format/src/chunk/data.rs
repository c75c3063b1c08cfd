//! The data file of a chunk: a header, then the records in the order of their hashes.
//!
//! ```text
//! offset  bytes  field
//!      0      8  "FONDDATA"
//!      8      4  format version
//!     12     12  partition, chunk, count of chunks in the partition (4 bytes each)
//!     24     36  zero
//!     60      4  checksum: low half of XXH3-64 of the bytes before
//!     64      …  records, without gaps, to the end of the file
//! ```
//!
//! Format versions 1 and 2 have this layout. All numbers are little-endian. The content is independent of nodes and
//! replicas.

use super::{ChunkIdentity, u32_at};
use crate::checksum::short_checksum;
use crate::{format_version, format_versions_read};

/// The length of the header, in bytes.
pub const DATA_HEADER_BYTES: usize = 64;

const MAGIC: &[u8; 8] = b"FONDDATA";
const CHECKSUM_AT: usize = 60;

/// The header of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    pub(crate) identity: ChunkIdentity,
}

/// Why bytes are not a valid header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderError {
    UnknownFormat(u32),
    Damaged(&'static str),
}

impl DataHeader {
    pub(crate) fn to_bytes(self) -> [u8; DATA_HEADER_BYTES] {
        let mut bytes = [0; DATA_HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&format_version().to_le_bytes());
        bytes[12..24].copy_from_slice(&self.identity.to_bytes());
        let checksum = short_checksum(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Parses a header; the error is text.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        Self::from_bytes(bytes).map_err(|e| format!("{e:?}"))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(bytes) = bytes.first_chunk::<DATA_HEADER_BYTES>() else {
            return Err(HeaderError::Damaged("it is shorter than its header"));
        };
        check_start(bytes, MAGIC, CHECKSUM_AT)?;
        let mut identity = [0; 12];
        identity.copy_from_slice(&bytes[12..24]);
        Ok(Self {
            identity: ChunkIdentity::from_bytes(identity),
        })
    }
}

/// Checks the common parts of both kinds of headers: magic, format version, checksum.
pub(crate) fn check_start(header: &[u8], magic: &[u8; 8], checksum_at: usize) -> Result<(), HeaderError> {
    if header[..8] != magic[..] {
        return Err(HeaderError::Damaged(
            "it does not begin with the magic of this kind of file",
        ));
    }
    // Before the checksum, which a later format may have moved.
    let format = u32_at(header, 8);
    if !format_versions_read().contains(&format) {
        return Err(HeaderError::UnknownFormat(format));
    }
    if u32_at(header, checksum_at) != short_checksum(&header[..checksum_at]) {
        return Err(HeaderError::Damaged("the checksum of its header does not match"));
    }
    Ok(())
}
