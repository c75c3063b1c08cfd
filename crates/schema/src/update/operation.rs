//! One operation of an update, on the value of one field.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::increment;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operation {
    Set(Value),
    Remove(Vec<Value>),
    Add(Vec<Value>),
    Enter(Map<String, Value>),
    Append(Vec<Value>),
    Increment(i64),
}

impl Operation {
    pub(super) fn parse(name: &str, operand: &Value) -> Option<Self> {
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

    /// Whether it only takes something away.
    pub(super) fn is_removal(&self) -> bool {
        matches!(self, Self::Set(Value::Null) | Self::Remove(_))
    }

    /// Applies it to the value of a field, which is `None` if the field is missing.
    ///
    /// # Errors
    /// The reason why it does not fit: then the value is as before.
    pub(super) fn apply(&self, field: &mut Option<Value>) -> Result<(), String> {
        match (self, &mut *field) {
            (Self::Set(Value::Null), _) => *field = None,
            (Self::Set(value), _) => *field = Some(value.clone()),
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
                if let Value::Array(list) = known.get_or_insert_with(|| Value::Array(Vec::new())) {
                    let mut known = Elements::of(list);
                    let new = elements.iter().filter(|element| known.insert(element));
                    list.extend(new.cloned());
                }
            }
            (Self::Append(elements), Some(Value::Array(list))) => list.extend_from_slice(elements),
            (Self::Append(elements), None) => *field = Some(Value::Array(elements.clone())),
            (Self::Enter(entries), Some(Value::Object(map))) => map.extend(entries.clone()),
            (Self::Enter(entries), None) => *field = Some(Value::Object(entries.clone())),
            (Self::Increment(by), known) => {
                let number = match known {
                    None => Some(0),
                    Some(known) => known.as_i64(),
                };
                let number = number.ok_or_else(|| misfit("increment", known.as_ref()))?;
                let sum = number.checked_add(*by);
                *known = Some(sum.ok_or("the sum has more than 64 bits")?.into());
            }
            (Self::Remove(_), known) => return Err(misfit("remove", known.as_ref())),
            (Self::Add(_) | Self::Enter(_), known) => return Err(misfit("add", known.as_ref())),
            (Self::Append(_), known) => return Err(misfit("append", known.as_ref())),
        }
        Ok(())
    }
}

fn misfit(operation: &str, known: Option<&Value>) -> String {
    let kind = match known {
        None | Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Number(number)) if number.is_f64() => "a number that is not whole",
        Some(Value::Number(_)) => "a whole number",
        Some(Value::String(_)) => "a text",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    };
    format!("operation {operation:?} does not fit {kind}")
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
