//! The model of the answers of a version: all its events in the order of their times, applied one by one.
//!
//! It is simple, and shares no code with overlays.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use fondaco_stream::{Change, Event, Logged};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_128;

/// How far an event may be ahead of its record, in milliseconds.
const AHEAD_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Counts of the events of the keys that a node has, as far as they do not depend on the order of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) records: u64,
    pub(super) cut: u64,
    pub(super) late: u64,
    pub(super) poison: u64,
    pub(super) elsewhere: u64,
    pub(super) repeated: u64,
}

/// The events of a version, by key.
#[derive(Debug, Default)]
pub(super) struct Model {
    events: BTreeMap<Bytes, Vec<Known>>,
    /// Updates with identifiers.
    named: BTreeSet<(Bytes, u64, u128, Bytes)>,
    pub(super) counts: Counts,
}

/// An event that counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    time_ms: u64,
    /// Values and deletions come before updates of the same time.
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Put(Bytes),
    /// It wins over values of the same time.
    Delete,
    Update(u128, Bytes),
}

impl Model {
    /// Adds a record, if it is an event of the version that counts.
    pub(super) fn add(
        &mut self,
        record: &Logged,
        belongs: &dyn Fn(&[u8]) -> bool,
        as_of_ms: Option<u64>,
        grace_ms: u64,
        is_held: &dyn Fn(&[u8]) -> bool,
    ) {
        let counts = &mut self.counts;
        counts.records += 1;
        let Some((event, time_ms)) = valid(record).filter(|(event, _)| belongs(&event.key)) else {
            counts.poison += 1;
            return;
        };
        if !is_held(&event.key) {
            counts.elsewhere += 1;
        } else if as_of_ms.is_some_and(|as_of_ms| time_ms <= as_of_ms) {
            counts.cut += 1;
        } else if time_ms + grace_ms < record.logged_ms {
            counts.late += 1;
        } else {
            let kind = match &event.change {
                Change::Put(value) => Kind::Put(value.clone()),
                Change::Delete => Kind::Delete,
                Change::Update(text) => Kind::Update(xxh3_128(text), text.clone()),
            };
            if let (Kind::Update(hash, _), Some(id)) = (&kind, &event.id)
                && !self.named.insert((event.key.clone(), time_ms, *hash, id.clone()))
            {
                counts.repeated += 1;
                return;
            }
            self.events
                .entry(event.key.clone())
                .or_default()
                .push(Known { time_ms, kind });
        }
    }

    /// Puts the events into their order.
    pub(super) fn sort(&mut self) {
        self.events.values_mut().for_each(|events| events.sort());
    }

    /// The keys with events.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.events.keys()
    }

    /// How many updates there are.
    pub(super) fn updates(&self) -> u64 {
        let events = self.events.values().flatten();
        events.filter(|event| matches!(event.kind, Kind::Update(..))).count() as u64
    }

    /// The value of a key after its events, and when it expires, given the version's value and the time of that.
    pub(super) fn value(
        &self,
        key: &[u8],
        mut value: Option<Bytes>,
        mut time_ms: u64,
        ttl_ms: Option<u64>,
    ) -> (Option<Bytes>, u64) {
        let end_ms = |time_ms: u64| ttl_ms.map_or(u64::MAX, |ttl_ms| time_ms + ttl_ms);
        for event in self.events.get(key).into_iter().flatten() {
            value = match &event.kind {
                Kind::Put(new) => Some(new.clone()),
                Kind::Delete => None,
                Kind::Update(_, text) => updated(value.filter(|_| event.time_ms < end_ms(time_ms)), text),
            };
            time_ms = event.time_ms;
        }
        (value, end_ms(time_ms))
    }

    /// The time of the latest event of a key.
    pub(super) fn latest_ms(&self, key: &[u8]) -> Option<u64> {
        Some(self.events.get(key)?.last()?.time_ms)
    }

    /// The events of a key, as text.
    pub(super) fn told(&self, key: &[u8]) -> String {
        let events = self.events.get(key).into_iter().flatten();
        let lines: Vec<String> = events.map(|event| format!("  {event:?}")).collect();
        lines.join("\n")
    }
}

/// The event of a record and its time, if it is one.
fn valid(record: &Logged) -> Option<(&Event, u64)> {
    let event = record.event.as_ref().ok()?;
    let time_ms = event.time_ms.unwrap_or(record.logged_ms);
    (time_ms <= record.logged_ms + AHEAD_MS_MAX && !event.key.is_empty()).then_some((event, time_ms))
}

/// The value after an update.
fn updated(value: Option<Bytes>, text: &[u8]) -> Option<Bytes> {
    let Ok(update) = serde_json::from_slice::<Map<String, Value>>(text) else {
        return value;
    };
    if let Some(by) = update.get("increment").and_then(Value::as_i64) {
        let known = match &value {
            None => Some(0),
            Some(bytes) => str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok()),
        };
        let sum = known.and_then(|known| known.checked_add(by));
        return sum.map_or(value, |sum| Some(sum.to_string().into()));
    }
    let mut object = match &value {
        None => Map::new(),
        Some(bytes) => match serde_json::from_slice(bytes) {
            Ok(object) => object,
            Err(_) => return value,
        },
    };
    for name in ["set", "remove", "add", "append", "increment"] {
        for (field, operand) in update.get(name).and_then(Value::as_object).into_iter().flatten() {
            change(&mut object, field, name, operand);
        }
    }
    match value.is_none() && object.is_empty() {
        true => None,
        false => Some(Value::Object(object).to_string().into()),
    }
}

/// Changes a field, if the operation fits it.
fn change(object: &mut Map<String, Value>, field: &str, name: &str, operand: &Value) {
    let known = object.get(field).cloned();
    let next = match (name, operand, known) {
        ("set", new, _) => Some(new.clone()).filter(|new| !new.is_null()),
        ("remove", Value::Array(gone), Some(Value::Array(list))) => Some(Value::Array(
            list.into_iter().filter(|element| !gone.contains(element)).collect(),
        )),
        ("remove", Value::Array(gone), Some(Value::Object(map))) => Some(Value::Object(
            map.into_iter()
                .filter(|(key, _)| !gone.contains(&Value::from(&**key)))
                .collect(),
        )),
        ("add", Value::Array(new), None) => Some(Value::Array(distinct(Vec::new(), new))),
        ("add", Value::Array(new), Some(Value::Array(list))) => Some(Value::Array(distinct(list, new))),
        ("add", Value::Object(new), None) => Some(Value::Object(new.clone())),
        ("add", Value::Object(new), Some(Value::Object(map))) => {
            Some(Value::Object(map.into_iter().chain(new.clone()).collect()))
        }
        ("append", Value::Array(new), None) => Some(Value::Array(new.clone())),
        ("append", Value::Array(new), Some(Value::Array(list))) => Some(Value::Array([list, new.clone()].concat())),
        ("increment", by, None) => Some(by.clone()),
        ("increment", by, Some(known)) => {
            let sum = known
                .as_i64()
                .zip(by.as_i64())
                .and_then(|(known, by)| known.checked_add(by));
            Some(sum.map_or(known, Value::from))
        }
        (_, _, known) => known,
    };
    match next {
        Some(next) => _ = object.insert(field.to_owned(), next),
        None => _ = object.remove(field),
    }
}

fn distinct(mut list: Vec<Value>, new: &[Value]) -> Vec<Value> {
    for element in new {
        if !list.contains(element) {
            list.push(element.clone());
        }
    }
    list
}
