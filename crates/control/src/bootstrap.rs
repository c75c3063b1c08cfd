//! How a cluster comes to be: the first controller that finds none makes its record, by its configuration;
//! a cluster of one makes its own, and checks at each start that it is still the one that was made.
//!
//! Each founding has an identity of its own, so that data of a cluster whose entries were lost never passes for that of
//! the next one. A process that has seen a cluster founds none: its mirror goes on with the one that it saw.

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
    /// The directory that was made for so many partitions, where that must not change unseen.
    demanded: Option<(PathBuf, PartitionCount)>,
}

impl Bootstrap {
    /// The part of a configuration for it.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            partitions: config.partitions,
            cluster: config.cluster.clone(),
            demanded: (config.role == Role::Single).then(|| (config.data_dir.clone(), config.partitions)),
        }
    }

    /// Makes the cluster if there is none, and checks the one that there is. To be called with a view that
    /// comes from the coordination service.
    ///
    /// # Errors
    /// The record cannot be written, or the cluster is another one than demanded.
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
