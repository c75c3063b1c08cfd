//! The names of tables and the numbers that identify them in the log, in a file that is always replaced as a whole.
//!
//! ```text
//! tables   "fondtbl1", next number (u32), count (u32), table…, checksum (u64)     integers are little-endian
//! table    number (u32), length of the name (u8), name
//! ```
//!
//! The checksum is the XXH3 of everything before it. Numbers are never reused, so log records of a dropped table are
//! never attributed to another table.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::EngineError;
use crate::failure;

const MAGIC: &[u8; 8] = b"fondtbl1";
const FILE: &str = "tables";

/// The names, and the next number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Catalog {
    pub(super) numbers: BTreeMap<String, u32>,
    pub(super) next: u32,
}

impl Catalog {
    /// Reads the catalog of a directory; `None` if the file does not exist.
    pub(super) fn read(dir: &Path) -> Result<Option<Self>, EngineError> {
        let path = dir.join(FILE);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| failure::io("read", &path, error))?,
        };
        let catalog = Self::decode(&bytes);
        catalog
            .map(Some)
            .ok_or_else(|| failure::corrupt(&path, "the table names do not match their checksum"))
    }

    /// Replaces the catalog of a directory, durably.
    pub(super) fn write(&self, dir: &Path) -> Result<(), EngineError> {
        let (begun, complete) = (dir.join("tables-begun"), dir.join(FILE));
        let written = fondaco_durable::replace_file(&complete, &begun, &self.encode());
        written.map_err(|error| failure::io("write", &complete, error))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.next.to_le_bytes());
        bytes.extend((self.numbers.len() as u32).to_le_bytes());
        for (name, number) in &self.numbers {
            bytes.extend(number.to_le_bytes());
            // The length of a name fits into a byte.
            bytes.push(name.len() as u8);
            bytes.extend(name.as_bytes());
        }
        let checksum = xxh3_64(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (said, checksum) = bytes.split_last_chunk::<8>()?;
        let rest = said.strip_prefix(MAGIC)?;
        (xxh3_64(said) == u64::from_le_bytes(*checksum)).then_some(())?;
        let number = |rest: &mut &[u8]| {
            let (number, behind) = rest.split_first_chunk::<4>()?;
            *rest = behind;
            Some(u32::from_le_bytes(*number))
        };
        let rest = &mut &*rest;
        let (next, count) = (number(rest)?, number(rest)?);
        let mut numbers = BTreeMap::new();
        for _ in 0..count {
            let number = number(rest)?;
            let (length, behind) = rest.split_first()?;
            let (name, behind) = behind.split_at_checked((*length).into())?;
            numbers.insert(str::from_utf8(name).ok()?.to_owned(), number);
            *rest = behind;
        }
        Some(Self { numbers, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_intact_catalog_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Catalog::read(dir.path()).unwrap(), None);
        let numbers = [("one", 1), ("two", 7)].map(|(name, number)| (name.to_owned(), number));
        let catalog = Catalog {
            numbers: numbers.into(),
            next: 8,
        };
        catalog.write(dir.path()).unwrap();
        assert_eq!(Catalog::read(dir.path()).unwrap().as_ref(), Some(&catalog));
        let bytes = fs::read(dir.path().join(FILE)).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(dir.path().join(FILE), flipped).unwrap();
            let read = Catalog::read(dir.path());
            assert!(matches!(read, Err(EngineError::Corrupt { .. })), "bit {bit}: {read:?}");
        }
    }
}
