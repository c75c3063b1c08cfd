//! Replicas that have told the digest of their record alone: they are counted as soon as another one has told that record.

use fondaco_model::NodeId;
use fondaco_model::versioned::Record;

use super::plan::{Cause, Wanted, WantedKey};
use super::{Answer, Get};
use crate::operation::Moment;
use crate::quorum::no_quorum::ReplicaFailure;

impl Get {
    /// The digest of what one replica holds under a key has come. Returns what is wrong with it, if something is.
    pub(super) fn take_digest(&mut self, key: usize, node: NodeId, digest: &[u8]) -> Result<(), ReplicaFailure> {
        let digest = <[u8; 8]>::try_from(digest).map_err(|_| ReplicaFailure::Nonsense)?;
        let state = &mut self.states[key];
        // Who makes up no quorum may as well be left out, and who was asked twice counts once.
        let is_counted = state.answers.iter().any(|answer| answer.node == node);
        let has_told = state.told.iter().any(|(told, _)| *told == node);
        if !is_counted && !has_told && !state.former.contains(&node) {
            state.pending.push(node);
            state.told.push((node, u64::from_be_bytes(digest)));
        }
        Ok(())
    }

    /// Takes those who have told the digest of a record that is known by now for answers.
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

    /// Asks those who have told the digest of another record for it. As long as no record is known, and somebody is to
    /// tell one, they are waited with.
    pub(super) fn ask_for_others(&mut self, keys: &[u32], moment: &Moment<'_>) {
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
        self.ask(wanted, Cause::Redirect, moment);
    }
}
