//! Every option of stores with every kind of store: honoured, or refused with the kinds that have it.

use std::fs::File;

use fondaco_model::{StoreKind, StoreOption};
use serde_json::{Value, json};

use super::node::{Dev, Node, fondaco, until};

/// A value for each option, and the same as a store's document shows it.
fn sample(option: &StoreOption) -> (&'static str, Value) {
    match option.name {
        "backups" => ("3", json!(3)),
        "replicas" => ("1", json!(1)),
        "everywhere" => ("true", json!(true)),
        "tolerate-failures" => ("0", json!(0)),
        "read-keys-per-second" => ("1000", json!(1000)),
        "space-quota" => ("10GB", json!(10_000_000_000_u64)),
        "fan-out" => ("nearest", json!("nearest")),
        "gate" => ("gone <= 5%", json!("gone <= 5%")),
        "value-type" => ("avro", json!("avro")),
        "compatibility" => ("forward", json!("forward")),
        "key-type" => ("(string,integer)", json!("(string,integer)")),
        "registry" => ("http://127.0.0.1:8081/x", json!("http://127.0.0.1:8081/x")),
        "stream" => ("log:4", json!("log:4")),
        "rewind" => ("2h", json!(7_200_000)),
        "max-lag" => ("5s", json!(5000)),
        "grace" => ("3days", json!(259_200_000)),
        "compact-every" => ("1day", json!(86_400_000)),
        "acknowledge" => ("applied", json!("applied")),
        "data-center" => ("east", json!("east")),
        "max-clock-ahead" => ("1min", json!(60_000)),
        "partitioner" => ("any", json!("any")),
        "paused" => ("true", json!(true)),
        "engine" => ("disk", json!("disk")),
        "reads" | "writes" => ("1", json!(1)),
        "preferred-reads" | "preferred-writes" => ("3", json!(3)),
        "handoff" => ("any", json!("any")),
        "sloppy" => ("true", json!(true)),
        "zone-reads" | "zone-writes" => ("1", json!(1)),
        "durability" => ("fsync", json!("fsync")),
        "resolution" => ("counter", json!("counter")),
        "ttl" => ("1day", json!(86_400_000)),
        "tombstone-grace" => ("5days", json!(432_000_000)),
        "write-keys-per-second" => ("500", json!(500)),
        other => panic!("--{other} has no value in this test"),
    }
}

/// The type of values without which an option is refused.
fn needed(option: &StoreOption) -> &'static [&'static str] {
    match option.name {
        "compatibility" | "registry" => &["--value-type", "avro"],
        _ => &[],
    }
}

/// The stream of a hybrid store with this option. A registry is of a topic; that this one cannot be reached is only a warning.
fn source_for(option: &StoreOption) -> &'static str {
    match option.name {
        "registry" => "kafka://127.0.0.1:9/t",
        "data-center" => "kafka://127.0.0.1:9/t,west.t",
        _ => "log",
    }
}

/// The value of an option in a store's document, at a path like `stream.rewind_ms`.
fn shown(store: &Value, member: &str) -> Value {
    store
        .pointer(&format!("/{}", member.replace('.', "/")))
        .cloned()
        .unwrap_or_default()
}

/// Runs a command with an option, and checks that it is honoured, or refused with the kinds that have it.
fn check(node: &Node, kind: StoreKind, option: &StoreOption, arguments: &[&str], is_new: bool) {
    let is_plan = !is_new && (option.name, kind) == ("replicas", StoreKind::Versioned);
    let (value, expected) = match is_plan {
        // A plan changes it, one by one.
        true => ("2", json!(2)),
        false => sample(option),
    };
    let name = format!("--{}", option.name);
    let all = [arguments, &[&name, value]].concat();
    let output = node.run(&all);
    let error = String::from_utf8_lossy(&output.stderr);
    let Some(member) = option.member(kind) else {
        let names_kinds =
            error.contains(&format!("{name} (")) && error.contains(&format!("only {} stores", option.kinds()));
        // An option that can never be altered is unknown there.
        let is_unknown = !is_new && option.is_fixed && error.contains("unexpected argument");
        assert!(
            !output.status.success() && (names_kinds || is_unknown),
            "{all:?}: {error}"
        );
        return;
    };
    if !output.status.success() {
        let says_so = error.contains("cannot be changed") || error.contains("unexpected argument");
        assert!(!is_new && option.is_fixed && says_so, "{all:?}: {error}");
        return;
    }
    let store: Value = serde_json::from_slice(&output.stdout).unwrap();
    let member = if is_plan { "replicas_next" } else { member };
    let is_right = shown(&store, member) == expected;
    assert!(is_right, "{all:?}: {} instead of {expected}", shown(&store, member));
}

#[test]
fn every_option_is_honoured_or_refused_with_the_kinds_that_have_it() {
    let single = Dev::start();
    let dir = tempfile::tempdir().unwrap();
    // So that quorums, and other zones, can have other numbers than the default.
    let zones = ["--nodes", "3", "--replicas", "3", "--zones", "3", "--loops", "1"];
    let several = Node::dev_with(&dir.path().join("data"), &zones);
    for &kind in StoreKind::ALL {
        // Only a process that is a whole cluster has a log of events.
        let (node, source) = match kind {
            StoreKind::Hybrid => (&*single, Some("log")),
            StoreKind::Batch | StoreKind::Versioned => (&several, None),
        };
        let create = |name: &'static str| vec!["--json", "store", "create", name, "--kind", kind.as_str()];
        let stream = |of: Option<&'static str>| of.map_or_else(Vec::new, |of| vec!["--stream", of]);
        for option in StoreOption::all() {
            let is_stream = option.members().all(|member| member.starts_with("stream."));
            let source = match option.name {
                "stream" => None,
                // Those of streams need one.
                _ if is_stream => Some(source_for(option)),
                _ => source,
            };
            let arguments = [create("new"), stream(source), needed(option).to_vec()].concat();
            check(node, kind, option, &arguments, true);
            node.run(&["store", "drop", "new", "--now", "--yes"]);
        }
        for option in StoreOption::all() {
            node.done(&[create("old"), stream(source), needed(option).to_vec()].concat());
            check(node, kind, option, &["--json", "store", "alter", "old"], false);
            node.done(&["store", "drop", "old", "--now", "--yes"]);
        }
    }
}

#[test]
fn a_store_that_is_restored_has_every_option_as_before() {
    let single = Dev::start();
    let dir = tempfile::tempdir().unwrap();
    let zones = ["--nodes", "3", "--replicas", "3", "--zones", "3", "--loops", "1"];
    let several = Node::dev_with(&dir.path().join("data"), &zones);
    for &kind in StoreKind::ALL {
        let node = if kind == StoreKind::Hybrid { &*single } else { &several };
        for option in StoreOption::all() {
            let Some(member) = option.member(kind) else {
                continue;
            };
            let (value, expected) = sample(option);
            let flag = format!("--{}={value}", option.name);
            let mut create = vec!["store", "create", "s", "--kind", kind.as_str(), &flag];
            let stream = format!("--stream={}", source_for(option));
            if kind == StoreKind::Hybrid && option.name != "stream" {
                create.push(&stream);
            }
            create.extend(needed(option));
            node.done(&create);
            let has = |name: &str| {
                let store = node.json(&["store", "show", name]);
                assert_eq!(shown(&store, member), expected, "{kind:?} --{}", option.name);
            };
            has("s");
            node.done(&["store", "drop", "s", "--yes"]);
            node.done(&["store", "restore", "s"]);
            has("s");
            if kind == StoreKind::Versioned {
                let backup = dir.path().join(option.name);
                let backup = backup.to_str().unwrap();
                node.done(&["backup", "s", "--output", backup]);
                node.done(&["restore", "t", backup, "--create"]);
                has("t");
                node.done(&["store", "drop", "t", "--now", "--yes"]);
            }
            node.done(&["store", "drop", "s", "--now", "--yes"]);
        }
    }
}

#[test]
fn the_help_names_every_option_with_the_kinds_that_have_it() {
    let dev = Dev::start();
    for command in ["create", "alter"] {
        let help = dev.done(&["store", command, "--help"]);
        let words: Vec<&str> = help.split_whitespace().collect();
        let help = words.join(" ");
        for option in StoreOption::all() {
            let name = format!("--{} ", option.name);
            let Some((_, text)) = help.split_once(&name) else {
                assert!(command == "alter" && option.is_fixed, "{command}: {name}");
                continue;
            };
            let kinds = format!("[only {} stores]", option.kinds());
            let own = text.split(" --").next().unwrap();
            assert_eq!(own.contains(&kinds), option.is_special(), "{command} {name}: {own}");
        }
    }
}

#[test]
fn options_that_are_true_or_false_take_their_values_in_the_same_ways() {
    let dev = Dev::start();
    for value in [&["--sloppy"][..], &["--sloppy", "true"], &["--sloppy=true"]] {
        let create = ["store", "create", "v", "--kind", "versioned"];
        let store = dev.json(&[&create, value].concat());
        assert_eq!(store["versioned"]["sloppy"], true, "{value:?}");
        let altered = dev.json(&["store", "alter", "v", "--sloppy", "false"]);
        assert_eq!(altered["versioned"]["sloppy"], false);
        dev.done(&["store", "drop", "v", "--yes", "--now"]);
    }
    for value in [&["--everywhere"][..], &["--everywhere", "true"], &["--everywhere=true"]] {
        let store = dev.json(&[&["store", "create", "b"], value].concat());
        assert_eq!(store["everywhere"], true, "{value:?}");
        let altered = dev.json(&["store", "alter", "b", "--everywhere=false"]);
        assert_eq!(altered["everywhere"], false);
        dev.done(&["store", "drop", "b", "--yes", "--now"]);
    }
}

#[test]
fn a_store_that_is_dropped_and_made_again_raises_no_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let (data, log) = (dir.path().join("data"), dir.path().join("log"));
    let mut command = fondaco();
    command
        .arg("dev")
        .arg("--data")
        .arg(data)
        .stderr(File::create(&log).unwrap());
    command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log", "info"]);
    let node = Node::start(command);
    const ROUNDS: usize = 50;
    let kinds = [
        json!({"name": "v", "kind": "versioned"}),
        json!({"name": "h", "kind": "hybrid", "stream": {"source": "log"}}),
    ];
    let logged = || std::fs::read_to_string(&log).unwrap();
    for round in 1..=ROUNDS {
        for store in &kinds {
            node.http_post("/v1/stores", store.clone());
            let url = format!(
                "http://{}/v1/stores/{}?now=true",
                node.http,
                store["name"].as_str().unwrap()
            );
            ureq::delete(url).call().unwrap();
        }
        // So that the chore that deletes it looks at each change by itself.
        until("the table of the dropped store is deleted", || {
            logged().matches("table of a dropped store deleted").count() == round
        });
    }
    assert!(!logged().contains("no record names"), "{}", logged());
}
