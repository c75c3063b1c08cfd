//! The text of a schema.

#![no_main]

use fondaco_model::{Compatibility, ValueType};
use fondaco_schema::{Schema, check, diff};
use libfuzzer_sys::fuzz_target;

// Panics of the library for Protobuf are caught: only those that come out of the target end the run.
fuzz_target!(init: std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))), |text: &[u8]| {
    if let Ok(schema) = Schema::parse(ValueType::Avro, text, None) {
        let canonical =
            Schema::parse(ValueType::Avro, schema.canonical(), None).expect("the canonical form is a schema");
        assert_eq!(canonical.canonical(), schema.canonical());
        assert!(diff(&schema, &canonical).is_empty());
        let _ = check(&canonical, &[&schema], Compatibility::Full);
    }
    let _ = Schema::parse(ValueType::Protobuf, text, Some("a.B"));
});
