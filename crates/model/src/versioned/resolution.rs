//! How concurrent values of a key become one, for readers that want one value.

use std::collections::HashSet;

use bytes::Bytes;
use smallvec::SmallVec;

use super::counter;
use super::fields::{self, MergeFields};
use super::record::{Record, Sibling};
use crate::word::words;

words! {
    /// How a store resolves siblings when a key is read. Nothing is written: the siblings stay until a write makes them
    /// obsolete.
    Resolution "resolution":
    /// The latest: by causality, then by time, then deletions before values, then by dot. Readers that do not ask for
    /// all siblings do not see the others.
    #[default]
    Latest = "latest",
    /// All of them, equal ones once: the client decides.
    All = "all",
    /// JSON arrays as sets: the elements of all of them, in the order of the latest. An element that one client removed
    /// while another wrote an array with it stays. If a value is not an array, the latest value is used.
    Set = "set",
    /// Integers with increments: none is lost, and none counts twice.
    Counter = "counter",
    /// Values with fields: each field has its latest write. Writes of the whole value, and deletions, write all fields.
    Fields = "fields",
}

/// The value of a key for readers that want one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Its value; empty if the key does not exist. Several values only if the client decides ([`Resolution::All`]), the
    /// latest first.
    pub values: SmallVec<[Bytes; 1]>,
    /// When the first value expires, in milliseconds since 1970; `None` for never.
    pub expires_unix_ms: Option<u64>,
}

impl Resolved {
    /// The value, or the latest one.
    pub fn value(&self) -> Option<&Bytes> {
        self.values.first()
    }
}

/// The value of a record at this time, resolved according to its store. Fields are merged if the values are JSON objects.
pub fn resolve(record: &Record, resolution: Resolution, now_unix_ms: u64) -> Resolved {
    resolve_with(record, resolution, now_unix_ms, &fields::merge_json)
}

/// As [`resolve`], for values with fields of any type.
pub fn resolve_with(record: &Record, resolution: Resolution, now_unix_ms: u64, merge: MergeFields<'_>) -> Resolved {
    let Some(latest) = record.siblings().iter().max_by_key(|sibling| sibling.age()) else {
        return Resolved::default();
    };
    let one = |value: Option<Bytes>, expires_unix_ms: Option<u64>| Resolved {
        expires_unix_ms: expires_unix_ms.filter(|_| value.is_some()),
        values: value.into_iter().collect(),
    };
    match resolution {
        Resolution::Counter => one(
            counter::value(record, now_unix_ms),
            counter::expiry(record, now_unix_ms).flatten(),
        ),
        // A single sibling needs no resolution, except in counters.
        _ if record.siblings().len() == 1 => one(latest.value_at(now_unix_ms).cloned(), latest.expires_unix_ms),
        Resolution::Fields => {
            let (value, expires_unix_ms) = fields::resolve(record, now_unix_ms, merge);
            one(value, expires_unix_ms)
        }
        Resolution::Latest => one(latest.value_at(now_unix_ms).cloned(), latest.expires_unix_ms),
        Resolution::All => {
            let living = newest_first(record, now_unix_ms);
            let mut values = SmallVec::<[Bytes; 1]>::new();
            for value in living.iter().filter_map(|sibling| sibling.value.as_ref()) {
                // Two replicas may have taken the same write.
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
            Resolved {
                expires_unix_ms: living.first().and_then(|sibling| sibling.expires_unix_ms),
                values,
            }
        }
        Resolution::Set => {
            let living = newest_first(record, now_unix_ms);
            match union(&living) {
                Some(set) => one(Some(set), longest(&living)),
                None => one(latest.value_at(now_unix_ms).cloned(), latest.expires_unix_ms),
            }
        }
    }
}

/// The siblings that have a value at this time.
fn newest_first(record: &Record, now_unix_ms: u64) -> SmallVec<[&Sibling; 4]> {
    let living = record
        .siblings()
        .iter()
        .filter(|sibling| sibling.value_at(now_unix_ms).is_some());
    let mut living: SmallVec<[&Sibling; 4]> = living.collect();
    living.sort_unstable_by_key(|sibling| std::cmp::Reverse(sibling.age()));
    living
}

/// When the last of these expires; `None` if one never does.
fn longest(living: &[&Sibling]) -> Option<u64> {
    let expires = living.iter().map(|sibling| sibling.expires_unix_ms.unwrap_or(u64::MAX));
    expires.max().filter(|&expires| expires != u64::MAX)
}

/// The elements of all arrays; `None` if a value is not an array.
fn union(living: &[&Sibling]) -> Option<Bytes> {
    let [_, ..] = living else { return None };
    let mut known = HashSet::new();
    let mut union = Vec::new();
    for sibling in living {
        let elements: Vec<serde_json::Value> = serde_json::from_slice(sibling.value.as_deref()?).ok()?;
        for mut element in elements {
            // Equal objects then have equal text, whatever the order of their names.
            element.sort_all_objects();
            if known.insert(element.to_string()) {
                union.push(element);
            }
        }
    }
    serde_json::to_vec(&union).ok().map(Bytes::from)
}
