//! A whole cluster as values: what is written in the coordination service, and what follows from it.
//!
//! - [`record`](self): the entries, one type each, as they are stored (JSON);
//! - [`ClusterView`]: all entries as someone saw them at one moment;
//! - [`Topology`]: what senders of requests need of it;
//! - [`LostQuorum`]: which partitions of a versioned store cannot be read or written;
//! - [`Controller`]: what the leading controller does next;
//! - [`Agent`]: what a data node does next;
//! - [`Membership`]: whether a process may be a node at all;
//! - [`Discontinuity`]: whether what a coordination service says continues what was seen before;
//! - [`operator`]: what operators ask for.
//!
//! Nothing here waits for an event: all that decide look at the whole view, and say what is to be done
//! now. A crash, a lost watch or a late message changes nothing, since the next look gives the same
//! answer.

mod admission;
mod agent;
mod change;
mod clock;
mod continuity;
mod controller;
mod layout;
pub mod operator;
mod quorum;
mod readiness;
mod record;
mod topology;
mod view;

pub use admission::{AdmissionError, Membership};
pub use agent::{
    Agent, AgentAction, DROP_GRACE_MS, FETCH_ATTEMPTS_MAX, FETCHES_MAX, LocalFetch, LocalReplicas, LocalVersion,
    LocalVersioned, REPORT_PROGRESS_MS, ReplicaKey, ServingSet, ServingStore,
};
pub use change::{Change, Record, RecordPath, Write};
pub use clock::Moment;
pub use continuity::Discontinuity;
pub use controller::{Controller, Patience};
pub use quorum::LostQuorum;
pub use readiness::{not_serving, unready_partition};
pub use record::{
    Announcement, ClusterRecord, DroppedStore, NodeRecord, Numbers, PushRecord, ReplicaReport, ReplicaState,
    ReportRecord, RouterRecord, StoreRecord, StoreReport, VersionDetail,
};
pub use topology::{Topology, TopologyNode, TopologyStore};
pub use view::{ClusterView, Revised};
