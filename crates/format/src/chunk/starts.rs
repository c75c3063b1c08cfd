//! The offsets of the buckets of a chunk while it is written: in memory, or, except for the last ones, in a file.
//!
//! They are written and read in order, so file access is sequential.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};

/// The number of offsets in memory besides a file: 256 KiB.
const RECENT_MAX: usize = 64 << 10;

/// The offsets of buckets.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// The offsets that are not in the file.
    recent: Vec<u32>,
    file: Option<File>,
    in_file: usize,
}

impl Starts {
    /// Stores them in this empty file from now on.
    pub(super) fn keep_in(&mut self, file: File) {
        self.recent.reserve_exact(RECENT_MAX);
        self.file = Some(file);
    }

    /// The number of offsets.
    pub(super) fn len(&self) -> usize {
        self.in_file + self.recent.len()
    }

    /// Adds the same offset until there are `count` of them.
    pub(super) fn fill(&mut self, count: usize, start: u32) -> io::Result<()> {
        while self.len() < count {
            let room = match self.file {
                Some(_) => RECENT_MAX - self.recent.len(),
                None => usize::MAX,
            };
            let more = room.min(count - self.len());
            self.recent.resize(self.recent.len() + more, start);
            if more == room {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            let bytes: Vec<u8> = self.recent.iter().flat_map(|start| start.to_le_bytes()).collect();
            file.write_all(&bytes)?;
            self.in_file += self.recent.len();
            self.recent.clear();
        }
        Ok(())
    }

    /// Every `step`th offset, in order.
    pub(super) fn every(self, step: usize) -> io::Result<impl Iterator<Item = io::Result<u32>>> {
        let reader = match self.file {
            Some(mut file) => {
                file.rewind()?;
                Some(BufReader::with_capacity(RECENT_MAX, file))
            }
            None => None,
        };
        let from_file = reader.into_iter().flat_map(move |mut reader| {
            (0..self.in_file).map(move |_| -> io::Result<u32> {
                let mut bytes = [0; 4];
                reader.read_exact(&mut bytes)?;
                Ok(u32::from_le_bytes(bytes))
            })
        });
        Ok(from_file.chain(self.recent.into_iter().map(Ok)).step_by(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_in_a_file_take_little_memory() {
        let lengths = [1, 5, RECENT_MAX, RECENT_MAX - 6, 3 * RECENT_MAX + 1, 7];
        let starts = |file: Option<File>| {
            let mut starts = Starts::default();
            file.into_iter().for_each(|file| starts.keep_in(file));
            let mut count = 0;
            for (number, length) in lengths.into_iter().enumerate() {
                count += length;
                starts.fill(count, number as u32).unwrap();
                starts.fill(count - 1, 99).unwrap();
                assert_eq!(starts.len(), count);
                assert!(starts.file.is_none() || starts.recent.capacity() <= RECENT_MAX);
            }
            starts
        };
        for step in [1, 2, 64] {
            let in_memory: Vec<u32> = starts(None).every(step).unwrap().map(Result::unwrap).collect();
            let file = Some(tempfile::tempfile().unwrap());
            let in_file: Vec<u32> = starts(file).every(step).unwrap().map(Result::unwrap).collect();
            assert_eq!(in_memory.len(), lengths.iter().sum::<usize>().div_ceil(step));
            assert!(in_memory == in_file);
        }
    }
}
