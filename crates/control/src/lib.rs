//! The control plane: every process of a cluster sees the cluster, and does its part.
//!
//! - `mirror`: the cluster as a process sees it, kept up to date by a watch;
//! - `peer_topology`: what other servers say of it while the coordination service says nothing;
//! - `agent`: a data node's work: fetching, opening, dropping and reporting what the model says;
//! - `uploads`: versions that are sent to a node over its control port, to be pushed from there;
//! - `controller`: the leader's work: numbers, the routing table, pushes;
//! - `router`: a router's work, which is little;
//! - `operator`: what operators ask for, written by whichever process they ask;
//! - `http`: the control port, and its OpenAPI document ([`http::document`]);
//! - `exposition`: metrics for Prometheus;
//! - [`Fondaco`]: all that a role needs, in one process; [`Dev`]: a whole cluster in one.
//!
//! Decisions are the model's; this looks, asks, and carries out. One node is a cluster of one, by the same
//! code. It reads no values and serves no fast path: that is the node's.

mod agent;
mod bootstrap;
mod change_signal;
mod changes;
mod config;
mod controller;
mod data_dir;
mod dev;
mod dev_file;
mod dev_handle;
mod error;
mod exposition;
pub mod http;
mod layout;
mod memory;
mod metered_coordination;
mod mirror;
mod operator;
mod peer_topology;
mod process;
mod push_check;
mod router;
mod running;
mod setting_changes;
mod settings;
mod starting;
mod status;
mod tls;
mod uploads;
mod worker;

pub use config::{
    ClusterConfig, Config, MemberConfig, PeerConfig, Role, TlsConfig, UserConfig, VersionedConfig, ZooKeeperConfig,
};
pub use dev::{Dev, DevConfig};
pub use error::ControlError;
pub use fondaco_client::trusting;
pub use fondaco_fetch::agent_trusting;
pub use fondaco_protocol::{RequestKey, SIGNED_MS_MAX, SignedRequest, TIME_HEADER, now_unix_ms};
pub use process::raise_open_files_limit;
pub use running::Running;
pub use setting_changes::SettingChanges;
pub use starting::Fondaco;
