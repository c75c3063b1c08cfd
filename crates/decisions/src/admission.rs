//! Whether a process may take part in a cluster as a node, and with which number.
//!
//! The node itself checks this against its view; the leading controller gives out numbers. A node that is refused must
//! serve nothing: its data belongs to another cluster, or another node has its number.

use fondaco_model::cluster::ClusterView;
use fondaco_model::{Identity, NodeId, protocol};

/// A node's own facts, from its data directory and its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Its identity.
    pub identity: Identity,
    /// The cluster that its data directory belongs to; `None` if it is new.
    pub cluster: Option<Identity>,
    /// The number that it was given before, or is configured to have.
    pub id: Option<NodeId>,
}

/// Why a process cannot take part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The data directory was made in another cluster.
    #[error(
        "the data directory belongs to cluster {remembered}, but this is cluster {found}: start with the \
         coordination service and root of that cluster, or with another data directory"
    )]
    OtherCluster {
        /// The cluster that the data directory remembers.
        remembered: Identity,
        /// The cluster in the coordination service.
        found: Identity,
    },
    /// The number belongs to another node.
    #[error(
        "node number {id} belongs to another node, {owner}: leave the number out of the configuration to be given \
         a free one, or start with the data directory of that node"
    )]
    NumberTaken {
        /// The number.
        id: NodeId,
        /// The node that has the number.
        owner: Identity,
    },
    /// The node has another number.
    #[error("this node has the number {id} for ever, not {claimed}: leave the number out of the configuration")]
    OtherNumber {
        /// The number that it remembers or is configured with.
        claimed: NodeId,
        /// The number that it has.
        id: NodeId,
    },
    /// The other members write entries that this process does not understand.
    #[error(
        "this program speaks protocol {own}, and the cluster uses protocol {in_force}, which all its members \
         speak: start a release that speaks it, such as that of the other members"
    )]
    OldProtocol {
        /// The highest protocol that this process speaks.
        own: u32,
        /// The protocol in force.
        in_force: u32,
    },
}

/// Checks that this process speaks the protocol in force. To be called before it becomes a member: from then on its own
/// number counts.
///
/// # Errors
/// [`AdmissionError::OldProtocol`]: the process must not take part.
pub fn check_protocol(view: &ClusterView) -> Result<(), AdmissionError> {
    match view.protocol() {
        in_force if in_force > protocol() => Err(AdmissionError::OldProtocol {
            own: protocol(),
            in_force,
        }),
        _ => Ok(()),
    }
}

impl Membership {
    /// The number of this node; `None` until the cluster has been made and the leading controller has assigned a
    /// number.
    ///
    /// # Errors
    /// The node must not take part.
    pub fn admission(&self, view: &ClusterView) -> Result<Option<NodeId>, AdmissionError> {
        let Some(cluster) = &view.cluster else {
            return Ok(None);
        };
        if let Some(remembered) = &self.cluster
            && *remembered != cluster.identity
        {
            return Err(AdmissionError::OtherCluster {
                remembered: remembered.clone(),
                found: cluster.identity.clone(),
            });
        }
        check_protocol(view)?;
        let owns = |id: &NodeId| {
            view.nodes
                .get(id)
                .is_some_and(|node| node.record.identity == self.identity)
        };
        if let Some(id) = self.id.filter(owns) {
            return Ok(Some(id));
        }
        let own = view
            .nodes
            .iter()
            .find(|(_, node)| node.record.identity == self.identity);
        match (own, self.id) {
            (Some((&id, _)), Some(claimed)) => Err(AdmissionError::OtherNumber { claimed, id }),
            (Some((&id, _)), None) => Ok(Some(id)),
            (None, Some(id)) => match view.nodes.get(&id) {
                Some(node) => Err(AdmissionError::NumberTaken {
                    id,
                    owner: node.record.identity.clone(),
                }),
                None => Ok(None),
            },
            (None, None) => Ok(None),
        }
    }
}
