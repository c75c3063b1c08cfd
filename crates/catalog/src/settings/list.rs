//! The list of settings: names, limits, defaults and meanings. A setting's place in the list is its number.

use super::SettingError;
use super::value::WHOLE_SHARE;

/// The name of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// How fast a fetch may read, in bytes a second; 0 is no limit.
    FetchRateBytesPerSecond,
    /// The lowest rate to which fetches slow down when they delay reads, in bytes a second.
    FetchRateFloorBytesPerSecond,
    /// Idle time after which a client is disconnected, in seconds; 0 is never.
    ClientIdleSeconds,
    /// Time after which a client is disconnected that stops in the middle of a request or does not read its replies, in
    /// seconds.
    ClientStallSeconds,
    /// How many clients may be connected.
    ClientsMax,
    /// The longest argument of a command, in bytes.
    BulkBytesMax,
    /// How many arguments a command may have.
    ArgumentsMax,
    /// Timeout for the keys that a request needs from other nodes, in milliseconds.
    ForwardTimeoutMs,
    /// How many keys may be in flight from other nodes.
    ForwardKeysMax,
    /// How many bytes of values from other nodes may wait to be sent to clients.
    ForwardBytesMax,
    /// How many bytes of hot keys a router caches; 0 disables the cache.
    RouterCacheBytes,
    /// Duration from which a request counts as slow, in microseconds.
    SlowRequestMicroseconds,
    /// The most ids of a result of a computation.
    ComputeIdsMax,
    /// The most bytes of sets that one node computes over for one request.
    ComputeInputBytesMax,
    /// How many bytes of networks of vertices are cached; 0 disables the cache.
    GraphCacheBytes,
    /// How old a cached network of a versioned graph may be, in seconds.
    GraphCacheAgeSeconds,
    /// Timeout for a query of a graph, in milliseconds.
    GraphTimeoutMs,
    /// The most rows of a query of a graph.
    GraphRowsMax,
    /// The most vertices that a query of a graph goes through.
    GraphExpandedMax,
    /// The cluster's own reaction to load: 0 nothing, 1 it proposes plans, 2 it runs them.
    BalanceMode,
    /// The partitions that are moved when nodes struggle: 0 one partition of one node, 1 one of each, 2 as many as it takes.
    BalancePolicy,
    /// Over how long load is averaged: nodes report ten times in it, and a decision is made every three fifths of it.
    BalanceWindowMs,
    /// A node struggles above this share of its processors.
    BalanceCpuPercent,
    /// A node is calm below this share of its processors.
    BalanceCpuCalmPercent,
    /// A node struggles above this share of its memory.
    BalanceMemoryPercent,
    /// A node is calm below this share of its memory.
    BalanceMemoryCalmPercent,
    /// A node struggles above this share of its disk.
    BalanceDiskPercent,
    /// A node is calm below this share of its disk.
    BalanceDiskCalmPercent,
    /// How many requests a second a node is to get at most; 0 is no limit.
    BalanceRequestsPerSecond,
    /// By how much of its capacity a move must relieve a node at least.
    BalanceGainPercent,
    /// How many partitions of a node one plan moves at most.
    BalanceMovesMax,
    /// How long after a plan nothing moves.
    BalanceCoolDownMs,
    /// How long a partition does not go back to a node that it left.
    BalanceStaySeconds,
    /// How long a node must be absent before a backup node replaces it; 0 is never.
    BalanceReplaceAfterSeconds,
    /// From when plans are run, in minutes since midnight UTC; at other times they are proposed.
    BalanceFromMinute,
    /// Until when; if it equals the beginning, plans are run at any time.
    BalanceToMinute,
    /// How fast a node may fetch partitions that move to it; 0 is no other limit than that of all fetches.
    MoveRateBytesPerSecond,
    /// How long a new version waits for what readers have read lately to be read ahead, in milliseconds; 0 is not at all.
    WarmTimeMs,
    /// How much is read ahead for a new version, in percent of the memory.
    WarmMemoryPercent,
    /// Where traces are sent; nowhere if it is empty.
    TracesEndpoint,
    /// The share of requests that are traced, in billionths.
    TracesSample,
}

/// The name, the limits and the meaning of a setting.
#[derive(Debug)]
pub struct SettingSpec {
    /// The setting.
    pub setting: Setting,
    /// Its name.
    pub name: &'static str,
    /// The name of the corresponding setting of Redis, which works too.
    pub redis_name: Option<&'static str>,
    /// Its default value.
    pub default: u64,
    /// Its least value.
    pub min: u64,
    /// Its greatest value.
    pub max: u64,
    /// Its meaning.
    pub summary: &'static str,
}

/// All settings.
pub const SETTINGS: [SettingSpec; 41] = [
    SettingSpec {
        setting: Setting::FetchRateBytesPerSecond,
        name: "fetch-rate-bytes-per-second",
        redis_name: None,
        default: 0,
        min: 0,
        max: 1 << 50,
        summary: "how fast a node may fetch, all its fetches together; 0 is no limit",
    },
    SettingSpec {
        setting: Setting::FetchRateFloorBytesPerSecond,
        name: "fetch-rate-floor-bytes-per-second",
        redis_name: None,
        default: 16 << 20,
        min: 1,
        max: 1 << 50,
        summary: "the lowest rate to which all fetches of a node together slow down when they delay reads",
    },
    SettingSpec {
        setting: Setting::ClientIdleSeconds,
        name: "client-idle-seconds",
        redis_name: Some("timeout"),
        default: 600,
        min: 0,
        max: 1 << 31,
        summary: "idle time after which a client is disconnected; 0 is never",
    },
    SettingSpec {
        setting: Setting::ClientStallSeconds,
        name: "client-stall-seconds",
        redis_name: None,
        default: 30,
        min: 1,
        max: 86_400,
        summary: "time after which a client is disconnected that stops in the middle of a request or a reply",
    },
    SettingSpec {
        setting: Setting::ClientsMax,
        name: "clients-max",
        redis_name: Some("maxclients"),
        default: 10_000,
        min: 1,
        max: 1_000_000,
        summary: "how many clients may be connected",
    },
    SettingSpec {
        setting: Setting::BulkBytesMax,
        name: "bulk-bytes-max",
        redis_name: Some("proto-max-bulk-len"),
        default: 16 * 1024 * 1024,
        min: 64 * 1024 + 65,
        max: 512 * 1024 * 1024,
        summary: "the longest argument of a command",
    },
    SettingSpec {
        setting: Setting::ArgumentsMax,
        name: "arguments-max",
        redis_name: None,
        default: 100_000,
        min: 16,
        max: 1024 * 1024,
        summary: "how many arguments a command may have",
    },
    SettingSpec {
        setting: Setting::ForwardTimeoutMs,
        name: "forward-timeout-ms",
        redis_name: None,
        default: 1000,
        min: 1,
        max: 60_000,
        summary: "timeout for the keys that a request needs from other nodes",
    },
    SettingSpec {
        setting: Setting::ForwardKeysMax,
        name: "forward-keys-max",
        redis_name: None,
        default: 100_000,
        min: 1,
        max: 100_000_000,
        summary: "how many keys may be in flight from other nodes; beyond it requests are refused",
    },
    SettingSpec {
        setting: Setting::ForwardBytesMax,
        name: "forward-bytes-max",
        redis_name: None,
        default: 256 * 1024 * 1024,
        min: 1,
        max: 1 << 40,
        summary: "how many bytes of values from other nodes, and of records of versioned stores, may wait to be sent to clients; beyond it requests are refused",
    },
    SettingSpec {
        setting: Setting::RouterCacheBytes,
        name: "router-cache-bytes",
        redis_name: None,
        default: 64 * 1024 * 1024,
        min: 0,
        max: 1 << 40,
        summary: "how many bytes of hot keys a router caches; 0 disables the cache",
    },
    SettingSpec {
        setting: Setting::SlowRequestMicroseconds,
        name: "slow-request-microseconds",
        redis_name: Some("slowlog-log-slower-than"),
        default: 10_000,
        min: 0,
        max: 1 << 40,
        summary: "requests that take at least so many microseconds are kept in SLOWLOG",
    },
    SettingSpec {
        setting: Setting::ComputeIdsMax,
        name: "compute-ids-max",
        redis_name: None,
        default: 1_000_000,
        min: 1,
        max: 1 << 30,
        summary: "the most ids of the result of a computation over sets of ids",
    },
    SettingSpec {
        setting: Setting::ComputeInputBytesMax,
        name: "compute-input-bytes-max",
        redis_name: None,
        default: 256 * 1024 * 1024,
        min: 1,
        max: 1 << 40,
        summary: "the most bytes of sets of ids that a node computes over for one request",
    },
    SettingSpec {
        setting: Setting::GraphCacheBytes,
        name: "graph-cache-bytes",
        redis_name: None,
        default: 64 << 20,
        min: 0,
        max: 1 << 40,
        summary: "how many bytes of networks of vertices are cached; 0 disables the cache",
    },
    SettingSpec {
        setting: Setting::GraphCacheAgeSeconds,
        name: "graph-cache-age-seconds",
        redis_name: None,
        default: 60,
        min: 1,
        max: 86_400,
        summary: "how old a cached network of a versioned graph may be; half as old, it is computed again in the background",
    },
    SettingSpec {
        setting: Setting::GraphTimeoutMs,
        name: "graph-timeout-ms",
        redis_name: None,
        default: 5_000,
        min: 1,
        max: 600_000,
        summary: "timeout for a query of a graph",
    },
    SettingSpec {
        setting: Setting::GraphRowsMax,
        name: "graph-rows-max",
        redis_name: None,
        default: 100_000,
        min: 1,
        max: 1 << 32,
        summary: "the most rows of a query of a graph, at any step",
    },
    SettingSpec {
        setting: Setting::GraphExpandedMax,
        name: "graph-expanded-max",
        redis_name: None,
        default: 10_000_000,
        min: 1,
        max: 1 << 40,
        summary: "the most edges that a query of a graph follows",
    },
    SettingSpec {
        setting: Setting::BalanceMode,
        name: "balance-mode",
        redis_name: None,
        default: 1,
        min: 0,
        max: 2,
        summary: "what the cluster does about load by itself: 0 nothing, 1 it proposes plans, 2 it runs them",
    },
    SettingSpec {
        setting: Setting::BalancePolicy,
        name: "balance-policy",
        redis_name: None,
        default: 2,
        min: 0,
        max: 2,
        summary: "what is moved when nodes struggle: 0 one partition of one node, 1 one of each, 2 as many as it takes",
    },
    SettingSpec {
        setting: Setting::BalanceWindowMs,
        name: "balance-window-ms",
        redis_name: None,
        default: 50_000,
        min: 1_000,
        max: 3_600_000,
        summary: "over how long load is averaged: nodes report ten times in it, and a decision is made every three fifths of it",
    },
    SettingSpec {
        setting: Setting::BalanceCpuPercent,
        name: "balance-cpu-percent",
        redis_name: None,
        default: 84,
        min: 1,
        max: 100,
        summary: "a node struggles above this share of its processors",
    },
    SettingSpec {
        setting: Setting::BalanceCpuCalmPercent,
        name: "balance-cpu-calm-percent",
        redis_name: None,
        default: 70,
        min: 1,
        max: 100,
        summary: "a node is calm below this share of its processors",
    },
    SettingSpec {
        setting: Setting::BalanceMemoryPercent,
        name: "balance-memory-percent",
        redis_name: None,
        default: 84,
        min: 1,
        max: 100,
        summary: "a node struggles above this share of its memory",
    },
    SettingSpec {
        setting: Setting::BalanceMemoryCalmPercent,
        name: "balance-memory-calm-percent",
        redis_name: None,
        default: 70,
        min: 1,
        max: 100,
        summary: "a node is calm below this share of its memory",
    },
    SettingSpec {
        setting: Setting::BalanceDiskPercent,
        name: "balance-disk-percent",
        redis_name: None,
        default: 84,
        min: 1,
        max: 100,
        summary: "a node struggles above this share of its disk",
    },
    SettingSpec {
        setting: Setting::BalanceDiskCalmPercent,
        name: "balance-disk-calm-percent",
        redis_name: None,
        default: 70,
        min: 1,
        max: 100,
        summary: "a node is calm below this share of its disk",
    },
    SettingSpec {
        setting: Setting::BalanceRequestsPerSecond,
        name: "balance-requests-per-second",
        redis_name: None,
        default: 0,
        min: 0,
        max: 1 << 40,
        summary: "how many requests a second a node is to get at most; 0 is no limit",
    },
    SettingSpec {
        setting: Setting::BalanceGainPercent,
        name: "balance-gain-percent",
        redis_name: None,
        default: 2,
        min: 0,
        max: 100,
        summary: "by how much of its capacity a move must relieve a node at least",
    },
    SettingSpec {
        setting: Setting::BalanceMovesMax,
        name: "balance-moves-max",
        redis_name: None,
        default: 8,
        min: 1,
        max: 1_000,
        summary: "how many partitions of a node one plan moves at most",
    },
    SettingSpec {
        setting: Setting::BalanceCoolDownMs,
        name: "balance-cool-down-ms",
        redis_name: None,
        default: 60_000,
        min: 0,
        max: 86_400_000,
        summary: "how long after a plan nothing moves",
    },
    SettingSpec {
        setting: Setting::BalanceStaySeconds,
        name: "balance-stay-seconds",
        redis_name: None,
        default: 86_400,
        min: 0,
        max: 31_536_000,
        summary: "how long a partition does not go back to a node that it left",
    },
    SettingSpec {
        setting: Setting::BalanceReplaceAfterSeconds,
        name: "balance-replace-after-seconds",
        redis_name: None,
        default: 600,
        min: 0,
        max: 31_536_000,
        summary: "how long a node must be absent before a backup node replaces it; 0 is never",
    },
    SettingSpec {
        setting: Setting::BalanceFromMinute,
        name: "balance-from-minute",
        redis_name: None,
        default: 0,
        min: 0,
        max: 1_439,
        summary: "from when plans are run, in minutes since midnight UTC; at other times they are proposed",
    },
    SettingSpec {
        setting: Setting::BalanceToMinute,
        name: "balance-to-minute",
        redis_name: None,
        default: 0,
        min: 0,
        max: 1_439,
        summary: "until when; if it equals the beginning, plans are run at any time",
    },
    SettingSpec {
        setting: Setting::MoveRateBytesPerSecond,
        name: "move-rate-bytes-per-second",
        redis_name: None,
        default: 0,
        min: 0,
        max: 1 << 50,
        summary: "how fast a node may fetch partitions that move to it, if all fetches may be faster; 0 is no limit of its own",
    },
    SettingSpec {
        setting: Setting::WarmTimeMs,
        name: "warm-time-ms",
        redis_name: None,
        default: 20_000,
        min: 0,
        max: 300_000,
        summary: "how long a fetched version waits, before it may serve, until a node has read ahead what readers of the version before have read lately; 0 is not at all",
    },
    SettingSpec {
        setting: Setting::WarmMemoryPercent,
        name: "warm-memory-percent",
        redis_name: None,
        default: 50,
        min: 0,
        max: 90,
        summary: "how much a node reads ahead for a fetched version, in percent of its memory",
    },
    SettingSpec {
        setting: Setting::TracesEndpoint,
        name: "traces-endpoint",
        redis_name: None,
        default: 0,
        min: 0,
        max: 0,
        summary: "where spans are sent: the URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318; empty for none",
    },
    SettingSpec {
        setting: Setting::TracesSample,
        name: "traces-sample",
        redis_name: None,
        default: WHOLE_SHARE / 1000,
        min: 0,
        max: WHOLE_SHARE,
        summary: "the share of requests that are traced, from 0 to 1, where there is a collector",
    },
];

impl SettingSpec {
    /// Its name, then its name in Redis.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.redis_name)
    }

    pub(crate) fn invalid(&self, value: &str) -> SettingError {
        if self.setting == Setting::TracesSample {
            let value = value.into();
            return SettingError::Share { name: self.name, value };
        }
        SettingError::Invalid {
            name: self.name,
            value: value.into(),
            min: self.min,
            max: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_at_its_own_index() {
        for (at, spec) in SETTINGS.iter().enumerate() {
            assert_eq!(spec.setting as usize, at);
            assert!((spec.min..=spec.max).contains(&spec.default), "{}", spec.name);
        }
    }
}
