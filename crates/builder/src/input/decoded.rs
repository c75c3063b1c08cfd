//! The types to decode Parquet columns to, where they differ from those of the file.
//!
//! - Texts and binaries become views, which saves a copy of each value.
//! - Times with a zone become times in UTC. Parquet stores them in UTC. The zone is only a name that some writers keep
//!   beside the schema, and a name is of no use without a time zone database.
//! - 96-bit times become microseconds. With nanoseconds, years before 1678 and after 2262 would overflow without an
//!   error. Those that Spark wrote are instants; only the metadata of the file says so.
//! - 16 bytes that are UUIDs in Parquet are UUIDs, also if no Arrow schema is embedded in the file, as by DuckDB and
//!   parquet-mr, or one that does not say so.
//!
//! Types that would be read wrongly are refused: `VARIANT`, and `INTERVAL` if no Arrow schema tells which part of it counts.

use std::sync::Arc;

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::file::metadata::FileMetaData;
use parquet::schema::types::{ColumnDescPtr, Type};
use serde_json::Value;

use super::as_text::UUID;

/// The key under which Spark writes its types.
const SPARK_TYPES: &str = "org.apache.spark.sql.parquet.row.metadata";

/// The key under which Arrow's libraries write their types.
const ARROW_TYPES: &str = "ARROW:schema";

/// The schema to decode the columns of a file with.
pub(super) fn decoded_schema(schema: &SchemaRef, file: &FileMetaData) -> SchemaRef {
    let mut leaves = Leaves {
        columns: file.schema_descr().columns().iter(),
        int96_are_instants: metadata(file, SPARK_TYPES).is_some(),
    };
    let fields: Fields = schema
        .fields()
        .iter()
        .map(|field| {
            let decoded = leaves.decoded(field);
            let data_type = as_view(decoded.data_type()).unwrap_or_else(|| decoded.data_type().clone());
            Arc::new(Field::clone(&decoded).with_data_type(data_type))
        })
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The columns of a file that are no groups, in its order.
struct Leaves<'a> {
    columns: std::slice::Iter<'a, ColumnDescPtr>,
    int96_are_instants: bool,
}

impl Leaves<'_> {
    /// A column, or a part of one. Consumes the leaves below it.
    fn decoded(&mut self, field: &FieldRef) -> FieldRef {
        let mut field = Field::clone(field);
        let data_type = match field.data_type() {
            DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| self.decoded(field)).collect()),
            DataType::List(field) => DataType::List(self.decoded(field)),
            DataType::LargeList(field) => DataType::LargeList(self.decoded(field)),
            DataType::ListView(field) => DataType::ListView(self.decoded(field)),
            DataType::LargeListView(field) => DataType::LargeListView(self.decoded(field)),
            DataType::FixedSizeList(field, length) => DataType::FixedSizeList(self.decoded(field), *length),
            DataType::Map(field, sorted) => DataType::Map(self.decoded(field), *sorted),
            leaf => {
                let column = self.columns.next();
                if column.is_some_and(|column| column.logical_type_ref() == Some(&LogicalType::Uuid)) {
                    let metadata = field.metadata_mut();
                    metadata.insert(EXTENSION_TYPE_NAME_KEY.to_owned(), UUID.to_owned());
                    return Arc::new(field);
                }
                match leaf {
                    DataType::Timestamp(unit, zone) => {
                        let is_int96 = column.is_some_and(|column| column.physical_type() == PhysicalType::INT96);
                        let unit = if is_int96 { TimeUnit::Microsecond } else { *unit };
                        let is_instant = zone.is_some() || is_int96 && self.int96_are_instants;
                        DataType::Timestamp(unit, is_instant.then(|| "+00:00".into()))
                    }
                    leaf => leaf.clone(),
                }
            }
        };
        Arc::new(field.with_data_type(data_type))
    }
}

/// The Parquet type of a column that would be read wrongly, and what to do; `leaves` are the indices of the leaves below
/// the selected part of the column.
pub(super) fn refused_type(
    file: &FileMetaData,
    leaves: std::ops::Range<usize>,
) -> Option<(&'static str, &'static str)> {
    const VARIANT: (&str, &str) = (
        "VARIANT",
        "write it as JSON text, for instance with to_json of Spark or a cast of DuckDB",
    );
    let schema = file.schema_descr();
    leaves.into_iter().find_map(|leaf| {
        let column = schema.columns().get(leaf)?;
        if column.converted_type() == ConvertedType::INTERVAL && metadata(file, ARROW_TYPES).is_none() {
            return Some((
                "INTERVAL",
                "its months, days and milliseconds would not all be read: cast it to text where the file is written",
            ));
        }
        let root = schema.get_column_root(leaf);
        let is_variant = is_below_variant(root, &column.path().parts()[1..]) || is_variant_of_spark(file, root.name());
        is_variant.then_some(VARIANT)
    })
}

/// Whether a group on the path below `group`, or that itself, is a variant.
fn is_below_variant(group: &Type, path: &[String]) -> bool {
    let is_variant = matches!(group.get_basic_info().logical_type_ref(), Some(LogicalType::Variant(_)));
    let Some((name, rest)) = path.split_first() else {
        return is_variant;
    };
    let member = group.get_fields().iter().find(|field| field.name() == name);
    is_variant || member.is_some_and(|member| is_below_variant(member, rest))
}

/// Whether Spark wrote a column that is a variant, or has one: Spark 4.0 does not mark it otherwise.
fn is_variant_of_spark(file: &FileMetaData, column: &str) -> bool {
    fn has_variant(value: &Value) -> bool {
        match value {
            Value::String(text) => text == "variant",
            Value::Array(values) => values.iter().any(has_variant),
            // The other members are names.
            Value::Object(members) => ["type", "elementType", "keyType", "valueType", "fields"]
                .iter()
                .filter_map(|name| members.get(*name))
                .any(has_variant),
            _ => false,
        }
    }
    let types = metadata(file, SPARK_TYPES).and_then(|types| serde_json::from_str::<Value>(types).ok());
    let fields = types.as_ref().and_then(|types| types["fields"].as_array());
    fields.is_some_and(|fields| {
        fields
            .iter()
            .any(|field| field["name"] == column && has_variant(&field["type"]))
    })
}

/// An entry in the metadata of a file.
fn metadata<'a>(file: &'a FileMetaData, key: &str) -> Option<&'a str> {
    let entries = file.key_value_metadata()?;
    entries.iter().find(|entry| entry.key == key)?.value.as_deref()
}

/// The view type of a text or binary type, with or without a dictionary.
fn as_view(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        DataType::Dictionary(_, values) => as_view(values),
        _ => None,
    }
}
