//! Updates of values with schemas, and of values that describe themselves.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_model::ValueType;
use fondaco_schema::{Content, Schema, Schemas, Update, ValueError, ValueRules, put_id, value_of_json, value_to_json};
use prost::Message as _;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, MessageOptions, OneofDescriptorProto,
};
use serde_json::{Value, json};

const USER: &str = r#"{"type":"record","name":"User","fields":[
    {"name":"name","type":"string"},
    {"name":"age","type":"int","default":18},
    {"name":"views","type":["null","long"],"default":null},
    {"name":"tags","type":{"type":"array","items":"string"},"default":[]},
    {"name":"sizes","type":{"type":"map","values":"int"},"default":{}},
    {"name":"raw","type":["string","bytes"],"default":""}
]}"#;

fn avro(texts: &[&str]) -> Arc<ValueRules> {
    let schema = |text: &&str| Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap();
    let schemas: Schemas = (1..).zip(texts.iter().map(schema)).collect();
    Arc::new(ValueRules::new(ValueType::Avro, Arc::new(schemas)))
}

/// `message Item { int64 id = 1; sint32 delta = 2; repeated string tags = 3; map<string, int32> sizes = 4;
/// oneof owner { string person = 5; int64 shop = 6; } optional int32 rank = 7; }`
fn protobuf() -> Arc<ValueRules> {
    let field = |name: &str, number, kind: Type| FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        r#type: Some(kind.into()),
        label: Some(Label::Optional.into()),
        ..Default::default()
    };
    let repeated = |field| FieldDescriptorProto {
        label: Some(Label::Repeated.into()),
        ..field
    };
    let oneof = |field, at| FieldDescriptorProto {
        oneof_index: Some(at),
        ..field
    };
    let named = |name: &str| OneofDescriptorProto {
        name: Some(name.into()),
        ..Default::default()
    };
    let sizes = FieldDescriptorProto {
        type_name: Some(".shop.Item.SizesEntry".into()),
        ..repeated(field("sizes", 4, Type::Message))
    };
    let rank = FieldDescriptorProto {
        proto3_optional: Some(true),
        ..oneof(field("rank", 7, Type::Int32), 1)
    };
    let entry = DescriptorProto {
        name: Some("SizesEntry".into()),
        field: vec![field("key", 1, Type::String), field("value", 2, Type::Int32)],
        options: Some(MessageOptions {
            map_entry: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    };
    let item = DescriptorProto {
        name: Some("Item".into()),
        field: vec![
            field("id", 1, Type::Int64),
            field("delta", 2, Type::Sint32),
            repeated(field("tags", 3, Type::String)),
            sizes,
            oneof(field("person", 5, Type::String), 0),
            oneof(field("shop", 6, Type::Int64), 0),
            rank,
        ],
        nested_type: vec![entry],
        oneof_decl: vec![named("owner"), named("_rank")],
        ..Default::default()
    };
    let file = FileDescriptorProto {
        name: Some("shop.proto".into()),
        package: Some("shop".into()),
        syntax: Some("proto3".into()),
        message_type: vec![item],
        ..Default::default()
    };
    let set = FileDescriptorSet { file: vec![file] }.encode_to_vec();
    let schema = Schema::parse(ValueType::Protobuf, &set, Some("shop.Item")).unwrap();
    let schemas = Schemas::from_iter([(200, schema)]);
    Arc::new(ValueRules::new(ValueType::Protobuf, Arc::new(schemas)))
}

fn stored(rules: &ValueRules, id: u16, value: &Value) -> Bytes {
    let mut bytes = Vec::new();
    put_id(id, &mut bytes);
    bytes.extend(rules.schemas().get(id).unwrap().of_json(value).unwrap());
    bytes.into()
}

/// The value after updates, and the error of each that does not fit.
fn after(rules: &Arc<ValueRules>, value: Option<Bytes>, updates: &[Value]) -> (Option<Bytes>, Vec<ValueError>) {
    let mut content = Content::of(value, rules);
    let apply = |update: &Value| content.apply(&Update::parse(update.to_string().as_bytes()).unwrap());
    let errors = updates.iter().map(apply).filter_map(Result::err).collect();
    (content.value(), errors)
}

fn shown(rules: &ValueRules, value: Option<Bytes>) -> Option<(u16, Value)> {
    let value = value?;
    rules.check(&value).unwrap();
    Some(rules.schemas().decode(&value).unwrap())
}

fn shown_after(rules: &Arc<ValueRules>, value: Option<Bytes>, updates: &[Value]) -> Value {
    let (value, errors) = after(rules, value, updates);
    assert_eq!(errors, []);
    shown(rules, value).unwrap().1
}

#[test]
fn each_operation_changes_a_field_of_a_record() {
    let rules = avro(&[USER]);
    let user = json!({"name": "Ada", "age": 36, "views": null, "tags": ["a", "b"], "sizes": {"s": 1}, "raw": "x"});
    for (update, field, expected) in [
        (json!({"set": {"name": "Bo"}}), "name", json!("Bo")),
        (json!({"set": {"age": null}}), "age", json!(18)),
        (json!({"set": {"views": null}}), "views", json!(null)),
        (json!({"remove": {"tags": ["a"]}}), "tags", json!(["b"])),
        (json!({"remove": {"sizes": ["s"]}}), "sizes", json!({})),
        (json!({"add": {"tags": ["b", "c"]}}), "tags", json!(["a", "b", "c"])),
        (json!({"add": {"sizes": {"m": 2}}}), "sizes", json!({"s": 1, "m": 2})),
        (json!({"append": {"tags": ["a"]}}), "tags", json!(["a", "b", "a"])),
        (json!({"increment": {"age": -2}}), "age", json!(34)),
        (json!({"increment": {"views": 7}}), "views", json!(7)),
    ] {
        let mut wanted = user.clone();
        wanted[field] = expected;
        let value = Some(stored(&rules, 1, &user));
        assert_eq!(
            shown_after(&rules, value, std::slice::from_ref(&update)),
            wanted,
            "{update}"
        );
    }
}

#[test]
fn an_absent_key_begins_with_the_defaults_of_the_schema() {
    let rules = avro(&[USER]);
    let made = shown_after(
        &rules,
        None,
        &[json!({"set": {"name": "Ada"}, "increment": {"age": 1, "views": 1}})],
    );
    let expected = json!({"name": "Ada", "age": 19, "views": 1, "tags": [], "sizes": {}, "raw": ""});
    assert_eq!(made, expected);
    // A removal creates nothing; a field without a default has to be set.
    assert_eq!(
        after(&rules, None, &[json!({"remove": {"tags": ["a"]}})]),
        (None, vec![])
    );
    let (value, errors) = after(
        &rules,
        None,
        &[json!({"increment": {"age": 1}}), json!({"set": {"age": 1}})],
    );
    assert_eq!((value, errors.len()), (None, 2));
    assert_eq!(
        errors[0].to_string(),
        r#"invalid value, field "name": the field is missing and has no default"#
    );
}

#[test]
fn an_operation_that_does_not_fit_names_field_and_type_and_has_no_effect() {
    let rules = avro(&[USER]);
    let value = stored(&rules, 1, &json!({"name": "Ada"}));
    for (update, field, reason) in [
        (json!({"set": {"age": "old"}}), "age", "\"old\" is no int"),
        (json!({"set": {"age": 1i64 << 40}}), "age", "int of 32 bits"),
        (json!({"increment": {"age": 1i64 << 40}}), "age", "int of 32 bits"),
        (
            json!({"set": {"name": null}}),
            "name",
            "null does not fit the type string",
        ),
        (json!({"set": {"nme": "x"}}), "nme", "no such field"),
        (json!({"increment": {"nme": 1}}), "nme", "no such field"),
        (
            json!({"increment": {"name": 1}}),
            "name",
            "does not fit a text; the field is of type string",
        ),
        (json!({"append": {"tags": [1]}}), "tags[2]", "1 is no string"),
        (json!({"append": {"sizes": ["m"]}}), "sizes", "does not fit an object"),
        (json!({"add": {"sizes": {"m": "x"}}}), "sizes.m", "\"x\" is no int"),
        (json!({"increment": 1}), "", "does not fit the type avro: name a field"),
    ] {
        let with_tags = after(&rules, Some(value.clone()), &[json!({"set": {"tags": ["a", "b"]}})]).0;
        let (kept, errors) = after(&rules, with_tags.clone(), std::slice::from_ref(&update));
        assert_eq!(kept, with_tags, "{update}");
        let [error] = &errors[..] else {
            panic!("{update}: {errors:?}")
        };
        assert_eq!(error.field, field, "{update}: {error}");
        assert!(error.reason.contains(reason), "{update}: {error}");
    }
    // The other operations of the update count.
    let (value, errors) = after(&rules, Some(value), &[json!({"set": {"age": "old", "name": "Bo"}})]);
    assert_eq!(errors.len(), 1);
    assert_eq!(shown(&rules, value).unwrap().1["name"], "Bo");
}

#[test]
fn fields_that_no_update_names_stay_byte_for_byte() {
    let rules = avro(&[USER]);
    let schema = rules.schemas().get(1).unwrap();
    // The branch `bytes`, whose form in JSON is that of the branch before.
    let mut payload = schema.of_json(&json!({"name": "Ada"})).unwrap();
    payload.truncate(payload.len() - 2);
    payload.extend([2, 6, 1, 2, 3]);
    schema.validate(&payload).unwrap();
    let value = Bytes::from([&[1], &payload[..]].concat());
    let (changed, errors) = after(&rules, Some(value), &[json!({"set": {"name": "Bo"}})]);
    assert_eq!(errors, []);
    assert!(changed.unwrap().ends_with(&[2, 6, 1, 2, 3]));
}

#[test]
fn values_of_an_older_schema_get_the_newest_one() {
    let new = USER.replace(
        r#"{"name":"age","type":"int","default":18}"#,
        r#"{"name":"age","type":"long","default":18},{"name":"city","type":"string","default":"Venice"}"#,
    );
    let old = avro(&[USER]);
    let (first, errors) = after(&old, None, &[json!({"set": {"name": "Ada", "age": 36}})]);
    assert_eq!((errors, shown(&old, first.clone()).unwrap().0), (vec![], 1));
    // The schema is upgraded between two updates.
    let both = avro(&[USER, &new]);
    let (second, errors) = after(&both, first.clone(), &[json!({"increment": {"age": 1i64 << 40}})]);
    assert_eq!(errors, []);
    let (id, shown_second) = shown(&both, second).unwrap();
    assert_eq!(
        (id, &shown_second["age"], &shown_second["city"]),
        (2, &json!((1i64 << 40) + 36), &json!("Venice"))
    );
    // An update that does not fit leaves the value as it was written.
    let (kept, errors) = after(&both, first.clone(), &[json!({"set": {"city": 1}})]);
    assert_eq!((kept, errors.len()), (first, 1));
}

#[test]
fn a_value_whose_schema_is_unknown_stays() {
    let rules = avro(&[USER]);
    let value = Bytes::from_static(&[9, 0]);
    let (kept, errors) = after(&rules, Some(value.clone()), &[json!({"set": {"name": "Ada"}})]);
    assert_eq!(kept, Some(value));
    assert!(errors[0].reason.contains("no schema has the id 9"), "{errors:?}");
    let none = Arc::new(ValueRules::new(ValueType::Avro, Arc::default()));
    let (kept, errors) = after(&none, None, &[json!({"set": {"name": "Ada"}})]);
    assert_eq!((kept, errors.len()), (None, 1));
}

#[test]
fn messages_are_changed_by_the_names_of_their_fields() {
    let rules = protobuf();
    let updates = [
        json!({"set": {"id": 7, "person": "Ada"}, "add": {"tags": ["a"], "sizes": {"m": 1, "l": 2, "s": 3}}}),
        json!({"increment": {"id": -1, "delta": 2, "rank": 1}, "append": {"tags": ["b"]}, "remove": {"sizes": ["m"]}}),
    ];
    let (value, errors) = after(&rules, None, &updates);
    assert_eq!(errors, []);
    let (id, message) = shown(&rules, value.clone()).unwrap();
    let expected = json!({
        "id": 6, "delta": 2, "tags": ["a", "b"], "sizes": {"l": 2, "s": 3}, "person": "Ada", "rank": 1
    });
    assert_eq!((id, message), (200, expected));
    // Each node writes the same bytes.
    for _ in 0..8 {
        assert_eq!(after(&rules, None, &updates).0, value);
    }
    // A field of a oneof replaces the other one; null clears a field.
    let changed = shown_after(
        &rules,
        value.clone(),
        &[json!({"set": {"shop": 3, "rank": null, "tags": null}})],
    );
    assert_eq!(
        changed,
        json!({"id": 6, "delta": 2, "tags": [], "sizes": {"l": 2, "s": 3}, "shop": 3})
    );
    for (update, field) in [
        (json!({"set": {"id": "x"}}), "id"),
        (json!({"increment": {"delta": 1i64 << 40}}), "delta"),
        (json!({"append": {"tags": [1]}}), "tags"),
        (json!({"set": {"nme": 1}}), "nme"),
        (json!({"increment": {"person": 1}}), "person"),
    ] {
        let (kept, errors) = after(&rules, value.clone(), std::slice::from_ref(&update));
        assert_eq!((kept, errors.len()), (value.clone(), 1), "{update}");
        assert_eq!(errors[0].field, field, "{update}");
    }
}

#[test]
fn unknown_fields_of_messages_stay() {
    let rules = protobuf();
    // Field 15, which a newer writer knows.
    let value = Bytes::from_static(&[0xc8, 1, 8, 7, 0x78, 5]);
    rules.check(&value).unwrap();
    let (changed, errors) = after(&rules, Some(value), &[json!({"increment": {"id": 1}})]);
    assert_eq!(
        (changed.as_deref(), errors),
        (Some(&[0xc8, 1, 8, 8, 0x78, 5][..]), vec![])
    );
}

#[test]
fn messagepack_values_keep_what_no_update_names() {
    let rules = Arc::new(ValueRules::new(ValueType::Messagepack, Arc::default()));
    let mut bytes = Vec::new();
    let map = rmpv::Value::Map(vec![
        ("raw".into(), rmpv::Value::Binary(vec![1, 2])),
        ("n".into(), 1.into()),
    ]);
    rmpv::encode::write_value(&mut bytes, &map).unwrap();
    let updates = [
        json!({"increment": {"n": 2}, "append": {"log": ["x"]}}),
        json!({"set": {"gone": null}}),
    ];
    let (value, errors) = after(&rules, Some(bytes.into()), &updates);
    assert_eq!(errors, []);
    let mut expected = Vec::new();
    let map = rmpv::Value::Map(vec![
        ("raw".into(), rmpv::Value::Binary(vec![1, 2])),
        ("n".into(), 3.into()),
        ("log".into(), rmpv::Value::Array(vec!["x".into()])),
    ]);
    rmpv::encode::write_value(&mut expected, &map).unwrap();
    assert_eq!(value.as_deref(), Some(&expected[..]));
    let list = value_of_json(ValueType::Messagepack, &json!([1])).unwrap().unwrap();
    let (kept, errors) = after(&rules, Some(list.clone().into()), &[json!({"set": {"a": 1}})]);
    assert_eq!((kept, errors.len()), (Some(list.into()), 1));
    let made = after(&rules, None, &[json!({"set": {"a": 1}})]).0.unwrap();
    assert_eq!(value_to_json(ValueType::Messagepack, &made), Ok(Some(json!({"a": 1}))));
}

#[test]
fn values_without_fields_take_no_operations_on_fields() {
    for value_type in [ValueType::String, ValueType::Integer, ValueType::Ids] {
        let rules = Arc::new(ValueRules::new(value_type, Arc::default()));
        let (_, errors) = after(&rules, Some("7".into()), &[json!({"set": {"a": 1}})]);
        assert!(errors[0].reason.contains("have no fields"), "{errors:?}");
    }
    let rules = Arc::new(ValueRules::new(ValueType::Integer, Arc::default()));
    assert_eq!(
        after(&rules, Some("7".into()), &[json!({"increment": 2})]),
        (Some("9".into()), vec![])
    );
}
