//! A place in a set that moves forward, over whole blocks where it can.

use crate::packing::BLOCK;
use crate::view::IdSet;

/// The number of ids that are compared one by one before the rest of a block is searched.
const NEAR_IDS: usize = 8;
/// If a block has this many times more ids than are looked up, each is searched. Otherwise they are merged with the
/// block.
const SPARSE: usize = 8;

/// A place in a set, with the ids of the block that it is in.
pub(crate) struct Cursor<'a> {
    set: IdSet<'a>,
    /// The block after the one that is decoded.
    next_block: usize,
    ids: [u64; BLOCK],
    length: usize,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Before the first id. Nothing is decoded yet.
    pub(crate) fn new(set: IdSet<'a>) -> Self {
        Self {
            set,
            next_block: 0,
            ids: [0; BLOCK],
            length: 0,
            at: 0,
        }
    }

    /// Before the first id again.
    pub(crate) fn rewind(&mut self) {
        (self.next_block, self.length, self.at) = (0, 0, 0);
    }

    /// The ids from here to the end of the block, then those of the next block, and so on; none at the end of the set.
    pub(crate) fn next_ids(&mut self) -> &[u64] {
        while self.at >= self.length && self.next_block < self.set.blocks() {
            self.load(self.next_block);
        }
        let at = std::mem::replace(&mut self.at, self.length);
        &self.ids[at..self.length]
    }

    /// Moves to the first id from here on that is no smaller than this one, and returns it.
    #[inline]
    pub(crate) fn seek(&mut self, id: u64) -> Option<u64> {
        match self.ids[..self.length].get(self.at) {
            Some(&here) if here >= id => Some(here),
            _ => self.seek_ahead(id),
        }
    }

    fn seek_ahead(&mut self, id: u64) -> Option<u64> {
        if let Some(block) = self.set.block_of(id, self.next_block) {
            self.load(block);
        }
        loop {
            let rest = &self.ids[self.at..self.length];
            let near = rest.iter().take(NEAR_IDS).position(|&other| other >= id);
            self.at += near.unwrap_or_else(|| rest.partition_point(|&other| other < id));
            if let Some(&here) = self.ids[..self.length].get(self.at) {
                return Some(here);
            }
            if self.next_block >= self.set.blocks() {
                return None;
            }
            self.load(self.next_block);
        }
    }

    /// Keeps of ids, which ascend and are no smaller than any before, those that are in the set, or those that are not.
    pub(crate) fn retain(&mut self, ids: &mut Vec<u64>, wanted: bool) {
        let (mut kept, mut at) = (0, 0);
        while let Some(&id) = ids.get(at) {
            let Some(here) = self.seek(id) else {
                break;
            };
            let block = &self.ids[self.at..self.length];
            let near = ids[at..].partition_point(|&id| block.last().is_some_and(|&last| id <= last));
            if near * SPARSE < block.len() {
                ids[kept] = id;
                kept += usize::from((here == id) == wanted);
                at += 1;
            } else {
                let (kept_here, passed) = retain_near(&mut ids[..at + near], kept, at, block, wanted);
                kept = kept_here;
                at += near;
                self.at += passed;
            }
        }
        // The set has ended: the rest is not in it.
        if !wanted {
            ids.copy_within(at.., kept);
            kept += ids.len() - at;
        }
        ids.truncate(kept);
    }

    fn load(&mut self, block: usize) {
        self.length = self.set.read(block, &mut self.ids).len();
        self.at = 0;
        self.next_block = block + 1;
    }
}

/// Keeps ids from `at` on, none of them above the last of a block, behind those that were kept. Returns how many are
/// kept now, and how many of the block are passed. Has no branches that depend on ids: they could not be predicted.
fn retain_near(ids: &mut [u64], mut kept: usize, mut at: usize, block: &[u64], wanted: bool) -> (usize, usize) {
    let mut passed = 0;
    while at < ids.len() && passed < block.len() {
        let (id, other) = (ids[at], block[passed]);
        let is_decided = id <= other;
        ids[kept] = id;
        kept += usize::from(is_decided & ((id == other) == wanted));
        at += usize::from(is_decided);
        passed += usize::from(!is_decided);
    }
    (kept, passed)
}

/// The ids of a set in ascending order.
pub struct Iter<'a> {
    cursor: Cursor<'a>,
    left: usize,
}

impl<'a> Iter<'a> {
    pub(crate) fn new(set: IdSet<'a>) -> Self {
        Self {
            left: set.len(),
            cursor: Cursor::new(set),
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let cursor = &mut self.cursor;
        while cursor.at >= cursor.length {
            if cursor.next_block >= cursor.set.blocks() {
                return None;
            }
            cursor.load(cursor.next_block);
        }
        let id = cursor.ids[cursor.at];
        cursor.at += 1;
        self.left -= 1;
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

impl std::fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("left", &self.left).finish_non_exhaustive()
    }
}
