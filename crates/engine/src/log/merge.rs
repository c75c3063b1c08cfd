//! Merges the keys of all segments in order: building the trees from the first key to the last takes a fraction of the
//! time of inserting the keys in random order.
//!
//! For each segment, one block of keys from its [file](super::keys) is in memory, or all its keys if the segment itself
//! had to be read.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;
use std::ops::Range;

use super::key_prefixes::{Head, head_of};
use super::keys::{Keys, KeysReader, Named, Says, named_at};

/// The keys of a segment.
pub(super) enum Source<'a> {
    File(KeysReader),
    /// Sorted.
    Memory(&'a Keys),
}

/// The position in the keys of a segment.
struct Run<'a> {
    segment: usize,
    /// Keys in memory, and the offset of the next one.
    keys: Cow<'a, [u8]>,
    next: usize,
    /// The rest of the keys.
    rest: Option<KeysReader>,
    now: Now,
}

/// The current key of a run.
struct Now {
    table: u32,
    head: Head,
    key: Range<usize>,
    offset: u32,
    says: Says,
}

/// Calls `tell` for all keys of the segments, sorted by table, then by key. The segments must be sorted from the oldest
/// to the newest. The arguments are the index of the segment, the entry, and whether it is the newest frame of its key,
/// which comes before the older ones.
///
/// # Errors
/// The index of the segment whose keys cannot be read.
pub(super) fn merge(sources: Vec<Source<'_>>, mut tell: impl FnMut(usize, Named<'_>, bool)) -> Result<(), usize> {
    let mut runs = BinaryHeap::new();
    for (segment, source) in sources.into_iter().enumerate() {
        let run = Run::begin(segment, source).map_err(|_| segment)?;
        runs.extend(run.map(Box::new).map(Reverse));
    }
    let mut last_table = None;
    let mut last_key = Vec::new();
    while let Some(mut first) = runs.peek_mut() {
        let run = &mut first.0;
        let named = run.named();
        let is_newest = last_table != Some(named.table) || last_key != named.key;
        if is_newest {
            last_table = Some(named.table);
            last_key.clear();
            last_key.extend_from_slice(named.key);
        }
        tell(run.segment, named, is_newest);
        if !run.advance().map_err(|_| run.segment)? {
            PeekMut::pop(first);
        }
    }
    Ok(())
}

impl<'a> Run<'a> {
    /// A run at its first key; `None` if the run is empty.
    fn begin(segment: usize, source: Source<'a>) -> io::Result<Option<Self>> {
        let (keys, rest) = match source {
            Source::File(reader) => (Cow::Owned(Vec::new()), Some(reader)),
            Source::Memory(keys) => (Cow::Borrowed(keys.bytes()), None),
        };
        let now = Now {
            table: 0,
            head: 0,
            key: 0..0,
            offset: 0,
            says: Says::ValueOf(0),
        };
        let mut run = Self {
            segment,
            keys,
            next: 0,
            rest,
            now,
        };
        Ok(run.advance()?.then_some(run))
    }

    /// Advances to the next key; returns false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        loop {
            if let Some(named) = named_at(&self.keys, self.next) {
                let end = self.next + named.stored_bytes();
                self.now = Now {
                    table: named.table,
                    head: head_of(named.key),
                    key: end - named.key.len()..end,
                    offset: named.offset,
                    says: named.says,
                };
                self.next = end;
                return Ok(true);
            }
            let Some(rest) = &mut self.rest else { return Ok(false) };
            let keys = self.keys.to_mut();
            keys.clear();
            self.next = 0;
            if !rest.read_block(keys)? {
                return Ok(false);
            }
        }
    }

    fn named(&self) -> Named<'_> {
        Named {
            table: self.now.table,
            offset: self.now.offset,
            key: self.key(),
            says: self.now.says,
        }
    }

    fn key(&self) -> &[u8] {
        &self.keys[self.now.key.clone()]
    }
}

impl Ord for Run<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = (self.now.table, self.now.head).cmp(&(other.now.table, other.now.head));
        order.then_with(|| {
            let order = self.key().cmp(other.key());
            // The newest segment first.
            order.then(other.segment.cmp(&self.segment))
        })
    }
}

impl PartialOrd for Run<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Run<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Run<'_> {}
