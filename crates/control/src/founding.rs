//! How a cluster comes to be: the first controller that finds none makes its record, by its configuration;
//! a cluster of one makes its own, and checks at each start that it is still the one that was made.

use std::path::PathBuf;

use fondaco_coordination::{Coordination, CoordinationError};
use fondaco_model::cluster::{ClusterRecord, RecordPath};
use fondaco_model::{Identity, PartitionCount};

use crate::agent::new_identity;
use crate::config::{Config, Role};
use crate::error::ControlError;
use crate::layout;
use crate::mirror::Mirror;

/// How a process would make a cluster, and what it demands of one.
#[derive(Debug, Clone)]
pub(crate) struct Founding {
    record: ClusterRecord,
    /// The directory that was made for so many partitions, where that must not change unseen.
    demanded: Option<(PathBuf, PartitionCount)>,
}

impl Founding {
    /// What a configuration says of it.
    pub(crate) fn of(config: &Config) -> Result<Self, ControlError> {
        let identity: Identity = new_identity()?;
        Ok(Self {
            record: ClusterRecord {
                identity,
                partitions: config.partitions,
                placement: config.cluster.placement,
                replicas: config.cluster.replicas,
                nodes_initial: config.cluster.nodes_initial,
            },
            demanded: (config.role == Role::Single).then(|| (config.data_dir.clone(), config.partitions)),
        })
    }

    /// Makes the cluster if there is none, and checks the one that there is. To be called with a view that
    /// comes from the coordination service.
    ///
    /// # Errors
    /// The record cannot be written, or the cluster is another one than demanded.
    pub(crate) fn found(&self, coordination: &dyn Coordination, mirror: &Mirror) -> Result<(), ControlError> {
        if mirror.view().cluster.is_none() {
            let path = layout::path(&RecordPath::Cluster)?;
            let bytes = serde_json::to_vec(&self.record).map_err(|error| ControlError::InvalidMetadata {
                entry: path.to_string(),
                reason: error.to_string(),
            })?;
            match coordination.write(&path, &bytes, None) {
                Ok(_) => tracing::info!(identity = %self.record.identity, "made the cluster"),
                // Somebody else was first.
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
