//! The look-ups of a pipeline, done together.
//!
//! Requests that only look keys up (`GET`, `MGET`, `EXISTS`, …) are gathered from what a client has
//! sent, and their keys walk through the steps of a look-up side by side: while one key's records are
//! still on their way from memory, others are hashed and searched. A single request is a window of
//! one.
//!
//! Replies are written in the order of the requests. Where one needs the disk, the window pauses at a
//! [`WindowCursor`], to be resumed with the value. A window with keys that are not held here is not run at all
//! before other nodes have answered for those: see `connection::forward`.

mod add;

use std::fmt::{self, Display};
use std::sync::Arc;

use fondaco_format::{ColdRead, FormatError, Lookup, Probe, Value, Version};
use fondaco_resp::command::CommandId;
use fondaco_resp::{Reply, parse_integer};

use super::buffers::FREE_BYTES;
use super::refusal;
use crate::catalog::{Catalog, HELD, NOT_OPEN, StoreId};
use crate::forward::ValueAnswer;

/// When a window holds so many keys, it is run before more requests are read.
pub(in crate::server) const WINDOW_KEYS: usize = 64;
/// How many keys ahead of the one that is searched records are prefetched.
const PREFETCH_DISTANCE: usize = 8;

/// Replies are sent when they pass this, also in the middle of a pipeline or of an `MGET`.
pub(in crate::server) const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// The answer for a key for which there is none.
const UNANSWERED: &str = "ERR the replicas were asked for fewer keys than were wanted";

/// Requests that wait to be answered together.
#[derive(Default)]
pub(in crate::server) struct Window {
    requests: Vec<Request>,
    keys: Vec<Key>,
    /// The bytes of all keys: what they were parsed from may be gone before they are answered.
    key_bytes: Vec<u8>,
    /// How many keys other nodes have to be asked for.
    elsewhere: usize,
    /// The places of keys of versioned stores, in order, with their answers: none where replicas have to be
    /// asked.
    held: Vec<(u32, Option<ValueAnswer>)>,
    /// How many of those replicas have to be asked for.
    unanswered: usize,
}

struct Request {
    command: CommandId,
    /// Its keys are those from where the request before ended to here.
    keys_end: u32,
    detail: Detail,
}

/// What a request says besides its keys.
#[derive(Clone, Copy)]
enum Detail {
    None,
    /// The range that `GETRANGE` asks for.
    Range(i64, i64),
    /// How long the key is that `MEMORY USAGE` measures, with its store's name.
    KeyBytes(usize),
    /// How long `FONDACO.READ` may take.
    TimeoutMs(u64),
}

struct Key {
    start: u32,
    end: u32,
    /// Its place in [`Catalog::stores`].
    store: u16,
    /// The place of the version that it is looked up in among the catalog's open ones; [`NOT_OPEN`] if
    /// other nodes have to be asked, [`HELD`] if its store has no versions.
    version: u16,
    probe: Probe,
}

/// Where a window goes on: at a key of a request, with what was counted of the request so far.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::server) struct WindowCursor {
    request: usize,
    pub(in crate::server) key: usize,
    begun: bool,
    existing: i64,
}

/// How far a window came.
pub(in crate::server) enum Run {
    /// All requests are answered.
    Done,
    /// The key at this place needs the disk, and this read of it.
    Cold(WindowCursor, ColdRead),
    /// So many replies are ready that they should be sent before those from this place on.
    Full(WindowCursor),
    /// The value of the key at this place is so long that its reply may have to wait for memory.
    Long(WindowCursor),
}

/// What look-ups came to, for the counters.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::server) struct Tally {
    pub(in crate::server) hot: u64,
    pub(in crate::server) cold: u64,
    pub(in crate::server) absent: u64,
    pub(in crate::server) failed: u64,
}

impl Tally {
    /// Counts the answer for a key of a versioned store.
    pub(in crate::server) fn count_held(&mut self, answer: &ValueAnswer) {
        match answer {
            Ok(value) => {
                self.hot += 1;
                self.absent += u64::from(value.is_none());
            }
            Err(_) => self.failed += 1,
        }
    }
}

/// The answer for one key: its value, or why it is not known, as an error begins with its code.
pub(in crate::server) type Answer<'a> = Result<Option<&'a [u8]>, &'a dyn Display>;

impl Window {
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(in crate::server) fn is_full(&self) -> bool {
        self.keys.len() >= WINDOW_KEYS
    }

    pub(in crate::server) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Whether other nodes have to be asked.
    #[inline]
    pub(in crate::server) fn is_split(&self) -> bool {
        self.elsewhere > 0 || self.unanswered > 0
    }

    /// Whether other nodes have to be asked for keys of batch stores.
    pub(in crate::server) fn has_elsewhere(&self) -> bool {
        self.elsewhere > 0
    }

    /// The places of the keys of versioned stores that replicas have to be asked for.
    pub(in crate::server) fn unanswered(&self) -> impl Iterator<Item = usize> {
        let unanswered = self.held.iter().filter(|(_, answer)| answer.is_none());
        unanswered.map(|&(at, _)| at as usize)
    }

    /// Takes the answers for the keys that replicas had to be asked for, in order.
    pub(in crate::server) fn answer_held(&mut self, answers: impl IntoIterator<Item = ValueAnswer>) {
        let mut answers = answers.into_iter();
        for (_, held) in self.held.iter_mut().filter(|(_, answer)| answer.is_none()) {
            *held = Some(answers.next().unwrap_or_else(|| Err(UNANSWERED.into())));
        }
        self.unanswered = 0;
    }

    /// The answer for the key at a place, if its store is a versioned one.
    #[inline]
    pub(in crate::server) fn held(&self, at: usize) -> Option<&ValueAnswer> {
        if self.keys[at].version != HELD {
            return None;
        }
        let place = self.held.binary_search_by_key(&(at as u32), |&(at, _)| at).ok()?;
        self.held[place].1.as_ref()
    }

    /// The commands of all requests, each with the store of its first key, unless another node asks.
    pub(in crate::server) fn commands<'a>(
        &'a self,
        catalog: &'a Catalog,
    ) -> impl Iterator<Item = (CommandId, Option<StoreId>)> + 'a {
        let starts = std::iter::once(0).chain(self.requests.iter().map(|request| request.keys_end));
        self.requests.iter().zip(starts).map(|(request, start)| {
            let is_clients = request.command != CommandId::FondacoRead;
            let first = self
                .keys
                .get(start as usize)
                .filter(|_| is_clients && start < request.keys_end);
            let store = first.and_then(|key| catalog.stores().get(usize::from(key.store)));
            (request.command, store.map(|store| store.id))
        })
    }

    pub(in crate::server) fn clear(&mut self) {
        const KEPT_MAX: usize = 4096;
        self.requests.clear();
        self.keys.clear();
        self.key_bytes.clear();
        self.elsewhere = 0;
        self.held.clear();
        self.unanswered = 0;
        self.keys.shrink_to(KEPT_MAX);
        self.held.shrink_to(KEPT_MAX);
        self.key_bytes.shrink_to(KEPT_MAX * 16);
    }

    /// The key at a place: its bytes, and the place of its store in [`Catalog::stores`].
    pub(in crate::server) fn key(&self, at: usize) -> (&[u8], u16) {
        let key = &self.keys[at];
        (&self.key_bytes[key.start as usize..key.end as usize], key.store)
    }

    /// The version that the key at a place is looked up in; `None` if other nodes have to be asked.
    pub(in crate::server) fn version<'a>(&self, at: usize, catalog: &'a Catalog) -> Option<&'a Arc<Version>> {
        let version = self.keys[at].version;
        (version < HELD).then(|| catalog.version(version))
    }

    /// Whether other nodes have to be asked for the key at a place.
    #[inline]
    pub(in crate::server) fn is_elsewhere(&self, at: usize) -> bool {
        self.keys[at].version == NOT_OPEN
    }

    /// The places of keys that are read from the current version, not from one that a request names.
    pub(in crate::server) fn unpinned(&self) -> impl Iterator<Item = usize> {
        let starts = std::iter::once(0).chain(self.requests.iter().map(|request| request.keys_end as usize));
        let requests = self.requests.iter().zip(starts);
        let unpinned = requests.filter(|(request, _)| request.command != CommandId::FondacoRead);
        unpinned.flat_map(|(request, start)| start..request.keys_end as usize)
    }

    /// How long the request at a place may take, if it says so.
    pub(in crate::server) fn timeout_ms(&self, place: &WindowCursor) -> Option<u64> {
        match self.requests.get(place.request)?.detail {
            Detail::TimeoutMs(timeout_ms) => Some(timeout_ms),
            Detail::None | Detail::Range(..) | Detail::KeyBytes(_) => None,
        }
    }

    /// Looks one key up, without waiting. Its version is open here.
    #[inline]
    pub(in crate::server) fn look_up<'a>(&'a self, at: usize, catalog: &'a Catalog) -> Result<Lookup<'a>, FormatError> {
        let key = &self.keys[at];
        let bytes = &self.key_bytes[key.start as usize..key.end as usize];
        catalog.version(key.version).lookup(&key.probe, bytes)
    }

    #[inline]
    fn prefetch(&self, at: usize, catalog: &Catalog) {
        if let Some(key) = self.keys.get(at)
            && key.version != HELD
        {
            catalog.version(key.version).prefetch(&key.probe);
        }
    }

    /// Answers requests until one needs the disk, or there are enough replies to be sent.
    #[inline]
    pub(in crate::server) fn run(&self, catalog: &Catalog, reply: &mut Reply<'_>, tally: &mut Tally) -> Run {
        debug_assert!(!self.is_split());
        let mut place = WindowCursor::default();
        let several = self.keys.len() - place.key > 1;
        if several {
            (place.key..place.key + PREFETCH_DISTANCE).for_each(|at| self.prefetch(at, catalog));
        }
        while self.begin(&mut place, reply) {
            if reply.buffer.len() > OUTPUT_BYTES_MAX {
                return Run::Full(place);
            }
            if several {
                self.prefetch(place.key + PREFETCH_DISTANCE, catalog);
            }
            if let Some(answer) = self.held(place.key) {
                tally.count_held(answer);
                self.answer_with(&mut place, answer, reply);
                continue;
            }
            match self.look_up(place.key, catalog) {
                Ok(Lookup::Found(value)) if value.len() as u64 > FREE_BYTES => return Run::Long(place),
                Ok(Lookup::Found(value)) => {
                    if self.answer_found(&mut place, &value, reply) {
                        tally.hot += 1;
                    }
                }
                Ok(Lookup::Absent) => {
                    tally.hot += 1;
                    tally.absent += 1;
                    self.answer(&mut place, Ok(None), reply);
                }
                Ok(Lookup::Cold(read)) => return Run::Cold(place, read),
                Err(error) => {
                    tally.failed += 1;
                    self.answer(&mut place, Err(&Failure(&error)), reply);
                }
            }
        }
        Run::Done
    }

    /// Moves a place to the next key that waits for an answer, beginning and ending requests on the
    /// way; false at the end.
    #[inline]
    pub(in crate::server) fn begin(&self, place: &mut WindowCursor, reply: &mut Reply<'_>) -> bool {
        while let Some(request) = self.requests.get(place.request) {
            if !place.begun {
                place.begun = true;
                place.existing = 0;
                if matches!(request.command, CommandId::MGet | CommandId::FondacoRead) {
                    reply.array(request.keys_end as usize - place.key);
                }
            }
            if place.key < request.keys_end as usize {
                return true;
            }
            if is_count(request.command) {
                reply.integer(place.existing);
            }
            place.begun = false;
            place.request += 1;
        }
        false
    }

    /// Answers the key at a place, whose store is a versioned one, and moves on to the next.
    pub(in crate::server) fn answer_with(&self, place: &mut WindowCursor, answer: &ValueAnswer, reply: &mut Reply<'_>) {
        match answer {
            Ok(value) => self.answer(place, Ok(value.as_deref()), reply),
            Err(error) => self.answer(place, Err(error), reply),
        }
    }

    /// Answers the key at a place with a value that was found in memory, and moves on to the next; or neither,
    /// if the disk could not give all of its bytes: it is to be looked up again then.
    #[inline]
    pub(in crate::server) fn answer_found(
        &self,
        place: &mut WindowCursor,
        value: &Value<'_>,
        reply: &mut Reply<'_>,
    ) -> bool {
        let (before, reply_bytes) = (*place, reply.buffer.len());
        self.answer(place, Ok(Some(value)), reply);
        let is_intact = value.is_intact();
        if !is_intact {
            *place = before;
            reply.buffer.truncate(reply_bytes);
        }
        is_intact
    }

    /// Answers the key at a place, and moves on to the next.
    #[inline]
    pub(in crate::server) fn answer(&self, place: &mut WindowCursor, answer: Answer<'_>, reply: &mut Reply<'_>) {
        let request = &self.requests[place.request];
        place.key += 1;
        let value = match answer {
            Ok(value) => value,
            // Counted as not there, `EXISTS` would be wrong: its number is replaced by the error.
            Err(error) => {
                reply.error(&error.to_string());
                if is_count(request.command) {
                    place.key = request.keys_end as usize;
                    place.begun = false;
                    place.request += 1;
                }
                return;
            }
        };
        match (request.command, value) {
            (CommandId::Exists | CommandId::Touch, value) => place.existing += i64::from(value.is_some()),
            (CommandId::StrLen, value) => reply.integer(value.map_or(0, |value| value.len() as i64)),
            (CommandId::Type, value) => reply.simple(if value.is_some() { "string" } else { "none" }),
            (CommandId::Ttl | CommandId::PTtl | CommandId::ExpireTime | CommandId::PExpireTime, value) => {
                reply.integer(if value.is_some() { -1 } else { -2 });
            }
            (CommandId::ObjectEncoding, Some(value)) => reply.bulk(encoding(value).as_bytes()),
            (CommandId::ObjectRefCount, Some(_)) => reply.integer(1),
            (CommandId::MemoryUsage, Some(value)) => {
                let Detail::KeyBytes(key) = request.detail else {
                    unreachable!("`add` gives this command the length of its key");
                };
                reply.integer((key + value.len()) as i64);
            }
            (CommandId::GetRange | CommandId::SubStr, value) => {
                let Detail::Range(first, last) = request.detail else {
                    unreachable!("`add` gives these commands a range");
                };
                reply.bulk(part(value.unwrap_or_default(), (first, last)));
            }
            (_, Some(value)) => reply.bulk(value),
            (_, None) => reply.null(),
        }
    }
}

/// Whether a command is answered by how many of its keys are there.
fn is_count(command: CommandId) -> bool {
    matches!(command, CommandId::Exists | CommandId::Touch)
}

/// The encoding in which Redis would keep a string.
fn encoding(value: &[u8]) -> &'static str {
    /// The longest string that Redis keeps together with its header.
    const EMBEDDED_BYTES_MAX: usize = 44;
    match parse_integer(value) {
        Some(_) => "int",
        None if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
        None => "raw",
    }
}

/// A failed look-up, as it is answered.
pub(in crate::server) struct Failure<'a>(pub(in crate::server) &'a FormatError);

impl Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&refusal::failure(self.0))
    }
}

/// The part of a value that `GETRANGE` asks for: both ends count, from the end if negative.
fn part(value: &[u8], (first, last): (i64, i64)) -> &[u8] {
    let length = value.len() as i64;
    if first < 0 && last < 0 && first > last {
        return &[];
    }
    let from_start = |at: i64| if at < 0 { (length + at).max(0) } else { at };
    let (first, last) = (from_start(first), from_start(last).min(length - 1));
    if first > last {
        return &[];
    }
    &value[first as usize..=last as usize]
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_those_of_getrange() {
        let value = b"This is a string";
        let cases: [((i64, i64), &[u8]); 9] = [
            ((0, 3), b"This"),
            ((-3, -1), b"ing"),
            ((0, -1), b"This is a string"),
            ((10, 100), b"string"),
            ((5, 3), b""),
            ((100, 200), b""),
            ((-1, -5), b""),
            ((-100, 2), b"Thi"),
            ((i64::MIN, i64::MAX), b"This is a string"),
        ];
        for (range, expected) in cases {
            assert_eq!(part(value, range), expected, "{range:?}");
        }
        assert_eq!(part(b"", (0, -1)), b"");
    }
}
