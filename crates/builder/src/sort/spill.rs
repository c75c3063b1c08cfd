//! Temporary files of records: written in blocks in any order, read back whole or as a stream.
//!
//! The files have no names, so a killed build leaves nothing behind.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{RECORD_HEADER_BYTES, Record};
use crate::error::BuildError;

/// The buffer of a stream, in bytes.
const STREAM_BUFFER_BYTES: usize = 1 << 20;

/// A nameless file of records.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    bytes: AtomicU64,
}

/// Makes a file without a name.
pub(crate) fn temporary_file(directory: &Path) -> Result<File, BuildError> {
    tempfile::tempfile_in(directory).map_err(|e| BuildError::temporary(directory, e))
}

impl SpillFile {
    pub(crate) fn create(directory: &Path) -> Result<Self, BuildError> {
        Ok(Self {
            file: temporary_file(directory)?,
            bytes: AtomicU64::new(0),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Appends whole records. Any thread may call this.
    pub(crate) fn append(&self, records: &[u8], directory: &Path) -> Result<(), BuildError> {
        let offset = self.bytes.fetch_add(records.len() as u64, Ordering::Relaxed);
        self.file
            .write_all_at(records, offset)
            .map_err(|e| BuildError::temporary(directory, e))
    }

    /// Reads all records into memory.
    pub(crate) fn load(&self, records: &mut Vec<u8>, directory: &Path) -> Result<(), BuildError> {
        records.resize(self.bytes() as usize, 0);
        self.file
            .read_exact_at(records, 0)
            .map_err(|e| BuildError::temporary(directory, e))
    }

    /// Hands over the records one by one, in the order of the file.
    pub(crate) fn stream(
        &self,
        directory: &Path,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        let failed = |e| BuildError::temporary(directory, e);
        let mut file = &self.file;
        file.rewind().map_err(failed)?;
        let mut reader = BufReader::with_capacity(STREAM_BUFFER_BYTES, file);
        let mut bytes = Vec::new();
        while !reader.fill_buf().map_err(failed)?.is_empty() {
            let mut header = [0; RECORD_HEADER_BYTES];
            reader.read_exact(&mut header).map_err(failed)?;
            bytes.clear();
            bytes.extend_from_slice(&header);
            bytes.resize(Record::length_of(&header), 0);
            reader.read_exact(&mut bytes[RECORD_HEADER_BYTES..]).map_err(failed)?;
            let record = Record::read(&bytes).ok_or_else(|| BuildError::temporary_damaged(directory))?;
            visit(&record)?;
        }
        Ok(())
    }
}
