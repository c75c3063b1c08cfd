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
    fields: Vec<(String, Operation)>,
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
                Some(by) => {
                    let whole = increment(by).filter(|_| name == "increment");
                    update.whole = whole
                        .ok_or_else(|| UpdateError(format!("operation {name:?} of an update names no fields: {by}")))?;
                }
            }
        }
        match has_whole == update.fields.is_empty() {
            true => Ok(update),
            false => Err(UpdateError(
                "an update has operations on fields, or one increment of the whole value".to_owned(),
            )),
        }
    }

    /// Whether it only adds to numbers: the order of such updates does not matter, if all fit.
    pub fn is_sum(&self) -> bool {
        let mut fields = self.fields.iter();
        fields.all(|(_, operation)| matches!(operation, Operation::Increment(_)))
    }

    /// The fields that it names, some twice; none for an increment of the whole value.
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
