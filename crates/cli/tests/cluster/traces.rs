//! Traces of requests through a router and nodes, as a collector gets them.

use std::time::Instant;

use redis::{Commands, Connection};

use super::cluster::{Cluster, Shape};
use super::collector::{Collector, Manner, Seen};
use super::node::{DEADLINE, Node, until};
use super::values::{KEYS, STORE, value};

/// The span that clients of the tests say they are.
const CLIENT: &str = "00f067aa0ba902b7";

const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const ASKED: u64 = 3;

/// A cluster with a version, whose router caches nothing, and which traces what clients say it should.
fn start(shape: Shape, collector: &Collector) -> Cluster {
    let cluster = Cluster::serving(shape);
    let endpoint = collector.setting();
    let settings = ["config", "set", "router-cache-bytes=0", "traces-sample=0", &endpoint];
    cluster.any().done(&settings);
    cluster
}

fn set(cluster: &Cluster, change: &str) {
    cluster.any().done(&["config", "set", change]);
}

/// Sends a command with a context of its own until all spans of its trace have come.
fn traced(
    redis: &mut Connection,
    collector: &Collector,
    command: &redis::Cmd,
    is_whole: impl Fn(&[Seen]) -> bool,
) -> Vec<Seen> {
    let (mut sent, mut whole) = (Vec::new(), Vec::new());
    until("a whole trace has come", || {
        let trace = format!("{:032x}", fastrand::u128(1..));
        let parent = format!("00-{trace}-{CLIENT}-01");
        let _: () = redis::cmd("FONDACO.TRACE").arg(parent).query(redis).unwrap();
        let _: redis::Value = command.query(redis).unwrap();
        sent.push(trace);
        let spans = sent.iter().map(|trace| collector.trace(trace));
        whole = spans.into_iter().find(|spans| is_whole(spans)).unwrap_or_default();
        !whole.is_empty()
    });
    whole
}

/// The one span of this name and kind.
fn only<'a>(spans: &'a [Seen], name: &str, kind: u64) -> &'a Seen {
    let mut found = spans.iter().filter(|span| span.name == name && span.kind == kind);
    let one = found.next().unwrap_or_else(|| panic!("no {name}: {spans:#?}"));
    assert_eq!(found.count(), 0, "several {name}: {spans:#?}");
    one
}

fn children<'a>(spans: &'a [Seen], parent: &Seen) -> Vec<&'a Seen> {
    spans
        .iter()
        .filter(|span| span.parent.as_ref() == Some(&parent.id))
        .collect()
}

/// Whether each request to a node has a span of the node.
fn is_answered(spans: &[Seen]) -> bool {
    let mut parts = spans.iter().filter(|span| span.kind == ASKED);
    parts.all(|part| children(spans, part).len() == 1)
}

fn count(spans: &[Seen], name: &str, kind: u64) -> usize {
    let named = spans.iter().filter(|span| span.name == name && span.kind == kind);
    named.count()
}

/// The value of a metric of a process.
fn metric(process: &Node, name: &str) -> u64 {
    let url = format!("http://{}/metrics", process.http);
    let text = ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
}

#[test]
fn a_read_is_one_trace_through_router_and_nodes() {
    let collector = Collector::start();
    let cluster = start(Shape::steady(), &collector);
    let mut redis = cluster.get("router-1").redis();
    let get = redis::cmd("GET").arg("s:1").clone();
    // One without a hedge.
    let whole = |spans: &[Seen]| {
        let counts = [("GET s", SERVER), ("FONDACO.READ s", ASKED), ("look-up", INTERNAL)];
        counts.iter().all(|&(name, kind)| count(spans, name, kind) == 1) && is_answered(spans)
    };
    let spans = traced(&mut redis, &collector, &get, whole);
    let request = only(&spans, "GET s", SERVER);
    assert_eq!(request.parent.as_deref(), Some(CLIENT));
    assert_eq!(request.role, "router");
    let part = only(&spans, "FONDACO.READ s", ASKED);
    assert_eq!(part.parent.as_ref(), Some(&request.id));
    assert_eq!(part.attributes["fondaco.part"], "first");
    assert_eq!(part.attributes["db.collection.name"], STORE);
    assert_eq!(part.attributes["db.system.name"], "fondaco");
    assert_eq!(part.attributes["server.address"], "127.0.0.1");
    let at_node = only(&spans, "FONDACO.READ s", SERVER);
    assert_eq!((at_node.parent.as_ref(), &*at_node.role), (Some(&part.id), "node"));
    let look_up = only(&spans, "look-up", INTERNAL);
    assert_eq!(look_up.parent.as_ref(), Some(&at_node.id));

    let mut mget = redis::cmd("MGET");
    (0..100).for_each(|key| _ = mget.arg(format!("s:{key}")));
    let whole = |spans: &[Seen]| count(spans, "MGET s", SERVER) == 1 && is_answered(spans);
    let spans = traced(&mut redis, &collector, &mget, whole);
    let request = only(&spans, "MGET s", SERVER);
    assert_eq!(request.attributes["fondaco.keys"], "100");
    let parts = children(&spans, request);
    let keys: u64 = parts
        .iter()
        .map(|part| part.attributes["fondaco.keys"].parse::<u64>().unwrap())
        .sum();
    assert!(parts.len() > 1 && keys >= 100, "{spans:#?}");
    for span in &spans {
        assert!(!span.is_error && !span.text.contains("key-"), "{span:?}");
        assert!(!span.text.contains("s:1"), "{span:?}");
    }

    // An error is that of the request, by its code alone.
    let absent = redis::cmd("GET").arg("nowhere:secret").clone();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-{CLIENT}-01");
    let _: () = redis::cmd("FONDACO.TRACE").arg(&parent).query(&mut redis).unwrap();
    absent.query::<redis::Value>(&mut redis).unwrap_err();
    until("the error has come", || !collector.trace(trace).is_empty());
    let failed = &collector.trace(trace)[0];
    assert!(failed.is_error && !failed.text.contains("secret"), "{failed:?}");
    assert_eq!((&*failed.name, &*failed.attributes["error.type"]), ("GET", "NOSTORE"));

    // Without a collector nothing is traced.
    set(&cluster, "traces-endpoint=");
    until("the router knows", || {
        let found: Vec<String> = redis::cmd("CONFIG")
            .arg("GET")
            .arg("traces-endpoint")
            .query(&mut redis)
            .unwrap();
        found[1].is_empty()
    });
    let before = metric(cluster.get("router-1"), "fondaco_traces_spans_total");
    let _: () = redis::cmd("FONDACO.TRACE").arg(parent).query(&mut redis).unwrap();
    let _: String = get.query(&mut redis).unwrap();
    assert_eq!(metric(cluster.get("router-1"), "fondaco_traces_spans_total"), before);
    set(&cluster, &collector.setting());
    traced(&mut redis, &collector, &get, |spans| spans.len() >= 4);
}

#[test]
fn a_quorum_write_is_traced_with_its_replicas() {
    let collector = Collector::start();
    let shape = Shape {
        replicas: 3,
        ..Shape::steady()
    };
    let cluster = start(shape, &collector);
    let quorums = ["--kind", "versioned", "--reads", "2", "--writes", "2"];
    cluster
        .any()
        .done(&[&["store", "create", "carts"], &quorums[..]].concat());
    let mut redis = cluster.get("router-1").redis();
    until("the store is there", || {
        redis.set::<_, _, ()>("carts:7", "book").is_ok()
    });
    let set = redis::cmd("SET").arg("carts:7").arg("pen").clone();
    let whole = |spans: &[Seen]| {
        // Contexts of two replicas, the write, and the two that merge it; sometimes a third is asked for its context.
        spans.iter().filter(|span| span.kind == ASKED).count() == 5
            && count(spans, "FONDACO.RPUT carts", ASKED) == 1
            && count(spans, "FONDACO.RMERGE carts", ASKED) == 2
            && count(spans, "SET carts", SERVER) == 1
            && is_answered(spans)
    };
    let spans = traced(&mut redis, &collector, &set, whole);
    let request = only(&spans, "SET carts", SERVER);
    let quorum = only(&spans, "quorum write carts", INTERNAL);
    assert_eq!(quorum.parent.as_ref(), Some(&request.id));
    let parts = children(&spans, quorum);
    // Contexts of two replicas, the write, and the two that merge it.
    assert_eq!(parts.len(), 5, "{spans:#?}");
    for part in parts {
        assert_eq!(part.kind, ASKED);
        let at_node = children(&spans, part)[0];
        assert_eq!((at_node.kind, &*at_node.role), (SERVER, "node"));
    }
    let get = redis::cmd("GET").arg("carts:7").clone();
    let whole = |spans: &[Seen]| count(spans, "GET carts", SERVER) == 1 && is_answered(spans);
    let spans = traced(&mut redis, &collector, &get, whole);
    let quorum = only(&spans, "quorum read carts", INTERNAL);
    assert!(children(&spans, quorum).len() >= 2, "{spans:#?}");
    assert!(
        spans
            .iter()
            .all(|span| !span.text.contains("pen") && !span.text.contains("carts:"))
    );
}

#[test]
fn a_killed_node_shows_as_a_second_attempt() {
    let collector = Collector::start();
    let mut cluster = start(Shape::default(), &collector);
    set(&cluster, "traces-sample=1");
    let mut redis = cluster.get("router-1").redis();
    until("requests are traced", || {
        let _: String = redis.get("s:1").unwrap();
        !collector.spans(|span| span.name == "GET s").is_empty()
    });
    cluster.kill("node-2");
    let mut key = 0;
    until("another node was asked", || {
        key = (key + 1) % KEYS;
        let found: String = redis.get(format!("s:{key}")).unwrap();
        assert_eq!(found, value(1, key));
        let again = ["retry", "redirect", "hedge"];
        let is_again = |span: &Seen| {
            span.attributes
                .get("fondaco.part")
                .is_some_and(|part| again.contains(&&**part))
        };
        let asked = collector.spans(|span| span.kind == ASKED && is_again(span));
        asked.iter().any(|part| {
            let spans = collector.trace(&part.trace);
            let parts = spans
                .iter()
                .filter(|span| span.kind == ASKED && span.parent == part.parent);
            parts.count() > 1 && !children(&spans, part).is_empty()
        })
    });
}

#[test]
fn the_share_of_traced_requests_is_respected() {
    const REQUESTS: usize = 4000;
    let collector = Collector::start();
    let cluster = start(Shape::steady(), &collector);
    set(&cluster, "traces-sample=0.1");
    let router = cluster.get("router-1");
    let mut redis = router.redis();
    let roots = || collector.spans(|span| span.parent.is_none()).len();
    until("requests are traced", || {
        let _: String = redis.get("s:1").unwrap();
        roots() > 0
    });
    let all_have_come = || {
        let sent = |process: &Node| metric(process, "fondaco_traces_spans_total");
        let ended: u64 = cluster.nodes().iter().map(|name| sent(cluster.get(name))).sum::<u64>() + sent(router);
        collector.spans(|_| true).len() as u64 == ended
    };
    until("all spans have come", all_have_come);
    let before = roots();
    for key in 0..REQUESTS as u64 {
        let _: String = redis.get(format!("s:{}", key % KEYS)).unwrap();
    }
    until("all spans have come", all_have_come);
    // Five standard deviations around a tenth.
    let (expected, deviation) = (REQUESTS as f64 / 10.0, (REQUESTS as f64 * 0.09).sqrt());
    let found = (roots() - before) as f64;
    assert!((found - expected).abs() < 5.0 * deviation, "{found} of {expected}");
    assert!(
        collector
            .spans(|span| span.parent.is_none() && span.role != "router")
            .is_empty()
    );
}

#[test]
fn bad_collectors_harm_no_request_and_no_memory() {
    const GROWTH_MAX: u64 = 48 << 20;
    let collector = Collector::start();
    let cluster = start(Shape::steady(), &collector);
    set(&cluster, "traces-sample=1");
    let router = cluster.get("router-1");
    let mut redis = router.redis();
    let mut many = redis::pipe();
    (0..1000).for_each(|key| _ = many.cmd("GET").arg(format!("s:{key}")));
    let mut ask = |times: usize| {
        for _ in 0..times {
            let begun = Instant::now();
            let found: Vec<String> = many.query(&mut redis).unwrap();
            assert!((0..1000).all(|key| found[key as usize] == value(1, key)));
            assert!(begun.elapsed() < DEADLINE / 4, "{:?}", begun.elapsed());
        }
    };
    let memory = || anonymous_bytes(router);
    ask(5);
    let before = memory();
    for manner in [Manner::Fails, Manner::Closes] {
        collector.behave(manner);
        let failed = metric(router, "fondaco_traces_failed_total");
        until("spans are given up", || {
            ask(1);
            metric(router, "fondaco_traces_failed_total") > failed
        });
    }
    collector.behave(Manner::IsSilent);
    let dropped = metric(router, "fondaco_traces_dropped_total");
    ask(6);
    assert!(metric(router, "fondaco_traces_dropped_total") > dropped);
    set(&cluster, "traces-endpoint=http://127.0.0.1:1");
    let failed = metric(router, "fondaco_traces_failed_total");
    until("spans are given up", || {
        ask(1);
        metric(router, "fondaco_traces_failed_total") > failed
    });
    assert!(memory() < before + GROWTH_MAX, "{} and {before}", memory());

    collector.behave(Manner::Takes);
    set(&cluster, &collector.setting());
    let had = collector.spans(|_| true).len();
    until("spans come again", || {
        ask(1);
        collector.spans(|_| true).len() > had
    });
}

/// The memory of a process that is no file's.
fn anonymous_bytes(process: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kib: u64 = line.trim().strip_suffix("kB").unwrap().trim().parse().unwrap();
    kib * 1024
}

#[test]
fn settings_of_traces_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Node::dev(&dir.path().join("data"));
    for (change, reason) in [
        ("traces-sample=2", "use a share from 0 to 1, such as 0.001"),
        ("traces-sample=-1", "use a share from 0 to 1, such as 0.001"),
        ("traces-sample=many", "use a share from 0 to 1, such as 0.001"),
        (
            "traces-endpoint=collector:4318",
            "use the URL of an OTLP/HTTP collector",
        ),
        (
            "traces-endpoint=http://me:secret@collector",
            "without a user, a password",
        ),
    ] {
        let errors = dev.refused(1, &["config", "set", change]);
        assert!(errors.contains(reason), "{change}: {errors}");
    }
    let shown = dev.done(&[
        "config",
        "set",
        "traces-sample=0.25",
        "traces-endpoint=http://127.0.0.1:4318",
    ]);
    assert!(shown.contains("traces-sample: 0.001 -> 0.25"), "{shown}");
    let mut redis = dev.redis();
    let found: Vec<String> = redis::cmd("CONFIG")
        .arg("GET")
        .arg("traces-*")
        .query(&mut redis)
        .unwrap();
    assert_eq!(
        found,
        ["traces-endpoint", "http://127.0.0.1:4318", "traces-sample", "0.25"]
    );
    let error = redis::cmd("FONDACO.TRACE")
        .arg("me")
        .query::<()>(&mut redis)
        .unwrap_err();
    assert!(error.to_string().contains("invalid traceparent"), "{error}");
}
