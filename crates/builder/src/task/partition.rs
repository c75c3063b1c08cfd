//! The rows of one partition until its number of chunks is known: in memory, and beyond some bytes in a nameless file.

use std::path::Path;

use crate::error::BuildError;
use crate::sort::{Record, SAMPLE_BYTES, SpillFile};

/// Records in the order in which they were added.
#[derive(Default)]
pub(super) struct Waiting {
    records: Vec<u8>,
    file: Option<SpillFile>,
}

impl Waiting {
    /// Adds a record. With more than this memory, all go to a file.
    pub(super) fn add(&mut self, record: &Record<'_>, memory_bytes: u64, temporary: &Path) -> Result<(), BuildError> {
        record.write_to(&mut self.records);
        if self.records.len() as u64 <= memory_bytes.min(SAMPLE_BYTES) {
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(SpillFile::create(temporary)?),
        };
        file.append(&self.records, temporary)?;
        self.records.clear();
        Ok(())
    }

    /// Hands over all records, and forgets them.
    pub(super) fn take(
        &mut self,
        temporary: &Path,
        mut each: impl FnMut(&Record<'_>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        if let Some(file) = self.file.take() {
            file.stream(temporary, &mut each)?;
        }
        let mut rest = &self.records[..];
        while !rest.is_empty() {
            let record = Record::read(rest).ok_or_else(|| BuildError::temporary_damaged(temporary))?;
            each(&record)?;
            rest = &rest[record.stored_bytes()..];
        }
        self.records.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sort::RowId;

    #[test]
    fn records_come_back_in_their_order_with_any_memory() {
        let temporary = tempfile::tempdir().unwrap();
        for memory_bytes in [0, 100, 1000, 1 << 20] {
            let mut waiting = Waiting::default();
            for hash in 0..100 {
                let value = vec![b'v'; hash as usize];
                let record = Record {
                    row: RowId::new(0, 1),
                    hash,
                    partition: 3,
                    key: b"key",
                    value: &value,
                };
                waiting.add(&record, memory_bytes, temporary.path()).unwrap();
                assert!(waiting.records.len() as u64 <= memory_bytes);
            }
            let mut hashes = Vec::new();
            let take = |record: &Record<'_>| {
                assert_eq!(record.value.len() as u64, record.hash);
                hashes.push(record.hash);
                Ok(())
            };
            waiting.take(temporary.path(), take).unwrap();
            assert_eq!(hashes, (0..100).collect::<Vec<_>>());
        }
    }
}
