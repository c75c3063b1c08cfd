//! What an operator says of a store.

use serde::{Deserialize, Serialize};

use crate::name::StoreName;

/// The kinds of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Immutable versions, pushed whole.
    Batch,
}

/// A store as its operator defined it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreDefinition {
    /// Its name.
    pub name: StoreName,
    /// Its kind.
    pub kind: StoreKind,
    /// How many versions besides the current one are kept for rollback.
    pub backups: u32,
}

impl StoreDefinition {
    /// How many backups a store keeps unless its operator says otherwise.
    pub const BACKUPS_DEFAULT: u32 = 1;
    /// The most backups that a store may keep.
    pub const BACKUPS_MAX: u32 = 100;
}
