//! The condition on vertices that a query needs, evaluated by the nodes that have them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Vertex;
use crate::query::{Operator, Value as QueryValue, binary};

/// A condition on vertices, and whether their properties are returned.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The vertex must have all of these labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Each of these properties must compare like this to a value. A vertex without the property does not.
    #[serde(default)]
    pub properties: Vec<(String, Operator, Value)>,
    /// Whether the properties are returned; otherwise only whether the vertex exists.
    #[serde(default)]
    pub with_properties: bool,
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

    /// Applies the selection to the record of a vertex. Returns the record, `{}` if properties are not requested, or
    /// `None` if the vertex does not match.
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
            && self.properties.iter().all(|(name, operator, value)| {
                let property = vertex.properties.get(name);
                property.is_some_and(|property| holds(property, *operator, value))
            })
    }
}

/// Whether a property compares like this to a value, as in openCypher. It does not where that is not known, as with `null`.
fn holds(property: &Value, operator: Operator, value: &Value) -> bool {
    let (property, value) = (QueryValue::of_json(property), QueryValue::of_json(value));
    binary(&property, operator, &value) == Ok(QueryValue::Bool(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn properties_compare_as_in_open_cypher() {
        use Operator as C;
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
                holds(&property, comparison, &value),
                expected,
                "{property} {comparison:?} {value}"
            );
        }
    }

    #[test]
    fn a_selection_wants_the_same_after_a_message() {
        let selection = Selection {
            labels: vec!["Person".into()],
            properties: vec![("age".into(), Operator::Greater, json!(30))],
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
