//! The list of the segments of a log, in a file that is always replaced as a whole: a missing segment is a loss.
//!
//! ```text
//! segments   "fondlst1", count (u32), number (u32)…, checksum (u64)              integers are little-endian
//! ```
//!
//! The checksum is the XXH3 of everything before it. A segment is added when it is full, and removed before it is
//! deleted. Segments that were created later are not listed, so the directory may contain more.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::directory;
use crate::error::EngineError;
use crate::failure;

const MAGIC: &[u8; 8] = b"fondlst1";
const FILE: &str = "segments";

/// The numbers of segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listed(BTreeSet<u32>);

impl Listed {
    pub(super) fn of(numbers: impl Iterator<Item = u32>) -> Self {
        Self(numbers.collect())
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Reads the list of a directory; `None` if it does not exist or is damaged.
    pub(super) fn read(dir: &Path) -> Result<Option<Self>, EngineError> {
        let path = dir.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => Ok(Self::decode(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound || failure::is_damage(&error) => Ok(None),
            Err(error) => Err(failure::io("read", &path, error)),
        }
    }

    /// Replaces the list of a directory, durably.
    pub(super) fn write(&self, dir: &Path) -> Result<(), EngineError> {
        let (begun, complete) = (dir.join("segments-begun"), dir.join(FILE));
        let write = || {
            let mut file = File::create(&begun)?;
            file.write_all(&self.encode())?;
            file.sync_all()?;
            fs::rename(&begun, &complete)?;
            directory::sync(dir)
        };
        write().map_err(|error| failure::io("write", &complete, error))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.0.len() as u32).to_le_bytes());
        self.0.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        let checksum = xxh3_64(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (said, checksum) = bytes.split_last_chunk::<8>()?;
        (xxh3_64(said) == u64::from_le_bytes(*checksum)).then_some(())?;
        let (count, numbers) = said.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
        let (numbers, rest) = numbers.as_chunks::<4>();
        let is_right = rest.is_empty() && numbers.len() == u32::from_le_bytes(*count) as usize;
        is_right.then(|| Self::of(numbers.iter().map(|number| u32::from_le_bytes(*number))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_intact_list_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Listed::read(dir.path()).unwrap(), None);
        for numbers in [&[][..], &[3], &[1, 2, 70_000]] {
            let listed = Listed::of(numbers.iter().copied());
            listed.write(dir.path()).unwrap();
            assert_eq!(Listed::read(dir.path()).unwrap(), Some(listed));
            let bytes = fs::read(dir.path().join(FILE)).unwrap();
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                fs::write(dir.path().join(FILE), flipped).unwrap();
                assert_eq!(Listed::read(dir.path()).unwrap(), None, "bit {bit}");
            }
        }
    }
}
