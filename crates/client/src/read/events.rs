//! What comes back from outside: answers, failures, newer topologies, the time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use fondaco_model::NodeId;

use super::answer::{Answer, Element, Failure, Verdict};
use super::directory::Directory;
use super::machine::Read;
use super::state::{KeyPlaces, NEVER, Purpose, Stage, SubId};
use super::steering::Steering;
use crate::error::ClientError;

impl Read {
    /// A sub-request was answered. `latest` is the newest directory that there is.
    pub fn on_answer(&mut self, id: SubId, answer: Answer, latest: &Arc<Directory>, steering: &Steering, now_us: u64) {
        self.now_us = now_us;
        let Some((stage, keys)) = self.end(id, now_us, steering) else {
            return;
        };
        let sub = &self.subs[id as usize];
        let (node, purpose, part) = (sub.node, sub.purpose, usize::from(sub.part));
        if sub.generation != self.parts[part].generation {
            return;
        }
        let mut came = Came::default();
        match answer {
            Answer::Elements(elements) if elements.len() == keys.len() => {
                for (&key, element) in keys.iter().zip(elements) {
                    if self.states[key as usize].answer.is_some() {
                        continue;
                    }
                    match element {
                        Element::Value(value) => {
                            self.answer(key as usize, value, steering);
                            came.values += 1;
                        }
                        Element::Error(error) => came.error(key, error),
                    }
                }
            }
            Answer::Elements(elements) => {
                let error = format!("ERR {} elements were answered for {} keys", elements.len(), keys.len());
                came.node_failed = true;
                self.unanswered_of(&keys)
                    .for_each(|key| came.error(key, error.clone().into()));
            }
            Answer::Error(error) => {
                came.node_failed = Verdict::of(&error) == Verdict::NodeFailed;
                self.unanswered_of(&keys).for_each(|key| came.error(key, error.clone()));
            }
        }
        if came.values > 0 && purpose == Purpose::Hedge {
            steering.counts.hedges_won.fetch_add(1, Relaxed);
        }
        if let Some(member) = self.directory.member(node) {
            member.health.heard(now_us);
            match came.node_failed {
                _ if stage != Stage::Pending => {}
                false => member.health.succeeded(now_us),
                true if member.health.failed(now_us) => self.suspended.push(node),
                true => {}
            }
        }
        self.settle_errors(came, part, node, latest, steering);
        self.rest(now_us);
    }

    /// What follows from the errors that came for some keys.
    fn settle_errors(&mut self, came: Came, part: usize, node: NodeId, latest: &Arc<Directory>, steering: &Steering) {
        let Came {
            refused,
            failed,
            elsewhere,
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
            self.give_up_key(key as usize, ClientError::Refused { node, message }, steering);
        }
        if !elsewhere.is_empty() {
            self.refresh |= !self.parts[part].in_flux;
            self.parts[part].in_flux = true;
            let generation = self.parts[part].generation;
            self.adopt(latest, steering);
            // Unless all of the store is asked for at another version by now, or given up.
            if self.parts[part].generation == generation {
                let elsewhere = self.to_be_settled(elsewhere);
                self.retry(elsewhere, Purpose::Redirect, steering, unavailable);
            }
        }
        let failed = self.to_be_settled(failed);
        self.retry(failed, Purpose::Retry, steering, unavailable);
    }

    /// Nothing will come back for a sub-request.
    pub fn on_failure(&mut self, id: SubId, failure: Failure, steering: &Steering, now_us: u64) {
        self.now_us = now_us;
        let Some((stage, keys)) = self.end(id, now_us, steering) else {
            return;
        };
        let sub = &self.subs[id as usize];
        let (node, part) = (sub.node, usize::from(sub.part));
        if matches!(failure, Failure::Lost(_))
            && stage == Stage::Pending
            && let Some(member) = self.directory.member(node)
            && member.health.failed(now_us)
        {
            self.suspended.push(node);
        }
        if self.subs[id as usize].generation != self.parts[part].generation {
            return;
        }
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
        self.retry(keys, purpose, steering, || Some(error()));
        self.rest(now_us);
    }

    /// There is a newer directory.
    pub fn on_directory(&mut self, latest: &Arc<Directory>, steering: &Steering, now_us: u64) {
        self.now_us = now_us;
        if !self.is_done() {
            self.adopt(latest, steering);
            self.rest(now_us);
        }
    }

    /// It is [`Read::wake_at_us`], or later.
    pub fn on_time(&mut self, steering: &Steering, now_us: u64) {
        self.now_us = now_us;
        if self.is_done() {
            return;
        }
        if now_us >= self.deadline_us {
            return self.time_out(steering);
        }
        for id in 0..self.unsent {
            let sub = &self.subs[id];
            if sub.stage != Stage::Pending {
                continue;
            }
            let of_now = sub.generation == self.parts[usize::from(sub.part)].generation;
            if now_us >= sub.hedge_at_us {
                if !sub.learnt {
                    steering.thresholds.exceeded(sub.keys.len());
                }
                let sub = &mut self.subs[id];
                (sub.learnt, sub.hedge_at_us) = (true, NEVER);
                let (node, sent_us) = (sub.node, sub.sent_us);
                if let Some(member) = self.directory.member(node)
                    && member.health.overdue(sent_us, now_us)
                {
                    steering.counts.lates.fetch_add(1, Relaxed);
                }
                if of_now {
                    self.hedge(id, steering);
                }
            }
            if now_us >= self.subs[id].give_up_at_us {
                self.give_up(id, of_now, steering, now_us);
            }
        }
        if now_us >= self.resume_at_us {
            self.resume(steering);
        }
        self.rest(now_us);
    }

    /// A node took too long: it is counted on no more, though its answer would still do.
    fn give_up(&mut self, id: usize, of_now: bool, steering: &Steering, now_us: u64) {
        let sub = &mut self.subs[id];
        sub.stage = Stage::GivenUp;
        let (node, keys) = (sub.node, sub.keys.clone());
        self.pending -= 1;
        if let Some(member) = self.directory.member(node)
            && member.health.failed(now_us)
        {
            self.suspended.push(node);
        }
        if of_now {
            self.release(&keys);
            let keys = self.to_be_settled(keys);
            self.retry(keys, Purpose::Retry, steering, || None);
        }
    }

    fn time_out(&mut self, steering: &Steering) {
        let deadline_ms = u64::try_from(self.options.deadline.as_millis()).unwrap_or(u64::MAX);
        for key in 0..self.states.len() {
            let state = &self.states[key];
            if state.answer.is_some() {
                continue;
            }
            // Whether it waits at this moment, or is being asked for once more, is chance.
            let error = match state.stranded {
                false => ClientError::Timeout { deadline_ms },
                true => ClientError::NoReplica {
                    store: self.parts[usize::from(state.part)].name.clone(),
                    partition: state.partition,
                },
            };
            steering.counts.keys_timed_out.fetch_add(1, Relaxed);
            self.fail(key, error);
        }
    }

    /// Ends a sub-request, once. Returns where it stood, and its keys.
    fn end(&mut self, id: SubId, now_us: u64, steering: &Steering) -> Option<(Stage, KeyPlaces)> {
        let sub = self.subs.get_mut(id as usize)?;
        let stage = std::mem::replace(&mut sub.stage, Stage::Ended);
        if !matches!(stage, Stage::Pending | Stage::GivenUp) {
            return None;
        }
        let keys = std::mem::take(&mut sub.keys);
        if stage == Stage::Pending {
            self.pending -= 1;
            if !std::mem::replace(&mut sub.learnt, true) {
                steering
                    .thresholds
                    .answered(keys.len(), now_us.saturating_sub(sub.sent_us));
            }
            if sub.generation == self.parts[usize::from(sub.part)].generation {
                self.release(&keys);
            }
        }
        (!self.is_done()).then_some((stage, keys))
    }

    fn release(&mut self, keys: &[u32]) {
        for &key in keys {
            let pending = &mut self.states[key as usize].pending;
            debug_assert!(*pending > 0);
            *pending -= 1;
        }
    }

    fn unanswered_of<'a>(&'a self, keys: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        let unanswered = |key: &u32| self.states[*key as usize].answer.is_none();
        keys.iter().copied().filter(unanswered)
    }

    /// Those keys that nobody else is being asked for.
    fn to_be_settled(&self, keys: KeyPlaces) -> KeyPlaces {
        let open = |key: &u32| {
            let state = &self.states[*key as usize];
            state.answer.is_none() && state.pending == 0 && !state.waiting
        };
        keys.into_iter().filter(open).collect()
    }
}

/// What came for the keys of one sub-request.
#[derive(Default)]
struct Came {
    values: usize,
    refused: KeyPlaces,
    failed: KeyPlaces,
    elsewhere: KeyPlaces,
    node_failed: bool,
    last: Option<Bytes>,
}

impl Came {
    fn error(&mut self, key: u32, error: Bytes) {
        match Verdict::of(&error) {
            Verdict::Elsewhere => self.elsewhere.push(key),
            Verdict::KeysFailed | Verdict::NodeFailed => self.failed.push(key),
            Verdict::Refused => self.refused.push(key),
        }
        self.last = Some(error);
    }
}
