//! Puts requests into a window: their keys are found and checked, and begin to be loaded.
//!
//! A request is added whole or not at all. Its keys are probed in the catalog of the turn, those that are
//! not held here are counted as remote, and a request that this process may not pass on is refused
//! before it waits for anything.

use std::time::Instant;

use fondaco_catalog::{Canary, Catalog, NOT_OPEN};
use fondaco_model::{Slot, SlotPrefix};
use fondaco_resp::Arguments;
use fondaco_resp::command::CommandId;

use super::{Key, KeyPlace, Request, Window};
use crate::server::commands::look_ups::{LookUp, LookUps};
use crate::server::commands::operation::Combined;
use crate::server::queue::is_replica;
use crate::server::refusal;
use crate::server::session::Admission;
use crate::server::versions::{Pinned, place_in, place_of};

/// The lengths of a window before a request was added to it.
#[derive(Clone, Copy)]
struct Lengths {
    keys: usize,
    bytes: usize,
    remote: usize,
    canary: usize,
}

impl Window {
    /// Adds a look-up.
    ///
    /// # Errors
    /// The error to answer instead: no such store, no right to read it, another node to go to.
    #[inline]
    pub(in crate::server) fn add(
        &mut self,
        command: CommandId,
        look_ups: LookUps,
        arguments: &Arguments,
        buffer: &[u8],
        admission: &Admission<'_>,
    ) -> Result<(), String> {
        self.steered = look_ups.steered;
        let before = self.lengths();
        for at in look_ups.keys {
            let wire_key = arguments.get(at, buffer).unwrap_or_default();
            if let Err(error) = self.add_key(wire_key, before.keys, admission) {
                self.return_to(before);
                return Err(error);
            }
        }
        if self.remote > before.remote
            && !self.may_ask_others(admission)
            && let Err(error) = self.check_remote(before, admission)
        {
            self.return_to(before);
            return Err(error);
        }
        if admission.catalog.has_read_quotas()
            && let Err(error) = self.charge(before, admission)
        {
            self.return_to(before);
            return Err(error);
        }
        self.requests.push(Request {
            command,
            look_up: look_ups.look_up,
            reply: look_ups.reply,
            keys_end: self.keys.len() as u32,
            timeout_ms: look_ups.limit.deadline_ms,
            lists_late: look_ups.limit.lists_late,
            rate: None,
        });
        Ok(())
    }

    #[inline]
    fn lengths(&self) -> Lengths {
        Lengths {
            keys: self.keys.len(),
            bytes: self.key_bytes.len(),
            remote: self.remote,
            canary: self.canary,
        }
    }

    fn return_to(&mut self, before: Lengths) {
        self.keys.truncate(before.keys);
        self.key_bytes.truncate(before.bytes);
        self.remote = before.remote;
        self.canary = before.canary;
        self.steered = None;
    }

    /// Adds a key of the request whose keys begin at this place.
    #[inline]
    fn add_key(&mut self, wire_key: &[u8], first: usize, admission: &Admission<'_>) -> Result<(), String> {
        let catalog = admission.catalog;
        let Some(colon) = memchr::memchr(b':', wire_key) else {
            return Err(refusal::no_colon(wire_key));
        };
        let (name, key) = (&wire_key[..colon], &wire_key[colon + 1..]);
        let store = match self.keys.last() {
            // As a rule the same store as for the key before.
            Some(last) if catalog.stores()[last.store as usize].name.as_str().as_bytes() == name => last.store,
            _ => admission.session.readable_store(catalog, name)?,
        };
        if key.is_empty() {
            return Err(refusal::EMPTY_KEY.into());
        }
        let canary = catalog.canary(store);
        let canary = canary.filter(|canary| self.takes_canary(canary, key, (store, first), catalog));
        let place = match canary {
            None if self.is_all_with_nodes(store, catalog) => KeyPlace::Nodes,
            None => place_of(key, store, catalog)?,
            Some(canary) => place_in(canary.place, key, store, catalog)?,
        };
        self.canary += usize::from(canary.is_some());
        self.push_key(key, store, place, canary.is_some(), catalog);
        Ok(())
    }

    /// Whether the current version of a store is not open here, as on a router, and the last key has shown that other nodes may be asked
    /// for it.
    #[inline]
    fn is_all_with_nodes(&self, store: u16, catalog: &Catalog) -> bool {
        let is_like_it = |last: &Key| last.store == store && !last.is_canary && matches!(last.place, KeyPlace::Nodes);
        catalog.current(store) == NOT_OPEN && self.keys.last().is_some_and(is_like_it)
    }

    /// Whether a key of a store with a canary is read from the canary's version: all keys of the store in a request are, or none. A
    /// node that lacks that version reads the current one.
    #[cold]
    fn takes_canary(&mut self, canary: &Canary, key: &[u8], (store, first): (u16, usize), catalog: &Catalog) -> bool {
        self.watched_since.get_or_insert_with(Instant::now);
        let before = self.keys[first..].iter().find(|before| before.store == store);
        let is_behind = || canary.place == NOT_OPEN && catalog.current(store) != NOT_OPEN;
        before.map_or_else(|| canary.takes(key) && !is_behind(), |before| before.is_canary)
    }

    #[inline]
    fn push_key(&mut self, key: &[u8], store: u16, place: KeyPlace, is_canary: bool, catalog: &Catalog) {
        match place {
            KeyPlace::Version { version, .. } => self.has_events |= catalog.overlay(version).is_some(),
            _ => self.remote += 1,
        }
        let start = self.key_bytes.len() as u32;
        self.key_bytes.extend_from_slice(key);
        self.keys.push(Key {
            start,
            end: self.key_bytes.len() as u32,
            store,
            place,
            is_canary,
        });
    }

    /// Adds a `FONDACO.READ`: a look-up in the version that it names, of the store with the number that it
    /// names, which is never forwarded.
    ///
    /// # Errors
    /// The error to answer instead: arguments that are malformed, no right to read the store, a version that is not open.
    pub(in crate::server) fn add_pinned(
        &mut self,
        arguments: &Arguments,
        buffer: &[u8],
        admission: &Admission<'_>,
    ) -> Result<(), String> {
        let argument = |at| arguments.get(at, buffer).unwrap_or_default();
        let Pinned {
            store,
            version,
            timeout_ms,
            wants_rate,
            ..
        } = Pinned::parse(argument, admission.session, admission.catalog)?;
        if (5..arguments.len()).any(|at| argument(at).is_empty()) {
            return Err(refusal::EMPTY_KEY.into());
        }
        if admission.catalog.canary(store).is_some() {
            self.watched_since.get_or_insert_with(Instant::now);
        }
        for at in 5..arguments.len() {
            let (key, catalog) = (argument(at), admission.catalog);
            let probe = catalog.version(version).probe(key);
            self.push_key(key, store, KeyPlace::Version { version, probe }, false, catalog);
        }
        self.requests.push(Request {
            command: CommandId::FondacoRead,
            look_up: LookUp::Value,
            reply: Combined::Array,
            keys_end: self.keys.len() as u32,
            timeout_ms,
            lists_late: false,
            rate: wants_rate.then(|| admission.forwarder.request_rate()),
        });
        Ok(())
    }

    /// Whether the request that was added last may surely be passed on to other nodes. The room for it is looked at once for all
    /// requests of a window: they are added without a pause.
    #[inline]
    fn may_ask_others(&mut self, admission: &Admission<'_>) -> bool {
        let remote_max = *self.remote_max.get_or_insert_with(|| admission.forwarder.keys_left());
        self.remote <= remote_max && !admission.session.goes_where_keys_are()
    }

    /// Whether the request that was added last may be passed on to other nodes.
    #[cold]
    fn check_remote(&self, before: Lengths, admission: &Admission<'_>) -> Result<(), String> {
        let (catalog, session) = (admission.catalog, admission.session);
        let keys = &self.keys[before.keys..];
        if session.goes_where_keys_are()
            && let Some(membership) = catalog.membership()
            && !membership.is_router()
        {
            let slots = keys.iter().map(|key| self.slot(key, catalog));
            // A replica may have to ask others, and is the right one to do so.
            let is_replica = |key: &Key| {
                let partition = membership.topology().partitions.partition_of(self.slot(key, catalog));
                let store = catalog.versioned(key.store);
                store.is_some_and(|store| is_replica(membership, store, partition))
            };
            if let Some(slot) = only(slots)
                && !keys.iter().any(is_replica)
            {
                let store = &catalog.stores()[keys[0].store as usize].name;
                return Err(refusal::moved(membership, store, slot, admission.forwarder));
            }
        }
        admission.forwarder.check_room(self.remote)
    }

    /// Charges the quotas of stores with the keys of the request that was added last.
    #[cold]
    fn charge(&self, before: Lengths, admission: &Admission<'_>) -> Result<(), String> {
        let mut rest = &self.keys[before.keys..];
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|key| key.store == first.store).count();
            let (own, others) = rest.split_at(run);
            admission.forwarder.charge(admission.catalog, first.store, own.len())?;
            rest = others;
        }
        Ok(())
    }

    fn slot(&self, key: &Key, catalog: &Catalog) -> Slot {
        let bytes = &self.key_bytes[key.start as usize..key.end as usize];
        SlotPrefix::of(&catalog.stores()[key.store as usize].name).slot(bytes)
    }
}

/// The one value of all items; `None` if they differ.
fn only<T: PartialEq>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.all(|item| item == first).then_some(first)
}
