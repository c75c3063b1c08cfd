//! The state of a set whose members change one by one, merged from replicas.

use crate::{Budget, IdSet, IdsError, encode, union};

/// The state of a set, merged from replicas: its members, and those that were removed.
///
/// An id may be in both if replicas differ: then its own record decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// The members, in ascending order.
    pub present: Vec<u64>,
    /// Former members, in ascending order.
    pub removed: Vec<u64>,
}

impl Members {
    /// Encodes both as sets, behind the length of the first in four bytes.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, IdsError> {
        let (present, removed) = (encode(&self.present)?, encode(&self.removed)?);
        let length = (present.len() as u32).to_be_bytes();
        Ok([&length[..], &present, &removed].concat())
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// [`IdsError`]: other bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, IdsError> {
        let (length, rest) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
        let (present, removed) = rest.split_at(rest.len().min(u32::from_be_bytes(*length) as usize));
        let ids = |set| Ok::<_, IdsError>(IdSet::parse(set)?.iter().collect());
        Ok(Self {
            present: ids(present)?,
            removed: ids(removed)?,
        })
    }

    /// Adds what another replica knows.
    ///
    /// # Errors
    /// As [`union`].
    pub fn merge(&mut self, other: &Self) -> Result<(), IdsError> {
        for (own, other) in [(&mut self.present, &other.present), (&mut self.removed, &other.removed)] {
            if own.is_empty() {
                own.clone_from(other);
            } else if !other.is_empty() && own != other {
                let (one, two) = (encode(own)?, encode(other)?);
                let sets = [IdSet::open(&one)?, IdSet::open(&two)?];
                *own = union(&sets, &mut Budget::of_ids(usize::MAX))?;
            }
        }
        Ok(())
    }

    /// The ids that are both present and removed, since replicas differ, in ascending order.
    pub fn doubtful(&self) -> Vec<u64> {
        let is_removed = |id: &&u64| self.removed.binary_search(id).is_ok();
        self.present.iter().filter(is_removed).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn members() -> impl Strategy<Value = Members> {
        let ids = || prop::collection::btree_set(0..200u64, 0..60).prop_map(|ids| ids.into_iter().collect());
        (ids(), ids()).prop_map(|(present, removed)| Members { present, removed })
    }

    proptest! {
        #[test]
        fn written_members_are_read_again(members in members()) {
            prop_assert_eq!(Members::parse(&members.to_bytes().unwrap()), Ok(members));
        }

        #[test]
        fn merged_members_are_those_of_both(one in members(), other in members()) {
            let mut merged = one.clone();
            merged.merge(&other).unwrap();
            let both = |one: &[u64], other: &[u64]| -> Vec<u64> {
                one.iter().chain(other).copied().collect::<BTreeSet<_>>().into_iter().collect()
            };
            prop_assert_eq!(&merged.present, &both(&one.present, &other.present));
            prop_assert_eq!(&merged.removed, &both(&one.removed, &other.removed));
            for id in merged.doubtful() {
                prop_assert!(merged.present.contains(&id) && merged.removed.contains(&id));
            }
        }

        #[test]
        fn other_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Members::parse(&bytes);
        }
    }
}
