//! How a cluster is made: the first controller that finds none writes its record from its configuration. A cluster of
//! one makes its own, and checks at each start that it is still the same.
//!
//! Each new cluster has an identity of its own, so that data of a cluster whose entries were lost never passes for data
//! of the next one. A process that has seen a cluster makes none: its mirror keeps the one that it saw.

use std::path::PathBuf;

use fondaco_coordination::{Coordination, CoordinationError};
use fondaco_decisions::RecordPath;
use fondaco_model::cluster::ClusterRecord;
use fondaco_model::{PartitionCount, Placement};

use crate::error::ClusterError;
use crate::identity::new_identity;
use crate::layout;
use crate::mirror::Mirror;

/// How a cluster is made. Once it is made, its record counts instead of this.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// How partitions get their nodes.
    pub placement: Placement,
    /// How many nodes a partition gets, 1 or more.
    pub replicas: u32,
    /// How many nodes must be there before the first routing table is made, 1 or more.
    pub nodes_initial: u32,
}

impl Default for ClusterConfig {
    /// One node that holds everything.
    fn default() -> Self {
        Self {
            placement: Placement::Ring,
            replicas: 1,
            nodes_initial: 1,
        }
    }
}

/// How a process makes a cluster, and what it requires of one.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// The number of partitions of a new cluster.
    pub partitions: PartitionCount,
    /// The other settings of a new cluster.
    pub cluster: ClusterConfig,
    /// The data directory of a cluster of one: the number of its partitions must not change unnoticed.
    pub directory: Option<PathBuf>,
}

impl Bootstrap {
    /// Creates the cluster if it does not exist, and checks an existing one. To be called with a view that comes from the
    /// coordination service.
    ///
    /// # Errors
    /// The record cannot be written, or the cluster differs from the demanded one.
    pub fn found(&self, coordination: &dyn Coordination, mirror: &Mirror) -> Result<(), ClusterError> {
        if mirror.view().cluster.is_none() {
            let path = layout::path(&RecordPath::Cluster)?;
            let record = ClusterRecord {
                identity: new_identity()?,
                partitions: self.partitions,
                placement: self.cluster.placement,
                replicas: self.cluster.replicas,
                nodes_initial: self.cluster.nodes_initial,
                adoptions: 0,
            };
            let bytes = serde_json::to_vec(&record).map_err(ClusterError::invalid_metadata(&path))?;
            match coordination.write(&path, &bytes, None) {
                Ok(_) => tracing::info!(identity = %record.identity, "made the cluster"),
                // Another process was first.
                Err(CoordinationError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            mirror.refresh(coordination, &[path])?;
        }
        match (&mirror.view().cluster, &self.directory) {
            (Some(cluster), Some(path)) if cluster.partitions != self.partitions => {
                Err(ClusterError::PartitionsChanged {
                    path: path.clone(),
                    found: cluster.partitions.get(),
                    configured: self.partitions.get(),
                })
            }
            _ => Ok(()),
        }
    }
}
