//! The events of a read: answers, failures, newer topologies, the time.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use fondaco_ids::Members;
use fondaco_model::NodeId;
use fondaco_model::versioned::Record;
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{Held, ReplicaErrorCode, ReplicaReply};
use fondaco_protocol::replica::{Known, KnownKey, RecordPart, ReplicaOperation, ReplicaRequest};

use super::plan::Cause;
use super::{Answer, Get, KeyPlaces, Purpose, Question, Questions};
use crate::asks::{Conduct, Due, NEVER, Stage};
use crate::error::ClientError;
use crate::operation::{AskId, Described, Environment, Operation, Outgoing};
use crate::quorum::counts::count;
use crate::quorum::no_quorum::ReplicaFailure;
use crate::quorum::replicas::Store;
use crate::read::Failure;

impl Get {
    /// Takes one replica's record of a key. Returns the failure, if there is one. The key fails if the record exceeds
    /// the memory limit.
    fn take(&mut self, key: usize, node: NodeId, record: Option<Bytes>) -> Result<(), ReplicaFailure> {
        let is_only = self.states.len() == 1;
        let state = &mut self.states[key];
        // Of several equal records, one is kept.
        let known = state.answers.iter().find(|answer| answer.record == record);
        let is_known = known.is_some();
        let record = known.map_or(record, |answer| answer.record.clone());
        if let Some(record) = record.as_ref().filter(|_| !is_known) {
            let taken = match is_only {
                true => self.room.take_alone(record.len()),
                false => self.room.take(record.len()),
            };
            if let Err(bytes_max) = taken {
                self.fail(key, ClientError::NoRoom { bytes_max });
                return Ok(());
            }
            if self.part == RecordPart::Members {
                let members = Members::parse(record).map_err(|_| ReplicaFailure::Unreadable)?;
                let merged = state.members.get_or_insert_default().merge(&members);
                merged.map_err(|_| ReplicaFailure::Unreadable)?;
            } else {
                let record = Record::decode(record.clone()).map_err(|_| ReplicaFailure::Unreadable)?;
                state.merged = match state.merged.is_empty() {
                    true => record,
                    false => state.merged.merge(&record),
                };
            }
        }
        // A node that lost and regained ownership may have been asked twice: it counts once.
        state.told.retain(|(told, _)| *told != node);
        let is_counted = state.answers.iter().any(|answer| answer.node == node);
        if !is_counted && !state.former.contains(&node) {
            state.answers.push(Answer { node, record });
        }
        Ok(())
    }

    /// A node's answer for a key is wrong or missing.
    fn note_failure(&mut self, key: usize, node: NodeId, failure: ReplicaFailure) {
        self.states[key].in_flux |= failure.is_elsewhere();
        if failure.is_elsewhere() {
            self.backoff.want_refresh();
        }
        self.states[key].replica_failures.add(node, failure);
    }

    /// Cancels requests for digests and records that have become known since they were planned.
    fn spare(&mut self, id: AskId) {
        if self.part != RecordPart::Full {
            return;
        }
        let Purpose::Read { keys, questions, .. } = self.asks.purpose_mut(id) else {
            return;
        };
        for (&key, question) in keys.iter().zip(questions) {
            let answers = &self.states[key as usize].answers;
            if let Some(record) = answers.iter().find_map(|answer| answer.record.clone()) {
                *question = Question::Other(record);
            }
        }
    }

    /// Takes the keys of a read that ended, and removes its node from their pending ones.
    fn keys_of(&mut self, id: AskId) -> Option<(NodeId, KeyPlaces)> {
        let ask = self.asks.get(id);
        let node = ask.node;
        let Purpose::Read { keys, .. } = &ask.purpose else {
            return None;
        };
        let keys = keys.clone();
        for &key in &keys {
            let state = &mut self.states[key as usize];
            state.pending.retain(|pending| *pending != node);
            state.given_up.retain(|given_up| *given_up != node);
            state.teller = state.teller.filter(|&teller| teller != node);
        }
        Some((node, keys))
    }

    /// The deadline has passed.
    fn time_out(&mut self, env: &Environment<'_>) {
        for key in 0..self.states.len() {
            if self.states[key].outcome.is_none() {
                let enough = self.has_enough(key, env);
                match enough {
                    true => self.succeed(key, env),
                    false => {
                        let error = self.no_quorum_error(key, env);
                        self.fail(key, error);
                    }
                }
            }
        }
        self.finish(env);
    }
}

impl Operation for Get {
    type Request = ReplicaRequest;
    type Reply = ReplicaReply;

    fn described(&self) -> Option<Described<'_>> {
        Some(Described {
            name: "quorum read",
            store: self.keys.first().map_or("", WireKey::store),
            keys: self.keys.len(),
        })
    }

    fn role(&self, id: AskId) -> &'static str {
        match &self.asks.get(id).purpose {
            Purpose::Read { cause, .. } => match cause {
                Cause::First => "first",
                Cause::Retry => "retry",
                Cause::Redirect => "redirect",
                Cause::Hedge => "hedge",
            },
            Purpose::Repair { .. } => "repair",
        }
    }

    fn next_send(&mut self, env: &Environment<'_>) -> Option<Outgoing<ReplicaRequest>> {
        let id = self.asks.next(env.now_us)?;
        count(&env.counts.requests);
        self.spare(id);
        let ask = self.asks.get(id);
        let (store, epoch, operation) = match &ask.purpose {
            Purpose::Read {
                store, keys, questions, ..
            } => {
                let keys = keys.iter().map(|&place| {
                    let key = &self.keys[place as usize];
                    key.as_bytes().slice_ref(key.key())
                });
                let known = |question: &Question| match question {
                    Question::Record => Known::Nothing,
                    Question::Other(record) => Known::Digest(Record::stated_digest(record)),
                    Question::Digest => Known::Awaited,
                };
                let operation = match questions.iter().all(|question| matches!(question, Question::Record)) {
                    true => ReplicaOperation::Get {
                        part: self.part,
                        keys: keys.collect(),
                    },
                    false => {
                        let keys = keys.zip(questions.iter().map(known));
                        let keys = keys.map(|(key, known)| KnownKey { key, known });
                        ReplicaOperation::GetOther { keys: keys.collect() }
                    }
                };
                (store, NonZeroU64::new(self.epoch), operation)
            }
            Purpose::Repair { store, records } => {
                env.counts.repairs.fetch_add(records.len() as u64, Relaxed);
                let records = records.clone();
                (store, None, ReplicaOperation::Merge { records })
            }
        };
        let store = &self.stores[usize::from(*store)];
        Some(Outgoing {
            id,
            node: ask.node,
            deadline_us: self.deadline_us,
            request: ReplicaRequest {
                store_id: store.id,
                store: store.name.clone(),
                timeout_ms: self.deadline_us.saturating_sub(env.now_us).div_ceil(1000),
                epoch,
                operation,
            },
        })
    }

    fn on_reply(&mut self, id: AskId, reply: ReplicaReply, env: &Environment<'_>) {
        let conduct = match &reply {
            ReplicaReply::Error(error) if error.code == ReplicaErrorCode::Other => Conduct::Failed,
            ReplicaReply::Records(_) | ReplicaReply::Done | ReplicaReply::Error(_) => Conduct::Well,
            _ => Conduct::Failed,
        };
        let Some(stage) = self.asks.answered(id, conduct, env) else {
            return;
        };
        let Some((node, keys)) = self.keys_of(id) else {
            if reply != ReplicaReply::Done {
                count(&env.counts.repairs_failed);
            }
            return;
        };
        let ask = self.asks.get(id);
        let teaches = matches!(ask.purpose, Purpose::Read { teaches: true, .. });
        if stage == Stage::Pending && teaches && !ask.is_late {
            let took_us = env.now_us.saturating_sub(ask.sent_us);
            env.steering.note_answered(keys.len(), took_us);
        }
        let has_some = matches!(&reply, ReplicaReply::Records(records) if records.iter().any(Result::is_ok));
        let mut is_more = false;
        let mut cause = Cause::Retry;
        let mut had_trouble = |get: &mut Self, key: u32, failure: ReplicaFailure| {
            if failure.is_elsewhere() || failure.is_behind() {
                cause = Cause::Redirect;
            }
            get.note_failure(key as usize, node, failure);
        };
        match reply {
            ReplicaReply::Records(records) if records.len() == keys.len() => {
                let questions = match self.asks.purpose_mut(id) {
                    Purpose::Read { questions, .. } => std::mem::take(questions),
                    Purpose::Repair { .. } => Questions::new(),
                };
                for ((&key, held), question) in keys.iter().zip(records).zip(questions) {
                    if self.states[key as usize].outcome.is_some() {
                        continue;
                    }
                    let taken = match (held, question) {
                        (Ok(Held::Record(digest)), Question::Digest) => self.take_digest(key as usize, node, &digest),
                        (Ok(Held::Record(record)), _) => self.take(key as usize, node, Some(record)),
                        (Ok(Held::Nothing), _) => self.take(key as usize, node, None),
                        (Ok(Held::Same), Question::Other(known)) => self.take(key as usize, node, Some(known)),
                        (Ok(Held::Same), _) => Err(ReplicaFailure::Nonsense),
                        // Another answer has the rest.
                        (Err(error), _) if error.code == ReplicaErrorCode::More && has_some => {
                            self.states[key as usize].candidates.push(node);
                            is_more = true;
                            Ok(())
                        }
                        (Err(error), _) => Err(ReplicaFailure::Error(error)),
                    };
                    if let Err(failure) = taken {
                        had_trouble(self, key, failure);
                    }
                }
            }
            ReplicaReply::Error(error) => {
                for &key in &keys {
                    had_trouble(self, key, ReplicaFailure::Error(error.clone()));
                }
            }
            _ => keys
                .iter()
                .for_each(|&key| had_trouble(self, key, ReplicaFailure::Nonsense)),
        }
        if is_more {
            cause = Cause::Redirect;
        }
        self.go_on(&keys, cause, env);
    }

    fn on_failure(&mut self, id: AskId, failure: Failure, env: &Environment<'_>) {
        if self.asks.lost(id, &failure, env).is_none() {
            return;
        }
        let Some((node, keys)) = self.keys_of(id) else {
            return count(&env.counts.repairs_failed);
        };
        let cause = match failure {
            Failure::Unsent(_) | Failure::Full { .. } => Cause::Redirect,
            Failure::Lost(_) => Cause::Retry,
        };
        for &key in &keys {
            self.note_failure(key as usize, node, ReplicaFailure::Failure(failure.clone()));
        }
        self.go_on(&keys, cause, env);
    }

    fn on_directory(&mut self, env: &Environment<'_>) {
        if self.is_answered() {
            return;
        }
        self.backoff.end();
        for place in 0..self.stores.len() {
            let name = self.stores[place].name.clone();
            match Store::of(env.latest, name.as_str()) {
                Ok(store) if store.id == self.stores[place].id => self.stores[place] = store,
                // The store was dropped, or recreated under this name: the values of this store are gone.
                _ => {
                    for key in 0..self.states.len() {
                        let state = &self.states[key];
                        if usize::from(state.store) == place && state.outcome.is_none() {
                            let store = name.as_str().into();
                            self.fail(key, ClientError::UnknownStore { store });
                        }
                    }
                }
            }
        }
        let epoch = env.latest.topology().epoch;
        // All further requests use the newer table.
        let is_newer = std::mem::replace(&mut self.epoch, epoch) != epoch;
        let mut again = KeyPlaces::new();
        for key in 0..self.states.len() {
            let state = &mut self.states[key];
            if state.outcome.is_none() && (state.in_flux || is_newer) {
                (state.waiting, state.in_flux) = (false, false);
                state.replica_failures.clear();
                self.find_candidates(key, env);
                again.push(key as u32);
            }
        }
        self.go_on(&again, Cause::Redirect, env);
    }

    fn on_time(&mut self, env: &Environment<'_>) {
        if env.now_us >= self.deadline_us {
            self.deadline_us = self.deadline_us.max(self.asks.moves_until_us(env));
        }
        if env.now_us >= self.deadline_us {
            match self.is_answered() {
                true => self.asks.end_all(),
                false => self.time_out(env),
            }
            return;
        }
        while let Some(due) = self.asks.due(env) {
            match due {
                Due::Late(id) => {
                    if let Purpose::Read { keys, teaches, .. } = &self.asks.get(id).purpose {
                        let keys = keys.clone();
                        if *teaches {
                            env.steering.note_exceeded(keys.len());
                        }
                        self.go_on(&keys, Cause::Hedge, env);
                    }
                }
                Due::GivenUp(id) => {
                    count(&env.counts.late);
                    let Some((node, keys)) = self.keys_of(id) else {
                        continue;
                    };
                    for &key in &keys {
                        self.states[key as usize].given_up.push(node);
                        self.note_failure(key as usize, node, ReplicaFailure::TimedOut);
                    }
                    self.go_on(&keys, Cause::Retry, env);
                }
            }
        }
        if env.now_us >= self.settle_at_us {
            self.settle_at_us = NEVER;
            for key in 0..self.states.len() {
                if self.states[key].outcome.is_none() && self.has_enough(key, env) {
                    self.succeed(key, env);
                }
            }
            self.finish(env);
        }
        if self.backoff.is_over(env.now_us) {
            self.on_directory(env);
        }
    }

    fn wake_at_us(&self) -> u64 {
        let timers = [self.asks.due_at_us(), self.settle_at_us, self.backoff.ends_at_us()];
        timers.into_iter().fold(self.deadline_us, u64::min)
    }

    fn wants_directory(&self) -> bool {
        self.states.iter().any(|state| state.in_flux && state.outcome.is_none())
    }

    fn take_refresh(&mut self) -> bool {
        self.backoff.take_refresh()
    }

    fn take_suspended(&mut self) -> Option<NodeId> {
        self.asks.take_suspended()
    }

    fn is_answered(&self) -> bool {
        self.unanswered == 0 || self.failed.is_some()
    }

    fn is_over(&self) -> bool {
        self.is_answered() && self.asks.open().next().is_none()
    }
}
