//! Decides which nodes are asked for which keys, at first and when replicas fail or are late.

use std::sync::atomic::Ordering::Relaxed;

use fondaco_model::NodeId;
use fondaco_protocol::replica::RecordPart;
use smallvec::SmallVec;

use super::{Get, KeyPlaces, Purpose, Question};
use crate::error::ClientError;
use crate::operation::Environment;
use crate::quorum::no_quorum::ReplicaFailure;
use crate::quorum::replicas::{Nodes, is_well};
use crate::read::SUB_REQUEST_KEYS_MAX;

/// Why reads are planned, which decides the budget that they are charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    First,
    /// Others failed.
    Retry,
    /// Others were never reached, or must not be asked.
    Redirect,
    /// Others are late.
    Hedge,
}

/// A key to be read from a node.
#[derive(Debug)]
pub(super) struct WantedKey {
    pub(super) store: u16,
    pub(super) node: NodeId,
    pub(super) key: u32,
    /// Only its digest is requested.
    pub(super) is_digest: bool,
}

pub(super) type Wanted = SmallVec<[WantedKey; 4]>;

impl Get {
    /// Plans to ask for all keys that are unanswered and have no outstanding request.
    pub(super) fn plan_all(&mut self, cause: Cause, env: &Environment<'_>) {
        let open = |&key: &u32| {
            let state = &self.states[key as usize];
            state.outcome.is_none() && !state.waiting
        };
        let keys: KeyPlaces = (0..self.states.len() as u32).filter(open).collect();
        self.plan(&keys, cause, env);
    }

    /// Plans to read keys from as many further replicas as they need besides the expected ones. Keys that cannot get
    /// enough answers fail, or wait where a newer topology may help.
    fn plan(&mut self, keys: &[u32], cause: Cause, env: &Environment<'_>) {
        let mut wanted = Wanted::new();
        for &key in keys {
            let nodes = self.choose(key as usize, cause, env);
            let store = self.states[key as usize].store;
            // If not all replicas are needed, the node that is asked for the record may turn out to be the late one.
            let reads = self.stores[usize::from(store)].settings.reads;
            let has_digests = self.part == RecordPart::Full;
            let are_all_needed = has_digests && cause == Cause::First && nodes.len() as u32 == reads;
            wanted.extend(nodes.into_iter().enumerate().map(|(at, node)| WantedKey {
                store,
                node,
                key,
                is_digest: are_all_needed && at > 0,
            }));
        }
        self.ask(wanted, cause, env);
        keys.iter().for_each(|&key| self.check(key as usize, env));
    }

    /// Plans to ask for these keys, as far as the budgets allow.
    pub(super) fn ask(&mut self, mut wanted: Wanted, cause: Cause, env: &Environment<'_>) {
        // The local replica first: other replicas need not send the record that it has.
        let home = self.home.node;
        wanted.sort_unstable_by_key(|wanted| (Some(wanted.node) != home, wanted.store, wanted.node, wanted.key));
        for group in wanted.chunk_by(|a, b| (a.store, a.node) == (b.store, b.node)) {
            for part in group.chunks(SUB_REQUEST_KEYS_MAX) {
                let WantedKey { store, node, .. } = part[0];
                let keys: KeyPlaces = part.iter().map(|wanted| wanted.key).collect();
                match self.may(cause, env) {
                    true => {
                        let has_usual_latency = self.part == RecordPart::Full;
                        let late_us = self.options.hedge && has_usual_latency && cause != Cause::Hedge;
                        let late_us = late_us.then(|| env.steering.hedge_threshold_us(keys.len())).flatten();
                        for wanted in part {
                            let state = &mut self.states[wanted.key as usize];
                            state.pending.push(node);
                            if !wanted.is_digest {
                                state.teller = state.teller.or(Some(node));
                            }
                        }
                        let question = |wanted: &WantedKey| match wanted.is_digest {
                            true => Question::Digest,
                            false => Question::Record,
                        };
                        let purpose = Purpose::Read {
                            store,
                            keys,
                            questions: part.iter().map(question).collect(),
                            // Digests arrive sooner, so they are no samples.
                            teaches: has_usual_latency
                                && cause == Cause::First
                                && part.iter().any(|wanted| !wanted.is_digest),
                            cause,
                        };
                        self.asks.plan(node, purpose, late_us);
                    }
                    false if cause == Cause::Retry => {
                        let replica_failures = keys.iter().map(|&key| key as usize);
                        replica_failures
                            .for_each(|key| self.states[key].replica_failures.add(node, ReplicaFailure::NoBudget));
                    }
                    false => keys
                        .iter()
                        .for_each(|&key| self.states[key as usize].candidates.push(node)),
                }
            }
        }
    }

    /// Whether the budgets allow another request.
    fn may(&self, cause: Cause, env: &Environment<'_>) -> bool {
        match cause {
            Cause::First => {
                env.steering.deposit();
                true
            }
            Cause::Redirect => true,
            Cause::Retry => {
                let may = env.steering.take_retry();
                env.counts.retries.fetch_add(u64::from(may), Relaxed);
                may
            }
            Cause::Hedge => {
                let may = env.steering.take_hedge();
                env.counts.hedges.fetch_add(u64::from(may), Relaxed);
                may
            }
        }
    }

    /// Takes the candidates to ask for a key now.
    fn choose(&mut self, key: usize, cause: Cause, env: &Environment<'_>) -> Nodes {
        let state = &mut self.states[key];
        let settings = &self.stores[usize::from(state.store)].settings;
        let answered = state.answers.iter().map(|answer| answer.node);
        let mut counted: Nodes = answered.chain(state.pending.iter().copied()).collect();
        let before = counted.len();
        let wanted = match cause {
            Cause::First => settings.preferred_reads.max(settings.reads),
            Cause::Retry | Cause::Redirect => settings.reads,
            Cause::Hedge if state.answers.len() as u32 >= settings.reads => 0,
            Cause::Hedge => before as u32 + 1,
        };
        let directory = env.latest;
        while let Some(&node) = state.candidates.last() {
            let enough = counted.len() as u32 >= wanted;
            // A node that is down is asked only if it is needed.
            let needed = (counted.len() as u32) < settings.reads;
            if enough || !(needed && cause != Cause::Hedge || is_well(directory, node)) {
                break;
            }
            counted.extend(state.candidates.pop());
        }
        if cause != Cause::Hedge {
            let zones = |nodes: &Nodes| self.home.other_zones(nodes.iter().copied(), directory);
            while zones(&counted) < settings.zone_reads {
                let adds_zone = |&node: &NodeId| {
                    let with: Nodes = counted.iter().copied().chain([node]).collect();
                    zones(&with) > zones(&counted)
                };
                let Some(place) = state.candidates.iter().rposition(adds_zone) else {
                    break;
                };
                counted.push(state.candidates.remove(place));
            }
        }
        counted.drain(..before);
        counted
    }

    /// Asks other nodes for these keys after a failure, or gives up.
    pub(super) fn go_on(&mut self, keys: &[u32], cause: Cause, env: &Environment<'_>) {
        let open = |&&key: &&u32| {
            let state = &self.states[key as usize];
            state.outcome.is_none() && !state.waiting
        };
        let mut keys: KeyPlaces = keys.iter().filter(open).copied().collect();
        let refused = |key: &u32| self.states[*key as usize].replica_failures.refusal();
        let refused: SmallVec<[(u32, ClientError); 1]> =
            keys.iter().filter_map(|key| Some((*key, refused(key)?))).collect();
        for (key, error) in refused {
            self.fail(key as usize, error);
        }
        keys.retain(|key| self.states[*key as usize].outcome.is_none());
        self.count_digests(&keys);
        self.plan(&keys, cause, env);
        self.ask_for_others(&keys, env);
        self.finish(env);
    }
}
