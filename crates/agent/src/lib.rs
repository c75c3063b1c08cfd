//! The agent of a node that holds data: it observes the cluster and its own disk, asks the model what is due, and does it.
//!
//! - `agent`, `work`: the agent and its thread, one pass after the other;
//! - `presence`, `counting`, `node_file`, `memory`: the entries by which the node announces itself, and its memory of the cluster;
//! - `fetches`, `sources`, `tuning`: fetches of versions;
//! - `data_dir`, `disk`, `trash`, `reaper`: the data directory, and the deletion of data;
//! - `streams`, `event_schemas`, `start_offsets`, `ingest_pace`, `log_retention`: events of hybrid stores;
//! - `versioned`, `peers`: the replicas of versioned stores;
//! - `publishing`: the catalog that requests see;
//! - `uploads`, `push_check`: versions that are uploaded to this node, and the check of a version before its push, which
//!   reads the same sources as a fetch;
//! - `compaction`: a program that the node runs, which makes a new version of events;
//! - `load_meter`, `load_reports`: the node's load, for the leading controller.
//!
//! It decides nothing, and answers no requests.

mod agent;
mod compaction;
mod config;
mod counting;
mod data_dir;
mod disk;
mod error;
mod event_schemas;
mod fetches;
mod ingest_pace;
mod leader;
mod load_meter;
mod load_reports;
mod log_retention;
mod memory;
mod node_file;
mod peers;
mod presence;
mod publishing;
mod push_check;
mod reaper;
mod shared;
mod sources;
mod start_offsets;
mod streams;
mod trash;
mod tuning;
mod uploads;
mod versioned;
mod warming;
mod work;

pub use agent::{AgentParts, AgentWork};
pub use compaction::{CompactionParts, CompactionWork};
pub use config::{KafkaConfig, VersionedConfig};
pub use counting::MEMORY_AFTER;
pub use data_dir::DataDir;
pub use error::AgentError;
pub use leader::Leader;
pub use load_reports::{ReportingParts, ReportingWork};
pub use memory::Memory;
pub use node_file::NodeFile;
pub use push_check::PushCheck;
pub use sources::topic_problem;
pub use streams::{OverlayStatus, Streams};
pub use uploads::{Turn, Upload, UploadError, UploadSource, Uploads, is_pushing};
