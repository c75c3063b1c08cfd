//! Several topics that feed one overlay: that of this data center, and copies of those of others.
//!
//! Their partitions have one numbering: those of topic T begin at T times [`TOPIC_PARTITIONS_MAX`]. So a stream of one topic has the
//! numbers of its partitions.

use std::time::Instant;

/// How many partitions a topic can have.
const TOPIC_PARTITIONS_MAX: u32 = 1 << 20;

/// The number of a partition of a topic among those of all topics.
pub(crate) fn number_of(topic: u32, partition: u32) -> u32 {
    debug_assert!(partition < TOPIC_PARTITIONS_MAX);
    topic * TOPIC_PARTITIONS_MAX + partition
}

/// The topic, and its partition, that have a number among those of all topics.
pub fn topic_partition(number: u32) -> (u32, u32) {
    (number / TOPIC_PARTITIONS_MAX, number % TOPIC_PARTITIONS_MAX)
}

/// How the records of a topic count that were read now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// When they were read.
    pub(crate) read_at: Instant,
    /// The rank of the data center where they were written: at equal times the event of the greatest one counts; 0 if there is one.
    pub(crate) center: u8,
    /// Those that were logged before this time do not count, in milliseconds since 1970: a copy of a topic may have some of them
    /// once more at its end.
    pub(crate) since_ms: u64,
    /// How much later than its record an event may be, in milliseconds.
    pub(crate) ahead_ms_max: u64,
}
