//! When and where delivery is retried for nodes whose hints could not all be delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_protocol::replica::ReplicaError;

use crate::store::Holding;
use crate::table_key::StoreIdentity;

/// The first delay before a refused delivery is retried; it doubles each time.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// How long the hints for an absent node are left alone while nothing else changes: some may have to go elsewhere,
/// since the coordinator that left them did not know the newest table.
const AWAY: Duration = Duration::from_secs(600);

/// Why not all hints for a node were delivered.
#[derive(Debug)]
pub(crate) enum Undelivered {
    /// They wait for absent nodes.
    Away,
    /// A node did not answer, or refused them.
    Failed(ReplicaError),
}

impl From<ReplicaError> for Undelivered {
    fn from(error: ReplicaError) -> Self {
        Self::Failed(error)
    }
}

/// The cluster state that decides where hints go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    epoch: u64,
    nodes: BTreeMap<NodeId, bool>,
    stores: BTreeSet<StoreIdentity>,
    is_remembered: bool,
}

impl Known {
    pub(crate) fn of(holding: &Holding) -> Self {
        let cluster = holding.cluster.as_ref();
        cluster.map_or_else(Self::default, |cluster| Self {
            epoch: cluster.table.epoch(),
            nodes: cluster.nodes.clone(),
            stores: cluster.stores.clone(),
            is_remembered: cluster.is_remembered,
        })
    }
}

/// The nodes whose hints could not all be delivered.
#[derive(Default)]
pub(crate) struct Troubles(BTreeMap<NodeId, Trouble>);

struct Trouble {
    again: Instant,
    wait: Duration,
    /// The cluster state at that time: once it changes, delivery is retried at once.
    known: Known,
    /// The key in the table of hints to begin at.
    from: Option<Bytes>,
}

impl Troubles {
    /// Whether delivery to a node may be tried at this time.
    pub(crate) fn is_due(&self, node: NodeId, known: &Known, now: Instant) -> bool {
        let trouble = self.0.get(&node);
        trouble.is_none_or(|trouble| trouble.again <= now || trouble.known != *known)
    }

    /// Where to begin.
    pub(crate) fn from(&self, node: NodeId) -> Option<Bytes> {
        self.0.get(&node).and_then(|trouble| trouble.from.clone())
    }

    /// All hints for a node were delivered.
    pub(crate) fn is_over(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// Some were not; next time it begins at `from`.
    pub(crate) fn add(&mut self, node: NodeId, why: &Undelivered, known: Known, from: Option<Bytes>, now: Instant) {
        let before = self.0.get(&node).filter(|trouble| trouble.known == known);
        let wait = match (why, before) {
            (Undelivered::Away, _) => AWAY,
            (Undelivered::Failed(_), Some(before)) => (2 * before.wait).min(RETRY_MAX),
            (Undelivered::Failed(_), None) => RETRY_MIN,
        };
        let again = now + wait;
        let trouble = Trouble {
            again,
            wait,
            known,
            from,
        };
        self.0.insert(node, trouble);
    }
}

#[cfg(test)]
mod tests {
    use fondaco_protocol::replica::ReplicaErrorCode;

    use super::*;

    fn known(epoch: u64) -> Known {
        Known {
            epoch,
            ..Known::default()
        }
    }

    #[test]
    fn retries_back_off_until_the_cluster_changes() {
        let (mut troubles, node, mut now) = (Troubles::default(), NodeId::FIRST, Instant::now());
        let failed = Undelivered::Failed(ReplicaError::new(ReplicaErrorCode::Timeout, "late"));
        for wait_s in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(troubles.is_due(node, &known(1), now));
            troubles.add(node, &failed, known(1), None, now);
            assert!(!troubles.is_due(node, &known(1), now + Duration::from_millis(1000 * wait_s - 1)));
            now += Duration::from_secs(wait_s);
        }
        troubles.add(node, &failed, known(1), Some("here".into()), now);
        assert!(troubles.is_due(node, &known(2), now));
        assert_eq!(troubles.from(node), Some("here".into()));
        troubles.add(node, &failed, known(2), None, now);
        assert!(troubles.is_due(node, &known(2), now + RETRY_MIN));
        troubles.is_over(node);
        assert!(troubles.is_due(node, &known(2), now));
    }

    #[test]
    fn hints_for_an_absent_node_are_rarely_scanned() {
        let (mut troubles, node, now) = (Troubles::default(), NodeId::FIRST, Instant::now());
        troubles.add(node, &Undelivered::Away, known(1), None, now);
        assert!(!troubles.is_due(node, &known(1), now + RETRY_MAX));
        assert!(troubles.is_due(node, &known(1), now + AWAY));
    }
}
