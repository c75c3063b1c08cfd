//! Changes of parts of a value.
//!
//! An update is a JSON object. Its operations apply to the fields of a value, in this order:
//!
//! ```text
//! {"set":       {"name": "x", "old": null},       null removes the field
//!  "remove":    {"tags": ["a"], "sizes": ["s"]},  elements of a list, or keys of a map
//!  "add":       {"tags": ["b"], "sizes": {"m": 2}},  elements that the list does not have, or entries of a map
//!  "append":    {"log": [1, 1]},                  elements at the end of a list
//!  "increment": {"views": 1}}                     or, of a value that is a whole number itself: {"increment": 1}
//! {"remove": [9], "add": [1, 5]}                  of a value that is a set of ids itself
//! ```
//!
//! A field that does not exist yet is created: an object, an empty list or map, a zero. A removal creates nothing. An
//! operation that does not fit the existing value, or the type of its field, has no effect.
//!
//! | part | has |
//! |---|---|
//! | [`Update`] | the operations |
//! | `operation` | one operation on the value of one field |
//! | [`Content`] | a value while updates apply to it |
//! | `record` | values with fields that are not JSON text: only the fields that are named are decoded |

mod content;
mod operation;
mod record;

use serde_json::{Map, Value};

pub use self::content::Content;
use self::operation::Operation;
pub use self::record::merge_fields;

/// The longest update, and the longest value that updates make, in bytes.
pub const UPDATE_BYTES_MAX: usize = 1 << 20;

/// The largest increment.
const INCREMENT_MAX: u64 = 1 << 53;

/// The operations of an update.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// By how much a value may grow, in bytes.
    bytes: usize,
    /// How much is added to the whole value.
    whole: i64,
    /// The changes of a set of ids.
    members: Option<Members>,
    fields: Vec<(String, Operation)>,
}

/// The members that an update removes from a set of ids, and then those that it adds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Members {
    pub(crate) remove: Vec<u64>,
    pub(crate) add: Vec<u64>,
}

/// Why a text is no update.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UpdateError(String);

impl Update {
    /// The operations that a text names.
    ///
    /// # Errors
    /// It is no update.
    pub fn parse(text: &[u8]) -> Result<Self, UpdateError> {
        if text.len() > UPDATE_BYTES_MAX {
            let bytes = text.len();
            return Err(UpdateError(format!(
                "the update has {bytes} bytes: there may be {UPDATE_BYTES_MAX}"
            )));
        }
        let operations: Map<String, Value> = serde_json::from_slice(text)
            .map_err(|error| UpdateError(format!("the update is no JSON object: {error}")))?;
        let mut update = Self {
            bytes: serde_json::to_vec(&operations).map_or(0, |text| text.len()),
            whole: 0,
            members: None,
            fields: Vec::new(),
        };
        if let Some(name) = operations.keys().find(|name| !NAMES.contains(&name.as_str())) {
            let names = NAMES.join(", ");
            return Err(UpdateError(format!(
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
                            UpdateError(format!(
                                "operation {name:?} of an update cannot have this for field {field:?}: {operand}"
                            ))
                        })?;
                        update.fields.push((field.clone(), operation));
                    }
                }
                Some(Value::Array(ids)) if ["remove", "add"].contains(&name) => {
                    let ids = ids.iter().map(|id| {
                        let parsed = id.as_u64().filter(|id| *id <= fondaco_ids::ID_MAX);
                        let error =
                            || format!("operation {name:?} of an update cannot have this for a set of ids: {id}");
                        parsed.ok_or_else(|| UpdateError(error()))
                    });
                    let members = update.members.get_or_insert_default();
                    let list = match name {
                        "add" => &mut members.add,
                        _ => &mut members.remove,
                    };
                    *list = ids.collect::<Result<_, _>>()?;
                    list.sort_unstable();
                }
                Some(by) => {
                    let whole = increment(by).filter(|_| name == "increment");
                    update.whole = whole
                        .ok_or_else(|| UpdateError(format!("operation {name:?} of an update names no fields: {by}")))?;
                }
            }
        }
        let kinds = [has_whole, update.members.is_some(), !update.fields.is_empty()];
        match kinds.iter().filter(|is_kind| **is_kind).count() {
            1 => Ok(update),
            _ => Err(UpdateError(
                "an update has operations on fields, or one increment of the whole value, or adds and removes members of a set"
                    .to_owned(),
            )),
        }
    }

    /// Whether it only adds to numbers: the order of such updates does not matter, if all fit.
    pub fn is_sum(&self) -> bool {
        let mut fields = self.fields.iter();
        self.members.is_none() && fields.all(|(_, operation)| matches!(operation, Operation::Increment(_)))
    }

    /// Whether it adds members to a set of ids, or removes them.
    pub fn is_of_set(&self) -> bool {
        self.members.is_some()
    }

    /// The fields that it names, some twice; none for an update of the whole value.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(field, _)| field.as_str())
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
