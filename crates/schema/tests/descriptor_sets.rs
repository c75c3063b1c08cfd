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
