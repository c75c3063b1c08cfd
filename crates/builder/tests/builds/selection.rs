//! How keys and values are selected: several columns, members of objects, other delimiters, one JSON array.

use std::fs::File;
use std::sync::Arc;

use crate::generate::{self, Place, assert_says, get, gzip, table, write_avro, write_parquet};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{Field, Fields};
use fondaco_builder::ValueSelection;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression};
use parquet::file::properties::WriterProperties;

fn texts(texts: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

/// The same three rows in all formats: the last row is invalid with the key `a,n,b`.
fn rows_in_every_format() -> Vec<Place> {
    let batch = table(vec![
        ("a", texts(&["x", "y", "p:q"])),
        ("n", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ("b", texts(&["r:s", "z", "z"])),
        ("v", texts(&["1", "2", "3"])),
    ]);
    let places: Vec<Place> = (0..4).map(|_| Place::new()).collect();
    write_parquet(&places[0].input("a.parquet"), &batch, 10);
    write_avro(&places[1].input("a.avro"), &[batch], None);
    places[2].write("a.csv", "a,n,b,v\nx,1,r:s,1\ny,2,z,2\np:q,3,z,3\n");
    places[3].write(
        "a.jsonl",
        "{\"a\":\"x\",\"n\":1,\"b\":\"r:s\",\"v\":\"1\"}\n{\"a\":\"y\",\"n\":2,\"b\":\"z\",\"v\":\"2\"}\n\
         {\"a\":\"p:q\",\"n\":3,\"b\":\"z\",\"v\":\"3\"}\n",
    );
    places
}

#[test]
fn several_columns_make_an_unambiguous_key() {
    for place in rows_in_every_format() {
        let key = |options: &mut fondaco_builder::BuildOptions| {
            options.key = ["a", "n", "b"].map(str::to_owned).to_vec();
        };
        assert_says(&place.refused(key), &["row 3", "\"a\" contains \":\"", "last in --key"]);
        let version = place.built(|options| {
            key(options);
            options.bad_rows_max = 1;
            options.value = ValueSelection::AllOthers;
        });
        assert_eq!(version.records(), 2);
        assert_eq!(get(&version, "x:1:r:s").as_deref(), Some("{\"v\":\"1\"}"));
        assert_eq!(get(&version, "y:2:z").as_deref(), Some("{\"v\":\"2\"}"));
        assert_eq!(version.manifest().schema.key.name, "a,n,b");
    }
    let place = Place::new();
    place.write("a.csv", "a,b,v\n,1,x\n");
    let message = place.refused(|options| options.key = vec!["a".to_owned(), "b".to_owned()]);
    assert_says(&message, &["row 1", "\"a\", which is a part of the key, is empty"]);
}

/// Objects in column `o`, the last one null, with members `id` and `in`, which has a member `v`.
fn objects() -> RecordBatch {
    let member = |name, column: &ArrayRef| Field::new(name, column.data_type().clone(), true);
    let inner = texts(&["1", "2", "3"]);
    let inner: ArrayRef = Arc::new(StructArray::new(
        Fields::from(vec![member("v", &inner)]),
        vec![inner],
        Some(NullBuffer::from(vec![true, false, true])),
    ));
    let id: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
    let outer: ArrayRef = Arc::new(StructArray::new(
        Fields::from(vec![member("id", &id), member("in", &inner)]),
        vec![id, inner],
        Some(NullBuffer::from(vec![true, true, false])),
    ));
    table(vec![
        ("x", texts(&["a", "b", "c"])),
        ("o", outer),
        ("o.name", texts(&["d", "e", "f"])),
    ])
}

#[test]
fn members_of_objects_are_keys_and_values_by_their_paths() {
    let places: Vec<Place> = (0..3).map(|_| Place::new()).collect();
    write_parquet(&places[0].input("a.parquet"), &objects(), 10);
    // Names with dots are invalid in Avro.
    write_avro(&places[1].input("a.avro"), &[objects().project(&[0, 1]).unwrap()], None);
    places[2].write(
        "a.jsonl",
        "{\"x\":\"a\",\"o\":{\"id\":7,\"in\":{\"v\":\"1\"}},\"o.name\":\"d\"}\n\
         {\"x\":\"b\",\"o\":{\"id\":8,\"in\":null},\"o.name\":\"e\"}\n{\"x\":\"c\",\"o\":null,\"o.name\":\"f\"}\n",
    );
    for (number, place) in places.iter().enumerate() {
        let built = |key: &str, values: &[&str], bad_rows: u64| {
            let version = place.built(|options| {
                options.key = vec![key.to_owned()];
                options.value = match values {
                    [value] => ValueSelection::Column((*value).to_owned()),
                    several => ValueSelection::Columns(several.iter().map(|&name| name.to_owned()).collect()),
                };
                options.bad_rows_max = bad_rows;
            });
            std::fs::remove_dir_all(place.output()).unwrap();
            version
        };
        // The third object is null, and so are all its members.
        let version = built("o.id", &["x"], 1);
        assert_eq!(version.records(), 2);
        assert_eq!(get(&version, "7").as_deref(), Some("a"));
        assert_eq!(get(&version, "8").as_deref(), Some("b"));
        let version = built("x", &["o.in.v"], 2);
        assert_eq!(version.records(), 1);
        assert_eq!(get(&version, "a").as_deref(), Some("1"));
        let version = built("x", &["o.in.v", "o.id"], 0);
        assert_eq!(get(&version, "a").as_deref(), Some(r#"{"o.in.v":"1","o.id":7}"#));
        assert_eq!(get(&version, "b").as_deref(), Some(r#"{"o.in.v":null,"o.id":8}"#));
        assert_eq!(get(&version, "c").as_deref(), Some(r#"{"o.in.v":null,"o.id":null}"#));
        assert_eq!(version.manifest().schema.values[0].name, "o.in.v");
        if number != 1 {
            // A column with the name itself takes precedence.
            assert_eq!(get(&built("x", &["o.name"], 0), "c").as_deref(), Some("f"));
        }
    }
    let missing = places[0].refused(|options| options.key = vec!["o.none".to_owned()]);
    assert_says(&missing, &["no column \"o.none\""]);
}

#[test]
fn other_delimiters_are_read_and_guessed() {
    for (name, delimiter, told) in [
        ("a.csv", ';', Some(b';')),
        ("a.csv", '\t', Some(b'\t')),
        ("a.csv", '|', Some(b'|')),
        ("a.tsv", '\t', None),
        ("a.TSV.gz", '\t', None),
    ] {
        let text = "k;v;x\na;\"1;2\";,\nb;3;\n".replace(';', &delimiter.to_string());
        let content = if name.ends_with(".gz") {
            gzip(text.as_bytes())
        } else {
            text.into_bytes()
        };
        let place = Place::new();
        place.write(name, content);
        if told.is_some() {
            let hint = format!("--delimiter '{}'", delimiter.escape_default());
            assert_says(
                &place.refused(|_| {}),
                &["has no column \"k\"", "look separated by", &hint],
            );
        }
        let version = place.built(|options| options.delimiter = told);
        assert_eq!(get(&version, "a"), Some(format!("1{delimiter}2")));
        assert_eq!(get(&version, "b").as_deref(), Some("3"));
    }
    let place = Place::new();
    place.write("a.csv", "id,v\n1,2\n");
    let message = place.refused(|_| {});
    assert!(!message.contains("--delimiter"), "{message}");
    assert_says(
        &place.refused(|options| options.delimiter = Some(b'"')),
        &["invalid delimiter '\"'"],
    );
}

#[test]
fn a_json_array_is_read_object_by_object() {
    let objects: Vec<String> = (0..50_000)
        .map(|n| format!("{{\"k\":{n},\n \"v\": {{\"t\": \"a\\\"]}},{n}\\\\\", \"l\": [1, {{}}]}}}}"))
        .collect();
    for text in [
        format!("[{}]", objects.join(",")),
        format!("\n [\n{}\n]\n", objects.join("\r\n ,\n")),
    ] {
        for content in [text.clone().into_bytes(), gzip(text.as_bytes())] {
            let place = Place::new();
            place.write("a.json", content);
            let version = place.built(|_| {});
            assert_eq!(version.records(), 50_000);
            for n in [0, 31, 49_999] {
                let expected = format!("{{\"t\": \"a\\\"]}},{n}\\\\\", \"l\": [1, {{}}]}}");
                assert_eq!(get(&version, &n.to_string()), Some(expected));
            }
        }
    }
}

#[test]
fn an_invalid_json_array_is_refused() {
    for (text, reason) in [
        ("[{\"k\":1,\"v\":1}", "cut off in element 1"),
        ("[{\"k\":1,\"v\":1}, ", "cut off in element 2"),
        ("[{\"k\":1,\"v\":\"", "cut off in element 1"),
        ("[{\"k\":1,\"v\":1},]", "element 2 of its array is empty"),
        ("[,{\"k\":1,\"v\":1}]", "element 1 of its array is empty"),
        ("[{\"k\":1,\"v\":1}] x", "text after the end of its array"),
        ("[{\"k\":1,\"v\":1}][]", "text after the end of its array"),
        ("[]", "the input has no rows"),
    ] {
        let place = Place::new();
        place.write("a.json", text);
        assert_says(&place.refused(|options| options.bad_rows_max = 10), &[reason]);
    }
    for element in [
        "7",
        "[1]",
        "{\"k\":2}",
        "{\"k\":2,\"v\":1}}",
        "{\"k\":2,\"v\":1} {}",
        "{\"k\":\"a\nb\",\"v\":1}",
    ] {
        let place = Place::new();
        place.write(
            "a.json",
            format!("[{{\"k\":1,\"v\":1}}, {element}, {{\"k\":3,\"v\":1}}]"),
        );
        assert_says(&place.refused(|_| {}), &["row 2"]);
        let report = place.build(|options| options.bad_rows_max = 1).unwrap();
        assert_eq!((report.rows, report.records), (3, 2), "{element}");
    }
}

#[test]
fn parquet_with_brotli_is_read() {
    let place = Place::new();
    let batch = generate::texts(&[(Some("a"), Some("1")), (Some("b"), Some("2"))]);
    let properties = WriterProperties::builder()
        .set_compression(Compression::BROTLI(BrotliLevel::default()))
        .build();
    let file = File::create(place.input("a.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert_eq!(get(&place.built(|_| {}), "b").as_deref(), Some("2"));
}

#[test]
fn standard_input_needs_a_streamable_format() {
    let place = Place::new();
    let input = |options: &mut fondaco_builder::BuildOptions| options.inputs = vec!["-".to_owned()];
    assert_says(&place.refused(input), &["/dev/stdin", "--format"]);
}
