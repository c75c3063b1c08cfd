//! Operations that go through one set and look its ids up in others: what they read is in proportion to the smallest set,
//! since cursors skip blocks.

use crate::cursor::Cursor;
use crate::view::IdSet;
use crate::{Budget, IdsError};

/// The ids that are in all sets. Without sets the result is empty.
///
/// # Errors
/// More ids than the budget allows, or the caller stopped it.
pub fn intersection(sets: &[IdSet<'_>], budget: &mut Budget<'_>) -> Result<Vec<u64>, IdsError> {
    let mut out = Vec::new();
    for_each_common(sets, budget, |ids, budget| {
        budget.check_length(out.len() + ids.len())?;
        out.extend_from_slice(ids);
        Ok(true)
    })?;
    Ok(out)
}

/// Whether two sets have an id in common. Ends at the first one.
///
/// # Errors
/// The caller stopped it. The limit of ids does not matter.
pub fn intersects(a: IdSet<'_>, b: IdSet<'_>, budget: &mut Budget<'_>) -> Result<bool, IdsError> {
    let mut found = false;
    for_each_common(&[a, b], budget, |ids, _| {
        found |= !ids.is_empty();
        Ok(!found)
    })?;
    Ok(found)
}

/// The ids of a set that are in none of the others.
///
/// # Errors
/// More ids than the budget allows, or the caller stopped it.
pub fn difference(first: IdSet<'_>, others: &[IdSet<'_>], budget: &mut Budget<'_>) -> Result<Vec<u64>, IdsError> {
    let mut out = Vec::new();
    for_each_filtered(first, others, false, budget, |ids, budget| {
        budget.check_length(out.len() + ids.len())?;
        out.extend_from_slice(ids);
        Ok(true)
    })?;
    Ok(out)
}

/// For each candidate, in any order, whether it is in the set. Candidates in ascending order are faster.
///
/// # Errors
/// More candidates than the budget allows ids, or the caller stopped it.
pub fn membership(set: IdSet<'_>, candidates: &[u64], budget: &mut Budget<'_>) -> Result<Vec<bool>, IdsError> {
    budget.check_length(candidates.len())?;
    let mut out = Vec::with_capacity(candidates.len());
    let mut cursor = Cursor::new(set);
    for run in candidates.chunk_by(|a, b| a <= b) {
        cursor.rewind();
        for &id in run {
            budget.spend(1)?;
            out.push(cursor.seek(id) == Some(id));
        }
    }
    Ok(out)
}

/// Calls `visit` with ids that are in all sets, ascending, until it returns false.
fn for_each_common(
    sets: &[IdSet<'_>],
    budget: &mut Budget<'_>,
    visit: impl FnMut(&[u64], &mut Budget<'_>) -> Result<bool, IdsError>,
) -> Result<(), IdsError> {
    let mut sets = sets.to_vec();
    sets.sort_by_key(IdSet::len);
    match sets.split_first() {
        Some((&smallest, others)) => for_each_filtered(smallest, others, true, budget, visit),
        None => Ok(()),
    }
}

/// Calls `visit` with ids of a set, ascending, until it returns false: those that are in all others, or those that are
/// in none.
fn for_each_filtered(
    set: IdSet<'_>,
    others: &[IdSet<'_>],
    wanted_in_others: bool,
    budget: &mut Budget<'_>,
    mut visit: impl FnMut(&[u64], &mut Budget<'_>) -> Result<bool, IdsError>,
) -> Result<(), IdsError> {
    let mut cursor = Cursor::new(set);
    let mut others: Vec<Cursor<'_>> = others.iter().map(|&other| Cursor::new(other)).collect();
    let mut candidates = Vec::new();
    loop {
        candidates.clear();
        candidates.extend_from_slice(cursor.next_ids());
        if candidates.is_empty() {
            return Ok(());
        }
        for other in &mut others {
            let Some((&first, &last)) = candidates.first().zip(candidates.last()) else {
                break;
            };
            budget.spend(candidates.len())?;
            match other.seek(first) {
                Some(id) if id <= last => other.retain(&mut candidates, wanted_in_others),
                // The other set has no ids in this range, or has ended.
                Some(_) if wanted_in_others => candidates.clear(),
                None if wanted_in_others => return Ok(()),
                _ => {}
            }
        }
        budget.spend(candidates.len())?;
        if !candidates.is_empty() && !visit(&candidates, budget)? {
            return Ok(());
        }
    }
}
