//! The ids of vertices.
//!
//! Names of the current version keep their ids. New names are numbered in the order of their hashes. Threads number
//! the new names of each bucket from 0. The ids of a bucket follow those of the buckets before it, so they are known
//! when all buckets are done. So they depend neither on threads nor on the number of buckets.

use fondaco_ids::ID_MAX;

use crate::error::BuildError;

/// The id given to a name: a known one, the number of a new name in its bucket, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GivenId(u64);

/// Marks new names: ids have 63 bits.
const NEW: u64 = 1 << 63;
/// The bits of the number within a bucket.
const NUMBER_BITS: u32 = 48;

impl GivenId {
    /// No id: edges to this vertex are left out.
    pub(super) const SKIPPED: Self = Self(u64::MAX);

    pub(super) fn known(id: u64) -> Self {
        debug_assert!(id <= ID_MAX);
        Self(id)
    }

    /// The new name with this number in its bucket.
    pub(super) fn new(bucket: usize, number: u64) -> Self {
        debug_assert!(bucket < 1 << 12 && number < 1 << NUMBER_BITS);
        Self(NEW | (bucket as u64) << NUMBER_BITS | number)
    }

    pub(super) fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}

/// The ids of new names.
#[derive(Debug)]
pub(super) struct NewIds {
    /// The first id of each bucket.
    firsts: Vec<u64>,
    /// The id after the last one.
    pub(super) next: u64,
}

impl NewIds {
    /// Numbers the new names of all buckets, given how many each has.
    ///
    /// # Errors
    /// There are more names than ids.
    pub(super) fn number(first: u64, new_in_buckets: &[u64]) -> Result<Self, BuildError> {
        let mut next = first;
        let mut firsts = Vec::with_capacity(new_in_buckets.len());
        for new in new_in_buckets {
            firsts.push(next);
            next = next
                .checked_add(*new)
                .filter(|next| *next <= ID_MAX + 1)
                .ok_or_else(|| BuildError::KnownIds {
                    reason: format!("the ids after {first} are used up: push the graph under another name"),
                })?;
        }
        Ok(Self { firsts, next })
    }

    /// The id that was given; `None` if the vertex is skipped.
    pub(super) fn resolve(&self, given: GivenId) -> Option<u64> {
        if given == GivenId::SKIPPED {
            return None;
        }
        if given.0 & NEW == 0 {
            return Some(given.0);
        }
        let bucket = (given.0 & !NEW) >> NUMBER_BITS;
        let number = given.0 & ((1 << NUMBER_BITS) - 1);
        self.firsts.get(bucket as usize).map(|first| first + number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_follow_those_of_earlier_buckets() {
        let ids = NewIds::number(100, &[2, 0, 3]).unwrap();
        assert_eq!(ids.next, 105);
        assert_eq!(ids.resolve(GivenId::known(7)), Some(7));
        assert_eq!(ids.resolve(GivenId::new(0, 1)), Some(101));
        assert_eq!(ids.resolve(GivenId::new(2, 0)), Some(102));
        assert_eq!(ids.resolve(GivenId::SKIPPED), None);
        assert!(NewIds::number(ID_MAX, &[1]).is_ok());
        assert!(NewIds::number(ID_MAX, &[1, 1]).is_err());
    }
}
