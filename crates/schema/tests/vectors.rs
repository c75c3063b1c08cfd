//! The libraries of Apache (Avro) and Google (Protobuf) and this crate agree on bytes and on resolution: the scripts beside the vectors write them.

use fondaco_model::ValueType;
use fondaco_schema::{Projection, Resolver, Schema};
use serde_json::Value;

/// Equal, with 7 and 7.0 the same: Python's JSON does not tell them apart.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64() && (a.is_f64() || b.is_f64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

#[test]
fn avro_is_as_the_reference_implementation_has_it() {
    let vectors: Vec<Value> = serde_json::from_str(include_str!("vectors/avro.json")).unwrap();
    assert!(vectors.len() > 50);
    for vector in &vectors {
        let schema =
            |member: &str| Schema::parse(ValueType::Avro, vector[member].to_string().as_bytes(), None).unwrap();
        let (writer, reader) = (schema("writer"), schema("reader"));
        let payload = writer
            .of_json(&vector["json"])
            .unwrap_or_else(|error| panic!("{vector}: {error}"));
        let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(vector["bytes"], hex, "{vector}");
        writer.validate(&payload).unwrap();
        assert!(same(&writer.to_json(&payload).unwrap(), &vector["json"]), "{vector}");
        match Resolver::new(&writer, &reader).unwrap().resolve(&payload) {
            Ok(resolved) => {
                let json = reader.to_json(&resolved).unwrap();
                assert!(
                    vector.get("error").is_none() && same(&json, &vector["resolved"]),
                    "{vector}: {json}"
                );
            }
            Err(error) => assert!(vector.get("error").is_some(), "{vector}: {error}"),
        }
    }
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn protobuf_is_as_googles_library_has_it() {
    let file: Value = serde_json::from_str(include_str!("vectors/protobuf.json")).unwrap();
    let schema = Schema::parse(ValueType::Protobuf, &bytes(&file["descriptors"]), Some("shop.Item")).unwrap();
    for vector in file["vectors"].as_array().unwrap() {
        let payload = bytes(&vector["bytes"]);
        if vector.get("error").is_some() {
            assert!(schema.validate(&payload).is_err(), "{vector}");
            continue;
        }
        schema.validate(&payload).unwrap();
        let json = schema.to_json(&payload).unwrap();
        assert!(same(&json, &vector["json"]), "{vector}: {json}");
        assert_eq!(schema.of_json(&vector["json"]).unwrap(), payload, "{vector}");
        let projection = Projection::new(&schema, None, &["tags", "vector"]).unwrap();
        let some = projection.json(&payload).unwrap();
        assert!(
            same(&some["tags"], &vector["json"]["tags"]) && some.as_object().unwrap().len() == 2,
            "{vector}: {some}"
        );
        let floats: Vec<u8> = json["vector"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|float| (float.as_f64().unwrap() as f32).to_le_bytes())
            .collect();
        assert_eq!(projection.floats(&payload, "vector").unwrap(), floats);
    }
}
