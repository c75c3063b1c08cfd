//! Ids by the number of sets that they are in, of all sets or in part.
//!
//! ```text
//! multiplicities   version (1 byte, 1), length of the set (4 bytes, little-endian), set of the ids,
//!                  block of 128 counts less one, fewer in the last one…
//! ```
//! See [`encode`] for sets, and `packing` for blocks. Equal multiplicities are equal bytes.

use std::cmp::Reverse;

use crate::encode::{VERSION, encode};
use crate::merge::for_each_id;
use crate::packing::{BLOCK, canonical_block_bytes, put_block, read_block};
use crate::view::IdSet;
use crate::{Budget, IdsError};

/// An id and the number of sets that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Multiplicity {
    /// The id.
    pub id: u64,
    /// How many sets it is in, at least one.
    pub count: u64,
}

/// All ids of the sets, ascending, each with the number of sets that it is in.
///
/// # Errors
/// More ids than the budget allows, or the caller stopped it.
pub fn multiplicities(sets: &[IdSet<'_>], budget: &mut Budget<'_>) -> Result<Vec<Multiplicity>, IdsError> {
    let mut out = Vec::new();
    for_each_id(sets, budget, |id, count, budget| {
        let count = u64::from(count);
        out.push(Multiplicity { id, count });
        budget.check_length(out.len())
    })?;
    Ok(out)
}

/// The ids that are in the most sets, at most `length` of them: by the number of sets, descending, then by id, ascending.
/// The multiplicities are in any order, each id once.
pub fn top(mut multiplicities: Vec<Multiplicity>, length: usize) -> Vec<Multiplicity> {
    let key = |multiplicity: &Multiplicity| (Reverse(multiplicity.count), multiplicity.id);
    if length < multiplicities.len() {
        multiplicities.select_nth_unstable_by_key(length, key);
        multiplicities.truncate(length);
    }
    multiplicities.sort_unstable_by_key(key);
    multiplicities
}

/// Adds up the multiplicities of parts of the sets, each as [`multiplicities`] returned it.
///
/// # Errors
/// More ids than the budget allows, or the caller stopped it.
pub fn merge_multiplicities(
    parts: &[Vec<Multiplicity>],
    budget: &mut Budget<'_>,
) -> Result<Vec<Multiplicity>, IdsError> {
    let mut sum: Vec<Multiplicity> = Vec::new();
    for part in parts {
        // Two ascending runs, which this sort merges.
        sum.extend_from_slice(part);
        sum.sort_by_key(|multiplicity| multiplicity.id);
        sum.dedup_by(|next, kept| {
            let is_same = next.id == kept.id;
            if is_same {
                kept.count = kept.count.saturating_add(next.count);
            }
            is_same
        });
        budget.check_length(sum.len())?;
        budget.spend(sum.len())?;
    }
    Ok(sum)
}

/// Encodes multiplicities, whose ids are in ascending order, without duplicates and at most
/// [`ID_MAX`](crate::ID_MAX).
///
/// # Errors
/// An id that is too large, or not larger than the one before it; a count of zero; or more than 4 GiB.
pub fn encode_multiplicities(multiplicities: &[Multiplicity]) -> Result<Vec<u8>, IdsError> {
    let ids: Vec<u64> = multiplicities.iter().map(|multiplicity| multiplicity.id).collect();
    let set = encode(&ids)?;
    let set_bytes = u32::try_from(set.len()).map_err(|_| IdsError::ValueTooLong { count: ids.len() })?;
    let mut out = vec![VERSION];
    out.extend_from_slice(&set_bytes.to_le_bytes());
    out.extend_from_slice(&set);
    let mut counts = [0; BLOCK];
    for block in multiplicities.chunks(BLOCK) {
        for (less_one, &Multiplicity { id, count }) in counts.iter_mut().zip(block) {
            *less_one = count.checked_sub(1).ok_or(IdsError::NoMultiplicity { id })?;
        }
        put_block(&mut out, &counts[..block.len()]);
    }
    Ok(out)
}

/// Reads multiplicities, and checks all bytes.
///
/// # Errors
/// The defect, and its place. The place of a defect of the ids counts from the beginning of their set.
pub fn parse_multiplicities(bytes: &[u8]) -> Result<Vec<Multiplicity>, IdsError> {
    let Some((&version, rest)) = bytes.split_first() else {
        return Err(IdsError::invalid(0, "there are no bytes"));
    };
    if version != VERSION {
        return Err(IdsError::UnknownVersion { found: version });
    }
    let Some((set_bytes, rest)) = rest.split_first_chunk() else {
        return Err(IdsError::invalid(1, "the bytes end within the length of the set"));
    };
    let set_bytes = u32::from_le_bytes(*set_bytes) as usize;
    let Some((set, mut counts)) = rest.split_at_checked(set_bytes) else {
        return Err(IdsError::invalid(1, "the bytes end within the set of the ids"));
    };
    let set = IdSet::parse(set)?;
    let mut ids = Vec::new();
    set.decode_into(&mut ids);
    let (mut out, mut scratch) = (Vec::with_capacity(ids.len()), Vec::new());
    for block in ids.chunks(BLOCK) {
        let at = bytes.len() - counts.len();
        let mut numbers = [0; BLOCK];
        let numbers = &mut numbers[..block.len()];
        if read_block(counts, numbers).is_none() {
            return Err(IdsError::invalid(
                at,
                "the bytes end within the counts, or their widths are impossible",
            ));
        }
        let length = canonical_block_bytes(counts, numbers, &mut scratch);
        let length = length.ok_or(IdsError::invalid(at, "counts are not written in the shortest way"))?;
        counts = &counts[length..];
        for (&id, &less_one) in block.iter().zip(numbers.iter()) {
            let count = less_one.checked_add(1);
            let count = count.ok_or(IdsError::invalid(at, "a count has more than 64 bits"))?;
            out.push(Multiplicity { id, count });
        }
    }
    match counts.is_empty() {
        true => Ok(out),
        false => Err(IdsError::invalid(
            bytes.len() - counts.len(),
            "there are bytes after the last count",
        )),
    }
}
