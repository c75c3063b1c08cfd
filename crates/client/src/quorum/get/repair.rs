//! Read repair: when all keys are answered, replicas that answered an older record, or whose record is damaged, get the
//! merged record.

use bytes::Bytes;
use fondaco_model::NodeId;

use super::{Get, Purpose};
use crate::asks::NEVER;
use crate::operation::{Environment, Operation};
use crate::quorum::micros;
use fondaco_protocol::replica::{KeyRecord, RecordPart};

/// The most records of one repair request; another request carries the rest.
const REPAIR_RECORDS_MAX: usize = 64;

impl Get {
    /// Called when the last key is answered: ignores outstanding answers, and repairs replicas.
    pub(super) fn finish(&mut self, env: &Environment<'_>) {
        if !self.is_answered() || std::mem::replace(&mut self.is_repaired, true) {
            return;
        }
        self.asks.end_all();
        self.settle_at_us = NEVER;
        self.backoff.end();
        let mut wanted: Vec<(u16, NodeId, KeyRecord)> = Vec::new();
        let has_records = self.part == RecordPart::Full;
        for (state, key) in self.states.iter().zip(&**self.keys).filter(|_| has_records) {
            let differ = state.answers.windows(2).any(|two| two[0].record != two[1].record);
            let mut damaged = state.replica_failures.damaged().peekable();
            let is_whole = !differ && (damaged.peek().is_none() || state.merged.is_empty());
            if is_whole || !matches!(state.outcome, Some(Ok(()))) {
                continue;
            }
            let merged = Bytes::from(state.merged.to_bytes());
            let behind = state
                .answers
                .iter()
                .filter(|answer| answer.record.as_ref() != Some(&merged));
            let behind = behind.map(|answer| answer.node).chain(damaged);
            wanted.extend(behind.map(|node| {
                let record = KeyRecord {
                    key: key.as_bytes().slice_ref(key.key()),
                    record: merged.clone(),
                };
                (state.store, node, record)
            }));
        }
        wanted.sort_by_key(|&(store, node, _)| (store, node));
        let mut wanted = wanted.into_iter().peekable();
        while let Some((store, node, record)) = wanted.next() {
            let mut records = vec![record];
            while records.len() < REPAIR_RECORDS_MAX
                && let Some((_, _, record)) = wanted.next_if(|next| (next.0, next.1) == (store, node))
            {
                records.push(record);
            }
            self.asks.plan(node, Purpose::Repair { store, records }, None);
        }
        // Repairs are not urgent, but they have a deadline, too.
        self.deadline_us = self
            .deadline_us
            .max(env.now_us.saturating_add(micros(self.options.deadline)));
    }
}
