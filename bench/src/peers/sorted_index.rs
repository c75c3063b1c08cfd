//! The obvious baseline, as described in the Voldemort papers: a data file, and an index of fixed-size entries sorted
//! by the hash of the key, with binary or interpolation search. Both files are mapped. It verifies keys but no
//! checksums.
//!
//! ```text
//! index entry  bytes  field          data record  bytes  field
//!           0      8  hash                     0      2  length of the key
//!           8      4  place in the data        2      4  length of the value
//!                                              6      …  key, value
//! ```
//!
//! All numbers are little-endian. (The entries in the papers have 16 bytes of MD5; 8 bytes of a good hash favour the
//! baseline.)

use std::cmp::Ordering;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use memmap2::{Advice, Mmap};
use xxhash_rust::xxh3::xxh3_64;

use super::{OpenSettings, ReadOnlyEngine, Reader};
use crate::dataset::file;

const ENTRY_BYTES: usize = 12;
const RECORD_HEADER_BYTES: usize = 6;
const BUFFER_BYTES: usize = 1 << 20;

/// Both files, mapped.
pub struct SortedIndex<const INTERPOLATION: bool> {
    index: Mmap,
    data: Mmap,
}

impl<const INTERPOLATION: bool> SortedIndex<INTERPOLATION> {
    #[inline]
    fn entries(&self) -> usize {
        self.index.len() / ENTRY_BYTES
    }

    #[inline]
    fn hash_at(&self, at: usize) -> u64 {
        let entry = &self.index[at * ENTRY_BYTES..][..8];
        u64::from_le_bytes(std::array::from_fn(|byte| entry[byte]))
    }

    /// The key and value of an entry.
    #[inline]
    fn record_at(&self, at: usize) -> (&[u8], &[u8]) {
        let entry = &self.index[at * ENTRY_BYTES + 8..][..4];
        let place = u32::from_le_bytes(std::array::from_fn(|byte| entry[byte])) as usize;
        let header = &self.data[place..place + RECORD_HEADER_BYTES];
        let key_bytes = usize::from(u16::from_le_bytes([header[0], header[1]]));
        let value_bytes = u32::from_le_bytes([header[2], header[3], header[4], header[5]]) as usize;
        let record = &self.data[place + RECORD_HEADER_BYTES..];
        (&record[..key_bytes], &record[key_bytes..key_bytes + value_bytes])
    }

    /// The first entry whose hash is not lower than this one.
    #[inline]
    fn lower_bound(&self, hash: u64) -> usize {
        if INTERPOLATION {
            self.lower_bound_by_interpolation(hash)
        } else {
            self.lower_bound_in_halves(hash, 0, self.entries())
        }
    }

    fn lower_bound_in_halves(&self, hash: u64, mut low: usize, mut high: usize) -> usize {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.hash_at(middle) < hash {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Interpolates as long as that narrows the range well, then continues with binary search.
    fn lower_bound_by_interpolation(&self, hash: u64) -> usize {
        const NARROW: usize = 16;
        let (mut low, mut high) = (0, self.entries());
        let (mut low_hash, mut high_hash) = (0u64, u64::MAX);
        while high - low > NARROW && low_hash < hash && hash < high_hash {
            let share = u128::from(hash - low_hash) * (high - low) as u128 / u128::from(high_hash - low_hash);
            let guess = (low + share as usize).min(high - 1);
            let found = self.hash_at(guess);
            match found.cmp(&hash) {
                Ordering::Less => (low, low_hash) = (guess + 1, found),
                Ordering::Equal | Ordering::Greater => (high, high_hash) = (guess, found),
            }
        }
        self.lower_bound_in_halves(hash, low, high)
    }
}

impl<const INTERPOLATION: bool> ReadOnlyEngine for SortedIndex<INTERPOLATION> {
    type Reader<'a> = &'a Self;

    fn load(parquet: &Path, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        let mut data = BufWriter::with_capacity(BUFFER_BYTES, File::create(dir.join("data"))?);
        let mut place = 0u64;
        let mut entries = Vec::new();
        file::read(parquet, 0, 1, |key, value| {
            let at = u32::try_from(place).context("the baseline's places end at 4 GiB")?;
            entries.push((xxh3_64(key), at));
            data.write_all(&(key.len() as u16).to_le_bytes())?;
            data.write_all(&(value.len() as u32).to_le_bytes())?;
            data.write_all(key)?;
            data.write_all(value)?;
            place += (RECORD_HEADER_BYTES + key.len() + value.len()) as u64;
            Ok(())
        })?;
        data.into_inner()?.sync_all()?;
        entries.sort_unstable();
        let mut index = BufWriter::with_capacity(BUFFER_BYTES, File::create(dir.join("index"))?);
        for (hash, at) in entries {
            index.write_all(&hash.to_le_bytes())?;
            index.write_all(&at.to_le_bytes())?;
        }
        index.into_inner()?.sync_all()?;
        Ok(())
    }

    fn open(dir: &Path, _: OpenSettings) -> Result<Self> {
        let map = |name: &str| -> Result<Mmap> {
            let path = dir.join(name);
            let file = File::open(&path).with_context(|| format!("could not open {path:?}"))?;
            // SAFETY: the file is private to this benchmark, which wrote it once before.
            let map = unsafe { Mmap::map(&file)? };
            map.advise(Advice::Random)?;
            Ok(map)
        };
        let (index, data) = (map("index")?, map("data")?);
        ensure!(index.len() % ENTRY_BYTES == 0, "the index in {dir:?} is truncated");
        Ok(Self { index, data })
    }

    fn reader(&self) -> Result<&Self> {
        Ok(self)
    }

    fn index_bytes(&self) -> Result<u64> {
        Ok(self.index.len() as u64)
    }
}

impl<const INTERPOLATION: bool> Reader for &SortedIndex<INTERPOLATION> {
    #[inline]
    fn get<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let hash = xxh3_64(key);
        let mut at = self.lower_bound(hash);
        while at < self.entries() && self.hash_at(at) == hash {
            let (found, value) = self.record_at(at);
            if found == key {
                return Ok(Some(read(value)));
            }
            at += 1;
        }
        Ok(None)
    }
}
