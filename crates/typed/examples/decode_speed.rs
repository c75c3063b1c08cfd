//! Measures how fast records are decoded: JSON objects of ten columns, and one column as the whole value.
//!
//! `cargo run --release -p fondaco-typed --example decode_speed`

use std::time::Instant;

use fondaco_format::{Column, Schema, ValueEncoding};
use fondaco_model::ValueType;
use fondaco_typed::TypedSchema;

const ROWS: usize = 8192;
const ROUNDS: usize = 50;

fn column(name: &str, r#type: &str) -> Column {
    Column {
        name: name.to_owned(),
        r#type: r#type.to_owned(),
    }
}

/// The rows a second of the median round.
fn measure(name: &str, schema: &Schema, values: &[Option<String>]) {
    let keys: Vec<String> = (0..values.len()).map(|row| row.to_string()).collect();
    let bytes: usize = values.iter().flatten().map(String::len).sum();
    let decoder = TypedSchema::of(schema, ValueType::Bytes).decoder();
    let mut seconds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let batch = decoder.decode(&keys, values).expect("the values fit");
            assert_eq!(batch.num_rows(), values.len());
            began.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let median = seconds[ROUNDS / 2];
    println!(
        "{name}: {:.0} rows/s, {:.0} MB/s, {} bytes a value",
        values.len() as f64 / median,
        bytes as f64 / median / 1e6,
        bytes / values.len()
    );
}

fn main() {
    let mut random = fastrand::Rng::with_seed(7);
    let types = [
        ("a", "Int32"),
        ("b", "Int64"),
        ("c", "Float64"),
        ("d", "Float32"),
        ("e", "Utf8"),
        ("f", "Boolean"),
        ("g", "Date32"),
        ("h", "Timestamp(µs, \"UTC\")"),
        ("i", "Decimal128(18, 2)"),
        ("j", "List(Int32)"),
    ];
    let schema = |values, encoding| Schema {
        key: column("key", "Int64"),
        values,
        encoding,
    };
    let objects: Vec<Option<String>> = (0..ROWS)
        .map(|_| {
            let (int, long, double) = (random.i32(..), random.i64(..), random.f64());
            let (float, flag) = (random.f32(), random.bool());
            let (month, day, micros) = (random.u8(1..=12), random.u8(1..=28), random.u32(..1_000_000));
            Some(format!(
                r#"{{"a":{int},"b":{long},"c":{double},"d":{float},"e":"a text of some words","f":{flag},"g":"2026-{month:02}-{day:02}","h":"2026-{month:02}-{day:02}T12:00:00.{micros:06}Z","i":{int}.50,"j":[1,2,{int}]}}"#
            ))
        })
        .collect();
    let columns = types.map(|(name, r#type)| column(name, r#type)).to_vec();
    measure(
        "objects of ten columns",
        &schema(columns, ValueEncoding::Json),
        &objects,
    );
    for (name, r#type) in types {
        let one: Vec<Option<String>> = (0..ROWS)
            .map(|_| {
                let (int, day) = (random.i32(..), random.u8(1..=28));
                Some(match name {
                    "c" | "d" => random.f64().to_string(),
                    "f" => random.bool().to_string(),
                    "g" => format!("2026-01-{day:02}"),
                    "h" => format!("2026-01-{day:02}T12:00:00Z"),
                    "i" => format!("{int}.50"),
                    "j" => format!("[1,2,{int}]"),
                    _ => int.to_string(),
                })
            })
            .collect();
        let schema = schema(vec![column(name, r#type)], ValueEncoding::Raw);
        measure(r#type, &schema, &one);
    }
}
