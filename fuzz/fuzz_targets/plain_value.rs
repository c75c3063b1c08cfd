//! A value that describes itself, a key, the id of a schema.

#![no_main]

use fondaco_model::{KeyType, ValueType};
use fondaco_schema::{check_value, key_of_json, key_to_json, put_id, read_id, value_of_json, value_to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for value_type in [
        ValueType::String,
        ValueType::Integer,
        ValueType::Json,
        ValueType::Messagepack,
    ] {
        let json = value_to_json(value_type, bytes);
        assert_eq!(check_value(value_type, bytes).is_ok(), json.is_ok());
        if let Ok(Some(json)) = json {
            value_of_json(value_type, &json)
                .expect("its own JSON is a value")
                .expect("the type has a JSON form");
        }
    }
    for key_type in ["string", "integer", "(string,integer,bytes)"] {
        let key_type: KeyType = key_type.parse().unwrap();
        if let Ok(json) = key_to_json(&key_type, bytes) {
            let key = key_of_json(&key_type, &json).expect("a key has a form in JSON");
            assert_eq!(key_to_json(&key_type, &key).unwrap(), json);
        }
    }
    if let Ok((id, payload)) = read_id(bytes) {
        let mut value = Vec::new();
        put_id(id, &mut value);
        assert_eq!([&value, payload].concat(), bytes);
    }
});
