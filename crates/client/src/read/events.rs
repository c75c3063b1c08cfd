//! The events of a read: answers, failures, newer topologies, the time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use fondaco_model::NodeId;

use super::answer::{Answer, Element, Failure, Verdict};
use super::machine::{BatchRequest, Read, SUB_REQUESTS_UNDER_WAY_MAX};
use super::state::{KeyPlaces, Purpose};
use crate::asks::{Conduct, Due, Stage};
use crate::error::ClientError;
use crate::operation::{AskId, Environment, Operation, Outgoing};

impl Operation for Read {
    type Request = BatchRequest;
    type Reply = Answer;

    fn role(&self, id: AskId) -> &'static str {
        match self.asks.get(id).purpose.purpose {
            Purpose::First => "first",
            Purpose::Retry => "retry",
            Purpose::Redirect => "redirect",
            Purpose::Hedge => "hedge",
        }
    }

    fn next_send(&mut self, env: &Environment<'_>) -> Option<Outgoing<BatchRequest>> {
        if self.is_over() || self.asks.pending() >= SUB_REQUESTS_UNDER_WAY_MAX {
            return None;
        }
        let id = self.asks.next(env.now_us)?;
        let ask = self.asks.get(id);
        self.tally.asked(ask.node, ask.purpose.keys.len());
        Some(self.request(id, env))
    }

    fn on_reply(&mut self, id: AskId, answer: Answer, env: &Environment<'_>) {
        let conduct = match &answer {
            Answer::Elements(elements) if elements.len() == self.asks.get(id).purpose.keys.len() => Conduct::Well,
            Answer::Error(error) if Verdict::of(error) != Verdict::NodeFailed => Conduct::Well,
            Answer::Elements(_) | Answer::Error(_) => Conduct::Failed,
        };
        let Some(stage) = self.asks.answered(id, conduct, env) else {
            return;
        };
        if stage == Stage::Pending {
            self.learn(id, env);
        }
        let (node, sent_us) = (self.asks.get(id).node, self.asks.get(id).sent_us);
        self.tally.outcome(sent_us, env.now_us);
        if let Some(member) = self.directory.member(node) {
            member.health.heard(env.now_us);
        }
        let Some(keys) = self.end(id, stage) else {
            return;
        };
        if self.is_partly_answered(&keys) {
            return self.ask_again(keys, node, env);
        }
        let sub = &self.asks.get(id).purpose;
        let (purpose, part) = (sub.purpose, usize::from(sub.part));
        let mut came = Came::default();
        match answer {
            Answer::Elements(elements) if elements.len() == keys.len() => {
                let has_room = self.take_room(&keys, &elements);
                for (&key, element) in keys.iter().zip(elements) {
                    if self.states[key as usize].answer.is_some() {
                        continue;
                    }
                    match element {
                        Element::Value(value) => {
                            match has_room {
                                true => self.keep(key as usize, value),
                                false => self.answer(key as usize, value, env),
                            }
                            came.values += 1;
                        }
                        Element::Error(error) => came.error(key, error),
                    }
                }
            }
            Answer::Elements(elements) => {
                let error = format!("ERR {} elements were returned for {} keys", elements.len(), keys.len());
                self.unanswered_of(&keys)
                    .for_each(|key| came.error(key, error.clone().into()));
            }
            Answer::Error(error) => {
                self.unanswered_of(&keys).for_each(|key| came.error(key, error.clone()));
            }
        }
        if came.values > 0 && purpose == Purpose::Hedge {
            env.steering.counts.hedges_won.fetch_add(1, Relaxed);
        }
        self.settle_errors(came, part, node, env);
        self.rest(env);
        self.count_effort(env);
    }

    fn on_failure(&mut self, id: AskId, failure: Failure, env: &Environment<'_>) {
        let Some(stage) = self.asks.lost(id, &failure, env) else {
            return;
        };
        let (node, sent_us) = (self.asks.get(id).node, self.asks.get(id).sent_us);
        self.tally.outcome(sent_us, env.now_us);
        let Some(keys) = self.end(id, stage) else {
            return;
        };
        let purpose = match failure {
            Failure::Unsent(_) | Failure::Full { .. } => Purpose::Redirect,
            Failure::Lost(_) => Purpose::Retry,
        };
        let keys = self.to_be_settled(keys);
        let error = || match &failure {
            Failure::Unsent(reason) | Failure::Lost(reason) => ClientError::Unavailable {
                node,
                reason: Arc::clone(reason),
            },
            &Failure::Full { in_flight } => ClientError::Overloaded { node, in_flight },
        };
        self.retry(keys, purpose, env, || Some(error()));
        self.rest(env);
        self.count_effort(env);
    }

    fn on_directory(&mut self, env: &Environment<'_>) {
        if !self.is_over() {
            self.adopt(env);
            self.rest(env);
            self.count_effort(env);
        }
    }

    fn on_time(&mut self, env: &Environment<'_>) {
        if self.is_over() {
            return;
        }
        if env.now_us >= self.deadline_us {
            self.deadline_us = self.deadline_us.max(self.asks.moves_until_us(env));
        }
        if env.now_us >= self.deadline_us {
            self.time_out(env);
            return self.count_effort(env);
        }
        while let Some(due) = self.asks.due(env) {
            match due {
                Due::Late(id) => self.late(id, env),
                Due::GivenUp(id) => self.give_up(id, env),
            }
        }
        if self.backoff.is_over(env.now_us) {
            self.resume(env);
        }
        self.rest(env);
        self.count_effort(env);
    }

    fn wake_at_us(&self) -> u64 {
        let timers = [self.asks.due_at_us(), self.backoff.ends_at_us()];
        timers.into_iter().fold(self.deadline_us, u64::min)
    }

    fn wants_directory(&self) -> bool {
        self.parts.iter().any(|part| part.in_flux)
    }

    fn take_refresh(&mut self) -> bool {
        self.backoff.take_refresh()
    }

    fn take_suspended(&mut self) -> Option<NodeId> {
        self.asks.take_suspended()
    }

    #[inline]
    fn is_answered(&self) -> bool {
        self.unanswered == 0 || self.failed.is_some()
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.is_answered()
    }
}

impl Read {
    /// Handles the errors of some keys.
    fn settle_errors(&mut self, came: Came, part: usize, node: NodeId, env: &Environment<'_>) {
        let Came {
            refused,
            failed,
            redirected,
            last,
            ..
        } = came;
        let Some(last) = last else { return };
        let message: Arc<str> = String::from_utf8_lossy(&last).into();
        let unavailable = || {
            let reason = Arc::clone(&message);
            Some(ClientError::Unavailable { node, reason })
        };
        for key in refused {
            let message = Arc::clone(&message);
            self.give_up_key(key as usize, ClientError::Refused { node, message }, env);
        }
        if !redirected.is_empty() {
            // The canary has ended, or the node lacks its version: all keys of the store are read from the current one.
            self.parts[part].is_canary = false;
            if !std::mem::replace(&mut self.parts[part].in_flux, true) {
                self.backoff.want_refresh();
            }
            let generation = self.parts[part].generation;
            self.adopt(env);
            // Unless the whole store is being read at another version by now, or was abandoned.
            if self.parts[part].generation == generation {
                let redirected = self.to_be_settled(redirected);
                self.retry(redirected, Purpose::Redirect, env, unavailable);
            }
        }
        let failed = self.to_be_settled(failed);
        self.retry(failed, Purpose::Retry, env, unavailable);
    }

    /// A node takes longer than usual.
    fn late(&mut self, id: AskId, env: &Environment<'_>) {
        let ask = self.asks.get(id);
        let (node, sent_us, keys) = (ask.node, ask.sent_us, ask.purpose.keys.len());
        if !std::mem::replace(&mut self.asks.purpose_mut(id).learnt, true) {
            env.steering.note_exceeded(keys);
        }
        if let Some(member) = self.directory.member(node)
            && member.health.overdue(sent_us, env.now_us)
        {
            env.steering.counts.lates.fetch_add(1, Relaxed);
        }
        if self.is_of_now(id) {
            self.hedge(id, env);
        }
    }

    /// A node timed out: it is no longer expected, though its answer would still be accepted.
    fn give_up(&mut self, id: AskId, env: &Environment<'_>) {
        if self.is_of_now(id) {
            let keys = self.asks.get(id).purpose.keys.clone();
            self.release(&keys);
            let keys = self.to_be_settled(keys);
            self.retry(keys, Purpose::Retry, env, || None);
        }
    }

    fn time_out(&mut self, env: &Environment<'_>) {
        let deadline_ms = u64::try_from(self.options.deadline.as_millis()).unwrap_or(u64::MAX);
        for key in 0..self.states.len() {
            let state = &self.states[key];
            if state.answer.is_some() {
                continue;
            }
            // It is chance whether the key waits at this moment or is being retried.
            let error = match state.stranded {
                false => ClientError::Timeout { deadline_ms },
                true => ClientError::NoReplica {
                    store: self.parts[usize::from(state.part)].name.clone(),
                    partition: state.partition,
                },
            };
            env.steering.counts.keys_timed_out.fetch_add(1, Relaxed);
            self.fail(key, error);
        }
    }

    /// Whether a sub-request is for the version at which its keys are read now.
    fn is_of_now(&self, id: AskId) -> bool {
        let sub = &self.asks.get(id).purpose;
        sub.generation == self.parts[usize::from(sub.part)].generation
    }

    /// Records the latency of an answered sub-request.
    fn learn(&mut self, id: AskId, env: &Environment<'_>) {
        let sent_us = self.asks.get(id).sent_us;
        let sub = self.asks.purpose_mut(id);
        if !std::mem::replace(&mut sub.learnt, true) {
            let took_us = env.now_us.saturating_sub(sent_us);
            env.steering.note_answered(sub.keys.len(), took_us);
        }
    }

    /// Asks again for keys of an ignored answer that no other node is asked for; this node may be asked once more.
    fn ask_again(&mut self, keys: KeyPlaces, node: NodeId, env: &Environment<'_>) {
        let keys = self.to_be_settled(keys);
        for &key in &keys {
            self.states[key as usize].asked.retain(|asked| *asked != node);
        }
        self.retry(keys, Purpose::Redirect, env, || None);
        self.rest(env);
    }

    /// Whether an answer for these keys must be ignored: one result stands for all of them, and some are in the result of
    /// another node already. That happens when a node was given up, and answers after all.
    fn is_partly_answered(&self, keys: &[u32]) -> bool {
        let merges = self
            .computation
            .as_ref()
            .is_some_and(|computation| computation.merges());
        merges && keys.iter().any(|&key| self.states[key as usize].answer.is_some())
    }

    /// Takes the keys of a sub-request that ended in this stage; `None` if nothing follows for them.
    fn end(&mut self, id: AskId, stage: Stage) -> Option<KeyPlaces> {
        let keys = std::mem::take(&mut self.asks.purpose_mut(id).keys);
        let is_of_now = self.is_of_now(id);
        if stage == Stage::Pending && is_of_now {
            self.release(&keys);
        }
        (is_of_now && !self.is_over()).then_some(keys)
    }

    fn release(&mut self, keys: &[u32]) {
        for &key in keys {
            let pending = &mut self.states[key as usize].pending;
            debug_assert!(*pending > 0);
            *pending -= 1;
        }
    }

    /// Takes memory for the values of an answer at once, except those of keys that have another answer. Returns false, with
    /// none taken, if it does not suffice for all of them.
    fn take_room(&mut self, keys: &[u32], elements: &[Element]) -> bool {
        let bytes_of = |(&key, element): (&u32, &Element)| match element {
            Element::Value(Some(value)) if self.states[key as usize].answer.is_none() => value.len(),
            _ => 0,
        };
        let bytes = keys.iter().zip(elements).map(bytes_of).sum();
        self.room.take(bytes).is_ok()
    }

    fn unanswered_of<'a>(&'a self, keys: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        let unanswered = |key: &u32| self.states[*key as usize].answer.is_none();
        keys.iter().copied().filter(unanswered)
    }

    /// The keys that no other node is being asked for.
    fn to_be_settled(&self, keys: KeyPlaces) -> KeyPlaces {
        let open = |key: &u32| {
            let state = &self.states[*key as usize];
            state.answer.is_none() && state.pending == 0 && !state.waiting
        };
        keys.into_iter().filter(open).collect()
    }
}

/// The outcomes for the keys of one sub-request.
#[derive(Default)]
struct Came {
    values: usize,
    refused: KeyPlaces,
    failed: KeyPlaces,
    redirected: KeyPlaces,
    last: Option<Bytes>,
}

impl Came {
    fn error(&mut self, key: u32, error: Bytes) {
        match Verdict::of(&error) {
            Verdict::Redirected => self.redirected.push(key),
            Verdict::KeysFailed | Verdict::NodeFailed => self.failed.push(key),
            Verdict::Refused => self.refused.push(key),
        }
        self.last = Some(error);
    }
}
