//! Streams of events, and the overlays of hybrid stores that they feed; and versions that travel through topics.
//!
//! - [`Source`]: where events come from: topics of [Kafka](KafkaTopic), or of the [log](EventLog) inside the process.
//! - [`Overlay`]: the events of a stream on top of one version of a hybrid store, on one node.
//! - [`VersionReader`]: a whole version that was [sent](send_version) through a topic.
//! - [`EventWriters`]: events that clients of Redis write.
//! - [`MirrorTopic`]: a topic that the changes of a store are written to.
//! - [`Ingest`]: the threads of a node that carry events from sources to overlays.

mod alarm;
mod clock;
mod error;
mod event;
mod feed;
mod filter;
mod follow;
mod ingest;
mod kafka;
mod log;
mod mirror;
mod overlay;
mod progress;
mod quota;
mod registry;
mod rules;
mod source;
mod topics;
mod versions;
mod write;

pub use alarm::Alarm;
pub use clock::ClockReading;
pub use error::StreamError;
pub use event::{Change, Event, Poison};
pub use feed::{BegunElsewhere, Feed, FeedOptions, FeedStatus, SourceStatus};
pub use follow::Effect;
pub use fondaco_format::Lifetimes;
pub use ingest::{Ingest, Pace, take_step};
pub use kafka::{ID_HEADER, KafkaCluster, KafkaTopic, TIME_HEADER, TYPE_HEADER};
pub use log::{EventLog, LogTopic};
pub use mirror::{MirrorError, MirrorTopic, Mirrored};
pub use overlay::{
    Applied, Below, Clock, EVENT_KEY_BYTES_MAX, Found, Keys, Overlay, OverlayOptions, Records, SettledPage,
    drop_after_loss, drop_after_losses,
};
pub use progress::LostRecords;
pub use registry::{RegistryClient, StoreSchemas, Unfound, live_rules};
pub use rules::{Foreign, LiveRules, SchemaFinder};
pub use source::{Batch, Logged, Source};
pub use topics::topic_partition;
pub use versions::{
    Sent, TopicAddress, TopicFileReader, VersionAddress, VersionReader, VersionTopicError, partitions_of, send_version,
};
pub use write::{EventWriters, OnWritten, StoreTopic, WriteError, Written};
