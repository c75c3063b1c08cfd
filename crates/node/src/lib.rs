//! A storage node: it opens versions, serves them over the Redis protocol, and fetches new ones.
//!
//! - [`catalog`](Catalog): the stores that are served, replaced as a whole by a swap;
//! - `server`: the event loops, one a core, and the commands;
//! - [`Membership`]: the cluster that the node is in, published with the catalog;
//! - `forward`: look-ups of keys that other nodes hold, and a router's cache of hot keys;
//! - `cold`: reads from the disk, which must not delay other clients;
//! - `compute`: threads for work that computes for long;
//! - `graph`: what is asked of graphs, and a cache of networks;
//! - [`Settings`], which may change while it runs, and [`NodeMetrics`].
//!
//! It decides nothing: the control plane decides which stores exist and which version is current, and publishes a
//! [`Catalog`].

mod access;
mod catalog;
mod cold;
mod compute;
mod forward;
mod graph;
mod membership;
mod metrics;
mod priority;
mod server;
mod settings;
mod single_value;

pub use access::{Access, Password, PasswordDigest, PeerAccess, SharedAccess, User, hash_password};
pub use catalog::{Catalog, Serving, ServingStore, SharedCatalog, StoreId};
pub use graph::GraphQueries;
pub use membership::{Member, Membership};
pub use metrics::{COUNTERS, Counter, Load, Loads, NodeMetrics};
pub use server::{BufferBudget, Listening, Server, ServerConfig, ServerError};
pub use settings::{SETTINGS, Setting, SettingError, SettingKind, SettingSpec, SettingValue, Settings};
