//! Requests that say how long they wait: of a node that hangs, keys are late, and not absent.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::Value;

use super::large_batches::{ASKERS, Halves};
use super::node::Node;
use super::values::{KEYS, value};

const DEADLINE_MS: u64 = 200;
/// Far less than a request takes by default, and far more than a busy machine delays it.
const ENOUGH: Duration = Duration::from_secs(10);

/// Asks for all keys and one that is absent.
fn ask(node: &Node, options: &[&str]) -> redis::RedisResult<Vec<Value>> {
    let mut asked = redis::cmd("FONDACO.MGET");
    options.iter().for_each(|option| _ = asked.arg(option));
    (0..KEYS).for_each(|key| _ = asked.arg(format!("s:{key}")));
    asked.arg("s:absent").query(&mut node.redis())
}

#[test]
fn keys_of_a_node_that_hangs_are_listed_as_late_and_the_others_have_their_values() {
    let halves = Halves::start();
    let cluster = &halves.cluster;
    let deadline = DEADLINE_MS.to_string();
    let partial = ["DEADLINE", &*deadline, "PARTIAL"];

    for asker in ASKERS {
        let mut answer = ask(cluster.get(asker), &["DEADLINE", "10000", "PARTIAL"]).unwrap();
        assert_eq!(answer.pop(), Some(Value::Nil), "nothing is late");
        assert_eq!(answer.pop(), Some(Value::Nil), "a key is absent");
        assert_eq!(answer.len() as u64, KEYS);
    }

    for asker in ASKERS {
        halves.while_it_hangs(asker, |node| {
            let begun = Instant::now();
            let answer = ask(node, &partial);
            assert!(begun.elapsed() < ENOUGH, "{:?}", begun.elapsed());
            let mut answer = match answer {
                Err(error) if error.code() == Some("UNAVAILABLE") => return false,
                answer => answer.unwrap(),
            };
            let Some(Value::Array(late)) = answer.pop() else {
                panic!("no key is late");
            };
            let Some((Value::BulkString(reason), places)) = late.split_first() else {
                panic!("{late:?}");
            };
            assert!(reason.starts_with(b"TIMEOUT"), "{}", String::from_utf8_lossy(reason));
            let late: BTreeSet<usize> = places
                .iter()
                .map(|place| redis::from_redis_value(place.clone()).unwrap())
                .collect();
            assert!(!late.is_empty());
            if late.len() >= KEYS as usize {
                // On a busy machine, the other node can be late, too.
                return false;
            }
            for (at, found) in answer.into_iter().enumerate() {
                let expected = match at as u64 {
                    key if key < KEYS && !late.contains(&at) => Value::BulkString(value(1, key).into_bytes()),
                    _ => Value::Nil,
                };
                assert_eq!(found, expected, "key {at}");
            }
            // Without the word, each of them is an error.
            let error = ask(node, &partial[..2]).unwrap_err();
            assert!(matches!(error.code(), Some("TIMEOUT" | "UNAVAILABLE")), "{error}");
            error.code() == Some("TIMEOUT")
        });
    }

    for asker in ASKERS {
        let answer = ask(cluster.get(asker), &["DEADLINE", "20000", "PARTIAL"]).unwrap();
        assert_eq!(answer.last(), Some(&Value::Nil), "nothing is late any more");
    }
    for (options, part) in [
        (&["DEADLINE"][..], "DEADLINE is the time to wait"),
        (&["DEADLINE", "0"], "from 1 to"),
        (&["DEADLINE", "soon"], "milliseconds"),
        (&["PARTIAL"], "PARTIAL"),
    ] {
        let error = ask(cluster.get("router-1"), options).unwrap_err().to_string();
        assert!(error.contains(part), "{options:?}: {error}");
    }
}
