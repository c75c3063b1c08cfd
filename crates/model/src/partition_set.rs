//! A set of partitions, as one bit for each.
//!
//! Nodes compare such sets for every version of every store whenever something changes, so they are compared and
//! subtracted by words. In texts and records they are ranges: `0-3,7`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::partition::{PartitionCount, PartitionId};
use crate::slot::SLOT_COUNT;
use crate::text_form::stored_as_text;

/// Some of a cluster's partitions.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PartitionSet {
    /// Without zeros at the end, so that equal sets have equal words.
    words: Vec<u64>,
}

impl PartitionSet {
    /// The empty set.
    pub const EMPTY: Self = Self { words: Vec::new() };

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The number of its partitions.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it contains this partition.
    pub fn contains(&self, partition: PartitionId) -> bool {
        let (word, bit) = place(partition);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Whether it contains all partitions of another set.
    pub fn covers(&self, other: &Self) -> bool {
        let mine = self.words.iter().copied().chain(std::iter::repeat(0));
        other.words.iter().zip(mine).all(|(theirs, mine)| theirs & !mine == 0)
    }

    /// The partitions that have slots of these, when there are `to` partitions in place of `from`.
    pub fn among(&self, from: PartitionCount, to: PartitionCount) -> Self {
        if from == to {
            return self.clone();
        }
        let parts = (to.get() / from.get()).max(1);
        let mut among = Self::EMPTY;
        for partition in self.iter() {
            let first = to.covering(partition, from).get();
            (first..first + parts).for_each(|part| among.insert(PartitionId::new(part)));
        }
        among
    }

    /// Adds a partition.
    pub fn insert(&mut self, partition: PartitionId) {
        let (word, bit) = place(partition);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    /// Removes a partition.
    pub fn remove(&mut self, partition: PartitionId) {
        let (word, bit) = place(partition);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
        self.trim();
    }

    /// The partitions of this set that are not in the other.
    pub fn without(&self, other: &Self) -> Self {
        let theirs = other.words.iter().copied().chain(std::iter::repeat(0));
        let words = self.words.iter().zip(theirs).map(|(mine, theirs)| mine & !theirs);
        let mut set = Self { words: words.collect() };
        set.trim();
        set
    }

    /// The partitions of this set and the other.
    pub fn with(&self, other: &Self) -> Self {
        let (long, short) = match self.words.len() >= other.words.len() {
            true => (self, other),
            false => (other, self),
        };
        let mut set = long.clone();
        for (word, more) in set.words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        set
    }

    /// Its partitions, in order.
    pub fn iter(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let bits = (0..u64::BITS).filter(move |bit| word & (1 << bit) != 0);
            bits.map(move |bit| PartitionId::new(at as u32 * u64::BITS + bit))
        })
    }

    fn trim(&mut self) {
        let zeros = self.words.iter().rev().take_while(|&&word| word == 0).count();
        self.words.truncate(self.words.len() - zeros);
    }
}

fn place(partition: PartitionId) -> (usize, u64) {
    let number = partition.get();
    ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
}

impl FromIterator<PartitionId> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = PartitionId>>(partitions: I) -> Self {
        let mut set = Self::EMPTY;
        for partition in partitions {
            set.insert(partition);
        }
        set
    }
}

impl fmt::Display for PartitionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().map(PartitionId::get).peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|&next| next == last + 1) {
                last = next;
            }
            match last == first {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Why a text is not a set of partitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{range:?} is not a range of partitions: write ranges in order, such as 0-3,7")]
pub struct PartitionSetError {
    range: String,
}

impl FromStr for PartitionSet {
    type Err = PartitionSetError;

    fn from_str(text: &str) -> Result<Self, PartitionSetError> {
        let mut set = Self::EMPTY;
        let mut next = 0;
        for range in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if next <= first && first <= last && last < SLOT_COUNT => {
                    (first..=last).for_each(|number| set.insert(PartitionId::new(number)));
                    next = last + 1;
                }
                _ => {
                    return Err(PartitionSetError {
                        range: range.to_owned(),
                    });
                }
            }
        }
        Ok(set)
    }
}

stored_as_text!(PartitionSet, PartitionSetError);

impl fmt::Debug for PartitionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|partition| partition.get()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn numbers() -> impl Strategy<Value = BTreeSet<u32>> {
        prop::collection::btree_set(0..300u32, 0..40)
    }

    fn set(numbers: &BTreeSet<u32>) -> PartitionSet {
        numbers.iter().copied().map(PartitionId::new).collect()
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set_of_numbers(a in numbers(), b in numbers(), one in 0..300u32) {
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.contains(PartitionId::new(one)), a.contains(&one));
            prop_assert_eq!(x.covers(&y), a.is_superset(&b));
            prop_assert_eq!(x.without(&y), set(&a.difference(&b).copied().collect()));
            prop_assert_eq!(x.with(&y), set(&a.union(&b).copied().collect()));
            prop_assert_eq!(x.iter().map(PartitionId::get).collect::<BTreeSet<_>>(), a.clone());
            let mut less = x.clone();
            less.remove(PartitionId::new(one));
            prop_assert_eq!(less, set(&a.iter().copied().filter(|&n| n != one).collect()));
            prop_assert_eq!(x.to_string().parse(), Ok(x));
        }

        #[test]
        fn any_text_is_a_set_or_an_error(text in "[0-9,-]{0,12}") {
            if let Ok(set) = text.parse::<PartitionSet>() {
                prop_assert_eq!(set.to_string().parse(), Ok(set));
            }
        }
    }
}
