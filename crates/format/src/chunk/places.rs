//! The places of the records of a chunk while it is written: the hash and the offset of each, in memory, or, except for
//! the last ones, in a file. The index is made of them once all are known, since its size depends on their number.
//!
//! They are written and read in order, so file access is sequential.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};

/// The bytes of a place.
const PLACE_BYTES: usize = 12;

/// The bytes in memory besides a file: 384 KiB.
const RECENT_BYTES_MAX: usize = PLACE_BYTES * (32 << 10);

/// The maker of the file, which is not needed for a few records.
pub(super) type MakeFile = Box<dyn FnOnce() -> io::Result<File> + Send>;

/// The hashes and offsets of records.
#[derive(Default)]
pub(super) struct Places {
    /// Those that are not in the file.
    recent: Vec<u8>,
    make_file: Option<MakeFile>,
    file: Option<File>,
    bytes_in_file: u64,
}

impl Places {
    /// Stores them in a file as soon as they are many.
    pub(super) fn keep_in(&mut self, make_file: MakeFile) {
        self.make_file = Some(make_file);
    }

    /// Adds a record.
    #[inline]
    pub(super) fn add(&mut self, hash: u64, start: u32) -> io::Result<()> {
        if self.recent.len() == RECENT_BYTES_MAX {
            self.flush()?;
        }
        let mut place = [0; PLACE_BYTES];
        place[..8].copy_from_slice(&hash.to_le_bytes());
        place[8..].copy_from_slice(&start.to_le_bytes());
        self.recent.extend_from_slice(&place);
        Ok(())
    }

    #[cold]
    fn flush(&mut self) -> io::Result<()> {
        if let Some(make) = self.make_file.take() {
            self.file = Some(make()?);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&self.recent)?;
            self.bytes_in_file += self.recent.len() as u64;
            self.recent.clear();
        }
        Ok(())
    }

    /// The hash and the offset of each record, in order.
    pub(super) fn read(self) -> io::Result<impl Iterator<Item = io::Result<(u64, u32)>>> {
        let in_file: Box<dyn Read> = match self.file {
            Some(mut file) => {
                file.rewind()?;
                Box::new(BufReader::with_capacity(RECENT_BYTES_MAX, file))
            }
            None => Box::new(io::empty()),
        };
        let bytes = self.bytes_in_file + self.recent.len() as u64;
        let mut reader = in_file.chain(io::Cursor::new(self.recent));
        Ok((0..bytes / PLACE_BYTES as u64).map(move |_| {
            let (mut hash, mut start) = ([0; 8], [0; 4]);
            reader.read_exact(&mut hash)?;
            reader.read_exact(&mut start)?;
            Ok((u64::from_le_bytes(hash), u32::from_le_bytes(start)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_a_file_take_little_memory() {
        let records_in_memory = (RECENT_BYTES_MAX / PLACE_BYTES) as u64;
        for records in [
            0,
            1,
            records_in_memory,
            records_in_memory + 1,
            5 * records_in_memory + 7,
        ] {
            let places = |in_file: bool| {
                let mut places = Places::default();
                if in_file {
                    places.keep_in(Box::new(tempfile::tempfile));
                }
                for record in 0..records {
                    places.add(record << 40 | 7, record as u32).unwrap();
                    assert!(!in_file || places.recent.len() <= RECENT_BYTES_MAX);
                }
                assert_eq!(places.file.is_some(), in_file && records > records_in_memory);
                places.read().unwrap().map(Result::unwrap).collect::<Vec<_>>()
            };
            let expected: Vec<(u64, u32)> = (0..records).map(|record| (record << 40 | 7, record as u32)).collect();
            assert!(places(false) == expected && places(true) == expected);
        }
    }
}
