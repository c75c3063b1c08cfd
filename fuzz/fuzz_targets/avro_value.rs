//! A payload of an Avro schema that has all types, and one that contains itself.

#![no_main]

use std::sync::LazyLock;

use fondaco_model::ValueType;
use fondaco_schema::{Projection, Resolver, Schema};
use libfuzzer_sys::fuzz_target;

const WRITER: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"a","type":"int"},{"name":"b","type":["null","R","string"]},{"name":"c","type":{"type":"map","values":"double"}},
    {"name":"d","type":{"type":"array","items":"float"}},{"name":"e","type":{"type":"enum","name":"E","symbols":["x","y"]}},
    {"name":"f","type":{"type":"array","items":"null"}},{"name":"g","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
    {"name":"h","type":{"type":"long","logicalType":"timestamp-nanos"}},{"name":"i","type":{"type":"int","logicalType":"date"}},
    {"name":"j","type":{"type":"fixed","name":"F","size":3}},{"name":"k","type":{"type":"long","logicalType":"time-micros"}}]}"#;
const READER: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"z","type":"bytes","aliases":["b2"],"default":"x"},{"name":"d","type":{"type":"array","items":"double"}},
    {"name":"a","type":["null","long"]},{"name":"b","type":["null","R","bytes"]}]}"#;

static SCHEMAS: LazyLock<(Schema, Schema, Resolver, [Projection; 2])> = LazyLock::new(|| {
    let parse = |text: &str| Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap();
    let (writer, reader) = (parse(WRITER), parse(READER));
    let resolver = Resolver::new(&writer, &reader).unwrap();
    let projections = [
        Projection::new(&writer, None, &["h", "d"]).unwrap(),
        Projection::new(&writer, Some(&reader), &["z", "d", "b"]).unwrap(),
    ];
    (writer, reader, resolver, projections)
});

fuzz_target!(|payload: &[u8]| {
    let (writer, reader, resolver, projections) = &*SCHEMAS;
    let valid = writer.validate(payload).is_ok();
    assert_eq!(writer.to_json(payload).is_ok(), valid);
    let resolved = resolver.resolve(payload);
    if let (true, Ok(resolved)) = (valid, &resolved) {
        reader.validate(resolved).expect("a resolved value is valid");
    }
    for projection in projections {
        let json = projection.json(payload);
        let encoded = projection.encoded(payload);
        if valid {
            assert!(json.is_ok());
            projection
                .schema()
                .validate(&encoded.expect("a valid value has its fields"))
                .unwrap();
        }
        let _ = projection.floats(payload, "d");
    }
});
