//! How a cluster is made: the first controller that finds none writes its record from its configuration. A cluster of
//! one makes its own, and checks at each start that it is still the same.
//!
//! Each new cluster has an identity of its own, so that data of a cluster whose entries were lost never passes for data
//! of the next one. A process that has seen a cluster makes none: its mirror goes on with the one that it saw.

use std::path::PathBuf;

use fondaco_coordination::{Coordination, CoordinationError};
use fondaco_model::PartitionCount;
use fondaco_model::cluster::{ClusterRecord, RecordPath};

use crate::agent::new_identity;
use crate::config::{ClusterConfig, Config, Role};
use crate::error::ControlError;
use crate::layout;
use crate::mirror::Mirror;

/// How a process makes a cluster, and what it requires of one.
#[derive(Debug, Clone)]
pub(crate) struct Bootstrap {
    partitions: PartitionCount,
    cluster: ClusterConfig,
    /// The directory that was made for so many partitions, where that number must not change unnoticed.
    demanded: Option<(PathBuf, PartitionCount)>,
}

impl Bootstrap {
    /// The part of a configuration that it needs.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            partitions: config.partitions,
            cluster: config.cluster.clone(),
            demanded: (config.role == Role::Single).then(|| (config.data_dir.clone(), config.partitions)),
        }
    }

    /// Creates the cluster if it does not exist, and checks an existing one. To be called with a view that comes from the
    /// coordination service.
    ///
    /// # Errors
    /// The record cannot be written, or the cluster differs from the demanded one.
    pub(crate) fn found(&self, coordination: &dyn Coordination, mirror: &Mirror) -> Result<(), ControlError> {
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
            let bytes = serde_json::to_vec(&record).map_err(|error| ControlError::InvalidMetadata {
                entry: path.to_string(),
                reason: error.to_string(),
            })?;
            match coordination.write(&path, &bytes, None) {
                Ok(_) => tracing::info!(identity = %record.identity, "made the cluster"),
                // Another process was first.
                Err(CoordinationError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            mirror.refresh(coordination, &[path])?;
        }
        match (&mirror.view().cluster, &self.demanded) {
            (Some(cluster), Some((path, partitions))) if cluster.partitions != *partitions => {
                Err(ControlError::PartitionsChanged {
                    path: path.clone(),
                    found: cluster.partitions.get(),
                    configured: partitions.get(),
                })
            }
            _ => Ok(()),
        }
    }
}
