//! The state of a client, with which its operations run.

use std::sync::Arc;

use fondaco_client::operation::Environment;
use fondaco_client::quorum::QuorumCounters;
use fondaco_client::read::{Directory, HealthPolicy, Steering, SteeringPolicy};
use fondaco_model::cluster::Topology;

/// A client: its directory of nodes, and how it steers requests.
#[derive(Debug)]
pub struct Caller {
    /// The nodes as it knows them.
    pub directory: Arc<Directory>,
    /// Its budgets and latencies.
    pub steering: Steering,
    /// Its counts.
    pub counts: QuorumCounters,
}

impl Caller {
    /// A client in a zone that knows a topology.
    pub fn new(topology: Topology, zone: Option<&str>) -> Self {
        Self {
            directory: Arc::new(Directory::new(Arc::new(topology), zone, HealthPolicy::default(), None)),
            steering: Steering::new(&SteeringPolicy::default()),
            counts: QuorumCounters::default(),
        }
    }

    /// The client learns another topology. Its knowledge of the health of nodes stays.
    pub fn learn(&mut self, topology: Topology, zone: Option<&str>) {
        let (topology, policy) = (Arc::new(topology), HealthPolicy::default());
        self.directory = Arc::new(Directory::new(topology, zone, policy, Some(&self.directory)));
    }

    /// The present, as operations need it.
    pub fn env(&self, now_us: u64, now_unix_ms: u64) -> Environment<'_> {
        Environment {
            now_us,
            now_unix_ms,
            latest: &self.directory,
            steering: &self.steering,
            counts: &self.counts,
        }
    }
}
