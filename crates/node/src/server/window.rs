//! The look-ups of a pipeline, done together.
//!
//! Requests that only look keys up (`GET`, `MGET`, `EXISTS`, …) are gathered from what a client has
//! sent, and their keys walk through the steps of a look-up side by side: while one key's records are
//! still on their way from memory, others are hashed and searched. A single request is a window of
//! one.
//!
//! Replies are written in the order of the requests. Where one needs the disk, the window pauses at a
//! [`Place`], to be resumed with the value.

use fondaco_format::{ColdRead, FormatError, Lookup, Probe};
use fondaco_resp::command::CommandId;
use fondaco_resp::{Arguments, Reply, parse_integer};

use super::session::Session;
use crate::catalog::{Catalog, Serving, ServingStore};

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
}

struct Request {
    command: CommandId,
    /// Its keys are those from where the request before ended to here.
    keys_end: u32,
    /// The range that `GETRANGE` asks for.
    range: (i64, i64),
}

struct Key {
    start: u32,
    end: u32,
    /// Its place in [`Catalog::stores`].
    store: u16,
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

/// The answer for one key.
pub(super) type Answer<'a> = Result<Option<&'a [u8]>, &'a FormatError>;

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

    /// The commands of all requests.
    pub(super) fn commands(&self) -> impl Iterator<Item = CommandId> {
        self.requests.iter().map(|request| request.command)
    }

    pub(super) fn clear(&mut self) {
        const KEPT_MAX: usize = 4096;
        self.requests.clear();
        self.keys.clear();
        self.key_bytes.clear();
        self.keys.shrink_to(KEPT_MAX);
        self.key_bytes.shrink_to(KEPT_MAX * 16);
    }

    /// Adds a request, if it is a look-up: `Ok(false)` if it is not.
    ///
    /// # Errors
    /// The error to answer instead: no such store, no right to read it, a number that is none.
    #[inline]
    pub(super) fn add(
        &mut self,
        command: CommandId,
        arguments: &Arguments,
        buffer: &[u8],
        catalog: &Catalog,
        session: &Session,
    ) -> Result<bool, String> {
        let mut range = (0, 0);
        let keys = match command {
            CommandId::Get | CommandId::StrLen | CommandId::Type | CommandId::Ttl | CommandId::PTtl => 1..2,
            CommandId::MGet | CommandId::Exists => 1..arguments.len(),
            CommandId::GetRange | CommandId::SubStr => {
                let number = |at| arguments.get(at, buffer).and_then(parse_integer);
                let (Some(first), Some(last)) = (number(2), number(3)) else {
                    return Err("ERR value is not an integer or out of range".into());
                };
                range = (first, last);
                1..2
            }
            _ => return Ok(false),
        };
        let (keys_before, bytes_before) = (self.keys.len(), self.key_bytes.len());
        for at in keys {
            let wire_key = arguments.get(at, buffer).unwrap_or_default();
            if let Err(error) = self.add_key(wire_key, catalog, session) {
                self.keys.truncate(keys_before);
                self.key_bytes.truncate(bytes_before);
                return Err(error);
            }
        }
        self.requests.push(Request {
            command,
            keys_end: self.keys.len() as u32,
            range,
        });
        Ok(true)
    }

    #[inline]
    fn add_key(&mut self, wire_key: &[u8], catalog: &Catalog, session: &Session) -> Result<(), String> {
        let Some(colon) = memchr::memchr(b':', wire_key) else {
            return Err(no_colon(wire_key));
        };
        let (name, key) = (&wire_key[..colon], &wire_key[colon + 1..]);
        let number = match self.keys.last() {
            // As a rule the same store as for the key before.
            Some(last) if catalog.stores()[last.store as usize].name.as_str().as_bytes() == name => last.store,
            _ => {
                let number = catalog.store_on_wire(name).ok_or_else(|| no_store(name))?;
                let store = &catalog.stores()[number as usize];
                if !session.may_read(&store.name) {
                    return Err(no_right(store));
                }
                number
            }
        };
        let store = &catalog.stores()[number as usize];
        let Serving::Version(_, version) = &store.serving else {
            return Err(no_version(store));
        };
        if key.is_empty() {
            return Err("BADKEY nothing stands after the colon: keys have at least one byte".into());
        }
        let start = self.key_bytes.len() as u32;
        self.key_bytes.extend_from_slice(key);
        self.keys.push(Key {
            start,
            end: self.key_bytes.len() as u32,
            store: number,
            probe: version.probe(key),
        });
        Ok(())
    }

    /// The key at a place: its bytes and its store.
    pub(super) fn key<'a>(&'a self, at: usize, catalog: &'a Catalog) -> (&'a [u8], &'a ServingStore) {
        let key = &self.keys[at];
        let bytes = &self.key_bytes[key.start as usize..key.end as usize];
        (bytes, &catalog.stores()[key.store as usize])
    }

    /// Looks one key up, without waiting.
    #[inline]
    pub(super) fn look_up<'a>(&'a self, at: usize, catalog: &'a Catalog) -> Result<Lookup<'a>, FormatError> {
        let (bytes, store) = self.key(at, catalog);
        match &store.serving {
            Serving::Version(_, version) => version.lookup(&self.keys[at].probe, bytes),
            // `add_key` has let none of these in.
            Serving::Nothing | Serving::Failed(..) => Ok(Lookup::Absent),
        }
    }

    #[inline]
    fn prefetch(&self, at: usize, catalog: &Catalog) {
        if let Some(key) = self.keys.get(at)
            && let Some(version) = catalog.stores()[key.store as usize].version()
        {
            version.prefetch(&key.probe);
        }
    }

    /// Answers requests until one needs the disk, or there are enough replies to be sent.
    #[inline]
    pub(super) fn run(&self, catalog: &Catalog, reply: &mut Reply<'_>, tally: &mut Tally) -> Run {
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
                    self.answer(&mut place, Err(&error), reply);
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
                if request.command == CommandId::MGet {
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
                reply.error(&failure(error));
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
                reply.bulk(part(value.unwrap_or_default(), request.range));
            }
            (_, Some(value)) => reply.bulk(value),
            (_, None) => reply.null(),
        }
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

#[cold]
fn no_colon(wire_key: &[u8]) -> String {
    format!("BADKEY {} names no store: keys are written store:key", quoted(wire_key))
}

#[cold]
pub(super) fn no_store(name: &[u8]) -> String {
    format!(
        "NOSTORE no store is named {}: create it, or list those there are, with fondaco store",
        quoted(name)
    )
}

#[cold]
pub(super) fn no_right(store: &ServingStore) -> String {
    format!("NOPERM this user may not read store {:?}", store.name)
}

#[cold]
pub(super) fn no_version(store: &ServingStore) -> String {
    match &store.serving {
        Serving::Failed(version, reason) => {
            format!(
                "CORRUPT version {version} of store {:?} cannot be opened: {reason}",
                store.name
            )
        }
        _ => format!("NOVERSION store {:?} has no version yet: push one", store.name),
    }
}

#[cold]
pub(super) fn failure(error: &FormatError) -> String {
    let code = if error.is_corruption() { "CORRUPT" } else { "IOERR" };
    format!("{code} {error}")
}

fn quoted(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 80;
    format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]))
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
