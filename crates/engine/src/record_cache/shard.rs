//! A part of the keys, behind one lock: their entries, and which of them go when there is no room.
//!
//! Those go by S3-FIFO [J. Yang et al., FIFO Queues Are All You Need for Cache Eviction, SOSP 2023]: what comes in stands in a
//! small queue first, and goes at its end unless it was used meanwhile, so that what is read once takes little; what was
//! used, and what comes back soon after it went, stands in the main queue, and there comes round again for each use. One use
//! is enough to get there, where the authors ask for two: measured with Zipfian keys, that finds more. A use is a number in
//! the entry: who looks up needs no more than to read.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use super::ghosts::Ghosts;
use super::index::{Hash, Index, Slot};
use crate::batch::Pair;
use crate::engine::{Extent, Hot};
use crate::prefetch::{prefetch, prefetch_all};

/// What an entry takes beside its key and value, about: itself, its places in an index, a queue and among ghosts, and an
/// allocation with its counter.
const ENTRY_OVERHEAD_BYTES: u64 = 144;

/// The small queue has about one in so many bytes.
const SMALL_PART: u64 = 10;
/// How many uses are counted.
const USES_MAX: u8 = 3;
/// After so many entries in one go it takes what comes next, used or not: a bound on what a write waits for.
const SPARED_MAX: usize = 256;

/// How much of a record is loaded before it is looked at: the processor goes on by itself.
const LOADED_BYTES_MAX: usize = 4096;

/// A key that is looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) table: u64,
    pub(super) key: &'a [u8],
    pub(super) hash: Hash,
}

/// A key of a table, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) table: u64,
    /// The key and its value, if it has one.
    pub(crate) pair: Pair,
    /// Whether it has.
    pub(crate) is_there: bool,
}

/// One line of memory.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    /// `None`: the entry is gone, but its slot still stands in a queue.
    known: Option<Known>,
    hash: Hash,
    uses: AtomicU8,
    is_in_main: bool,
}

/// Aligned, so that who locks one does not slow down who locks the next.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    index: Index,
    entries: Vec<Entry>,
    free: Vec<Slot>,
    small: VecDeque<Slot>,
    main: VecDeque<Slot>,
    /// How many slots in the queues have nothing.
    gone: usize,
    bytes: u64,
    small_bytes: u64,
    ghosts: Ghosts,
}

impl Known {
    pub(super) fn bytes(&self) -> u64 {
        (self.pair.key().len() + self.pair.value().len()) as u64 + ENTRY_OVERHEAD_BYTES
    }

    /// Its key, with its hash.
    pub(super) fn sought(&self, hash: Hash) -> Sought<'_> {
        Sought {
            table: self.table,
            key: self.pair.key(),
            hash,
        }
    }

    fn is_of(&self, sought: &Sought<'_>) -> bool {
        self.table == sought.table && self.pair.key() == sought.key
    }

    /// What to tell of it.
    pub(super) fn hot(&self) -> Hot<&Pair> {
        match self.is_there {
            true => Hot::Found(&self.pair),
            false => Hot::Absent,
        }
    }
}

impl Entry {
    /// Notes that it was used. Written only where that changes something: readers share its line of memory.
    fn touch(&self) {
        let uses = self.uses.load(Relaxed);
        if uses < USES_MAX {
            self.uses.store(uses + 1, Relaxed);
        }
    }

    /// Begins to load the key, and the beginning of the value, which stands behind it; or all of both.
    pub(super) fn prefetch(&self, extent: Extent) {
        let Some(known) = &self.known else { return };
        let bytes = known.pair.bytes();
        match extent {
            Extent::Beginning => prefetch(bytes),
            Extent::Whole => prefetch_all(&bytes[..bytes.len().min(LOADED_BYTES_MAX)]),
        }
    }
}

impl Shard {
    pub(super) fn new() -> Self {
        Self {
            index: Index::new(),
            entries: Vec::new(),
            free: Vec::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            gone: 0,
            bytes: 0,
            small_bytes: 0,
            ghosts: Ghosts::default(),
        }
    }

    /// What all entries take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many entries there is memory for.
    #[cfg(test)]
    pub(super) fn entries_len(&self) -> usize {
        self.entries.len()
    }

    /// Begins to load where the index has a hash.
    pub(super) fn prefetch(&self, hash: Hash) {
        self.index.prefetch(hash);
    }

    /// The entry that is the key's, if any is: its hash is like it.
    pub(super) fn approach(&self, hash: Hash) -> Option<&Entry> {
        let slot = self.index.slots(hash).next()?;
        let entry = &self.entries[slot as usize];
        prefetch(entry);
        Some(entry)
    }

    /// What is known of a key. It counts as a use.
    pub(super) fn get(&self, sought: &Sought<'_>) -> Option<&Known> {
        let entry = &self.entries[self.find(sought)? as usize];
        entry.touch();
        entry.known.as_ref()
    }

    fn find(&self, sought: &Sought<'_>) -> Option<Slot> {
        let known = |slot: Slot| self.entries[slot as usize].known.as_ref();
        self.index
            .slots(sought.hash)
            .find(|slot| known(*slot).is_some_and(|known| known.is_of(sought)))
    }

    /// Puts in what is known, in place of what was.
    pub(super) fn put(&mut self, hash: Hash, known: Known) {
        let bytes = known.bytes();
        self.bytes += bytes;
        if let Some(slot) = self.find(&known.sought(hash)) {
            let entry = &mut self.entries[slot as usize];
            let old = entry.known.replace(known).map_or(0, |old| old.bytes());
            // No use by itself: who writes a key has looked at it just before.
            self.bytes -= old;
            if !entry.is_in_main {
                self.small_bytes = self.small_bytes + bytes - old;
            }
            return;
        }
        let is_in_main = self.ghosts.take(hash, self.main.len());
        let entry = Entry {
            known: Some(known),
            hash,
            uses: AtomicU8::new(0),
            is_in_main,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as Slot
            }
        };
        self.index.insert(hash, slot);
        if is_in_main {
            self.main.push_back(slot);
        } else {
            self.small.push_back(slot);
            self.small_bytes += bytes;
        }
    }

    /// Forgets a key.
    pub(super) fn remove(&mut self, sought: &Sought<'_>) {
        let Some(slot) = self.find(sought) else { return };
        self.empty(slot);
        // The slot is free when it comes to the front of its queue, or when there are too many of them.
        self.gone += 1;
        if self.gone > self.entries.len() / 2 {
            let Self { entries, free, .. } = self;
            for queue in [&mut self.small, &mut self.main] {
                queue.retain(|slot| {
                    let is_there = entries[*slot as usize].known.is_some();
                    if !is_there {
                        free.push(*slot);
                    }
                    is_there
                });
            }
            self.gone = 0;
        }
    }

    /// Takes away what an entry has.
    fn empty(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        let bytes = entry.known.take().map_or(0, |known| known.bytes());
        self.bytes -= bytes;
        if !entry.is_in_main {
            self.small_bytes -= bytes;
        }
        self.index.remove(entry.hash, slot);
    }

    /// Forgets the key that is worth least. False if there is none.
    pub(super) fn evict(&mut self) -> bool {
        let mut spared = 0;
        loop {
            let is_of_small = self.main.is_empty() || self.small_bytes * SMALL_PART > self.bytes;
            let queue = if is_of_small { &mut self.small } else { &mut self.main };
            let Some(slot) = queue.pop_front() else { return false };
            let entry = &mut self.entries[slot as usize];
            let Some(known) = &entry.known else {
                self.free.push(slot);
                self.gone -= 1;
                continue;
            };
            let uses = entry.uses.get_mut();
            if *uses > 0 && spared < SPARED_MAX {
                spared += 1;
                if is_of_small {
                    *uses = 0;
                    entry.is_in_main = true;
                    self.small_bytes -= known.bytes();
                } else {
                    *uses -= 1;
                }
                self.main.push_back(slot);
                continue;
            }
            let hash = entry.hash;
            self.empty(slot);
            self.free.push(slot);
            if is_of_small {
                self.ghosts.add(hash, self.index.room());
            }
            return true;
        }
    }
}
