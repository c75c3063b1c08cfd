//! The digests of the records of a partition: what a later backup compares with, to write only what changed.
//!
//! A file of digests is a sequence of
//!
//! ```text
//! place of the key (u64) ++ digest (u64)
//! ```
//!
//! little-endian, in the order of the records. The place is that of the key in the order of a partition; the digest is
//! the XXH3-64 of key and record. Two records are taken for equal if both agree. A file of *gone* records has the same
//! form: the places that have no record any more, or another one.

use std::collections::HashSet;
use std::io::{self, BufReader, BufWriter, Read, Write};

use anyhow::Context;
use fondaco_api::Frame;
use fondaco_format::{Checksum, FileEntry};
use fondaco_model::{StoreName, ValueType, member, slot_of_key};
use fondaco_storage::{FileReader, FileWriter, Location};

use crate::records::Summed;

/// The bytes of a digest with its place.
const DIGEST_BYTES: usize = 16;

/// A record's place and digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// The place of its key in the order of a partition.
    pub place: u64,
    checksum: Checksum,
}

impl Digest {
    /// The digest of a record of a store with values of this type.
    pub fn of(store: &StoreName, value_type: ValueType, frame: &Frame) -> Self {
        let Frame { key, record } = frame;
        let place = member::position(slot_of_key(store, key), member::key_hash(value_type, key));
        let bytes = [&(key.len() as u64).to_le_bytes(), &key[..], record].concat();
        Self {
            place,
            checksum: Checksum::of(&bytes),
        }
    }
}

/// How many digests a file has.
pub fn count(file: &FileEntry) -> u64 {
    file.bytes / DIGEST_BYTES as u64
}

/// A file of digests, being written.
pub struct DigestsWriter {
    name: String,
    out: BufWriter<Summed<FileWriter>>,
}

impl DigestsWriter {
    /// Creates it.
    ///
    /// # Errors
    /// The storage fails.
    pub fn create(location: &Location, name: String) -> anyhow::Result<Self> {
        let out = BufWriter::new(Summed::new(location.create_file(&name)?));
        Ok(Self { name, out })
    }

    /// Appends a digest.
    ///
    /// # Errors
    /// The storage fails.
    pub fn add(&mut self, digest: Digest) -> anyhow::Result<()> {
        let written = self.out.write_all(&digest.place.to_le_bytes());
        let written = written.and_then(|()| self.out.write_all(&digest.checksum.to_u64().to_le_bytes()));
        written.with_context(|| format!("cannot write {}", self.name))
    }

    /// Ends the file. It is durable once the location is synced.
    ///
    /// # Errors
    /// The storage fails.
    pub fn finish(self) -> anyhow::Result<FileEntry> {
        let Self { name, out } = self;
        let summed = out.into_inner().map_err(io::IntoInnerError::into_error);
        let Summed { inner, checksum } = summed.with_context(|| format!("cannot write {name}"))?;
        let (bytes, checksum) = (inner.bytes(), checksum.finish());
        inner.finish_later()?;
        Ok(FileEntry { name, bytes, checksum })
    }
}

/// A file of digests, being read.
pub struct DigestsReader<'a> {
    location: &'a Location,
    file: &'a FileEntry,
    input: BufReader<Summed<FileReader>>,
    left: u64,
}

impl<'a> DigestsReader<'a> {
    /// Opens it.
    ///
    /// # Errors
    /// It is missing or has another length.
    pub fn open(location: &'a Location, file: &'a FileEntry) -> anyhow::Result<Self> {
        let input = location.open(&file.name, 0)?;
        let found = input.file_bytes();
        let reader = Self {
            location,
            file,
            input: BufReader::new(Summed::new(input)),
            left: count(file),
        };
        match found == file.bytes {
            true => Ok(reader),
            false => Err(reader.damaged()),
        }
    }

    fn damaged(&self) -> anyhow::Error {
        let Self { location, file, .. } = self;
        anyhow::anyhow!(
            "{} in {location} was changed since it was written: use another backup",
            file.name
        )
    }

    /// The next digest. At the end, damage of the file is an error.
    ///
    /// # Errors
    /// The file is damaged, or the storage fails.
    pub fn next(&mut self) -> anyhow::Result<Option<Digest>> {
        let [mut place, mut checksum] = [[0; 8]; 2];
        if self.left == 0 {
            let checksum = self.input.get_ref().checksum.finish();
            return match self.input.buffer().is_empty() && checksum == self.file.checksum {
                true => Ok(None),
                false => Err(self.damaged()),
            };
        }
        let read = self.input.read_exact(&mut place);
        let read = read.and_then(|()| self.input.read_exact(&mut checksum));
        read.with_context(|| format!("cannot read {} in {}", self.file.name, self.location))?;
        self.left -= 1;
        Ok(Some(Digest {
            place: u64::from_le_bytes(place),
            checksum: Checksum::from_u64(u64::from_le_bytes(checksum)),
        }))
    }

    /// All places.
    ///
    /// # Errors
    /// As [`DigestsReader::next`].
    pub fn places(mut self) -> anyhow::Result<HashSet<u64>> {
        let mut places = HashSet::new();
        while let Some(digest) = self.next()? {
            places.insert(digest.place);
        }
        Ok(places)
    }
}

/// The records of a partition that are compared with those of an earlier backup.
pub struct Comparison<'a> {
    earlier: DigestsReader<'a>,
    next: Option<Digest>,
    /// The only earlier record at the place of the last one, if they differ.
    changed: Option<Digest>,
    gone: DigestsWriter,
}

impl<'a> Comparison<'a> {
    /// Begins with these digests of the earlier backup, and with the file for the gone ones.
    ///
    /// # Errors
    /// The storage fails, or the digests are damaged.
    pub fn begin(mut earlier: DigestsReader<'a>, gone: DigestsWriter) -> anyhow::Result<Self> {
        let next = earlier.next()?;
        Ok(Self {
            earlier,
            next,
            changed: None,
            gone,
        })
    }

    /// Whether the earlier backup has this record. Records come in their order.
    ///
    /// # Errors
    /// The storage fails, or the digests are damaged.
    pub fn has(&mut self, digest: Digest) -> anyhow::Result<bool> {
        // Two records at one place are of two keys; one of them may be unchanged.
        let changed = self.changed.take().filter(|changed| changed.place < digest.place);
        changed.map_or(Ok(()), |changed| self.gone.add(changed))?;
        let (mut is_equal, mut at_place) = (false, 0);
        while let Some(next) = self.next.filter(|next| next.place <= digest.place) {
            match next.place < digest.place {
                true => self.gone.add(next)?,
                false => {
                    at_place += 1;
                    is_equal |= next == digest;
                    self.changed = Some(next);
                }
            }
            self.advance()?;
        }
        if at_place > 1 || is_equal {
            self.changed = None;
        }
        Ok(is_equal)
    }

    /// Ends with the last record. Returns the file of gone records.
    ///
    /// # Errors
    /// The storage fails, or the digests are damaged.
    pub fn finish(mut self) -> anyhow::Result<FileEntry> {
        if let Some(changed) = self.changed {
            self.gone.add(changed)?;
        }
        while let Some(next) = self.next {
            self.gone.add(next)?;
            self.advance()?;
        }
        self.gone.finish()
    }

    fn advance(&mut self) -> anyhow::Result<()> {
        let before = self.next;
        self.next = self.earlier.next()?;
        match (before, self.next) {
            (Some(before), Some(next)) if before.place > next.place => Err(self.earlier.damaged()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(place: u64, content: u8) -> Digest {
        Digest {
            place,
            checksum: Checksum::of(&[content]),
        }
    }

    fn written(location: &Location, name: &str, digests: &[Digest]) -> FileEntry {
        let mut writer = DigestsWriter::create(location, name.to_owned()).unwrap();
        digests.iter().for_each(|digest| writer.add(*digest).unwrap());
        writer.finish().unwrap()
    }

    #[test]
    fn a_comparison_finds_equal_changed_and_gone_records() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::local(dir.path());
        let earlier = [(1, 1), (3, 3), (3, 4), (4, 4), (5, 5), (7, 7), (9, 9)];
        let earlier = earlier.map(|(place, content)| digest(place, content));
        let file = written(&location, "earlier", &earlier);
        assert_eq!(count(&file), 7);
        let reader = DigestsReader::open(&location, &file).unwrap();
        let gone = DigestsWriter::create(&location, "gone".to_owned()).unwrap();
        let mut comparison = Comparison::begin(reader, gone).unwrap();
        let mut has = |place, content| comparison.has(digest(place, content)).unwrap();
        assert_eq!(
            [
                has(0, 1),
                has(1, 1),
                has(3, 4),
                has(4, 5),
                has(4, 4),
                has(5, 6),
                has(8, 8)
            ],
            [false, true, true, false, false, false, false]
        );
        let gone = comparison.finish().unwrap();
        let gone = DigestsReader::open(&location, &gone).unwrap().places().unwrap();
        assert_eq!(gone, [5, 7, 9].into());
    }

    #[test]
    fn every_change_of_a_file_of_digests_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::local(dir.path());
        let file = written(&location, "f", &[digest(1, 1), digest(2, 2)]);
        let path = dir.path().join("f");
        let sound = std::fs::read(&path).unwrap();
        let read = || DigestsReader::open(&location, &file).and_then(DigestsReader::places);
        assert_eq!(read().unwrap().len(), 2);
        for at in 0..sound.len() {
            let mut rotten = sound.clone();
            rotten[at] ^= 1 << (at % 8);
            std::fs::write(&path, rotten).unwrap();
            assert!(read().unwrap_err().to_string().contains("f in "), "byte {at}");
        }
        std::fs::write(&path, &sound[..16]).unwrap();
        assert!(read().is_err());
    }
}
