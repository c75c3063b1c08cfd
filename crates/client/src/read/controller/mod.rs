//! Fan-out controllers: how many groups of nodes a request asks.
//!
//! More groups mean more nodes with fewer keys each: less work for each node, more for the client, and a longer tail. A
//! controller weighs that for each request. Those here are the ones of Cho et al., "Moolle: Fan-out Control for Scalable
//! Distributed Data Stores", IV; users may write others. All are deterministic: time and rates come with the [`Query`].

mod computed;
mod constant;
mod pd;
mod rate;

use std::fmt::Debug;
use std::sync::Arc;

use super::directory::Directory;

pub use computed::{AsynchronousUnion, Penalty};
pub use constant::{EarlyTerminable, Fixed, NonUnion, SynchronousUnion};
pub use pd::Pd;
pub use rate::{ClientRate, GlobalRate};

/// A request of several keys, as a controller sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Query {
    /// The number of its keys.
    pub keys: usize,
    /// The number of partitions of the cluster.
    pub partitions: usize,
    /// The number of groups with a node that can be asked, at least 1. A node without a group is a group of its own.
    pub groups: usize,
    /// The mean number of such nodes in one of these groups, at least 1.
    pub nodes_per_group: f64,
    /// The monotonic time, in microseconds.
    pub now_us: u64,
    /// The rates that nodes report.
    pub rates: Rates,
}

/// The rates of requests that nodes report, from all clients together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// The sum of the reported rates, per second.
    pub reported_sum: u64,
    /// The number of nodes that reported one.
    pub reporting_nodes: usize,
}

impl Rates {
    /// The mean rate of a node, per second; `None` if no node reported any.
    pub fn per_node(&self) -> Option<f64> {
        (self.reporting_nodes > 0).then(|| self.reported_sum as f64 / self.reporting_nodes as f64)
    }
}

/// A rule for the number of groups that a request asks.
pub trait FanOutController: Debug + Send + Sync {
    /// The number of groups; numbers out of 1 to [`Query::groups`] count as the nearest of these. It is called once for
    /// each request of several keys whose strategy heeds it.
    fn fan_out(&self, query: &Query) -> usize;
}

/// How many groups a request asks.
#[derive(Debug, Clone, Default)]
pub enum FanOut {
    /// All.
    #[default]
    All,
    /// This many.
    Groups(usize),
    /// As many as the controller says.
    Controlled(Arc<dyn FanOutController>),
}

impl FanOut {
    /// The number of groups for this number of keys.
    pub(super) fn groups(&self, directory: &Directory, keys: usize, now_us: u64) -> usize {
        match self {
            Self::All => directory.groups(),
            Self::Groups(groups) => *groups,
            Self::Controlled(controller) => {
                let query = Query::of(directory, keys, now_us);
                controller.fan_out(&query).clamp(1, query.groups)
            }
        }
    }
}

impl Query {
    /// The query of a request for this number of keys.
    pub(super) fn of(directory: &Directory, keys: usize, now_us: u64) -> Self {
        let mut seen = vec![false; directory.groups()];
        let (mut groups, mut nodes, mut rates) = (0_usize, 0_usize, Rates::default());
        for member in directory.members().iter().filter(|member| member.is_well()) {
            groups += usize::from(!std::mem::replace(&mut seen[member.group as usize], true));
            nodes += 1;
            let rate = member.health.reported_rate();
            rates.reported_sum += u64::from(rate);
            rates.reporting_nodes += usize::from(rate > 0);
        }
        Self {
            keys,
            partitions: directory.topology().partitions.get() as usize,
            groups: groups.max(1),
            nodes_per_group: nodes.max(1) as f64 / groups.max(1) as f64,
            now_us,
            rates,
        }
    }
}
