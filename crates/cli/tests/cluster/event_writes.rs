//! Hybrid stores that Redis clients write to: each write becomes an event in a topic of a real Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use fondaco_testing::Kafka;
use redis::{Commands, RedisResult};

use super::cluster::{Cluster, Shape};
use super::node::{until, write_csv};

const PROCESSES: [&str; 3] = ["node-1", "node-2", "router-1"];

/// Each node has half of the keys.
fn halves() -> Cluster {
    Cluster::start(Shape {
        nodes: 2,
        replicas: 1,
        ..Shape::steady()
    })
}

/// Creates a hybrid store with these options, and pushes `base-0` to `base-9`.
fn create(cluster: &Cluster, name: &str, kafka: &Kafka, topic: &str, options: &[&str]) {
    let stream = format!("kafka://{}/{topic}", kafka.address());
    let create = ["store", "create", name, "--kind", "hybrid", "--stream", &stream];
    cluster.any().done(&[&create, options].concat());
    let csv = cluster.dir.path().join(format!("{name}.csv"));
    write_csv(&csv, (0..10).map(|key| (format!("base-{key}"), format!("{key}"))));
    let csv = csv.to_str().unwrap();
    cluster
        .any()
        .done(&["push", name, csv, "--key", "key", "--value", "value", "--quiet"]);
    for process in PROCESSES {
        until(&format!("{process} serves the store"), || {
            let found: RedisResult<Option<String>> = cluster.get(process).redis().get(format!("{name}:base-7"));
            found == Ok(Some("7".to_owned()))
        });
    }
}

fn error_of<T: redis::FromRedisValue>(found: RedisResult<T>) -> String {
    found.err().expect("an error").to_string()
}

#[test]
fn a_client_sees_its_writes_through_the_process_that_took_them() {
    let kafka = Kafka::shared();
    kafka.make_topic("writes-seen", 8);
    let cluster = halves();
    let options = ["--acknowledge", "applied", "--partitioner", "store"];
    create(&cluster, "s", kafka, "writes-seen", &options);
    for process in PROCESSES {
        let redis = &mut cluster.get(process).redis();
        for number in 0..20 {
            let key = format!("s:{process}-{number}");
            for value in ["one", "", "two"] {
                redis.set::<_, _, ()>(&key, value).unwrap();
                assert_eq!(
                    redis.get::<_, Option<String>>(&key).unwrap().as_deref(),
                    Some(value),
                    "{key}"
                );
            }
            assert_eq!(redis.del::<_, u64>(&[&key, &format!("{key}-absent")]), Ok(1));
            assert_eq!(redis.get::<_, Option<String>>(&key), Ok(None), "{key}");
            let counter = format!("s:{process}-counter-{number}");
            assert_eq!(redis.incr::<_, _, i64>(&counter, 41), Ok(41));
            assert_eq!(redis.decr::<_, _, i64>(&counter, -1), Ok(42));
            // On top of the version.
            let base = format!("s:base-{}", number % 10);
            let before: i64 = redis.get(&base).unwrap();
            assert_eq!(redis.incr::<_, _, i64>(&base, 1), Ok(before + 1), "{base}");
        }
        let bytes: Vec<u8> = (0..=255).collect();
        let hostile: Vec<u8> = [b"s:\0\xff{}\r\n".as_slice(), process.as_bytes()].concat();
        redis.set::<_, _, ()>(&hostile, &bytes).unwrap();
        assert_eq!(redis.get::<_, Vec<u8>>(&hostile), Ok(bytes));
        let update = r#"{"set": {"name": "x"}, "increment": {"views": 2}}"#;
        let key = format!("s:{process}-object");
        let updated = |redis: &mut redis::Connection| {
            let mut command = redis::cmd("FONDACO.UPDATE");
            command.arg(&key).arg(update).arg("RETURN").query::<String>(redis)
        };
        assert_eq!(updated(redis).unwrap(), r#"{"name":"x","views":2}"#);
        assert_eq!(updated(redis).unwrap(), r#"{"name":"x","views":4}"#);
        let pairs = [(format!("s:{process}-a"), "1"), (format!("s:{process}-b"), "2")];
        redis.mset::<_, _, ()>(&pairs).unwrap();
        let (a, b): (i64, i64) = redis.mget(&[&pairs[0].0, &pairs[1].0]).unwrap();
        assert_eq!((a, b), (1, 2));
        let answers: (String, i64, i64) = redis::pipe()
            .atomic()
            .set(&pairs[0].0, 5)
            .incr(&pairs[0].0, 1)
            .get(&pairs[0].0)
            .query(redis)
            .unwrap();
        assert_eq!(answers, ("OK".to_owned(), 6, 6));
    }
    let stream = cluster.any().http_get("/v1/stores/s/stream");
    for version in stream["versions"].as_array().unwrap() {
        assert_eq!(
            (&version["poison"], &version["superseded"]),
            (&0.into(), &0.into()),
            "{version}"
        );
    }
}

#[test]
fn writes_that_cannot_be_events_are_refused_by_name() {
    let kafka = Kafka::shared();
    kafka.make_topic("writes-refused", 1);
    let cluster = halves();
    create(&cluster, "s", kafka, "writes-refused", &["--value-type", "integer"]);
    let refused = |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(word));
        error_of(command.query::<redis::Value>(&mut cluster.get("router-1").redis()))
    };
    for (words, part) in [
        (&["SET", "s:k", "1", "EX", "5"][..], "--ttl"),
        (&["SETEX", "s:k", "5", "1"], "--ttl"),
        (&["EXPIRE", "s:k", "5"], "--ttl"),
        (&["SET", "s:k", "1", "NX"], "NX or XX"),
        (&["SETNX", "s:k", "1"], "NX or XX"),
        (&["SET", "s:k", "1", "GET"], "SET with GET"),
        (&["GETSET", "s:k", "1"], "SET with GET"),
        (&["GETDEL", "s:k"], "GETDEL"),
        (&["APPEND", "s:k", "1"], "APPEND"),
        (&["FONDACO.PUT", "s:k", "", "1"], "context"),
        (&["SET", "s:k", "text"], "WRONGTYPE"),
        (&["FONDACO.UPDATE", "s:k", r#"{"set": {"a": 1}}"#], "WRONGTYPE"),
        (&["INCRBY", "s:k", "9007199254740993"], "too large"),
        (&["RENAME", "s:k", "s:l"], "RENAME"),
    ] {
        let error = refused(words);
        assert!(error.contains(part), "{words:?}: {error}");
    }
    let end = cluster.any().http_get("/v1/stores/s/stream")["versions"][0]["partitions"][0].clone();
    assert_eq!(end["next_offset"], 0, "nothing was written: {end}");
    // A broker has a limit of its own.
    cluster.any().done(&[
        "store",
        "create",
        "t",
        "--kind",
        "hybrid",
        "--stream",
        &format!("kafka://{}/writes-refused", kafka.address()),
    ]);
    until("the router knows the store", || {
        let long: RedisResult<()> = cluster.get("router-1").redis().set("t:long", vec![b'x'; 3 << 20]);
        let error = error_of(long);
        error.contains("not written") && error.contains("too large")
    });
    let counted: RedisResult<i64> = cluster.get("node-1").redis().incr("t:k", 1);
    assert!(error_of(counted).contains("NOVERSION"));
}

#[test]
fn concurrent_increments_of_several_clients_add_up() {
    let kafka = Kafka::shared();
    kafka.make_topic("writes-counted", 4);
    let cluster = halves();
    create(&cluster, "s", kafka, "writes-counted", &[]);
    let clients: Vec<_> = (0..6)
        .map(|client| {
            let mut redis = cluster.get(PROCESSES[client % 3]).redis();
            thread::spawn(move || {
                for number in 0..100 {
                    let by = i64::try_from(client).unwrap() + 1;
                    let answer: i64 = redis.incr(format!("s:counter-{}", number % 2), by).unwrap();
                    assert!(answer >= by);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    for process in PROCESSES {
        let sums: (i64, i64) = cluster
            .get(process)
            .redis()
            .mget(&["s:counter-0", "s:counter-1"])
            .unwrap();
        assert_eq!(sums, (50 * 21, 50 * 21), "{process}");
    }
}

/// The replies that clients have got.
#[derive(Default)]
struct Told {
    /// The last acknowledged value of each key.
    values: BTreeMap<String, u64>,
    acknowledged: u64,
    failed: u64,
}

/// Writes keys of its own, each with growing numbers, and adds to a counter of its own, until it is stopped. It writes only what
/// it was not told to be written.
fn write(address: String, own: usize, stop: &AtomicBool, writes: &AtomicU64) -> Told {
    let mut told = Told::default();
    let mut redis = None;
    for number in 0.. {
        if stop.load(SeqCst) {
            break;
        }
        let connect = || {
            redis::Client::open(format!("redis://{address}"))
                .ok()?
                .get_connection()
                .ok()
        };
        let Some(connection) = redis.get_or_insert_with(connect) else {
            redis = None;
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        let key = format!("s:own-{own}-{}", number % 50);
        let written: RedisResult<()> = connection.set(&key, number);
        match written {
            Ok(()) => {
                told.values.insert(key, number);
                told.acknowledged += 1;
                writes.fetch_add(1, SeqCst);
            }
            Err(error) => {
                told.failed += 1;
                if error.is_io_error() {
                    redis = None;
                }
                // The next value of the key must be later than one that may have been written.
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
    told
}

#[test]
fn nothing_acknowledged_is_lost_when_brokers_and_nodes_are_killed() {
    let mut kafka = Kafka::start();
    kafka.make_topic("writes-through-kills", 4);
    let mut cluster = Cluster::start(Shape {
        replicas: 2,
        ..Shape::default()
    });
    create(&cluster, "s", &kafka, "writes-through-kills", &[]);
    let (stop, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let processes = ["node-1", "node-2", "router-1", "router-1"];
    let clients: Vec<_> = processes
        .iter()
        .enumerate()
        .map(|(own, process)| {
            let address = cluster.get(process).resp.clone();
            let (stop, writes) = (Arc::clone(&stop), Arc::clone(&writes));
            thread::spawn(move || write(address, own, &stop, &writes))
        })
        .collect();
    let more = |count: u64| {
        let before = writes.load(SeqCst);
        until("clients write on", || writes.load(SeqCst) >= before + count);
    };
    more(300);
    kafka.kill();
    let mut before = u64::MAX;
    until("no acknowledgement to be under way", || {
        thread::sleep(Duration::from_secs(1));
        let now = writes.load(SeqCst);
        std::mem::replace(&mut before, now) == now
    });
    let asked = Instant::now();
    let refused = error_of(cluster.get("router-1").redis().set::<_, _, ()>("s:x", "y"));
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert!(
        refused.contains("UNAVAILABLE") || refused.contains("TIMEOUT"),
        "{refused}"
    );
    assert_eq!(writes.load(SeqCst), before, "no broker has acknowledged these");
    // Reads answer meanwhile.
    assert_eq!(
        cluster.get("router-1").redis().get::<_, String>("s:base-3").unwrap(),
        "3"
    );
    kafka.restart();
    more(300);
    cluster.kill("node-1");
    more(300);
    cluster.launch("node-1");
    more(300);
    stop.store(true, SeqCst);
    let told: Vec<Told> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    assert!(told.iter().all(|told| told.acknowledged > 0));
    assert!(told.iter().map(|told| told.failed).sum::<u64>() > 0);
    cluster.until_no_node_is_late();
    for process in ["node-1", "node-2", "node-3", "router-1"] {
        let mut wrong = Vec::new();
        until(&format!("{process} has all that was acknowledged"), || {
            let mut redis = cluster.get(process).redis();
            wrong.clear();
            for (key, &number) in told.iter().flat_map(|told| &told.values) {
                // A write that was answered with an error may have happened after it.
                let found = redis.get::<_, Option<u64>>(key);
                if !matches!(found, Ok(Some(found)) if found >= number) {
                    wrong.push(format!("{key}: {found:?}, not {number}"));
                }
            }
            wrong.is_empty()
        });
    }
}
