//! A whole cluster as values: the entries of the coordination service, and views of them.
//!
//! - [`record`](self): the entries, one type each, as they are stored (JSON);
//! - [`ClusterView`]: all entries as a process saw them at one moment;
//! - [`Topology`]: the part that senders of requests need;
//! - [`LostQuorum`]: the partitions of a versioned store that cannot be read or written.
//!
//! The decisions on them are in crate `decisions`.

mod joint;
mod plan;
mod quorum;
mod record;
mod topology;
mod user;
mod view;

pub use joint::{JointSwap, join};
pub use plan::{MOVES_PER_NODE, MoveState, PlanCost, PlanCount, PlanMaker, PlanRecord, PlanState, StuckStore};
pub use quorum::LostQuorum;
pub use record::{
    Announcement, ClusterRecord, DroppedStore, NodeMark, NodeRecord, Numbers, PushRecord, ReplicaReport, ReplicaState,
    ReportRecord, RouterRecord, SchemaKey, SchemaRecord, StoreRecord, StoreReport, VersionDetail, VersionEvents,
};
pub use topology::{Topology, TopologyNode, TopologyStore};
pub use user::{ControlRole, UserName, UserNameError, UserRecord};
pub use view::{ClusterView, Revised};
