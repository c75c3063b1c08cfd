//! Conflicts by field: of concurrent writes of single fields, each field has its latest write.
//!
//! A write of a whole value writes all fields at once, also those that it does not have. A write of some fields has, beside
//! the value, the times of these fields, and of those that others wrote after the value was last written whole. So of
//! several siblings the one that was written whole last is the base, and fields that were written later come from the
//! others. A deletion is a whole value without fields.
//!
//! Fields are opaque here: a value of another type than JSON is merged by the caller's function, which knows its type.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::counter::Count;
use super::record::{Record, Sibling};
use super::write::{Change, Update};

/// For how many fields a value has times of their own, at most: the latest ones. The others count as written with the
/// whole value, which is then as late as the latest of them.
pub const FIELDS_MAX: usize = 256;
/// How many bytes the names of these fields have, at most.
pub const FIELD_NAMES_BYTES_MAX: usize = 16 << 10;

/// When a value was written whole, and when fields of it were written later.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldTimes {
    /// When the whole value was written, in milliseconds since 1970; 0 if it never was.
    pub whole_unix_ms: u64,
    /// The fields that were written later, ordered by name, with their times. A field that the value lacks was removed.
    pub fields: Box<[(Box<str>, u64)]>,
}

/// Makes one value of parts of several, for types that the caller knows: of a base, `None` if the key was deleted, and of
/// fields, each with the value that it comes from. `None` if it cannot.
pub type MergeFields<'a> = &'a dyn Fn(Option<&Bytes>, &[(&str, Option<&Bytes>)]) -> Option<Bytes>;

/// One sibling, as far as it counts.
struct Side<'a> {
    sibling: &'a Sibling,
    whole_unix_ms: u64,
    later: &'a [(Box<str>, u64)],
}

/// The parts of siblings that the value of the key consists of.
struct Parts<'a> {
    base: Side<'a>,
    /// The fields that were written after the base, with their times, and the siblings that they come from.
    fields: BTreeMap<&'a str, (u64, &'a Sibling)>,
}

impl<'a> Side<'a> {
    fn of(sibling: &'a Sibling) -> Self {
        let (whole_unix_ms, later) = match &sibling.count {
            Count::Fields(times) => (times.whole_unix_ms, &times.fields[..]),
            Count::Whole | Count::Added { .. } | Count::Set { .. } => (sibling.written_unix_ms, &[][..]),
        };
        Self {
            sibling,
            whole_unix_ms,
            later,
        }
    }
}

impl<'a> Parts<'a> {
    /// The parts of a record at this time; `None` if the key does not exist, or its latest write has expired.
    fn of(record: &'a Record, now_unix_ms: u64) -> Option<Self> {
        let latest = record.siblings.iter().max_by_key(|sibling| sibling.age())?;
        if latest.has_expired(now_unix_ms) {
            return None;
        }
        // Not all replicas have dropped the values that have expired.
        let living = record.siblings.iter();
        let living = living.filter(|sibling| !sibling.has_expired(now_unix_ms));
        let mut sides: SmallVec<[Side<'_>; 4]> = living.map(Side::of).collect();
        // As for `latest`, between whole values; then by what was written last.
        let rank = |side: &Side<'_>| (side.whole_unix_ms, side.sibling.age());
        let (at, _) = sides.iter().enumerate().max_by_key(|(_, side)| rank(side))?;
        let base = sides.swap_remove(at);
        let mut fields: BTreeMap<&str, (u64, &Sibling)> = BTreeMap::new();
        for side in std::iter::once(&base).chain(&sides) {
            let later = side.later.iter().filter(|(_, time)| *time > base.whole_unix_ms);
            for (name, time) in later {
                let new = (*time, side.sibling);
                let known = fields.entry(name).or_insert(new);
                if (known.0, known.1.age()) < (new.0, new.1.age()) {
                    *known = new;
                }
            }
        }
        Some(Self { base, fields })
    }

    /// Whether the base is the value.
    fn are_base(&self) -> bool {
        let of_base = |(_, sibling): &(u64, &Sibling)| sibling.dot == self.base.sibling.dot;
        self.fields.values().all(of_base)
    }

    fn value(&self, merge: MergeFields<'_>) -> Option<Bytes> {
        let from_others = self.fields.iter();
        let from_others = from_others.filter(|(_, (_, sibling))| sibling.dot != self.base.sibling.dot);
        let fields: Vec<(&str, Option<&Bytes>)> = from_others
            .map(|(name, (_, sibling))| (*name, sibling.value.as_ref()))
            .collect();
        merge(self.base.sibling.value.as_ref(), &fields)
    }
}

/// The value of a record, and when it expires: with its latest write. Values that cannot be merged are as if the store
/// resolved by the latest.
pub(super) fn resolve(record: &Record, now_unix_ms: u64, merge: MergeFields<'_>) -> (Option<Bytes>, Option<u64>) {
    let latest = record.siblings.iter().max_by_key(|sibling| sibling.age());
    let (Some(latest), Some(parts)) = (latest, Parts::of(record, now_unix_ms)) else {
        return (None, None);
    };
    let living = record.siblings.iter();
    let living = living.filter(|sibling| sibling.value_at(now_unix_ms).is_some());
    let expires_unix_ms = living
        .max_by_key(|sibling| sibling.age())
        .and_then(|sibling| sibling.expires_unix_ms);
    let value = match parts.are_base() {
        true => parts.base.sibling.value.clone(),
        false => parts.value(merge).or_else(|| latest.value.clone()),
    };
    (value, expires_unix_ms)
}

impl Update {
    /// The update that writes some fields of a value, for a client that has read this record: to be written over its
    /// context. The value is the whole one, with these fields as they are now; of those that it lacks, the write removes them.
    pub fn put_fields(
        read: &Record,
        value: Bytes,
        fields: &[Box<str>],
        now_unix_ms: u64,
        expires_unix_ms: Option<u64>,
    ) -> Self {
        // As the replica would choose it: the fields have the time of the write.
        let after_unix_ms = read
            .context
            .newest_unix_ms()
            .map_or(0, |newest| newest.saturating_add(1));
        let written_unix_ms = now_unix_ms.max(after_unix_ms);
        let mut times: BTreeMap<&str, u64> = BTreeMap::new();
        let mut whole_unix_ms = 0;
        if let Some(parts) = Parts::of(read, now_unix_ms) {
            whole_unix_ms = parts.base.whole_unix_ms;
            times.extend(parts.fields.iter().map(|(name, (time, _))| (*name, *time)));
        }
        times.extend(fields.iter().map(|name| (&**name, written_unix_ms)));
        Self {
            written_unix_ms,
            expires_unix_ms,
            change: Change::PutFields {
                value,
                times: FieldTimes::bounded(whole_unix_ms, &times),
            },
        }
    }
}

impl FieldTimes {
    fn bounded(mut whole_unix_ms: u64, times: &BTreeMap<&str, u64>) -> Self {
        let mut latest: Vec<(u64, &str)> = times.iter().map(|(name, time)| (*time, *name)).collect();
        latest.sort_unstable_by(|a, b| b.cmp(a));
        let mut bytes = 0;
        let fits = |(_, name): &&(u64, &str)| {
            bytes += name.len();
            bytes <= FIELD_NAMES_BYTES_MAX
        };
        let count = latest.iter().take(FIELDS_MAX).take_while(fits).count();
        if let Some((time, _)) = latest.get(count) {
            whole_unix_ms = whole_unix_ms.max(*time);
        }
        let kept = times.iter().filter(|(_, time)| **time > whole_unix_ms);
        Self {
            whole_unix_ms,
            fields: kept.map(|(name, time)| ((*name).into(), *time)).collect(),
        }
    }

    /// Whether an encoding may have these times, of a write at this time.
    pub(super) fn is_valid(&self, written_unix_ms: u64) -> bool {
        let bytes: usize = self.fields.iter().map(|(name, _)| name.len()).sum();
        self.whole_unix_ms <= written_unix_ms
            && self.fields.len() <= FIELDS_MAX
            && bytes <= FIELD_NAMES_BYTES_MAX
            && self.fields.is_sorted_by(|a, b| a.0 < b.0)
            && self
                .fields
                .iter()
                .all(|(_, time)| (self.whole_unix_ms + 1..=written_unix_ms).contains(time))
    }
}

/// Merges JSON objects. `None` if a value is not a JSON object.
pub fn merge_json(base: Option<&Bytes>, fields: &[(&str, Option<&Bytes>)]) -> Option<Bytes> {
    let parse = |value: &Bytes| serde_json::from_slice::<Map<String, Value>>(value).ok();
    let mut merged = base.map_or(Some(Map::new()), parse)?;
    // Several fields come from one sibling.
    let mut sources: Vec<(&Bytes, Map<String, Value>)> = Vec::new();
    for (name, source) in fields {
        let Some(source) = source else { continue };
        let at = match sources.iter().position(|(known, _)| std::ptr::eq(*known, *source)) {
            Some(at) => at,
            None => {
                sources.push((source, parse(source)?));
                sources.len() - 1
            }
        };
        match sources[at].1.get(*name) {
            Some(value) => _ = merged.insert((*name).to_owned(), value.clone()),
            None => _ = merged.remove(*name),
        }
    }
    serde_json::to_vec(&merged).ok().map(Bytes::from)
}
