//! Following the changes of a store at one node: where it begins, how it continues, and what a slow or wrong follower is told.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::node::{Dev, Node, of_csv, until};

/// The reply to `XREAD`: of each store its entries, each with its id and its fields.
type Streams = Vec<(String, Vec<(String, BTreeMap<String, String>)>)>;

/// Rows of a version: of each number one key, whose value names the version unless the key is of those that never change.
fn rows(version: u64, keys: std::ops::Range<u64>) -> Vec<(String, String)> {
    let value = |key: u64| {
        if key.is_multiple_of(2) {
            "same".to_owned()
        } else {
            format!("v{version}")
        }
    };
    keys.map(|key| (format!("k{key}"), value(key))).collect()
}

fn push(dev: &Dev, store: &str, rows: Vec<(String, String)>) {
    let csv = dev.csv("rows.csv", rows);
    dev.done(&of_csv("push", store, &csv, &["--quiet"]));
}

/// A page of changes, from a place on; or the error.
fn try_page(node: &Node, store: &str, query: &str) -> Result<Value, (u16, Value)> {
    let url = format!("http://{}/v1/stores/{store}/changes?{query}", node.http);
    let request = ureq::get(url).config().http_status_as_error(false).build();
    let mut answer = request.call().unwrap();
    let said: Value = serde_json::from_reader(answer.body_mut().as_reader()).unwrap();
    match answer.status().is_success() {
        true => Ok(said),
        false => Err((answer.status().as_u16(), said["error"].clone())),
    }
}

fn page(node: &Node, store: &str, query: &str) -> Value {
    try_page(node, store, query).unwrap_or_else(|error| panic!("{query}: {error:?}"))
}

/// All changes from a place on, and the last position.
fn all(node: &Node, store: &str, from: &str, limit: usize) -> (Vec<Value>, String) {
    let (mut changes, mut from) = (Vec::new(), from.to_owned());
    loop {
        let page = page(node, store, &format!("from={from}&limit={limit}&wait_ms=100"));
        from = page["position"].as_str().unwrap().to_owned();
        let new = page["changes"].as_array().unwrap();
        assert!(new.len() <= limit);
        if new.is_empty() && page["waits_for"].is_null() {
            return (changes, from);
        }
        changes.extend(new.iter().cloned());
    }
}

fn text(value: &Value) -> Option<String> {
    value["utf8"].as_str().map(str::to_owned)
}

fn key(change: &Value) -> String {
    text(&change["key"]).unwrap()
}

/// Applies changes to what a follower knows. Each change begins where the one before has ended.
fn apply(known: &mut BTreeMap<String, String>, changes: &[Value]) {
    for change in changes {
        let before = known.get(&key(change)).cloned();
        if change.get("before").is_some() {
            assert_eq!(text(&change["before"]), before, "{change}");
        }
        let after = text(&change["after"]);
        assert_ne!(after, before, "{change}");
        match after {
            Some(after) => known.insert(key(change), after),
            None => known.remove(&key(change)),
        };
    }
}

/// All entries of store `s` after an id, by as many requests as it takes.
fn entries_after(redis: &mut redis::Connection, id: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let (mut all, mut id) = (Vec::new(), id.to_owned());
    loop {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(50).arg("STREAMS").arg("s").arg(&id);
        let Some(mut streams) = command.query::<Option<Streams>>(redis).unwrap() else {
            return all;
        };
        let (name, entries) = streams.remove(0);
        assert!(name == "s" && (1..=50).contains(&entries.len()), "{name}: {entries:?}");
        id.clone_from(&entries.last().unwrap().0);
        all.extend(entries);
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn a_batch_store_is_followed_over_http_resp_and_the_command_line() {
    let dev = Dev::start();
    dev.push("s", rows(1, 0..200));
    let expected = |version, keys| rows(version, keys).into_iter().collect::<BTreeMap<_, _>>();
    // From the beginning, in steps of any length.
    let mut known = BTreeMap::new();
    let (changes, first) = all(&dev, "s", "beginning", 7);
    apply(&mut known, &changes);
    assert_eq!(known, expected(1, 0..200));
    assert!(
        changes
            .iter()
            .all(|change| change["version"] == 1 && change["time_unix_ms"].is_null())
    );
    let now = page(&dev, "s", "from=now")["position"].as_str().unwrap().to_owned();
    assert_eq!(all(&dev, "s", &now, 7).0, Vec::<Value>::new());
    // Keys are changed, added and removed.
    push(&dev, "s", rows(2, 50..250));
    let (changes, second) = all(&dev, "s", &first, 7);
    let all_at_once = all(&dev, "s", &now, 10_000).0;
    assert_eq!(changes, all_at_once);
    assert_eq!(changes.len(), 50 + 75 + 50);
    apply(&mut known, &changes);
    assert_eq!(known, expected(2, 50..250));
    // The position of each change continues after it.
    for (at, change) in changes.iter().enumerate().step_by(29) {
        let rest = all(&dev, "s", change["position"].as_str().unwrap(), 1000).0;
        assert_eq!(rest, changes[at + 1..]);
    }
    // A rollback is a change, too, and so is a version that is built anew from the same rows none.
    dev.done(&["rollback", "s"]);
    let (back, third) = all(&dev, "s", &second, 1000);
    apply(&mut known, &back);
    assert_eq!(known, expected(1, 0..200));
    // Since a version, and since a time.
    assert_eq!(all(&dev, "s", "version:2", 1000).0, back);
    let built = dev.http_get("/v1/stores/s/versions")["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| {
            (
                version["version"].as_u64().unwrap(),
                version["built_unix_ms"].as_u64().unwrap(),
            )
        })
        .collect::<BTreeMap<_, _>>();
    assert_eq!(all(&dev, "s", &format!("time:{}", built[&2]), 1000).0, back);
    assert_eq!(
        all(&dev, "s", &format!("time:{}", built[&1]), 1000).0,
        Vec::<Value>::new()
    );
    // Over RESP.
    for mut redis in [dev.redis(), dev.redis_resp3()] {
        let entries = entries_after(&mut redis, &second);
        assert_eq!(entries.len(), back.len());
        for ((id, entry), change) in entries.iter().zip(&back) {
            let field = |name: &str| entry.get(name).cloned();
            assert_eq!(id, change["position"].as_str().unwrap());
            assert_eq!(field("key"), Some(key(change)));
            assert_eq!(field("before"), text(&change["before"]));
            assert_eq!(field("after"), text(&change["after"]));
            let operation = if change["after"].is_null() { "delete" } else { "set" };
            assert_eq!(field("operation").as_deref(), Some(operation));
        }
        let begun = std::time::Instant::now();
        let none: Option<Streams> = redis::cmd("XREAD")
            .arg(&["BLOCK", "200", "STREAMS", "s", &third])
            .query(&mut redis)
            .unwrap();
        assert!(none.is_none() && begun.elapsed() >= Duration::from_millis(200));
    }
    // A blocked client gets the changes of the next version.
    let mut redis = dev.redis();
    let blocked = std::thread::spawn(move || {
        let mut command = redis::cmd("XREAD");
        command.arg(&["BLOCK", "0", "STREAMS", "s", "$"]);
        command.query::<Streams>(&mut redis).unwrap()
    });
    until("the client to be blocked", || {
        metric(&dev, "fondaco_followers{store=\"s\"}") == Some(1.0)
    });
    let swap = ["swap", "s", "--to", "2"];
    dev.done(&swap);
    let first = blocked.join().unwrap().remove(0).1;
    assert!((1..=all_at_once.len()).contains(&first.len()));
    // By the command line.
    let lines = dev.done(&["follow", "s", "--from", &third, "--until-now"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let without_position = |change: Value| {
        let mut change = change;
        change.as_object_mut().unwrap().remove("position");
        change
    };
    let lines: Vec<Value> = lines.into_iter().map(without_position).collect();
    let expected: Vec<Value> = all_at_once.into_iter().map(without_position).collect();
    assert_eq!(lines, expected);
    let few = dev.done(&["follow", "s", "--from", "beginning", "--limit", "3"]);
    assert_eq!(few.lines().count(), 3);
}

fn metric(node: &Node, name: &str) -> Option<f64> {
    // A process that begins to serve many followers refuses other requests for a moment.
    let mut answer = ureq::get(format!("http://{}/metrics", node.http)).call().ok()?;
    let text = answer.body_mut().read_to_string().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[test]
fn events_of_a_hybrid_store_are_followed_with_the_values_that_reads_see() {
    let dev = Dev::start();
    dev.done(&["store", "create", "h", "--kind", "hybrid", "--stream", "log:4"]);
    push(&dev, "h", rows(1, 0..20));
    let log = |events: Value| dev.http_post("/v1/stores/h/events", json!({ "events": events }));
    let (changes, begun) = all(&dev, "h", "beginning", 1000);
    let mut known = BTreeMap::new();
    apply(&mut known, &changes);
    let now = unix_ms();
    log(json!([
        {"key": "k1", "value": "e1", "time_unix_ms": now},
        {"key": "k1", "value": "older", "time_unix_ms": now - 1000},
        {"key": "k2"},
        {"key": "n", "update": {"increment": 1}},
        {"key": "n", "update": {"increment": 1}},
        {"key": "new", "value": "e2", "time_unix_ms": now},
    ]));
    let expected = |known: &BTreeMap<String, String>, wanted: &[(&str, Option<&str>)]| {
        wanted
            .iter()
            .all(|(key, value)| known.get(*key).map(|value| &**value) == *value)
    };
    let mut from = begun.clone();
    let mut events = Vec::new();
    let mut next = |known: &mut BTreeMap<String, String>, events: &mut Vec<Value>| {
        let (changes, next) = all(&dev, "h", &from, 1);
        apply(known, &changes);
        events.extend(changes);
        from = next;
    };
    until("the events to be followed", || {
        next(&mut known, &mut events);
        expected(
            &known,
            &[("k1", Some("e1")), ("k2", None), ("n", Some("2")), ("new", Some("e2"))],
        )
    });
    // An event that has no effect is no change: the older value of k1 was never seen.
    assert_eq!(
        events.iter().filter(|change| key(change) == "k1").count(),
        1,
        "{events:?}"
    );
    assert!(
        events
            .iter()
            .all(|change| change.get("before").is_none() && change["time_unix_ms"].is_u64())
    );
    // A version that contains some of the events, and has other values: the follower gets the differences of what reads see.
    let csv = dev.csv(
        "next.csv",
        [("k1", "e1"), ("k3", "x"), ("n", "7"), ("k4", "same")].map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let as_of = unix_ms().to_string();
    dev.done(&of_csv("push", "h", &csv, &["--as-of", &as_of, "--quiet"]));
    log(json!([{"key": "k4", "value": "e4"}, {"key": "n", "update": {"increment": 1}}]));
    until("the swap and the events after it to be followed", || {
        next(&mut known, &mut events);
        known
            == [("k1", "e1"), ("k3", "x"), ("k4", "e4"), ("n", "8")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
    });
    assert_eq!(
        events.iter().filter(|change| key(change) == "k1").count(),
        1,
        "it is the same in both views"
    );
    // From the push: the version, and the events on top of it.
    let (since, _) = all(&dev, "h", "version:2", 1000);
    let keys: Vec<String> = since.iter().map(key).collect();
    assert!(
        keys.contains(&"k4".to_owned()) && keys.contains(&"n".to_owned()) && !keys.contains(&"k2".to_owned()),
        "{keys:?}"
    );
    let (since, _) = all(&dev, "h", &format!("time:{}", unix_ms() + 1000), 1000);
    assert_eq!(since, Vec::<Value>::new());
    // Values as JSON where that is asked for.
    dev.done(&["store", "create", "typed", "--value-type", "json"]);
    push(&dev, "typed", vec![("a".to_owned(), "[1]".to_owned())]);
    let page = page(&dev, "typed", "from=0&decode=true");
    assert_eq!(page["changes"][0]["after"]["decoded"]["json"], json!([1]));
}

/// The values of each key, in order, sorted by key.
fn by_key(changes: &[Value]) -> BTreeMap<String, Vec<Option<String>>> {
    let mut values = BTreeMap::<String, Vec<Option<String>>>::new();
    for change in changes {
        assert!(change.get("before").is_none() && change["version"] == 0 && change["time_unix_ms"].is_u64());
        values.entry(key(change)).or_default().push(text(&change["after"]));
    }
    values
}

#[test]
fn a_versioned_store_is_followed_with_the_values_that_reads_see() {
    let (node, dir) = Dev::start().into_parts();
    node.done(&["store", "create", "s", "--kind", "versioned", "--resolution", "set"]);
    let mut redis = node.redis();
    let ask = |redis: &mut redis::Connection, words: &str| {
        let mut words = words.split(' ');
        redis::cmd(words.next().unwrap())
            .arg(words.collect::<Vec<_>>())
            .query::<redis::Value>(redis)
            .unwrap()
    };
    ask(&mut redis, "SET s:before x");
    let now = page(&node, "s", "from=now")["position"].as_str().unwrap().to_owned();
    for words in [
        "SET s:a 1",
        "SET s:a 2",
        "SET s:b 3",
        "DEL s:b",
        // Concurrent values, of which reads see the union, the latest first.
        r#"FONDACO.PUT s:set  ["x"]"#,
        r#"FONDACO.PUT s:set  ["y"]"#,
    ] {
        ask(&mut redis, words);
    }
    let some = |text: &str| Some(text.to_owned());
    let expected = BTreeMap::from([
        ("a".to_owned(), vec![some("1"), some("2")]),
        ("b".to_owned(), vec![some("3"), None]),
        ("set".to_owned(), vec![some(r#"["x"]"#), some(r#"["y","x"]"#)]),
    ]);
    let (changes, end) = all(&node, "s", &now, 1000);
    assert_eq!(by_key(&changes), expected);
    // In pages of any length, of which the last change has a position.
    let first = page(&node, "s", &format!("from={now}&limit=4"))["changes"].clone();
    let mut parts = first.as_array().unwrap().clone();
    assert!(parts[0].get("position").is_none(), "{parts:?}");
    let position = parts.last().unwrap()["position"].as_str().unwrap().to_owned();
    parts.extend(all(&node, "s", &position, 1).0);
    assert_eq!(by_key(&parts), expected);
    let lines = node.done(&["follow", "s", "--from", &now, "--until-now"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(by_key(&lines), expected);
    // From the beginning: the present state, with deletions; and only what is new since a time.
    let mut present = expected.clone();
    present.values_mut().for_each(|values| drop(values.drain(..1)));
    present.insert("before".to_owned(), vec![some("x")]);
    assert_eq!(by_key(&all(&node, "s", "beginning", 2).0), present);
    let earlier = format!("time:{}", unix_ms() - 3_600_000);
    assert_eq!(by_key(&all(&node, "s", &earlier, 2).0), present);
    assert_eq!(all(&node, "s", "time:9999999999999", 2).0, Vec::<Value>::new());
    // Over RESP: the last entry has the position, and a client that is blocked gets the next change.
    let read = |redis: &mut redis::Connection, words: &[&str]| {
        let mut command = redis::cmd("XREAD");
        command.arg(words).query::<Streams>(redis).unwrap().remove(0).1
    };
    let entries = read(&mut redis, &["STREAMS", "s", &now]);
    let (last, others) = entries.split_last().unwrap();
    assert!(
        others.iter().all(|(id, _)| id == "-" || id.len() > 100) && last.0.len() > 100,
        "{entries:?}"
    );
    let (id, mut blocked) = (last.0.clone(), node.redis());
    let blocked = std::thread::spawn(move || read(&mut blocked, &["BLOCK", "0", "STREAMS", "s", &id]));
    until("the client to be blocked", || {
        metric(&node, "fondaco_followers{store=\"s\"}") == Some(1.0)
    });
    let mut events = stream(&node, "s", &end, None);
    ask(&mut redis, "SET s:c 4");
    let entry = blocked.join().unwrap().remove(0).1;
    assert_eq!(
        (&*entry["operation"], &*entry["key"], &*entry["after"]),
        ("set", "c", "4")
    );
    // As server-sent events, until after a kill: a single replica repeats nothing.
    let event: Value = serde_json::from_str(&field(&mut events, "data: ")).unwrap();
    assert_eq!(key(&event), "c");
    let last = field(&mut events, "id: ");
    node.kill();
    let node = Node::dev(&dir.path().join("data"));
    ask(&mut node.redis(), "SET s:c 5");
    let mut events = stream(&node, "s", "now", Some(&last));
    let event: Value = serde_json::from_str(&field(&mut events, "data: ")).unwrap();
    assert_eq!((key(&event), text(&event["after"])), ("c".to_owned(), some("5")));
}

#[test]
fn each_wrong_follower_is_told_what_to_do() {
    let dev = Dev::start();
    dev.done(&["store", "create", "empty"]);
    dev.done(&["store", "create", "v", "--kind", "versioned"]);
    dev.done(&["store", "create", "cache", "--kind", "versioned", "--engine", "cache"]);
    dev.push("s", rows(1, 0..10));
    let code = |store: &str, query: &str| {
        let (status, error) = try_page(&dev, store, query).unwrap_err();
        let message = error["message"].as_str().unwrap().to_owned();
        (status, error["code"].as_str().unwrap().to_owned(), message)
    };
    for (from, named) in [
        ("1526919030474-55", "1526919030474-55"),
        ("", "\"\""),
        ("version:x", "version:x"),
        ("time:-1", "time:-1"),
        ("cAAAA", "cAAAA"),
    ] {
        let (status, code, message) = code("s", &format!("from={from}"));
        assert_eq!((status, &*code), (400, "invalid_request"), "{from}");
        assert!(message.contains(named) && message.contains("beginning"), "{message}");
    }
    for query in ["limit=0", "limit=10001", "wait_ms=20001", "limit=x", "nosuch=1"] {
        assert_eq!(code("s", query).1, "invalid_request", "{query}");
    }
    assert_eq!(code("nosuch", "").1, "store_not_found");
    assert_eq!(code("empty", "").1, "nothing_served");
    assert_eq!(code("v", "from=version:1").1, "invalid_request");
    assert_eq!(code("cache", "from=0").1, "not_followable");
    assert_eq!(code("v", "from=time:1000").1, "too_far_behind");
    let (status, behind, message) = code("s", "from=version:7");
    assert_eq!((status, &*behind), (410, "too_far_behind"));
    assert!(
        message.contains("fondaco follow s --from beginning") && message.contains("--backups"),
        "{message}"
    );
    assert_eq!(code("s", "from=time:1000").1, "too_far_behind");
    // A follower that was away for longer than versions are kept.
    let old = page(&dev, "s", "from=now")["position"].as_str().unwrap().to_owned();
    for version in 2..4 {
        push(&dev, "s", rows(version, 0..10));
    }
    assert_eq!(code("s", &format!("from={old}")).1, "too_far_behind");
    let error = dev.refused(1, &["follow", "s", "--from", &old]);
    assert!(error.contains("too far behind") && error.contains("(3, 2)"), "{error}");
    // Another store with its name.
    let now = page(&dev, "s", "from=now")["position"].as_str().unwrap().to_owned();
    dev.done(&["store", "drop", "s", "--now", "--yes"]);
    dev.push("s", rows(1, 0..10));
    let (_, behind, message) = code("s", &format!("from={now}"));
    assert!(
        behind == "too_far_behind" && message.contains("an earlier store"),
        "{message}"
    );
    let mut redis = dev.redis();
    for (words, expected) in [
        (&["STREAMS", "s"][..], "wrong number of arguments"),
        (&["STREAMS", "s", "s", "0"], "Unbalanced"),
        (&["STREAMS", "s", "v", "0", "0"], "one store"),
        (&["COUNT", "x", "STREAMS", "s", "0"], "not an integer"),
        (&["BLOCK", "-1", "STREAMS", "s", "0"], "timeout"),
        (&["NOSUCH", "1", "STREAMS", "s", "0"], "syntax"),
        (&["STREAMS", "nosuch", "0"], "nosuch"),
        (&["STREAMS", "s", "1526919030474-55"], "1526919030474-55"),
        (&["STREAMS", "s", &old], "TOOFARBEHIND"),
        (&["STREAMS", "v", "version:1"], "versioned by key"),
        (&["STREAMS", "v", "-"], "the last change"),
        (&["STREAMS", "cache", "0"], "evicts"),
        (&["STREAMS", "empty", "0"], "NOVERSION"),
    ] {
        let error = redis::cmd("XREAD")
            .arg(words)
            .query::<redis::Value>(&mut redis)
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{words:?}: {error}");
    }
    dev.done(&["store", "alter", "s", "--read-keys-per-second", "5"]);
    let read = |redis: &mut redis::Connection| {
        redis::cmd("XREAD")
            .arg(&["STREAMS", "s", "0"])
            .query::<redis::Value>(redis)
    };
    until("the quota to count", || {
        read(&mut redis).is_err_and(|error| error.to_string().contains("QUOTA"))
    });
}

/// A stream of server-sent events that is read line by line.
fn stream(node: &Node, store: &str, from: &str, last_event_id: Option<&str>) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(&node.http).unwrap();
    socket.set_read_timeout(Some(super::node::DEADLINE)).unwrap();
    let last = last_event_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
    let host = &node.http;
    let request = format!(
        "GET /v1/stores/{store}/changes?from={from} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n{last}\r\n"
    );
    socket.write_all(request.as_bytes()).unwrap();
    BufReader::new(socket)
}

/// The value of the next field with this name.
fn field(stream: &mut BufReader<TcpStream>, name: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(
            stream.read_line(&mut line).unwrap() > 0,
            "the stream ended before {name:?}"
        );
        if let Some(value) = line.strip_prefix(name) {
            return value.trim().to_owned();
        }
    }
}

#[test]
fn server_sent_events_continue_after_the_last_one() {
    let dev = Dev::start();
    dev.push("s", rows(1, 0..100));
    let mut events = stream(&dev, "s", "beginning", None);
    assert!(field(&mut events, "HTTP/1.1 ").starts_with("200"));
    assert_eq!(field(&mut events, "content-type: "), "text/event-stream");
    let mut known = BTreeMap::new();
    let mut last = String::new();
    for _ in 0..37 {
        last = field(&mut events, "id: ");
        assert_eq!(field(&mut events, "event: "), "change");
        apply(
            &mut known,
            &[serde_json::from_str(&field(&mut events, "data: ")).unwrap()],
        );
    }
    drop(events);
    let mut events = stream(&dev, "s", "now", Some(&last));
    for _ in 37..100 {
        apply(
            &mut known,
            &[serde_json::from_str(&field(&mut events, "data: ")).unwrap()],
        );
    }
    // The stream goes on with the next version.
    push(&dev, "s", rows(2, 10..110));
    for _ in 0..10 + 45 + 10 {
        apply(
            &mut known,
            &[serde_json::from_str(&field(&mut events, "data: ")).unwrap()],
        );
    }
    assert_eq!(known, rows(2, 10..110).into_iter().collect());
    drop(events);
    let mut refused = stream(&dev, "s", "now", Some("0123"));
    assert!(field(&mut refused, "HTTP/1.1 ").starts_with("400"));
}

#[test]
fn a_slow_follower_takes_no_memory_and_is_told_when_it_is_too_far_behind() {
    const KEYS: u64 = 20_000;
    let dev = Dev::start();
    let long = |version: u64| (0..KEYS).map(move |key| (format!("k{key}"), format!("v{version}-{}", "x".repeat(1500))));
    dev.push("s", long(1));
    let mut slow = stream(&dev, "s", "beginning", None);
    assert!(field(&mut slow, "HTTP/1.1 ").starts_with("200"));
    until("the follower to be served", || {
        metric(&dev, "fondaco_changes_sent_total").is_some_and(|sent| sent > 0.0)
    });
    // It reads nothing: what it has not taken is not sent, and is in no buffer.
    let mut sent = 0.0;
    until("the follower to be full", || {
        let before = std::mem::replace(&mut sent, metric(&dev, "fondaco_changes_sent_total").unwrap());
        std::thread::sleep(Duration::from_millis(300));
        before == sent
    });
    assert!(
        sent < KEYS as f64 * 0.9,
        "{sent} changes were sent to a follower that reads nothing"
    );
    for version in 2..4 {
        push(&dev, "s", long(version).collect());
    }
    let mut rest = String::new();
    slow.read_to_string(&mut rest).unwrap();
    let end = rest.rfind("event: error").map(|at| &rest[at..]).unwrap_or_default();
    assert!(
        end.contains("too_far_behind") && end.contains("--from beginning"),
        "{end}"
    );
    // Too many followers are refused.
    let followers: Vec<_> = (0..64).map(|_| stream(&dev, "s", "now", None)).collect();
    until("all followers to be served", || {
        metric(&dev, "fondaco_followers{store=\"s\"}") == Some(64.0)
    });
    let (status, error) = try_page(&dev, "s", "from=now").unwrap_err();
    assert_eq!((status, &error["code"]), (503, &json!("overloaded")), "{error}");
    drop(followers);
    until("the followers to be gone", || try_page(&dev, "s", "from=now").is_ok());
}
