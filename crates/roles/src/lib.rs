//! Processes of a cluster: each one is put together from the parts that its role needs.
//!
//! - [`Config`]: everything that a process is started with;
//! - [`Fondaco`]: starts one process; [`Running`]: stops it, in the reverse order;
//! - [`Dev`]: a whole cluster in one process;
//! - `tls`: certificates of the configuration; `traces`: spans of requests are sent to a collector.
//!
//! | role | its parts |
//! |---|---|
//! | node | the mirror, the agent, the RESP server, the control port |
//! | router | the mirror, a router's part, the RESP server, the control port |
//! | controller | the mirror, the controller, the control port |
//! | single | those of a node and of a controller, over coordination within the process |

mod config;
mod dev;
mod dev_file;
mod error;
mod running;
mod starting;
mod tls;
mod traces;

pub use config::{Config, MemberConfig, PeerConfig, TlsConfig, UserConfig, ZooKeeperConfig};
pub use dev::{Dev, DevConfig};
pub use error::RoleError;
pub use fondaco_agent::{AgentError, KafkaConfig, VersionedConfig};
pub use fondaco_api::Role;
pub use fondaco_cluster::ClusterConfig;
pub use fondaco_controller::{Hook, MachinesConfig};
pub use running::Running;
pub use starting::Fondaco;
