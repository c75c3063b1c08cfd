//! A whole cluster as values: what is written in the coordination service, and what follows from it.
//!
//! - [`record`](self): the entries, one type each, as they are stored (JSON);
//! - [`ClusterView`]: all entries as someone saw them at one moment;
//! - [`Topology`]: what those who send requests need of it.

mod record;
mod topology;
mod view;

pub use record::{
    Announcement, ClusterRecord, NodeRecord, PushRecord, ReplicaReport, ReplicaState, ReportRecord, RouterRecord,
    StoreRecord, VersionDetail,
};
pub use topology::{Topology, TopologyNode, TopologyStore};
pub use view::{ClusterView, Revised};
