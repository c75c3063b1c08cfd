//! A reader that follows a store of a cluster on its own disk.
//!
//! - [`options`]: the store, and how it is followed;
//! - [`cluster`]: the current version, as the cluster describes it;
//! - [`place`]: the directory;
//! - [`fetch`]: one version, from the cluster to an open one;
//! - [`held`]: the versions here;
//! - [`follower`]: the thread that does this, again and again;
//! - [`status`]: what its readers see of it.

mod cluster;
mod fetch;
mod follower;
mod held;
mod options;
mod place;
mod status;

pub(crate) use cluster::Cluster;
pub(crate) use follower::{Following, follow};
pub use options::{FollowOptions, OnSwap, Swap};
pub(crate) use status::Shared;
pub use status::{State, Status};
