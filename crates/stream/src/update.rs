//! Changes of parts of a value.
//!
//! An update is a JSON object. Its operations apply to the fields of a value that is a JSON object itself, in this
//! order:
//!
//! ```text
//! {"set":       {"name": "x", "old": null},       null removes the field
//!  "remove":    {"tags": ["a"], "sizes": ["s"]},  elements of a list, or keys of a map
//!  "add":       {"tags": ["b"], "sizes": {"m": 2}},  elements that the list does not have, or entries of a map
//!  "append":    {"log": [1, 1]},                  elements at the end of a list
//!  "increment": {"views": 1}}                     or, of a value that is a whole number itself: {"increment": 1}
//! ```
//!
//! A field that does not exist yet is created: an object, an empty list or map, a zero. A removal creates nothing. An
//! operation that does not fit the existing value has no effect.

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::event::Poison;

/// The longest update, and the longest value that updates make, in bytes.
pub(crate) const UPDATE_BYTES_MAX: usize = 1 << 20;

/// The largest increment.
const INCREMENT_MAX: u64 = 1 << 53;
/// The most characters of a number.
const DIGITS_MAX: usize = 20;

/// The operations of an update.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Update {
    /// By how much a value may grow, in bytes.
    bytes: usize,
    /// How much is added to the whole value.
    whole: i64,
    fields: Vec<(String, Operation)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operation {
    Set(Value),
    Remove(Vec<Value>),
    Add(Vec<Value>),
    Enter(Map<String, Value>),
    Append(Vec<Value>),
    Increment(i64),
}

/// A value while updates apply to it.
pub(crate) struct Content {
    form: Form,
    /// At least its length, in bytes.
    bytes: usize,
    /// Whether a number was near the end of what has 64 bits.
    is_near_limit: bool,
}

enum Form {
    Absent,
    Bytes(Bytes),
    Number(i64),
    Object(Map<String, Value>),
}

impl Update {
    /// The operations that a text names.
    ///
    /// # Errors
    /// It is no update.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Poison> {
        if text.len() > UPDATE_BYTES_MAX {
            let bytes = text.len();
            return Err(Poison(format!(
                "the update has {bytes} bytes: there may be {UPDATE_BYTES_MAX}"
            )));
        }
        let operations: Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| Poison(format!("the update is no JSON object: {error}")))?;
        let mut update = Self {
            bytes: serde_json::to_vec(&operations).map_or(0, |text| text.len()),
            whole: 0,
            fields: Vec::new(),
        };
        if let Some(name) = operations.keys().find(|name| !NAMES.contains(&name.as_str())) {
            let names = NAMES.join(", ");
            return Err(Poison(format!(
                "unknown operation {name:?} in an update: there are {names}"
            )));
        }
        let has_whole = operations.get("increment").is_some_and(|by| !by.is_object());
        for name in NAMES {
            match operations.get(name) {
                None => {}
                Some(Value::Object(fields)) => {
                    for (field, operand) in fields {
                        let operation = Operation::parse(name, operand).ok_or_else(|| {
                            Poison(format!(
                                "operation {name:?} of an update cannot have this for field {field:?}: {operand}"
                            ))
                        })?;
                        update.fields.push((field.clone(), operation));
                    }
                }
                Some(by) => {
                    let whole = increment(by).filter(|_| name == "increment");
                    update.whole = whole
                        .ok_or_else(|| Poison(format!("operation {name:?} of an update names no fields: {by}")))?;
                }
            }
        }
        match has_whole == update.fields.is_empty() {
            true => Ok(update),
            false => Err(Poison(
                "an update has operations on fields, or one increment of the whole value".to_owned(),
            )),
        }
    }

    /// Whether it only adds to numbers: the order of such updates does not matter, if all fit.
    pub(crate) fn is_sum(&self) -> bool {
        let mut fields = self.fields.iter();
        fields.all(|(_, operation)| matches!(operation, Operation::Increment(_)))
    }
}

/// A number that can be added: the order of increments would matter where sums do not fit, so they are far from that.
fn increment(by: &Value) -> Option<i64> {
    by.as_i64().filter(|by| by.unsigned_abs() <= INCREMENT_MAX)
}

/// Whether a sum, or its value before the last increment, is beyond half of the range of 64 bits. With hundreds of
/// the largest increments more, their order would matter.
fn is_near_limit(sum: i64) -> bool {
    sum.unsigned_abs() > (1 << 62) - INCREMENT_MAX
}

/// In the order in which they apply.
const NAMES: [&str; 5] = ["set", "remove", "add", "append", "increment"];

impl Operation {
    fn parse(name: &str, operand: &Value) -> Option<Self> {
        Some(match (name, operand) {
            ("set", value) => Self::Set(value.clone()),
            ("remove", Value::Array(elements)) => Self::Remove(elements.clone()),
            ("add", Value::Array(elements)) => Self::Add(elements.clone()),
            ("add", Value::Object(entries)) => Self::Enter(entries.clone()),
            ("append", Value::Array(elements)) => Self::Append(elements.clone()),
            ("increment", by) => Self::Increment(increment(by)?),
            _ => return None,
        })
    }

    /// Applies it to a field. Returns whether it fits what is there.
    fn apply(&self, field: &str, object: &mut Map<String, Value>) -> bool {
        match (self, object.get_mut(field)) {
            (Self::Set(Value::Null), _) => _ = object.remove(field),
            (Self::Set(value), _) => _ = object.insert(field.to_owned(), value.clone()),
            (Self::Remove(_), None) => {}
            (Self::Remove(elements), Some(Value::Array(list))) => {
                let elements = Elements::of(elements);
                list.retain(|known| !elements.have(known));
            }
            (Self::Remove(keys), Some(Value::Object(map))) => {
                keys.iter()
                    .filter_map(Value::as_str)
                    .for_each(|key| _ = map.remove(key));
            }
            (Self::Add(elements), known @ (None | Some(Value::Array(_)))) => {
                let mut list = known.map(Value::take).unwrap_or_else(|| Value::Array(Vec::new()));
                if let Value::Array(list) = &mut list {
                    let mut known = Elements::of(list);
                    let new = elements.iter().filter(|element| known.insert(element));
                    list.extend(new.cloned());
                }
                object.insert(field.to_owned(), list);
            }
            (Self::Append(elements), Some(Value::Array(list))) => list.extend_from_slice(elements),
            (Self::Append(elements), None) => _ = object.insert(field.to_owned(), Value::Array(elements.clone())),
            (Self::Enter(entries), Some(Value::Object(map))) => map.extend(entries.clone()),
            (Self::Enter(entries), None) => _ = object.insert(field.to_owned(), Value::Object(entries.clone())),
            (Self::Increment(by), known) => {
                let sum = known.map_or(Some(0), |known| known.as_i64());
                let Some(sum) = sum.and_then(|known| known.checked_add(*by)) else {
                    return false;
                };
                object.insert(field.to_owned(), sum.into());
            }
            (Self::Remove(_) | Self::Add(_) | Self::Append(_) | Self::Enter(_), Some(_)) => return false,
        }
        true
    }
}

/// Elements of a list, by their texts: lists may be long.
struct Elements(HashSet<String>);

impl Elements {
    fn of(list: &[Value]) -> Self {
        Self(list.iter().map(Value::to_string).collect())
    }

    fn have(&self, element: &Value) -> bool {
        self.0.contains(&element.to_string())
    }

    /// Returns whether it is new.
    fn insert(&mut self, element: &Value) -> bool {
        self.0.insert(element.to_string())
    }
}

impl Content {
    /// A value, or none.
    pub(crate) fn of(value: Option<Bytes>) -> Self {
        let bytes = value.as_ref().map_or(0, Bytes::len);
        let form = value.map_or(Form::Absent, Form::Bytes);
        Self {
            form,
            bytes,
            is_near_limit: false,
        }
    }

    /// The value, if there is one.
    pub(crate) fn value(&self) -> Option<Bytes> {
        match &self.form {
            Form::Absent => None,
            Form::Bytes(bytes) => Some(bytes.clone()),
            Form::Number(number) => Some(number.to_string().into()),
            Form::Object(object) => {
                // Writing a map with keys that are texts does not fail.
                let text = serde_json::to_vec(object).unwrap_or_default();
                Some(text.into())
            }
        }
    }

    /// Whether increments may not fit in another order.
    pub(crate) fn is_near_limit(&self) -> bool {
        self.is_near_limit
    }

    /// Applies an update. Returns whether all of it fits what is there.
    pub(crate) fn apply(&mut self, update: &Update) -> bool {
        if self.bytes + update.bytes > UPDATE_BYTES_MAX {
            self.bytes = self.value().as_ref().map_or(0, Bytes::len);
            if self.bytes + update.bytes > UPDATE_BYTES_MAX {
                return false;
            }
        }
        self.bytes += update.bytes;
        match update.fields.is_empty() {
            true => self.add(update.whole),
            false => self.apply_to_fields(&update.fields),
        }
    }

    fn add(&mut self, by: i64) -> bool {
        let known = match &self.form {
            Form::Absent => Some(0),
            Form::Bytes(bytes) => str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
            Form::Number(known) => Some(*known),
            Form::Object(_) => None,
        };
        let sum = known.and_then(|known: i64| known.checked_add(by));
        if let Some(sum) = sum {
            self.is_near_limit |= is_near_limit(sum);
            self.form = Form::Number(sum);
            self.bytes = DIGITS_MAX;
        }
        sum.is_some()
    }

    fn apply_to_fields(&mut self, fields: &[(String, Operation)]) -> bool {
        let is_new = matches!(self.form, Form::Absent);
        match &self.form {
            Form::Absent => self.form = Form::Object(Map::new()),
            Form::Bytes(bytes) => match serde_json::from_slice(bytes) {
                Ok(object) => {
                    self.form = Form::Object(object);
                    // Its text may be written in another way: only the next update asks for its length.
                    self.bytes = UPDATE_BYTES_MAX;
                }
                Err(_) => return false,
            },
            Form::Number(_) => return false,
            Form::Object(_) => {}
        }
        let Form::Object(object) = &mut self.form else {
            return false;
        };
        let mut all_fit = true;
        for (field, operation) in fields {
            all_fit &= operation.apply(field, object);
            if let Operation::Increment(_) = operation {
                let sum = object.get(field).and_then(Value::as_i64);
                self.is_near_limit |= sum.is_some_and(is_near_limit);
            }
        }
        if is_new && object.is_empty() {
            self.form = Form::Absent;
        }
        all_fit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value after updates, and the number of updates that fit.
    fn after(value: Option<&str>, updates: &[&str]) -> (Option<String>, usize) {
        let mut content = Content::of(value.map(|value| value.to_owned().into()));
        let fit = updates
            .iter()
            .filter(|text| content.apply(&Update::parse(text.as_bytes()).unwrap()))
            .count();
        let value = content.value().map(|value| String::from_utf8(value.to_vec()).unwrap());
        (value, fit)
    }

    #[test]
    fn operations_change_fields() {
        for (value, updates, expected) in [
            (
                None,
                [r#"{"set":{"a":1,"b":[2]}}"#, r#"{"set":{"a":null}}"#],
                r#"{"b":[2]}"#,
            ),
            (
                None,
                [r#"{"add":{"t":["x","y"]}}"#, r#"{"add":{"t":["y","z"]}}"#],
                r#"{"t":["x","y","z"]}"#,
            ),
            (
                None,
                [r#"{"append":{"t":[1,1]}}"#, r#"{"append":{"t":[1]}}"#],
                r#"{"t":[1,1,1]}"#,
            ),
            (
                None,
                [r#"{"add":{"m":{"x":1}}}"#, r#"{"add":{"m":{"y":2}}}"#],
                r#"{"m":{"x":1,"y":2}}"#,
            ),
            (
                Some(r#"{"m":{"x":1,"y":2},"t":[1,2,1]}"#),
                [r#"{"remove":{"m":["x"],"t":[1]}}"#, r#"{"remove":{"none":[1]}}"#],
                r#"{"m":{"y":2},"t":[2]}"#,
            ),
            (
                Some(r#"{"n":40}"#),
                [r#"{"increment":{"n":3}}"#, r#"{"increment":{"n":-1,"new":5}}"#],
                r#"{"n":42,"new":5}"#,
            ),
            (Some("40"), [r#"{"increment":3}"#, r#"{"increment":-1}"#], "42"),
            (None, [r#"{"increment":3}"#, r#"{"increment":-1}"#], "2"),
            // All of one update, in the order of the operations.
            (
                Some(r#"{"t":[1]}"#),
                [
                    r#"{"append":{"t":[1]},"set":{"n":1},"remove":{"t":[1]},"increment":{"n":1}}"#,
                    r#"{"set":{"z":null}}"#,
                ],
                r#"{"n":2,"t":[1]}"#,
            ),
        ] {
            assert_eq!(after(value, &updates), (Some(expected.to_owned()), 2), "{updates:?}");
        }
        assert_eq!(after(None, &[r#"{"remove":{"t":[1]}}"#]), (None, 1));
    }

    #[test]
    fn an_absent_key_stays_absent_if_there_is_nothing_to_remove() {
        for update in [r#"{"set":{"a":null}}"#, r#"{"remove":{"t":[1]}}"#] {
            assert_eq!(after(None, &[update]), (None, 1), "{update}");
        }
        // A value that has lost its last field is not an absent one.
        assert_eq!(
            after(Some(r#"{"a":1}"#), &[r#"{"set":{"a":null}}"#]),
            (Some("{}".into()), 1)
        );
        let both = [r#"{"set":{"a":1}}"#, r#"{"set":{"a":null}}"#];
        assert_eq!(after(None, &both), (Some("{}".into()), 2));
    }

    #[test]
    fn operations_that_do_not_fit_have_no_effect() {
        for (value, update) in [
            ("text", r#"{"set":{"a":1}}"#),
            ("text", r#"{"increment":1}"#),
            ("7", r#"{"set":{"a":1}}"#),
            ("{}", r#"{"increment":1}"#),
            (r#"{"a":"x"}"#, r#"{"increment":{"a":1}}"#),
            (r#"{"a":1.5}"#, r#"{"increment":{"a":1}}"#),
            (r#"{"a":{}}"#, r#"{"append":{"a":[1]}}"#),
            (r#"{"a":[]}"#, r#"{"add":{"a":{"b":1}}}"#),
            (r#"{"a":1}"#, r#"{"remove":{"a":[1]}}"#),
            ("9223372036854775807", r#"{"increment":1}"#),
        ] {
            assert_eq!(after(Some(value), &[update]), (Some(value.to_owned()), 0), "{update}");
        }
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(UPDATE_BYTES_MAX - 20));
        let (kept, fit) = after(
            Some(&long),
            &[
                r#"{"set":{"b":"too long"}}"#,
                r#"{"set":{"a":null}}"#,
                r#"{"set":{"b":1}}"#,
            ],
        );
        assert_eq!((kept.as_deref(), fit), (Some(&*long), 0));
    }

    #[test]
    fn texts_that_are_no_updates_say_why() {
        for (text, reason) in [
            ("", "no JSON object"),
            ("[]", "no JSON object"),
            ("{}", "has operations"),
            (r#"{"set":{}}"#, "has operations"),
            (r#"{"put":{"a":1}}"#, "unknown operation \"put\""),
            (r#"{"increment":1,"set":{"a":1}}"#, "or one increment"),
            (r#"{"increment":1.5}"#, "names no fields: 1.5"),
            (r#"{"increment":{"a":9007199254740993}}"#, "field \"a\""),
            (r#"{"set":1}"#, "names no fields: 1"),
            (r#"{"increment":{"a":"1"}}"#, "field \"a\""),
            (r#"{"append":{"a":1}}"#, "field \"a\""),
        ] {
            let Poison(found) = Update::parse(text.as_bytes()).unwrap_err();
            assert!(found.contains(reason), "{text}: {found}");
        }
        assert!(Update::parse(&vec![b' '; UPDATE_BYTES_MAX + 1]).is_err());
    }
}
