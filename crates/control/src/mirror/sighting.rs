//! What the mirror shows: a view of the cluster, and where it comes from.

use std::sync::Arc;

use fondaco_model::cluster::{ClusterView, Revised};

use crate::setting_changes::SettingChanges;

/// The state seen at one moment.
#[derive(Clone, Default)]
pub(crate) struct Sighting {
    pub(crate) view: Arc<ClusterView>,
    pub(crate) settings: Option<Revised<SettingChanges>>,
    pub(crate) origin: Origin,
    /// Whether the coordination service answers and its entries continue the former view: then no other process knows
    /// more of the cluster.
    pub(crate) is_current: bool,
}

/// The source of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nothing was seen yet.
    #[default]
    Nothing,
    /// From an earlier process.
    Memory,
    /// From the coordination service.
    Service,
}
