//! Positions: how far a follower has come in the changes of a store, in all its partitions. To clients they are opaque text.
//!
//! ```text
//! "c" ++ base 64 (URL, without padding) of
//!   kind of the position (u8) ++ creation time of the store ++ content ++ the first 4 bytes of the SHA-256 of all before
//!
//! content of kind 1:  version ++ former version + 1, 1 for none, 0 outside of a comparison
//!                       ++ partition and hash of the comparison, inside of one
//!                       ++ mark of the topic ++ number of its partitions that were read
//!                       ++ for each: partition, offset to read next, offsets that values were ahead of it
//! ```
//!
//! content of kind 2:  number of partitions ++ where partitions begin: 0 with all, 2⁶⁴ - 1 now, else at this time
//!                       ++ for each node, and 0 for partitions without a position: node ++ number of its partitions
//!                          ++ for each: difference to the partition before ++ position, unless the node is 0
//!
//! Numbers are little-endian in groups of 7 bits. Kind 1 is of batch and hybrid stores, see [`ViewPlace`]; kind 2 of versioned stores, see
//! [`RecordsPlace`]. A node is asked for some partitions with a position in which the others are missing.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fondaco_api::OffsetsRead;
use fondaco_model::{NodeId, PartitionCount, PartitionId, VersionNumber};
use fondaco_replica::{ChangePosition, ChangePositions, put_number as put, take_number as take};
use sha2::{Digest, Sha256};

/// The first letter of all positions.
const MARK: char = 'c';

/// Kinds of positions.
const OF_VIEWS: u8 = 1;
const OF_RECORDS: u8 = 2;

/// How long a position is at most: requests with it have to fit into the header that servers take, of 64 KiB.
pub(super) const POSITION_CHARS_MAX: usize = 56_000;

/// The time between two positions in a versioned store that clients are told without a change, in milliseconds.
const TOLD_PERIOD_MS: u64 = 600_000;

/// How many bytes of a checksum end a position.
const SUM_BYTES: usize = 4;

/// How far a follower has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// When the store was created: another store may get its name.
    pub(super) created_unix_ms: u64,
    pub(super) place: Place,
}

/// The place of a position in the changes of a kind of stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Of batch and hybrid stores.
    View(ViewPlace),
    /// Of versioned stores.
    Records(RecordsPlace),
}

/// A place in the changes of a versioned store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordsPlace {
    /// How many partitions there are.
    pub(super) partitions: PartitionCount,
    /// Where partitions without a position begin: 0 with all records, `u64::MAX` now, else with what was written since, in milliseconds
    /// since 1970.
    pub(super) since_unix_ms: u64,
    /// Of each partition the position, and the node that it is of.
    pub(super) of: BTreeMap<PartitionId, Option<(NodeId, ChangePosition)>>,
}

/// A place in the changes of a store with versions. All keys are as in `version` with the events before the offsets; in a comparison, only
/// those before its place are, and the others are as in the former version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ViewPlace {
    pub(super) version: VersionNumber,
    pub(super) comparison: Option<Comparing>,
    /// The topic that the offsets are of.
    pub(super) topic_mark: u32,
    pub(super) offsets: BTreeMap<u32, OffsetsRead>,
}

/// A comparison that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Comparing {
    /// The former version; `None` of a follower that begins with nothing.
    pub(super) from: Option<VersionNumber>,
    /// The partition to compare next, numbered as the version's, and the hash of a key from which on.
    pub(super) partition: PartitionId,
    pub(super) hash: u64,
}

impl Position {
    /// The text for clients.
    pub(super) fn encode(&self) -> String {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(match &self.place {
            Place::View(_) => OF_VIEWS,
            Place::Records(_) => OF_RECORDS,
        });
        put(&mut bytes, self.created_unix_ms);
        match &self.place {
            Place::View(place) => place.encode(&mut bytes),
            Place::Records(place) => place.encode(&mut bytes),
        }
        let sum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&sum[..SUM_BYTES]);
        format!("{MARK}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Parses a position; `None` if the text is not one.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(MARK)?).ok()?;
        let (bytes, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
        let (&kind, mut rest) = bytes.split_first()?;
        if Sha256::digest(bytes)[..SUM_BYTES] != *sum {
            return None;
        }
        let created_unix_ms = take(&mut rest)?;
        let place = match kind {
            OF_VIEWS => Place::View(ViewPlace::decode(&mut rest)?),
            OF_RECORDS => Place::Records(RecordsPlace::decode(&mut rest)?),
            _ => return None,
        };
        rest.is_empty().then_some(Self { created_unix_ms, place })
    }
}

impl Place {
    /// Whether clients that learn positions only with changes are told this one without a change: by the former one, they would be too far
    /// behind some time.
    pub(super) fn is_due_after(&self, former: &Self) -> bool {
        let oldest = |place: &RecordsPlace| {
            let known = place.of.values().flatten().map(|(_, position)| position.unix_ms());
            known.min().unwrap_or_default()
        };
        match (self, former) {
            (Self::View(now), Self::View(before)) => {
                (before.version, before.comparison) != (now.version, now.comparison)
            }
            (Self::Records(now), Self::Records(before)) => oldest(now) >= oldest(before).saturating_add(TOLD_PERIOD_MS),
            _ => false,
        }
    }
}

impl ViewPlace {
    fn encode(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.version.get());
        match &self.comparison {
            None => put(bytes, 0),
            Some(comparing) => {
                put(bytes, comparing.from.map_or(0, VersionNumber::get) + 1);
                put(bytes, comparing.partition.get().into());
                put(bytes, comparing.hash);
            }
        }
        put(bytes, self.topic_mark.into());
        put(bytes, self.offsets.len() as u64);
        for (&partition, read) in &self.offsets {
            put(bytes, partition.into());
            put(bytes, read.next);
            put(bytes, read.seen.saturating_sub(read.next));
        }
    }

    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let mut next = || take(rest);
        let version = VersionNumber::new(next()?)?;
        let comparison = match next()? {
            0 => None,
            from => Some(Comparing {
                from: VersionNumber::new(from - 1),
                partition: PartitionId::new(next()?.try_into().ok()?),
                hash: next()?,
            }),
        };
        let topic_mark = next()?.try_into().ok()?;
        let mut offsets = BTreeMap::new();
        for _ in 0..next()? {
            let (partition, offset, ahead) = (next()?.try_into().ok()?, next()?, next()?);
            let seen = offset.checked_add(ahead)?;
            offsets.insert(partition, OffsetsRead { next: offset, seen });
        }
        Some(Self {
            version,
            comparison,
            topic_mark,
            offsets,
        })
    }
}

impl RecordsPlace {
    fn encode(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.partitions.get().into());
        put(bytes, self.since_unix_ms);
        // Positions of one node differ little.
        let mut by_node = BTreeMap::<u32, Vec<_>>::new();
        for (partition, known) in &self.of {
            let node = known.as_ref().map_or(0, |(node, _)| node.get());
            by_node.entry(node).or_default().push((partition.get(), known));
        }
        let mut positions = ChangePositions::default();
        for (node, partitions) in by_node {
            put(bytes, node.into());
            put(bytes, partitions.len() as u64);
            let mut before = 0;
            for (partition, known) in partitions {
                put(bytes, (partition - std::mem::replace(&mut before, partition)).into());
                if let Some((_, position)) = known {
                    positions.put(position, bytes);
                }
            }
        }
    }

    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let partitions = PartitionCount::try_from(u32::try_from(take(rest)?).ok()?).ok()?;
        let since_unix_ms = take(rest)?;
        let (mut of, mut positions) = (BTreeMap::new(), ChangePositions::default());
        while !rest.is_empty() {
            let node = NodeId::new(take(rest)?.try_into().ok()?);
            let mut partition = 0_u64;
            for _ in 0..take(rest)? {
                partition = partition.checked_add(take(rest)?)?;
                let id = PartitionId::new(partition.try_into().ok()?);
                let position = match node {
                    Some(node) => Some((node, positions.take(rest)?)),
                    None => None,
                };
                if partition >= u64::from(partitions.get()) || of.insert(id, position).is_some() {
                    return None;
                }
            }
        }
        Some(Self {
            partitions,
            since_unix_ms,
            of,
        })
    }

    /// The same place when partitions were split: a position is one in both halves. `None` if there were more.
    pub(super) fn among(&self, partitions: PartitionCount) -> Option<Self> {
        let former = |partition| self.of.get(&self.partitions.covering(partition, partitions)).cloned();
        (self.partitions <= partitions).then(|| Self {
            partitions,
            since_unix_ms: self.since_unix_ms,
            of: partitions
                .partitions()
                .filter_map(|partition| Some((partition, former(partition)?)))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64) -> VersionNumber {
        VersionNumber::new(number).unwrap()
    }

    #[test]
    fn a_position_is_read_back_and_a_changed_one_is_refused() {
        let offsets = [
            (0, OffsetsRead { next: 5, seen: 9 }),
            (
                7,
                OffsetsRead {
                    next: u64::MAX,
                    seen: u64::MAX,
                },
            ),
        ];
        let comparisons = [None, Some((None, 0, 0)), Some((Some(version(6)), 16383, u64::MAX))];
        for comparison in comparisons {
            let place = ViewPlace {
                version: version(7),
                comparison: comparison.map(|(from, partition, hash)| Comparing {
                    from,
                    partition: PartitionId::new(partition),
                    hash,
                }),
                topic_mark: 77,
                offsets: offsets.into(),
            };
            let position = Position {
                created_unix_ms: 1_800_000_000_000,
                place: Place::View(place),
            };
            let text = position.encode();
            assert_eq!(Position::decode(&text).as_ref(), Some(&position));
            for at in 0..text.len() {
                let mut other = text.clone().into_bytes();
                other[at] = if other[at] == b'A' { b'B' } else { b'A' };
                let other = String::from_utf8(other).unwrap();
                assert_eq!(Position::decode(&other), None, "{other}");
                assert_eq!(Position::decode(&text[..at]), None);
            }
        }
    }

    const NOW_UNIX_MS: u64 = 1_800_000_000_000;

    /// A place in a store whose partitions have three replicas each.
    fn in_records(partitions: u32, is_scan: bool, now: u64) -> Position {
        let partitions = PartitionCount::try_from(partitions).unwrap();
        let position = |partition: PartitionId| {
            let number = u64::from(partition.get());
            let mut bytes = Vec::new();
            // Logs of a node have ids near each other; times and counters are those of some hours.
            let times = [number * 7919 % 10_000_000, number * 104_729 % 10_000_000];
            let log = (number % 3) << 40 | number;
            for signed in [
                2 * log,
                70_000 + number,
                2 * (now - times[0]),
                2 * (now - 60_000 - number),
            ] {
                put(&mut bytes, signed);
            }
            match is_scan {
                true => [1 + (number << 18), 77]
                    .into_iter()
                    .for_each(|number| put(&mut bytes, number)),
                false => put(&mut bytes, 0),
            }
            put(&mut bytes, 3);
            for replica in 0..3_u64 {
                let incarnation = 1_234_567;
                [replica, replica + 1, incarnation, 2 * times[1] + 1]
                    .into_iter()
                    .for_each(|number| put(&mut bytes, number));
            }
            let node = NodeId::new(partition.get() % 3 + 1).unwrap();
            (partition, Some((node, ChangePosition::decode(&bytes).unwrap())))
        };
        let place = RecordsPlace {
            partitions,
            since_unix_ms: u64::MAX,
            of: partitions.partitions().map(position).collect(),
        };
        Position {
            created_unix_ms: now,
            place: Place::Records(place),
        }
    }

    #[test]
    fn positions_in_records_fit_into_requests() {
        for (partitions, is_scan, chars_max) in [(16, false, 700), (1024, false, 33_000), (1024, true, 45_000)] {
            let mut position = in_records(partitions, is_scan, NOW_UNIX_MS);
            let text = position.encode();
            assert_eq!(Position::decode(&text).as_ref(), Some(&position));
            assert!(
                text.len() <= chars_max.min(POSITION_CHARS_MAX),
                "{partitions}: {}",
                text.len()
            );
            // Some partitions only, and one without a position.
            let Place::Records(place) = &mut position.place else {
                unreachable!();
            };
            place.of.retain(|partition, _| partition.get() % 5 != 0);
            place.of.insert(PartitionId::new(5), None);
            assert_eq!(Position::decode(&position.encode()), Some(position));
        }
        assert!(in_records(4096, false, NOW_UNIX_MS).encode().len() > POSITION_CHARS_MAX);
    }

    #[test]
    fn clients_without_changes_are_told_a_position_when_theirs_gets_old() {
        let at = |now_unix_ms| in_records(16, false, now_unix_ms).place;
        assert!(!at(NOW_UNIX_MS + TOLD_PERIOD_MS - 1).is_due_after(&at(NOW_UNIX_MS)));
        assert!(at(NOW_UNIX_MS + TOLD_PERIOD_MS).is_due_after(&at(NOW_UNIX_MS)));
    }

    #[test]
    fn other_texts_are_no_positions() {
        for text in ["", "c", "cAAAA", "now", "0", "1526919030474-55", "cé", "c!!!"] {
            assert_eq!(Position::decode(text), None, "{text}");
        }
    }
}
