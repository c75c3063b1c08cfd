//! `GET`s of a versioned store that a client has sent one behind the other, and the keys of an `MGET`: those that memory
//! tells of are looked up together, so that it serves them at the same time, and their values go from there into the
//! replies.

use fondaco_catalog::{StoreId, VersionedStore};
use fondaco_resp::command::{CommandId, resolve};
use fondaco_resp::{Arguments, Limits, Parse, Reply, parse_request};
use smallvec::SmallVec;

use crate::server::buffers::FREE_BYTES;
use crate::server::session::Admission;
use crate::server::window::OUTPUT_BYTES_MAX;

/// How many are looked up at once.
const TOGETHER_MAX: usize = 32;

/// Looks `GET`s and `MGET`s up for one connection.
#[derive(Default)]
pub(in crate::server) struct Gets {
    /// How many of the next are looked up one by one: memory did not tell of one before them.
    alone: usize,
    arguments: Arguments,
}

/// `GET`s that were answered, or one `MGET`.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct AnsweredGets {
    /// How long they were, in bytes.
    pub(in crate::server) bytes: usize,
    pub(in crate::server) store: StoreId,
    pub(in crate::server) requests: u64,
    pub(in crate::server) keys: u64,
    /// How many of the keys have no value.
    pub(in crate::server) absent: u64,
}

/// A request at the beginning of what a client has sent.
#[derive(Clone, Copy)]
pub(in crate::server) struct First<'a> {
    pub(in crate::server) command: CommandId,
    pub(in crate::server) arguments: &'a Arguments,
    /// Its length, in bytes.
    pub(in crate::server) bytes: usize,
}

impl Gets {
    /// Whether requests of this kind are looked up here.
    pub(in crate::server) fn answers(command: CommandId) -> bool {
        matches!(command, CommandId::Get | CommandId::MGet)
    }

    /// Answers the first of these requests, and if it is a `GET`, those behind it that are like it, as far as the client may
    /// read the store, memory has all that there is to say, and `may_answer` says so of their keys on the wire. None, and
    /// nothing is written, if the first needs more than memory: the code that carries out requests one by one finds out why.
    pub(in crate::server) fn answer(
        &mut self,
        first: First<'_>,
        requests: &[u8],
        limits: &Limits,
        admission: &Admission<'_>,
        may_answer: impl Fn(&[u8]) -> bool,
        reply: &mut Reply<'_>,
    ) -> Option<AnsweredGets> {
        match first.command {
            CommandId::Get => self.answer_gets(first, requests, limits, admission, may_answer, reply),
            CommandId::MGet => answer_mget(first, requests, admission, may_answer, reply),
            _ => None,
        }
    }

    fn answer_gets(
        &mut self,
        first: First<'_>,
        requests: &[u8],
        limits: &Limits,
        admission: &Admission<'_>,
        may_answer: impl Fn(&[u8]) -> bool,
        reply: &mut Reply<'_>,
    ) -> Option<AnsweredGets> {
        let wire_key = first.arguments.get(1, requests).filter(|key| may_answer(key))?;
        let (store, key) = readable(wire_key, admission)?;
        let mut keys = SmallVec::<[&[u8]; TOGETHER_MAX]>::new();
        let mut ends = SmallVec::<[usize; TOGETHER_MAX]>::new();
        keys.push(key);
        ends.push(first.bytes);
        let together_max = match self.alone.checked_sub(1) {
            Some(left) => {
                self.alone = left;
                1
            }
            None => TOGETHER_MAX,
        };
        let mut end = first.bytes;
        self.arguments.clear();
        while keys.len() < together_max
            && let rest = &requests[end..]
            && let Ok(Parse::Complete { consumed }) = parse_request(rest, limits, &mut self.arguments)
            && resolve(&self.arguments, rest).is_ok_and(|spec| spec.id == CommandId::Get)
            && let Some(wire_key) = self.arguments.get_in_buffer(1, rest).filter(|key| may_answer(key))
            && let Some((of, key)) = readable(wire_key, admission)
            && of.id == store.id
        {
            end += consumed;
            keys.push(key);
            ends.push(end);
        }

        let found = write_values(store, &keys, admission, reply);
        if found.keys < keys.len() {
            self.alone = keys.len() - found.keys.max(1);
        }
        Some(AnsweredGets {
            bytes: *ends.get(found.keys.checked_sub(1)?)?,
            store: store.id,
            requests: found.keys as u64,
            keys: found.keys as u64,
            absent: found.absent,
        })
    }
}

/// Answers an `MGET` of keys of one store. One with a longer reply than is sent at once is none of these.
fn answer_mget(
    first: First<'_>,
    requests: &[u8],
    admission: &Admission<'_>,
    may_answer: impl Fn(&[u8]) -> bool,
    reply: &mut Reply<'_>,
) -> Option<AnsweredGets> {
    let mut wire_keys = first.arguments.iter(requests).skip(1);
    let (store, key) = readable(wire_keys.next().filter(|key| may_answer(key))?, admission)?;
    let mut keys = SmallVec::<[&[u8]; TOGETHER_MAX]>::from_slice(&[key]);
    for wire_key in wire_keys {
        let (of, key) = readable(Some(wire_key).filter(|key| may_answer(key))?, admission)?;
        keys.push(key);
        if of.id != store.id {
            return None;
        }
    }
    let start = reply.buffer.len();
    reply.array(keys.len());
    let found = write_values(store, &keys, admission, reply);
    if found.keys < keys.len() {
        reply.buffer.truncate(start);
        return None;
    }
    Some(AnsweredGets {
        bytes: first.bytes,
        store: store.id,
        requests: 1,
        keys: found.keys as u64,
        absent: found.absent,
    })
}

/// What memory told of keys.
struct Found {
    /// Of how many, from the first on.
    keys: usize,
    absent: u64,
}

/// Writes the values of keys, one after the other, until memory does not tell of one, or there is enough to be sent.
fn write_values(store: &VersionedStore, keys: &[&[u8]], admission: &Admission<'_>, reply: &mut Reply<'_>) -> Found {
    let start = reply.buffer.len();
    let mut found = Found { keys: 0, absent: 0 };
    admission
        .forwarder
        .recall_plain(admission.catalog, store, keys, |value| {
            // One that may have to wait for memory is carried out for itself.
            if value.is_some_and(|value| value.len() as u64 > FREE_BYTES) {
                return false;
            }
            found.keys += 1;
            match value {
                Some(value) => reply.bulk(value),
                None => {
                    found.absent += 1;
                    reply.null();
                }
            }
            reply.buffer.len() - start <= OUTPUT_BYTES_MAX
        });
    found
}

/// The store and the key of a key on the wire, if the client may read it.
fn readable<'a>(wire_key: &'a [u8], admission: &Admission<'a>) -> Option<(&'a VersionedStore, &'a [u8])> {
    let (store, key) = admission.catalog.versioned_on_wire(wire_key)?;
    // A quota is charged where requests are carried out one by one.
    let may_read = !store.has_read_quota && admission.session.may_read(&store.name);
    (!key.is_empty() && may_read).then_some((store, key))
}
