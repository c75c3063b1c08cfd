//! The error when a quorum is not reached: the required and the actual numbers, and which replicas are missing for what
//! reason.

use std::fmt;
use std::sync::Arc;

use fondaco_model::NodeId;
use fondaco_protocol::replica::{ReplicaError, ReplicaErrorCode};
use smallvec::SmallVec;

use crate::error::ClientError;
use crate::read::{Directory, Failure, Member};

/// Fewer replicas answered or took the write than the settings of the store require.
///
/// A failed write may nevertheless be on some replicas, and spread to the others: it may be read from then on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoQuorum {
    /// The action required of replicas.
    pub part: QuorumPart,
    /// The known outcome of the failed write; `None` if a read failed.
    pub of_write: Option<WriteFate>,
    /// How many replicas did it, or had been asked and could still do it when the operation failed: it fails as soon as
    /// even these are not enough.
    pub had: u32,
    /// How many replicas were required.
    pub required: u32,
    /// The number of other zones that these replicas are in.
    pub zones_had: u32,
    /// The number of other zones that were required.
    pub zones_required: u32,
    /// The names of other zones in which no replica did it.
    pub zones_missing: Vec<Arc<str>>,
    /// The replicas that did not do it.
    pub missing: Vec<MissingReplica>,
}

/// The outcome of a write without a quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFate {
    /// No replica has it.
    NotDone,
    /// Replicas have it, or may have it: it may be read later.
    Unknown,
}

/// The action required of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuorumPart {
    /// Answer with their records.
    Reads,
    /// Accept a write.
    Writes,
}

/// A replica that did not answer, or did not take the write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingReplica {
    /// The node.
    pub node: NodeId,
    /// Its RESP address, if known.
    pub address: Option<Arc<str>>,
    /// The reason, as the end of a sentence that begins with the node.
    pub why: Arc<str>,
}

impl NoQuorum {
    /// The same of the read that a write begins with.
    pub(super) fn before_a_write(&self) -> Self {
        Self {
            of_write: Some(WriteFate::NotDone),
            ..self.clone()
        }
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match (self.part, self.of_write) {
            (QuorumPart::Reads, None) => "reads",
            (QuorumPart::Reads, Some(_)) => "reads that writes begin with",
            (QuorumPart::Writes, _) => "writes",
        };
        write!(f, "{} of {} {part}", self.had, self.required)?;
        if self.zones_required > 0 {
            write!(f, " and {} of {} other zones", self.zones_had, self.zones_required)?;
        }
        if self.zones_had < self.zones_required {
            f.write_str(" (none in ")?;
            for (place, zone) in self.zones_missing.iter().enumerate() {
                write!(f, "{}{zone:?}", if place == 0 { "" } else { ", " })?;
            }
            f.write_str(if self.zones_missing.is_empty() {
                "others: no replica is there)"
            } else {
                ")"
            })?;
        }
        for (place, MissingReplica { node, address, why }) in self.missing.iter().enumerate() {
            f.write_str(if place == 0 { ": " } else { ", " })?;
            match address {
                Some(address) => write!(f, "node {node} ({address}) {why}")?,
                None => write!(f, "node {node} {why}")?,
            }
        }
        if self.missing.is_empty() {
            f.write_str(": the partition has too few replicas")?;
        }
        f.write_str(match self.of_write {
            None => "",
            Some(WriteFate::NotDone) => "; nothing was written",
            Some(WriteFate::Unknown) => "; it may have been written to some, and be read later",
        })
    }
}

/// The last known failure of each node.
#[derive(Debug, Default)]
pub(super) struct ReplicaFailures {
    list: SmallVec<[(NodeId, ReplicaFailure); 2]>,
}

/// Why a node is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplicaFailure {
    /// It took longer than a request may.
    TimedOut,
    /// It was not expected to answer, and not asked.
    NotThere,
    /// It is healthy, but was not asked.
    NotAsked,
    /// The request failed without an answer.
    Failure(Failure),
    /// It answered this error.
    Error(ReplicaError),
    /// Its answer does not fit the request.
    Nonsense,
    /// Its answer is not a valid record.
    Unreadable,
    /// It should have replaced a failed node, but the retry budget was used up.
    NoBudget,
}

impl ReplicaFailure {
    /// Whether the topology is old, or the node is: a newer topology may help.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(
            self,
            Self::Error(ReplicaError {
                code: ReplicaErrorCode::NotHere | ReplicaErrorCode::NoStore | ReplicaErrorCode::OldTable,
                ..
            })
        )
    }

    /// Whether the node has to catch up first: others are asked instead, and its health is not affected.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self, Self::Error(error) if error.code == ReplicaErrorCode::Behind)
    }

    /// Whether the node cannot store a write, for a reason that concerns only this node.
    pub(super) fn is_unable(&self) -> bool {
        use ReplicaErrorCode::{Corrupt, DiskFull, KeysFull};
        matches!(self, Self::Error(error) if matches!(error.code, DiskFull | KeysFull | Corrupt))
    }

    /// Whether the node is a replica all the same, and would accept the request under a newer topology.
    pub(super) fn is_old_table(&self) -> bool {
        matches!(self, Self::Error(error) if error.code == ReplicaErrorCode::OldTable)
    }

    /// Whether no other node is asked instead: it would refuse as well, or would bear the cost of this one.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Error(ReplicaError {
                code: ReplicaErrorCode::Refused | ReplicaErrorCode::BadKey | ReplicaErrorCode::Quota,
                ..
            })
        )
    }

    /// Whether the node may have carried out the request nevertheless.
    pub(super) fn is_ambiguous(&self) -> bool {
        match self {
            Self::TimedOut | Self::Nonsense | Self::Unreadable => true,
            Self::Failure(failure) => matches!(failure, Failure::Lost(_)),
            Self::Error(error) => matches!(error.code, ReplicaErrorCode::Timeout | ReplicaErrorCode::Other),
            Self::NotThere | Self::NotAsked | Self::NoBudget => false,
        }
    }

    /// Whether the stored record is not the one that the writer has seen.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Error(error) if error.code == ReplicaErrorCode::Conflict)
    }

    /// The end of a sentence that begins with the node's name.
    pub(super) fn words(&self) -> Arc<str> {
        match self {
            Self::TimedOut => "timed out".into(),
            Self::NotThere => "is absent".into(),
            Self::NotAsked => "was not asked".into(),
            Self::Failure(Failure::Unsent(reason) | Failure::Lost(reason)) => {
                format!("cannot be reached ({reason})").into()
            }
            Self::Failure(Failure::Full { in_flight }) => format!("has {in_flight} requests in flight").into(),
            Self::Error(error) => format!("said {:?}", error.to_string()).into(),
            Self::Nonsense => "sent an answer that does not fit the request".into(),
            Self::Unreadable => "sent a record that cannot be read".into(),
            Self::NoBudget => "was not asked: too many requests fail, the retry budget is used up".into(),
        }
    }
}

impl ReplicaFailures {
    /// Records a failure of a node.
    pub(super) fn add(&mut self, node: NodeId, failure: ReplicaFailure) {
        match self.list.iter_mut().find(|(known, _)| *known == node) {
            Some((_, known)) => *known = failure,
            None => self.list.push((node, failure)),
        }
    }

    /// Forgets all failures: the nodes are asked again.
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    /// The nodes whose record cannot be read.
    pub(super) fn damaged(&self) -> impl Iterator<Item = NodeId> {
        let is_damaged = |failure: &ReplicaFailure| match failure {
            ReplicaFailure::Unreadable => true,
            ReplicaFailure::Error(error) => error.code == ReplicaErrorCode::Corrupt,
            _ => false,
        };
        let damaged = self.list.iter().filter(move |(_, failure)| is_damaged(failure));
        damaged.map(|(node, _)| *node)
    }

    /// The message of a refusal, if there was one.
    pub(super) fn refusal(&self) -> Option<ClientError> {
        let (node, failure) = self.list.iter().find(|(_, failure)| failure.is_refusal())?;
        match failure {
            ReplicaFailure::Error(error) => Some(ClientError::Refused {
                node: *node,
                message: error.to_string().into(),
            }),
            _ => None,
        }
    }

    /// Why these nodes are missing. A node without a recorded failure has timed out if it is in `asked`; otherwise it
    /// was not asked, or is down.
    pub(super) fn missing(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        asked: impl Fn(NodeId) -> bool,
        directory: &Directory,
    ) -> Vec<MissingReplica> {
        let missing = |node: NodeId| {
            let known = self.list.iter().find(|(known, _)| *known == node);
            let why = match known {
                Some((_, failure)) => failure.words(),
                None if asked(node) => ReplicaFailure::TimedOut.words(),
                None if directory.member(node).is_some_and(Member::is_well) => ReplicaFailure::NotAsked.words(),
                None => ReplicaFailure::NotThere.words(),
            };
            MissingReplica {
                node,
                address: directory.member(node).map(|member| Arc::clone(&member.address)),
                why,
            }
        };
        nodes.map(missing).collect()
    }
}
