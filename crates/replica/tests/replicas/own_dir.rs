//! Clusters in a directory of their own, which ends with them.

use std::path::Path;
use std::sync::Arc;

use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::versioned::{EngineKind, VersionedSettings};
use fondaco_replica::ReplicaOptions;

use crate::cluster::{Cluster, settings_of};

impl Cluster {
    /// A cluster of this many nodes and partitions, in memory.
    pub fn in_memory(nodes: u32, partitions: u32, options: &ReplicaOptions) -> Self {
        Self::of(nodes, partitions, options, |_| Arc::new(MemoryEngine::new()))
    }

    /// The same, with a store that evicts.
    pub fn forgetting(nodes: u32, partitions: u32, options: &ReplicaOptions) -> Self {
        let settings = VersionedSettings {
            engine: EngineKind::Cache,
            ..settings_of(nodes)
        };
        let engine = |_: &Path| Arc::new(MemoryEngine::new()) as Arc<dyn Engine>;
        Self::in_own_dir(nodes, partitions, options, settings, engine)
    }

    /// A cluster with an engine for each node.
    pub fn of(
        nodes: u32,
        partitions: u32,
        options: &ReplicaOptions,
        engine: impl Fn(&Path) -> Arc<dyn Engine>,
    ) -> Self {
        Self::in_own_dir(nodes, partitions, options, settings_of(nodes), engine)
    }

    fn in_own_dir(
        nodes: u32,
        partitions: u32,
        options: &ReplicaOptions,
        settings: VersionedSettings,
        engine: impl Fn(&Path) -> Arc<dyn Engine>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = (dir.path().to_owned(), Some(Box::new(dir) as _));
        Self::with_settings(home, nodes, partitions, options, settings, engine)
    }
}
