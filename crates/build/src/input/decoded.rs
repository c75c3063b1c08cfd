//! The types to decode Parquet columns to, where they differ from those of the file.
//!
//! - Texts and binaries become views, which saves a copy of each value.
//! - Times with a zone become times in UTC. Parquet stores them in UTC. The zone is only a name that some writers keep
//!   beside the schema, and a name is of no use without a time zone database.
//! - 96-bit times become microseconds. With nanoseconds, years before 1678 and after 2262 would overflow without an
//!   error.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::basic::Type as PhysicalType;
use parquet::schema::types::SchemaDescriptor;

/// The schema to decode the columns of a file with.
pub(super) fn decoded_schema(schema: &SchemaRef, parquet: &SchemaDescriptor) -> SchemaRef {
    let mut leaves = parquet.columns().iter().map(|leaf| leaf.physical_type());
    let fields: Fields = schema
        .fields()
        .iter()
        .map(|field| {
            let data_type = decoded(field.data_type(), &mut leaves);
            let data_type = as_view(&data_type).unwrap_or(data_type);
            Arc::new(field.as_ref().clone().with_data_type(data_type))
        })
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The type of a column, or of a part of one. Consumes the leaves below it.
fn decoded(data_type: &DataType, leaves: &mut dyn Iterator<Item = PhysicalType>) -> DataType {
    let mut part = |field: &FieldRef| -> FieldRef {
        let data_type = decoded(field.data_type(), leaves);
        Arc::new(Field::clone(field).with_data_type(data_type))
    };
    match data_type {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(part).collect()),
        DataType::List(field) => DataType::List(part(field)),
        DataType::LargeList(field) => DataType::LargeList(part(field)),
        DataType::ListView(field) => DataType::ListView(part(field)),
        DataType::LargeListView(field) => DataType::LargeListView(part(field)),
        DataType::FixedSizeList(field, length) => DataType::FixedSizeList(part(field), *length),
        DataType::Map(field, sorted) => DataType::Map(part(field), *sorted),
        DataType::Timestamp(unit, zone) => {
            let unit = match leaves.next() {
                Some(PhysicalType::INT96) => TimeUnit::Microsecond,
                _ => *unit,
            };
            DataType::Timestamp(unit, zone.is_some().then(|| "+00:00".into()))
        }
        leaf => {
            leaves.next();
            leaf.clone()
        }
    }
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
