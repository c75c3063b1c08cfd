//! A storage node: it opens versions, serves them over the Redis protocol, and fetches new ones.
//!
//! - `server`: the event loops, one a core, and the commands;
//! - `forward`: look-ups of keys that other nodes hold, and a router's cache of hot keys;
//! - `changes`: the changes of stores, for clients that follow them;
//! - `compute`: threads for work that computes for long;
//! - `graph`: queries of graphs, and a cache of networks.
//!
//! It decides nothing: the control plane decides which stores exist and which version is current, and publishes a
//! [`Catalog`] (see `fondaco_catalog`).

mod changes;
mod compute;
mod forward;
mod graph;
mod server;
mod single_value;

pub use changes::{ChangeReader, ChangesWanted, FollowedChange};
pub use fondaco_catalog::{
    Access, Catalog, Member, Membership, Password, PasswordDigest, PeerAccess, SETTINGS, Serving, ServingStore,
    Setting, SettingError, SettingKind, SettingSpec, SettingValue, Settings, SharedAccess, SharedCatalog, StoreId,
    User, hash_password,
};
pub use fondaco_metrics::{COUNTERS, Counter, Load, Loads, NodeMetrics};
pub use graph::GraphQueries;
pub use server::{BufferBudget, Listening, Server, ServerConfig, ServerError};
