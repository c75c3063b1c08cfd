//! The configuration of a node's agent: how it reaches Kafka, and how it keeps versioned stores.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How Kafka is reached: properties of librdkafka, such as `security.protocol`.
#[derive(Clone, Default)]
pub struct KafkaConfig(pub BTreeMap<String, String>);

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the values: some are passwords.
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// How versioned stores are kept on a node.
#[derive(Clone, Default)]
pub struct VersionedConfig {
    /// How much memory may cache their records, in bytes, for all engines together; an eighth of the memory by default.
    /// Half of it is for blocks of the trees' files. Stores with the engine `cache` have as much once more.
    pub cache_bytes: Option<u64>,
    /// The MySQL database of this node alone, for stores with the engine `mysql`:
    /// `mysql://user:password@host:port/database`. Without it there can be no such store.
    pub mysql: Option<String>,
    /// How often each partition is compared with one of its other replicas; a minute by default.
    pub exchange_period: Option<Duration>,
    /// The rate limit of anti-entropy, for comparing and for sending what differs, in bytes a second; 0 is no limit, 32
    /// MiB by default.
    pub exchange_bytes_per_second: Option<u64>,
    /// The rate limit of hinted handoff, in bytes a second; 0 is no limit, 32 MiB by default.
    pub handoff_bytes_per_second: Option<u64>,
    /// How often the count of the data directory is raised while the node takes writes; a minute by default. An older
    /// copy of the directory is noticed if it is older than that.
    pub count_period: Option<Duration>,
}

impl fmt::Debug for VersionedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the database URL: it has a password.
        f.debug_struct("VersionedConfig")
            .field("cache_bytes", &self.cache_bytes)
            .field("exchange_period", &self.exchange_period)
            .field("exchange_bytes_per_second", &self.exchange_bytes_per_second)
            .field("handoff_bytes_per_second", &self.handoff_bytes_per_second)
            .field("count_period", &self.count_period)
            .finish_non_exhaustive()
    }
}
