//! Descriptor sets that no compiler makes, and a client may send.

use fondaco_model::ValueType;
use fondaco_schema::Schema;

#[test]
fn descriptor_sets_of_an_unknown_syntax_are_refused() {
    // A file whose syntax is empty; one of edition 2023.
    for set in [&b"\x0a\x02\x62\x00"[..], b"\x0a\x0a\x62\x08editions"] {
        let error = Schema::parse(ValueType::Protobuf, set, Some("a.B"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("syntax"), "{error}");
    }
}

#[test]
fn descriptor_sets_that_contradict_themselves_are_refused() {
    for (set, reason) in [
        // A file without a name that imports itself, for its importers, too.
        (&b"\x0a\x04\x50\x00\x1a\x00"[..], "imports \"\""),
        // An import for importers that it does not have.
        (b"\x0a\x02\x50\x00", "protoc"),
        (b"\x0a\x03\x0a\x01a\x0a\x03\x0a\x01a", "two files"),
    ] {
        let error = Schema::parse(ValueType::Protobuf, set, Some("a.B"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_message_is_found_by_the_full_name_that_the_schema_has_alone() {
    // A file of a registry whose one message has a name that no compiler accepts.
    let file = b"\x22\x04\x0a\x02.\x02\x12\x00\x42\x00";
    let found =
        Schema::of_protobuf_file(file, &[0]).map(|schema| (schema.to_text(), schema.message().map(str::to_owned)));
    if let Ok((text, message)) = found {
        Schema::of_text(ValueType::Protobuf, &text, message.as_deref()).unwrap();
    }
    // The same set, asked for by the name in which the message is found.
    let set = [&[0x0a, 0x0a][..], file].concat();
    for name in [".\u{2}", "\u{2}", "..\u{2}"] {
        if let Ok(schema) = Schema::parse(ValueType::Protobuf, &set, Some(name)) {
            assert_eq!(schema.message(), Some(name));
        }
    }
}
