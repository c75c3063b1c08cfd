//! A set of ids as its bytes, which [`encode`](crate::encode) describes.
//!
//! A view copies nothing. Reading never panics on any bytes; only bytes that [`IdSet::parse`] accepts are known to be
//! in order.

use std::fmt;

use crate::cursor::Iter;
use crate::encode::VERSION;
use crate::packing::{BLOCK, byte_width, canonical_block_bytes, number_at, read_block};
use crate::{ID_MAX, IdsError};

/// A sorted set of ids, as a view of its encoded bytes.
#[derive(Clone, Copy)]
pub struct IdSet<'a> {
    bytes: &'a [u8],
    count: usize,
    first_bytes: usize,
    offset_bytes: usize,
    firsts_at: usize,
    offsets_at: usize,
    blocks_at: usize,
}

impl<'a> IdSet<'a> {
    /// Checks all bytes: what it accepts is what [`encode`](crate::encode) writes for these ids, byte for byte.
    ///
    /// # Errors
    /// The defect, and its place.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, IdsError> {
        let set = Self::open(bytes)?;
        set.verify()?;
        Ok(set)
    }

    /// A view of bytes that [`parse`](Self::parse) accepted before, such as a value whose checksum is right: checks the
    /// head only, whatever the length. With other bytes, operations end without a panic, and their results mean nothing.
    ///
    /// # Errors
    /// An unknown version, or fewer bytes than the head needs.
    pub fn open(bytes: &'a [u8]) -> Result<Self, IdsError> {
        let Some(&version) = bytes.first() else {
            return Err(IdsError::invalid(0, "there are no bytes"));
        };
        if version != VERSION {
            return Err(IdsError::UnknownVersion { found: version });
        }
        let mut set = Self {
            bytes,
            count: 0,
            first_bytes: 0,
            offset_bytes: 0,
            firsts_at: 1,
            offsets_at: 1,
            blocks_at: 1,
        };
        let Some(&widths) = bytes.get(1) else {
            return Ok(set);
        };
        let widths = usize::from(widths);
        let count_bytes = widths >> 3 & 7;
        set.first_bytes = (widths & 7) + 1;
        set.offset_bytes = (widths >> 6) + 1;
        set.firsts_at = 2 + count_bytes;
        if count_bytes > 4 {
            return Err(IdsError::invalid(1, "the count has more than 4 bytes"));
        }
        if bytes.len() < set.firsts_at {
            return Err(IdsError::invalid(2, "the bytes end within the count"));
        }
        set.count = match count_bytes {
            0 => 1,
            _ => number_at(bytes, 2, count_bytes) as usize,
        };
        if set.count == 0 {
            return Err(IdsError::invalid(2, "the count is 0, and bytes follow it"));
        }
        set.offsets_at = set.firsts_at + set.blocks() * set.first_bytes;
        set.blocks_at = set.offsets_at + (set.blocks() - 1) * set.offset_bytes;
        match bytes.len() < set.blocks_at {
            true => Err(IdsError::invalid(
                set.firsts_at,
                "the bytes end within the first ids and offsets",
            )),
            false => Ok(set),
        }
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many ids.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no ids.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The smallest id.
    pub fn first(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.first_of(0))
    }

    /// The largest id.
    pub fn last(&self) -> Option<u64> {
        let mut ids = [0; BLOCK];
        self.read(self.blocks().checked_sub(1)?, &mut ids).last().copied()
    }

    /// Whether an id is in the set. Decodes at most one block.
    pub fn contains(&self, id: u64) -> bool {
        let Some(block) = self.block_of(id, 0) else {
            return false;
        };
        let mut ids = [0; BLOCK];
        self.first_of(block) == id || self.read(block, &mut ids).binary_search(&id).is_ok()
    }

    /// The ids in ascending order.
    pub fn iter(&self) -> Iter<'a> {
        Iter::new(*self)
    }

    /// Appends the ids in ascending order.
    pub fn decode_into(&self, out: &mut Vec<u64>) {
        let mut block_ids = [0; BLOCK];
        out.reserve(self.count);
        for block in 0..self.blocks() {
            out.extend_from_slice(self.read(block, &mut block_ids));
        }
    }

    /// How many blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.count.div_ceil(BLOCK)
    }

    /// The first id of a block.
    #[inline]
    pub(crate) fn first_of(&self, block: usize) -> u64 {
        number_at(self.bytes, self.firsts_at + block * self.first_bytes, self.first_bytes)
    }

    /// The only block that may hold an id, of this block and those after it. Steps that double, then halve: near blocks are
    /// found soon.
    pub(crate) fn block_of(&self, id: u64, from: usize) -> Option<usize> {
        let blocks = self.blocks();
        if from >= blocks || self.first_of(from) > id {
            return None;
        }
        let (mut low, mut step) = (from, 1);
        while low + step < blocks && self.first_of(low + step) <= id {
            low += step;
            step *= 2;
        }
        let mut high = blocks.min(low + step);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.first_of(middle) <= id {
                true => low = middle,
                false => high = middle,
            }
        }
        Some(low)
    }

    /// The ids of a block, none if its bytes are not there.
    #[inline]
    pub(crate) fn read<'b>(&self, block: usize, ids: &'b mut [u64; BLOCK]) -> &'b [u64] {
        let length = self.ids_of(block);
        let Some((first, gaps)) = ids[..length].split_first_mut() else {
            return &[];
        };
        let bytes = self.bytes.get(self.start_of(block)..).unwrap_or_default();
        if read_block(bytes, gaps).is_none() {
            return &[];
        }
        let mut id = self.first_of(block);
        *first = id;
        for gap in gaps {
            id = id.wrapping_add(*gap).wrapping_add(1);
            *gap = id;
        }
        &ids[..length]
    }

    /// Calls `each` with the ids of a block, ascending, and returns how many there are; none if its bytes are not there. Spares
    /// the pass that writes the ids, as [`read`](Self::read) does. `gaps` is to be used again.
    #[inline]
    pub(crate) fn visit(&self, block: usize, gaps: &mut [u64; BLOCK], mut each: impl FnMut(u64)) -> usize {
        let length = self.ids_of(block);
        let Some(further) = length.checked_sub(1) else {
            return 0;
        };
        let gaps = &mut gaps[..further];
        let bytes = self.bytes.get(self.start_of(block)..).unwrap_or_default();
        if read_block(bytes, gaps).is_none() {
            return 0;
        }
        let mut id = self.first_of(block);
        each(id);
        for gap in gaps.iter() {
            id = id.wrapping_add(*gap).wrapping_add(1);
            each(id);
        }
        length
    }

    /// How many ids a block has.
    fn ids_of(&self, block: usize) -> usize {
        self.count.saturating_sub(block * BLOCK).min(BLOCK)
    }

    /// Where the bytes of a block begin.
    fn start_of(&self, block: usize) -> usize {
        match block {
            0 => self.blocks_at,
            _ => {
                let at = self.offsets_at + (block - 1) * self.offset_bytes;
                self.blocks_at + number_at(self.bytes, at, self.offset_bytes) as usize
            }
        }
    }

    fn verify(&self) -> Result<(), IdsError> {
        let Some(last) = self.blocks().checked_sub(1) else {
            return Ok(());
        };
        let count_bytes = match self.count {
            1 => 0,
            count => byte_width(count as u64),
        };
        if count_bytes != self.firsts_at - 2 {
            return Err(IdsError::invalid(1, "the count is not written in the shortest way"));
        }
        if byte_width(self.first_of(last)) != self.first_bytes {
            return Err(IdsError::invalid(
                1,
                "the first ids are not written in the shortest way",
            ));
        }
        let last_offset = (self.start_of(last) - self.blocks_at) as u64;
        if byte_width(last_offset) != self.offset_bytes {
            return Err(IdsError::invalid(1, "the offsets are not written in the shortest way"));
        }
        let (mut at, mut above, mut scratch) = (self.blocks_at, None, Vec::new());
        for block in 0..=last {
            at = self.verify_block(block, at, &mut above, &mut scratch)?;
        }
        match at == self.bytes.len() {
            true => Ok(()),
            false => Err(IdsError::invalid(at, "there are bytes after the last block")),
        }
    }

    /// Checks a block that must begin at a place, and whose ids must be above another. Returns where it ends.
    fn verify_block(
        &self,
        block: usize,
        at: usize,
        above: &mut Option<u64>,
        scratch: &mut Vec<u8>,
    ) -> Result<usize, IdsError> {
        let first_at = self.firsts_at + block * self.first_bytes;
        if self.start_of(block) != at {
            let offset_at = self.offsets_at + (block - 1) * self.offset_bytes;
            return Err(IdsError::invalid(
                offset_at,
                "a block does not begin where the one before it ends",
            ));
        }
        let mut ids = [0; BLOCK];
        let ids = self.read(block, &mut ids);
        let Some((&first, &last)) = ids.first().zip(ids.last()) else {
            return Err(IdsError::invalid(
                at,
                "the bytes end within a block, or its widths are impossible",
            ));
        };
        if above.is_some_and(|above| above >= first) {
            return Err(IdsError::invalid(
                first_at,
                "the ids of a block are not above those of the block before it",
            ));
        }
        // Two ids in a row that are below 2^63 and a gap of 64 bits may pass 2^64, and come out lower.
        if ids.iter().any(|&id| id > ID_MAX) || ids.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(IdsError::invalid(at, "an id of a block has more than 63 bits"));
        }
        *above = Some(last);
        let mut gaps = [0; BLOCK];
        for (gap, pair) in gaps.iter_mut().zip(ids.windows(2)) {
            *gap = pair[1] - pair[0] - 1;
        }
        let length = canonical_block_bytes(&self.bytes[at..], &gaps[..ids.len() - 1], scratch);
        let length = length.ok_or(IdsError::invalid(at, "a block is not written in the shortest way"))?;
        Ok(at + length)
    }
}

impl<'a> IntoIterator for IdSet<'a> {
    type Item = u64;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// As text: `1 5 9`.
impl fmt::Display for IdSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, id) in self.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{id}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for IdSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
