//! The canonical form of Arrow types, and its text in the manifest.
//!
//! Equal for equal logical types: views, large types and dictionaries become the plain type, run-end encoding its values,
//! narrow decimals 128 bits, zones UTC. Items, members and values may be null; list items, map entries and their parts have one
//! name. Units, lengths, precision and scale stay. Of the metadata only that of UUIDs is kept.
//!
//! The text is the one that Arrow displays, with these differences, so that every type can be parsed again: `UUID`,
//! `Map(key, value)`, `Union("name": type, …)`, and names as JSON strings.

use std::fmt::{self, Display};
use std::sync::Arc;

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field, FieldRef, Fields, UnionFields, UnionMode};

/// The name of Arrow's extension type of UUIDs.
pub const UUID: &str = "arrow.uuid";

/// The key in a field's metadata that says that its text is any JSON value: a string without quotes, everything else as
/// JSON. Columns of JSON lines and unions are read so.
pub const JSON_TEXT: &str = "fondaco.json_text";

/// The precision up to which decimals have 128 bits.
const PRECISION_MAX_128: u8 = 38;

/// Whether a column of 16 bytes has UUIDs, by Arrow or by Avro.
pub fn is_uuid(field: &Field) -> bool {
    let metadata = field.metadata();
    metadata.get(EXTENSION_TYPE_NAME_KEY).is_some_and(|name| name == UUID)
        || metadata.get("logicalType").is_some_and(|logical| logical == "uuid")
}

/// The canonical form of a column; it has the name of the column, and may be null.
pub fn canonical(field: &Field) -> Field {
    form(field, field.name(), true)
}

/// The text of a column's canonical form.
pub fn type_text(field: &Field) -> String {
    Text(&canonical(field)).to_string()
}

/// A field of canonical form for UUIDs.
pub(crate) fn uuid_field(name: &str) -> Field {
    let metadata = [(EXTENSION_TYPE_NAME_KEY.to_owned(), UUID.to_owned())];
    Field::new(name, DataType::FixedSizeBinary(16), true).with_metadata(metadata)
}

/// The canonical type of lists of `item`.
pub(crate) fn list_of(item: Field) -> DataType {
    DataType::List(Arc::new(item.with_name(Field::LIST_FIELD_DEFAULT_NAME)))
}

/// The canonical type of maps.
pub(crate) fn map_of(key: Field, value: Field) -> DataType {
    let key = key.with_name("key").with_nullable(false);
    let entry = Fields::from(vec![key, value.with_name("value")]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entry), false)), false)
}

/// The canonical type of unions.
pub(crate) fn union_of(members: Vec<Field>) -> Option<DataType> {
    let ids = 0..i8::try_from(members.len()).ok()?;
    Some(DataType::Union(
        UnionFields::try_new(ids, members).ok()?,
        UnionMode::Dense,
    ))
}

fn form(field: &Field, name: &str, nullable: bool) -> Field {
    let inner = |field: &FieldRef| form(field, field.name(), true);
    let data_type = match field.data_type() {
        DataType::Dictionary(_, values) => {
            return form(&field.clone().with_data_type(DataType::clone(values)), name, nullable);
        }
        DataType::RunEndEncoded(_, values) => return form(values, name, nullable),
        DataType::FixedSizeBinary(16) if is_uuid(field) => return uuid_field(name).with_nullable(nullable),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("UTC".into())),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => match *precision <= PRECISION_MAX_128 {
            true => DataType::Decimal128(*precision, *scale),
            false => DataType::Decimal256(*precision, *scale),
        },
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item) => {
            list_of(inner(item))
        }
        DataType::FixedSizeList(item, length) => {
            let item = inner(item).with_name(Field::LIST_FIELD_DEFAULT_NAME);
            DataType::FixedSizeList(Arc::new(item), *length)
        }
        DataType::Struct(members) => DataType::Struct(members.iter().map(inner).collect()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(entry) if entry.len() == 2 => map_of(inner(&entry[0]), inner(&entry[1])),
            _ => field.data_type().clone(),
        },
        DataType::Union(members, _) => {
            let members = members.iter().map(|(_, member)| inner(member)).collect();
            union_of(members).unwrap_or_else(|| field.data_type().clone())
        }
        other => other.clone(),
    };
    Field::new(name, data_type, nullable)
}

/// Displays the type of a field of canonical form.
struct Text<'a>(&'a Field);

impl Display for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.data_type() {
            DataType::FixedSizeBinary(16) if is_uuid(self.0) => out.write_str("UUID"),
            DataType::List(item) => write!(out, "List({})", Text(item)),
            DataType::FixedSizeList(item, length) => write!(out, "FixedSizeList({length} x {})", Text(item)),
            DataType::Struct(fields) => write_members("Struct", &mut fields.iter(), out),
            DataType::Union(fields, _) => write_members("Union", &mut fields.iter().map(|(_, field)| field), out),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(entry) => write!(out, "Map({}, {})", Text(&entry[0]), Text(&entry[1])),
                other => write!(out, "{other}"),
            },
            other => write!(out, "{other}"),
        }
    }
}

fn write_members(
    name: &str,
    members: &mut dyn Iterator<Item = &FieldRef>,
    out: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(out, "{name}(")?;
    for (number, member) in members.enumerate() {
        let before = if number > 0 { ", " } else { "" };
        // A string can always be written as JSON.
        let name = serde_json::to_string(member.name()).unwrap_or_default();
        write!(out, "{before}{name}: {}", Text(member))?;
    }
    out.write_str(")")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::TimeUnit;

    fn text(data_type: DataType) -> String {
        type_text(&Field::new("c", data_type, false))
    }

    #[test]
    fn types_that_mean_the_same_have_one_text() {
        let item = |name: &str, nullable| Arc::new(Field::new(name, DataType::Utf8View, nullable));
        for list in [
            DataType::List(item("item", true)),
            DataType::List(item("element", false)),
            DataType::LargeList(item("array", true)),
            DataType::ListView(item("item", true)),
        ] {
            assert_eq!(text(list), "List(Utf8)");
        }
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::LargeUtf8));
        assert_eq!(text(dictionary), "Utf8");
        let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
        assert_eq!(text(DataType::RunEndEncoded(ends, item("values", true))), "Utf8");
        for zone in ["Europe/Berlin", "+00:00", "UTC"] {
            let time = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
            assert_eq!(text(time), "Timestamp(µs, \"UTC\")");
        }
        assert_eq!(text(DataType::Decimal64(18, 2)), text(DataType::Decimal256(18, 2)));
        assert_eq!(text(DataType::Decimal256(76, 2)), "Decimal256(76, 2)");
        for (entries, key, value) in [("entries", "key", "value"), ("key_value", "keys", "values")] {
            let entry = Fields::from(vec![
                Field::new(key, DataType::Int32, false),
                Field::new(value, DataType::LargeBinary, false),
            ]);
            let entries = Field::new(entries, DataType::Struct(entry), false);
            assert_eq!(text(DataType::Map(Arc::new(entries), true)), "Map(Int32, Binary)");
        }
    }

    #[test]
    fn only_what_tells_uuids_stays_of_the_metadata() {
        let sixteen = Field::new("c", DataType::FixedSizeBinary(16), false);
        let of = |key: &str, value: &str| {
            let metadata = [(key.to_owned(), value.to_owned())];
            type_text(&sixteen.clone().with_metadata(metadata))
        };
        assert_eq!(of("PARQUET:field_id", "1"), "FixedSizeBinary(16)");
        assert_eq!(of(EXTENSION_TYPE_NAME_KEY, UUID), "UUID");
        assert_eq!(of("logicalType", "uuid"), "UUID");
    }
}
