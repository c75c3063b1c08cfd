//! Verifies a version completely: every byte of every file, and the bucket of every record.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use fondaco_model::{PartitionId, PartitionSet};

use crate::checksum::Checksummer;
use crate::chunk::index::check_index;
use crate::error::FormatError;
use crate::manifest::{FileEntry, Manifest};
use crate::version::Version;

/// The result of a complete verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// The number of chunks.
    pub chunks: usize,
    /// The number of records.
    pub records: u64,
    /// The size of the files, in bytes.
    pub bytes: u64,
    /// The partitions that the directory does not hold, which are not verified.
    pub not_held: Vec<PartitionId>,
}

/// Reads all bytes of a version in a directory, and verifies the checksum of each file, the order of each index, and
/// that every record is found by its key. Partitions with missing files are reported as not held.
///
/// # Errors
/// The first mismatch, with its file; a file of a wrong length is one, too.
pub fn verify(dir: &Path) -> Result<VerifyReport, FormatError> {
    let manifest = Manifest::read(dir)?;
    let held = held_partitions(dir, &manifest)?;
    if let Some(dictionary) = &manifest.dictionary {
        verify_file(dir, dictionary)?;
    }
    for chunk in manifest.chunks_of(&held) {
        for file in chunk.files() {
            verify_file(dir, file)?;
        }
        let path = dir.join(&chunk.index.name);
        let bytes = std::fs::read(&path).map_err(FormatError::io("read", &path))?;
        check_index(&bytes).map_err(|reason| FormatError::corrupt(path, reason))?;
    }
    let version = Version::open_required(dir, held.iter())?;
    let mut records = 0;
    for record in version.scan() {
        let (key, value) = record?;
        let found = version.get(&key)?;
        if found.as_deref() != Some(&value[..]) {
            return Err(FormatError::corrupt(
                dir,
                format!("the record of key {key:?} is in the wrong bucket"),
            ));
        }
        records += 1;
    }
    if records != version.records() {
        let reason = format!("it has {records} records, but its manifest says {}", version.records());
        return Err(FormatError::corrupt(dir, reason));
    }
    Ok(VerifyReport {
        chunks: manifest.chunks_of(&held).count(),
        records,
        bytes: version.files_bytes(),
        not_held: version.not_held().collect(),
    })
}

/// The partitions whose files all exist, whatever their contents.
fn held_partitions(dir: &Path, manifest: &Manifest) -> Result<PartitionSet, FormatError> {
    let mut held: PartitionSet = manifest.partitions.partitions().collect();
    for chunk in &manifest.chunks {
        for file in chunk.files() {
            let path = dir.join(&file.name);
            if !path.try_exists().map_err(FormatError::io("inspect", &path))? {
                held.remove(chunk.partition);
            }
        }
    }
    Ok(held)
}

fn verify_file(dir: &Path, entry: &FileEntry) -> Result<(), FormatError> {
    let path = dir.join(&entry.name);
    let mut file = File::open(&path).map_err(FormatError::io("open", &path))?;
    let mut checksum = Checksummer::new();
    let mut bytes = 0;
    let mut buffer = vec![0; 1024 * 1024];
    loop {
        let count = file.read(&mut buffer).map_err(FormatError::io("read", &path))?;
        if count == 0 {
            break;
        }
        checksum.update(&buffer[..count]);
        bytes += count as u64;
    }
    if bytes != entry.bytes || checksum.finish() != entry.checksum {
        let reason = format!(
            "it has {bytes} bytes with checksum {}, but its manifest says {} with {}",
            checksum.finish(),
            entry.bytes,
            entry.checksum
        );
        return Err(FormatError::corrupt(path, reason));
    }
    Ok(())
}
