//! A whole dataset in memory, in key order, as bulk loads of other engines require.
//!
//! Both cores read and sort; the two halves are merged during iteration. Memory is not limited: this is the fastest
//! preparation for the peers that we know.

use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};

use super::KEY_BYTES;
use super::file;

const THREADS: usize = 2;

/// Records in the order of their keys.
pub struct SortedRecords {
    runs: Vec<Run>,
}

struct Run {
    /// All values, concatenated.
    values: Vec<u8>,
    /// The key as a number, the offset of its value, and its length.
    entries: Vec<(u128, u64, u32)>,
}

impl SortedRecords {
    /// Reads and sorts a file of [`file::write`].
    pub fn read(path: &Path) -> Result<Self> {
        let runs = thread::scope(|scope| {
            let readers: Vec<_> = (0..THREADS)
                .map(|at| scope.spawn(move || Run::read(path, at)))
                .collect();
            let joined = readers.into_iter().map(|reader| {
                // A panic of a reader is a bug of this program: propagate it.
                reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect::<Result<Vec<_>>>()
        })?;
        Ok(Self { runs })
    }

    /// Passes each key and value to `each`, in key order.
    pub fn for_each(&self, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let mut at = vec![0; self.runs.len()];
        loop {
            let heads = self.runs.iter().zip(&at).enumerate();
            let heads = heads.filter_map(|(number, (run, &at))| Some((run.entries.get(at)?.0, number)));
            let Some((key, number)) = heads.min() else {
                return Ok(());
            };
            let run = &self.runs[number];
            let (_, start, bytes) = run.entries[at[number]];
            at[number] += 1;
            let value = &run.values[start as usize..start as usize + bytes as usize];
            each(&key.to_be_bytes()[16 - KEY_BYTES..], value)?;
        }
    }
}

impl Run {
    fn read(path: &Path, first: usize) -> Result<Self> {
        let mut run = Self {
            values: Vec::new(),
            entries: Vec::new(),
        };
        file::read(path, first, THREADS, |key, value| {
            ensure!(key.len() == KEY_BYTES, "the key {key:?} is not of this benchmark");
            let mut number = [0; 16];
            number[16 - KEY_BYTES..].copy_from_slice(key);
            let bytes = u32::try_from(value.len()).context("a value is too long")?;
            run.entries
                .push((u128::from_be_bytes(number), run.values.len() as u64, bytes));
            run.values.extend_from_slice(value);
            Ok(())
        })?;
        run.entries.sort_unstable();
        Ok(run)
    }
}
