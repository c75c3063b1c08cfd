//! A whole cluster as values: the entries of the coordination service, and what follows from them.
//!
//! - [`record`](self): the entries, one type each, as they are stored (JSON);
//! - [`ClusterView`]: all entries as a process saw them at one moment;
//! - [`Topology`]: the part that senders of requests need;
//! - [`LostQuorum`]: which partitions of a versioned store cannot be read or written;
//! - [`Controller`]: the next changes of the leading controller;
//! - [`Agent`]: the next actions of a data node;
//! - [`Membership`]: whether a process may be a node at all;
//! - [`Discontinuity`]: why the entries of a coordination service do not continue the former view;
//! - [`operator`]: the requests of operators.
//!
//! Nothing here waits for an event: each decision looks at the whole view, and returns what to do now. A crash, a lost
//! watch or a late message changes nothing, since the next look gives the same answer.

mod admission;
mod agent;
mod change;
mod clock;
mod continuity;
mod controller;
mod layout;
pub mod operator;
mod plan;
mod quorum;
mod readiness;
mod record;
mod space;
mod topology;
mod user;
mod view;

pub use admission::{AdmissionError, Membership, check_protocol};
pub use agent::{
    Agent, AgentAction, DROP_GRACE_MS, FETCH_ATTEMPTS_MAX, FETCHES_MAX, FailedFetch, LocalFetch, LocalReplicas,
    LocalVersion, LocalVersioned, REPORT_PROGRESS_MS, ReplicaKey, ServingSet, ServingStore,
};
pub use change::{Change, Record, RecordPath, Write};
pub use clock::Moment;
pub use continuity::{Discontinuity, check_continues};
pub use controller::{Controller, Patience};
pub use plan::{MOVES_PER_NODE, MoveState, PlanCost, PlanCount, PlanMaker, PlanRecord, PlanState, StuckStore};
pub use quorum::LostQuorum;
pub use readiness::{not_serving, unready_partition};
pub use record::{
    Announcement, ClusterRecord, DroppedStore, NodeMark, NodeRecord, Numbers, PushRecord, ReplicaReport, ReplicaState,
    ReportRecord, RouterRecord, StoreRecord, StoreReport, VersionDetail, VersionEvents,
};
pub use space::used_bytes;
pub use topology::{Topology, TopologyNode, TopologyStore};
pub use user::{ControlRole, UserName, UserNameError, UserRecord};
pub use view::{ClusterView, Revised};
