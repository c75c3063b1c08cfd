//! Goes through many sets at once, each id together with the number of sets that it is in.
//!
//! The ids are cut into *windows*, ranges that hold some hundred blocks each. The ids of a window are gathered from
//! all sets, then counted: in an array of counters if they are dense, else by sorting them. The windows are cut at
//! the first ids of blocks, which need not be decoded. A window has at least as many blocks as there are sets. So on
//! average each block is decoded twice at most: it may reach over an end of its window. The memory is a cursor in
//! each set, 8 bytes a block for the cuts, some 4 KiB a set for the ids of a window, and at most 16 MiB for counters.
//!
//! A dense union needs no windows: it has a bit for each number from its first id to its last.

use crate::packing::BLOCK;
use crate::view::IdSet;
use crate::{Budget, IdsError};

/// The fewest blocks that a window has, but for the last: 32 768 ids fit the cache of a core.
const WINDOW_BLOCKS_MIN: usize = 256;
/// A window is dense if its range, from its first to its last id, has at most this many numbers for each id. Reading
/// its counters is then faster than sorting its ids.
const DENSE_RANGE: usize = 16;
/// A union uses a bitmap of the range from its first to its last id if the range has at most this many numbers for
/// each id.
const BITS_PER_ID: usize = 128;
/// The most bits of a bitmap: 32 MiB.
const BITS_MAX: usize = 1 << 28;
/// The most counters: 16 MiB.
const COUNTERS_MAX: usize = 1 << 22;

/// The ids that are in any of the sets.
///
/// # Errors
/// More ids than the budget allows, or the caller stopped it.
pub fn union(sets: &[IdSet<'_>], budget: &mut Budget<'_>) -> Result<Vec<u64>, IdsError> {
    if let Some((least, range)) = dense_range(sets) {
        return union_of_bits(sets, least, range, budget);
    }
    let mut out = Vec::new();
    for_each_id(sets, budget, |id, _, budget| {
        out.push(id);
        budget.check_length(out.len())
    })?;
    Ok(out)
}

/// The least id and how many numbers there are from it to the largest, if a bit for each of them costs less than sorting the
/// ids.
fn dense_range(sets: &[IdSet<'_>]) -> Option<(u64, usize)> {
    let least = sets.iter().filter_map(IdSet::first).min()?;
    let largest = sets.iter().filter_map(IdSet::last).max()?;
    let range = usize::try_from(largest.checked_sub(least)?.checked_add(1)?).ok()?;
    let ids = sets.iter().map(IdSet::len).fold(0_usize, usize::saturating_add);
    let is_dense = sets.len() > 1 && range <= BITS_MAX && range / BITS_PER_ID <= ids;
    is_dense.then_some((least, range))
}

fn union_of_bits(sets: &[IdSet<'_>], least: u64, range: usize, budget: &mut Budget<'_>) -> Result<Vec<u64>, IdsError> {
    let mut bits = vec![0_u64; range.div_ceil(64)];
    let mut block_ids = [0; BLOCK];
    for set in sets {
        for block in 0..set.blocks() {
            let ids = set.read(block, &mut block_ids);
            budget.spend(ids.len())?;
            for &id in ids {
                // Ids of a malformed set may lie anywhere.
                let at = id.wrapping_sub(least);
                if let Some(word) = bits.get_mut((at / 64) as usize) {
                    *word |= 1 << (at % 64);
                }
            }
        }
    }
    let count = bits.iter().map(|word| word.count_ones() as usize).sum();
    budget.check_length(count)?;
    let mut out = Vec::with_capacity(count);
    for (word, mut rest) in (0..).zip(bits) {
        while rest != 0 {
            out.push(least + word * 64 + u64::from(rest.trailing_zeros()));
            rest &= rest - 1;
        }
    }
    Ok(out)
}

/// Calls `visit` with each id, ascending, and the number of sets that it is in.
pub(crate) fn for_each_id(
    sets: &[IdSet<'_>],
    budget: &mut Budget<'_>,
    mut visit: impl FnMut(u64, u32, &mut Budget<'_>) -> Result<(), IdsError>,
) -> Result<(), IdsError> {
    let mut places: Vec<Place<'_>> = sets.iter().filter_map(Place::first).collect();
    let (mut ids, mut counts, mut block_ids) = (Vec::new(), Vec::new(), [0; BLOCK]);
    let mut from = 0;
    for to in cuts(sets) {
        ids.clear();
        for place in &mut places {
            if place.next_id < to {
                place.gather(from, to, &mut block_ids, &mut ids, budget)?;
            }
        }
        count(&mut ids, &mut counts, budget, &mut visit)?;
        from = to;
    }
    Ok(())
}

/// The ends of the windows, ascending.
fn cuts(sets: &[IdSet<'_>]) -> Vec<u64> {
    let firsts = sets
        .iter()
        .flat_map(|set| (0..set.blocks()).map(|block| set.first_of(block)));
    let mut firsts: Vec<u64> = firsts.collect();
    firsts.sort_unstable();
    let window_blocks = sets.len().max(WINDOW_BLOCKS_MIN);
    let mut cuts: Vec<u64> = firsts.into_iter().step_by(window_blocks).skip(1).collect();
    cuts.dedup();
    cuts.push(u64::MAX);
    cuts
}

/// How far a set was read.
struct Place<'a> {
    set: IdSet<'a>,
    /// The block of the next id.
    block: usize,
    next_id: u64,
}

impl<'a> Place<'a> {
    fn first(set: &IdSet<'a>) -> Option<Self> {
        let next_id = set.first()?;
        Some(Self {
            set: *set,
            block: 0,
            next_id,
        })
    }

    /// Appends the ids of a window, which is the one after the last that was asked for.
    fn gather(
        &mut self,
        from: u64,
        to: u64,
        block_ids: &mut [u64; BLOCK],
        ids: &mut Vec<u64>,
        budget: &mut Budget<'_>,
    ) -> Result<(), IdsError> {
        while self.next_id < to {
            let all = self.set.read(self.block, block_ids);
            budget.spend(all.len())?;
            let below = &all[..all.partition_point(|&id| id < to)];
            ids.extend_from_slice(&below[below.partition_point(|&id| id < from)..]);
            if let Some(&next) = all.get(below.len()) {
                self.next_id = next;
                return Ok(());
            }
            self.block += 1;
            self.next_id = match self.block < self.set.blocks() {
                true => self.set.first_of(self.block),
                false => u64::MAX,
            };
        }
        Ok(())
    }
}

/// Calls `visit` with each of these ids, ascending, and how often it is there. Their order is lost.
fn count(
    ids: &mut [u64],
    counts: &mut Vec<u32>,
    budget: &mut Budget<'_>,
    visit: &mut impl FnMut(u64, u32, &mut Budget<'_>) -> Result<(), IdsError>,
) -> Result<(), IdsError> {
    let least = ids.iter().copied().min().unwrap_or(0);
    let range = ids.iter().copied().max().unwrap_or(0) - least;
    if range >= (ids.len() * DENSE_RANGE).min(COUNTERS_MAX) as u64 {
        // The stable sort: it merges runs, which the ids of a set are.
        ids.sort();
        return ids
            .chunk_by(|a, b| a == b)
            .try_for_each(|same| visit(same[0], same.len() as u32, budget));
    }
    counts.clear();
    counts.resize(range as usize + 1, 0);
    for &id in ids.iter() {
        counts[(id - least) as usize] += 1;
    }
    for (id, &count) in (least..).zip(counts.iter()) {
        if count > 0 {
            visit(id, count, budget)?;
        }
    }
    Ok(())
}
