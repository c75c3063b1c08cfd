//! The effort of a request: how many nodes it took, how evenly, and where its time went.

use std::sync::atomic::Ordering::Relaxed;

use fondaco_model::NodeId;
use smallvec::SmallVec;

use super::machine::Read;
use crate::asks::Stage;
use crate::operation::{Environment, Operation};

/// The effort of a request.
///
/// The time of a request is that of its slowest node and that of the client (equation 4 of Cho et al., "Moolle: Fan-out
/// Control for Scalable Distributed Data Stores"): more nodes make the first shorter and the second longer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// The number of distinct nodes that were asked.
    pub nodes: u32,
    /// The number of keys asked of the node that was asked for most, in all its sub-requests.
    pub largest_share: u32,
    /// The longest time from sending a sub-request to its outcome, or to the end of the request, in microseconds.
    pub server_us: u64,
    /// The rest of the request's time, in microseconds: spent by the client, or on further rounds.
    pub client_us: u64,
}

/// The measurements of a request under way.
#[derive(Debug)]
pub(super) struct Tally {
    began_us: u64,
    slowest_us: u64,
    /// The number of keys asked of each node, in the order of their numbers.
    shares: SmallVec<[(NodeId, u32); 2]>,
    /// Set at the end.
    pub(super) effort: Option<Effort>,
}

impl Tally {
    pub(super) fn new(now_us: u64) -> Self {
        Self {
            began_us: now_us,
            slowest_us: 0,
            shares: SmallVec::new(),
            effort: None,
        }
    }

    /// Counts the keys that a node is asked for.
    pub(super) fn asked(&mut self, node: NodeId, keys: usize) {
        match self.shares.binary_search_by_key(&node, |&(node, _)| node) {
            Ok(place) => self.shares[place].1 += keys as u32,
            Err(place) => self.shares.insert(place, (node, keys as u32)),
        }
    }

    /// A sub-request that was sent at this time has its outcome.
    pub(super) fn outcome(&mut self, sent_us: u64, now_us: u64) {
        self.slowest_us = self.slowest_us.max(now_us.saturating_sub(sent_us));
    }
}

impl Read {
    /// Counts the effort of the request, once it is over.
    pub(super) fn count_effort(&mut self, env: &Environment<'_>) {
        if !self.is_over() || self.tally.effort.is_some() {
            return;
        }
        for ask in self.asks.open().filter(|ask| ask.stage != Stage::Planned) {
            self.tally.outcome(ask.sent_us, env.now_us);
        }
        let tally = &mut self.tally;
        let whole_us = env.now_us.saturating_sub(tally.began_us);
        let server_us = tally.slowest_us.min(whole_us);
        let effort = Effort {
            nodes: tally.shares.len() as u32,
            largest_share: tally.shares.iter().map(|&(_, keys)| keys).max().unwrap_or(0),
            server_us,
            client_us: whole_us - server_us,
        };
        tally.effort = Some(effort);
        let counts = &env.steering.counts;
        counts.nodes.fetch_add(u64::from(effort.nodes), Relaxed);
        counts
            .largest_shares
            .fetch_add(u64::from(effort.largest_share), Relaxed);
        counts.server_us.fetch_add(effort.server_us, Relaxed);
        counts.client_us.fetch_add(effort.client_us, Relaxed);
    }
}
