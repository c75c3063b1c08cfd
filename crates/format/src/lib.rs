//! The immutable on-disk format of fondaco, as a library: write a version, open it, get a key.
//!
//! A *version* is a directory: a [`Manifest`], and for each partition one or more *chunks*, each a data file of records
//! in hash order and a small index file. It is written once, by a [`ChunkWriter`] per chunk and a manifest at the end,
//! and never changes afterwards. [`Version::open`] maps its files without reading them. A directory may hold only some
//! of its partitions.
//!
//! It is not a database: no updates, no deletes, no range queries, no order except that of hashes.
//!
//! Invariants: an existing key is found and a missing key is reported absent, even if hashes collide, since records
//! contain their keys. A changed byte causes an error and never wrong data, since records and index blocks have
//! checksums.
//!
//! `docs/format.md` explains the layout; the byte layouts themselves are documented in the modules `record`,
//! `chunk::data` and `chunk::index`.

mod admission;
mod checksum;
mod chunk;
mod compression;
mod direct;
mod error;
mod fault;
mod hash;
mod manifest;
mod mapping;
mod names;
mod partial;
mod patch;
mod record;
mod residency;
mod room;
mod verify;
mod version;

pub use checksum::{Checksum, Checksummer};
pub use chunk::data::{DATA_HEADER_BYTES, DataHeader};
pub use chunk::index::{IndexHeader, check_index};
pub use chunk::writer::{ChunkCounts, ChunkPlan, ChunkWriter};
pub use compression::{Compression, EncodedValue, Encoder, train_dictionary};
pub use direct::{DirectRead, direct_reads};
pub use error::{FileDefect, FormatError};
pub use fault::unreadable_pages;
pub use hash::{bucket_of_hash, chunk_of_hash, key_hash, key_position};
pub use manifest::{
    Built, ChunkEntry, Column, FileEntry, FurtherFile, GIVEN_AWAY_FILE, Manifest, PatchEntry, Schema, ValueEncoding,
    ValueSchema,
};
pub use names::{
    DATA_KIND, INDEX_KIND, MANIFEST_FILE, PATCH_KIND, chunk_file_name, dictionary_file_name, is_named_by_content,
    is_version_file, unnamed_chunk_file,
};
pub use partial::{FilePlace, PIECE_BYTES, PartialFile, missing_error};
pub use patch::{Merged, Patch, merge, write_change, write_patch};
pub use record::{RECORD_HEADER_BYTES, RecordSearch, search_records};
pub use room::mappings;
pub use verify::{VerifyReport, verify};
pub use version::scan::{Record, Scan, ScanPosition};
pub use version::{
    ColdRead, ColdStep, Compared, Comparison, Dated, Lifetimes, Lookup, Probe, STEP_BYTES_MAX, Value, Version,
};

/// The format version of this release. A process writes [`format_version`].
pub const FORMAT_VERSION: u32 = 2;

/// The format version that this process writes: [`FORMAT_VERSION`], or version 3 if it
/// [plays the next release](fondaco_model::play_next_release), which differs by its number only.
pub fn format_version() -> u32 {
    FORMAT_VERSION + u32::from(fondaco_model::plays_next_release())
}

/// The [protocol](fondaco_model::PROTOCOL) from which on all members of a cluster read this format version.
pub const fn protocol_of(format_version: u32) -> u32 {
    if format_version <= 2 { 1 } else { 3 }
}

/// The format versions that it reads.
fn format_versions_read() -> std::ops::RangeInclusive<u32> {
    1..=format_version()
}
