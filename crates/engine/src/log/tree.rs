//! The keys of a table in memory, in order, with the place of each record.
//!
//! A B+ tree of three levels: blocks of leaves of entries. The first 16 bytes of each key are stored as numbers in
//! separate arrays: a search compares numbers that are contiguous in memory, and reads only one key.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::entry::Entry;
use super::key_prefixes::{Head, head_of, interpolate, lower_bound};
use crate::engine::{Extent, Spot};
use crate::prefetch::{prefetch, prefetch_all, prefetch_near};

/// The maximum number of entries of a leaf; a full leaf is split.
const LEAF_MAX: usize = 64;
/// A leaf with fewer entries is merged with its neighbour, if the result is small enough.
const LEAF_MIN: usize = LEAF_MAX / 4;
const LEAF_JOINED_MAX: usize = LEAF_MAX / 4 * 3;
/// The maximum number of leaves of a block; a full block is split. Blocks are not merged: there are few.
const BLOCK_MAX: usize = 512;

/// Entries, sorted by key.
#[derive(Debug)]
pub(super) struct Tree {
    blocks: Children<Children<Leaf>>,
    len: usize,
}

/// The usual distance of a leaf from its guessed index, and of an entry from its guessed index in the leaf.
const LEAVES_NEAR: usize = 8;
const ENTRIES_NEAR: usize = 4;

/// How many records in advance a record is prefetched completely.
const LOADED_AHEAD: usize = 2;
/// How much of it is prefetched: the processor itself prefetches the rest during sequential reads.
const LOADED_BYTES_MAX: usize = 2 * 1024;

/// The number of keys that are prefetched together.
const TOGETHER: usize = 32;

/// The position of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeafAt {
    block: usize,
    leaf: usize,
}

/// The numbers of bits of a spot for the leaf in its block and the entry in its leaf.
const LEAF_BITS: u32 = 16;
const ENTRY_BITS: u32 = 8;

/// Children of a node. Each one has the keys from its first key up to the first key of the next child. The first child
/// also has all lower keys.
#[derive(Debug)]
struct Children<C> {
    heads: Vec<Head>,
    firsts: Vec<Box<[u8]>>,
    children: Vec<C>,
}

/// Fits into one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Leaf {
    heads: Vec<Head>,
    entries: Vec<Entry>,
}

/// The progress of a search for a key.
struct Approach<'a> {
    head: Head,
    leaves: &'a Children<Leaf>,
    /// The child that has the key, exact or guessed.
    at: LeafAt,
    /// The index of the key in the leaf (or where it would be inserted), exact or guessed.
    place: usize,
}

/// The index of a key among sorted keys, or where it would be inserted; `from` is the lower bound of its head.
fn find<'a>(
    heads: &[Head],
    mut from: usize,
    key_at: impl Fn(usize) -> &'a [u8],
    head: Head,
    key: &[u8],
) -> Result<usize, usize> {
    let mut to = from + heads[from..].iter().take_while(|other| **other == head).count();
    while from < to {
        let middle = from.midpoint(to);
        match key_at(middle).cmp(key) {
            Ordering::Equal => return Ok(middle),
            Ordering::Less => from = middle + 1,
            Ordering::Greater => to = middle,
        }
    }
    Err(from)
}

impl<C> Children<C> {
    fn of_one(child: C) -> Self {
        Self {
            heads: vec![0],
            firsts: vec![Box::default()],
            children: vec![child],
        }
    }

    /// The approximate index of a head among the `count` elements of a child.
    fn guess_in(&self, at: usize, head: Head, count: usize) -> usize {
        let upper = self.heads.get(at + 1).copied().unwrap_or(Head::MAX);
        interpolate(head, self.heads[at], upper, count)
    }

    /// The child that a key belongs to; `guess` is its approximate index.
    fn place_of(&self, guess: usize, head: Head, key: &[u8]) -> usize {
        let from = lower_bound(&self.heads, guess, head);
        match find(&self.heads, from, |at| &self.firsts[at], head, key) {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        }
    }

    fn insert(&mut self, at: usize, first: Box<[u8]>, child: C) {
        self.heads.insert(at, head_of(&first));
        self.firsts.insert(at, first);
        self.children.insert(at, child);
    }

    fn remove(&mut self, at: usize) -> C {
        self.heads.remove(at);
        self.firsts.remove(at);
        self.children.remove(at)
    }

    /// Splits off the second half, and returns it with its first key.
    fn divide(&mut self) -> (Box<[u8]>, Self) {
        let middle = self.children.len() / 2;
        let second = Self {
            heads: self.heads.split_off(middle),
            firsts: self.firsts.split_off(middle),
            children: self.children.split_off(middle),
        };
        (second.firsts[0].clone(), second)
    }
}

impl Leaf {
    /// The index of a key among the entries, or where it would be inserted; `guess` is its approximate index.
    fn find(&self, guess: usize, head: Head, key: &[u8]) -> Result<usize, usize> {
        let from = lower_bound(&self.heads, guess, head);
        find(&self.heads, from, |at| self.entries[at].key(), head, key)
    }

    fn insert(&mut self, at: usize, head: Head, entry: Entry) {
        if self.heads.capacity() == 0 {
            self.heads.reserve_exact(LEAF_MAX);
            self.entries.reserve_exact(LEAF_MAX);
        }
        self.heads.insert(at, head);
        self.entries.insert(at, entry);
    }

    /// Splits off the second half, and returns it with its first key.
    fn divide(&mut self) -> (Box<[u8]>, Self) {
        let middle = self.entries.len() / 2;
        let mut second = Self {
            heads: Vec::with_capacity(LEAF_MAX),
            entries: Vec::with_capacity(LEAF_MAX),
        };
        second.heads.extend(self.heads.drain(middle..));
        second.entries.extend(self.entries.drain(middle..));
        (second.entries[0].key().into(), second)
    }
}

impl LeafAt {
    /// The spot of an entry of the leaf.
    fn spot(self, place: usize) -> Spot {
        Spot((self.block as u64) << (LEAF_BITS + ENTRY_BITS) | (self.leaf as u64) << ENTRY_BITS | place as u64)
    }

    /// The leaf and the index in it that a spot stands for.
    fn of_spot(Spot(spot): Spot) -> (Self, usize) {
        let bits = |from: u32, count: u32| (spot >> from & ((1 << count) - 1)) as usize;
        let block = (spot >> (LEAF_BITS + ENTRY_BITS)) as usize;
        let leaf = bits(ENTRY_BITS, LEAF_BITS);
        (Self { block, leaf }, bits(0, ENTRY_BITS))
    }
}

impl Approach<'_> {
    fn leaf(&self) -> &Leaf {
        &self.leaves.children[self.at.leaf]
    }

    /// The entry at the guessed index, if there is one.
    fn entry(&self) -> Option<&Entry> {
        self.leaf().entries.get(self.place)
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            blocks: Children::of_one(Children::of_one(Leaf::default())),
            len: 0,
        }
    }
}

impl Tree {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The block of a key, and the guessed index of its leaf.
    fn block_of(&self, head: Head, key: &[u8]) -> (usize, usize) {
        let guess = interpolate(head, 0, Head::MAX, self.blocks.children.len());
        let block = self.blocks.place_of(guess, head, key);
        let count = self.blocks.children[block].children.len();
        (block, self.blocks.guess_in(block, head, count))
    }

    /// The leaf of a key, and the guessed index of the key in it.
    fn place_of(&self, head: Head, key: &[u8]) -> (LeafAt, usize) {
        let (block, guess) = self.block_of(head, key);
        let leaves = &self.blocks.children[block];
        let leaf = leaves.place_of(guess, head, key);
        let guess = leaves.guess_in(leaf, head, leaves.children[leaf].heads.len());
        (LeafAt { block, leaf }, guess)
    }

    fn leaf(&self, at: LeafAt) -> &Leaf {
        &self.blocks.children[at.block].children[at.leaf]
    }

    fn leaf_mut(&mut self, at: LeafAt) -> &mut Leaf {
        &mut self.blocks.children[at.block].children[at.leaf]
    }

    /// The entry of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let head = head_of(key);
        let (at, guess) = self.place_of(head, key);
        let leaf = self.leaf(at);
        Some(&leaf.entries[leaf.find(guess, head, key).ok()?])
    }

    /// The entry of a key, mutable; its key must not be changed.
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let head = head_of(key);
        let (at, guess) = self.place_of(head, key);
        let leaf = self.leaf_mut(at);
        let at = leaf.find(guess, head, key).ok()?;
        Some(&mut leaf.entries[at])
    }

    /// The position of a key, if the key is at this spot.
    fn check(&self, spot: Spot, head: Head, key: &[u8]) -> Option<(LeafAt, usize)> {
        let (at, place) = LeafAt::of_spot(spot);
        let there = self.blocks.children.get(at.block)?.children.get(at.leaf)?;
        // Several keys may have the same head.
        let is_it = there.heads.get(place) == Some(&head) && there.entries[place].key() == key;
        is_it.then_some((at, place))
    }

    /// The entry of a key, usually at this spot.
    pub(super) fn get_on(&self, spot: Spot, key: &[u8]) -> Option<&Entry> {
        match self.check(spot, head_of(key), key) {
            Some((at, place)) => Some(&self.leaf(at).entries[place]),
            None => self.get(key),
        }
    }

    /// Like [`get_on`](Self::get_on), but mutable; the key of the entry must not be changed.
    pub(super) fn get_mut_on(&mut self, spot: Spot, key: &[u8]) -> Option<&mut Entry> {
        match self.check(spot, head_of(key), key) {
            Some((at, place)) => Some(&mut self.leaf_mut(at).entries[place]),
            None => self.get_mut(key),
        }
    }

    /// Calls `look` with the entry and the spot of each key, in order, until it returns false. Prefetches many of them
    /// at once.
    pub(super) fn get_all(&self, keys: &[&[u8]], extent: Extent, mut look: impl FnMut(Option<&Entry>, Spot) -> bool) {
        for keys in keys.chunks(TOGETHER) {
            let approached = self.approach(keys);
            for (at, (key, approach)) in keys.iter().zip(&approached).enumerate() {
                if extent == Extent::Whole
                    && let Some(later) = approached.get(at + LOADED_AHEAD).and_then(Approach::entry)
                {
                    let bytes = later.bytes();
                    prefetch_all(&bytes[..bytes.len().min(LOADED_BYTES_MAX)]);
                }
                let leaf = approach.leaf();
                let key_at = |at: usize| leaf.entries[at].key();
                let found = find(&leaf.heads, approach.place, key_at, approach.head, key);
                let (Ok(place) | Err(place)) = found;
                if !look(found.ok().map(|at| &leaf.entries[at]), approach.at.spot(place)) {
                    return;
                }
            }
        }
    }

    /// Finds the leaves of keys and the guessed indexes in them. All keys complete a step before any starts the next
    /// one, which reads the memory that this step has prefetched: so the cache misses of all keys overlap.
    fn approach(&self, keys: &[&[u8]]) -> SmallVec<[Approach<'_>; TOGETHER]> {
        let begin = |key: &&[u8]| {
            let head = head_of(key);
            let (block, leaf) = self.block_of(head, key);
            let leaves = &self.blocks.children[block];
            prefetch_near(&leaves.heads, leaf, LEAVES_NEAR);
            Approach {
                head,
                leaves,
                at: LeafAt { block, leaf },
                place: 0,
            }
        };
        let mut approached: SmallVec<[_; TOGETHER]> = keys.iter().map(begin).collect();
        for (approach, key) in approached.iter_mut().zip(keys) {
            approach.at.leaf = approach.leaves.place_of(approach.at.leaf, approach.head, key);
            prefetch(approach.leaf());
        }
        for approach in &mut approached {
            let heads = &approach.leaf().heads;
            let guess = approach.leaves.guess_in(approach.at.leaf, approach.head, heads.len());
            prefetch_near(heads, guess, ENTRIES_NEAR);
            approach.place = guess;
        }
        for approach in &mut approached {
            approach.place = lower_bound(&approach.leaf().heads, approach.place, approach.head);
            approach.entry().inspect(|entry| prefetch(*entry));
        }
        for entry in approached.iter().filter_map(Approach::entry) {
            // The keys are in the records that are read next.
            prefetch(entry.bytes());
        }
        approached
    }

    /// Inserts an entry. Returns the old entry of its key, which is usually at this spot.
    pub(super) fn put(&mut self, entry: Entry, spot: Spot) -> Option<Entry> {
        let head = head_of(entry.key());
        if let Some((at, place)) = self.check(spot, head, entry.key()) {
            return Some(std::mem::replace(&mut self.leaf_mut(at).entries[place], entry));
        }
        let (at, guess) = self.place_of(head, entry.key());
        let leaf = self.leaf_mut(at);
        match leaf.find(guess, head, entry.key()) {
            Ok(place) => Some(std::mem::replace(&mut leaf.entries[place], entry)),
            Err(place) => {
                leaf.insert(place, head, entry);
                if leaf.entries.len() >= LEAF_MAX {
                    self.divide(at);
                }
                self.len += 1;
                None
            }
        }
    }

    /// Appends an entry whose key is higher than all others. Leaves and blocks are filled, but with room for some
    /// insertions.
    pub(super) fn push(&mut self, entry: Entry) {
        let head = head_of(entry.key());
        let at = LeafAt {
            block: self.blocks.children.len() - 1,
            leaf: self.blocks.children.last().map_or(0, |block| block.children.len() - 1),
        };
        self.len += 1;
        let leaf = self.leaf_mut(at);
        debug_assert!(leaf.entries.last().is_none_or(|last| last.key() < entry.key()));
        if leaf.entries.len() < LEAF_JOINED_MAX {
            return leaf.insert(leaf.entries.len(), head, entry);
        }
        let (first, mut next) = (Box::<[u8]>::from(entry.key()), Leaf::default());
        next.insert(0, head, entry);
        let block = &mut self.blocks.children[at.block];
        if block.children.len() < BLOCK_MAX / 4 * 3 {
            return block.insert(at.leaf + 1, first, next);
        }
        let block = Children {
            heads: vec![head],
            firsts: vec![first.clone()],
            children: vec![next],
        };
        self.blocks.insert(at.block + 1, first, block);
    }

    /// Appends another tree, whose keys are all higher.
    pub(super) fn append(&mut self, other: Self) {
        match (self.len, other.len) {
            (_, 0) => return,
            (0, _) => return *self = other,
            _ => self.len += other.len,
        }
        for mut block in other.blocks.children {
            // The first child of the first block has had no first key: it had all lower keys.
            let first = block.children.iter().find_map(|leaf| leaf.entries.first());
            let Some(first) = first.map(|entry| Box::<[u8]>::from(entry.key())) else {
                continue;
            };
            block.heads[0] = head_of(&first);
            block.firsts[0] = first.clone();
            self.blocks.insert(self.blocks.children.len(), first, block);
        }
    }

    fn divide(&mut self, at: LeafAt) {
        let block = &mut self.blocks.children[at.block];
        let (first, second) = block.children[at.leaf].divide();
        block.insert(at.leaf + 1, first, second);
        if block.children.len() >= BLOCK_MAX {
            let (first, second) = block.divide();
            self.blocks.insert(at.block + 1, first, second);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let head = head_of(key);
        let (at, guess) = self.place_of(head, key);
        let leaf = self.leaf_mut(at);
        let place = leaf.find(guess, head, key).ok()?;
        leaf.heads.remove(place);
        let entry = leaf.entries.remove(place);
        if leaf.entries.len() < LEAF_MIN {
            self.join(at);
        }
        self.len -= 1;
        Some(entry)
    }

    /// Merges a leaf with the next or the previous one.
    fn join(&mut self, at: LeafAt) {
        let block = &mut self.blocks.children[at.block];
        let first = at.leaf.min(block.children.len().saturating_sub(2));
        let Some([one, two]) = block.children.get(first..first + 2) else {
            return self.drop_if_empty(at.block);
        };
        if one.entries.len() + two.entries.len() > LEAF_JOINED_MAX {
            return;
        }
        let mut second = block.remove(first + 1);
        let first = &mut block.children[first];
        if first.heads.capacity() == 0 {
            *first = second;
            return;
        }
        first.heads.append(&mut second.heads);
        first.entries.append(&mut second.entries);
    }

    fn drop_if_empty(&mut self, block: usize) {
        let is_empty = self.blocks.children[block]
            .children
            .iter()
            .all(|leaf| leaf.entries.is_empty());
        if is_empty && self.blocks.children.len() > 1 {
            self.blocks.remove(block);
        }
    }

    /// The entries from a key on, in order.
    pub(super) fn entries_from(&self, key: &[u8]) -> impl Iterator<Item = &Entry> {
        let head = head_of(key);
        let (at, guess) = self.place_of(head, key);
        let place = self.leaf(at).find(guess, head, key).unwrap_or_else(|place| place);
        let leaves = self.blocks.children[at.block..]
            .iter()
            .flat_map(|block| &block.children)
            .skip(at.leaf);
        leaves.flat_map(|leaf| &leaf.entries).skip(place)
    }

    /// All entries, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let leaves = self.blocks.children.iter().flat_map(|block| &block.children);
        leaves.flat_map(|leaf| &leaf.entries)
    }

    /// The position of the first leaf.
    pub(super) fn first_leaf() -> LeafAt {
        LeafAt { block: 0, leaf: 0 }
    }

    /// The entries of a leaf, mutable except for their keys, and the position of the next leaf. `None` after the last
    /// leaf.
    pub(super) fn leaf_entries_mut(&mut self, at: LeafAt) -> Option<(&mut [Entry], LeafAt)> {
        let block = self.blocks.children.get_mut(at.block)?;
        let count = block.children.len();
        let next = match at.leaf + 1 < count {
            true => LeafAt {
                leaf: at.leaf + 1,
                ..at
            },
            false => LeafAt {
                block: at.block + 1,
                leaf: 0,
            },
        };
        // There may be fewer leaves than when the position was returned.
        let entries = block.children.get_mut(at.leaf).map(|leaf| &mut leaf.entries[..]);
        Some((entries.unwrap_or_default(), next))
    }
}

#[cfg(test)]
mod tests;
