//! The cluster as each of its processes sees it, and how a process changes it.
//!
//! - `mirror`: the records of the coordination service, kept up to date by a watch;
//! - `peer_topology`: the topology of other servers, for requests while the coordination service does not answer;
//! - `operator`, `settings`, `audit`: what operators change, carried out by whichever process receives the request, by
//!   conditional writes;
//! - `bootstrap`: how a cluster is made;
//! - `router`: a router's part, which is little: it announces itself, and publishes the topology;
//! - `candidate`: the entry by which other processes find the leading controller;
//! - `worker`, `change_signal`: threads that act on every change of the cluster.
//!
//! The model decides; this crate observes and writes. It knows neither data on a disk nor HTTP.

mod access;
mod audit;
mod bootstrap;
mod candidate;
mod change_signal;
mod changes;
mod error;
mod identity;
pub mod layout;
mod load_settings;
mod metered_coordination;
mod mirror;
mod operator;
mod peer_topology;
mod router;
mod setting_changes;
mod settings;
mod worker;

pub use access::as_user;
pub use audit::Audit;
pub use bootstrap::{Bootstrap, ClusterConfig};
pub use candidate::Candidate;
pub use change_signal::{ChangeSignal, ChangeWatcher};
pub use changes::carry_out;
pub use error::ClusterError;
pub use identity::new_identity;
pub use load_settings::{load_window, report_period};
pub use metered_coordination::{Counts, MeteredCoordination};
pub use mirror::{Mirror, Origin, Sighting};
pub use operator::Operator;
pub use peer_topology::PeerTopology;
pub use router::RouterWork;
pub use settings::LiveSettings;
pub use worker::{Ending, Worker};
