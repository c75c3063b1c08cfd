//! The state that the mirror shows: a view of the cluster, and its source.

use std::sync::Arc;

use fondaco_api::SettingChanges;
use fondaco_model::cluster::{ClusterView, Revised};

/// The state seen at one moment.
#[derive(Clone, Default)]
pub struct Sighting {
    /// The cluster.
    pub view: Arc<ClusterView>,
    /// The changes of live settings that are stored for the cluster.
    pub settings: Option<Revised<SettingChanges>>,
    /// Where the view comes from.
    pub origin: Origin,
    /// Whether the coordination service answers and its entries continue the former view: then no other process knows
    /// more of the cluster.
    pub is_current: bool,
}

/// The source of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nothing was seen yet.
    #[default]
    Nothing,
    /// From an earlier process.
    Memory,
    /// From the coordination service.
    Service,
}
