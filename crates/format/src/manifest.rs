//! The manifest: the file that makes a directory a complete version.
//!
//! It is written last. As text it is JSON, `{"manifest": {…}, "checksum": "…"}`: the checksum is of
//! the exact bytes of the inner object, so that a changed byte anywhere is noticed.

use std::path::Path;

use fondaco_model::{PartitionCount, PartitionId, PartitionSet, StoreName};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::FORMAT_VERSION;
use crate::checksum::Checksum;
use crate::compression::Compression;
use crate::error::FormatError;

/// The name of the manifest in a version's directory.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The name of an empty file that says: who made this directory never changes its files, and needs them no
/// more. So they may be linked by who may have them.
pub const GIVEN_AWAY_FILE: &str = "given-away";

/// One file of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its name in the directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The checksum of all its bytes.
    pub checksum: Checksum,
}

/// One chunk of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkEntry {
    /// The partition that it belongs to.
    pub partition: PartitionId,
    /// Its number in the partition, from 0.
    pub chunk: u32,
    /// How many records it has.
    pub records: u64,
    /// Its data file.
    pub data: FileEntry,
    /// Its index file.
    pub index: FileEntry,
}

/// Where keys and values came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The column that keys were made of.
    pub key: Column,
    /// The columns that values were made of.
    pub values: Vec<Column>,
    /// How they became values.
    pub encoding: ValueEncoding,
}

/// One column of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as the input calls it.
    pub r#type: String,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueEncoding {
    /// One column, as it is.
    Raw,
    /// A JSON object of several columns.
    Json,
}

/// All that is to be known of a version before its files are opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The store that it was built for: slots depend on its name.
    pub store: StoreName,
    /// How many partitions the records were divided into.
    pub partitions: PartitionCount,
    /// How values are compressed.
    pub compression: Compression,
    /// The file of the compression dictionary, if there is one.
    pub dictionary: Option<FileEntry>,
    /// How many records there are.
    pub records: u64,
    /// The chunks, in the order of partition and number. An empty partition has none.
    pub chunks: Vec<ChunkEntry>,
    /// Where keys and values came from.
    pub schema: Schema,
    /// When it was built, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The program that built it.
    pub built_by: String,
}

/// No file of a version is longer: offsets have 32 bits, and an index is shorter than twice that.
const FILE_BYTES_MAX: u64 = 1 << 34;

#[derive(Serialize)]
struct Inner<'a> {
    format_version: u32,
    #[serde(flatten)]
    manifest: &'a Manifest,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    manifest: &'a RawValue,
    checksum: Checksum,
}

#[derive(Deserialize)]
struct FormatOnly {
    format_version: u64,
}

/// The name of a chunk's data file.
pub fn data_file_name(partition: PartitionId, chunk: u32) -> String {
    format!("p{:05}-c{chunk:04}.data", partition.get())
}

/// The name of a chunk's index file.
pub fn index_file_name(partition: PartitionId, chunk: u32) -> String {
    format!("p{:05}-c{chunk:04}.index", partition.get())
}

impl Manifest {
    /// The bytes of the manifest file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let inner = Inner {
            format_version: FORMAT_VERSION,
            manifest: self,
        };
        // Plain data with text keys: serialising it into memory cannot fail.
        let inner = serde_json::to_string_pretty(&inner).expect("a manifest is plain data");
        let checksum = Checksum::of(inner.as_bytes());
        format!("{{\"manifest\": {inner},\n\"checksum\": \"{checksum}\"}}\n").into_bytes()
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// An unknown format version, a checksum that does not match, or contents that no builder writes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        let corrupt = |reason: String| FormatError::CorruptManifest { reason };
        let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(|e| corrupt(e.to_string()))?;
        let inner = envelope.manifest.get();
        let format: FormatOnly = serde_json::from_str(inner).map_err(|e| corrupt(e.to_string()))?;
        if format.format_version != u64::from(FORMAT_VERSION) {
            return Err(FormatError::UnknownFormat {
                path: MANIFEST_FILE.into(),
                found: format.format_version,
                known: FORMAT_VERSION,
            });
        }
        if Checksum::of(inner.as_bytes()) != envelope.checksum {
            return Err(corrupt("its checksum does not match".into()));
        }
        let mut value: serde_json::Value = serde_json::from_str(inner).map_err(|e| corrupt(e.to_string()))?;
        if let Some(object) = value.as_object_mut() {
            object.remove("format_version");
        }
        let manifest: Self = serde_json::from_value(value).map_err(|e| corrupt(e.to_string()))?;
        manifest.check().map_err(corrupt)?;
        Ok(manifest)
    }

    /// Reads the manifest of a version's directory.
    ///
    /// # Errors
    /// As [`Manifest::from_bytes`], and if there is none.
    pub fn read(dir: &Path) -> Result<Self, FormatError> {
        let path = dir.join(MANIFEST_FILE);
        match std::fs::read(&path) {
            Ok(bytes) => Self::from_bytes(&bytes),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(FormatError::NoManifest { path: dir.into() }),
            Err(e) => Err(FormatError::io("read", path)(e)),
        }
    }

    /// The length of all files together, without the manifest itself.
    pub fn files_bytes(&self) -> u64 {
        // Each is bounded by `check`, and there are fewer of them than would be needed to overflow.
        self.files().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// All files, in the order in which they are fetched: data first and indexes last, so that the
    /// indexes are what is freshest in memory.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        let data = self.chunks.iter().map(|chunk| &chunk.data);
        let indexes = self.chunks.iter().map(|chunk| &chunk.index);
        data.chain(&self.dictionary).chain(indexes)
    }

    /// The chunks of some partitions, in order.
    pub fn chunks_of(&self, partitions: &PartitionSet) -> impl Iterator<Item = &ChunkEntry> {
        self.chunks.iter().filter(|chunk| partitions.contains(chunk.partition))
    }

    /// The invariants that the reader relies on.
    fn check(&self) -> Result<(), String> {
        let mut records = 0u64;
        for (number, chunk) in self.chunks.iter().enumerate() {
            if chunk.partition.get() >= self.partitions.get() {
                return Err(format!("partition {} of {}", chunk.partition, self.partitions));
            }
            let expected = match number.checked_sub(1).map(|before| &self.chunks[before]) {
                Some(before) if before.partition == chunk.partition => before.chunk + 1,
                Some(before) if before.partition > chunk.partition => return Err("its chunks are out of order".into()),
                _ => 0,
            };
            if chunk.chunk != expected
                || chunk.data.name != data_file_name(chunk.partition, chunk.chunk)
                || chunk.index.name != index_file_name(chunk.partition, chunk.chunk)
            {
                return Err(format!(
                    "chunk {} of partition {} is out of order",
                    chunk.chunk, chunk.partition
                ));
            }
            for file in [&chunk.data, &chunk.index] {
                if file.bytes > FILE_BYTES_MAX {
                    return Err(format!("{:?} has {} bytes", file.name, file.bytes));
                }
            }
            records = records.checked_add(chunk.records).ok_or("it counts too many records")?;
        }
        if records != self.records {
            return Err(format!("its chunks have {records} records and not {}", self.records));
        }
        match &self.dictionary {
            Some(file) if file.name != crate::DICTIONARY_FILE || file.bytes > FILE_BYTES_MAX => {
                Err(format!("a dictionary named {:?} of {} bytes", file.name, file.bytes))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let file = |name: String| FileEntry {
            name,
            bytes: 4096,
            checksum: Checksum::of(b""),
        };
        let partition = PartitionId::new(1);
        Manifest {
            store: "pymk".parse().unwrap(),
            partitions: 4.try_into().unwrap(),
            compression: Compression::None,
            dictionary: None,
            records: 5,
            chunks: vec![ChunkEntry {
                partition,
                chunk: 0,
                records: 5,
                data: file(data_file_name(partition, 0)),
                index: file(index_file_name(partition, 0)),
            }],
            schema: Schema {
                key: Column {
                    name: "member".into(),
                    r#type: "int64".into(),
                },
                values: vec![],
                encoding: ValueEncoding::Json,
            },
            created_unix_ms: 1,
            built_by: "test".into(),
        }
    }

    #[test]
    fn a_manifest_reads_as_it_was_written() {
        assert_eq!(Manifest::from_bytes(&manifest().to_bytes()).unwrap(), manifest());
    }

    #[test]
    fn any_flipped_bit_is_an_error_or_changes_nothing() {
        let bytes = manifest().to_bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                if let Ok(read) = Manifest::from_bytes(&flipped) {
                    assert_eq!(read, manifest(), "byte {at} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_later_format_is_named() {
        let text = String::from_utf8(manifest().to_bytes()).unwrap();
        let later = text.replace("\"format_version\": 1", "\"format_version\": 9");
        let error = Manifest::from_bytes(later.as_bytes()).unwrap_err().to_string();
        assert!(
            error.contains("format version 9") && error.contains("reads version 1"),
            "{error}"
        );
    }

    #[test]
    fn file_names_that_lead_elsewhere_are_refused() {
        let mut evil = manifest();
        evil.chunks[0].data.name = "../../etc/passwd".into();
        assert!(Manifest::from_bytes(&evil.to_bytes()).is_err());
    }
}
