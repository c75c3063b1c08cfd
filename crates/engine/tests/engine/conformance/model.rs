//! Random operations, compared with a map.

use std::collections::BTreeMap;

use fondaco_engine::{Extent, Hot, WriteBatch};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::engines::{UnderTest, scanned};

/// How many bytes of values are looked at.
const BEGINNING_BYTES: usize = 9;

#[derive(Clone, Debug)]
enum Operation {
    Write(Vec<(u8, Option<Vec<u8>>)>),
    Get(u8),
    /// This many keys from one on.
    LookAt(u8, u8),
    Scan(u8, Option<u8>),
    OpenAgain,
}

fn operation() -> impl Strategy<Value = Operation> {
    let value = prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..1000));
    prop_oneof![
        6 => prop::collection::vec((any::<u8>(), value), 1..20).prop_map(Operation::Write),
        6 => any::<u8>().prop_map(Operation::Get),
        2 => (any::<u8>(), 1..80_u8).prop_map(|(first, wanted)| Operation::LookAt(first, wanted)),
        2 => (any::<u8>(), any::<Option<u8>>()).prop_map(|(from, to)| Operation::Scan(from, to)),
        1 => Just(Operation::OpenAgain),
    ]
}

/// Keys that are prefixes of each other.
fn key(number: u8) -> Vec<u8> {
    vec![number / 8; usize::from(number % 8) + 1]
}

pub fn it_behaves_like_a_map(under_test: &dyn UnderTest) {
    // One engine and one table for each case: starting a database for each of many cases would take minutes.
    let config = Config {
        cases: 8,
        max_shrink_iters: 64,
        failure_persistence: None,
        ..Config::default()
    };
    let case = std::cell::Cell::new(0);
    let operations = prop::collection::vec(operation(), 1..under_test.operations_max());
    let outcome = TestRunner::new(config).run(&operations, |operations| {
        case.set(case.get() + 1);
        let name = format!("case-{}", case.get());
        let mut engine = under_test.open();
        let mut table = engine.open_table(&name).unwrap();
        table.keep_beginnings(BEGINNING_BYTES);
        let mut model = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Write(changes) => {
                    let mut batch = WriteBatch::new();
                    for (number, value) in changes {
                        match value {
                            Some(value) => {
                                batch.put(&*table, key(number).into(), value.clone().into());
                                model.insert(key(number), value);
                            }
                            None => {
                                batch.delete(&*table, key(number).into());
                                model.remove(&key(number));
                            }
                        }
                    }
                    engine.write(batch).unwrap();
                }
                Operation::Get(number) => {
                    let expected = model.get(&key(number)).map(Vec::as_slice);
                    match table.get_hot(&key(number)).unwrap() {
                        Hot::Found(value) => prop_assert_eq!(Some(&value[..]), expected),
                        Hot::Absent => prop_assert_eq!(None, expected),
                        Hot::Cold => {}
                    }
                    let found = table.get(&key(number)).unwrap();
                    prop_assert_eq!(found.as_deref(), expected);
                }
                Operation::LookAt(first, wanted) => {
                    let keys: Vec<Vec<u8>> = (0..40).map(|further| key(first.wrapping_add(further))).collect();
                    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                    let mut seen = Vec::new();
                    let extent = [Extent::Beginning, Extent::Whole][usize::from(wanted % 2)];
                    let looked = table.look_at_hot(&keys, extent, &mut |hot, _| {
                        seen.push(match hot {
                            Hot::Found(value) => Hot::Found(value.to_vec()),
                            Hot::Absent => Hot::Absent,
                            Hot::Cold => Hot::Cold,
                        });
                        seen.len() < usize::from(wanted)
                    });
                    looked.unwrap();
                    prop_assert_eq!(seen.len(), usize::from(wanted).min(keys.len()));
                    for (key, hot) in keys.iter().zip(seen) {
                        match hot {
                            Hot::Found(value) => prop_assert_eq!(Some(&value), model.get(*key)),
                            Hot::Absent => prop_assert_eq!(None, model.get(*key)),
                            Hot::Cold => {}
                        }
                    }
                    let mut seen = Vec::new();
                    let looked = table.look_at_beginnings(&keys, BEGINNING_BYTES, &mut |hot, _| {
                        seen.push(match hot {
                            Hot::Found(value) => Hot::Found(value.to_vec()),
                            Hot::Absent => Hot::Absent,
                            Hot::Cold => Hot::Cold,
                        });
                        true
                    });
                    looked.unwrap();
                    prop_assert_eq!(seen.len(), keys.len());
                    for (key, hot) in keys.iter().zip(seen) {
                        let whole = model.get(*key);
                        match hot {
                            Hot::Found(value) => {
                                let is_beginning = whole.is_some_and(|whole| {
                                    whole.starts_with(&value) && value.len() >= whole.len().min(BEGINNING_BYTES)
                                });
                                prop_assert!(is_beginning, "{:?} of {:?}", value, whole);
                            }
                            Hot::Absent => prop_assert_eq!(None, whole),
                            Hot::Cold => {}
                        }
                    }
                }
                Operation::Scan(from, to) => {
                    let (from, to) = (key(from), to.map(key));
                    let within = |entry: &Vec<u8>| *entry >= from && to.as_ref().is_none_or(|to| entry < to);
                    let expected: Vec<_> = model.clone().into_iter().filter(|(key, _)| within(key)).collect();
                    prop_assert_eq!(scanned(&*table, &from, to.as_deref()), expected);
                    let mut keys = Vec::new();
                    table.each_key(&mut |key| keys.push(key.to_vec())).unwrap();
                    prop_assert_eq!(keys, model.keys().cloned().collect::<Vec<_>>());
                }
                Operation::OpenAgain => {
                    if engine.is_durable() {
                        drop((table, engine));
                        engine = under_test.open();
                        table = engine.open_table(&name).unwrap();
                        table.keep_beginnings(BEGINNING_BYTES);
                    }
                }
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
