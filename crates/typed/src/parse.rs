//! Parses the text of a type: the canonical form, and the texts of manifests that former releases wrote.

use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{DataType, Field};

use crate::canonical::{JSON_TEXT, canonical, list_of, map_of, union_of, uuid_field};

/// The deepest nesting of types that is parsed.
const DEPTH_MAX: usize = 64;

/// The text is no type that this program knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {0:?}")]
pub struct UnknownType(pub String);

/// A column of this name, of the type that a manifest names. It has canonical form.
///
/// # Errors
/// The text is no type.
pub fn parse_type(name: &str, text: &str) -> Result<Field, UnknownType> {
    let unknown = || UnknownType(text.to_owned());
    match text {
        // Fields of CSV.
        "text" => return Ok(Field::new(name, DataType::Utf8, true)),
        // Values of JSON lines.
        "json" => return Ok(any_json(name)),
        _ => {}
    }
    let mut parser = Parser { rest: text, depth: 0 };
    if let Some(field) = parser.parse(name)
        && parser.rest.trim_start().is_empty()
    {
        return Ok(field);
    }
    // Former releases wrote types as Arrow displays them. Its parser is recursive.
    if text.matches('(').count() > DEPTH_MAX {
        return Err(unknown());
    }
    let data_type = DataType::from_str(text).map_err(|_| unknown())?;
    Ok(canonical(&Field::new(name, data_type, true)))
}

/// A column whose text is any JSON value.
pub(crate) fn any_json(name: &str) -> Field {
    let metadata = [(JSON_TEXT.to_owned(), "true".to_owned())];
    Field::new(name, DataType::Utf8, true).with_metadata(metadata)
}

/// The texts of a list of types, separated by commas.
pub(crate) fn split_types(text: &str) -> Vec<&str> {
    let (mut types, mut from, mut depth) = (Vec::new(), 0, 0_usize);
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.saturating_sub(1),
            ',' if !quoted && depth == 0 => {
                types.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    types.push(text[from..].trim());
    types
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn parse(&mut self, name: &str) -> Option<Field> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let field = self.parse_type(name);
        self.depth -= 1;
        field
    }

    fn parse_type(&mut self, name: &str) -> Option<Field> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(['(', ')', ',', ' ', ':']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let whole = self.rest;
        self.rest = rest;
        let data_type = match word {
            "UUID" => return Some(uuid_field(name)),
            // Within the types of records.
            "json" => return Some(any_json(name)),
            "List" => {
                self.expect('(')?;
                list_of(self.parse("item")?)
            }
            "FixedSizeList" => {
                self.expect('(')?;
                let (length, rest) = self.rest.split_once(" x ")?;
                self.rest = rest;
                let length: i32 = length.parse().ok().filter(|&length| length >= 0)?;
                DataType::FixedSizeList(Arc::new(self.parse("item")?), length)
            }
            "Map" => {
                self.expect('(')?;
                let key = self.parse("key")?;
                self.expect(',')?;
                map_of(key, self.parse("value")?)
            }
            "Struct" => {
                self.expect('(')?;
                DataType::Struct(self.members()?.into())
            }
            "Union" => {
                self.expect('(')?;
                union_of(self.members()?)?
            }
            _ => {
                // A type without other types in it, perhaps with parameters.
                if rest.starts_with('(') {
                    self.rest = &rest[rest.find(')')? + 1..];
                }
                let text = &whole[..whole.len() - self.rest.len()];
                let parsed = DataType::from_str(text).ok()?;
                let field = canonical(&Field::new(name, parsed, true));
                return (!field.data_type().is_nested()).then_some(field);
            }
        };
        self.expect(')')?;
        Some(Field::new(name, data_type, true))
    }

    /// `"name": type, …`, up to the bracket after it.
    fn members(&mut self) -> Option<Vec<Field>> {
        let mut members = Vec::new();
        while !self.rest.trim_start().starts_with(')') {
            if !members.is_empty() {
                self.expect(',')?;
            }
            let mut names = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
            let name = names.next()?.ok()?;
            self.rest = &self.rest[names.byte_offset()..];
            self.expect(':')?;
            members.push(self.parse(&name)?);
        }
        Some(members)
    }

    fn expect(&mut self, c: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(c)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::type_text;

    #[test]
    fn the_canonical_text_of_every_type_is_parsed_to_the_same_type() {
        for text in [
            "Null",
            "Boolean",
            "Int8",
            "UInt64",
            "Float16",
            "Utf8",
            "Binary",
            "FixedSizeBinary(3)",
            "FixedSizeBinary(16)",
            "UUID",
            "Decimal128(38, -2)",
            "Decimal256(76, 2)",
            "Date32",
            "Date64",
            "Time32(ms)",
            "Time64(ns)",
            "Timestamp(s)",
            "Timestamp(µs, \"UTC\")",
            "Duration(ns)",
            "Interval(YearMonth)",
            "Interval(MonthDayNano)",
            "List(List(UUID))",
            "FixedSizeList(32 x Float32)",
            "Struct()",
            r#"Struct("a": Int32, "b(,:\" \\ ä": List(Struct("": Utf8)))"#,
            "Map(Utf8, Int32)",
            "Map(Date32, Map(Int64, UUID))",
            r#"Union("int": Int32, "string": Utf8)"#,
        ] {
            let field = parse_type("c", text).unwrap();
            assert_eq!(type_text(&field), text);
            assert_eq!(canonical(&field), field, "{text}");
        }
    }

    #[test]
    fn texts_of_former_releases_are_parsed() {
        for (former, text) in [
            ("Utf8View", "Utf8"),
            ("LargeBinary", "Binary"),
            ("Dictionary(Int32, Utf8)", "Utf8"),
            ("List(non-null Int32, field: 'element')", "List(Int32)"),
            ("Timestamp(µs, \"+00:00\")", "Timestamp(µs, \"UTC\")"),
            (
                r#"Struct("a": non-null Int32, "b": Utf8View)"#,
                r#"Struct("a": Int32, "b": Utf8)"#,
            ),
            (
                r#"Map("entries": non-null Struct("key": non-null Utf8, "value": Int32), unsorted)"#,
                "Map(Utf8, Int32)",
            ),
            (
                r#"Union(Dense, 0: ("int": Int32), 1: ("string": Utf8))"#,
                r#"Union("int": Int32, "string": Utf8)"#,
            ),
            ("text", "Utf8"),
            ("json", "Utf8"),
        ] {
            assert_eq!(type_text(&parse_type("c", former).unwrap()), text, "{former}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let deep = "List(".repeat(100_000);
        for text in [
            "",
            "unknown",
            "Int32)",
            "List(Int32",
            "Map(Int32)",
            "Struct(Int32)",
            "FixedSizeList(-1 x Int32)",
            "int64",
            &deep,
        ] {
            assert_eq!(parse_type("c", text), Err(UnknownType(text.to_owned())));
        }
    }

    #[test]
    fn types_are_split_at_commas_between_them() {
        let types = r#"Utf8,Decimal128(10, 2),Timestamp(µs, "U,\"T(C"),Int8"#;
        assert_eq!(
            split_types(types),
            ["Utf8", "Decimal128(10, 2)", r#"Timestamp(µs, "U,\"T(C")"#, "Int8"]
        );
        assert_eq!(split_types("Int32"), ["Int32"]);
    }
}
