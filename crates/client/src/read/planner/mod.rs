//! Strategies: which of its holders each key of a request is asked of.
//!
//! A strategy may see the whole request. Keys of one store and partition that may be asked of the same nodes form a
//! [`Lot`]. Its candidates are holders that are healthy, not late, and were not asked for these keys yet. A strategy
//! is pure: it takes turns from the [`Turns`] of the client, and random numbers from a seed. The invariant: each key
//! gets a candidate of its lot, so no strategy can drop a key.
//!
//! Retries and hedges use the strategy of their request, for the keys that they ask for again.

mod by_key;
mod cluster_aware;
mod name;
mod round_robin;
mod set_cover;

use std::fmt::Debug;

use fastrand::Rng;
use fondaco_model::{NodeId, PartitionId};
use fondaco_protocol::WireKey;

pub use by_key::{NearestFirst, PreferenceOrder, Sticky};
pub use cluster_aware::ClusterAware;
pub use name::named;
pub use round_robin::{RoundRobin, Turns};
pub use set_cover::SetCover;

/// A node that may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its index among the members of the directory.
    pub member: u32,
    /// Its number.
    pub node: NodeId,
    /// The index of its group. A node without a group is a group of its own.
    pub group: u32,
    /// The rate of requests that it reported, per second; 0 before it has.
    pub load: u32,
    /// Whether it is in the client's zone.
    pub near: bool,
}

/// Keys of one store and partition that may be asked of the same nodes.
#[derive(Debug, Clone, Copy)]
pub struct Lot<'a> {
    /// Their partition.
    pub partition: PartitionId,
    /// The keys, at least one, as indices in [`Context::keys`].
    pub keys: &'a [u32],
    /// The nodes, at least one, in the order of preference of the partition.
    pub candidates: &'a [Candidate],
}

/// The request and the cluster that the lots are of.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// All keys of the request.
    pub keys: &'a [WireKey],
    /// The number of the request, counted by the client.
    pub turn: u64,
    /// The number of groups to ask, from a [`FanOut`](super::FanOut).
    pub fan_out: usize,
    /// The number of groups; indices of groups are below it.
    pub groups: usize,
    /// The number of members; indices of members are below it.
    pub members: usize,
    /// The client's queues of nodes.
    pub turns: &'a Turns,
}

/// A rule for choosing nodes.
pub trait Strategy: Debug + Send + Sync {
    /// The node for one key, as an index in the lot's candidates; there are at least two. It must not allocate
    /// memory.
    fn choose(&self, key: &WireKey, lot: &Lot<'_>, context: &Context<'_>, random: &mut Rng) -> usize;

    /// The rule for requests of several keys, if it differs. If not, each key is chosen for on its own, which is faster.
    fn for_many(&self) -> Option<&dyn ManyKeys> {
        None
    }
}

/// A rule for choosing nodes for several keys together.
pub trait ManyKeys {
    /// For each key, in the order of the lots and of the keys in them, an index in its lot's candidates. Lots of one
    /// partition stand side by side.
    fn assign(&self, lots: &[Lot<'_>], context: &Context<'_>, random: &mut Rng) -> Vec<u32>;

    /// Whether it heeds [`Context::fan_out`]. If not, no controller is asked for it.
    fn heeds_fan_out(&self) -> bool {
        false
    }
}

/// The number of keys in these lots.
fn key_count(lots: &[Lot<'_>]) -> usize {
    lots.iter().map(|lot| lot.keys.len()).sum()
}

/// The finalizer of MurmurHash3: every bit of the input moves every bit of the output.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    bits ^ (bits >> 33)
}
