//! Measures what queries over fields cost for a value of a batch: 10 of 100 fields, a dot product of 128 floats.
//!
//! ```text
//! cargo run --release -p fondaco-schema --example field_speed
//! ```

use std::hint::black_box;
use std::time::Instant;

use fondaco_model::ValueType;
use fondaco_schema::{Evaluator, Projection, Query, Schema, Schemas, put_id, score};
use serde_json::{Map, Value, json};

const VALUES: usize = 1000;
const FIELDS: usize = 100;
const FLOATS: usize = 128;
const ROUNDS: usize = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = |at: usize| format!("field_{at}");
    let mut fields = vec![json!({"name": "v", "type": {"type": "array", "items": "float"}})];
    fields.extend((0..FIELDS).map(|at| json!({"name": name(at), "type": if at % 2 == 0 { "long" } else { "string" }})));
    let text = json!({"type": "record", "name": "R", "fields": fields}).to_string();
    let schema = Schema::parse(ValueType::Avro, text.as_bytes(), None)?;
    let value = |number: usize| -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let mut object = Map::new();
        let floats: Vec<f32> = (0..FLOATS).map(|at| ((number + at) % 17) as f32 - 8.5).collect();
        object.insert("v".into(), json!(floats));
        for at in 0..FIELDS {
            let text = format!("text {at} of {number}");
            object.insert(name(at), if at % 2 == 0 { json!(number * at) } else { json!(text) });
        }
        let mut value = Vec::new();
        put_id(1, &mut value);
        value.extend(schema.of_json(&Value::Object(object))?);
        Ok(value)
    };
    let values = (0..VALUES).map(value).collect::<Result<Vec<_>, _>>()?;
    let vector: Vec<f32> = (0..FLOATS).map(|at| at as f32 / 7.0 - 9.0).collect();

    let projection = Projection::new(&schema, None, &["v"])?;
    report("dot product alone", &values, |value| {
        let floats = projection.floats(&value[1..], "v").unwrap_or_default();
        score::dot(black_box(floats), black_box(&vector)).to_bits()
    });
    let places: Vec<&[u8]> = values
        .iter()
        .map(|value| projection.floats(&value[1..], "v").unwrap_or_default())
        .collect();
    let mut at = 0;
    report("dot product of a place that is known", &values, |_| {
        at = (at + 1) % places.len();
        score::dot(black_box(places[at]), black_box(&vector)).to_bits()
    });
    report("cosine alone", &values, |value| {
        let floats = projection.floats(&value[1..], "v").unwrap_or_default();
        score::cosine(floats, &vector, 50.0).unwrap_or_default().to_bits()
    });
    report("all fields as JSON", &values, |value| {
        schema.to_json(&value[1..]).is_ok().into()
    });
    let schemas = Schemas::from_iter([(1, schema.clone())]);
    let floats: Vec<u8> = vector.iter().flat_map(|float| float.to_le_bytes()).collect();
    let ten: Vec<String> = (0..10).map(|at| name(at * 10)).collect();
    let ten = format!("FIELDS 10 {}", ten.join(" "));
    for words in [
        "DOT v VECTOR $",
        "COUNT v",
        "DOT v VECTOR $ WHERE field_98 > 500",
        &ten,
        &format!("{ten} AS JSON"),
        &format!("{ten} AS RAW"),
    ] {
        let split = words
            .split(' ')
            .map(|word| if word == "$" { &floats[..] } else { word.as_bytes() });
        let split: Vec<&[u8]> = split.collect();
        let (query, _) = Query::parse(&split, 0)?.ok_or("no query")?;
        let mut evaluator = Evaluator::new(&query, ValueType::Avro, Some(&schemas))?;
        report(words, &values, |value| evaluator.apply(value).is_ok().into());
    }
    Ok(())
}

/// Prints how long a value takes, the best of all rounds.
fn report(what: &str, values: &[Vec<u8>], mut each: impl FnMut(&[u8]) -> u64) {
    let mut best_ns = f64::INFINITY;
    let mut sum = 0u64;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for value in values {
            sum = sum.wrapping_add(each(black_box(value)));
        }
        best_ns = best_ns.min(began.elapsed().as_nanos() as f64 / values.len() as f64);
    }
    black_box(sum);
    let what: String = what.chars().take(60).collect();
    println!("{best_ns:>10.1} ns  {what}");
}
