//! The rules, one test each.

use fondaco_model::{Compatibility, ValueType};
use serde_json::{Value, json};

use crate::*;

fn avro(text: &Value) -> Schema {
    Schema::parse(ValueType::Avro, text.to_string().as_bytes(), None).unwrap()
}

fn record(fields: Value) -> Schema {
    avro(&json!({"type": "record", "name": "User", "fields": fields}))
}

fn refused(text: &str) -> String {
    Schema::parse(ValueType::Avro, text.as_bytes(), None)
        .unwrap_err()
        .to_string()
}

#[test]
fn errors_of_schemas_name_the_place() {
    let text = r#"{"type":"record","name":"a.User","fields":[{"name":"age","type":"number"}]}"#;
    assert_eq!(
        refused(text),
        r#"invalid schema, at a.User.age: type "number" is not defined before it is used"#
    );
    let text = r#"{"type":"record","name":"User","fields":[{"name":"age","type":"int","default":"x"}]}"#;
    assert!(
        refused(text).contains("at User.age: the default does not fit"),
        "{}",
        refused(text)
    );
    for text in [
        "",
        "5",
        "[]",
        r#"["null","null"]"#,
        r#"["null",["int"]]"#,
        r#"{"type":"fixed","name":"f"}"#,
        r#"{"type":"enum","name":"e","symbols":["a","a"]}"#,
    ] {
        refused(text);
    }
}

#[test]
fn schemas_that_are_too_large_or_deep_are_refused() {
    assert!(refused(&" ".repeat(10 << 20)).contains("10485760 bytes"));
    let deep = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(65), "}".repeat(65));
    assert!(refused(&deep).contains("deep"));
    let names: Vec<Value> = (0..10_001).map(|at| json!(format!("s{at}"))).collect();
    assert!(refused(&json!({"type": "enum", "name": "e", "symbols": names}).to_string()).contains("names"));
}

#[test]
fn defaults_that_contain_one_another_are_bounded() {
    let mut inner = json!({"type": "record", "name": "r0", "fields": [{"name": "x", "type": "int", "default": 1}]});
    for level in 1..30 {
        let fields = json!([{"name": "a", "type": inner, "default": {}}, {"name": "b", "type": format!("r{}", level - 1), "default": {}}]);
        inner = json!({"type": "record", "name": format!("r{level}"), "fields": fields});
    }
    assert!(refused(&inner.to_string()).contains("too much work"));
    let own = json!({"type": "record", "name": "r", "fields": [{"name": "next", "type": "r", "default": {}}]});
    assert!(refused(&own.to_string()).contains("does not fit"));
}

#[test]
fn values_come_back_from_json() {
    let schema = record(json!([
        {"name": "name", "type": "string"},
        {"name": "photo", "type": ["null", "bytes"]},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "ratio", "type": "float"},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
    ]));
    let json = json!({"name": "Ada", "photo": "AAH/", "born": "1815-12-10", "seen": "2026-01-31T12:00:00.500Z", "paid": "-12.50", "ratio": 0.1, "tags": {"a": [1, 2], "b": []}});
    let payload = schema.of_json(&json).unwrap();
    schema.validate(&payload).unwrap();
    assert_eq!(schema.to_json(&payload).unwrap(), json);
    let mut wrong = json.clone();
    wrong["tags"]["a"][1] = json!("x");
    assert_eq!(
        schema.of_json(&wrong).unwrap_err().to_string(),
        r#"invalid value, field "tags.a[1]": "x" is no long"#
    );
    assert!(schema.of_json(&json!({"name": "Ada", "other": 1})).is_err());
}

#[test]
fn clashes_are_sentences_with_field_and_rule() {
    let old = record(json!([{"name": "age", "type": "long"}]));
    let new = record(json!([{"name": "age", "type": "int"}, {"name": "city", "type": "string"}]));
    let clashes = check(&new, &[&old], Compatibility::Backward).unwrap_err();
    let texts: Vec<String> = clashes.iter().map(ToString::to_string).collect();
    assert!(texts[0].starts_with(r#"the new schema does not read values of the former one: field "age": "long" was written, "int" is read; a type may only be promoted"#), "{texts:?}");
    assert!(texts[1].ends_with(r#"field "city": "no such field" was written, "string" is read; a field that the writer lacks needs a default"#), "{texts:?}");
    assert_eq!(check(&new, &[&old], Compatibility::Forward), Ok(()));
    assert!(check(&new, &[&old], Compatibility::Full).is_err());
    assert_eq!(check(&new, &[&old], Compatibility::None), Ok(()));
    let changes: Vec<String> = diff(&old, &new).iter().map(ToString::to_string).collect();
    assert_eq!(changes, ["~ age: long -> int", "+ city: string"]);
}

#[test]
fn readers_get_defaults_promotions_aliases_and_their_order() {
    let writer = record(
        json!([{"name": "a", "type": "int"}, {"name": "gone", "type": "string"}, {"name": "b", "type": "string"}]),
    );
    let reader = record(json!([
        {"name": "c", "type": "bytes", "aliases": ["b"]}, {"name": "new", "type": ["null", "int"], "default": 7},
        {"name": "a", "type": ["null", "double"]},
    ]));
    let payload = writer.of_json(&json!({"a": 3, "gone": "x", "b": "hi"})).unwrap();
    let expected = json!({"c": "aGk=", "new": 7, "a": 3.0});
    assert_eq!(
        reader.to_json(&resolve(&writer, &reader, &payload).unwrap()).unwrap(),
        expected
    );

    let projection = Projection::new(&writer, Some(&reader), &["new", "c"]).unwrap();
    assert_eq!(projection.json(&payload).unwrap(), json!({"new": 7, "c": "aGk="}));
    let encoded = projection.encoded(&payload).unwrap();
    assert_eq!(
        projection.schema().to_json(&encoded).unwrap(),
        json!({"new": 7, "c": "aGk="})
    );
    let text = projection.schema().text();
    assert_eq!(
        Schema::parse(ValueType::Avro, text, None)
            .unwrap()
            .to_json(&encoded)
            .unwrap(),
        json!({"new": 7, "c": "aGk="})
    );
    assert!(Projection::new(&writer, None, &["c"]).is_err());
}

#[test]
fn floats_are_read_in_place() {
    let schema = record(
        json!([{"name": "id", "type": "string"}, {"name": "v", "type": {"type": "array", "items": "float"}}, {"name": "w", "type": "bytes"}]),
    );
    let payload = schema
        .of_json(&json!({"id": "x", "v": [1.0, 2.5], "w": "AACAPw=="}))
        .unwrap();
    let projection = Projection::new(&schema, None, &["v", "w", "id"]).unwrap();
    assert_eq!(
        projection.floats(&payload, "v").unwrap(),
        [1f32.to_le_bytes(), 2.5f32.to_le_bytes()].concat()
    );
    assert_eq!(projection.floats(&payload, "w").unwrap(), 1f32.to_le_bytes());
    assert!(projection.floats(&payload, "id").is_err());
}

#[test]
fn hostile_payloads_are_refused_without_work() {
    let nulls = avro(&json!({"type": "array", "items": "null"}));
    let mut payload = vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0];
    assert!(
        nulls
            .validate(&payload)
            .unwrap_err()
            .to_string()
            .contains("without bytes")
    );
    assert!(nulls.to_json(&payload).is_err());
    payload[0] = 0xff;
    assert!(nulls.validate(&payload).is_err());
    let list = record(json!([{"name": "next", "type": ["null", "User"]}]));
    assert!(list.validate(&[2; 1 << 20]).unwrap_err().to_string().contains("deep"));
    assert!(
        avro(&json!("string"))
            .validate(&[0xfe, 0xff, 0xff, 0xff, 0x0f])
            .is_err()
    );
}

#[test]
fn values_that_describe_themselves_are_checked() {
    for (value_type, good, bad) in [
        (ValueType::String, &b"text"[..], &b"\xff"[..]),
        (ValueType::Integer, b"-5", b"5x"),
        (ValueType::Json, b"{\"a\":[1]}", b"{a}"),
        (ValueType::Messagepack, b"\x82\xa1a\x01\xa1b\x92\x02\xc0", b"\x92\x01"),
    ] {
        let json = value_to_json(value_type, good).unwrap().unwrap();
        assert_eq!(value_of_json(value_type, &json).unwrap().unwrap(), good);
        assert_eq!(check_value(value_type, good), Ok(()));
        assert!(check_value(value_type, bad).is_err(), "{value_type}");
    }
    assert!(check_value(ValueType::Messagepack, &[0x91; 1 << 16]).is_err());
    assert!(check_value(ValueType::Messagepack, &[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
    assert!(check_value(ValueType::Messagepack, b"\x01\x01").is_err());
}

#[test]
fn stored_values_name_their_schema() {
    let schemas: Schemas = [
        (1, record(json!([{"name": "a", "type": "int"}]))),
        (200, record(json!([{"name": "b", "type": "int"}]))),
    ]
    .into_iter()
    .collect();
    let mut value = Vec::new();
    put_id(200, &mut value);
    value.push(4);
    assert_eq!(schemas.decode(&value).unwrap(), (200, json!({"b": 2})));
    assert_eq!(schemas.newest().unwrap().0, 200);
    value[0] = 3;
    value.remove(1);
    assert!(
        schemas
            .decode(&value)
            .unwrap_err()
            .to_string()
            .contains("no schema has the id 3")
    );
}
