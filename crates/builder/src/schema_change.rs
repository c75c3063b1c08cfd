//! The columns in which two versions of a store differ, by name and type.
//!
//! Only types that both versions know are compared: values of JSON lines have none, and fields of CSV fit any type, unless
//! they are texts within JSON objects.

use std::{fmt, slice};

use fondaco_format::{Column, Schema, ValueEncoding};
use fondaco_model::ValueType;
use fondaco_typed::{parse_type, type_text};
use serde::Serialize;

/// The changes from the columns of one version to those of another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SchemaChange {
    /// Columns that only the later version has.
    pub added: Vec<Column>,
    /// Columns that only the earlier version has.
    pub removed: Vec<Column>,
    /// Columns of other types.
    pub changed: Vec<ChangedColumn>,
    /// The encoding of the later version's values, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<ValueEncoding>,
}

/// A column whose type has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedColumn {
    /// Its name.
    pub name: String,
    /// Its type in the earlier version.
    pub from: String,
    /// Its type in the later one.
    pub to: String,
}

impl SchemaChange {
    /// Compares the columns of two versions; `None` if they are alike. The order of columns does not count.
    pub fn between(from: &Schema, to: &Schema, value_type: ValueType) -> Option<Self> {
        // All inputs of sets of ids become the same bytes, and all inputs of records those of their schema.
        let is_of_input = value_type != ValueType::Ids && !value_type.has_schemas();
        let is_encoded_anew = from.encoding != to.encoding && !value_type.has_schemas();
        let mut change = Self {
            encoding: is_encoded_anew.then_some(to.encoding),
            ..Self::default()
        };
        change.compare(slice::from_ref(&from.key), slice::from_ref(&to.key), true);
        if is_of_input && is_known(from) && is_known(to) {
            change.compare(&from.values, &to.values, to.encoding == ValueEncoding::Raw);
        }
        (change != Self::default()).then_some(change)
    }

    fn compare(&mut self, from: &[Column], to: &[Column], is_plain: bool) {
        let find = |columns: &[Column], name: &str| columns.iter().position(|column| column.name == name);
        self.removed
            .extend(from.iter().filter(|column| find(to, &column.name).is_none()).cloned());
        for column in to {
            let Some(place) = find(from, &column.name) else {
                self.added.push(column.clone());
                continue;
            };
            if !fits(&from[place], column, is_plain) {
                self.changed.push(ChangedColumn {
                    name: column.name.clone(),
                    from: from[place].r#type.clone(),
                    to: column.r#type.clone(),
                });
            }
        }
    }
}

/// Whether all columns of the values are known: JSON lines may leave out columns, and an input without rows tells none.
pub(crate) fn is_known(schema: &Schema) -> bool {
    !schema.values.is_empty() && schema.values.iter().all(|column| column.r#type != "json")
}

/// Whether values of a column are of the type that it had. `is_plain` says whether they are written without quotes, as keys are.
fn fits(from: &Column, to: &Column, is_plain: bool) -> bool {
    // Former releases wrote other texts of the same types.
    let text = |column: &Column| match parse_type(&column.name, &column.r#type) {
        Ok(field) if column.r#type != "json" => type_text(&field),
        _ => column.r#type.clone(),
    };
    // A key of several columns has their types, joined.
    let is_open = |column: &Column| {
        let mut parts = column.r#type.split(',');
        parts.any(|part| matches!(part, "json" | "unknown") || (is_plain && part == "text"))
    };
    is_open(from) || is_open(to) || to.r#type == "Null" || text(from) == text(to)
}

impl fmt::Display for SchemaChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoding = self.encoding.map(|encoding| match encoding {
            ValueEncoding::Raw => "values were JSON objects, and are the content of one column".to_owned(),
            ValueEncoding::Json => "values were the content of one column, and are JSON objects".to_owned(),
        });
        let changed = self.changed.iter();
        let changed = changed.map(|ChangedColumn { name, from, to }| format!("{name:?} was {from} and is {to}"));
        let added = self
            .added
            .iter()
            .map(|column| format!("{:?} ({}) is new", column.name, column.r#type));
        let removed = self
            .removed
            .iter()
            .map(|column| format!("{:?} ({}) is gone", column.name, column.r#type));
        let all: Vec<String> = encoding
            .into_iter()
            .chain(changed)
            .chain(added)
            .chain(removed)
            .collect();
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(encoding: ValueEncoding, columns: &[(&str, &str)]) -> Schema {
        let column = |&(name, of_type): &(&str, &str)| Column {
            name: name.to_owned(),
            r#type: of_type.to_owned(),
        };
        Schema {
            key: column(&columns[0]),
            values: columns[1..].iter().map(column).collect(),
            encoding,
        }
    }

    fn told(from: &Schema, to: &Schema) -> Option<String> {
        SchemaChange::between(from, to, ValueType::Bytes).map(|change| change.to_string())
    }

    #[test]
    fn columns_that_came_went_or_changed_are_named_with_their_types() {
        let json = |columns: &[_]| schema(ValueEncoding::Json, columns);
        let old = json(&[
            ("k", "Int64"),
            ("age", "Int32"),
            ("name", "Utf8"),
            ("at", "Timestamp(ms)"),
        ]);
        let new = json(&[("k", "Utf8"), ("name", "text"), ("age", "Int64"), ("city", "Utf8")]);
        assert_eq!(
            told(&old, &new).unwrap(),
            "\"k\" was Int64 and is Utf8, \"age\" was Int32 and is Int64, \"city\" (Utf8) is new, \
             \"at\" (Timestamp(ms)) is gone"
        );
        assert_eq!(told(&old, &old), None);
    }

    #[test]
    fn types_that_an_input_does_not_have_are_not_compared() {
        let raw = |of_key, of_value| schema(ValueEncoding::Raw, &[("k", of_key), ("v", of_value)]);
        let json = |of_key, of_value| schema(ValueEncoding::Json, &[("k", of_key), ("v", of_value)]);
        assert_eq!(told(&raw("Int64", "Int64"), &raw("text", "text")), None);
        assert_eq!(told(&raw("Int64,Utf8", "Int64"), &raw("text,text", "unknown")), None);
        assert_eq!(told(&json("Int64", "Int64"), &json("json", "json")), None);
        assert_eq!(told(&json("Int64", "Int64"), &json("Int64", "Null")), None);
        // Within objects a field of CSV is a text.
        assert!(
            told(&json("Int64", "Int64"), &json("Int64", "text"))
                .unwrap()
                .contains("was Int64 and is text")
        );
        assert!(told(&raw("Int64", "Int64"), &raw("Int64", "Utf8")).is_some());
        let of_ids = SchemaChange::between(&raw("Int64", "List(Int32)"), &raw("Int64", "Utf8"), ValueType::Ids);
        assert_eq!(of_ids, None);
        assert!(
            told(&raw("Utf8", "Utf8"), &json("Utf8", "Utf8"))
                .unwrap()
                .ends_with("and are JSON objects")
        );
    }
}
