//! Positions in the changes of a partition: small values that clients keep, and give to any replica.

use fondaco_model::NodeId;
use fondaco_model::versioned::{Dot, ReplicaId, VectorClock};

use super::log::ENTRIES_MAX;

/// Where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangesFrom {
    /// With all records, including deletions that are still stored, and then their changes.
    Start,
    /// With the records that were written at this time or later, in milliseconds since 1970, by the clocks of the writers.
    Since(u64),
    /// With the next change.
    Now,
    /// After a position. A position in a partition is one in each of its halves after a split, too.
    After(ChangePosition),
}

/// A position in the changes of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePosition {
    /// The log of a replica.
    pub(crate) log: u64,
    /// The number of the last change of that log that was returned.
    pub(crate) last: u64,
    /// While records are scanned: the position of the first key that was not returned. Of later keys, no changes were returned.
    pub(crate) scan: Option<u64>,
    /// Writes that all replicas have: the last state returned of a key covers all of them.
    pub(crate) seen: VectorClock,
    /// When all of these and no others were there, in milliseconds since 1970.
    pub(crate) seen_unix_ms: u64,
    /// Records that were written earlier are not wanted, in milliseconds since 1970.
    pub(crate) since_unix_ms: u64,
}

/// Encodes positions one after another, or parses them: each by its differences to those before, in some 20 bytes.
///
/// ```text
/// position   log*, last, seen at*, since*, scan, or 0; entries of the clock, entry…
/// scan       1 + place / 2³², place mod 2³²
/// entry      index of the replica among those of all positions, if new: node, incarnation; counter*
/// ```
/// All numbers are in groups of 7 bits, the lowest first. Those with a * are differences to the position before, of a counter to the one
/// before of the same replica, or to "seen at". They are signed: 0, -1, 1, -2, … as 0, 1, 2, 3, ….
#[derive(Debug, Default)]
pub struct ChangePositions {
    log: u64,
    seen_unix_ms: u64,
    since_unix_ms: u64,
    /// Each with its last counter.
    replicas: Vec<(ReplicaId, u64)>,
}

impl ChangePositions {
    /// Appends the next position.
    pub fn put(&mut self, position: &ChangePosition, bytes: &mut Vec<u8>) {
        put_difference(bytes, &mut self.log, position.log);
        put_number(bytes, position.last);
        put_difference(bytes, &mut self.seen_unix_ms, position.seen_unix_ms);
        put_difference(bytes, &mut self.since_unix_ms, position.since_unix_ms);
        match position.scan {
            None => put_number(bytes, 0),
            Some(scan) => {
                put_number(bytes, 1 + (scan >> 32));
                put_number(bytes, scan & u64::from(u32::MAX));
            }
        }
        put_number(bytes, position.seen.entries().len() as u64);
        for entry in position.seen.entries() {
            let known = self.replicas.iter().position(|(replica, _)| *replica == entry.replica);
            let at = known.unwrap_or(self.replicas.len());
            put_number(bytes, at as u64);
            if known.is_none() {
                put_number(bytes, entry.replica.node.get().into());
                put_number(bytes, entry.replica.incarnation.into());
                self.replicas.push((entry.replica, position.seen_unix_ms));
            }
            put_difference(bytes, &mut self.replicas[at].1, entry.counter);
        }
    }

    /// Parses the next position; `None` if [`put`](Self::put) does not produce these bytes.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Option<ChangePosition> {
        let log = take_difference(bytes, &mut self.log)?;
        let last = take_number(bytes)?;
        let seen_unix_ms = take_difference(bytes, &mut self.seen_unix_ms)?;
        let since_unix_ms = take_difference(bytes, &mut self.since_unix_ms)?;
        let scan = match take_number(bytes)? {
            0 => None,
            high => Some(u64::from(u32::try_from(high - 1).ok()?) << 32 | u64::from(take_u32(bytes)?)),
        };
        let mut seen = VectorClock::new();
        let entries = take_number(bytes)?;
        if entries > ENTRIES_MAX as u64 {
            return None;
        }
        for _ in 0..entries {
            let at = usize::try_from(take_number(bytes)?).ok()?;
            if at == self.replicas.len() {
                let node = NodeId::new(take_u32(bytes)?)?;
                let incarnation = take_u32(bytes)?;
                self.replicas.push((ReplicaId { node, incarnation }, seen_unix_ms));
            }
            let (replica, counter) = self.replicas.get_mut(at)?;
            let dot = Dot {
                replica: *replica,
                counter: take_difference(bytes, counter)?,
            };
            if seen.covers(dot) || dot.counter == 0 {
                return None;
            }
            seen.increment(dot, dot.counter);
        }
        Some(ChangePosition {
            log,
            last,
            scan,
            seen,
            seen_unix_ms,
            since_unix_ms,
        })
    }
}

impl ChangePosition {
    /// The time up to which it covers all writes, in milliseconds since 1970: it is valid for a part of the grace period of tombstones.
    pub fn unix_ms(&self) -> u64 {
        self.seen_unix_ms
    }

    /// The position as bytes: see [`ChangePositions`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        ChangePositions::default().put(self, &mut bytes);
        bytes
    }

    /// Parses a position; `None` if [`to_bytes`](Self::to_bytes) does not produce these bytes.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let position = ChangePositions::default().take(&mut bytes)?;
        bytes.is_empty().then_some(position)
    }
}

fn put_difference(bytes: &mut Vec<u8>, before: &mut u64, number: u64) {
    let difference = number.wrapping_sub(std::mem::replace(before, number)) as i64;
    put_number(bytes, ((difference << 1) ^ (difference >> 63)) as u64);
}

fn take_difference(bytes: &mut &[u8], before: &mut u64) -> Option<u64> {
    let number = take_number(bytes)?;
    let difference = (number >> 1) ^ (number & 1).wrapping_neg();
    *before = before.wrapping_add(difference);
    Some(*before)
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    take_number(bytes)?.try_into().ok()
}

/// Appends a number in groups of 7 bits, the lowest first.
pub fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Parses a number in groups of 7 bits, and moves on behind it; `None` if there is none.
pub fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_survive_encoding(
            numbers in prop::array::uniform4(any::<u64>()), scan in any::<Option<u64>>(),
            seen in prop::collection::btree_map((1..9u32, any::<u32>()), 1..1_u64 << 50, 0..9), cut in 0..400usize,
        ) {
            let mut clock = VectorClock::new();
            for ((node, incarnation), counter) in seen {
                let replica = ReplicaId { node: NodeId::new(node).unwrap(), incarnation };
                clock.increment(Dot { replica, counter }, counter);
            }
            let [log, last, seen_unix_ms, since_unix_ms] = numbers;
            let position = ChangePosition { log, last, scan, seen: clock, seen_unix_ms, since_unix_ms };
            let bytes = position.to_bytes();
            prop_assert_eq!(ChangePosition::decode(&bytes), Some(position.clone()));
            // A part of it is another position at most, never a panic.
            let part = ChangePosition::decode(&bytes[..cut.min(bytes.len() - 1)]);
            prop_assert!(part.is_none_or(|part| part != position));
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(position) = ChangePosition::decode(&bytes) {
                prop_assert_eq!(ChangePosition::decode(&position.to_bytes()), Some(position));
            }
        }
    }
}
