//! Positions in the changes of a partition: small values that clients keep, and give to any replica.

use fondaco_model::versioned::VectorClock;

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

/// The first byte, of positions in a log and in a scan.
const IN_LOG: u8 = 1;
const IN_SCAN: u8 = 2;

impl ChangePosition {
    /// The position as bytes.
    ///
    /// ```text
    /// 1 or 2 (u8), log (u64), last (u64), seen at (u64), since (u64), if 2: scan (u64), clock of the seen writes
    /// ```
    /// Numbers are big-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![if self.scan.is_some() { IN_SCAN } else { IN_LOG }];
        let numbers = [self.log, self.last, self.seen_unix_ms, self.since_unix_ms];
        for number in numbers.into_iter().chain(self.scan) {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&self.seen.to_bytes());
        bytes
    }

    /// Parses a position; `None` if [`to_bytes`](Self::to_bytes) does not produce these bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, mut rest) = bytes.split_first()?;
        let mut number = || {
            let (number, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u64::from_be_bytes(*number))
        };
        let [log, last, seen_unix_ms, since_unix_ms] = [number()?, number()?, number()?, number()?];
        let scan = match kind {
            IN_LOG => None,
            IN_SCAN => Some(number()?),
            _ => return None,
        };
        Some(Self {
            log,
            last,
            scan,
            seen: VectorClock::decode(rest).ok()?,
            seen_unix_ms,
            since_unix_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::NodeId;
    use fondaco_model::versioned::{Dot, ReplicaId};
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
