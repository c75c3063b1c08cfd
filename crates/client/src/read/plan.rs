//! Who is asked for which keys: groups them by store and node, within what budgets allow.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fondaco_model::VersionNumber;
use fondaco_model::cluster::TopologyStore;
use smallvec::SmallVec;

use super::choice::Candidate;
use super::directory::{Directory, Member};
use super::machine::{Read, SUB_REQUEST_KEYS_MAX};
use super::state::{KeyPlaces, NEVER, Purpose, Stage, Sub};
use super::steering::Steering;
use crate::error::ClientError;

/// How long keys wait at first, when no node has them: a topology is on its way.
pub(super) const PAUSE_FIRST_US: u64 = 10_000;
const PAUSE_LAST_US: u64 = 160_000;
/// How often the versions of stores may change under one request before it gives up.
const REPINS_MAX: u32 = 16;

/// Keys that one node is to be asked for.
struct Group {
    member: u32,
    part: u16,
    keys: KeyPlaces,
}

impl Read {
    /// Plans sub-requests for keys that are not answered. Those that nobody can be asked for fail, or,
    /// where a newer topology may help, wait.
    pub(super) fn plan(&mut self, keys: KeyPlaces, purpose: Purpose, steering: &Steering) {
        let mut nowhere = KeyPlaces::new();
        let groups = self.group(keys, purpose, &mut nowhere);
        for key in nowhere {
            self.strand(key as usize, steering);
        }
        for group in groups {
            self.send_later(group, purpose);
        }
    }

    /// As [`Read::plan`], for keys that have just failed with this error, which is theirs if they cannot
    /// be asked for again. Without an error they then wait for the deadline: something may still come.
    pub(super) fn retry(
        &mut self,
        keys: KeyPlaces,
        purpose: Purpose,
        steering: &Steering,
        error: impl Fn() -> Option<ClientError>,
    ) {
        if keys.is_empty() {
            return;
        }
        let mut nowhere = KeyPlaces::new();
        let groups = self.group(keys, purpose, &mut nowhere);
        for key in nowhere {
            let in_flux = self.parts[usize::from(self.states[key as usize].part)].in_flux;
            match in_flux {
                true => self.strand(key as usize, steering),
                false => self.give_up_keys(&[key], error(), steering),
            }
        }
        for group in groups {
            if purpose == Purpose::Retry && !steering.retries.take() {
                steering.counts.retries_denied.fetch_add(1, Relaxed);
                self.give_up_keys(&group.keys, error(), steering);
                continue;
            }
            self.send_later(group, purpose);
        }
    }

    fn give_up_keys(&mut self, keys: &[u32], error: Option<ClientError>, steering: &Steering) {
        let Some(error) = error else { return };
        for &key in keys {
            self.give_up_key(key as usize, error.clone(), steering);
        }
    }

    /// Plans to ask other nodes besides for the keys of a sub-request that takes long.
    pub(super) fn hedge(&mut self, sub: usize, steering: &Steering) {
        let unanswered = |&&key: &&u32| self.states[key as usize].answer.is_none();
        let keys = self.subs[sub].keys.iter().filter(unanswered).copied().collect();
        let groups = self.group(keys, Purpose::Hedge, &mut KeyPlaces::new());
        for group in groups {
            match steering.hedges.take() {
                true => self.send_later(group, Purpose::Hedge),
                false => _ = steering.counts.hedges_denied.fetch_add(1, Relaxed),
            }
        }
    }

    /// Divides keys by whom to ask for them. A group may be as large as a sub-request, no larger.
    fn group(&self, keys: KeyPlaces, purpose: Purpose, nowhere: &mut KeyPlaces) -> SmallVec<[Group; 3]> {
        let members = self.directory.members().len();
        let mut groups = SmallVec::<[Group; 3]>::new();
        // The store of the part that the key before belongs to.
        let mut store_of = None;
        let mut choose = |key: u32| {
            let part = self.states[key as usize].part;
            let store = match store_of {
                Some((known, store)) if known == part => store,
                _ => self.directory.store(self.parts[usize::from(part)].name.as_str())?.1,
            };
            store_of = Some((part, store));
            self.choose(key as usize, store, purpose)
        };
        if let [key] = keys[..] {
            match choose(key) {
                Some(member) => groups.push(Group {
                    member: member as u32,
                    part: self.states[key as usize].part,
                    keys,
                }),
                None => nowhere.push(key),
            }
            return groups;
        }
        // The open group of each part and node, counted from 1.
        let mut open = SmallVec::<[u32; 16]>::from_elem(0, self.parts.len() * members);
        for key in keys {
            let Some(member) = choose(key) else {
                nowhere.push(key);
                continue;
            };
            let part = self.states[key as usize].part;
            let open = &mut open[usize::from(part) * members + member];
            let full = |group: &Group| group.keys.len() == SUB_REQUEST_KEYS_MAX;
            if *open == 0 || full(&groups[*open as usize - 1]) {
                groups.push(Group {
                    member: member as u32,
                    part,
                    keys: KeyPlaces::new(),
                });
                *open = groups.len() as u32;
            }
            groups[*open as usize - 1].keys.push(key);
        }
        groups
    }

    /// The place among the members of the node to ask for a key: of those not asked yet, one that is well,
    /// and not late if another is not; in need one that is late, and, unless it is a hedge, one that is ill.
    fn choose(&self, key: usize, store: &TopologyStore, purpose: Purpose) -> Option<usize> {
        let state = &self.states[key];
        let members = self.directory.members();
        let mut prompt = SmallVec::<[usize; 4]>::new();
        let mut candidates = SmallVec::<[Candidate; 4]>::new();
        let (mut late, mut ill) = (None, None);
        for place in self.directory.replicas(store, state.partition) {
            let member: &Member = &members[place];
            if state.asked.contains(&member.id) {
            } else if !member.is_well() {
                if ill.is_none_or(|ill: usize| !members[ill].live && member.live) {
                    ill = Some(place);
                }
            } else if member.health.is_late(self.now_us) {
                late = late.or(Some(place));
            } else {
                prompt.push(place);
                candidates.push(Candidate {
                    node: member.id,
                    near: member.near,
                });
            }
        }
        match prompt[..] {
            [] if purpose == Purpose::Hedge => late,
            [] => late.or(ill),
            [one] => Some(one),
            _ => {
                let chosen = self.options.choice.choose(&self.keys[key], self.turn, &candidates);
                debug_assert!(chosen < prompt.len(), "a choice is one of the candidates");
                Some(prompt[chosen.min(prompt.len() - 1)])
            }
        }
    }

    fn send_later(&mut self, group: Group, purpose: Purpose) {
        let Group { member, part, keys } = group;
        let node = self.directory.members()[member as usize].id;
        for &key in &keys {
            let state = &mut self.states[key as usize];
            debug_assert!(state.answer.is_none() && !state.waiting && !state.asked.contains(&node));
            state.pending += 1;
            state.asked.push(node);
        }
        self.subs.push(Sub {
            node,
            part,
            generation: self.parts[usize::from(part)].generation,
            keys,
            purpose,
            stage: Stage::Planned,
            sent_us: NEVER,
            hedge_at_us: NEVER,
            give_up_at_us: NEVER,
            learnt: purpose != Purpose::First,
        });
    }

    /// Nobody is left to be asked for a key. It waits if its store is in flux, else it fails.
    fn strand(&mut self, key: usize, steering: &Steering) {
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
        self.give_up_key(key, error, steering);
    }

    pub(super) fn give_up_key(&mut self, key: usize, error: ClientError, steering: &Steering) {
        steering.counts.keys_failed.fetch_add(1, Relaxed);
        self.fail(key, error);
    }

    /// Sets the timer for keys that wait, if any do and it is not set.
    pub(super) fn rest(&mut self, now_us: u64) {
        if self.waiting > 0 && self.resume_at_us == NEVER {
            self.resume_at_us = now_us.saturating_add(self.pause_us);
            self.pause_us = (self.pause_us * 2).min(PAUSE_LAST_US);
            self.refresh = true;
        }
    }

    /// Asks again for the keys that wait, of whoever is to have them by now.
    pub(super) fn resume(&mut self, steering: &Steering) {
        self.resume_at_us = NEVER;
        let mut keys = KeyPlaces::new();
        for (place, state) in self.states.iter_mut().enumerate() {
            if std::mem::take(&mut state.waiting) {
                state.asked.clear();
                keys.push(place as u32);
            }
        }
        self.waiting = 0;
        self.plan(keys, Purpose::Redirect, steering);
    }

    /// Takes a newer directory. Stores in flux whose version it changes are asked for anew, all of them.
    pub(super) fn adopt(&mut self, directory: &Arc<Directory>, steering: &Steering) {
        let is_newer = !Arc::ptr_eq(&self.directory, directory);
        if is_newer {
            self.directory = Arc::clone(directory);
        }
        // Also when it is not newer: a store that was not in flux when it was taken may be now.
        for place in 0..self.parts.len() {
            let part = &mut self.parts[place];
            if !part.in_flux {
                continue;
            }
            let store = directory.store(part.name.as_str()).map(|(_, store)| store);
            let Some(store) = store else {
                let store = part.name.as_str().into();
                self.give_up_part(place, &ClientError::UnknownStore { store }, steering);
                continue;
            };
            let Some(version) = store.current else {
                let store = part.name.clone();
                self.give_up_part(place, &ClientError::NoVersion { store }, steering);
                continue;
            };
            if (version, store.id) != (part.version, part.id) {
                self.repin(place, (store.id, version), steering);
            }
        }
        if is_newer && self.resume_at_us != NEVER {
            self.resume(steering);
        }
    }

    /// Asks for all keys of a part anew, at another version, or of another store of the name.
    fn repin(&mut self, place: usize, (id, version): (u16, VersionNumber), steering: &Steering) {
        self.repins += 1;
        steering.counts.repins.fetch_add(1, Relaxed);
        let part = &mut self.parts[place];
        if self.repins > REPINS_MAX {
            let error = ClientError::VersionGone {
                store: part.name.clone(),
                version: part.version,
            };
            return self.give_up_part(place, &error, steering);
        }
        part.id = id;
        part.version = version;
        part.generation += 1;
        part.in_flux = false;
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
        self.plan(keys, Purpose::Redirect, steering);
    }

    /// Nothing more is asked of a store. What was answered stays: it is all from one version.
    fn give_up_part(&mut self, place: usize, error: &ClientError, steering: &Steering) {
        let part = &mut self.parts[place];
        part.in_flux = false;
        part.generation += 1;
        for key in 0..self.states.len() {
            if usize::from(self.states[key].part) == place && self.states[key].answer.is_none() {
                self.give_up_key(key, error.clone(), steering);
            }
        }
    }
}
