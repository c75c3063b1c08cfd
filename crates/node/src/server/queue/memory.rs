//! The source *memory*: look-ups of keys of versioned stores that this node's replica has in memory, and that one replica
//! may answer.
//!
//! Look-ups of one key that a client has sent one behind the other wait until the input is used up, or there are
//! [`READS_MAX`]. Writes of other keys may stand between them. They are then looked up together, so that memory serves them
//! at the same time, and their values go from there into the replies. A key with a write of the same connection under way,
//! or before it in the input, is not looked up here: its reader has to see that write.

use bytes::Bytes;
use fondaco_catalog::{Catalog, StoreId, VersionedStore};
use fondaco_protocol::now_unix_ms;
use fondaco_replica::Recalled;
use fondaco_resp::command::{CommandId, resolve};
use fondaco_resp::{Arguments, Limits, Parse, Reply, parse_request};
use smallvec::{SmallVec, smallvec};

use crate::server::buffers::FREE_BYTES;
use crate::server::commands::look_ups::{LookUp, LookUps, Said};
use crate::server::commands::operation::{Asked, Combined, Operation};
use crate::server::session::Admission;
use crate::server::window::{OUTPUT_BYTES_MAX, Tally};
use crate::single_value::value_of;

/// How many keys are looked up at once.
const READS_MAX: usize = 32;

/// Look-ups that wait to be done together, of keys of one store.
#[derive(Default)]
pub(in crate::server) struct MemoryReads {
    /// The place of the store in the catalog of the turn.
    store: u16,
    reads: Vec<Read>,
    /// The wire keys of all of them.
    key_bytes: Vec<u8>,
}

/// One look-up of one key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub(super) command: CommandId,
    pub(super) look_up: LookUp,
    /// The bytes of its request.
    pub(super) bytes: usize,
    /// Its place in the queue, if it is in the queue.
    pub(super) slot: u64,
    key_start: usize,
    key_end: usize,
}

/// Look-ups that were added.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Added {
    /// The index of the first of them.
    pub(in crate::server) from: usize,
    /// The length of their requests; 0 if none was added.
    pub(in crate::server) bytes: usize,
}

impl MemoryReads {
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    pub(in crate::server) fn is_full(&self) -> bool {
        self.reads.len() >= READS_MAX
    }

    /// Whether look-ups wait that are of another store than the one at this place in the catalog of the turn.
    pub(in crate::server) fn are_of_another_store(&self, place: u16) -> bool {
        !self.is_empty() && self.store != place
    }

    /// Whether a look-up of a key waits.
    pub(in crate::server) fn contains(&self, wire_key: &[u8]) -> bool {
        self.reads.iter().any(|read| self.wire_key(read) == wire_key)
    }

    /// Adds the first request of the input, of this command and length, and the `GET`s behind it, if memory may answer them.
    /// The store at `place` is that of its key, and of the look-ups that wait already. `arguments` has the parsed request,
    /// and is empty afterwards. `is_free` says whether no write of a key is under way.
    #[expect(
        clippy::too_many_arguments,
        reason = "parts of the connection, which is borrowed in part elsewhere"
    )]
    pub(in crate::server) fn add(
        &mut self,
        (command, bytes): (CommandId, usize),
        look_ups: &LookUps,
        place: u16,
        arguments: &mut Arguments,
        requests: &[u8],
        limits: &Limits,
        admission: &Admission<'_>,
        is_free: impl Fn(&[u8]) -> bool,
    ) -> Added {
        let from = self.reads.len();
        let wire_key = arguments.get(look_ups.keys.start, requests).unwrap_or_default();
        let Some(store) = readable(place, wire_key, admission).filter(|_| is_free(wire_key)) else {
            return Added { from, bytes: 0 };
        };
        debug_assert!(!self.is_full() && (self.is_empty() || place == self.store));
        if !admission.forwarder.may_recall(admission.catalog, store) {
            return Added { from, bytes: 0 };
        }
        self.store = place;
        self.push(command, look_ups.look_up, bytes, wire_key);
        let mut end = bytes;
        while !self.is_full()
            && let rest = &requests[end..]
            && let Ok(Parse::Complete { consumed }) = parse_request(rest, limits, arguments)
            && resolve(arguments, rest).is_ok_and(|spec| spec.id == CommandId::Get)
            && let Some(wire_key) = arguments.get_in_buffer(1, rest).filter(|key| is_free(key))
            && is_key_of(store, wire_key)
        {
            self.push(CommandId::Get, LookUp::Value, consumed, wire_key);
            end += consumed;
        }
        arguments.clear();
        Added { from, bytes: end }
    }

    fn push(&mut self, command: CommandId, look_up: LookUp, bytes: usize, wire_key: &[u8]) {
        let key_start = self.key_bytes.len();
        self.key_bytes.extend_from_slice(wire_key);
        self.reads.push(Read {
            command,
            look_up,
            bytes,
            slot: 0,
            key_start,
            key_end: self.key_bytes.len(),
        });
    }

    fn wire_key(&self, read: &Read) -> &[u8] {
        &self.key_bytes[read.key_start..read.key_end]
    }

    /// The store of all of them; `None` if there are none.
    pub(in crate::server) fn store<'a>(&self, catalog: &'a Catalog) -> Option<&'a VersionedStore> {
        // Of no look-ups the place says nothing: the catalog may have no store.
        let place = (!self.is_empty()).then_some(self.store)?;
        catalog.versioned(place).map(|store| &**store)
    }

    pub(super) fn all(&self) -> &[Read] {
        &self.reads
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Read> {
        self.reads.iter_mut()
    }

    /// Writes the replies to the look-ups, from the first on, until memory does not know one, or there is enough to be sent.
    /// Those that are answered are removed, and returned.
    pub(in crate::server) fn answer(&mut self, admission: &Admission<'_>, reply: &mut Reply<'_>) -> Answered {
        let (start, mut answered) = (reply.buffer.len(), Answered::default());
        self.look_up(0, admission, |index, recalled, store| {
            // One before it may be of a partition that this node does not own.
            let is_next = index == answered.requests;
            let look_up = self.reads[index].look_up;
            let Some(is_absent) = is_next.then(|| write(look_up, recalled, store, reply)).flatten() else {
                return false;
            };
            answered.count(&self.reads[index], is_absent);
            reply.buffer.len() - start <= OUTPUT_BYTES_MAX
        });
        match answered.requests == self.reads.len() {
            true => self.clear(),
            false => drop(self.reads.drain(..answered.requests)),
        }
        answered
    }

    /// Looks up the keys from an index on. `take` gets the index of each key that this node may answer for, in order, with
    /// the state of the key in memory, and returns whether it wants more.
    #[inline]
    pub(super) fn look_up(
        &self,
        from: usize,
        admission: &Admission<'_>,
        mut take: impl FnMut(usize, Recalled<'_>, &VersionedStore) -> bool,
    ) {
        let catalog = admission.catalog;
        let Some(store) = self.store(catalog) else { return };
        let name_bytes = store.name.as_str().len() + 1;
        let keys = self.reads[from..].iter().map(|read| &self.wire_key(read)[name_bytes..]);
        admission.forwarder.recall(catalog, store, keys, |index, recalled| {
            take(from + index, recalled, store)
        });
    }

    /// The same request for the replicas of its key.
    pub(super) fn asked(&self, read: &Read) -> Asked {
        Asked {
            keys: smallvec![(
                Bytes::copy_from_slice(self.wire_key(read)),
                Operation::LookUp(read.look_up)
            )],
            reply: Combined::Only,
        }
    }

    pub(in crate::server) fn clear(&mut self) {
        self.reads.clear();
        self.key_bytes.clear();
    }
}

/// Requests that were answered from memory.
#[derive(Debug, Default)]
pub(in crate::server) struct Answered {
    /// By command.
    pub(in crate::server) commands: SmallVec<[(CommandId, u64); 2]>,
    pub(in crate::server) requests: usize,
    pub(in crate::server) tally: Tally,
}

impl Answered {
    fn count(&mut self, read: &Read, is_absent: bool) {
        self.requests += 1;
        self.tally.hot += 1;
        self.tally.absent += u64::from(is_absent);
        match self.commands.last_mut() {
            Some((last, count)) if *last == read.command => *count += 1,
            _ => self.commands.push((read.command, 1)),
        }
    }
}

/// Writes the reply to one look-up: whether the key has no value. `None`, and nothing is written, if it needs more than
/// memory.
#[inline(always)]
pub(super) fn write(
    look_up: LookUp,
    recalled: Recalled<'_>,
    store: &VersionedStore,
    reply: &mut Reply<'_>,
) -> Option<bool> {
    let current;
    let (value, expires_unix_ms, now_unix_ms) = match recalled {
        Recalled::Plain(value) => (Some(value), None, 0),
        Recalled::Absent => (None, None, 0),
        Recalled::Record(record) => {
            // Most records do not expire, and need no clock.
            let now_unix_ms = record.next_expiry_unix_ms().map_or(0, |_| now_unix_ms());
            // An error is reported where requests are carried out one by one.
            current = value_of(&record, store, now_unix_ms).ok()?;
            let expires_unix_ms = current.as_ref().and_then(|current| current.expires_unix_ms);
            let value = current.as_ref().map(|current| &current.value[..]);
            (value, expires_unix_ms, now_unix_ms)
        }
        Recalled::Unknown => return None,
    };
    let said = look_up.of(value, expires_unix_ms, now_unix_ms);
    // A long one may have to wait for memory.
    if matches!(said, Said::Bulk(bytes) if bytes.len() as u64 > FREE_BYTES) {
        return None;
    }
    said.write(reply);
    Some(value.is_none())
}

/// An `MGET` that was answered from memory.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct MGet {
    pub(in crate::server) store: StoreId,
    pub(in crate::server) keys: u64,
    /// How many of the keys have no value.
    pub(in crate::server) absent: u64,
}

/// Answers an `MGET` of keys of one store, if memory knows all of them. Nothing is written
/// otherwise, or if the reply is longer than is sent at once.
pub(in crate::server) fn answer_mget(
    arguments: &Arguments,
    requests: &[u8],
    admission: &Admission<'_>,
    is_free: impl Fn(&[u8]) -> bool,
    reply: &mut Reply<'_>,
) -> Option<MGet> {
    let mut keys = SmallVec::<[&[u8]; READS_MAX]>::new();
    let mut of = None;
    for wire_key in arguments.iter(requests).skip(1) {
        let place = admission.catalog.place_on_wire(wire_key)?;
        let store = readable(place, wire_key, admission).filter(|_| is_free(wire_key))?;
        if of.is_none() && !admission.forwarder.may_recall(admission.catalog, store)
            || of.is_some_and(|(other, _)| other != place)
        {
            return None;
        }
        of = Some((place, store));
        keys.push(&wire_key[store.name.as_str().len() + 1..]);
    }
    let (_, store) = of?;
    let start = reply.buffer.len();
    let mut mget = MGet {
        store: store.id,
        keys: 0,
        absent: 0,
    };
    reply.array(keys.len());
    admission
        .forwarder
        .recall(admission.catalog, store, keys.iter().copied(), |index, recalled| {
            let is_next = index as u64 == mget.keys;
            let Some(is_absent) = is_next.then(|| write(LookUp::Value, recalled, store, reply)).flatten() else {
                return false;
            };
            mget.keys += 1;
            mget.absent += u64::from(is_absent);
            reply.buffer.len() - start <= OUTPUT_BYTES_MAX
        });
    if mget.keys < keys.len() as u64 {
        reply.buffer.truncate(start);
        return None;
    }
    Some(mget)
}

/// The versioned store at a place, if a key on the wire is of it, and the client may read it.
#[inline]
fn readable<'a>(place: u16, wire_key: &[u8], admission: &Admission<'a>) -> Option<&'a VersionedStore> {
    let store = admission.catalog.versioned(place)?;
    // A quota is charged where requests are carried out one by one.
    let may_read = !store.has_read_quota && admission.session.may_read(&store.name);
    (is_key_of(store, wire_key) && may_read).then_some(store)
}

/// Whether a key on the wire is of a store, and not empty.
#[inline]
fn is_key_of(store: &VersionedStore, wire_key: &[u8]) -> bool {
    let rest = wire_key.strip_prefix(store.name.as_str().as_bytes());
    matches!(rest, Some([b':', _, ..]))
}
