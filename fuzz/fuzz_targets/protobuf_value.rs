//! A descriptor set, whose length is the first two bytes, and a payload.

#![no_main]

use fondaco_model::ValueType;
use fondaco_schema::{Projection, Schema};
use libfuzzer_sys::fuzz_target;

// Panics of the library for Protobuf are caught: only those that come out of the target end the run.
fuzz_target!(init: std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))), |bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let Some((text, payload)) = rest.split_at_checked(u16::from_le_bytes(*length).into()) else {
        return;
    };
    let Ok(schema) = Schema::parse(ValueType::Protobuf, text, Some("shop.Item")) else {
        return;
    };
    if let Ok(json) = schema.to_json(payload) {
        let _ = schema.of_json(&json);
    }
    let fields = schema.fields();
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).take(3).collect();
    if let Ok(projection) = Projection::new(&schema, None, &names) {
        let _ = (projection.json(payload), projection.encoded(payload));
        for name in names {
            let _ = projection.floats(payload, name);
        }
    }
});
