//! Goes through many sets at once, each id together with the number of sets that it is in.
//!
//! The ids are cut into *windows*, ranges that hold some hundred blocks each. The ids of a window are gathered from
//! all sets, then counted: in an array of counters if they are dense, else by sorting them. The windows are cut at
//! the first ids of blocks, which need not be decoded. A window has at least as many blocks as there are sets. So on
//! average each block is decoded twice at most: it may reach over an end of its window. The memory is a cursor in
//! each set, 8 bytes a block for the cuts, some 4 KiB a set for the ids of a window, and at most 16 MiB for counters.
//!
//! A dense union needs no windows: it has a [bit](crate::bits) for each number from its first id to its last.

use crate::bits::{Bits, SentBits, as_set};
use crate::encode::encode;
use crate::packing::BLOCK;
use crate::view::IdSet;
use crate::{Budget, IdsError};

/// The fewest blocks that a window has, but for the last: 32 768 ids fit the cache of a core.
const WINDOW_BLOCKS_MIN: usize = 256;
/// A window is dense if its range, from its first to its last id, has at most this many numbers for each id. Reading
/// its counters is then faster than sorting its ids.
const DENSE_RANGE: usize = 16;
/// The most counters: 16 MiB.
const COUNTERS_MAX: usize = 1 << 22;

/// The ids that are in any of the sets.
///
/// # Errors
/// More ids than the budget allows, or the caller stopped it.
pub fn union(sets: &[IdSet<'_>], budget: &mut Budget<'_>) -> Result<Vec<u64>, IdsError> {
    match sets {
        [one] => decoded(*one, budget),
        _ => match dense_union(sets, budget)? {
            Some((bits, count)) => Ok(bits.ids(count)),
            None => sparse_union(sets, budget),
        },
    }
}

/// The union of a part of the sets, encoded to be sent: a set, or, if that may be and the ids are dense, [bits](crate::bits).
///
/// # Errors
/// More ids than the budget allows, or the caller stopped it.
pub(crate) fn part_of_union(
    sets: &[IdSet<'_>],
    may_be_bits: bool,
    budget: &mut Budget<'_>,
) -> Result<Vec<u8>, IdsError> {
    match sets {
        [one] => alone(*one, budget),
        _ => match dense_union(sets, budget)? {
            Some((bits, count)) if may_be_bits && bits.are_sent(count) => Ok(bits.to_bytes()),
            Some((bits, count)) => encode(&bits.ids(count)),
            None => encode(&sparse_union(sets, budget)?),
        },
    }
}

/// The union of parts, each as [`part_of_union`] encoded it.
///
/// # Errors
/// A malformed part, more ids than the budget allows, or the caller stopped it.
pub(crate) fn union_of_parts<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    budget: &mut Budget<'_>,
) -> Result<Vec<u64>, IdsError> {
    let (mut sets, mut sent) = (Vec::new(), Vec::new());
    for part in parts {
        match SentBits::is(part) {
            true => sent.push((part, SentBits::parse(part)?)),
            false => sets.push(IdSet::open(part)?),
        }
    }
    if sent.is_empty() {
        return union(&sets, budget);
    }
    let sent_firsts = sent.iter().map(|(_, bits)| bits.first());
    let sent_lasts = sent.iter().map(|(_, bits)| bits.last());
    let least = sets.iter().filter_map(IdSet::first).chain(sent_firsts).min();
    let largest = sets.iter().filter_map(IdSet::last).chain(sent_lasts).max();
    let ids = sets
        .iter()
        .map(IdSet::len)
        .chain(sent.iter().map(|(_, bits)| bits.len()));
    let ids = ids.fold(0, usize::saturating_add);
    if let (Some(least), Some(largest)) = (least, largest)
        && let Some(mut bits) = Bits::between(least, largest, ids)
    {
        for (_, sent) in sent {
            bits.add_bits(sent);
        }
        bits.add_sets(&sets, budget)?;
        let count = bits.len();
        budget.check_length(count)?;
        return Ok(bits.ids(count));
    }
    // Each part is dense, and together they are not.
    let encoded = sent
        .iter()
        .map(|(part, _)| as_set(part))
        .collect::<Result<Vec<_>, _>>()?;
    let opened = encoded.iter().map(|set| IdSet::open(set));
    let sets = sets.into_iter().map(Ok).chain(opened).collect::<Result<Vec<_>, _>>()?;
    union(&sets, budget)
}

/// A set that is the result by itself, as it is: equal sets are equal bytes.
///
/// # Errors
/// More ids than the budget allows.
pub(crate) fn alone(set: IdSet<'_>, budget: &Budget<'_>) -> Result<Vec<u8>, IdsError> {
    budget.check_length(set.len())?;
    Ok(set.as_bytes().to_vec())
}

fn decoded(set: IdSet<'_>, budget: &mut Budget<'_>) -> Result<Vec<u64>, IdsError> {
    budget.check_length(set.len())?;
    let (mut out, mut block_ids) = (Vec::new(), [0; BLOCK]);
    for block in 0..set.blocks() {
        let ids = set.read(block, &mut block_ids);
        budget.spend(ids.len())?;
        out.extend_from_slice(ids);
    }
    Ok(out)
}

/// The union as bits with their number, if that costs less than sorting the ids.
fn dense_union(sets: &[IdSet<'_>], budget: &mut Budget<'_>) -> Result<Option<(Bits, usize)>, IdsError> {
    let least = sets.iter().filter_map(IdSet::first).min();
    let largest = sets.iter().filter_map(IdSet::last).max();
    let ids = sets.iter().map(IdSet::len).fold(0_usize, usize::saturating_add);
    let bits = least.zip(largest);
    let Some(mut bits) = bits.and_then(|(least, largest)| Bits::between(least, largest, ids)) else {
        return Ok(None);
    };
    bits.add_sets(sets, budget)?;
    let count = bits.len();
    budget.check_length(count)?;
    Ok(Some((bits, count)))
}

/// The union by windows.
fn sparse_union(sets: &[IdSet<'_>], budget: &mut Budget<'_>) -> Result<Vec<u64>, IdsError> {
    let mut out = Vec::new();
    for_each_id(sets, budget, |id, _, budget| {
        out.push(id);
        budget.check_length(out.len())
    })?;
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
