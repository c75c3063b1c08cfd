//! Which vertices a query wants, evaluated where the vertices are.

use std::cmp::Ordering;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Vertex;

/// Which vertices are wanted, and what of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The vertex must have all of these labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Each of these properties must compare like this to a value. A vertex without the property does not.
    #[serde(default)]
    pub properties: Vec<(String, Comparison, Value)>,
    /// Whether the properties are wanted, too; otherwise only which vertices there are.
    #[serde(default)]
    pub with_properties: bool,
}

/// A comparison of a property with a value, as in openCypher: values of different types are not equal, and in no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `STARTS WITH`
    StartsWith,
    /// `ENDS WITH`
    EndsWith,
    /// `CONTAINS`
    Contains,
    /// The value is a list, and the property equals one of its elements.
    In,
}

impl Selection {
    /// Its encoding in messages.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Its parts can all be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The selection of a message.
    ///
    /// # Errors
    /// The bytes are not one.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// What is wanted of the record of a vertex: the record, `{}` if its properties are not wanted, or `None` if it is not
    /// wanted at all.
    ///
    /// # Errors
    /// The record is not one of a vertex.
    pub fn apply(&self, record: &[u8]) -> Result<Option<Bytes>, serde_json::Error> {
        if !self.labels.is_empty() || !self.properties.is_empty() {
            let vertex: Vertex = serde_json::from_slice(record)?;
            if !self.wants(&vertex) {
                return Ok(None);
            }
        }
        Ok(Some(match self.with_properties {
            true => Bytes::copy_from_slice(record),
            false => Bytes::from_static(b"{}"),
        }))
    }

    /// Whether a vertex is wanted.
    pub fn wants(&self, vertex: &Vertex) -> bool {
        let has_label = |label: &String| vertex.labels.binary_search(label).is_ok();
        self.labels.iter().all(has_label)
            && self.properties.iter().all(|(name, comparison, value)| {
                let property = vertex.properties.get(name);
                property.is_some_and(|property| comparison.holds(property, value))
            })
    }
}

impl Comparison {
    /// Whether a property compares like this to a value. It does not where the comparison is not known, as with `null`.
    pub fn holds(self, property: &Value, value: &Value) -> bool {
        let ordering = || compare(property, value);
        let texts = || Some((property.as_str()?, value.as_str()?));
        match self {
            Self::Equal => equal(property, value) == Some(true),
            Self::NotEqual => equal(property, value) == Some(false),
            Self::Less => ordering() == Some(Ordering::Less),
            Self::LessOrEqual => ordering().is_some_and(Ordering::is_le),
            Self::Greater => ordering() == Some(Ordering::Greater),
            Self::GreaterOrEqual => ordering().is_some_and(Ordering::is_ge),
            Self::StartsWith => texts().is_some_and(|(text, part)| text.starts_with(part)),
            Self::EndsWith => texts().is_some_and(|(text, part)| text.ends_with(part)),
            Self::Contains => texts().is_some_and(|(text, part)| text.contains(part)),
            Self::In => value
                .as_array()
                .is_some_and(|values| values.iter().any(|value| equal(property, value) == Some(true))),
        }
    }
}

/// Whether two values are equal; `None` if one is null.
fn equal(one: &Value, other: &Value) -> Option<bool> {
    match (one, other) {
        (Value::Null, _) | (_, Value::Null) => None,
        (Value::Number(_), Value::Number(_)) => Some(compare(one, other) == Some(Ordering::Equal)),
        _ => Some(one == other),
    }
}

/// The order of two values of one type that has an order.
fn compare(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            (Some(one), Some(other)) => Some(one.cmp(&other)),
            _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
        },
        (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
        (Value::Bool(one), Value::Bool(other)) => Some(one.cmp(other)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn properties_compare_as_in_open_cypher() {
        use Comparison as C;
        for (property, comparison, value, expected) in [
            (json!(3), C::Equal, json!(3.0), true),
            (json!(3), C::Equal, json!("3"), false),
            (json!(3), C::NotEqual, json!("3"), true),
            (json!(3), C::Less, json!("4"), false),
            (json!(null), C::Equal, json!(null), false),
            (json!(null), C::NotEqual, json!(1), false),
            (
                json!(9_007_199_254_740_993_i64),
                C::Greater,
                json!(9_007_199_254_740_992_i64),
                true,
            ),
            (json!("abc"), C::StartsWith, json!("ab"), true),
            (json!("abc"), C::EndsWith, json!("ab"), false),
            (json!("abc"), C::Contains, json!("b"), true),
            (json!(2), C::In, json!([1, 2.0]), true),
            (json!("b"), C::GreaterOrEqual, json!("a"), true),
        ] {
            assert_eq!(
                comparison.holds(&property, &value),
                expected,
                "{property} {comparison:?} {value}"
            );
        }
    }

    #[test]
    fn a_selection_wants_the_same_after_a_message() {
        let selection = Selection {
            labels: vec!["Person".into()],
            properties: vec![("age".into(), Comparison::Greater, json!(30))],
            with_properties: true,
        };
        let sent = Selection::parse(&selection.to_bytes()).unwrap();
        assert_eq!(sent, selection);
        let old = br#"{"labels":["Admin","Person"],"properties":{"name":"a","age":31}}"#;
        assert_eq!(sent.apply(old).unwrap().as_deref(), Some(&old[..]));
        for other in [
            &br#"{"labels":["Person"],"properties":{"age":30}}"#[..],
            br#"{"properties":{"age":31}}"#,
        ] {
            assert_eq!(sent.apply(other).unwrap(), None);
        }
        assert!(sent.apply(b"no record").is_err());
    }
}
