//! The control plane: every process of a cluster sees the cluster, and does its part.
//!
//! - `mirror`: the cluster as a process sees it, kept up to date by a watch;
//! - `peer_topology`: the topology of other servers, for requests while the coordination service does not answer;
//! - `agent`: a data node's work: fetching, opening, dropping and reporting, as the model decides;
//! - `uploads`: versions that are uploaded to a node over its control port, to be pushed from there;
//! - `controller`: the leader's work: node numbers, the routing table, pushes;
//! - `router`: a router's work, which is little;
//! - `operator`: requests of operators, carried out by whichever process receives them;
//! - `http`: the control port, and its OpenAPI document ([`http::document`]);
//! - `exposition`: metrics for Prometheus;
//! - [`Fondaco`]: one process with all parts of its role; [`Dev`]: a whole cluster in one process.
//!
//! The model decides; this crate observes, asks the model, and carries out its decisions. A single node is a cluster of
//! one, with the same code. This crate reads no values and serves no fast path: the crate `node` does.

mod access;
mod agent;
mod audit;
mod bootstrap;
mod change_signal;
mod changes;
mod command;
mod compaction;
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
mod load;
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
mod sources;
mod starting;
mod status;
mod tls;
mod traces;
mod uploads;
mod worker;

pub use config::{
    ClusterConfig, Config, Hook, KafkaConfig, MachinesConfig, MemberConfig, PeerConfig, Role, TlsConfig, UserConfig,
    VersionedConfig, ZooKeeperConfig,
};
pub use dev::{Dev, DevConfig};
pub use error::ControlError;
pub use fondaco_client::{refused_certificate, trusting};
pub use fondaco_fetch::agent_trusting;
pub use fondaco_protocol::{RequestKey, SIGNED_MS_MAX, SignedRequest, TIME_HEADER, now_unix_ms};
pub use layout::ENTRIES;
pub use process::raise_open_files_limit;
pub use running::Running;
pub use setting_changes::{SettingChanges, SettingText};
pub use starting::Fondaco;
