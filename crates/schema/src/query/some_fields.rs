//! Some top-level fields of JSON text, without building the others.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Reads the fields with these names; null where the object has none.
pub(super) fn read(text: &[u8], names: &[&str]) -> Result<Vec<Value>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let values = deserializer.deserialize_map(Fields(names))?;
    deserializer.end()?;
    Ok(values)
}

struct Fields<'a>(&'a [&'a str]);

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Vec<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Value>, A::Error> {
        let mut values = vec![Value::Null; self.0.len()];
        while let Some(place) = map.next_key_seed(Place(self.0))? {
            match place {
                Some(at) => values[at] = map.next_value()?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(values)
    }
}

/// The place of a key among the names.
struct Place<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Place<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_others_are_skipped_but_must_be_json() {
        let text = br#"{"a": [1, {"b": 2}], "\u0062": 5, "c": "x", "d": null}"#;
        assert_eq!(
            read(text, &["b", "d", "z"]).unwrap(),
            [json!(5), json!(null), json!(null)]
        );
        for text in ["[1]", "5", "", r#"{"a": }"#, r#"{"a": 1} x"#, r#"{"a": 1"#] {
            assert!(read(text.as_bytes(), &["b"]).is_err(), "{text}");
        }
        let deep = format!("{{\"b\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(deep.as_bytes(), &["b"]).is_err());
    }
}
