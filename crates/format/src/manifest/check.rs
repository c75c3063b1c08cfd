//! The invariants of a manifest that its readers rely on.

use super::{ChunkEntry, FileEntry, Manifest};
use crate::names::{
    DATA_KIND, DICTIONARY_FILE_V1, INDEX_KIND, PATCH_KIND, chunk_file_name, dictionary_file_name, is_further_kind,
    unnamed_chunk_file,
};

/// The limit for files of a version: offsets have 32 bits, and an index is shorter than twice that.
const FILE_BYTES_MAX: u64 = 1 << 34;

/// The end of the year 9999. A later time was not given in milliseconds.
const UNIX_MS_MAX: u64 = 253_402_300_799_999;

impl Manifest {
    pub(super) fn check(&self) -> Result<(), String> {
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
            if chunk.chunk != expected {
                return Err(format!(
                    "chunk {} of partition {} is out of order",
                    chunk.chunk, chunk.partition
                ));
            }
            self.check_files(chunk)?;
            records = records.checked_add(chunk.records).ok_or("it counts too many records")?;
        }
        if records != self.records {
            return Err(format!("its chunks have {records} records, not {}", self.records));
        }
        if let Some(file) = &self.dictionary {
            let expected = match self.format_version {
                1 => DICTIONARY_FILE_V1.to_owned(),
                _ => dictionary_file_name(file.checksum),
            };
            check_file(file, &expected)?;
        }
        if self.undated_unix_ms.is_some_and(|time| time > UNIX_MS_MAX) {
            return Err("the time of its records is no number of milliseconds since 1970".into());
        }
        self.check_patches()?;
        self.check_schemas()?;
        self.check_increment()
    }

    /// A patch belongs to a chunk, which has at most one.
    fn check_patches(&self) -> Result<(), String> {
        let mut chunks = self.chunks.iter();
        for patch in &self.patches {
            let place = (patch.partition, patch.chunk);
            if !chunks.any(|chunk| (chunk.partition, chunk.chunk) == place) {
                return Err(format!(
                    "a patch of chunk {} of partition {} is out of order",
                    place.1, place.0
                ));
            }
            let name = |file: &FileEntry, kind| chunk_file_name(place.0, place.1, file.checksum, kind);
            check_file(&patch.base, &name(&patch.base, DATA_KIND))?;
            check_file(&patch.patch, &name(&patch.patch, PATCH_KIND))?;
        }
        Ok(())
    }

    /// A type of values with schemas has at least one.
    fn check_schemas(&self) -> Result<(), String> {
        let ids: Vec<u16> = self.value_schemas.iter().map(|schema| schema.id).collect();
        if self.value_type.has_schemas() == ids.is_empty() {
            return Err(format!(
                "it has {} schemas for values of type {}",
                ids.len(),
                self.value_type
            ));
        }
        match ids.first() == Some(&0) || ids.windows(2).any(|pair| pair[0] >= pair[1]) {
            true => Err(format!("the ids of its schemas are {ids:?}")),
            false => Ok(()),
        }
    }

    /// Each file must have the name derived from its chunk and its content, so that no name leads to another directory
    /// or occurs twice.
    fn check_files(&self, chunk: &ChunkEntry) -> Result<(), String> {
        let name = |file: &FileEntry, kind: &str| match self.format_version {
            1 => unnamed_chunk_file(chunk.partition, chunk.chunk, kind),
            _ => chunk_file_name(chunk.partition, chunk.chunk, file.checksum, kind),
        };
        check_file(&chunk.data, &name(&chunk.data, DATA_KIND))?;
        check_file(&chunk.index, &name(&chunk.index, INDEX_KIND))?;
        let mut before = "";
        for further in &chunk.further {
            if self.format_version == 1 || !is_further_kind(&further.kind) || *further.kind <= *before {
                return Err(format!(
                    "{:?} is not a kind of file, occurs twice or is out of order",
                    further.kind
                ));
            }
            check_file(&further.file, &name(&further.file, &further.kind))?;
            before = &further.kind;
        }
        Ok(())
    }

    fn check_increment(&self) -> Result<(), String> {
        if self.format_version == 1 && (self.base.is_some() || self.cut_unix_ms.is_some()) {
            return Err("version 1 of the format has neither base nor cut".into());
        }
        match self.cut_unix_ms {
            Some(cut) if cut > UNIX_MS_MAX => Err(format!("its cut {cut} is not a time in milliseconds")),
            _ => Ok(()),
        }
    }
}

fn check_file(file: &FileEntry, expected: &str) -> Result<(), String> {
    if file.name != expected {
        return Err(format!("it has a file named {:?} instead of {expected:?}", file.name));
    }
    if file.bytes > FILE_BYTES_MAX {
        return Err(format!("{:?} has {} bytes", file.name, file.bytes));
    }
    Ok(())
}
