//! The leading controller, as other processes find and reach it.

use std::sync::Arc;

use fondaco_cluster::Candidate;
use fondaco_cluster::layout::ELECTION;
use fondaco_coordination::Coordination;
use fondaco_fetch::{PeerClient, PeerPort};
use parking_lot::Mutex;

/// The leading controller, as other processes reach it.
pub struct Leader {
    coordination: Arc<dyn Coordination>,
    peers: PeerClient,
    known: Mutex<Option<PeerPort>>,
    /// The address of this process.
    own: String,
}

impl Leader {
    /// The leader as this process, whose address is `own`, reaches it.
    pub fn new(coordination: Arc<dyn Coordination>, peers: PeerClient, own: String) -> Self {
        Self {
            coordination,
            peers,
            known: Mutex::default(),
            own,
        }
    }

    /// The control port of the leader, if that is another process. An entry that this process left before it was restarted
    /// names itself: it must not ask itself.
    pub fn other(&self) -> Option<PeerPort> {
        let port = self.port()?;
        if port.address() == self.own {
            self.forget();
            return None;
        }
        Some(port)
    }

    /// The control port of the leader, as it was found last; `None` without a leader.
    pub fn port(&self) -> Option<PeerPort> {
        let mut known = self.known.lock();
        if known.is_none() {
            *known = self.find().map(|address| self.peers.port(&address));
        }
        known.clone()
    }

    /// The leader did not answer, or leads no longer: the next request finds it again.
    pub fn forget(&self) {
        *self.known.lock() = None;
    }

    fn find(&self) -> Option<String> {
        let leader = self.coordination.leader(&ELECTION.parse().ok()?).ok().flatten()?;
        let leader: Candidate = serde_json::from_slice(&leader).ok()?;
        Some(leader.http)
    }
}
