//! A place in a set that moves forward, over whole blocks where it can.

use crate::packing::BLOCK;
use crate::view::IdSet;

/// So many ids are looked at one by one before the rest of a block is searched.
const NEAR_IDS: usize = 8;

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

    fn load(&mut self, block: usize) {
        self.length = self.set.read(block, &mut self.ids).len();
        self.at = 0;
        self.next_block = block + 1;
    }
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
