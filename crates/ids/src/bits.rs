//! Ids as a bit for each number of a range: the fastest form for the union of dense sets, and for its way to where the
//! parts of a union are merged.
//!
//! ```text
//! bits   version (1 byte, 2), first number (8 bytes, a multiple of 64), words of 64 bits (8 bytes each), the lowest
//!        number in the lowest bit of the first one
//! ```
//! Numbers are little-endian. This is no format of values: only [`SetQuery::merge`](crate::SetQuery::merge) reads it.

use std::borrow::Cow;

use crate::encode::encode;
use crate::packing::BLOCK;
use crate::view::IdSet;
use crate::{Budget, ID_MAX, IdsError};

/// The number of the format.
const VERSION: u8 = 2;
/// The bytes before the words.
const HEAD_BYTES: usize = 9;
/// Ids are united as bits if there are at most this many numbers for each id.
const NUMBERS_PER_ID: usize = 128;
/// Bits are sent in the place of a set if there are at most this many numbers for each id: a byte.
const SENT_NUMBERS_PER_ID: usize = 8;
/// The most numbers: 32 MiB.
const NUMBERS_MAX: usize = 1 << 28;

/// A bit for each number of a range.
#[derive(Debug)]
pub(crate) struct Bits {
    /// The number of the first bit, a multiple of 64.
    first: u64,
    words: Vec<u64>,
}

/// Bits as they were sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentBits<'a> {
    first: u64,
    /// At least one.
    words: &'a [[u8; 8]],
}

impl Bits {
    /// Bits for the numbers from the least to the largest, none of them set; `None` if they cost more than sorting this many ids.
    pub(crate) fn between(least: u64, largest: u64, ids: usize) -> Option<Self> {
        let first = least & !63;
        let range = usize::try_from(largest.checked_sub(first)?.checked_add(1)?).ok()?;
        let is_dense = range <= NUMBERS_MAX && range / NUMBERS_PER_ID <= ids;
        is_dense.then(|| Self {
            first,
            words: vec![0; range.div_ceil(64)],
        })
    }

    /// Adds the ids of sets.
    ///
    /// # Errors
    /// The caller stopped it.
    pub(crate) fn add_sets(&mut self, sets: &[IdSet<'_>], budget: &mut Budget<'_>) -> Result<(), IdsError> {
        let (first, words) = (self.first, &mut self.words[..]);
        let mut gaps = [0; BLOCK];
        for set in sets {
            for block in 0..set.blocks() {
                let read = set.visit(block, &mut gaps, |id| {
                    let at = id.wrapping_sub(first);
                    // Ids of a malformed set may lie anywhere.
                    if let Some(word) = words.get_mut((at / 64) as usize) {
                        *word |= 1 << (at % 64);
                    }
                });
                budget.spend(read)?;
            }
        }
        Ok(())
    }

    /// Adds bits that were sent.
    pub(crate) fn add_bits(&mut self, sent: SentBits<'_>) {
        let from = (sent.first.wrapping_sub(self.first) / 64) as usize;
        let words = self.words.get_mut(from..).unwrap_or_default();
        for (word, sent) in words.iter_mut().zip(sent.words) {
            *word |= u64::from_le_bytes(*sent);
        }
    }

    /// How many ids.
    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether this many ids, which are all, are sent as bits.
    pub(crate) fn are_sent(&self, ids: usize) -> bool {
        self.words.len() * 64 / SENT_NUMBERS_PER_ID <= ids
    }

    /// The ids in ascending order, this many.
    pub(crate) fn ids(&self, count: usize) -> Vec<u64> {
        let mut out = Vec::with_capacity(count);
        for (word, &bits) in (0..).zip(&self.words) {
            let mut rest = bits;
            while rest != 0 {
                out.push(self.first + word * 64 + u64::from(rest.trailing_zeros()));
                rest &= rest - 1;
            }
        }
        out
    }

    /// The form in which they are sent.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.words.len() * 8);
        out.push(VERSION);
        out.extend_from_slice(&self.first.to_le_bytes());
        for word in &self.words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out
    }
}

impl<'a> SentBits<'a> {
    /// Whether a part has this form, and is not a set.
    pub(crate) fn is(part: &[u8]) -> bool {
        part.first() == Some(&VERSION)
    }

    /// Reads a part of this form.
    ///
    /// # Errors
    /// The defect, and its place.
    pub(crate) fn parse(part: &'a [u8]) -> Result<Self, IdsError> {
        let rest = part.get(1..).unwrap_or_default();
        let Some((first, words)) = rest.split_first_chunk() else {
            return Err(IdsError::invalid(1, "the bytes end within the first number"));
        };
        let first = u64::from_le_bytes(*first);
        let (words, rest) = words.as_chunks::<8>();
        if words.is_empty() || !rest.is_empty() {
            return Err(IdsError::invalid(HEAD_BYTES, "there are no words, or part of one"));
        }
        let end = first.checked_add(words.len() as u64 * 64);
        match first % 64 == 0 && end.is_some_and(|end| end <= ID_MAX + 1) {
            true => Ok(Self { first, words }),
            false => Err(IdsError::invalid(
                1,
                "the first number is no multiple of 64, or too large",
            )),
        }
    }

    /// The first number.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The last number. Whether it is an id does not matter.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.words.len() as u64 * 64 - 1
    }

    /// How many ids.
    pub(crate) fn len(&self) -> usize {
        let ones = |word: &[u8; 8]| u64::from_le_bytes(*word).count_ones() as usize;
        self.words.iter().map(ones).sum()
    }

    fn to_set(self) -> Result<Vec<u8>, IdsError> {
        let bits = Bits {
            first: self.first,
            words: self.words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        };
        encode(&bits.ids(bits.len()))
    }
}

/// A part of a union as the bytes of a set.
///
/// # Errors
/// Malformed bits.
pub(crate) fn as_set(part: &[u8]) -> Result<Cow<'_, [u8]>, IdsError> {
    Ok(match SentBits::is(part) {
        true => SentBits::parse(part)?.to_set()?.into(),
        false => part.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::merge::{part_of_union, union_of_parts};

    fn part(ids: &BTreeSet<u64>, may_be_bits: bool) -> Vec<u8> {
        // The union of two equal sets: one alone stays as it is.
        let set = encode(&ids.iter().copied().collect::<Vec<_>>()).unwrap();
        let set = IdSet::parse(&set).unwrap();
        part_of_union(&[set, set], may_be_bits, &mut Budget::of_ids(ids.len())).unwrap()
    }

    proptest! {
        #[test]
        fn bits_and_sets_are_united_wherever_they_lie(
            parts in vec(
                (btree_set(0..2000_u64, 0..600), prop_oneof![Just(0_u64), 0..5000_u64, Just(ID_MAX - 2000)], any::<bool>()),
                1..5,
            ),
        ) {
            let parts: Vec<(BTreeSet<u64>, bool)> = parts
                .into_iter()
                .map(|(ids, by, may_be_bits)| (ids.into_iter().map(|id| id + by).collect(), may_be_bits))
                .collect();
            let all: BTreeSet<u64> = parts.iter().flat_map(|(ids, _)| ids).copied().collect();
            let all: Vec<u64> = all.into_iter().collect();
            let sent: Vec<Vec<u8>> = parts.iter().map(|(ids, may_be_bits)| part(ids, *may_be_bits)).collect();
            let united = |ids_max| union_of_parts(sent.iter().map(Vec::as_slice), &mut Budget::of_ids(ids_max));
            if let Some(ids_max) = all.len().checked_sub(1) {
                prop_assert_eq!(united(ids_max), Err(IdsError::TooMany { ids_max }));
            }
            prop_assert_eq!(united(all.len()), Ok(all));
            for ((ids, _), sent) in parts.iter().zip(&sent) {
                let set = as_set(sent).unwrap();
                prop_assert!(IdSet::parse(&set).unwrap().iter().eq(ids.iter().copied()));
            }
        }

        #[test]
        fn any_bytes_are_bits_or_an_error(mut bytes in vec(any::<u8>(), 0..60)) {
            let _ = union_of_parts([&bytes[..]].into_iter(), &mut Budget::of_ids(1000));
            if let Some(version) = bytes.first_mut() {
                *version = VERSION;
            }
            let _ = union_of_parts([&bytes[..]].into_iter(), &mut Budget::of_ids(1000));
            let _ = as_set(&bytes);
        }
    }

    #[test]
    fn only_dense_ids_are_sent_as_bits() {
        let every = |step: u64| (0..1000).map(|id| 1_000_000 + id * step).collect::<BTreeSet<_>>();
        assert!(SentBits::is(&part(&every(1), true)) && SentBits::is(&part(&every(7), true)));
        assert!(!SentBits::is(&part(&every(1), false)) && !SentBits::is(&part(&every(9), true)));
        // A bit for each of 1000 numbers, in whole words.
        assert_eq!(part(&every(1), true).len(), HEAD_BYTES + 16 * 8);
    }

    #[test]
    fn malformed_bits_are_refused_by_name() {
        let of = |first: u64, words: &[u8]| [&[VERSION][..], &first.to_le_bytes(), words].concat();
        for (bytes, part) in [
            (vec![VERSION, 0], "within the first number"),
            (of(0, &[]), "there are no words"),
            (of(0, &[1; 9]), "or part of one"),
            (of(1, &[1; 8]), "no multiple of 64"),
            (of(1 << 63, &[1; 8]), "too large"),
            (of(u64::MAX - 63, &[1; 8]), "too large"),
        ] {
            let error = as_set(&bytes).unwrap_err().to_string();
            assert!(error.contains(part), "{bytes:?}: {error}");
        }
        assert!(as_set(&of((1 << 63) - 64, &[0x80; 8])).is_ok());
    }
}
