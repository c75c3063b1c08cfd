//! The decisions of a cluster, as pure functions of its records, its reports and the time.
//!
//! - [`Controller`]: the next changes of the leading controller;
//! - [`Agent`]: the next actions of a data node;
//! - [`Membership`]: whether a process may be a node at all;
//! - [`Discontinuity`]: why the entries of a coordination service do not continue the former view;
//! - [`operator`]: the requests of operators, as [changes](Change) of entries;
//! - [`balance`]: how a cluster evens out its load by itself, and when it requests machines.
//!
//! Nothing here waits for an event: each decision looks at the whole [view](fondaco_model::cluster::ClusterView), and returns
//! what to do now. A crash, a lost watch or a late message changes nothing, since the next look gives the same answer.

mod admission;
mod agent;
pub mod balance;
mod change;
mod clock;
mod continuity;
mod controller;
mod layout;
pub mod operator;
mod readiness;
mod space;
mod store_option;

pub use admission::{AdmissionError, Membership, check_protocol};
pub use agent::{
    Agent, AgentAction, DROP_GRACE_MS, FETCH_ATTEMPTS_MAX, FETCHES_MAX, FailedFetch, LocalFetch, LocalReplicas,
    LocalVersion, LocalVersioned, REPORT_PROGRESS_MS, ReplicaKey, ServingSet, ServingStore,
};
pub use change::{Change, Record, RecordPath, Write};
pub use clock::Now;
pub use continuity::{Discontinuity, check_continues};
pub use controller::{Controller, Patience, awaits_comparison};
pub use readiness::{not_serving, unready_partition};
pub use space::used_bytes;
pub use store_option::read_options;
