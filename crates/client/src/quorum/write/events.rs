//! The events of a write: answers, failures, newer topologies, the time.

use std::num::NonZeroU64;

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{Record, VectorClock};
use fondaco_protocol::replica::{Held, ReplicaErrorCode, ReplicaReply};
use fondaco_protocol::replica::{KeyRecord, RecordPart, ReplicaOperation, ReplicaRequest};

use super::known::known;
use super::{Fate, HINT_TIME_US, Intent, Purpose, Step, Write};
use crate::asks::{Conduct, Due};
use crate::error::ClientError;
use crate::operation::{AskId, Described, Environment, Operation, Outgoing};
use crate::quorum::counts::count;
use crate::quorum::no_quorum::{QuorumPart, ReplicaFailure};
use crate::quorum::replicas::Store;
use crate::read::Failure;

impl Write {
    /// Handles a replica's answer.
    fn heard(
        &mut self,
        node: NodeId,
        purpose: Purpose,
        reply: ReplicaReply,
        env: &Environment<'_>,
    ) -> Result<(), ReplicaFailure> {
        match (purpose, reply) {
            (_, ReplicaReply::Error(error)) => Err(ReplicaFailure::Error(error)),
            (Purpose::Context, ReplicaReply::Records(records)) => {
                let [context] = <[_; 1]>::try_from(records).map_err(|_| ReplicaFailure::Nonsense)?;
                let context = match context.map_err(ReplicaFailure::Error)? {
                    Held::Record(context) => context,
                    Held::Nothing => Bytes::new(),
                    Held::Same => return Err(ReplicaFailure::Nonsense),
                };
                let context = VectorClock::decode(&context).map_err(|_| ReplicaFailure::Unreadable)?;
                // Every replica that takes the write must give it the same time.
                if !self.may_be_taken() {
                    self.context = self.context.merge(&context);
                }
                self.done(node, |owner| &mut owner.seen);
                Ok(())
            }
            (Purpose::Put { .. }, ReplicaReply::Written(record)) => {
                let decoded = Record::decode(record.clone()).map_err(|_| ReplicaFailure::Unreadable)?;
                self.taken(node, record, &decoded);
                Ok(())
            }
            (Purpose::Merge, ReplicaReply::Done) => {
                self.done(node, |owner| &mut owner.kept);
                Ok(())
            }
            (Purpose::Hint { target }, ReplicaReply::Done) => {
                count(&env.counts.hints);
                self.keepers.push(node);
                self.done(target, |owner| &mut owner.hint);
                Ok(())
            }
            _ => Err(ReplicaFailure::Nonsense),
        }
    }

    fn done(&mut self, node: NodeId, step: impl Fn(&mut super::Owner) -> &mut Step) {
        if let Some(owner) = self.owner(node) {
            *step(owner) = Step::Done;
        }
    }

    /// A replica has taken the write. If another one had taken it before, both have: the record of the first one is
    /// merged here like in any other replica.
    fn taken(&mut self, node: NodeId, record: Bytes, decoded: &Record) {
        if self.record.is_none() {
            self.known = known(&self.update, &self.context, decoded, node);
            self.record = Some(record);
            self.done(node, |owner| &mut owner.kept);
        }
    }

    /// Handles a failed request to a node.
    fn note_failure(&mut self, node: NodeId, purpose: Purpose, failure: ReplicaFailure, env: &Environment<'_>) {
        if failure.is_elsewhere() {
            self.in_flux = true;
            self.backoff.want_refresh();
        }
        let step = match failure {
            ReplicaFailure::TimedOut => Step::Late,
            // It is not, or not yet, a replica of the key: it needs no hint.
            _ if purpose == Purpose::Merge && failure.is_elsewhere() && !failure.is_old_table() => Step::Moot,
            _ => Step::Failed,
        };
        match purpose {
            Purpose::Context | Purpose::Put { .. }
                if self.record.is_none() && failure.is_refusal() && !self.may_be_taken_elsewhere(node) =>
            {
                let message = failure.words();
                return self.fail(ClientError::Refused { node, message });
            }
            Purpose::Put { .. } if self.record.is_none() => return self.not_taken(node, failure, env),
            Purpose::Put { .. } => return,
            Purpose::Context => {
                if let Some(owner) = self.owner(node) {
                    owner.seen = step;
                }
            }
            Purpose::Merge => {
                if let Some(owner) = self.owner(node) {
                    owner.kept = step;
                }
            }
            Purpose::Hint { target } => {
                // Another node must keep the hint.
                if let Some(owner) = self.owner(target).filter(|owner| owner.hint == Step::Asked) {
                    owner.hint = Step::Failed;
                }
                return;
            }
        }
        self.replica_failures.add(node, failure);
    }

    /// A replica did not take the write, or may not have taken it.
    fn not_taken(&mut self, node: NodeId, failure: ReplicaFailure, env: &Environment<'_>) {
        let fate = match (failure.is_elsewhere(), failure.is_ambiguous()) {
            (true, _) => Fate::Elsewhere,
            (_, true) => Fate::Unknown,
            _ => Fate::Refused,
        };
        if let Some(tried) = self.tries.iter_mut().find(|tried| tried.node == node) {
            tried.fate = fate;
            tried.is_unable = failure.is_unable();
        }
        let is_conflict = failure.is_conflict() && matches!(self.intent, Intent::Unchanged(_));
        if is_conflict && !self.may_be_taken() {
            let store = self.store.name.clone();
            return self.fail(ClientError::Conflict { store });
        }
        // A slow replica may still report its result.
        let is_lost = fate == Fate::Unknown && failure != ReplicaFailure::TimedOut;
        self.replica_failures.add(node, failure);
        // The replica may conflict with this same write, which must not be made twice either.
        if is_conflict || (is_lost && self.is_made_once()) {
            self.fail_short(QuorumPart::Writes, env);
        }
    }
}

impl Operation for Write {
    type Request = ReplicaRequest;
    type Reply = ReplicaReply;

    fn described(&self) -> Option<Described<'_>> {
        Some(Described {
            name: "quorum write",
            store: self.key.store(),
            keys: 1,
        })
    }

    fn role(&self, id: AskId) -> &'static str {
        match self.asks.get(id).purpose {
            Purpose::Context => "context",
            Purpose::Put { .. } => "write",
            Purpose::Merge => "merge",
            Purpose::Hint { .. } => "hint",
        }
    }

    fn next_send(&mut self, env: &Environment<'_>) -> Option<Outgoing<ReplicaRequest>> {
        let id = self.asks.next(env.now_us)?;
        count(&env.counts.requests);
        let ask = self.asks.get(id);
        let key = self.key.as_bytes().slice_ref(self.key.key());
        let records = |key: Bytes| {
            let record = self.record.clone().unwrap_or_default();
            vec![KeyRecord { key, record }]
        };
        let mut deadline_us = self.deadline_us;
        // Events after the answer do not count for it.
        let is_counted = self.is_open() && !matches!(ask.purpose, Purpose::Hint { .. });
        let epoch = NonZeroU64::new(self.epoch).filter(|_| is_counted);
        let operation = match ask.purpose {
            Purpose::Context => ReplicaOperation::Get {
                part: RecordPart::Context,
                keys: vec![key],
            },
            Purpose::Put { over } => ReplicaOperation::Put {
                over,
                key,
                context: self.context.clone(),
                update: self.update.clone(),
                is_charged: false,
            },
            Purpose::Merge => ReplicaOperation::Merge { records: records(key) },
            Purpose::Hint { target } => {
                deadline_us = deadline_us.saturating_add(HINT_TIME_US);
                let records = records(key);
                ReplicaOperation::Hint { target, records }
            }
        };
        Some(Outgoing {
            id,
            node: ask.node,
            deadline_us,
            request: ReplicaRequest {
                store_id: self.store.id,
                store: self.store.name.clone(),
                timeout_ms: deadline_us.saturating_sub(env.now_us).div_ceil(1000),
                epoch,
                operation,
            },
        })
    }

    fn on_reply(&mut self, id: AskId, reply: ReplicaReply, env: &Environment<'_>) {
        let conduct = match &reply {
            ReplicaReply::Error(error) if error.code == ReplicaErrorCode::Other => Conduct::Failed,
            _ => Conduct::Well,
        };
        if self.asks.answered(id, conduct, env).is_none() {
            return;
        }
        let ask = self.asks.get(id);
        let (node, purpose) = (ask.node, ask.purpose);
        if let Err(failure) = self.heard(node, purpose, reply, env) {
            self.note_failure(node, purpose, failure, env);
        }
        self.advance(env);
    }

    fn on_failure(&mut self, id: AskId, failure: Failure, env: &Environment<'_>) {
        if self.asks.lost(id, &failure, env).is_none() {
            return;
        }
        let ask = self.asks.get(id);
        let (node, purpose) = (ask.node, ask.purpose);
        self.note_failure(node, purpose, ReplicaFailure::Failure(failure), env);
        self.advance(env);
    }

    fn on_directory(&mut self, env: &Environment<'_>) {
        if !self.is_open() {
            return;
        }
        self.backoff.end();
        match Store::of(env.latest, self.store.name.as_str()) {
            Ok(store) if store.id == self.store.id => self.store = store,
            // The store was dropped, or recreated under this name.
            _ => {
                let store = self.store.name.as_str().into();
                return self.fail(ClientError::UnknownStore { store });
            }
        }
        self.find_owners(env);
        self.in_flux = false;
        self.replica_failures.clear();
        self.advance(env);
    }

    fn on_time(&mut self, env: &Environment<'_>) {
        if env.now_us >= self.ends_at_us() {
            self.deadline_us = self.deadline_us.max(self.asks.moves_until_us(env));
        }
        if env.now_us >= self.ends_at_us() {
            if self.is_open() {
                let part = match self.tries.is_empty() {
                    true => QuorumPart::Reads,
                    false => QuorumPart::Writes,
                };
                return self.fail_short(part, env);
            }
            let unhinted = self.owners.iter().filter(|owner| owner.hint == Step::Asked);
            unhinted.for_each(|_| count(&env.counts.hints_failed));
            return self.asks.end_all();
        }
        while let Some(due) = self.asks.due(env) {
            match due {
                Due::Late(_) => self.hedge(env),
                Due::GivenUp(id) => {
                    count(&env.counts.late);
                    let ask = self.asks.get(id);
                    let (node, purpose) = (ask.node, ask.purpose);
                    self.note_failure(node, purpose, ReplicaFailure::TimedOut, env);
                }
            }
        }
        match self.backoff.is_over(env.now_us) {
            true => self.on_directory(env),
            false => self.advance(env),
        }
    }

    fn wake_at_us(&self) -> u64 {
        let timers = [self.asks.due_at_us(), self.settle_at_us, self.backoff.ends_at_us()];
        timers.into_iter().fold(self.ends_at_us(), u64::min)
    }

    fn wants_directory(&self) -> bool {
        self.in_flux && self.is_open()
    }

    fn take_refresh(&mut self) -> bool {
        self.backoff.take_refresh()
    }

    fn take_suspended(&mut self) -> Option<NodeId> {
        self.asks.take_suspended()
    }

    fn is_answered(&self) -> bool {
        !self.is_open()
    }

    fn is_over(&self) -> bool {
        !self.is_open() && self.asks.open().next().is_none()
    }
}
