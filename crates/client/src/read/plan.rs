//! The plan of a whole request, or of the rest of one: which nodes are asked for which keys, within the budgets.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fondaco_model::VersionNumber;
use smallvec::SmallVec;

use super::machine::{COMPUTATION_KEYS_MAX, Read, SUB_REQUEST_KEYS_MAX};
use super::state::{KeyPlaces, Part, Purpose, Sub, version_of};
use crate::error::ClientError;
use crate::operation::{AskId, Environment};

/// How often the versions of stores may change under one request before it fails.
const REPINS_MAX: u32 = 16;

/// Keys to be read from one node.
struct Bundle {
    member: u32,
    part: u16,
    keys: KeyPlaces,
}

/// The assignment of keys to the nodes to ask. A plain value: making it has no effect.
#[derive(Default)]
struct Plan {
    /// At most one open bundle for each store and node; full ones besides.
    bundles: SmallVec<[Bundle; 3]>,
    /// Keys for which no node can be asked.
    nowhere: KeyPlaces,
}

impl Read {
    /// Asks for unanswered keys. Keys that no node can be asked for fail, or wait where a newer topology may help.
    pub(super) fn ask_for(&mut self, keys: KeyPlaces, purpose: Purpose, env: &Environment<'_>) {
        let plan = self.plan(keys, purpose, env);
        for key in plan.nowhere {
            self.strand(key as usize, env);
        }
        for bundle in plan.bundles {
            self.send_later(bundle, purpose, env);
        }
    }

    /// Like [`Read::ask_for`], for keys that have just failed with this error, which they keep if they cannot be asked
    /// for again. Without an error they then wait for the deadline: an answer may still arrive.
    pub(super) fn retry(
        &mut self,
        keys: KeyPlaces,
        purpose: Purpose,
        env: &Environment<'_>,
        error: impl Fn() -> Option<ClientError>,
    ) {
        if keys.is_empty() {
            return;
        }
        let plan = self.plan(keys, purpose, env);
        for key in plan.nowhere {
            let in_flux = self.parts[usize::from(self.states[key as usize].part)].in_flux;
            match in_flux {
                true => self.strand(key as usize, env),
                false => self.give_up_keys(&[key], error(), env),
            }
        }
        for bundle in plan.bundles {
            if purpose == Purpose::Retry && !env.steering.take_retry() {
                self.give_up_keys(&bundle.keys, error(), env);
                continue;
            }
            self.send_later(bundle, purpose, env);
        }
    }

    fn give_up_keys(&mut self, keys: &[u32], error: Option<ClientError>, env: &Environment<'_>) {
        let Some(error) = error else { return };
        for &key in keys {
            self.give_up_key(key as usize, error.clone(), env);
        }
    }

    /// Asks other nodes as well for the keys of a slow sub-request.
    pub(super) fn hedge(&mut self, id: AskId, env: &Environment<'_>) {
        let unanswered = |&&key: &&u32| self.states[key as usize].answer.is_none();
        let keys = self.asks.get(id).purpose.keys.iter();
        let keys = keys.filter(unanswered).copied().collect();
        for bundle in self.plan(keys, Purpose::Hedge, env).bundles {
            if env.steering.take_hedge() {
                self.send_later(bundle, Purpose::Hedge, env);
            }
        }
    }

    /// Bundles keys by node. A bundle is no larger than a sub-request.
    fn plan(&self, keys: KeyPlaces, purpose: Purpose, env: &Environment<'_>) -> Plan {
        let mut plan = Plan::default();
        let Plan { bundles, nowhere } = &mut plan;
        let part_of = |key: u32| self.states[key as usize].part;
        if let [key] = keys[..] {
            match self.member_for(key, purpose, env) {
                Some(member) => bundles.push(Bundle {
                    member,
                    part: part_of(key),
                    keys,
                }),
                None => nowhere.push(key),
            }
            return plan;
        }
        let chosen = self.members_for(&keys, purpose, env);
        let members = self.directory.members().len();
        let keys_max = match self.computation {
            None => SUB_REQUEST_KEYS_MAX,
            Some(_) => COMPUTATION_KEYS_MAX,
        };
        // Mostly enough for a bundle, whose keys then take one allocation.
        let keys_of_bundle = (2 * keys.len() / (self.parts.len() * members).max(1)).min(keys_max);
        // The open bundle of each part and node, counted from 1.
        let mut open = SmallVec::<[u32; 16]>::from_elem(0, self.parts.len() * members);
        for (key, member) in keys.into_iter().zip(chosen) {
            let Some(member) = member else {
                nowhere.push(key);
                continue;
            };
            let part = part_of(key);
            let open = &mut open[usize::from(part) * members + member as usize];
            let full = |bundle: &Bundle| bundle.keys.len() == keys_max;
            if *open == 0 || full(&bundles[*open as usize - 1]) {
                bundles.push(Bundle {
                    member,
                    part,
                    keys: KeyPlaces::with_capacity(keys_of_bundle),
                });
                *open = bundles.len() as u32;
            }
            bundles[*open as usize - 1].keys.push(key);
        }
        plan
    }

    fn send_later(&mut self, bundle: Bundle, purpose: Purpose, env: &Environment<'_>) {
        let Bundle { member, part, keys } = bundle;
        let node = self.directory.members()[member as usize].id;
        for &key in &keys {
            let state = &mut self.states[key as usize];
            debug_assert!(state.answer.is_none() && !state.waiting && !state.asked.contains(&node));
            state.pending += 1;
            state.asked.push(node);
        }
        // How long a look-up takes says nothing about a computation.
        let is_look_up = self.computation.is_none();
        let may_hedge = self.options.hedge && purpose != Purpose::Hedge && is_look_up;
        let late_us = may_hedge.then(|| env.steering.hedge_threshold_us(keys.len()));
        let sub = Sub {
            part,
            generation: self.parts[usize::from(part)].generation,
            keys,
            purpose,
            learnt: purpose != Purpose::First || !is_look_up,
        };
        self.asks.plan(node, sub, late_us.flatten());
    }

    /// No node is left to ask for a key. It waits if its store is in flux, else it fails.
    fn strand(&mut self, key: usize, env: &Environment<'_>) {
        let state = &mut self.states[key];
        let part = &self.parts[usize::from(state.part)];
        if part.in_flux {
            state.stranded = true;
            self.waiting += usize::from(!std::mem::replace(&mut state.waiting, true));
            return;
        }
        let error = ClientError::NoReplica {
            store: part.name.clone(),
            partition: state.partition,
        };
        self.give_up_key(key, error, env);
    }

    pub(super) fn give_up_key(&mut self, key: usize, error: ClientError, env: &Environment<'_>) {
        env.steering.counts.keys_failed.fetch_add(1, Relaxed);
        self.fail(key, error);
    }

    /// Begins the backoff, if keys wait.
    pub(super) fn rest(&mut self, env: &Environment<'_>) {
        if self.waiting > 0 {
            self.backoff.begin(env.now_us);
        }
    }

    /// Asks again for the waiting keys, from the nodes that should have them by now.
    pub(super) fn resume(&mut self, env: &Environment<'_>) {
        self.backoff.end();
        let mut keys = KeyPlaces::new();
        for (place, state) in self.states.iter_mut().enumerate() {
            if std::mem::take(&mut state.waiting) {
                state.asked.clear();
                keys.push(place as u32);
            }
        }
        self.waiting = 0;
        self.ask_for(keys, Purpose::Redirect, env);
    }

    /// Takes a newer directory. If it changes the version of a store in flux, all stores whose version it changes are read again
    /// completely: some may have been swapped together, so the versions of a request are always those of one directory.
    pub(super) fn adopt(&mut self, env: &Environment<'_>) {
        let directory = env.latest;
        let is_newer = !Arc::ptr_eq(&self.directory, directory);
        if is_newer {
            let (before, now) = (self.directory.topology().partitions, directory.topology().partitions);
            self.directory = Arc::clone(directory);
            if before != now {
                let keyed = self.states.iter_mut().zip(self.keys.iter());
                keyed.for_each(|(state, key)| state.partition = now.partition_of(key.slot()));
            }
        }
        // Even if it is not newer: a store that was not in flux when the directory was taken may be now.
        let is_changed = |part: &Part| {
            let store = directory.store(part.name.as_str());
            store.map(|(_, store)| (store.id, version_of(store, part.is_canary))) != Some((part.id, Some(part.version)))
        };
        if self.parts.iter().any(|part| part.in_flux && is_changed(part)) {
            self.parts.iter_mut().for_each(|part| part.in_flux |= is_changed(part));
            self.repins += 1;
        }
        for place in 0..self.parts.len() {
            let part = &mut self.parts[place];
            if !part.in_flux {
                continue;
            }
            let store = directory.store(part.name.as_str()).map(|(_, store)| store);
            let Some(store) = store else {
                let store = part.name.as_str().into();
                self.give_up_part(place, &ClientError::UnknownStore { store }, env);
                continue;
            };
            let Some(version) = version_of(store, part.is_canary) else {
                let store = part.name.clone();
                self.give_up_part(place, &ClientError::NoVersion { store }, env);
                continue;
            };
            if (version, store.id) != (part.version, part.id) {
                match &self.handing_out {
                    // Answers of its version were handed out: the others are asked for at that version, as long as nodes have it.
                    Some(handing_out) if handing_out.has_begun => part.in_flux = false,
                    _ => self.repin(place, (store.id, version), env),
                }
            }
        }
        if is_newer && self.backoff.is_on() {
            self.resume(env);
        }
    }

    /// Reads all keys of a part again, at another version, or from another store with the same name.
    fn repin(&mut self, place: usize, (id, version): (u16, VersionNumber), env: &Environment<'_>) {
        env.steering.counts.repins.fetch_add(1, Relaxed);
        let part = &mut self.parts[place];
        if self.repins > REPINS_MAX {
            let error = ClientError::VersionGone {
                store: part.name.clone(),
                version: part.version,
            };
            return self.give_up_part(place, &error, env);
        }
        part.id = id;
        part.version = version;
        part.generation += 1;
        part.in_flux = false;
        let keys = self.forget_answers(place);
        self.ask_for(keys, Purpose::Redirect, env);
    }

    /// Forgets what was asked and answered for the keys of a part, and returns these keys.
    fn forget_answers(&mut self, place: usize) -> KeyPlaces {
        self.asks.cancel_planned(|sub| usize::from(sub.part) == place);
        let mut keys = KeyPlaces::new();
        for (key, state) in self.states.iter_mut().enumerate() {
            if usize::from(state.part) != place {
                continue;
            }
            if let Some(answer) = state.answer.take() {
                self.unanswered += 1;
                if let Ok(Some(value)) = answer {
                    self.room.give_back(value.len());
                }
            }
            state.pending = 0;
            state.stranded = false;
            self.waiting -= usize::from(std::mem::replace(&mut state.waiting, false));
            state.asked.clear();
            keys.push(key as u32);
        }
        if let Some(handing_out) = &mut self.handing_out {
            handing_out.forget(|key| usize::from(self.states[key].part) == place);
        }
        keys
    }

    /// Stops reading a store. Its answered keys stay, as they are all from one version, unless those of other stores may have to be read
    /// at later versions.
    fn give_up_part(&mut self, place: usize, error: &ClientError, env: &Environment<'_>) {
        let part = &mut self.parts[place];
        part.in_flux = false;
        part.generation += 1;
        let has_begun = self
            .handing_out
            .as_ref()
            .is_some_and(|handing_out| handing_out.has_begun);
        match self.parts.len() > 1 && !has_begun {
            true => drop(self.forget_answers(place)),
            false => self.asks.cancel_planned(|sub| usize::from(sub.part) == place),
        }
        for key in 0..self.states.len() {
            if usize::from(self.states[key].part) == place && self.states[key].answer.is_none() {
                self.give_up_key(key, error.clone(), env);
            }
        }
    }
}
