//! The control plane: which stores there are, how new versions come, and the HTTP port over them.
//!
//! - [`coordination`](Coordination): where metadata lives, durable and conditional;
//! - [`Stores`]: the life of stores and versions: push, swap, rollback, retention, recovery;
//! - `http`: the control port, and its OpenAPI document ([`http::document`]);
//! - `exposition`: metrics for Prometheus;
//! - [`Fondaco`]: all of it and a storage node, in one process.
//!
//! It reads no values and serves no fast path: that is the node's. It tells the node what to serve, by
//! publishing a catalog.

mod config;
mod coordination;
mod data_dir;
mod error;
mod exposition;
pub mod http;
mod process;
mod running;
mod settings;
mod stores;
mod tuning;

pub use config::{Config, TlsConfig, UserConfig};
pub use coordination::{
    Coordination, CoordinationError, ENTRY_BYTES_MAX, EmbeddedCoordination, Entry, EntryPath, Revision,
};
pub use data_dir::DataDir;
pub use error::ControlError;
pub use running::{Fondaco, Running};
pub use settings::SettingChanges;
pub use stores::{
    DryRun, PUSHES_MAX, PushRecord, PushStatus, STORES_MAX, StoreStatus, Stores, StoresParts, VersionFacts,
    VersionStatus,
};
