//! Replicas that answered only the digest of their record: they count as soon as another replica has answered that
//! record.

use fondaco_model::NodeId;
use fondaco_model::versioned::Record;

use super::plan::{Cause, Wanted, WantedKey};
use super::{Answer, Get};
use crate::operation::Environment;
use crate::quorum::no_quorum::ReplicaFailure;

impl Get {
    /// Takes the digest of one replica's record of a key. Returns the failure, if there is one.
    pub(super) fn take_digest(&mut self, key: usize, node: NodeId, digest: &[u8]) -> Result<(), ReplicaFailure> {
        let digest = <[u8; 8]>::try_from(digest).map_err(|_| ReplicaFailure::Nonsense)?;
        let state = &mut self.states[key];
        // A node that does not count towards the quorum may be left out, and a node that was asked twice counts once.
        let is_counted = state.answers.iter().any(|answer| answer.node == node);
        let has_told = state.told.iter().any(|(told, _)| *told == node);
        if !is_counted && !has_told && !state.former.contains(&node) {
            state.pending.push(node);
            state.told.push((node, u64::from_be_bytes(digest)));
        }
        Ok(())
    }

    /// Counts the replicas whose digest belongs to a known record as answers.
    pub(super) fn count_digests(&mut self, keys: &[u32]) {
        for &key in keys {
            for (node, digest) in std::mem::take(&mut self.states[key as usize].told) {
                let state = &mut self.states[key as usize];
                let mut records = state.answers.iter().filter_map(|answer| answer.record.as_ref());
                match records.find(|record| Record::stated_digest(record) == digest).cloned() {
                    Some(record) => {
                        state.pending.retain(|pending| *pending != node);
                        state.answers.push(Answer {
                            node,
                            record: Some(record),
                        });
                    }
                    None => state.told.push((node, digest)),
                }
            }
        }
    }

    /// Asks replicas whose digest belongs to an unknown record for that record. It waits with this while no record is
    /// known and a replica is still expected to answer one.
    pub(super) fn ask_for_others(&mut self, keys: &[u32], env: &Environment<'_>) {
        let mut wanted = Wanted::new();
        for &key in keys {
            let state = &mut self.states[key as usize];
            let is_awaited = state.answers.is_empty() && state.teller.is_some();
            if state.outcome.is_some() || is_awaited {
                continue;
            }
            for (node, _) in state.told.drain(..) {
                state.pending.retain(|pending| *pending != node);
                wanted.push(WantedKey {
                    store: state.store,
                    node,
                    key,
                    is_digest: false,
                });
            }
        }
        self.ask(wanted, Cause::Redirect, env);
    }
}
