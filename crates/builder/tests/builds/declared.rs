//! Keys and values of declared types: columns become records of a schema, and keys of several parts.

use std::fs;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringArray, TimestampMillisecondArray,
};
use fondaco_builder::{BuildOptions, Declaration, IncrementOptions, Progress, ValueSelection, build_increment};
use fondaco_format::{Manifest, ValueSchema, Version};
use fondaco_model::ValueType;
use fondaco_schema::{Schema, Schemas, key_of_json, read_id};
use fondaco_storage::Location;
use fondaco_typed::TypedSchema;
use serde_json::{Value, json};

use crate::generate::{Place, assert_says, table, write_avro, write_parquet};

const USER: &str = r#"{"type":"record","name":"User","fields":[
    {"name":"name","type":"string"},
    {"name":"age","type":["null","int"],"default":null},
    {"name":"score","type":"double","aliases":["points"]},
    {"name":"born","type":{"type":"int","logicalType":"date"}},
    {"name":"city","type":"string","default":"Venice"}]}"#;

fn avro(text: &str) -> Schema {
    Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap()
}

/// The message of the vectors of `fondaco-schema`.
fn protobuf() -> Schema {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../schema/tests/vectors/protobuf.json");
    let vectors: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let digits = vectors["descriptors"].as_str().unwrap();
    let bytes = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
    Schema::parse(ValueType::Protobuf, &bytes.collect::<Vec<_>>(), Some("shop.Item")).unwrap()
}

fn declared(id: u16, schema: Schema) -> Declaration {
    Declaration {
        schemas: [(id, schema.clone())].into_iter().collect(),
        ..schema.value_type().into()
    }
}

fn all_columns(options: &mut BuildOptions, declared: &Declaration) {
    options.declared = declared.clone();
    options.value = ValueSelection::AllOthers;
}

/// The value of a key, decoded by the schemas of the manifest.
fn decoded(version: &Version, key: &[u8]) -> (u16, Value) {
    let manifest = version.manifest();
    let schemas = Schemas::of_texts(
        manifest.value_type,
        manifest.value_schemas.iter().map(ValueSchema::parts),
    )
    .unwrap();
    let value = version.get(key).unwrap().unwrap();
    schemas.decode(&value).unwrap()
}

fn users() -> RecordBatch {
    table(vec![
        ("k", Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef),
        ("name", Arc::new(StringArray::from(vec!["Ada", "Bob"]))),
        ("age", Arc::new(Int32Array::from(vec![Some(36), None]))),
        ("points", Arc::new(Float64Array::from(vec![0.5, 2.0]))),
        ("born", Arc::new(Date32Array::from(vec![0, 31]))),
    ])
}

/// The same two users in every format.
fn users_in_every_format() -> Vec<Place> {
    let places: Vec<Place> = (0..4).map(|_| Place::new()).collect();
    write_parquet(&places[0].input("a.parquet"), &users(), 10);
    write_avro(&places[1].input("a.avro"), &[users()], None);
    places[2].write(
        "a.jsonl",
        "{\"k\":\"a\",\"name\":\"Ada\",\"age\":36,\"points\":0.5,\"born\":\"1970-01-01\"}\n\
         {\"k\":\"b\",\"name\":\"Bob\",\"points\":2,\"born\":\"1970-02-01\"}\n",
    );
    places[3].write(
        "a.csv",
        "k,name,age,points,born\na,Ada,36,0.5,1970-01-01\nb,Bob,,2,1970-02-01\n",
    );
    places
}

#[test]
fn columns_of_every_format_become_records_of_the_schema() {
    for place in users_in_every_format() {
        let version = place.built(|options| all_columns(options, &declared(300, avro(USER))));
        let ada = json!({"name": "Ada", "age": 36, "score": 0.5, "born": "1970-01-01", "city": "Venice"});
        let bob = json!({"name": "Bob", "age": null, "score": 2.0, "born": "1970-02-01", "city": "Venice"});
        assert_eq!(decoded(&version, b"a"), (300, ada));
        assert_eq!(decoded(&version, b"b"), (300, bob));
        let schemas = &version.manifest().value_schemas;
        assert_eq!((schemas.len(), schemas[0].id, &*schemas[0].text), (1, 300, USER));
    }
}

#[test]
fn a_row_that_does_not_fit_the_schema_is_a_bad_row_that_names_the_column() {
    let place = Place::new();
    place.write(
        "a.csv",
        "k,name,age,points,born\na,Ada,old,0.5,1970-01-01\nb,Bob,7,2,1970-02-01\n",
    );
    let message = place.refused(|options| all_columns(options, &declared(1, avro(USER))));
    assert_says(
        &message,
        &["row 1", "field \"age\"", "\"old\" is no null or int", "--max-bad-rows"],
    );
    let version = place.built(|options| {
        all_columns(options, &declared(1, avro(USER)));
        options.bad_rows_max = 1;
    });
    assert_eq!(version.records(), 1);
    let place = Place::new();
    place.write(
        "a.jsonl",
        "{\"k\":\"a\",\"name\":\"Ada\",\"height\":1}\n{\"k\":\"b\",\"points\":1,\"born\":1}\n",
    );
    let message = place.refused(|options| {
        all_columns(options, &declared(1, avro(USER)));
        options.bad_rows_max = 1;
    });
    assert_says(
        &message,
        &[
            "row 1",
            "row 2",
            "field \"score\"",
            "field \"name\": the field is missing",
        ],
    );
}

#[test]
fn a_key_column_that_the_schema_has_is_in_the_record_too() {
    let place = Place::new();
    place.write("a.jsonl", "{\"k\":5,\"v\":\"x\"}\n");
    let schema = r#"{"type":"record","name":"R","fields":[{"name":"k","type":"long"},{"name":"v","type":"string"}]}"#;
    let version = place.built(|options| {
        all_columns(options, &declared(1, avro(schema)));
        options.declared.key_type = "integer".parse().unwrap();
    });
    assert_eq!(decoded(&version, b"5"), (1, json!({"k": 5, "v": "x"})));
}

#[test]
fn protobuf_messages_are_made_of_columns_too() {
    let place = Place::new();
    place.write("a.csv", "k,id,name,sold,tags\na,5,x,true,\"[\"\"t\"\"]\"\n");
    place.write(
        "b.jsonl",
        "{\"k\":\"b\",\"id\":5,\"name\":\"x\",\"sold\":true,\"tags\":[\"t\"]}\n",
    );
    let mut tags = ListBuilder::new(StringBuilder::new());
    tags.append_value([Some("t")]);
    let batch = table(vec![
        ("k", Arc::new(StringArray::from(vec!["c"])) as ArrayRef),
        ("id", Arc::new(Int64Array::from(vec![5]))),
        ("name", Arc::new(StringArray::from(vec!["x"]))),
        ("sold", Arc::new(BooleanArray::from(vec![true]))),
        ("tags", Arc::new(tags.finish())),
    ]);
    write_parquet(&place.input("c.parquet"), &batch, 10);
    place.write("d.csv", "k,id,price\nd,1,dear\n");
    let version = place.built(|options| {
        all_columns(options, &declared(1, protobuf()));
        options.reading.allow_drift = true;
        options.bad_rows_max = 1;
    });
    assert_eq!(version.records(), 3);
    for key in ["a", "b", "c"] {
        let (id, value) = decoded(&version, key.as_bytes());
        assert_eq!((id, &value["id"], &value["name"]), (1, &json!(5), &json!("x")));
        assert_eq!(
            (&value["sold"], &value["tags"], &value["price"]),
            (&json!(true), &json!(["t"]), &json!(0.0))
        );
    }
    let schema = &version.manifest().value_schemas[0];
    assert_eq!(schema.message.as_deref(), Some("shop.Item"));
}

#[test]
fn exact_decimals_lists_and_times_keep_their_values() {
    let schema = r#"{"type":"record","name":"R","fields":[
        {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":38,"scale":2}},
        {"name":"about","type":"double"},
        {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
        {"name":"nan","type":"double"},
        {"name":"tags","type":{"type":"array","items":"string"}}]}"#;
    let decimals = |value| {
        Decimal128Array::from(vec![value])
            .with_precision_and_scale(38, 2)
            .unwrap()
    };
    let mut tags = ListBuilder::new(StringBuilder::new());
    tags.append_value([Some("x"), Some("y")]);
    let batch = table(vec![
        ("k", Arc::new(StringArray::from(vec!["a"])) as ArrayRef),
        ("price", Arc::new(decimals(12_345_678_901_234_567_890_123_456_789))),
        ("about", Arc::new(decimals(1250))),
        (
            "at",
            Arc::new(TimestampMillisecondArray::from(vec![500]).with_timezone("Europe/Berlin")),
        ),
        ("nan", Arc::new(Float64Array::from(vec![f64::NAN]))),
        ("tags", Arc::new(tags.finish())),
    ]);
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &batch, 10);
    let version = place.built(|options| all_columns(options, &declared(1, avro(schema))));
    let expected = json!({"price": "123456789012345678901234567.89", "about": 12.5, "at": "1970-01-01T00:00:00.500Z",
        "nan": "NaN", "tags": ["x", "y"]});
    assert_eq!(decoded(&version, b"a").1, expected);
}

#[test]
fn a_column_of_bytes_is_a_payload_that_is_checked() {
    let schema = avro(USER);
    let user = json!({"name": "Ada", "age": 1, "score": 1.0, "born": "1970-01-01"});
    let payload = schema.of_json(&user).unwrap();
    let batch = table(vec![
        ("k", Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef),
        ("v", Arc::new(BinaryArray::from(vec![&payload[..], &payload[..3]]))),
    ]);
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &batch, 10);
    let change = |options: &mut BuildOptions| options.declared = declared(1, schema.clone());
    assert_says(&place.refused(change), &["row 2", "invalid value"]);
    let version = place.built(|options| {
        change(options);
        options.bad_rows_max = 1;
    });
    let stored = version.get(b"a").unwrap().unwrap().to_vec();
    assert_eq!(read_id(&stored).unwrap(), (1, &payload[..]));
}

#[test]
fn values_that_describe_themselves_are_checked() {
    for (value_type, good, bad) in [
        ("string", "any text", None),
        ("integer", "-5", Some("05")),
        ("json", "[1]", Some("[1")),
        ("messagepack", "[1]", None),
    ] {
        let place = Place::new();
        place.write("a.csv", format!("k,v\na,{good}\nb,{}\n", bad.unwrap_or(good)));
        let change = |options: &mut BuildOptions| {
            options.declared = value_type.parse::<ValueType>().unwrap().into();
            options.bad_rows_max = u64::from(bad.is_some());
        };
        let version = place.built(change);
        let stored = version.get(b"a").unwrap().unwrap().to_vec();
        let expected = match value_type {
            // CSV has only text.
            "messagepack" => b"\xa3[1]".to_vec(),
            _ => good.as_bytes().to_vec(),
        };
        assert_eq!(stored, expected, "{value_type}");
        assert_eq!(version.manifest().value_type.name(), value_type);
        assert_eq!(version.records(), if bad.is_some() { 1 } else { 2 });
    }
    let place = Place::new();
    place.write("a.jsonl", "{\"k\":\"a\",\"v\":{\"x\":[1,\"y\"]}}\n");
    let version = place.built(|options| options.declared = ValueType::Messagepack.into());
    assert_eq!(&*version.get(b"a").unwrap().unwrap(), b"\x81\xa1x\x92\x01\xa1y");
    let message = place.refused(|options| {
        fs::remove_dir_all(options.output.local_path().unwrap()).unwrap();
        options.declared = ValueType::Integer.into();
        options.value = ValueSelection::AllOthers;
    });
    assert_says(&message, &["type of values integer", "--value COLUMN"]);
}

#[test]
fn several_columns_are_the_parts_of_a_tuple() {
    let batch = table(vec![
        ("city", Arc::new(StringArray::from(vec!["Rome:", ""])) as ArrayRef),
        ("year", Arc::new(Int64Array::from(vec![-5, 2026]))),
        ("raw", Arc::new(BinaryArray::from(vec![&b"\0\xff"[..], b""]))),
        ("v", Arc::new(StringArray::from(vec!["x", "y"]))),
    ]);
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &batch, 10);
    let change = |options: &mut BuildOptions, key: &[&str]| {
        options.declared.key_type = "(string,integer,bytes)".parse().unwrap();
        options.key = key.iter().map(|&name| name.to_owned()).collect();
    };
    assert_says(
        &place.refused(|options| change(options, &["city"])),
        &["(string,integer,bytes)", "each part"],
    );
    let message = place.refused(|options| change(options, &["year", "city", "raw"]));
    assert_says(&message, &["row 1", "\"city\", of the key: it is no integer"]);
    let version = place.built(|options| change(options, &["city", "year", "raw"]));
    let key = |json: Value| key_of_json(&version.manifest().key_type, &json).unwrap();
    for (json, value) in [(json!(["Rome:", -5, "AP8="]), b"x"), (json!(["", 2026, ""]), b"y")] {
        assert_eq!(&*version.get(&key(json)).unwrap().unwrap(), value);
    }
}

#[test]
fn a_key_of_one_part_is_checked() {
    let place = Place::new();
    place.write("a.csv", "k,v\n7,x\n07,y\n");
    let message = place.refused(|options| options.declared.key_type = "integer".parse().unwrap());
    assert_says(&message, &["row 2", "\"k\", of the key: it is no integer of 64 bits"]);
}

#[test]
fn a_difference_keeps_the_schemas_of_its_base_and_deletes_by_the_parts_of_keys() {
    let place = Place::new();
    place.write("a.csv", "k,n,age\na,1,30\nb,2,40\n");
    let old = avro(r#"{"type":"record","name":"R","fields":[{"name":"age","type":"int"}]}"#);
    let new = avro(
        r#"{"type":"record","name":"R","fields":[{"name":"age","type":"int"},{"name":"city","type":"string","default":""}]}"#,
    );
    let of_key = |options: &mut BuildOptions| {
        options.key = ["k", "n"].map(str::to_owned).to_vec();
        options.declared.key_type = "(string,integer)".parse().unwrap();
    };
    place.built(|options| {
        all_columns(options, &declared(1, old.clone()));
        of_key(options);
    });
    let base = place.output();
    let next = Place::new();
    next.write("a.csv", "k,n,age,city\nc,3,50,Rome\n");
    let deleted = place.write("../deleted.csv", "k,n\na,1\n");
    let mut build = next.options();
    all_columns(&mut build, &Declaration::default());
    build.key = ["k", "n"].map(str::to_owned).to_vec();
    build.declared.schemas = [(1, old), (2, new)].into_iter().collect::<Schemas>();
    let options = IncrementOptions {
        build,
        base,
        deletes: vec![deleted.to_str().unwrap().to_owned()],
        has_final_values: false,
    };
    let report = build_increment(&options, &Progress::new()).unwrap();
    assert_eq!((report.deleted, report.build.records), (1, 2));
    let version = Version::open(&next.output()).unwrap();
    let key = |json: Value| key_of_json(&version.manifest().key_type, &json).unwrap();
    assert_eq!(decoded(&version, &key(json!(["b", 2]))), (1, json!({"age": 40})));
    assert_eq!(
        decoded(&version, &key(json!(["c", 3]))),
        (2, json!({"age": 50, "city": "Rome"}))
    );
    let ids: Vec<u16> = version
        .manifest()
        .value_schemas
        .iter()
        .map(|schema| schema.id)
        .collect();
    assert_eq!(ids, [1, 2]);

    // Another schema under the same id.
    let mut wrong = options.clone();
    wrong.build.output = Location::local(next.output().with_extension("wrong"));
    wrong.build.declared.schemas = [(1, avro("\"long\""))].into_iter().collect();
    let error = build_increment(&wrong, &Progress::new()).unwrap_err().to_string();
    assert_says(&error, &["its schema 1 is another one"]);
}

#[test]
fn stored_values_keep_their_own_schemas() {
    let place = Place::new();
    place.write("a.csv", "k,age\na,30\n");
    let schema = |name: &str| {
        avro(&format!(
            r#"{{"type":"record","name":"{name}","fields":[{{"name":"age","type":"int"}}]}}"#
        ))
    };
    place.built(|options| all_columns(options, &declared(1, schema("A"))));
    let next = Place::new();
    let batch = table(vec![
        ("key", Arc::new(BinaryArray::from(vec![&b"b"[..]])) as ArrayRef),
        ("value", Arc::new(BinaryArray::from(vec![&b"\x03\x0a"[..]]))),
    ]);
    write_parquet(&next.input("a.parquet"), &batch, 10);
    let mut build = next.options();
    build.key = vec!["key".to_owned()];
    build.value = ValueSelection::Column("value".to_owned());
    build.declared.schemas = (1..5).map(|id| (id, schema("A"))).collect();
    let options = IncrementOptions {
        build,
        base: place.output(),
        deletes: vec![],
        has_final_values: true,
    };
    build_increment(&options, &Progress::new()).unwrap();
    let version = Version::open(&next.output()).unwrap();
    assert_eq!(decoded(&version, b"b"), (3, json!({"age": 5})));
    let ids: Vec<u16> = version
        .manifest()
        .value_schemas
        .iter()
        .map(|schema| schema.id)
        .collect();
    assert_eq!(ids, [1, 3]);
}

#[test]
fn a_type_with_schemas_is_refused_without_one() {
    let place = Place::new();
    place.write("a.csv", "k,v\na,x\n");
    let message = place.refused(|options| options.declared = ValueType::Avro.into());
    assert_says(&message, &["avro", "it needs a schema", "--schema FILE --schema-id N"]);
    let message = place.refused(|options| {
        options.declared = declared(1, avro("\"string\""));
        options.declared.schema_id = Some(2);
    });
    assert_says(&message, &["schema id 2", "no schema has it"]);
    let version = place.built(|options| options.declared = declared(1, avro("\"string\"")));
    assert_eq!(decoded(&version, b"a"), (1, json!("x")));
    assert_eq!(Manifest::read(&place.output()).unwrap().value_schemas.len(), 1);
}

#[test]
fn records_are_read_back_as_columns_of_the_newest_schema() {
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &users(), 10);
    let version = place.built(|options| {
        all_columns(options, &declared(1, avro(USER)));
        options.declared.key_type = "(string,string)".parse().unwrap();
        options.key = vec!["k".to_owned(), "name".to_owned()];
    });
    let schema = TypedSchema::of_version(version.manifest());
    assert_eq!(schema.notes(), [""; 0]);
    let records: Vec<(Vec<u8>, Vec<u8>)> = version.scan().map(Result::unwrap).collect();
    let keys: Vec<&[u8]> = records.iter().map(|(key, _)| &key[..]).collect();
    let values: Vec<Option<&[u8]>> = records.iter().map(|(_, value)| Some(&value[..])).collect();
    let batch = schema.decoder().decode(&keys, &values).unwrap();
    let names: Vec<&str> = batch
        .schema_ref()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(names, ["k", "name", "value.name", "age", "score", "born", "city"]);
    let row = keys.iter().position(|key| key.starts_with(b"\x02a")).unwrap();
    let text = |column: usize| arrow_cast::display::array_value_to_string(batch.column(column), row).unwrap();
    let row: Vec<String> = (0..batch.num_columns()).map(text).collect();
    assert_eq!(row, ["a", "Ada", "Ada", "36", "0.5", "1970-01-01", "Venice"]);
    let error = schema
        .decoder()
        .decode(&keys, &[Some(&b"\x07x"[..]), None])
        .unwrap_err();
    assert_says(&error.to_string(), &["no schema has the id 7"]);
}

#[test]
fn values_of_one_column_are_read_back_as_that_column() {
    for (value_type, expected) in [("avro", "5"), ("messagepack", "5"), ("integer", "5")] {
        let place = Place::new();
        place.write("a.jsonl", "{\"k\":7,\"v\":5}\n");
        let version = place.built(|options| {
            options.declared = match value_type {
                "avro" => declared(1, avro("\"long\"")),
                other => other.parse::<ValueType>().unwrap().into(),
            };
            options.declared.key_type = "integer".parse().unwrap();
        });
        let schema = TypedSchema::of_version(version.manifest());
        let value = version.get(b"7").unwrap().unwrap().to_vec();
        let batch = schema.decoder().decode(&["7"], &[Some(value)]).unwrap();
        assert_eq!(
            batch
                .schema_ref()
                .fields()
                .iter()
                .map(|field| field.name().as_str())
                .collect::<Vec<_>>(),
            ["k", "v"]
        );
        let text = |column: usize| arrow_cast::display::array_value_to_string(batch.column(column), 0).unwrap();
        assert_eq!(
            (text(0), text(1)),
            ("7".to_owned(), expected.to_owned()),
            "{value_type}"
        );
    }
}
