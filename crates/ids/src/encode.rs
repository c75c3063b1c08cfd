//! Writes a set of ids.
//!
//! ```text
//! set       version (1 byte, 1); nothing more for an empty set; else
//!           widths (1 byte): bits 0 to 2: bytes of a first id - 1,
//!                            bits 3 to 5: bytes of the count, 0 for a set of one id,
//!                            bits 6 to 7: bytes of an offset - 1;
//!           count, first id of each block, offset of each block but the first, block…
//! block     of 128 ids, fewer in the last one: for each id but the first the gap to the one before it, less one,
//!           packed (see `packing`)
//! offset    of a block from the end of the offsets
//! ```
//! The numbers of whole bytes are little-endian, and as short as the largest of their kind allows: there is one encoding for
//! a set. First ids and offsets stand apart from the blocks so that a search touches one block.

use crate::packing::{BLOCK, byte_width, put_block, put_number};
use crate::{ID_MAX, IdsError};

/// The number of the format.
pub(crate) const VERSION: u8 = 1;

/// Encodes ids, which are in ascending order, without duplicates and at most [`ID_MAX`].
///
/// # Errors
/// An id that is too large, or not larger than the one before it; or a value of more than 4 GiB.
pub fn encode(ids: &[u64]) -> Result<Vec<u8>, IdsError> {
    check(ids)?;
    let Some(&last_first) = ids.chunks(BLOCK).last().and_then(<[u64]>::first) else {
        return Ok(vec![VERSION]);
    };
    let (offsets, blocks) = blocks(ids);
    let last_offset = offsets.last().copied().unwrap_or(0);
    let too_long = |_| IdsError::ValueTooLong { count: ids.len() };
    u32::try_from(blocks.len()).map_err(too_long)?;
    u32::try_from(ids.len()).map_err(too_long)?;

    let (first_bytes, offset_bytes) = (byte_width(last_first), byte_width(last_offset));
    let count_bytes = match ids.len() {
        1 => 0,
        count => byte_width(count as u64),
    };
    let directory_bytes = offsets.len() * (first_bytes + offset_bytes) + first_bytes;
    let mut out = Vec::with_capacity(2 + count_bytes + directory_bytes + blocks.len());
    out.push(VERSION);
    out.push(((first_bytes - 1) | (count_bytes << 3) | ((offset_bytes - 1) << 6)) as u8);
    put_number(&mut out, ids.len() as u64, count_bytes);
    for block in ids.chunks(BLOCK) {
        put_number(&mut out, block[0], first_bytes);
    }
    for offset in offsets {
        put_number(&mut out, offset, offset_bytes);
    }
    out.extend_from_slice(&blocks);
    Ok(out)
}

fn check(ids: &[u64]) -> Result<(), IdsError> {
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(IdsError::NotAscending {
            id: pair[1],
            before: pair[0],
        });
    }
    match ids.last() {
        Some(&id) if id > ID_MAX => Err(IdsError::TooLarge { id }),
        _ => Ok(()),
    }
}

/// The offsets of all blocks but the first, and the blocks.
fn blocks(ids: &[u64]) -> (Vec<u64>, Vec<u8>) {
    let (mut offsets, mut blocks) = (Vec::new(), Vec::new());
    let mut gaps = [0; BLOCK];
    for (index, block) in ids.chunks(BLOCK).enumerate() {
        if index > 0 {
            offsets.push(blocks.len() as u64);
        }
        for (gap, pair) in gaps.iter_mut().zip(block.windows(2)) {
            *gap = pair[1] - pair[0] - 1;
        }
        put_block(&mut blocks, &gaps[..block.len() - 1]);
    }
    (offsets, blocks)
}
