//! The numbers that make a quorum of a versioned store: N, R and W. They change together, as the routing table says.

use serde::{Deserialize, Serialize};

use super::settings::VersionedSettings;

/// How many replicas a versioned store has, and how many of them must answer. Stored as the list of these numbers, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[u32; 7]")]
pub struct Quorums {
    /// N: how many nodes hold each partition.
    pub replicas: u32,
    /// See [`VersionedSettings::reads`].
    pub reads: u32,
    /// See [`VersionedSettings::writes`].
    pub writes: u32,
    /// See [`VersionedSettings::preferred_reads`].
    pub preferred_reads: u32,
    /// See [`VersionedSettings::preferred_writes`].
    pub preferred_writes: u32,
    /// See [`VersionedSettings::zone_reads`].
    pub zone_reads: u32,
    /// See [`VersionedSettings::zone_writes`].
    pub zone_writes: u32,
}

impl Quorums {
    /// Whether each read sees every write that was acknowledged before.
    pub fn overlap(&self) -> bool {
        self.reads + self.writes > self.replicas
    }

    /// Whether reads at these quorums also see every write that was acknowledged at the former ones, although the nodes that have
    /// both may lack as many writes as before.
    pub fn follow(&self, former: &Self) -> bool {
        self.reads + former.writes > former.replicas
    }
}

impl From<Quorums> for [u32; 7] {
    fn from(quorums: Quorums) -> Self {
        [
            quorums.replicas,
            quorums.reads,
            quorums.writes,
            quorums.preferred_reads,
            quorums.preferred_writes,
            quorums.zone_reads,
            quorums.zone_writes,
        ]
    }
}

impl VersionedSettings {
    /// The quorums of a store with this number of replicas.
    pub fn quorums(&self, replicas: u32) -> Quorums {
        Quorums {
            replicas,
            reads: self.reads,
            writes: self.writes,
            preferred_reads: self.preferred_reads,
            preferred_writes: self.preferred_writes,
            zone_reads: self.zone_reads,
            zone_writes: self.zone_writes,
        }
    }

    /// These settings with other quorums.
    #[must_use]
    pub fn with_quorums(self, quorums: &Quorums) -> Self {
        Self {
            reads: quorums.reads,
            writes: quorums.writes,
            preferred_reads: quorums.preferred_reads,
            preferred_writes: quorums.preferred_writes,
            zone_reads: quorums.zone_reads,
            zone_writes: quorums.zone_writes,
            ..self
        }
    }

    /// The change that keeps majorities of `before` replicas majorities of `after`: of reads, of writes, or of both.
    pub fn follow_replicas(&self, before: u32, after: u32) -> super::VersionedChange {
        let majority = |replicas: u32| replicas / 2 + 1;
        let follow = |number: u32| (number == majority(before)).then_some(majority(after));
        super::VersionedChange {
            reads: follow(self.reads),
            writes: follow(self.writes),
            ..super::VersionedChange::default()
        }
    }
}
