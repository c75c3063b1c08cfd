//! Errors of streams.

use fondaco_engine::EngineError;
use fondaco_model::{PartitionCount, StoreName};

/// Why events cannot be read or applied.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The storage of the overlay or of the log failed.
    #[error(transparent)]
    Engine(#[from] EngineError),

    /// Stored data is not what was written.
    #[error("damaged {what} of stream {stream:?}: {detail}")]
    Damaged {
        /// The kind of data that is damaged.
        what: &'static str,
        /// The topic or the overlay.
        stream: String,
        /// The damaged content.
        detail: String,
    },

    /// The version below, whose values updates change, cannot be read.
    #[error("updates wait for the version below, which cannot be read: {reason}")]
    Version {
        /// Why.
        reason: String,
    },

    /// The source does not have the topic.
    #[error("there is no topic {topic:?}: create it, or correct the store's stream")]
    NoTopic {
        /// The topic.
        topic: String,
    },

    /// The brokers do not tell this user of the topic.
    #[error("the brokers do not allow topic {topic:?} to be read: grant the operation Read on it")]
    NotAllowed {
        /// The topic.
        topic: String,
    },

    /// A partition that the topic does not have.
    #[error("topic {topic:?} has {partitions} partitions, and not number {partition}")]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },

    /// The partitions of the topic are not what the store's partitioner makes.
    #[error("{}", unfit_partitions(store, *partitions, *before))]
    Partitions {
        /// The store.
        store: StoreName,
        /// How many partitions its topic has.
        partitions: u32,
        /// How many it had when the version began, if they were others.
        before: Option<PartitionCount>,
    },

    /// Records that are yet to be read are gone.
    #[error(
        "topic {topic:?} has lost records of partition {partition}: offset {offset} is to be read next, and it has those from \
         {first} to {end}: push a new version, and have the topic keep records for longer"
    )]
    Lost {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
        /// The offset to read next.
        offset: u64,
        /// The first offset that there is.
        first: u64,
        /// The offset after the last one.
        end: u64,
    },

    /// The node has not read all events up to the requested time yet.
    #[error(
        "cannot read store {store} as of {until_ms}: the node has all events up to {settled_ms} only, in \
         milliseconds since 1970; ask for that time"
    )]
    NotSettled {
        /// The store.
        store: String,
        /// The requested time.
        until_ms: u64,
        /// The watermark; 0 if it is not known, or is before the stream begins.
        settled_ms: u64,
    },

    /// Updates were folded up to a later time than the requested one.
    #[error(
        "cannot read store {store} as of {until_ms}: updates up to {folded_ms}, in milliseconds since 1970, were merged into \
         their values; ask for a later time"
    )]
    Folded {
        /// The store.
        store: String,
        /// The requested time.
        until_ms: u64,
        /// The time of such an update.
        folded_ms: u64,
    },

    /// It is not known which schemas there are.
    #[error("events wait, since the schema of one is unknown here, and cannot be looked for: {reason}")]
    Schemas {
        /// Why.
        reason: String,
    },

    /// A step panicked: that is a fault of the program.
    #[error("a step of reading a stream panicked: see the log")]
    Panicked,

    /// The source failed, and may succeed later.
    #[error("topic {topic:?} cannot be read: {reason}")]
    Unavailable {
        /// The topic.
        topic: String,
        /// Why.
        reason: String,
    },
}

fn unfit_partitions(store: &StoreName, partitions: u32, before: Option<PartitionCount>) -> String {
    let topic = format!("the topic of store \"{store}\", whose partitioner is store, has {partitions} partitions");
    match before {
        Some(before) => format!(
            "{topic}, and had {} when the version began, so that keys may be in others now: push a new version, with a \
             --rewind that begins after the change",
            before.get()
        ),
        None => format!(
            "{topic}: it needs a power of two, from 1 to 16384; read another topic, or create the store with \
             --partitioner any"
        ),
    }
}
