//! Times of Parquet and Avro are written as instants in UTC, whatever zone a column names.

use std::fs::File;
use std::sync::Arc;

use crate::generate::{Place, get, table, write_avro, write_parquet};
use arrow_array::builder::{ListBuilder, TimestampMicrosecondBuilder};
use arrow_array::{
    Array, ArrayRef, StringArray, StructArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, TimestampSecondArray,
};
use arrow_schema::{DataType, Field, TimeUnit};
use fondaco_builder::ValueSelection;
use parquet::data_type::{ByteArrayType, Int96, Int96Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Names of zones as pandas, Spark and others write them.
const ZONES: [&str; 5] = ["UTC", "Etc/UTC", "Europe/Berlin", "+02:00", "no zone that is known"];

fn times(zone: &str) -> Vec<(ArrayRef, &'static str)> {
    let nanos = 1_500_000_000_123_456_789;
    vec![
        (
            Arc::new(TimestampSecondArray::from(vec![nanos / 1_000_000_000]).with_timezone(zone)),
            "2017-07-14T02:40:00Z",
        ),
        (
            Arc::new(TimestampMillisecondArray::from(vec![nanos / 1_000_000]).with_timezone(zone)),
            "2017-07-14T02:40:00.123Z",
        ),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![nanos / 1000]).with_timezone(zone)),
            "2017-07-14T02:40:00.123456Z",
        ),
        (
            Arc::new(TimestampNanosecondArray::from(vec![nanos]).with_timezone(zone)),
            "2017-07-14T02:40:00.123456789Z",
        ),
    ]
}

fn one_text(text: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![text]))
}

#[test]
fn parquet_times_of_any_zone_are_written_in_utc() {
    for zone in ZONES {
        for (column, expected) in times(zone) {
            let place = Place::new();
            let columns = vec![("k", Arc::clone(&column)), ("v", one_text("x"))];
            write_parquet(&place.input("a.parquet"), &table(columns), 10);
            assert_eq!(get(&place.built(|_| {}), expected).as_deref(), Some("x"), "{zone}");

            let place = Place::new();
            write_parquet(
                &place.input("a.parquet"),
                &table(vec![("k", one_text("x")), ("v", column)]),
                10,
            );
            assert_eq!(get(&place.built(|_| {}), "x").as_deref(), Some(expected), "{zone}");
        }
    }
}

#[test]
fn a_nested_time_with_a_zone_is_written_in_utc() {
    let zone = Some("Europe/Berlin".into());
    let mut list = ListBuilder::new(
        TimestampMicrosecondBuilder::new().with_data_type(DataType::Timestamp(TimeUnit::Microsecond, zone.clone())),
    );
    list.append_value([Some(0), None]);
    let list = list.finish();
    let member = Arc::new(Field::new("at", list.data_type().clone(), true));
    let object: ArrayRef = Arc::new(StructArray::from(vec![(member, Arc::new(list) as ArrayRef)]));
    let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC"));
    let columns = vec![("k", one_text("x")), ("o", object), ("t", time)];

    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &table(columns), 10);
    let all = place.built(|options| options.value = ValueSelection::AllOthers);
    assert_eq!(
        get(&all, "x").unwrap(),
        r#"{"o":{"at":["1970-01-01T00:00:00Z",null]},"t":"1970-01-01T00:00:00.000001Z"}"#
    );
    std::fs::remove_dir_all(place.output()).unwrap();
    let one = place.built(|options| options.value = ValueSelection::Column("o".to_owned()));
    assert_eq!(get(&one, "x").unwrap(), r#"{"at":["1970-01-01T00:00:00Z",null]}"#);
}

#[test]
fn avro_times_are_written_in_utc() {
    for (column, expected) in times("UTC").into_iter().skip(1) {
        for key in [false, true] {
            let place = Place::new();
            let (columns, from, to) = match key {
                true => (vec![("k", Arc::clone(&column)), ("v", one_text("x"))], expected, "x"),
                false => (vec![("k", one_text("x")), ("v", Arc::clone(&column))], "x", expected),
            };
            write_avro(&place.input("a.avro"), &[table(columns)], None);
            assert_eq!(get(&place.built(|_| {}), from).as_deref(), Some(to));
        }
    }
}

/// Spark and Hive write the last day of the year 9999 for an unknown end.
#[test]
fn a_96_bit_time_far_in_the_future_is_read() {
    let place = Place::new();
    let schema = parse_message_type("message t { required binary k (UTF8); required int96 v; }").unwrap();
    let file = File::create(place.input("a.parquet")).unwrap();
    let properties = Arc::new(WriterProperties::new());
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let keys = ["a".into(), "b".into()];
    column.typed::<ByteArrayType>().write_batch(&keys, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let mut far = Int96::new();
    // The Julian day of 9999-12-31.
    far.set_data(0, 0, 5_373_484);
    let mut near = Int96::new();
    near.set_data(1_500_000, 0, 2_440_588);
    column
        .typed::<Int96Type>()
        .write_batch(&[far, near], None, None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();

    let version = place.built(|_| {});
    assert_eq!(get(&version, "a").as_deref(), Some("9999-12-31T00:00:00"));
    assert_eq!(get(&version, "b").as_deref(), Some("1970-01-01T00:00:00.001500"));
}
