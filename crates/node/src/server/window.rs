//! The look-ups of a pipeline, done together.
//!
//! Requests that only look keys up (`GET`, `MGET`, `EXISTS`, …) are gathered from what a client has
//! sent, and their keys walk through the steps of a look-up side by side: while one key's records are
//! still on their way from memory, others are hashed and searched. A single request is a window of
//! one.
//!
//! Replies are written in the order of the requests. Where one needs the disk, the window pauses at a
//! [`Place`], to be resumed with the value. A window with keys that are not held here is not run at all
//! before other nodes have answered for those: see `connection::forward`.

use std::fmt::{self, Display};
use std::sync::Arc;

use fondaco_format::{ColdRead, FormatError, Lookup, Probe, Version};
use fondaco_model::{Slot, SlotPrefix, VersionNumber};
use fondaco_resp::command::CommandId;
use fondaco_resp::{Arguments, Reply, parse_integer};

use super::refusal;
use super::session::Session;
use crate::catalog::{Catalog, NOT_OPEN};
use crate::forward::Forwarder;

/// When a window holds so many keys, it is run before more requests are read.
pub(super) const WINDOW_KEYS: usize = 64;
/// How many keys ahead of the one that is searched records are prefetched.
const PREFETCH_DISTANCE: usize = 8;

/// Replies are sent when they pass this, also in the middle of a pipeline or of an `MGET`.
pub(super) const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// Requests that wait to be answered together.
#[derive(Default)]
pub(super) struct Window {
    requests: Vec<Request>,
    keys: Vec<Key>,
    /// The bytes of all keys: what they were parsed from may be gone before they are answered.
    key_bytes: Vec<u8>,
    /// How many keys other nodes have to be asked for.
    elsewhere: usize,
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
    /// How long `FONDACO.READ` may take.
    TimeoutMs(u32),
}

struct Key {
    start: u32,
    end: u32,
    /// Its place in [`Catalog::stores`].
    store: u16,
    /// The place of the version that it is looked up in among the catalog's open ones; [`NOT_OPEN`] if
    /// other nodes have to be asked.
    version: u16,
    probe: Probe,
}

/// Where a window goes on: at a key of a request, with what was counted of the request so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    request: usize,
    pub(super) key: usize,
    begun: bool,
    existing: i64,
}

/// How far a window came.
pub(super) enum Run {
    /// All requests are answered.
    Done,
    /// The key at this place needs the disk, and this read of it.
    Cold(Place, ColdRead),
    /// So many replies are ready that they should be sent before those from this place on.
    Full(Place),
}

/// What look-ups came to, for the counters.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    pub(super) hot: u64,
    pub(super) cold: u64,
    pub(super) absent: u64,
    pub(super) failed: u64,
}

/// The answer for one key: its value, or why it is not known, as an error begins with its code.
pub(super) type Answer<'a> = Result<Option<&'a [u8]>, &'a dyn Display>;

/// What goes before a request can be added, and is not the request's own.
pub(super) struct Admission<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) session: &'a Session,
    pub(super) forwarder: &'a Forwarder,
}

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys.len() >= WINDOW_KEYS
    }

    pub(super) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Whether other nodes have to be asked.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.elsewhere > 0
    }

    /// The commands of all requests.
    pub(super) fn commands(&self) -> impl Iterator<Item = CommandId> {
        self.requests.iter().map(|request| request.command)
    }

    pub(super) fn clear(&mut self) {
        const KEPT_MAX: usize = 4096;
        self.requests.clear();
        self.keys.clear();
        self.key_bytes.clear();
        self.elsewhere = 0;
        self.keys.shrink_to(KEPT_MAX);
        self.key_bytes.shrink_to(KEPT_MAX * 16);
    }

    /// Adds a request, if it is a look-up: `Ok(false)` if it is not.
    ///
    /// # Errors
    /// The error to answer instead: no such store, no right to read it, a number that is none, another
    /// node to go to.
    #[inline]
    pub(super) fn add(
        &mut self,
        command: CommandId,
        arguments: &Arguments,
        buffer: &[u8],
        admission: &Admission<'_>,
    ) -> Result<bool, String> {
        let mut detail = Detail::None;
        let keys = match command {
            CommandId::Get | CommandId::StrLen | CommandId::Type | CommandId::Ttl | CommandId::PTtl => 1..2,
            CommandId::MGet | CommandId::Exists => 1..arguments.len(),
            CommandId::GetRange | CommandId::SubStr => {
                let number = |at| arguments.get(at, buffer).and_then(parse_integer);
                let (Some(first), Some(last)) = (number(2), number(3)) else {
                    return Err("ERR value is not an integer or out of range".into());
                };
                detail = Detail::Range(first, last);
                1..2
            }
            CommandId::FondacoRead => return self.add_pinned(arguments, buffer, admission).map(|()| true),
            _ => return Ok(false),
        };
        let before = self.mark();
        for at in keys {
            let wire_key = arguments.get(at, buffer).unwrap_or_default();
            if let Err(error) = self.add_key(wire_key, admission) {
                self.return_to(before);
                return Err(error);
            }
        }
        if self.elsewhere > before.elsewhere
            && let Err(error) = self.check_elsewhere(before, admission)
        {
            self.return_to(before);
            return Err(error);
        }
        self.end_request(command, detail);
        Ok(true)
    }

    fn end_request(&mut self, command: CommandId, detail: Detail) {
        self.requests.push(Request {
            command,
            keys_end: self.keys.len() as u32,
            detail,
        });
    }

    #[inline]
    fn mark(&self) -> Mark {
        Mark {
            keys: self.keys.len(),
            bytes: self.key_bytes.len(),
            elsewhere: self.elsewhere,
        }
    }

    fn return_to(&mut self, mark: Mark) {
        self.keys.truncate(mark.keys);
        self.key_bytes.truncate(mark.bytes);
        self.elsewhere = mark.elsewhere;
    }

    #[inline]
    fn add_key(&mut self, wire_key: &[u8], admission: &Admission<'_>) -> Result<(), String> {
        let catalog = admission.catalog;
        let Some(colon) = memchr::memchr(b':', wire_key) else {
            return Err(refusal::no_colon(wire_key));
        };
        let (name, key) = (&wire_key[..colon], &wire_key[colon + 1..]);
        let store = match self.keys.last() {
            // As a rule the same store as for the key before.
            Some(last) if catalog.stores()[last.store as usize].name.as_str().as_bytes() == name => last.store,
            _ => readable_store(name, admission)?,
        };
        if key.is_empty() {
            return Err(refusal::EMPTY_KEY.into());
        }
        let version = catalog.current(store);
        if version != NOT_OPEN {
            let probe = catalog.version(version).probe(key);
            if probe.is_held() {
                self.push_key(key, store, version, probe);
                return Ok(());
            }
        }
        self.push_elsewhere(key, store, catalog)
    }

    #[cold]
    fn push_elsewhere(&mut self, key: &[u8], store: u16, catalog: &Catalog) -> Result<(), String> {
        refusal::check_elsewhere(catalog, store)?;
        self.elsewhere += 1;
        self.push_key(key, store, NOT_OPEN, Probe::NOT_HELD);
        Ok(())
    }

    #[inline]
    fn push_key(&mut self, key: &[u8], store: u16, version: u16, probe: Probe) {
        let start = self.key_bytes.len() as u32;
        self.key_bytes.extend_from_slice(key);
        self.keys.push(Key {
            start,
            end: self.key_bytes.len() as u32,
            store,
            version,
            probe,
        });
    }

    /// Adds a `FONDACO.READ`: a look-up in the version that it names, which is never forwarded.
    fn add_pinned(&mut self, arguments: &Arguments, buffer: &[u8], admission: &Admission<'_>) -> Result<(), String> {
        let catalog = admission.catalog;
        let argument = |at| arguments.get(at, buffer).unwrap_or_default();
        let number = |at| parse_integer(argument(at)).and_then(|number| u64::try_from(number).ok());
        let (Some(number), Some(timeout_ms)) = (number(1), number(2)) else {
            return Err("ERR value is not an integer or out of range".into());
        };
        let store = readable_store(argument(3), admission)?;
        let version = match VersionNumber::new(number) {
            None => catalog.current(store),
            Some(number) => catalog.place_of(store, number).unwrap_or(NOT_OPEN),
        };
        if version == NOT_OPEN {
            return Err(refusal::version_gone(catalog, store, VersionNumber::new(number)));
        }
        if (4..arguments.len()).any(|at| argument(at).is_empty()) {
            return Err(refusal::EMPTY_KEY.into());
        }
        for at in 4..arguments.len() {
            let probe = catalog.version(version).probe(argument(at));
            self.push_key(argument(at), store, version, probe);
        }
        let timeout_ms = u32::try_from(timeout_ms).unwrap_or(u32::MAX);
        self.end_request(CommandId::FondacoRead, Detail::TimeoutMs(timeout_ms));
        Ok(())
    }

    /// Whether the request whose keys begin at a mark may be passed on to other nodes.
    #[cold]
    fn check_elsewhere(&self, mark: Mark, admission: &Admission<'_>) -> Result<(), String> {
        let (catalog, session) = (admission.catalog, admission.session);
        let keys = &self.keys[mark.keys..];
        if session.goes_where_keys_are()
            && let Some(membership) = catalog.membership()
            && !membership.is_router()
        {
            let slots = keys.iter().map(|key| self.slot(key, catalog));
            if let Some(slot) = only(slots) {
                let store = &catalog.stores()[keys[0].store as usize].name;
                return Err(refusal::moved(membership, store, slot));
            }
        }
        admission.forwarder.check_room(self.elsewhere)?;
        let mut rest = keys;
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|key| key.store == first.store).count();
            let (own, others) = rest.split_at(run);
            admission.forwarder.charge(catalog, first.store, own.len())?;
            rest = others;
        }
        Ok(())
    }

    fn slot(&self, key: &Key, catalog: &Catalog) -> Slot {
        let bytes = &self.key_bytes[key.start as usize..key.end as usize];
        SlotPrefix::of(&catalog.stores()[key.store as usize].name).slot(bytes)
    }

    /// The key at a place: its bytes, and the place of its store in [`Catalog::stores`].
    pub(super) fn key(&self, at: usize) -> (&[u8], u16) {
        let key = &self.keys[at];
        (&self.key_bytes[key.start as usize..key.end as usize], key.store)
    }

    /// The version that the key at a place is looked up in; `None` if other nodes have to be asked.
    pub(super) fn version<'a>(&self, at: usize, catalog: &'a Catalog) -> Option<&'a Arc<Version>> {
        let version = self.keys[at].version;
        (version != NOT_OPEN).then(|| catalog.version(version))
    }

    /// Whether other nodes have to be asked for the key at a place.
    #[inline]
    pub(super) fn is_elsewhere(&self, at: usize) -> bool {
        self.keys[at].version == NOT_OPEN
    }

    /// The places of keys that are read from the current version, not from one that a request names.
    pub(super) fn unpinned(&self) -> impl Iterator<Item = usize> {
        let starts = std::iter::once(0).chain(self.requests.iter().map(|request| request.keys_end as usize));
        let requests = self.requests.iter().zip(starts);
        let unpinned = requests.filter(|(request, _)| request.command != CommandId::FondacoRead);
        unpinned.flat_map(|(request, start)| start..request.keys_end as usize)
    }

    /// How long the request at a place may take, if it says so.
    pub(super) fn timeout_ms(&self, place: &Place) -> Option<u32> {
        match self.requests.get(place.request)?.detail {
            Detail::TimeoutMs(timeout_ms) => Some(timeout_ms),
            Detail::None | Detail::Range(..) => None,
        }
    }

    /// Looks one key up, without waiting. Its version is open here.
    #[inline]
    pub(super) fn look_up<'a>(&'a self, at: usize, catalog: &'a Catalog) -> Result<Lookup<'a>, FormatError> {
        let key = &self.keys[at];
        let bytes = &self.key_bytes[key.start as usize..key.end as usize];
        catalog.version(key.version).lookup(&key.probe, bytes)
    }

    #[inline]
    fn prefetch(&self, at: usize, catalog: &Catalog) {
        if let Some(key) = self.keys.get(at) {
            catalog.version(key.version).prefetch(&key.probe);
        }
    }

    /// Answers requests until one needs the disk, or there are enough replies to be sent.
    #[inline]
    pub(super) fn run(&self, catalog: &Catalog, reply: &mut Reply<'_>, tally: &mut Tally) -> Run {
        debug_assert!(!self.is_split());
        let mut place = Place::default();
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
            match self.look_up(place.key, catalog) {
                Ok(Lookup::Found(value)) => {
                    tally.hot += 1;
                    self.answer(&mut place, Ok(Some(&value)), reply);
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
    pub(super) fn begin(&self, place: &mut Place, reply: &mut Reply<'_>) -> bool {
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
            if request.command == CommandId::Exists {
                reply.integer(place.existing);
            }
            place.begun = false;
            place.request += 1;
        }
        false
    }

    /// Answers the key at a place, and moves on to the next.
    #[inline]
    pub(super) fn answer(&self, place: &mut Place, answer: Answer<'_>, reply: &mut Reply<'_>) {
        let request = &self.requests[place.request];
        place.key += 1;
        let value = match answer {
            Ok(value) => value,
            // Counted as not there, `EXISTS` would be wrong: its number is replaced by the error.
            Err(error) => {
                reply.error(&error.to_string());
                if request.command == CommandId::Exists {
                    place.key = request.keys_end as usize;
                    place.begun = false;
                    place.request += 1;
                }
                return;
            }
        };
        match (request.command, value) {
            (CommandId::Exists, value) => place.existing += i64::from(value.is_some()),
            (CommandId::StrLen, value) => reply.integer(value.map_or(0, |value| value.len() as i64)),
            (CommandId::Type, value) => reply.simple(if value.is_some() { "string" } else { "none" }),
            (CommandId::Ttl | CommandId::PTtl, value) => reply.integer(if value.is_some() { -1 } else { -2 }),
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

/// What a window held before a request was added to it.
#[derive(Clone, Copy)]
struct Mark {
    keys: usize,
    bytes: usize,
    elsewhere: usize,
}

/// A failed look-up, as it is answered.
pub(super) struct Failure<'a>(pub(super) &'a FormatError);

impl Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&refusal::failure(self.0))
    }
}

/// The place of the store of this name, if there is one and the client may read it.
fn readable_store(name: &[u8], admission: &Admission<'_>) -> Result<u16, String> {
    let catalog = admission.catalog;
    let place = catalog.store_on_wire(name).ok_or_else(|| refusal::no_store(name))?;
    let store = &catalog.stores()[place as usize];
    match admission.session.may_read(&store.name) {
        true => Ok(place),
        false => Err(refusal::no_right(store)),
    }
}

/// What all of these are; `None` if they differ.
fn only<T: PartialEq>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.all(|item| item == first).then_some(first)
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
