//! The files of records: frames, compressed as one Zstandard frame.
//!
//! Damage is detected: in a file by its length, the checksum of all its bytes and its number of records; in a record by
//! its own checksum.

use std::io::{self, Read, Write};

use anyhow::{Context, bail};
use fondaco_api::Frame;
use fondaco_format::{Checksum, Checksummer, FileEntry};
use fondaco_model::versioned::Record;
use fondaco_os::priority;
use fondaco_storage::{FileWriter, Location, StorageError};
use serde::{Deserialize, Serialize};
use zstd::stream::{read, write};

/// Zstandard's own default: about as fast as it gets before the ratio suffers.
const COMPRESSION_LEVEL: i32 = 3;

/// After how many records loops of a node on this machine may run: some 0.1 ms.
const RECORDS_AT_ONCE: u64 = 64;

/// [Gives way](priority::give_way) after some of this many records.
pub(crate) fn give_way(records: u64) {
    if records.is_multiple_of(RECORDS_AT_ONCE) {
        priority::give_way();
    }
}

/// Describes a file of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordsFile {
    /// Its name.
    pub name: String,
    /// Its number of records.
    pub records: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The checksum of its bytes.
    pub checksum: Checksum,
    /// Of a partition: the digests of all its records, also of those that are only in earlier backups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digests: Option<FileEntry>,
    /// Of a partition in an incremental backup: the digests of the records of the earlier one that are
    /// gone or changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<FileEntry>,
}

/// A reader or writer that computes the checksum of the bytes that pass through.
pub(crate) struct Summed<T> {
    pub(crate) inner: T,
    pub(crate) checksum: Checksummer,
}

impl<T> Summed<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner,
            checksum: Checksummer::new(),
        }
    }
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Summed<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.checksum.update(&bytes[..read]);
        Ok(read)
    }
}

/// A file of records, being written.
pub struct RecordsWriter {
    name: String,
    out: write::Encoder<'static, Summed<FileWriter>>,
    records: u64,
}

impl RecordsWriter {
    /// Creates it.
    ///
    /// # Errors
    /// The storage fails.
    pub fn create(location: &Location, name: String) -> anyhow::Result<Self> {
        let file = Summed::new(location.create_file(&name)?);
        let mut out = write::Encoder::new(file, COMPRESSION_LEVEL)?;
        out.include_checksum(true)?;
        Ok(Self { name, out, records: 0 })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The storage fails.
    pub fn add(&mut self, frame: &Frame) -> anyhow::Result<()> {
        let written = Frame::write(&frame.key, &frame.record, &mut self.out);
        written.with_context(|| format!("cannot write {}", self.name))?;
        self.records += 1;
        give_way(self.records);
        Ok(())
    }

    /// Ends the file. It is durable once the location is synced.
    ///
    /// # Errors
    /// The storage fails.
    pub fn finish(self) -> anyhow::Result<RecordsFile> {
        let out = self.out.finish();
        let Summed { inner, checksum } = out.with_context(|| format!("cannot write {}", self.name))?;
        let bytes = inner.bytes();
        inner.finish_later()?;
        Ok(RecordsFile {
            name: self.name,
            records: self.records,
            bytes,
            checksum: checksum.finish(),
            digests: None,
            gone: None,
        })
    }
}

impl RecordsFile {
    /// It and the files of digests beside it, each with its length.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        let beside = self.digests.iter().chain(&self.gone);
        [(&*self.name, self.bytes)]
            .into_iter()
            .chain(beside.map(|file| (&*file.name, file.bytes)))
    }

    /// Reads the file from beginning to end. Damage to the file is detected only at the end.
    ///
    /// # Errors
    /// The file is damaged, or `each` fails.
    pub fn for_each(
        &self,
        location: &Location,
        mut each: impl FnMut(Frame) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let damaged = || {
            format!(
                "{} in {location} was changed since it was written: use another backup",
                self.name
            )
        };
        let broken = |error: io::Error| {
            let is_unread = error.get_ref().is_some_and(|inner| inner.is::<StorageError>());
            let reason = match is_unread {
                true => format!("cannot read {} in {location}", self.name),
                false => damaged(),
            };
            anyhow::Error::new(error).context(reason)
        };
        let input = location.open(&self.name, 0)?;
        if input.file_bytes() != self.bytes {
            bail!(
                "{}: it has {} bytes instead of {}",
                damaged(),
                input.file_bytes(),
                self.bytes
            );
        }
        let mut input = read::Decoder::new(Summed::new(input)).map_err(broken)?;
        let mut records = 0;
        while let Some(frame) = Frame::read(&mut input).map_err(broken)? {
            Record::decode(frame.record.clone().into()).with_context(damaged)?;
            records += 1;
            each(frame)?;
        }
        // The decoder has read on to the end.
        let checksum = input.finish().into_inner().checksum.finish();
        if checksum != self.checksum || records != self.records {
            bail!(
                "{}: it has {records} records with checksum {checksum} instead of {} with {}",
                damaged(),
                self.records,
                self.checksum
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::versioned::{DotSource, ReplicaId, VectorClock};
    use fondaco_model::versioned::{Over, Update};

    use super::*;

    fn write(location: &Location, name: &str, value: &str) -> RecordsFile {
        let mut writer = RecordsWriter::create(location, name.to_owned()).unwrap();
        let node = fondaco_model::NodeId::FIRST;
        let mut dots = DotSource::new(ReplicaId { node, incarnation: 1 }, 0);
        for key in 0..100 {
            let update = Update::put(value.to_owned().into(), 7, None);
            let record = Record::write(None, &mut dots, Over::All(&VectorClock::new()), update).unwrap();
            let (key, record) = (format!("key {key}").into_bytes(), record.to_bytes());
            writer.add(&Frame { key, record }).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(location: &Location, file: &RecordsFile) -> anyhow::Result<u64> {
        let mut count = 0;
        file.for_each(location, |_| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    #[test]
    fn every_change_of_a_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::local(dir.path());
        let file = write(&location, "f", "value");
        assert_eq!((file.records, read(&location, &file).unwrap()), (100, 100));
        let path = dir.path().join("f");
        let sound = std::fs::read(&path).unwrap();
        for at in 0..sound.len() {
            let mut rotten = sound.clone();
            rotten[at] ^= 1 << (at % 8);
            std::fs::write(&path, rotten).unwrap();
            let error = read(&location, &file).unwrap_err().to_string();
            assert!(error.contains("f in "), "byte {at}: {error}");
        }
    }

    #[test]
    fn a_valid_file_of_another_backup_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::local(dir.path());
        let (file, other) = (write(&location, "f", "value"), write(&location, "g", "other"));
        // If lengths differ, that is reported first.
        assert_ne!(file.checksum, other.checksum);
        std::fs::rename(dir.path().join("g"), dir.path().join("f")).unwrap();
        let moved = RecordsFile {
            bytes: other.bytes,
            ..file
        };
        assert!(read(&location, &moved).unwrap_err().to_string().contains("checksum"));
    }
}
