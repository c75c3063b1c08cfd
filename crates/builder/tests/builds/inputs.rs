//! The records that each format's rows become.

use std::sync::Arc;

use crate::generate::{Place, get, gzip, table, texts, write_avro, write_parquet, zstd};
use arrow_array::builder::{Int32Builder, ListBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    Float64Array, Int64Array, StringArray, StructArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_avro::compression::CompressionCodec;
use arrow_schema::{DataType, Field, Fields};
use fondaco_builder::{InputFormat, OnDuplicate, ValueSelection};
use fondaco_format::ValueEncoding;

/// 3000 rows as pairs of texts; value 7 is empty.
fn pairs() -> Vec<(String, String)> {
    (0..3000)
        .map(|n| {
            (
                format!("key{n}"),
                if n == 7 { String::new() } else { format!("value {n}") },
            )
        })
        .collect()
}

fn check_pairs(place: &Place, format: Option<InputFormat>) {
    let version = place.built(|options| options.format = format);
    assert_eq!(version.records(), 3000);
    for (key, value) in pairs() {
        assert_eq!(get(&version, &key), Some(value));
    }
}

fn pairs_as_table() -> arrow_array::RecordBatch {
    let pairs = pairs();
    texts(
        &pairs
            .iter()
            .map(|(key, value)| (Some(&key[..]), Some(&value[..])))
            .collect::<Vec<_>>(),
    )
}

fn pairs_as_csv() -> String {
    let rows: String = pairs()
        .iter()
        .map(|(key, value)| format!("ignored,{value},{key}\n"))
        .collect();
    format!("x,v,k\n{rows}")
}

fn pairs_as_jsonl() -> String {
    pairs()
        .iter()
        .map(|(key, value)| format!("{{\"v\":{value:?}, \"x\": null, \"k\":{key:?}}}\n"))
        .collect()
}

#[test]
fn parquet_is_read_in_row_groups() {
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &pairs_as_table(), 70);
    check_pairs(&place, None);
}

#[test]
fn avro_is_read_with_every_codec() {
    for codec in [
        None,
        Some(CompressionCodec::Deflate),
        Some(CompressionCodec::Snappy),
        Some(CompressionCodec::ZStandard),
    ] {
        let place = Place::new();
        let table = pairs_as_table();
        let batches: Vec<_> = (0..30).map(|n| table.slice(n * 100, 100)).collect();
        write_avro(&place.input("a.avro"), &batches, codec);
        check_pairs(&place, None);
    }
}

#[test]
fn text_is_read_plain_gzip_and_zstd_under_any_name() {
    for text in [pairs_as_csv(), pairs_as_jsonl()] {
        let format = if text.starts_with('{') {
            InputFormat::Jsonl
        } else {
            InputFormat::Csv
        };
        for content in [text.clone().into_bytes(), gzip(text.as_bytes()), zstd(text.as_bytes())] {
            let place = Place::new();
            place.write("part-00000", content);
            check_pairs(&place, Some(format));
        }
    }
}

#[test]
fn text_may_have_a_byte_order_mark_without_final_newline() {
    for (name, text) in [("a.csv", pairs_as_csv()), ("a.jsonl", pairs_as_jsonl())] {
        let place = Place::new();
        place.write(name, format!("\u{feff}{}", text.trim_end().replace('\n', "\r\n")));
        check_pairs(&place, None);
    }
}

#[test]
fn compressed_text_in_several_members_is_read_completely() {
    let text = pairs_as_jsonl();
    let (first, second) = text.split_at(text.find("key1500").unwrap());
    for compress in [gzip, zstd] {
        let place = Place::new();
        place.write(
            "a.jsonl",
            [compress(first.as_bytes()), compress(second.as_bytes())].concat(),
        );
        check_pairs(&place, None);
    }
}

#[test]
fn files_of_several_formats_make_one_version() {
    let place = Place::new();
    let table = pairs_as_table();
    write_parquet(&place.input("1.parquet"), &table.slice(0, 1000), 70);
    write_avro(&place.input("2.avro"), &[table.slice(1000, 1000)], None);
    let csv = pairs_as_csv();
    let lines: Vec<&str> = csv.lines().collect();
    place.write(
        "3/a.csv.gz",
        gzip(format!("{}\n{}", lines[0], lines[2001..2501].join("\n")).as_bytes()),
    );
    let jsonl = pairs_as_jsonl();
    place.write("3/b.jsonl", jsonl.lines().skip(2500).collect::<Vec<_>>().join("\n"));
    place.write("_SUCCESS", "");
    check_pairs(&place, None);
}

/// A table with a column of every type, with the column's name as the key.
fn every_type() -> Vec<(&'static str, ArrayRef, [&'static str; 2])> {
    vec![
        ("text", Arc::new(StringArray::from(vec!["ä", ""])), ["ä", ""]),
        (
            "binary",
            Arc::new(BinaryArray::from_vec(vec![b"\xff\x00", b"x"])),
            ["\u{fffd}\0", "x"],
        ),
        (
            "integer",
            Arc::new(Int64Array::from(vec![i64::MIN, 42])),
            ["-9223372036854775808", "42"],
        ),
        (
            "unsigned",
            Arc::new(UInt64Array::from(vec![u64::MAX, 0])),
            ["18446744073709551615", "0"],
        ),
        ("float", Arc::new(Float64Array::from(vec![1.5, 2.0])), ["1.5", "2.0"]),
        (
            "boolean",
            Arc::new(BooleanArray::from(vec![true, false])),
            ["true", "false"],
        ),
        (
            "decimal",
            Arc::new(
                Decimal128Array::from(vec![1250, -5])
                    .with_precision_and_scale(9, 2)
                    .unwrap(),
            ),
            ["12.50", "-0.05"],
        ),
        (
            "date",
            Arc::new(Date32Array::from(vec![0, 20_454])),
            ["1970-01-01", "2026-01-01"],
        ),
        (
            "timestamp",
            Arc::new(TimestampMicrosecondArray::from(vec![0, 1_500_000]).with_timezone("+00:00")),
            ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01.500Z"],
        ),
        (
            "enumeration",
            Arc::new(DictionaryArray::<Int32Type>::from_iter([Some("red"), Some("blue")])),
            ["red", "blue"],
        ),
        ("list", list(), ["[1,null]", "[]"]),
        ("struct", structs(), [r#"{"a":"x","b":null}"#, r#"{"a":"y","b":2}"#]),
    ]
}

fn list() -> ArrayRef {
    let mut list = ListBuilder::new(Int32Builder::new());
    list.append_value([Some(1), None]);
    list.append_value([]);
    Arc::new(list.finish())
}

fn structs() -> ArrayRef {
    let fields = Fields::from(vec![
        Field::new("a", DataType::Utf8, true),
        Field::new("b", DataType::Int64, true),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["x", "y"])),
        Arc::new(Int64Array::from(vec![None, Some(2)])),
    ];
    Arc::new(StructArray::new(fields, columns, None))
}

#[test]
fn every_type_of_parquet_is_a_value_as_documented() {
    for (name, column, expected) in every_type() {
        let place = Place::new();
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["0", "1"]));
        write_parquet(&place.input("a.parquet"), &table(vec![("k", keys), ("v", column)]), 10);
        let version = place.built(|_| {});
        assert_eq!(
            [get(&version, "0").unwrap(), get(&version, "1").unwrap()],
            expected,
            "{name}"
        );
        assert_eq!(version.manifest().schema.encoding, ValueEncoding::Raw);
    }
}

#[test]
fn every_scalar_type_of_parquet_is_a_key_as_documented() {
    for (name, column, expected) in every_type() {
        let place = Place::new();
        let nested = column.data_type().is_nested();
        let values: ArrayRef = Arc::new(StringArray::from(vec!["0", "1"]));
        write_parquet(
            &place.input("a.parquet"),
            &table(vec![("k", column), ("v", values)]).slice(0, 1),
            10,
        );
        if nested {
            let message = place.refused(|_| {});
            assert!(message.contains("a key is a text, binary, a number"), "{message}");
        } else if name == "binary" {
            assert_eq!(
                place.built(|_| {}).get(b"\xff\x00").unwrap().as_deref(),
                Some(&b"0"[..])
            );
        } else {
            assert_eq!(get(&place.built(|_| {}), expected[0]).as_deref(), Some("0"), "{name}");
        }
    }
}

#[test]
fn several_columns_make_a_json_object_with_nulls_and_nesting() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(Int64Array::from(vec![Some(7), None]))),
        ("k", Arc::new(StringArray::from(vec!["0", "1"]))),
        ("t", Arc::new(StringArray::from(vec!["a\"b\n", "c"]))),
        ("b", Arc::new(BinaryArray::from_vec(vec![b"\xff\x00", b""]))),
        ("l", list()),
        ("s", structs()),
    ];
    for avro in [false, true] {
        let place = Place::new();
        let batch = table(columns.clone());
        if avro {
            write_avro(&place.input("a.avro"), &[batch], None);
        } else {
            write_parquet(&place.input("a.parquet"), &batch, 10);
        }
        let version = place.built(|options| options.value = ValueSelection::AllOthers);
        assert_eq!(
            get(&version, "0").unwrap(),
            r#"{"n":7,"t":"a\"b\n","b":"/wA=","l":[1,null],"s":{"a":"x","b":null}}"#
        );
        assert_eq!(
            get(&version, "1").unwrap(),
            r#"{"n":null,"t":"c","b":"","l":[],"s":{"a":"y","b":2}}"#
        );
        let schema = &version.manifest().schema;
        assert_eq!((schema.key.name.as_str(), schema.encoding), ("k", ValueEncoding::Json));
        let names: Vec<&str> = schema.values.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["n", "t", "b", "l", "s"]);
    }
}

#[test]
fn chosen_columns_keep_the_order_of_the_choice() {
    let choice = ValueSelection::Columns(vec!["s".to_owned(), "k".to_owned(), "n".to_owned()]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(StringArray::from(vec!["0"]))),
        ("n", Arc::new(Int64Array::from(vec![7]))),
        ("s", Arc::new(StringArray::from(vec!["x"]))),
    ];
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &table(columns), 10);
    let built = place.built(|options| options.value = choice.clone());
    assert_eq!(get(&built, "0").unwrap(), r#"{"s":"x","k":"0","n":7}"#);

    let place = Place::new();
    place.write("a.csv", "n,k,s\n7,0,\"x, \"\"y\"\"\"\n");
    let built = place.built(|options| options.value = choice.clone());
    assert_eq!(get(&built, "0").unwrap(), r#"{"s":"x, \"y\"","k":"0","n":"7"}"#);

    let place = Place::new();
    place.write("a.jsonl", "{\"k\":0,\"s\":[1, 2]}\n{\"k\":1,\"n\":{\"a\":1.50}}\n");
    let built = place.built(|options| options.value = choice);
    assert_eq!(get(&built, "0").unwrap(), r#"{"s":[1, 2],"k":0,"n":null}"#);
    assert_eq!(get(&built, "1").unwrap(), r#"{"s":null,"k":1,"n":{"a":1.50}}"#);
}

#[test]
fn json_scalars_are_keys_and_values_without_their_quotes() {
    let place = Place::new();
    place.write(
        "a.jsonl",
        "{\"k\":12345678901234567890,\"v\":1.50}\n\n{\"k\":true,\"v\":{\"a\": [1]}}\n{\"k\":\"\\u00e4\\n\",\"v\":\"\"}\n",
    );
    let version = place.built(|_| {});
    assert_eq!(get(&version, "12345678901234567890").as_deref(), Some("1.50"));
    assert_eq!(get(&version, "true").as_deref(), Some("{\"a\": [1]}"));
    assert_eq!(get(&version, "ä\n").as_deref(), Some(""));
}

#[test]
fn all_other_fields_of_a_json_object_stay_verbatim() {
    let place = Place::new();
    place.write(
        "a.jsonl",
        "{\"a\":1e3,\"k\":\"x\",\"b\":{\"c\": null}}\n{\"k\":\"y\"}\n",
    );
    let version = place.built(|options| options.value = ValueSelection::AllOthers);
    assert_eq!(get(&version, "x").as_deref(), Some("{\"a\":1e3,\"b\":{\"c\": null}}"));
    assert_eq!(get(&version, "y").as_deref(), Some("{}"));
}

#[test]
fn uuids_are_written_as_usual() {
    let bytes: Vec<u8> = (0..16).collect();
    let ids: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter([bytes].into_iter()).unwrap());
    let schema = arrow_schema::Schema::new(vec![
        Field::new("k", DataType::FixedSizeBinary(16), false)
            .with_metadata([("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())]),
        Field::new("v", DataType::Utf8, false),
    ]);
    let values: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let batch = arrow_array::RecordBatch::try_new(Arc::new(schema), vec![ids, values]).unwrap();
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &batch, 10);
    assert_eq!(
        get(&place.built(|_| {}), "00010203-0405-0607-0809-0a0b0c0d0e0f").as_deref(),
        Some("x")
    );
}

#[test]
fn first_and_last_go_by_file_name_and_then_row() {
    for (on_duplicate, expected) in [(OnDuplicate::First, ["a1", "b1"]), (OnDuplicate::Last, ["c1", "b2"])] {
        let place = Place::new();
        place.write("c.csv", "k,v\n1,c1\n");
        place.write("a.csv", "k,v\n1,a1\n1,a2\n");
        place.write("b.jsonl", "{\"k\":2,\"v\":\"b1\"}\n{\"k\":2,\"v\":\"b2\"}\n");
        let version = place.built(|options| options.on_duplicate = on_duplicate);
        assert_eq!([get(&version, "1").unwrap(), get(&version, "2").unwrap()], expected);
    }
}

#[test]
fn a_dry_run_counts_the_same_and_writes_nothing() {
    let count = |dry_run| {
        let place = Place::new();
        write_parquet(&place.input("a.parquet"), &pairs_as_table(), 70);
        place.write("b.csv", "k,v\nkey7,again\n");
        let change = |options: &mut fondaco_builder::BuildOptions| {
            options.on_duplicate = OnDuplicate::First;
            options.chunk_bytes_target = 5000;
            options.dry_run = dry_run;
        };
        let report = place.build(change).unwrap();
        assert_eq!(place.output().exists(), !dry_run);
        assert_eq!(report.manifest.is_none(), dry_run);
        (
            report.files,
            report.rows,
            report.records,
            report.bytes,
            report.duplicates,
            report.partitions,
            report.chunks,
        )
    };
    assert_eq!(count(true), count(false));
    assert_eq!(count(true).4, 1);
}
