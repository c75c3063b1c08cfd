//! The files of a partition, being written: its records, or those that an earlier backup does not have.

use fondaco_api::Frame;
use fondaco_model::{StoreName, ValueType};
use fondaco_storage::Location;

use crate::chain::Backup;
use crate::digests::{Comparison, Digest, DigestsReader, DigestsWriter};
use crate::manifest::Names;
use crate::records::{RecordsFile, RecordsWriter};

/// Writes the records of a partition.
pub struct PartitionWriter<'a> {
    store: &'a StoreName,
    value_type: ValueType,
    records: RecordsWriter,
    digests: DigestsWriter,
    comparison: Option<Comparison<'a>>,
}

impl<'a> PartitionWriter<'a> {
    /// Creates the files.
    ///
    /// # Errors
    /// The storage fails.
    pub fn create(
        location: &Location,
        (names, partition): (&Names, usize),
        earlier: Option<&'a Backup>,
        (store, value_type): (&'a StoreName, ValueType),
    ) -> anyhow::Result<Self> {
        let file = earlier.and_then(|earlier| Some((&earlier.location, earlier.partitions().nth(partition)?)));
        let digests = file.and_then(|(location, file)| Some((location, file.digests.as_ref()?)));
        let compare = |(earlier, file): (&'a Location, _)| {
            let gone = DigestsWriter::create(location, names.of_gone(partition))?;
            Comparison::begin(DigestsReader::open(earlier, file)?, gone)
        };
        Ok(Self {
            store,
            value_type,
            records: RecordsWriter::create(location, names.of_partition(partition))?,
            digests: DigestsWriter::create(location, names.of_digests(partition))?,
            comparison: digests.map(compare).transpose()?,
        })
    }

    /// Adds the next record.
    ///
    /// # Errors
    /// The storage fails, or a file of the earlier backup is damaged.
    pub fn add(&mut self, frame: &Frame) -> anyhow::Result<()> {
        let digest = Digest::of(self.store, self.value_type, frame);
        self.digests.add(digest)?;
        let comparison = self.comparison.as_mut();
        match comparison.map(|comparison| comparison.has(digest)).transpose()? {
            Some(true) => Ok(()),
            Some(false) | None => self.records.add(frame),
        }
    }

    /// Ends the files. They are durable once the location is synced.
    ///
    /// # Errors
    /// The storage fails, or a file of the earlier backup is damaged.
    pub fn finish(self) -> anyhow::Result<RecordsFile> {
        Ok(RecordsFile {
            digests: Some(self.digests.finish()?),
            gone: self.comparison.map(Comparison::finish).transpose()?,
            ..self.records.finish()?
        })
    }
}
