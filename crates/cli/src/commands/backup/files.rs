//! What a backup consists of.
//!
//! ```text
//! partition-00000.records.zst    what there is of a partition: frames, in the order of the hashes of the keys,
//!                                compressed as one Zstandard frame with a checksum
//! backup.json                    the manifest, written last, whole or not at all
//! ```
//!
//! Without a manifest there is no backup: what an interrupted one left is deleted by the next. Damage shows: of a
//! file by its length, its number of records and its checksum, of a record by its own.

use anyhow::{Context, bail};
use fondaco_control::http::{Frame, VersionedResource};
use fondaco_model::versioned::Record;
use fondaco_storage::{FileWriter, Location};
use serde::{Deserialize, Serialize};
use zstd::stream::{read, write};

/// The manifest's name.
const MANIFEST_FILE: &str = "backup.json";

/// What the storage may leave when the manifest is being written.
const MANIFEST_PARTIAL_FILE: &str = ".backup.json.partial";

/// How long a manifest may be, in bytes: one of the most partitions there can be is far shorter.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// The format that is written, and read.
const FORMAT: u32 = 1;

/// Zstandard's own default: about as fast as it gets before the ratio suffers.
const COMPRESSION_LEVEL: i32 = 3;

/// What a backup is, and what is in it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: u32,
    /// The store that was backed up.
    pub store: String,
    /// When the backup began, in milliseconds since 1970: what was acknowledged before is in it.
    pub began_unix_ms: u64,
    /// How many nodes held each partition.
    pub replicas: u32,
    /// The store's settings.
    pub settings: VersionedResource,
    /// The file of each partition, in their order.
    pub partitions: Vec<PartitionFile>,
}

/// What is in the file of a partition.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionFile {
    /// How many records.
    pub records: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
}

impl Manifest {
    /// A manifest of this release's format.
    pub fn new(
        store: String,
        began_unix_ms: u64,
        replicas: u32,
        settings: VersionedResource,
        partitions: Vec<PartitionFile>,
    ) -> Self {
        Self {
            format: FORMAT,
            store,
            began_unix_ms,
            replicas,
            settings,
            partitions,
        }
    }

    /// The manifest of the backup at a location.
    pub fn read(location: &Location) -> anyhow::Result<Self> {
        if !location.exists(MANIFEST_FILE)? {
            bail!("{location} holds no backup: it has no {MANIFEST_FILE}, which is written last");
        }
        let bytes = location.read_whole(MANIFEST_FILE, MANIFEST_BYTES_MAX)?;
        let damaged = || format!("{MANIFEST_FILE} in {location} cannot be read: use another backup");
        let manifest: Self = serde_json::from_slice(&bytes).with_context(damaged)?;
        if manifest.format != FORMAT {
            let format = manifest.format;
            bail!("the backup in {location} has format {format}, and this release reads {FORMAT}: use a later one");
        }
        Ok(manifest)
    }

    /// Writes the manifest: from then on, there is a backup.
    pub fn write(&self, location: &Location) -> anyhow::Result<()> {
        location.write_atomically(MANIFEST_FILE, &serde_json::to_vec_pretty(self)?)?;
        Ok(())
    }

    /// How many bytes all files have.
    pub fn bytes(&self) -> u64 {
        self.partitions.iter().map(|file| file.bytes).sum()
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        self.partitions.iter().map(|file| file.records).sum()
    }
}

/// Makes a location ready for a backup: what an interrupted one left is deleted, and nothing else.
pub fn clear(location: &Location) -> anyhow::Result<()> {
    if location.exists(MANIFEST_FILE)? {
        bail!("{location} holds a backup: choose another place, or delete it");
    }
    location.create_directory()?;
    if location.is_vacant()? {
        return Ok(());
    }
    let files = location.list()?;
    if let Some(other) = files.iter().find(|file| !is_left_over(&file.name)) {
        bail!(
            "{location} has something else in it, {:?}: choose an empty place",
            other.name
        );
    }
    for file in &files {
        location.delete_file(&file.name)?;
    }
    Ok(())
}

fn is_left_over(name: &str) -> bool {
    let number = name
        .strip_prefix("partition-")
        .and_then(|rest| rest.strip_suffix(".records.zst"));
    let number = number.and_then(|number| number.parse().ok());
    name == MANIFEST_PARTIAL_FILE || number.is_some_and(|number| name == file_name(number))
}

fn file_name(partition: usize) -> String {
    format!("partition-{partition:05}.records.zst")
}

/// The file of a partition, being written.
pub struct PartitionWriter {
    name: String,
    out: write::Encoder<'static, FileWriter>,
    records: u64,
}

impl PartitionWriter {
    /// Creates it.
    pub fn create(location: &Location, partition: usize) -> anyhow::Result<Self> {
        let name = file_name(partition);
        let mut out = write::Encoder::new(location.create_file(&name)?, COMPRESSION_LEVEL)?;
        out.include_checksum(true)?;
        Ok(Self { name, out, records: 0 })
    }

    /// Appends a record.
    pub fn add(&mut self, frame: &Frame) -> anyhow::Result<()> {
        let written = Frame::write(&frame.key, &frame.record, &mut self.out);
        written.with_context(|| format!("cannot write {}", self.name))?;
        self.records += 1;
        Ok(())
    }

    /// Ends the file. It is durable once the location is synced.
    pub fn finish(self) -> anyhow::Result<PartitionFile> {
        let out = self
            .out
            .finish()
            .with_context(|| format!("cannot write {}", self.name))?;
        let bytes = out.bytes();
        out.finish_later()?;
        Ok(PartitionFile {
            records: self.records,
            bytes,
        })
    }
}

/// Reads the file of a partition from its beginning to its end, each record held against its checksum.
///
/// # Errors
/// A file that is not as it was written, or what `each` says.
pub fn for_each_record(
    location: &Location,
    partition: usize,
    file: &PartitionFile,
    mut each: impl FnMut(Frame) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let name = file_name(partition);
    let damaged = || format!("{name} in {location} is not what was written: use another backup");
    let input = location.open(&name, 0)?;
    if input.file_bytes() != file.bytes {
        bail!(
            "{}: it has {} bytes instead of {}",
            damaged(),
            input.file_bytes(),
            file.bytes
        );
    }
    let mut input = read::Decoder::new(input).with_context(damaged)?;
    let mut records = 0;
    while let Some(frame) = Frame::read(&mut input).with_context(damaged)? {
        Record::decode(frame.record.clone().into()).with_context(damaged)?;
        records += 1;
        each(frame)?;
    }
    if records != file.records {
        bail!("{}: it has {records} records instead of {}", damaged(), file.records);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_backups_write_is_left_over_of_one() {
        for name in ["partition-00007.records.zst", MANIFEST_PARTIAL_FILE] {
            assert!(is_left_over(name), "{name}");
        }
        for name in [
            "partition-7.records.zst",
            "partition-x.records.zst",
            "backup.json",
            "notes.txt",
        ] {
            assert!(!is_left_over(name), "{name}");
        }
    }
}
