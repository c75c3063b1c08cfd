//! The table of types in `docs/build.md`, compared with what a build makes of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::generate::{Place, get, write_avro, write_parquet};
use arrow_array::builder::{
    FixedSizeListBuilder, Int32Builder, LargeListBuilder, ListBuilder, ListViewBuilder, MapBuilder, StringBuilder,
};
use arrow_array::types::{Float16Type, Int32Type};
use arrow_array::*;
use arrow_buffer::{IntervalDayTime, IntervalMonthDayNano, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, IntervalUnit, Schema, UnionFields};
use fondaco_builder::ValueSelection;

/// Columns of one row, by the names of their types in the table.
fn examples() -> Vec<(&'static str, ArrayRef)> {
    let day = 20_484;
    let noon_seconds = 12 * 3600;
    let at = i64::from(day) * 86_400 + noon_seconds;
    let decimal = |array: ArrayRef| array;
    let mut list = ListBuilder::new(Int32Builder::new());
    list.append_value([Some(1), None]);
    let mut large = LargeListBuilder::new(Int32Builder::new());
    large.append_value([Some(1), None]);
    let mut fixed = FixedSizeListBuilder::new(Int32Builder::new(), 2);
    fixed.values().append_value(1);
    fixed.values().append_null();
    fixed.append(true);
    let mut view = ListViewBuilder::new(Int32Builder::new());
    view.append_value([Some(1), None]);
    let list: ArrayRef = Arc::new(list.finish());
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    map.keys().append_value("a");
    map.values().append_value(1);
    map.append(true).unwrap();
    let mut numbered = MapBuilder::new(None, Int32Builder::new(), Int32Builder::new());
    numbered.keys().append_value(1);
    numbered.values().append_value(1);
    numbered.append(true).unwrap();
    let member = Arc::new(Field::new("a", DataType::Int32, true));
    let one: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let uuid: Vec<u8> = (0..16).collect();
    let union = UnionFields::try_new(
        [0, 1],
        [
            Field::new("int", DataType::Int32, false),
            Field::new("string", DataType::Utf8, false),
        ],
    );
    let union = UnionArray::try_new(
        union.unwrap(),
        ScalarBuffer::from(vec![1_i8]),
        Some(ScalarBuffer::from(vec![0])),
        vec![
            Arc::new(Int32Array::new_null(0)),
            Arc::new(StringArray::from(vec!["ä"])),
        ],
    );
    vec![
        ("Null", Arc::new(NullArray::new(1))),
        ("Boolean", Arc::new(BooleanArray::from(vec![true]))),
        ("Int8", Arc::new(Int8Array::from(vec![-5]))),
        ("Int16", Arc::new(Int16Array::from(vec![-5]))),
        ("Int32", Arc::new(Int32Array::from(vec![-5]))),
        ("Int64", Arc::new(Int64Array::from(vec![i64::MIN]))),
        ("UInt8", Arc::new(UInt8Array::from(vec![5]))),
        ("UInt16", Arc::new(UInt16Array::from(vec![5]))),
        ("UInt32", Arc::new(UInt32Array::from(vec![5]))),
        ("UInt64", Arc::new(UInt64Array::from(vec![u64::MAX]))),
        ("Float16", arrow_cast_to_half()),
        ("Float32", Arc::new(Float32Array::from(vec![1.5]))),
        ("Float64", Arc::new(Float64Array::from(vec![1.5]))),
        (
            "Decimal32",
            decimal(Arc::new(
                Decimal32Array::from(vec![1250]).with_precision_and_scale(9, 2).unwrap(),
            )),
        ),
        (
            "Decimal64",
            decimal(Arc::new(
                Decimal64Array::from(vec![1250])
                    .with_precision_and_scale(18, 2)
                    .unwrap(),
            )),
        ),
        (
            "Decimal128",
            decimal(Arc::new(
                Decimal128Array::from(vec![1250])
                    .with_precision_and_scale(38, 2)
                    .unwrap(),
            )),
        ),
        (
            "Decimal256",
            decimal(Arc::new(
                Decimal256Array::from(vec![i256::from(1250)])
                    .with_precision_and_scale(76, 2)
                    .unwrap(),
            )),
        ),
        ("Utf8", Arc::new(StringArray::from(vec!["ä"]))),
        ("LargeUtf8", Arc::new(LargeStringArray::from(vec!["ä"]))),
        ("Utf8View", Arc::new(StringViewArray::from(vec!["ä"]))),
        ("Binary", Arc::new(BinaryArray::from_vec(vec![b"ab"]))),
        ("LargeBinary", Arc::new(LargeBinaryArray::from_vec(vec![b"ab"]))),
        ("BinaryView", Arc::new(BinaryViewArray::from(vec![&b"ab"[..]]))),
        (
            "FixedSizeBinary",
            Arc::new(FixedSizeBinaryArray::try_from_iter([b"ab"].into_iter()).unwrap()),
        ),
        (
            "UUID",
            Arc::new(FixedSizeBinaryArray::try_from_iter([uuid].into_iter()).unwrap()),
        ),
        ("Date32", Arc::new(Date32Array::from(vec![day]))),
        ("Date64", Arc::new(Date64Array::from(vec![i64::from(day) * 86_400_000]))),
        (
            "Time32",
            Arc::new(Time32MillisecondArray::from(vec![noon_seconds as i32 * 1000 + 500])),
        ),
        (
            "Time64",
            Arc::new(Time64NanosecondArray::from(vec![
                noon_seconds * 1_000_000_000 + 500_000_000,
            ])),
        ),
        (
            "Timestamp with a zone",
            Arc::new(TimestampMicrosecondArray::from(vec![at * 1_000_000]).with_timezone("Europe/Berlin")),
        ),
        (
            "Timestamp without a zone",
            Arc::new(TimestampMicrosecondArray::from(vec![at * 1_000_000])),
        ),
        ("Duration", Arc::new(DurationMillisecondArray::from(vec![3500]))),
        ("Interval(YearMonth)", Arc::new(IntervalYearMonthArray::from(vec![14]))),
        (
            "Interval(DayTime)",
            Arc::new(IntervalDayTimeArray::from(vec![IntervalDayTime::new(3, 500)])),
        ),
        (
            "Interval(MonthDayNano)",
            Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(
                14,
                3,
                500_000_000,
            )])),
        ),
        (
            "Dictionary",
            Arc::new(DictionaryArray::<Int32Type>::from_iter([Some("ä")])),
        ),
        (
            "RunEndEncoded",
            Arc::new(RunArray::try_new(&Int32Array::from(vec![1]), &StringArray::from(vec!["ä"])).unwrap()),
        ),
        ("List", list),
        ("LargeList", Arc::new(large.finish())),
        ("FixedSizeList", Arc::new(fixed.finish())),
        ("ListView", Arc::new(view.finish())),
        ("Struct", Arc::new(StructArray::from(vec![(member, one)]))),
        ("Map with text keys", Arc::new(map.finish())),
        ("Map with other keys", Arc::new(numbered.finish())),
        ("Union", Arc::new(union.unwrap())),
    ]
}

fn arrow_cast_to_half() -> ArrayRef {
    let half = <Float16Type as ArrowPrimitiveType>::Native::from_f32(1.5);
    Arc::new(Float16Array::from(vec![half]))
}

/// The name of a type in the table: a type that Arrow adds does not compile here.
fn name_of(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Null => "Null",
        DataType::Boolean => "Boolean",
        DataType::Int8 => "Int8",
        DataType::Int16 => "Int16",
        DataType::Int32 => "Int32",
        DataType::Int64 => "Int64",
        DataType::UInt8 => "UInt8",
        DataType::UInt16 => "UInt16",
        DataType::UInt32 => "UInt32",
        DataType::UInt64 => "UInt64",
        DataType::Float16 => "Float16",
        DataType::Float32 => "Float32",
        DataType::Float64 => "Float64",
        DataType::Timestamp(_, Some(_)) => "Timestamp with a zone",
        DataType::Timestamp(_, None) => "Timestamp without a zone",
        DataType::Date32 => "Date32",
        DataType::Date64 => "Date64",
        DataType::Time32(_) => "Time32",
        DataType::Time64(_) => "Time64",
        DataType::Duration(_) => "Duration",
        DataType::Interval(IntervalUnit::YearMonth) => "Interval(YearMonth)",
        DataType::Interval(IntervalUnit::DayTime) => "Interval(DayTime)",
        DataType::Interval(IntervalUnit::MonthDayNano) => "Interval(MonthDayNano)",
        DataType::Binary => "Binary",
        DataType::FixedSizeBinary(16) => "UUID",
        DataType::FixedSizeBinary(_) => "FixedSizeBinary",
        DataType::LargeBinary => "LargeBinary",
        DataType::BinaryView => "BinaryView",
        DataType::Utf8 => "Utf8",
        DataType::LargeUtf8 => "LargeUtf8",
        DataType::Utf8View => "Utf8View",
        DataType::List(_) => "List",
        DataType::ListView(_) | DataType::LargeListView(_) => "ListView",
        DataType::FixedSizeList(_, _) => "FixedSizeList",
        DataType::LargeList(_) => "LargeList",
        DataType::Struct(_) => "Struct",
        DataType::Union(_, _) => "Union",
        DataType::Dictionary(_, _) => "Dictionary",
        DataType::Decimal32(_, _) => "Decimal32",
        DataType::Decimal64(_, _) => "Decimal64",
        DataType::Decimal128(_, _) => "Decimal128",
        DataType::Decimal256(_, _) => "Decimal256",
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(entry) if entry[0].data_type() == &DataType::Utf8 => "Map with text keys",
            _ => "Map with other keys",
        },
        DataType::RunEndEncoded(_, _) => "RunEndEncoded",
    }
}

/// The cells of the table after its first column, by the names of types in that.
fn documented() -> BTreeMap<String, [String; 3]> {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/build.md")).unwrap();
    let table = docs.lines().skip_while(|line| !line.starts_with("| Arrow type |"));
    let mut types = BTreeMap::new();
    for row in table.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [names, key, value, json] = cells[..] else {
            panic!("{row:?} has {} cells", cells.len());
        };
        for name in names.split(", ") {
            let cells = [key, value, json].map(|cell| cell.trim_matches('`').to_owned());
            assert!(types.insert(name.to_owned(), cells).is_none(), "{name} is in two rows");
        }
    }
    types
}

/// A table of the column `v` and others, in the format that can hold it.
fn written(column: &ArrayRef) -> Place {
    let place = Place::new();
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let mut field = Field::new(
        "v",
        column.data_type().clone(),
        !matches!(column.data_type(), DataType::Union(_, _)),
    );
    if name_of(column.data_type()) == "UUID" {
        field.set_metadata([("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())]);
    }
    let fields = vec![Field::new("k", DataType::Utf8, true), field];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![text, Arc::clone(column)]).unwrap();
    match column.data_type() {
        DataType::Union(_, _) | DataType::Interval(IntervalUnit::MonthDayNano) => {
            write_avro(&place.input("a.avro"), &[batch], None);
        }
        _ => write_parquet(&place.input("a.parquet"), &batch, 10),
    }
    place
}

#[test]
fn every_type_of_arrow_is_read_as_documented() {
    let documented = documented();
    let examples = examples();
    for (name, column) in &examples {
        assert_eq!(name_of(column.data_type()), *name);
        let place = written(column);
        let refused = || "refused".to_owned();
        let build = |key: &str, value: ValueSelection| {
            let built = place.build(|options| {
                options.key = vec![key.to_owned()];
                options.value = value;
            });
            let version = built
                .is_ok()
                .then(|| fondaco_format::Version::open(&place.output()).unwrap());
            let _ = std::fs::remove_dir_all(place.output());
            version
        };
        let cells = documented.get(*name).cloned().unwrap_or_default();
        let by_key = build("v", ValueSelection::Column("k".to_owned()));
        let found = [
            match by_key {
                Some(version) if get(&version, &cells[0]).is_some() => cells[0].clone(),
                Some(_) => "another key".to_owned(),
                None => refused(),
            },
            build("k", ValueSelection::Column("v".to_owned()))
                .map_or_else(refused, |version| get(&version, "x").unwrap()),
            build("k", ValueSelection::AllOthers).map_or_else(refused, |version| {
                let object = get(&version, "x").unwrap();
                let member = object.strip_prefix("{\"v\":").and_then(|rest| rest.strip_suffix('}'));
                member.unwrap().to_owned()
            }),
        ];
        assert_eq!(found, cells, "{name}");
    }
    let tried: BTreeSet<&str> = examples.iter().map(|(name, _)| *name).collect();
    let listed: BTreeSet<&str> = documented.keys().map(String::as_str).collect();
    assert_eq!(listed, tried, "the table has all types, and no others");
}
