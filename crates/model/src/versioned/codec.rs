//! Records and updates as bytes: on the disk, and between nodes.
//!
//! ```text
//! record   version (1 byte, 1), checksum (8 bytes, little endian), clock, siblings: count, sibling…
//! sibling  flags (1 byte), place of its replica's entry in the clock,
//!          the entry's counter - its counter, the entry's time - its time,
//!          [expires - its time (zigzag)], [counter - since], [seen: count, seen…], [times], [length of the value, value]
//! times    its time - the time of the whole value, count of fields, for each: length of the name, the name,
//!          its time - the time of the field
//! seen     node, incarnation, counter, counter - since, total (zigzag)
//! update   version (1 byte, 1), flags (1 byte), time, [expires - time (zigzag)], [by (zigzag)],
//!          [seen: count, seen…], [times], [value: the rest]
//! ```
//! All numbers without a size are [varints](super::varint). The checksum is the 64-bit xxh3 of all bytes after it. It
//! is also the [digest](Record::digest) of the record: a write over a record reads the digest from its first bytes, and
//! need not touch the other bytes: most of them would be cache misses. Equal records have equal bytes; other encodings
//! are refused.

use bytes::Bytes;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::clock::VectorClock;
use super::counter::{Count, SEEN_MAX, Seen};
use super::error::RecordError;
use super::fields::{FIELDS_MAX, FieldTimes};
use super::record::{Record, SIBLINGS_READ_MAX, Sibling};
use super::replica::{COUNTER_MAX, Dot, ReplicaId};
use super::varint::{self, Length, Reader, Sink};
use super::write::{Change, Update};
use crate::node::NodeId;

const VERSION: u8 = 1;
/// The version and the checksum.
const HEAD_BYTES: usize = 9;

const HAS_VALUE: u8 = 1;
const EXPIRES: u8 = 2;
const IS_ADDED: u8 = 4;
const IS_SET: u8 = 8;
const IS_DELETED: u8 = 16;
const HAS_TIMES: u8 = 32;

impl Record {
    /// The length of its encoding.
    pub fn encoded_bytes(&self) -> usize {
        let mut length = Length(HEAD_BYTES);
        self.encode_body(&mut length);
        length.0
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.check();
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.encode_body(out);
        let checksum = xxh3_64(&out[start + HEAD_BYTES..]);
        out[start] = VERSION;
        out[start + 1..start + HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The record as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_bytes());
        self.encode(&mut bytes);
        bytes
    }

    /// The part that the checksum covers.
    fn encode_body(&self, out: &mut impl Sink) {
        self.context.encode(out);
        varint::put(out, self.siblings.len() as u64);
        for sibling in &self.siblings {
            self.encode_sibling(sibling, out);
        }
    }

    fn encode_sibling(&self, sibling: &Sibling, out: &mut impl Sink) {
        // Every sibling's dot is covered by the context.
        let Some(place) = self.context.place(sibling.dot.replica) else {
            return;
        };
        let entry = &self.context.entries()[place];
        let mut flags = 0;
        flags |= if sibling.value.is_some() { HAS_VALUE } else { 0 };
        flags |= if sibling.expires_unix_ms.is_some() { EXPIRES } else { 0 };
        flags |= match sibling.count {
            Count::Whole => 0,
            Count::Added { .. } => IS_ADDED,
            Count::Set { .. } => IS_SET,
            Count::Fields(_) => HAS_TIMES,
        };
        out.push(flags);
        varint::put(out, place as u64);
        varint::put(out, entry.counter - sibling.dot.counter);
        varint::put(out, entry.written_unix_ms - sibling.written_unix_ms);
        if let Some(expires) = sibling.expires_unix_ms {
            varint::put_difference(out, expires, sibling.written_unix_ms);
        }
        match &sibling.count {
            Count::Whole => {}
            Count::Added { since } => varint::put(out, sibling.dot.counter - since),
            Count::Set { seen } => put_seen(out, seen),
            Count::Fields(times) => put_times(out, times, sibling.written_unix_ms),
        }
        if let Some(value) = &sibling.value {
            varint::put(out, value.len() as u64);
            out.extend_from_slice(value);
        }
    }

    /// Parses a record. Its values are slices of these bytes.
    ///
    /// # Errors
    /// Bytes that [`encode`](Self::encode) does not produce.
    pub fn decode(bytes: Bytes) -> Result<Self, RecordError> {
        let mut reader = checked(&bytes)?;
        let context = VectorClock::read(&mut reader)?;
        let count = reader.number()?;
        if count > SIBLINGS_READ_MAX as u64 {
            return Err(RecordError::invalid("it has more siblings than possible"));
        }
        // A sibling has at least four bytes.
        let mut siblings: SmallVec<[Sibling; 1]> =
            SmallVec::with_capacity(count.min(reader.left() as u64 / 4) as usize);
        for _ in 0..count {
            let sibling = read_sibling(&mut reader, &context, &bytes)?;
            if siblings.last().is_some_and(|last| last.dot >= sibling.dot) {
                return Err(RecordError::invalid("its siblings are out of order"));
            }
            siblings.push(sibling);
        }
        reader.end()?;
        Ok(Self { context, siblings })
    }

    /// The value of a record with a single value, without expiry and without counter sums. `None` for other records, or
    /// damaged ones; [`decode`](Self::decode) tells which. The checksum is not verified: for bytes that an engine has
    /// in memory, or verified when it read them.
    pub fn plain_value(encoded: &[u8]) -> Option<&[u8]> {
        let (mut reader, _) = opened(encoded).ok()?;
        VectorClock::skip(&mut reader).ok()?;
        let is_plain = reader.number().ok()? == 1 && reader.byte().ok()? == HAS_VALUE;
        if !is_plain {
            return None;
        }
        let [_place, _counter, _written] = [reader.number().ok()?, reader.number().ok()?, reader.number().ok()?];
        let length = reader.number().ok()?;
        let value = reader.skip(length).ok()?;
        reader.end().ok()?;
        encoded.get(value)
    }

    /// Parses only the context of a record.
    ///
    /// # Errors
    /// As [`decode`](Self::decode). The bytes after the context are not parsed, but their checksum is verified.
    pub fn decode_context(bytes: &[u8]) -> Result<VectorClock, RecordError> {
        VectorClock::read(&mut checked(bytes)?)
    }

    /// The context of a key, as a record without siblings: enough to [write](Self::write) over all writes in these
    /// bytes. Only their beginning is parsed, and the checksum is not verified: for bytes that an engine has in memory,
    /// or verified when it read them.
    ///
    /// # Errors
    /// A beginning that [`encode`](Self::encode) does not produce.
    pub fn decode_seen(bytes: &[u8]) -> Result<Self, RecordError> {
        let (mut reader, _) = opened(bytes)?;
        Ok(Self {
            context: VectorClock::read(&mut reader)?,
            siblings: SmallVec::new(),
        })
    }

    /// The digest of an encoded record, for anti-entropy: equal records have equal digests, and different records
    /// almost never do.
    pub fn digest(encoded: &[u8]) -> u64 {
        xxh3_64(encoded.get(HEAD_BYTES..).unwrap_or(encoded))
    }

    /// The [digest](Self::digest) stored in an encoded record, which is correct unless the record is damaged.
    pub fn stated_digest(encoded: &[u8]) -> u64 {
        match opened(encoded) {
            Ok((_, checksum)) => checksum,
            Err(_) => Self::digest(encoded),
        }
    }
}

/// The bytes after the head, and the stored checksum.
fn opened(bytes: &[u8]) -> Result<(Reader<'_>, u64), RecordError> {
    let mut reader = Reader::new(bytes);
    let version = reader.byte()?;
    if version != VERSION {
        return Err(RecordError::UnknownVersion { found: version });
    }
    let checksum = bytes[1..].first_chunk().ok_or(RecordError::Truncated)?;
    reader.skip(HEAD_BYTES as u64 - 1)?;
    Ok((reader, u64::from_le_bytes(*checksum)))
}

/// The bytes after the head, if the head is correct.
fn checked(bytes: &[u8]) -> Result<Reader<'_>, RecordError> {
    let (reader, expected) = opened(bytes)?;
    let found = xxh3_64(&bytes[HEAD_BYTES..]);
    match found == expected {
        true => Ok(reader),
        false => Err(RecordError::Checksum { found, expected }),
    }
}

fn read_sibling(reader: &mut Reader<'_>, context: &VectorClock, bytes: &Bytes) -> Result<Sibling, RecordError> {
    let flags = reader.byte()?;
    let role = flags & (IS_ADDED | IS_SET | HAS_TIMES);
    if flags & !(HAS_VALUE | EXPIRES | IS_ADDED | IS_SET | HAS_TIMES) != 0 || role.count_ones() > 1 {
        return Err(RecordError::invalid("a sibling has unknown flags"));
    }
    let place = usize::try_from(reader.number()?).ok();
    let entry = place.and_then(|place| context.entries().get(place));
    let entry = entry.ok_or(RecordError::invalid("its clock does not cover a sibling"))?;
    let counter = entry
        .counter
        .checked_sub(reader.number()?)
        .filter(|&counter| counter > 0);
    let dot = Dot {
        replica: entry.replica,
        counter: counter.ok_or(RecordError::invalid("a sibling has the counter 0"))?,
    };
    let written_unix_ms = entry.written_unix_ms.checked_sub(reader.number()?);
    let written_unix_ms = written_unix_ms.ok_or(RecordError::invalid("a time is before 1970"))?;
    let expires_unix_ms = match flags & EXPIRES {
        0 => None,
        _ => Some(reader.difference(written_unix_ms)?),
    };
    let count = match role {
        0 => Count::Whole,
        IS_ADDED => {
            let since = dot.counter.checked_sub(reader.number()?).filter(|&since| since > 0);
            let since = since.ok_or(RecordError::invalid("a sum begins at the counter 0"))?;
            Count::Added { since }
        }
        HAS_TIMES => Count::Fields(read_times(reader, written_unix_ms)?),
        _ => Count::Set {
            seen: read_seen(reader)?,
        },
    };
    let value = match flags & HAS_VALUE {
        0 => None,
        _ => {
            let length = reader.number()?;
            Some(bytes.slice(reader.skip(length)?))
        }
    };
    Ok(Sibling {
        dot,
        written_unix_ms,
        expires_unix_ms,
        value,
        count,
    })
}

fn put_times(out: &mut impl Sink, times: &FieldTimes, written_unix_ms: u64) {
    varint::put(out, written_unix_ms - times.whole_unix_ms);
    varint::put(out, times.fields.len() as u64);
    for (name, time) in &times.fields {
        varint::put(out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
        varint::put(out, written_unix_ms - time);
    }
}

fn read_times(reader: &mut Reader<'_>, written_unix_ms: u64) -> Result<FieldTimes, RecordError> {
    let invalid = || RecordError::invalid("the times of fields are invalid");
    let time = |reader: &mut Reader<'_>| written_unix_ms.checked_sub(reader.number()?).ok_or_else(invalid);
    let whole_unix_ms = time(reader)?;
    let count = reader.number()?;
    if count > FIELDS_MAX as u64 {
        return Err(invalid());
    }
    let mut fields = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let length = reader.number()?;
        let name = reader.bytes(length)?;
        let name = str::from_utf8(name).map_err(|_| invalid())?;
        fields.push((name.into(), time(reader)?));
    }
    let times = FieldTimes {
        whole_unix_ms,
        fields: fields.into(),
    };
    match times.is_valid(written_unix_ms) {
        true => Ok(times),
        false => Err(invalid()),
    }
}

fn put_seen(out: &mut impl Sink, seen: &[Seen]) {
    varint::put(out, seen.len() as u64);
    for seen in seen {
        varint::put(out, u64::from(seen.replica.node.get()));
        varint::put(out, u64::from(seen.replica.incarnation));
        varint::put(out, seen.counter);
        varint::put(out, seen.counter - seen.since);
        varint::put_signed(out, seen.total);
    }
}

fn read_seen(reader: &mut Reader<'_>) -> Result<Box<[Seen]>, RecordError> {
    let count = reader.number()?;
    if count > SEEN_MAX as u64 {
        return Err(RecordError::invalid("a counter has seen more sums than possible"));
    }
    let mut seen: Vec<Seen> = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let node = NodeId::new(reader.number_u32("a node number has more than 32 bits")?);
        let replica = ReplicaId {
            node: node.ok_or(RecordError::invalid("a node has the number 0"))?,
            incarnation: reader.number_u32("an incarnation has more than 32 bits")?,
        };
        let counter = reader.number()?;
        let since = counter.checked_sub(reader.number()?).filter(|&since| since > 0);
        let sum = Seen {
            replica,
            since: since.ok_or(RecordError::invalid("a sum begins at the counter 0"))?,
            counter,
            total: reader.signed()?,
        };
        if counter > COUNTER_MAX
            || seen
                .last()
                .is_some_and(|last| (last.replica, last.since) >= (replica, sum.since))
        {
            return Err(RecordError::invalid(
                "the sums that a counter has seen are out of order",
            ));
        }
        seen.push(sum);
    }
    Ok(seen.into())
}

impl Update {
    /// Appends the update.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = match &self.change {
            Change::Put(_) => HAS_VALUE,
            Change::Delete => IS_DELETED,
            Change::Add(_) => IS_ADDED,
            Change::SetCounter { value: Some(_), .. } => IS_SET | HAS_VALUE,
            Change::SetCounter { value: None, .. } => IS_SET,
            Change::PutFields { .. } => HAS_TIMES | HAS_VALUE,
        };
        flags |= if self.expires_unix_ms.is_some() { EXPIRES } else { 0 };
        out.extend_from_slice(&[VERSION, flags]);
        varint::put(out, self.written_unix_ms);
        if let Some(expires) = self.expires_unix_ms {
            varint::put_difference(out, expires, self.written_unix_ms);
        }
        match &self.change {
            Change::Put(value) => out.extend_from_slice(value),
            Change::Delete => {}
            Change::Add(by) => varint::put_signed(out, *by),
            Change::PutFields { value, times } => {
                put_times(out, times, self.written_unix_ms);
                out.extend_from_slice(value);
            }
            Change::SetCounter { value, seen } => {
                put_seen(out, seen);
                if let Some(value) = value {
                    varint::put_signed(out, *value);
                }
            }
        }
    }

    /// The update as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }

    /// Parses an update. Its value is a slice of these bytes.
    ///
    /// # Errors
    /// Bytes that [`encode`](Self::encode) does not produce.
    pub fn decode(bytes: Bytes) -> Result<Self, RecordError> {
        let mut reader = Reader::new(&bytes);
        let version = reader.byte()?;
        if version != VERSION {
            return Err(RecordError::UnknownVersion { found: version });
        }
        let flags = reader.byte()?;
        let written_unix_ms = reader.number()?;
        let expires_unix_ms = match flags & EXPIRES {
            0 => None,
            _ => Some(reader.difference(written_unix_ms)?),
        };
        const SET: u8 = IS_SET | HAS_VALUE;
        const FIELDS: u8 = HAS_TIMES | HAS_VALUE;
        let change = match flags & !EXPIRES {
            HAS_VALUE => Change::Put(bytes.slice(reader.skip(reader.left() as u64)?)),
            IS_DELETED => Change::Delete,
            IS_ADDED => Change::Add(reader.signed()?),
            FIELDS => Change::PutFields {
                times: read_times(&mut reader, written_unix_ms)?,
                value: bytes.slice(reader.skip(reader.left() as u64)?),
            },
            kind @ (IS_SET | SET) => Change::SetCounter {
                seen: read_seen(&mut reader)?,
                value: match kind {
                    SET => Some(reader.signed()?),
                    _ => None,
                },
            },
            _ => return Err(RecordError::invalid("an update has unknown flags")),
        };
        reader.end()?;
        Ok(Self {
            written_unix_ms,
            expires_unix_ms,
            change,
        })
    }
}
