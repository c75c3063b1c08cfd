//! Sorts a bucket and hands over its records, one per key.
//!
//! A bucket that fits into the thread's share of memory is loaded and sorted in place, by moving 16-byte entries, not
//! records. A larger one is first split by the next bits of the position. Splitting does not help against one very
//! frequent key: if a part still has most of the records after a split, duplicates are dropped piece by piece first.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use super::bucket::{Block, Part};
use super::record::{Positions, Record, RowId};
use super::spill::SpillFile;
use crate::error::BuildError;

/// The number of parts of a split, in bits. Each part is an open file.
const SPLIT_BITS: u32 = 4;

/// The size of a part's write buffer, in bytes.
const SPLIT_BUFFER_BYTES: usize = 64 << 10;

/// How many records ahead to prefetch: a few hundred nanoseconds, the latency of memory.
const PREFETCH_AHEAD: usize = 16;

/// This few records are loaded whatever their size, so that a huge record is not split for ever.
const RECORDS_LOADED_ALWAYS: u64 = 4;

/// This many records of one position are sorted by their keys; of more it is checked first whether they have one key.
const RUN_SORTED_MAX: usize = 1024;

/// The record that is kept of several with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Winner {
    /// None: a duplicate is an error.
    None,
    /// The one that comes first in the input.
    First,
    /// The one that comes last in the input.
    Last,
    /// All: they are handed over one after the other, first the one that comes first in the input, then the others in
    /// any order.
    All,
}

/// The settings for sorting buckets.
#[derive(Clone, Copy)]
pub(crate) struct Drain<'a> {
    pub(crate) positions: Positions,
    pub(crate) winner: Winner,
    /// The limit for loading at a time, records and entries together.
    pub(crate) share_bytes: u64,
    pub(crate) temporary: &'a Path,
    /// The input files by number, for error messages.
    pub(crate) files: &'a [PathBuf],
}

/// A record by its position and its address: block number << 32 | offset in the block.
#[derive(Clone, Copy)]
struct Entry {
    position: u64,
    place: u64,
}

/// The memory of a sorting thread, reused for the next part: fresh memory would cost page faults.
#[derive(Default)]
pub(crate) struct Scratch {
    records: Block,
    entries: Vec<Entry>,
}

impl Scratch {
    /// Takes the empty buffer for the records of a file.
    fn take_records(&mut self, bytes: usize) -> Block {
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        with_capacity(&mut records, bytes);
        records
    }

    /// Keeps the buffer of records, unless it and the entries together are too large.
    fn give_back(&mut self, records: Block, bytes_max: u64) {
        let entries_bytes = self.entries.capacity() * size_of::<Entry>();
        if (records.capacity() + entries_bytes) as u64 <= bytes_max {
            self.records = records;
        } else {
            *self = Self::default();
        }
    }
}

/// Makes room for exactly this many elements in an empty vector. The old memory is freed first, not copied.
fn with_capacity<T>(vector: &mut Vec<T>, elements: usize) {
    debug_assert!(vector.is_empty());
    if vector.capacity() < elements {
        *vector = Vec::new();
        vector.reserve_exact(elements);
    }
}

/// The consumer of each kept record.
type Emit<'a> = dyn FnMut(&Record<'_>) -> Result<(), BuildError> + 'a;

impl Drain<'_> {
    /// Hands over the records of a part whose positions agree in the first `depth` bits, in the order of (position,
    /// hash, key). Returns how many duplicates were dropped.
    pub(crate) fn drain(
        &self,
        mut part: Part,
        depth: u32,
        scratch: &mut Scratch,
        emit: &mut Emit<'_>,
    ) -> Result<u64, BuildError> {
        let to_load = part.file_bytes() + part.records * size_of::<Entry>() as u64;
        if to_load > self.share_bytes && part.records > RECORDS_LOADED_ALWAYS {
            return self.split(part, depth, scratch, emit);
        }
        let Some(file) = part.file.take() else {
            return self.drain_loaded(&part.blocks, part.records, scratch, emit);
        };
        let mut records = scratch.take_records(file.bytes() as usize);
        file.load(&mut records, self.temporary)?;
        part.blocks.push(records);
        let dropped = self.drain_loaded(&part.blocks, part.records, scratch, emit)?;
        // It was pushed last.
        scratch.give_back(part.blocks.pop().unwrap_or_default(), self.share_bytes);
        Ok(dropped)
    }

    /// Sorts a part in memory.
    fn drain_loaded(
        &self,
        blocks: &[Block],
        records: u64,
        scratch: &mut Scratch,
        emit: &mut Emit<'_>,
    ) -> Result<u64, BuildError> {
        let entries = &mut scratch.entries;
        self.write_entries(blocks, records, entries)?;
        entries.sort_unstable_by_key(|entry| entry.position);
        let mut dropped = 0;
        let mut rest = &entries[..];
        while let [first, others @ ..] = rest {
            if let Some(soon) = rest.get(PREFETCH_AHEAD) {
                prefetch(blocks, *soon);
            }
            if others.first().is_none_or(|next| next.position != first.position) {
                emit(&self.record(blocks, *first)?)?;
                rest = others;
                continue;
            }
            let run = rest.iter().take_while(|entry| entry.position == first.position).count();
            dropped += self.drain_run(blocks, &rest[..run], emit)?;
            rest = &rest[run..];
        }
        Ok(dropped)
    }

    /// Hands over records with the same position: nearly always duplicates of one key.
    #[cold]
    fn drain_run(&self, blocks: &[Block], run: &[Entry], emit: &mut Emit<'_>) -> Result<u64, BuildError> {
        if self.winner == Winner::All && run.len() > RUN_SORTED_MAX && self.is_one_key(blocks, run)? {
            return self.drain_one_key(blocks, run, emit);
        }
        let records: Result<Vec<Record<'_>>, BuildError> =
            run.iter().map(|entry| self.record(blocks, *entry)).collect();
        let mut records = records?;
        records.sort_unstable_by(|a, b| by_key(a, b).then(a.row.cmp(&b.row)));
        let mut dropped = 0;
        for same_key in records.chunk_by(|a, b| by_key(a, b).is_eq()) {
            if self.winner == Winner::All {
                same_key.iter().try_for_each(&mut *emit)?;
                continue;
            }
            let kept = match (self.winner, same_key) {
                (Winner::None, [first, second, ..]) => {
                    return Err(BuildError::duplicate(self.files, first.key, first.row, second.row));
                }
                (Winner::Last, [.., last]) => last,
                // A chunk has at least one record.
                _ => &same_key[0],
            };
            emit(kept)?;
            dropped += same_key.len() as u64 - 1;
        }
        Ok(dropped)
    }

    fn is_one_key(&self, blocks: &[Block], run: &[Entry]) -> Result<bool, BuildError> {
        let first = self.record(blocks, run[0])?;
        for entry in run {
            if by_key(&self.record(blocks, *entry)?, &first).is_ne() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hands over many records of one key without a list of them.
    fn drain_one_key(&self, blocks: &[Block], run: &[Entry], emit: &mut Emit<'_>) -> Result<u64, BuildError> {
        let mut first = (0, self.record(blocks, run[0])?.row);
        for (number, entry) in run.iter().enumerate() {
            let row = self.record(blocks, *entry)?.row;
            if row < first.1 {
                first = (number, row);
            }
        }
        emit(&self.record(blocks, run[first.0])?)?;
        for (number, entry) in run.iter().enumerate() {
            if number != first.0 {
                emit(&self.record(blocks, *entry)?)?;
            }
        }
        Ok(0)
    }

    fn write_entries(&self, blocks: &[Block], records: u64, entries: &mut Vec<Entry>) -> Result<(), BuildError> {
        entries.clear();
        with_capacity(entries, records as usize);
        for (number, block) in blocks.iter().enumerate() {
            let mut offset = 0;
            while offset < block.len() {
                let record = self.record_at(block, offset)?;
                let place = (number as u64) << 32 | offset as u64;
                entries.push(Entry {
                    position: self.positions.of(&record),
                    place,
                });
                offset += record.stored_bytes();
            }
        }
        Ok(())
    }

    fn record<'b>(&self, blocks: &'b [Block], entry: Entry) -> Result<Record<'b>, BuildError> {
        self.record_at(&blocks[(entry.place >> 32) as usize], entry.place as u32 as usize)
    }

    fn record_at<'b>(&self, block: &'b [u8], offset: usize) -> Result<Record<'b>, BuildError> {
        Record::read(&block[offset..]).ok_or_else(|| BuildError::temporary_damaged(self.temporary))
    }

    /// Splits a part that is too large by the next bits, and drains each piece.
    fn split(&self, part: Part, depth: u32, scratch: &mut Scratch, emit: &mut Emit<'_>) -> Result<u64, BuildError> {
        let bits = SPLIT_BITS.min(u64::BITS - depth);
        if bits == 0 && self.winner == Winner::All {
            return self.drain_around(part, depth, scratch, emit);
        }
        if bits == 0 {
            let (part, dropped) = self.compact(part, scratch)?;
            return Ok(dropped + self.drain(part, depth, scratch, emit)?);
        }
        let bytes = part.bytes();
        let mut parts: Vec<PartWriter<'_>> = (0..1 << bits).map(|_| PartWriter::new(self.temporary)).collect();
        let shift = u64::BITS - depth - bits;
        self.visit(part, |record| {
            let number = self.positions.of(record) >> shift & ((1 << bits) - 1);
            parts[number as usize].add(record)
        })?;
        let mut dropped = 0;
        for part in parts {
            let mut part = part.finish()?;
            if part.bytes() > bytes / 2 && self.winner == Winner::All {
                dropped += self.drain_around(part, depth + bits, scratch, emit)?;
                continue;
            }
            if part.bytes() > bytes / 2 {
                let (smaller, duplicates) = self.compact(part, scratch)?;
                part = smaller;
                dropped += duplicates;
            }
            dropped += self.drain(part, depth + bits, scratch, emit)?;
        }
        Ok(dropped)
    }

    /// Hands over a part in which one key may have most of the records: what is before it, its own records, which are not
    /// sorted, and what is after it.
    fn drain_around(
        &self,
        part: Part,
        depth: u32,
        scratch: &mut Scratch,
        emit: &mut Emit<'_>,
    ) -> Result<u64, BuildError> {
        let Some(middle) = self.majority(&part)? else {
            return Ok(0);
        };
        let middle = self.record_at(&middle, 0)?;
        let in_order = |record: &Record<'_>| {
            let positions = self.positions.of(record).cmp(&self.positions.of(&middle));
            positions.then_with(|| by_key(record, &middle))
        };
        let [mut before, mut equal, mut after] = [(); 3].map(|()| PartWriter::new(self.temporary));
        // The record that comes first in the input.
        let mut first: Option<(RowId, Block)> = None;
        self.visit(part, |record| match in_order(record) {
            Ordering::Less => before.add(record),
            Ordering::Greater => after.add(record),
            Ordering::Equal if first.as_ref().is_none_or(|(row, _)| record.row < *row) => {
                let mut block = Block::new();
                record.write_to(&mut block);
                match first.replace((record.row, block)) {
                    Some((_, former)) => equal.add(&self.record_at(&former, 0)?),
                    None => Ok(()),
                }
            }
            Ordering::Equal => equal.add(record),
        })?;
        self.drain(before.finish()?, depth, scratch, emit)?;
        if let Some((_, first)) = first {
            emit(&self.record_at(&first, 0)?)?;
        }
        self.visit(equal.finish()?, &mut *emit)?;
        self.drain(after.finish()?, depth, scratch, emit)
    }

    /// A record of the key that has most of the records, if there is such a key; otherwise any record. By the majority
    /// vote of Boyer and Moore.
    fn majority(&self, part: &Part) -> Result<Option<Block>, BuildError> {
        let (mut candidate, mut votes) = (Block::new(), 0_u64);
        self.visit_kept(part, |record| {
            if votes == 0 {
                candidate.clear();
                record.write_to(&mut candidate);
            }
            match by_key(record, &self.record_at(&candidate, 0)?) {
                Ordering::Equal => votes += 1,
                Ordering::Less | Ordering::Greater => votes -= 1,
            }
            Ok(())
        })?;
        Ok((!candidate.is_empty()).then_some(candidate))
    }

    /// Drops duplicates, piece by piece, from a part that consists mostly of them, so that it shrinks to a fraction.
    /// Returns how many were dropped.
    fn compact(&self, part: Part, scratch: &mut Scratch) -> Result<(Part, u64), BuildError> {
        let piece_bytes = self.share_bytes as usize / 2;
        let mut compacted = PartWriter::new(self.temporary);
        let mut piece = Block::new();
        let mut records = 0;
        let mut dropped = 0;
        self.visit(part, |record| {
            // At least two records per piece, so that two duplicates always become one.
            if records >= 2 && piece.len() + record.stored_bytes() > piece_bytes {
                let full = std::slice::from_ref(&piece);
                dropped += self.drain_loaded(full, records, scratch, &mut |record| compacted.add(record))?;
                piece.clear();
                records = 0;
            }
            record.write_to(&mut piece);
            records += 1;
            Ok(())
        })?;
        dropped += self.drain_loaded(&[piece], records, scratch, &mut |record| compacted.add(record))?;
        Ok((compacted.finish()?, dropped))
    }

    /// Hands over all records of a part in any order, and keeps the part.
    fn visit_kept(
        &self,
        part: &Part,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        for block in &part.blocks {
            self.visit_block(block, &mut visit)?;
        }
        match &part.file {
            Some(file) => file.stream(self.temporary, visit),
            None => Ok(()),
        }
    }

    fn visit_block(
        &self,
        block: &[u8],
        mut visit: impl FnMut(&Record<'_>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        let mut offset = 0;
        while offset < block.len() {
            let record = self.record_at(block, offset)?;
            visit(&record)?;
            offset += record.stored_bytes();
        }
        Ok(())
    }

    /// Hands over all records of a part in any order.
    fn visit(
        &self,
        part: Part,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        for block in part.blocks {
            self.visit_block(&block, &mut visit)?;
        }
        match part.file {
            Some(file) => file.stream(self.temporary, visit),
            None => Ok(()),
        }
    }
}

/// Prefetches the beginning of a record, which may be anywhere in the bucket.
#[inline]
fn prefetch(blocks: &[Block], entry: Entry) {
    let bytes = &blocks[(entry.place >> 32) as usize][entry.place as u32 as usize..];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint that reads nothing and never faults, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().cast());
        _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(64).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

fn by_key(a: &Record<'_>, b: &Record<'_>) -> Ordering {
    a.hash.cmp(&b.hash).then_with(|| a.key.cmp(b.key))
}

/// Writes a part to a temporary file.
pub(crate) struct PartWriter<'a> {
    temporary: &'a Path,
    buffer: Block,
    file: Option<SpillFile>,
    records: u64,
}

impl<'a> PartWriter<'a> {
    pub(crate) fn new(temporary: &'a Path) -> Self {
        Self {
            temporary,
            buffer: Block::new(),
            file: None,
            records: 0,
        }
    }

    pub(crate) fn add(&mut self, record: &Record<'_>) -> Result<(), BuildError> {
        record.write_to(&mut self.buffer);
        self.records += 1;
        if self.buffer.len() >= SPLIT_BUFFER_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), BuildError> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(SpillFile::create(self.temporary)?),
        };
        file.append(&self.buffer, self.temporary)?;
        self.buffer.clear();
        self.buffer.shrink_to(SPLIT_BUFFER_BYTES);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<Part, BuildError> {
        if self.file.is_some() && !self.buffer.is_empty() {
            self.flush()?;
        }
        // A part that never filled its buffer stays in memory.
        let blocks = if self.buffer.is_empty() {
            vec![]
        } else {
            vec![self.buffer]
        };
        Ok(Part {
            blocks,
            file: self.file,
            records: self.records,
        })
    }
}
