//! Records decoded by the schema of a manifest: what is read, and what is refused.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use fondaco_format::{Column, Schema, ValueEncoding};
use fondaco_model::ValueType;
use fondaco_typed::TypedSchema;

fn column((name, r#type): (&str, &str)) -> Column {
    Column {
        name: name.to_owned(),
        r#type: r#type.to_owned(),
    }
}

fn schema(key: (&str, &str), values: &[(&str, &str)], encoding: ValueEncoding) -> TypedSchema {
    let schema = Schema {
        key: column(key),
        values: values.iter().map(|&of| column(of)).collect(),
        encoding,
    };
    TypedSchema::of(&schema, ValueType::Bytes)
}

fn objects(values: &[(&str, &str)]) -> TypedSchema {
    schema(("k", "Utf8"), values, ValueEncoding::Json)
}

fn names(schema: &TypedSchema) -> Vec<&str> {
    schema
        .arrow()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect()
}

fn decode(schema: &TypedSchema, value: &str) -> RecordBatch {
    schema.decoder().decode(&["k"], &[Some(value)]).unwrap()
}

/// The error for the second of three records.
fn refused(schema: &TypedSchema, right: &str, wrong: &str) -> String {
    let values = [Some(right), Some(wrong), Some(right)];
    let decoded = schema.decoder().decode(&["first", "second", "third"], &values);
    decoded.unwrap_err().to_string()
}

#[test]
fn a_missing_value_is_a_row_of_nulls() {
    let all = objects(&[("a", "Int32"), ("l", "List(Int32)")]);
    let batch = all.decoder().decode(&["x", "y"], &[None, Some(r#"{"a":1}"#)]).unwrap();
    assert_eq!(
        batch.column(1).as_primitive::<Int32Type>().iter().collect::<Vec<_>>(),
        [None, Some(1)]
    );
    assert_eq!((batch.column(2).is_null(0), batch.column(2).is_null(1)), (true, true));

    for raw in ["Int32", "List(Int32)", "Binary", "Struct(\"a\": Int32)"] {
        let schema = schema(("k", "Utf8"), &[("v", raw)], ValueEncoding::Raw);
        let batch = schema.decoder().decode(&["x"], &[None::<&[u8]>]).unwrap();
        assert!(batch.column(1).is_null(0), "{raw}");
        let none: [&str; 0] = [];
        let batch = schema.decoder().decode(&none, &[None::<&[u8]>; 0]).unwrap();
        assert_eq!(batch.num_rows(), 0);
    }
}

#[test]
fn a_value_that_does_not_fit_is_named_with_its_key_and_column() {
    let nested = objects(&[("o", r#"Struct("a": Int32)"#), ("m", "Map(Int32, Date32)")]);
    let right = r#"{"o":{"a":1},"m":[[1,"2026-01-31"]]}"#;
    for (wrong, parts) in [
        (r#"{"o":{"a":"x"}}"#, ["\"o.a\"", "x\" is no Int32"]),
        (r#"{"o":{"a":1.5}}"#, ["\"o.a\"", "1.5 is no Int32"]),
        (r#"{"o":{"a":4294967296}}"#, ["\"o.a\"", "4294967296 is no Int32"]),
        (r#"{"o":[1]}"#, ["\"o\"", "[1]"]),
        (r#"{"o":{"b":1}}"#, ["\"o\"", "'b'"]),
        (r#"{"m":[[1]]}"#, ["\"m\"", "[1] is no pair"]),
        (r#"{"m":[[1,null,2]]}"#, ["\"m\"", "[1,null,2] is no pair"]),
        (r#"{"m":[[1,"yesterday"]]}"#, ["\"m\"", "\"yesterday\" is no Date32"]),
        (r#"{"other":1}"#, ["other", "schema"]),
        (r#"{"o":null} {"o":null}"#, ["not one JSON value", "{"]),
        (r#"{"o":{"a":1}"#, ["not one JSON value", "{"]),
        ("", ["not one JSON value", "second"]),
        ("5", ["second", "5"]),
        ("\u{0}", ["second", "column"]),
    ] {
        let error = refused(&nested, right, wrong);
        for part in parts.into_iter().chain(["\"second\"", "--raw"]) {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }
    for (raw, right, wrong) in [
        ("Int8", "127", "128"),
        ("Utf8", "ä", "\u{0}"),
        ("Float32", "1", "1e39"),
        ("Boolean", "true", "True"),
        (
            "UUID",
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
            "000102030405060708090a0b0c0d0e0f",
        ),
        ("FixedSizeBinary(2)", "ab", "abc"),
        ("Decimal128(4, 2)", "12.34", "123.45"),
        ("Time32(s)", "12:00:00", "12:00:00.5"),
        (
            "Timestamp(ns)",
            "2262-04-11T23:47:16.854775807",
            "2262-04-11T23:47:16.854775808",
        ),
        ("Duration(s)", "PT3S", "3"),
        ("Interval(YearMonth)", "P3M", "P3D"),
        ("List(Int32)", "[1]", "[1]]"),
    ] {
        let schema = schema(("k", "Utf8"), &[("v", raw)], ValueEncoding::Raw);
        if raw == "Utf8" {
            let values = [Some(&b"\xff"[..])];
            assert!(schema.decoder().decode(&["k"], &values).is_err());
            continue;
        }
        let error = refused(&schema, right, wrong);
        assert!(
            error.contains("\"second\"") && error.contains("\"v\"") && error.contains(wrong),
            "{error}"
        );
    }
}

#[test]
fn a_key_that_does_not_fit_is_named() {
    let schema = schema(("id", "Int64"), &[("v", "Utf8")], ValueEncoding::Raw);
    let error = schema
        .decoder()
        .decode(&["1", "x1"], &[Some("a"), Some("b")])
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("key \"x1\"") && error.contains("\"id\"") && error.contains("Int64"),
        "{error}"
    );
}

#[test]
fn an_unknown_type_is_bytes_or_text_and_a_note_says_so() {
    let raw = schema(("id", "Tensor(3)"), &[("v", "unknown")], ValueEncoding::Raw);
    let types: Vec<&DataType> = raw.arrow().fields().iter().map(|field| field.data_type()).collect();
    assert_eq!(types, [&DataType::Binary, &DataType::Binary]);
    assert!(
        raw.notes()[0].contains("\"id\"") && raw.notes()[0].contains("Tensor(3)"),
        "{:?}",
        raw.notes()
    );
    assert_eq!(raw.notes().len(), 2);

    let json = objects(&[("a", "Tensor(3)"), ("b", "Int32")]);
    assert_eq!(json.notes().len(), 1);
    let batch = decode(&json, r#"{"a":{"x":[1,"ä\n",{}]},"b":1}"#);
    assert_eq!(batch.column(1).as_string::<i32>().value(0), r#"{"x":[1,"ä\n",{}]}"#);
    assert!(objects(&[("b", "Int32")]).notes().is_empty());
}

#[test]
fn values_of_json_lines_are_texts_and_everything_else_as_it_is_written() {
    let json = schema(("a,b", "json"), &[("v", "json"), ("w", "json")], ValueEncoding::Json);
    assert_eq!(names(&json), ["a", "b", "v", "w"]);
    let values = [
        Some(r#"{"v":"x","w":[1.50, {"a":null}]}"#),
        Some(r#"{"v":null,"w":1e400}"#),
    ];
    let batch = json.decoder().decode(&["1:2:3", "x:"], &values).unwrap();
    let texts = |column: usize| {
        batch
            .column(column)
            .as_string::<i32>()
            .iter()
            .map(|text| text.unwrap_or("NULL").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(0), ["1", "x"]);
    assert_eq!(texts(1), ["2:3", ""]);
    assert_eq!(texts(2), ["x", "NULL"]);
    assert_eq!(texts(3), [r#"[1.50,{"a":null}]"#, "1e400"]);
    let deep = format!("{{\"v\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let batch = json.decoder().decode(&["1:2"], &[Some(deep)]).unwrap();
    assert_eq!(batch.column(2).as_string::<i32>().value(0).len(), 400_000);
}

#[test]
fn columns_have_names_of_their_own() {
    let twice = schema(("id", "Int64"), &[("id", "Int64"), ("x", "Int32")], ValueEncoding::Json);
    assert_eq!(names(&twice), ["id", "value.id", "x"]);
    let batch = twice.decoder().decode(&["7"], &[Some(r#"{"id":7,"x":1}"#)]).unwrap();
    assert_eq!(batch.column(0), batch.column(1));
    let comma = schema(("a,b", "Int32"), &[("v", "Utf8")], ValueEncoding::Raw);
    assert_eq!((names(&comma), comma.key_columns()), (vec!["a,b", "v"], 1));
    let commas = schema(("a,b,c", "Int32,Utf8"), &[("v", "Utf8")], ValueEncoding::Raw);
    assert_eq!((names(&commas), commas.notes().len()), (vec!["key", "v"], 1));
}

#[test]
fn sets_of_ids_are_lists_and_values_of_graphs_are_bytes() {
    let manifest = Schema {
        key: column(("k", "Int64")),
        values: vec![column(("friends", "Utf8"))],
        encoding: ValueEncoding::Raw,
    };
    let ids = TypedSchema::of(&manifest, ValueType::Ids);
    let set = fondaco_ids::encode(&[1, 5, (1 << 63) - 1]).unwrap();
    let batch = ids.decoder().decode(&["1", "2"], &[Some(set), None]).unwrap();
    let list = batch.column(1).as_list::<i32>();
    assert_eq!(
        list.value(0).as_primitive::<UInt64Type>().values(),
        &[1, 5, (1 << 63) - 1]
    );
    assert!(list.is_null(1));
    let error = ids.decoder().decode(&["1"], &[Some("no set")]).unwrap_err().to_string();
    assert!(error.contains("\"friends\""), "{error}");
    let graph = TypedSchema::of(&manifest, ValueType::Graph);
    assert_eq!(graph.arrow().field(1).data_type(), &DataType::Binary);
    assert_eq!(graph.notes().len(), 1);
}
