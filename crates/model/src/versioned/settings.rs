//! An operator's settings of a versioned store: how many replicas must answer and acknowledge, where writes for absent
//! replicas are kept, and how values are stored.

use super::resolution::Resolution;
use crate::store_option::store_options;
use crate::word::words;

/// How many of N owners must be read to see every write that W of them have acknowledged: N - W + 1, so that fewer than
/// W are left out, but at least one.
pub fn owners_to_read(owners: usize, writes: usize) -> usize {
    (owners + 1).saturating_sub(writes).max(1)
}

store_options! {
    /// The settings of a versioned store. Of its N replicas, R must answer a read, and W must have a write before it is
    /// acknowledged. With R + W > N, and without a sloppy quorum, a read sees every write that was acknowledged before it.
    #[derive(Copy)]
    #[serde(deny_unknown_fields)]
    record VersionedSettings {}

    /// The options of a new versioned store, or a change of one. Missing options have their default, or stay.
    #[derive(Copy)]
    change VersionedChange "versioned." {}

    /// How many replicas must answer a read (R); a majority by default.
    "reads" reads: u32, OptionValue::count_from(1), [Versioned];

    /// How many replicas must acknowledge a write (W); a majority by default.
    "writes" writes: u32, OptionValue::count_from(1), [Versioned];

    /// How many replicas are asked at first: R, the default, or more.
    "preferred-reads" preferred_reads: u32, OptionValue::count_from(1), [Versioned];

    /// How many replicas a write waits for briefly once W have it: W, the default, or more.
    "preferred-writes" preferred_writes: u32, OptionValue::count_from(1), [Versioned];

    /// Which node keeps a hint for a replica that is absent: none, consistent, the default, any or proximity.
    "handoff" handoff: Handoff, Word("HANDOFF", Handoff::WORDS), [Versioned];

    /// Whether a hint on a node that is not a replica counts as a replica's acknowledgement of a write.
    "sloppy" sloppy: bool, Bool, [Versioned];

    /// In how many other zones than the coordinator's a replica must answer a read.
    "zone-reads" zone_reads: u32, OptionValue::count_from(0), [Versioned];

    /// In how many other zones than the coordinator's a replica must acknowledge a write.
    "zone-writes" zone_writes: u32, OptionValue::count_from(0), [Versioned];

    /// The storage engine of replicas: log, the default, disk, memory, cache or mysql; the events of a hybrid store are in log or disk.
    "engine" engine: EngineKind, Word("ENGINE", EngineKind::WORDS), [Versioned] => fixed;

    /// The failures that an acknowledged write survives: log, the default, a crash of the process; fsync, a power failure.
    "durability" durability: Durability, Word("DURABILITY", Durability::WORDS), [Versioned];

    /// How GET resolves concurrent values: latest, the default, all, set, counter or fields.
    "resolution" resolution: Resolution, Word("RESOLUTION", Resolution::WORDS), [Versioned];

    /// How long a value lives if its writer sets no expiry; 0, the default, is for ever. It applies to values that are written
    /// from then on; in a hybrid store to events and pushed records of versions that are pushed from then on.
    "ttl" ttl_ms: Option<u64> [serde(default)], Time(1, VersionedSettings::TIME_MS_MAX), [Versioned] or "0";

    /// How long a tombstone is kept; 10days by default. A node that was away for longer may bring back deleted values, unless it
    /// is given all data again.
    "tombstone-grace" tombstone_grace_ms: u64,
    Time(VersionedSettings::TOMBSTONE_GRACE_MS_MIN, VersionedSettings::TIME_MS_MAX), [Versioned];

    /// How many keys per second may be written through all routers, and to all nodes; 0, the default, is no limit. Of a hybrid
    /// store, how many records of the topic are read per second.
    "write-keys-per-second" write_keys_per_second: Option<u64> [serde(default)], Count(1, u64::MAX), [Versioned] or "0";
}

words! {
    /// The nodes that keep a write for an absent replica, as a hint, and deliver it later.
    Handoff "handoff":
    /// No node: the replica gets the write by anti-entropy.
    None = "none",
    /// Always the same nodes for one absent replica: those that follow it by number.
    #[default]
    Consistent = "consistent",
    /// Any nodes, different ones for each key, so that all share the work.
    Any = "any",
    /// Nodes near the coordinator: of its zone, then of others.
    Proximity = "proximity",
}

words! {
    /// Where replicas keep the records of a store.
    EngineKind "engine":
    /// In a log-structured tree on the node's disk.
    Disk = "disk",
    /// In a log on the node's disk, with all keys in memory.
    #[default]
    Log = "log",
    /// In memory: a restarted node gets its records from others.
    Memory = "memory",
    /// In a bounded cache, which evicts records.
    Cache = "cache",
    /// In a MySQL database.
    Mysql = "mysql",
}

impl EngineKind {
    /// Whether its data ends with the process that holds it.
    pub fn is_volatile(self) -> bool {
        matches!(self, Self::Memory | Self::Cache)
    }
}

words! {
    /// The failures that an acknowledged write survives, on each replica that counts.
    Durability "durability":
    /// The end of the process: the write is in the operating system's copy of the log.
    #[default]
    Log = "log",
    /// The loss of power: the write is on the disk. Concurrent writes share one fsync.
    Fsync = "fsync",
}

/// Why settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// More replicas would have to answer than exist, or none.
    #[error("{what} {given}: use 1 to {replicas}, as there are {replicas} replicas")]
    Quorum {
        /// The setting.
        what: &'static str,
        /// The given number.
        given: u32,
        /// How many replicas there are.
        replicas: u32,
    },
    /// Fewer replicas would be asked than must answer.
    #[error("{what} {given}: use {required} to {replicas}, not fewer than must answer")]
    Preferred {
        /// The setting.
        what: &'static str,
        /// The given number.
        given: u32,
        /// How many must answer.
        required: u32,
        /// How many replicas there are.
        replicas: u32,
    },
    /// More other zones would have to answer than exist, or than can have a replica.
    #[error("{what} {given}: use 0 to {most}, as many as there are other zones with replicas")]
    Zones {
        /// The setting.
        what: &'static str,
        /// The given number.
        given: u32,
        /// The highest possible number.
        most: u32,
    },
    /// Hints would count, but there is no handoff.
    #[error(
        "a sloppy quorum counts hints, and the handoff is \"none\": use consistent, any or proximity, or no sloppy quorum"
    )]
    SloppyWithoutHints,
    /// A time is out of range.
    #[error("{what} {given_ms} ms: use {least_ms} to {most_ms}")]
    Time {
        /// The setting.
        what: &'static str,
        /// The given time, in milliseconds.
        given_ms: u64,
        /// The minimum, in milliseconds.
        least_ms: u64,
        /// The maximum, in milliseconds.
        most_ms: u64,
    },
    /// A quota of zero.
    #[error("the limit of keys written a second is 0: allow 1 or more, or leave out the limit")]
    NoWrites,
}

impl VersionedSettings {
    /// How long tombstones are kept by default: ten days.
    pub const TOMBSTONE_GRACE_MS_DEFAULT: u64 = 10 * 24 * 3600 * 1000;
    /// The shortest time that tombstones can be kept: a second.
    pub const TOMBSTONE_GRACE_MS_MIN: u64 = 1000;
    /// The longest time to live, and the longest time that tombstones can be kept: a hundred years.
    pub const TIME_MS_MAX: u64 = 100 * 365 * 24 * 3600 * 1000;

    /// The defaults for a store with this number of replicas: reads and writes need a majority.
    pub fn of(replicas: u32) -> Self {
        let majority = replicas / 2 + 1;
        Self {
            reads: majority,
            writes: majority,
            preferred_reads: majority,
            preferred_writes: majority,
            handoff: Handoff::default(),
            sloppy: false,
            zone_reads: 0,
            zone_writes: 0,
            engine: EngineKind::default(),
            durability: Durability::default(),
            resolution: Resolution::default(),
            ttl_ms: None,
            tombstone_grace_ms: Self::TOMBSTONE_GRACE_MS_DEFAULT,
            write_keys_per_second: None,
        }
    }

    /// These settings, changed. Preferred numbers follow the required ones, unless they were set separately.
    #[must_use]
    pub fn with(self, change: &VersionedChange) -> Self {
        let mut next = self;
        next.apply(change);
        if change.preferred_reads.is_none() && self.preferred_reads == self.reads {
            next.preferred_reads = next.reads;
        }
        if change.preferred_writes.is_none() && self.preferred_writes == self.writes {
            next.preferred_writes = next.writes;
        }
        next
    }

    /// Checks that a store with this number of replicas, in a cluster with nodes in this number of zones, can have these settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self, replicas: u32, zones: u32) -> Result<(), SettingsError> {
        for (what, given) in [("reads", self.reads), ("writes", self.writes)] {
            if !(1..=replicas).contains(&given) {
                return Err(SettingsError::Quorum { what, given, replicas });
            }
        }
        for (what, given, required) in [
            ("preferred reads", self.preferred_reads, self.reads),
            ("preferred writes", self.preferred_writes, self.writes),
        ] {
            if !(required..=replicas).contains(&given) {
                return Err(SettingsError::Preferred {
                    what,
                    given,
                    required,
                    replicas,
                });
            }
        }
        let most = replicas.min(zones).saturating_sub(1);
        for (what, given) in [("zone reads", self.zone_reads), ("zone writes", self.zone_writes)] {
            if given > most {
                return Err(SettingsError::Zones { what, given, most });
            }
        }
        if self.sloppy && self.handoff == Handoff::None {
            return Err(SettingsError::SloppyWithoutHints);
        }
        let least_ms = Self::TOMBSTONE_GRACE_MS_MIN;
        for (what, given_ms, least_ms) in [
            ("time to live", self.ttl_ms.unwrap_or(1), 1),
            ("grace of tombstones", self.tombstone_grace_ms, least_ms),
        ] {
            if !(least_ms..=Self::TIME_MS_MAX).contains(&given_ms) {
                return Err(SettingsError::Time {
                    what,
                    given_ms,
                    least_ms,
                    most_ms: Self::TIME_MS_MAX,
                });
            }
        }
        match self.write_keys_per_second {
            Some(0) => Err(SettingsError::NoWrites),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_reads_and_writes_by_default() {
        for (replicas, majority) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            let settings = VersionedSettings::of(replicas);
            assert_eq!((settings.reads, settings.writes), (majority, majority));
            assert!(settings.reads + settings.writes > replicas);
            assert_eq!(settings.check(replicas, 1), Ok(()));
        }
    }

    #[test]
    fn preferred_numbers_follow_required_ones_until_set_separately() {
        let settings = VersionedSettings::of(3).with(&VersionedChange {
            reads: Some(1),
            preferred_writes: Some(3),
            ..VersionedChange::default()
        });
        assert_eq!((settings.reads, settings.preferred_reads), (1, 1));
        assert_eq!((settings.writes, settings.preferred_writes), (2, 3));
        let settings = settings.with(&VersionedChange {
            writes: Some(1),
            ..VersionedChange::default()
        });
        assert_eq!((settings.writes, settings.preferred_writes), (1, 3));
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        type Spoil = fn(&mut VersionedSettings);
        let spoil: [(Spoil, &str); 12] = [
            (|settings| settings.reads = 0, "reads 0"),
            (|settings| settings.reads = 4, "reads 4"),
            (|settings| settings.writes = 0, "writes 0"),
            (|settings| settings.writes = 4, "writes 4"),
            (|settings| settings.preferred_reads = 1, "preferred reads 1"),
            (|settings| settings.preferred_writes = 4, "preferred writes 4"),
            (|settings| settings.zone_reads = 2, "zone reads 2"),
            (|settings| settings.zone_writes = 2, "zone writes 2"),
            (
                |settings| {
                    settings.sloppy = true;
                    settings.handoff = Handoff::None;
                },
                "sloppy",
            ),
            (|settings| settings.ttl_ms = Some(0), "time to live 0"),
            (|settings| settings.tombstone_grace_ms = 999, "grace of tombstones 999"),
            (|settings| settings.write_keys_per_second = Some(0), "second is 0"),
        ];
        for (spoil, expected) in spoil {
            let mut settings = VersionedSettings::of(3);
            spoil(&mut settings);
            let error = settings.check(3, 2).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut settings = VersionedSettings::of(3);
        (settings.zone_reads, settings.zone_writes) = (1, 1);
        assert_eq!(settings.check(3, 2), Ok(()));
    }

    #[test]
    fn words_are_parsed_as_they_are_written() {
        for &handoff in Handoff::ALL {
            assert_eq!(handoff.to_string().parse(), Ok(handoff));
            assert_eq!(
                serde_json::to_string(&handoff).unwrap(),
                format!("{:?}", handoff.as_str())
            );
        }
        for &resolution in Resolution::ALL {
            assert_eq!(resolution.to_string().parse(), Ok(resolution));
        }
        let error = "disc".parse::<EngineKind>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid engine \"disc\": use one of disk, log, memory, cache, mysql"
        );
    }

    #[test]
    fn settings_are_parsed_as_they_are_stored() {
        let settings = VersionedSettings::of(3).with(&VersionedChange {
            ttl_ms: Some(Some(5)),
            resolution: Some(Resolution::Counter),
            ..VersionedChange::default()
        });
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<VersionedSettings>(&text).unwrap(), settings);
    }
}
