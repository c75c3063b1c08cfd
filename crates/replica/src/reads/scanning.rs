//! Scans of tables that continue behind unreadable ranges.
//!
//! An engine that knows which record is damaged names its key, and continues by itself. An engine that stores many
//! records in a block ends its scan at the first block that it cannot read. Then this scan begins again at the next key
//! that can be read, and reports the range in between: a [gap](Found::Gap). The invariant: each key of the range is
//! either returned with its value, or named as damaged, or lies in a gap. If two unreadable blocks are close to each
//! other, the keys between them may lie in the gap, too.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::{EngineError, Scan, Table};

use crate::table_key::{HINT_BYTES, PREFIX_BYTES};

/// How many leading bytes distinguish a store's keys when the end of a gap is searched: positions.
pub(crate) const RECORD_WIDTH: usize = PREFIX_BYTES;

/// The same for hints, with their prefix.
pub(crate) const HINT_WIDTH: usize = HINT_BYTES + PREFIX_BYTES;

/// The precision of the end of a gap: 2⁻⁴⁰ of all positions.
const STEP_BITS_MIN: u32 = 24;

/// An item of a scan.
#[derive(Debug)]
pub(crate) enum Found {
    /// A key and its value.
    Record(Bytes, Bytes),
    /// The key of a damaged record, and the error of the engine.
    Damaged(Bytes, EngineError),
    /// A range of unknown keys.
    Gap(Gap),
}

/// A range of a table that cannot be read.
#[derive(Debug)]
pub(crate) struct Gap {
    /// Its beginning.
    pub(crate) from: Bytes,
    /// Its end; `None` if that is the end of the table.
    pub(crate) to: Option<Bytes>,
    /// The error of the engine.
    pub(crate) error: EngineError,
}

/// A scan of a range of a table.
pub(crate) struct ReadableScan {
    table: Arc<dyn Table>,
    /// `None` once it has ended.
    scan: Option<Scan>,
    /// Where it began, and the last key that it has returned.
    from: Bytes,
    last: Option<Bytes>,
    to: Option<Bytes>,
    width: usize,
}

impl ReadableScan {
    /// A scan like [`Table::scan`]; keys usually differ in their first `width` bytes.
    ///
    /// # Errors
    /// As for [`Table::scan`].
    pub(crate) fn begin(
        table: &Arc<dyn Table>,
        from: &[u8],
        to: Option<&[u8]>,
        width: usize,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            scan: Some(table.scan(from, to)?),
            table: Arc::clone(table),
            from: Bytes::copy_from_slice(from),
            last: None,
            to: to.map(Bytes::copy_from_slice),
            width,
        })
    }

    /// Continues behind a block that the engine cannot read.
    fn skip(&mut self, error: EngineError) -> Result<Found, EngineError> {
        let from = match &self.last {
            Some(last) => [last, &[0][..]].concat().into(),
            None => self.from.clone(),
        };
        let next = next_readable(&*self.table, &from, self.to.as_deref(), self.width)?;
        if let Some(next) = &next {
            self.scan = Some(self.table.scan(next, self.to.as_deref())?);
            self.from = next.clone();
            self.last = None;
        }
        Ok(Found::Gap(Gap {
            from,
            to: next.or_else(|| self.to.clone()),
            error,
        }))
    }
}

impl Iterator for ReadableScan {
    type Item = Result<Found, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let error = match self.scan.as_mut()?.next()? {
            Ok((key, value)) => {
                self.last = Some(key.clone());
                return Some(Ok(Found::Record(key, value)));
            }
            Err(error) => error,
        };
        if let Some(key) = error.damaged_key() {
            let key = Bytes::copy_from_slice(key);
            self.last = Some(key.clone());
            return Some(Ok(Found::Damaged(key, error)));
        }
        self.scan = None;
        match is_damage(&error) {
            true => Some(self.skip(error)),
            false => Some(Err(error)),
        }
    }
}

/// Whether an error concerns only a part of the stored data.
pub(crate) fn is_damage(error: &EngineError) -> bool {
    matches!(error, EngineError::Corrupt { .. })
}

/// The first position behind an unreadable one, before `to`, where a table can be read again; `None` if the table cannot be read up to `to`.
///
/// # Errors
/// Any error other than damage.
pub(crate) fn next_readable(
    table: &dyn Table,
    from: &[u8],
    to: Option<&[u8]>,
    width: usize,
) -> Result<Option<Bytes>, EngineError> {
    let is_inside = |place: &[u8]| to.is_none_or(|to| place < to);
    // The last position that is known to be unreadable. Positions are big-endian numbers.
    let mut unreadable = from.to_vec();
    unreadable.resize(width, 0);
    let mut bits = STEP_BITS_MIN;
    let mut found = loop {
        match plus(&unreadable, bits).filter(|place| is_inside(place)) {
            // The end of the table is there at the latest.
            None => break None,
            Some(place) if is_readable(table, &place, to)? => break Some(place),
            Some(place) => unreadable = place,
        }
        bits += 1;
    };
    while bits > STEP_BITS_MIN {
        bits -= 1;
        let is_before = |middle: &Vec<u8>| found.as_ref().is_none_or(|found| middle < found) && is_inside(middle);
        let Some(middle) = plus(&unreadable, bits).filter(is_before) else {
            continue;
        };
        match is_readable(table, &middle, to)? {
            true => found = Some(middle),
            false => unreadable = middle,
        }
    }
    Ok(found.map(Bytes::from))
}

/// Whether a scan that begins at a position finds a record or the end.
fn is_readable(table: &dyn Table, place: &[u8], to: Option<&[u8]>) -> Result<bool, EngineError> {
    match table.scan(place, to)?.next() {
        None | Some(Ok(_)) => Ok(true),
        Some(Err(error)) if error.damaged_key().is_some() => Ok(true),
        Some(Err(error)) if is_damage(&error) => Ok(false),
        Some(Err(error)) => Err(error),
    }
}

/// The position 2^`bits` after another one; `None` beyond the last position.
fn plus(place: &[u8], bits: u32) -> Option<Vec<u8>> {
    let mut sum = place.to_vec();
    let mut at = sum.len().checked_sub(1 + bits as usize / 8)?;
    let (byte, mut has_carry) = sum[at].overflowing_add(1 << (bits % 8));
    sum[at] = byte;
    while has_carry {
        at = at.checked_sub(1)?;
        (sum[at], has_carry) = sum[at].overflowing_add(1);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use fondaco_engine::{Engine, Hot, MemoryEngine, WriteBatch};
    use fondaco_model::{PartitionCount, PartitionId, Slot};
    use proptest::prelude::*;

    use super::*;
    use crate::table_key::{position, range, record_key};

    /// A table with some blocks, from one key to another, that cannot be read.
    struct Blocks {
        table: Arc<dyn Table>,
        unreadable: Vec<(Bytes, Bytes)>,
    }

    impl Blocks {
        fn check(&self, key: &[u8]) -> Result<(), EngineError> {
            let mut unreadable = self.unreadable.iter();
            match unreadable.any(|(first, last)| (&first[..]..=&last[..]).contains(&key)) {
                true => Err(EngineError::Corrupt {
                    place: "blocks".to_owned(),
                    reason: "it cannot be read".to_owned(),
                    key: None,
                }),
                false => Ok(()),
            }
        }
    }

    impl Table for Blocks {
        fn name(&self) -> &str {
            self.table.name()
        }

        fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
            self.check(key).and_then(|()| self.table.get(key))
        }

        fn get_hot(&self, _: &[u8]) -> Result<Hot<Bytes>, EngineError> {
            Ok(Hot::Cold)
        }

        fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
            let mut found: Vec<_> = Vec::new();
            for entry in self.table.scan(from, to)? {
                let (key, value) = entry?;
                let checked = self.check(&key);
                let is_end = checked.is_err();
                found.push(checked.map(|()| (key, value)));
                if is_end {
                    break;
                }
            }
            Ok(Box::new(found.into_iter()))
        }

        fn approximate_len(&self) -> u64 {
            self.table.approximate_len()
        }
    }

    fn key(number: usize) -> Bytes {
        // The hashes look random.
        let hash = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        record_key(position(Slot::new(7).unwrap(), hash), number.to_string().as_bytes())
    }

    proptest! {
        #[test]
        fn readable_keys_are_returned_and_all_others_are_in_gaps(
            count in 1..200usize, blocks in prop::collection::vec((0..200usize, 1..20usize), 0..6),
        ) {
            let engine = MemoryEngine::new();
            let table = engine.open_table("t").unwrap();
            let mut keys: Vec<Bytes> = (0..count).map(key).collect();
            keys.push(record_key(position(Slot::new(8).unwrap(), 0), b"of another partition"));
            let mut batch = WriteBatch::new();
            keys.iter().for_each(|key| batch.put(&*table, key.clone(), "v".into()));
            engine.write(batch).unwrap();
            keys.pop();
            keys.sort();
            let block = |&(first, length): &(usize, usize)| {
                let last = keys.get(first + length - 1).or(keys.last())?;
                Some((keys.get(first)?.clone(), last.clone()))
            };
            let unreadable: Vec<_> = blocks.iter().filter_map(block).collect();
            let blocks = Blocks { table, unreadable };
            let are_apart = blocks.unreadable.len() < 2;
            let is_unreadable: Vec<bool> = keys.iter().map(|key| blocks.check(key).is_err()).collect();
            let table: Arc<dyn Table> = Arc::new(blocks);
            let partitions = PartitionCount::try_from(16384).unwrap();
            let (from, to) = range(partitions, PartitionId::new(7), 0, 0);
            let (mut given, mut gaps) = (Vec::new(), Vec::new());
            for found in ReadableScan::begin(&table, &from, to.as_deref(), RECORD_WIDTH).unwrap() {
                match found.unwrap() {
                    Found::Record(key, _) => given.push(key),
                    Found::Gap(gap) => gaps.push(gap),
                    Found::Damaged(..) => panic!("it names no key"),
                }
            }
            let in_gap = |key: &Bytes| gaps.iter().any(|gap| *key >= gap.from && gap.to.as_ref().is_none_or(|to| key < to));
            for (key, is_unreadable) in keys.iter().zip(is_unreadable) {
                prop_assert_ne!(given.contains(key), in_gap(key));
                prop_assert!(in_gap(key) || !is_unreadable);
                prop_assert!(in_gap(key) == is_unreadable || !are_apart);
            }
            prop_assert!(given.is_sorted() && given.iter().all(|key| keys.contains(key)));
        }
    }
}
