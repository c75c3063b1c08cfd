//! The events that are logged, and the values of versions.

use bytes::Bytes;
use fastrand::Rng;
use fondaco_model::VersionNumber;
use fondaco_stream::{Change, Event, Poison};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::scenario::Scenario;

/// The prefix of the keys that have values and deletions only.
pub(super) const WHOLE: &[u8] = b"w";

/// The keys that have events.
pub(super) fn keys(scenario: &Scenario) -> Vec<Bytes> {
    let name = |number: usize| {
        let is_whole = scenario.updates == 0 || (scenario.updates < 100 && number.is_multiple_of(3));
        Bytes::from(format!("{}{number}", if is_whole { "w" } else { "m" }))
    };
    (0..scenario.keys).map(name).collect()
}

/// The value that a version has for a key.
pub(super) fn base(seed: u64, version: VersionNumber, key: &[u8]) -> Option<Bytes> {
    let version = version.get();
    match xxh3_64_with_seed(key, seed ^ version) % 5 {
        0 => None,
        1 => Some(format!("b{version}").into()),
        2 => Some(version.to_string().into()),
        3 => Some(format!(r#"{{"n":{version}}}"#).into()),
        _ => Some(format!(r#"{{"list":[{version}],"n":"text"}}"#).into()),
    }
}

/// An event, or a poison record. Each value has a number of its own.
pub(super) fn event(
    rng: &mut Rng,
    scenario: &Scenario,
    keys: &[Bytes],
    logged_ms: u64,
    number: u64,
) -> Result<Event, Poison> {
    if rng.u8(..40) == 0 {
        return Err(Poison("another format".to_owned()));
    }
    let key = keys[rng.usize(..keys.len())].clone();
    let time_ms = time_ms(rng, scenario, logged_ms);
    let is_update = !key.starts_with(WHOLE) && rng.u8(..100) < scenario.updates;
    let change = match is_update {
        true => Change::Update(update(rng).into()),
        false if rng.u8(..4) == 0 => Change::Delete,
        false if key.starts_with(WHOLE) => Change::Put(format!("v{number}").into()),
        false => Change::Put(value(rng).into()),
    };
    let id = (rng.u8(..3) == 0).then(|| Bytes::from(format!("id{}", number - number % 2)));
    Ok(Event {
        key,
        change,
        time_ms,
        id,
    })
}

/// When an event happened: sometimes too late to count, ahead of its record, or together with others.
fn time_ms(rng: &mut Rng, scenario: &Scenario, logged_ms: u64) -> Option<u64> {
    let grace_ms = scenario.grace_ms;
    let time_ms = match rng.u8(..24) {
        0..10 => return None,
        10..16 => logged_ms - rng.u64(..1_000),
        16..19 => logged_ms - logged_ms % 500,
        19 => logged_ms - grace_ms,
        20 => logged_ms - rng.u64(..grace_ms * 5 / 4),
        21 => logged_ms - grace_ms - rng.u64(1..100),
        22 => logged_ms + rng.u64(..grace_ms),
        _ => logged_ms + rng.u64(..2 * 24 * 60 * 60 * 1000),
    };
    Some(time_ms)
}

fn value(rng: &mut Rng) -> String {
    let number = rng.i64(-9..10);
    match rng.u8(..20) {
        // Sums of these may be too large.
        0 => (i64::MAX - number.abs()).to_string(),
        1 => format!(r#"{{"n":{}}}"#, i64::MIN + number.abs()),
        2..5 => number.to_string(),
        5..8 => format!(r#"{{"n":{number}}}"#),
        8..12 => format!(r#"{{"list":[{number}],"map":{{"a":{number}}}}}"#),
        12..16 => "{}".to_owned(),
        _ => format!("text {number}"),
    }
}

fn update(rng: &mut Rng) -> String {
    let number = rng.i64(-9..10);
    let field = ["list", "map", "n", "other"][rng.usize(..4)];
    let other = ["a", "b"][rng.usize(..2)];
    match rng.u8(..12) {
        0..3 => format!(r#"{{"increment":{number}}}"#),
        3..6 => format!(r#"{{"increment":{{"{field}":{number}}}}}"#),
        6 => format!(r#"{{"set":{{"{field}":{number},"{other}":null}}}}"#),
        7 => format!(r#"{{"add":{{"{field}":[{number},1]}},"increment":{{"n":1}}}}"#),
        8 => format!(r#"{{"add":{{"{field}":{{"{other}":{number}}}}}}}"#),
        9 => format!(r#"{{"append":{{"list":[{number}]}},"remove":{{"map":["{other}"]}}}}"#),
        10 => format!(r#"{{"remove":{{"{field}":[1,2,"a"]}}}}"#),
        _ => r#"{"set":{"n":0,"list":[]}}"#.to_owned(),
    }
}
