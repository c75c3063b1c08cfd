//! A value as Confluent's serializers write it, and the file of Protobuf that a registry gives for it.

#![no_main]

use fondaco_schema::{Schema, read_message_indexes, read_registry_id};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((number, payload)) = read_registry_id(bytes) {
        assert_eq!([&[0][..], &number.to_be_bytes(), payload].concat(), bytes);
    }
    let Ok((indexes, payload)) = read_message_indexes(bytes) else {
        return;
    };
    assert!(bytes.ends_with(payload) && (1..=64).contains(&indexes.len()));
    if let Ok(schema) = Schema::of_protobuf_file(payload, &indexes) {
        let again = Schema::parse(schema.value_type(), schema.text(), schema.message());
        assert_eq!(again.expect("its own text is a schema").canonical(), schema.canonical());
    }
});
