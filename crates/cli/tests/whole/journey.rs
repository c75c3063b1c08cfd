//! The steps of a new user in their order, and the errors on the way.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use redis::Commands;

use super::node::{Dev, fondaco};

const CITIES: &str = "id,name,population\n7,Venezia,258685\n8,Genova,580097\n9,\"Pisa, Toscana\",\n";

fn with_cities() -> (Dev, String) {
    let dev = Dev::start();
    let path = dev.path("cities.csv");
    fs::write(&path, CITIES).unwrap();
    (dev, path.to_str().unwrap().to_owned())
}

#[test]
fn a_csv_is_pushed_and_read_with_redis() {
    let (dev, cities) = with_cities();
    let pushed = dev.json(&["push", "cities", &cities, "--key", "id", "--create"]);
    assert_eq!(pushed["build"]["records"], 3);
    assert_eq!(pushed["push"]["version"], 1);
    assert_eq!(pushed["push"]["state"], "swapped");

    let mut redis = dev.redis();
    let value: String = redis.get("cities:9").unwrap();
    assert_eq!(value, r#"{"name":"Pisa, Toscana","population":""}"#);
    assert_eq!(
        dev.done(&["get", "cities:7"]),
        r#"{"name":"Venezia","population":"258685"}"#
    );
    if let Ok(output) = Command::new("redis-cli")
        .args(["-p", dev.resp.rsplit(':').next().unwrap(), "GET", "cities:8"])
        .output()
    {
        let value = String::from_utf8(output.stdout).unwrap();
        assert_eq!(value.trim_end(), r#"{"name":"Genova","population":"580097"}"#);
    }
}

#[test]
fn rows_are_pushed_from_standard_input() {
    let dev = Dev::start();
    let pushed = |arguments: &[&str], input: Stdio| {
        let arguments = [&["push", "cities", "-", "--create", "--json"], arguments].concat();
        let output = dev.command(&arguments).stdin(input).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"id\tname\tcountry\n7\tVenezia\tit\n").unwrap();
    drop(writer);
    let more = [
        "--format",
        "csv",
        "--delimiter",
        "\\t",
        "--key",
        "country,id",
        "--value",
        "name",
    ];
    pushed(&more, reader.into());
    let mut redis = dev.redis();
    assert_eq!(redis.get::<_, String>("cities:it:7").unwrap(), "Venezia");

    // A socket cannot be opened by its path.
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"[{\"id\": 8, \"of\": {\"name\": \"Genova\"}}]")
        .unwrap();
    drop(ours);
    let more = ["--format", "jsonl", "--key", "id", "--value", "of.name"];
    pushed(&more, std::os::fd::OwnedFd::from(theirs).into());
    assert_eq!(redis.get::<_, String>("cities:8").unwrap(), "Genova");

    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let arguments = ["push", "cities", "-", "--format", "parquet", "--key", "id"];
    let output = dev.command(&arguments).stdin(reader).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("not read from a pipe"), "{error}");
}

#[test]
fn the_error_for_a_missing_store_names_the_remedy() {
    let (dev, cities) = with_cities();
    let error = dev.refused(1, &["push", "cities", &cities, "--key", "id"]);
    assert!(
        error.contains("fondaco store create cities") && error.contains("--create"),
        "{error}"
    );
    let error = dev.refused(1, &["versions", "cities"]);
    assert!(error.contains("no store \"cities\""), "{error}");
}

#[test]
fn a_refused_push_creates_no_store_and_suggests_a_column() {
    let (dev, cities) = with_cities();
    let error = dev.refused(1, &["push", "cities", &cities, "--key", "ids", "--create"]);
    assert!(error.contains("did you mean \"id\"?"), "{error}");
    assert_eq!(dev.json(&["store", "list"])["stores"].as_array().unwrap().len(), 0);
}

#[test]
fn a_dry_run_changes_nothing() {
    let (dev, cities) = with_cities();
    let run = dev.json(&["push", "cities", &cities, "--key", "id", "--create", "--dry-run"]);
    assert_eq!(run["build"]["records"], 3);
    assert_eq!(dev.json(&["store", "list"])["stores"].as_array().unwrap().len(), 0);

    dev.done(&["store", "create", "cities"]);
    let version = dev.path("version");
    let version = version.to_str().unwrap();
    dev.done(&["build", "cities", &cities, "--key", "id", "--output", version]);
    let run = dev.json(&["deploy", "cities", version, "--dry-run"]);
    assert_eq!((run["version"].as_u64(), run["records"].as_u64()), (Some(1), Some(3)));
    assert_eq!(
        dev.json(&["versions", "cities"])["versions"].as_array().unwrap().len(),
        0
    );
}

#[test]
fn a_version_is_built_inspected_deployed_and_rolled_back() {
    let (dev, cities) = with_cities();
    dev.done(&["store", "create", "cities", "--backups", "1"]);
    let mut redis = dev.redis();
    for (number, column) in [(1, "name"), (2, "population")] {
        let version = dev.path(column);
        let version = version.to_str().unwrap();
        let built = dev.json(&[
            "build", "cities", &cities, "--key", "id", "--value", column, "--output", version,
        ]);
        assert_eq!(built["records"], 3);
        let inspected = dev.json(&["inspect", version, "--verify", "--keys", "2"]);
        assert_eq!(inspected["manifest"]["store"], "cities");
        assert_eq!(inspected["keys"].as_array().unwrap().len(), 2);
        assert_eq!(dev.json(&["deploy", "cities", version])["version"], number);
    }
    assert_eq!(redis.get::<_, String>("cities:7").unwrap(), "258685");
    assert_eq!(dev.json(&["rollback", "cities"])["current_version"], 1);
    let error = dev.refused(1, &["rollback", "cities"]);
    for part in [
        "it keeps 1, 2",
        "fondaco versions cities",
        "fondaco rollback cities --to N",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(redis.get::<_, String>("cities:7").unwrap(), "Venezia");
    assert_eq!(dev.json(&["rollback", "cities", "--to", "2"])["current_version"], 2);
    assert_eq!(dev.json(&["rollback", "cities"])["current_version"], 1);
    assert_eq!(dev.json(&["swap", "cities", "--to", "2"])["current_version"], 2);
    assert_eq!(redis.get::<_, String>("cities:7").unwrap(), "258685");
    let error = dev.refused(1, &["swap", "cities", "--to", "9"]);
    assert!(
        error.contains("no version 9") && error.contains("keeps 2, 1"),
        "{error}"
    );
}

#[test]
fn a_flipped_bit_is_found_by_inspect() {
    let (dev, cities) = with_cities();
    let version = dev.path("version");
    let output = version.to_str().unwrap();
    dev.done(&["build", "cities", &cities, "--key", "id", "--output", output]);
    let files: Vec<_> = fs::read_dir(&version)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let data = files
        .iter()
        .find(|path| path.extension().is_some_and(|e| e == "data"))
        .unwrap();
    dev.done(&["inspect", data.to_str().unwrap()]);
    let mut bytes = fs::read(data).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(data, bytes).unwrap();
    for arguments in [
        &["inspect", data.to_str().unwrap()][..],
        &["inspect", version.to_str().unwrap(), "--verify"],
    ] {
        let error = dev.refused(1, arguments);
        assert!(error.contains(data.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_missing_key_has_its_own_exit_code() {
    let (dev, cities) = with_cities();
    dev.done(&["push", "cities", &cities, "--key", "id", "--value", "name", "--create"]);
    assert!(dev.refused(1, &["get", "cities:77"]).contains("has no key \"77\""));
    assert!(dev.refused(1, &["get", "towns:7"]).contains("no store \"towns\""));
    assert!(dev.refused(2, &["get", "nothing"]).contains("store:key"));
    let output = dev.run(&["mget", "cities:7", "cities:77"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "cities:7\tVenezia\n");
    assert_eq!(output.status.code(), Some(1));
    let found = dev.json(&["mget", "cities:7", "cities:8"]);
    assert_eq!(found[1]["value"]["utf8"], "Genova");
}

#[test]
fn scan_prints_every_key_once_up_to_the_limit() {
    let dev = Dev::start();
    dev.push("many", (0..3000).map(|n| (format!("k{n}"), n.to_string())));
    dev.push("other", [("k0".to_owned(), "x".to_owned())]);
    let text = dev.done(&["scan", "many"]);
    let mut keys: Vec<&str> = text.lines().collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 3000);
    assert!(keys.iter().all(|key| key.starts_with("many:k")));
    assert_eq!(dev.done(&["scan", "many", "--limit", "10"]).lines().count(), 10);
    assert_eq!(dev.done(&["scan", "many", "--match", "k299?"]).lines().count(), 10);
    let line = dev.done(&["scan", "other", "--json"]);
    assert_eq!(line.trim_end(), r#"{"key":"other:k0"}"#);
    assert!(dev.refused(1, &["scan", "none"]).contains("NOSTORE"));
}

#[test]
fn stores_are_listed_altered_and_dropped() {
    let (dev, cities) = with_cities();
    dev.done(&["push", "cities", &cities, "--key", "id", "--create"]);
    assert_eq!(dev.json(&["store", "alter", "cities", "--backups", "3"])["backups"], 3);
    assert_eq!(dev.json(&["store", "show", "cities"])["versions"][0]["records"], 3);
    assert!(dev.refused(1, &["store", "create", "cities"]).contains("exists"));
    assert!(
        dev.refused(2, &["store", "create", "no:colons"])
            .contains("invalid store name")
    );
    assert!(dev.refused(1, &["store", "drop", "cities"]).contains("--yes"));
    dev.done(&["store", "drop", "cities", "--yes"]);
    assert_eq!(dev.json(&["store", "list"])["stores"].as_array().unwrap().len(), 0);
}

#[test]
fn settings_change_at_runtime_and_persist() {
    let dir = tempfile::tempdir().unwrap();
    let node = super::node::Node::dev(dir.path());
    node.done(&["config", "set", "clients-max=77", "client-idle-seconds=5"]);
    assert!(
        node.refused(1, &["config", "set", "clients-max=0"])
            .contains("from 1 to")
    );
    assert!(
        node.refused(2, &["config", "set", "clients-max"])
            .contains("NAME=VALUE")
    );
    assert_eq!(node.terminate(), Some(0));
    let node = super::node::Node::dev(dir.path());
    let settings = node.json(&["config", "show"]);
    let settings = settings["settings"].as_array().unwrap();
    let value = |name| settings.iter().find(|s| s["name"] == name).unwrap()["value"].as_u64();
    assert_eq!(
        (value("clients-max"), value("client-idle-seconds")),
        (Some(77), Some(5))
    );
}

#[test]
fn the_error_for_an_unreachable_node_says_what_to_do() {
    // A port that was free a moment ago, without a listener.
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let output = fondaco()
        .args(["status", "--http", &address.to_string()])
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains(&address.to_string()) && error.contains("fondaco dev"),
        "{error}"
    );
}

#[test]
fn a_second_node_on_the_same_data_is_refused() {
    let dev = Dev::start();
    let output = fondaco()
        .args(["dev", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"])
        .arg(dev.path("data"))
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let named = format!("in use by the process with pid {}", dev.pid());
    assert!(error.contains(&named), "{error}");
}

#[test]
fn every_command_has_help_with_an_example() {
    let help = |arguments: &[&str]| {
        let output = fondaco().args(arguments).arg("--help").output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let commands = [
        "dev",
        "server",
        "router",
        "controller",
        "push",
        "build",
        "deploy",
        "cancel",
        "versions",
        "rollback",
        "swap",
        "get",
        "mget",
        "scan",
        "status",
        "nodes",
        "backup",
        "restore",
        "inspect",
        "completions",
    ];
    for command in commands {
        assert!(
            help(&[command]).contains(&format!("Example:\n  fondaco {command}")),
            "{command}"
        );
    }
    for group in [
        (
            "store",
            &["create", "list", "show", "poison", "partition", "alter", "drop"][..],
        ),
        ("config", &["show", "set"]),
        ("user", &["list", "put", "drop"]),
        (
            "rebalance",
            &["plan", "run", "status", "list", "pause", "resume", "cancel"],
        ),
    ] {
        for command in group.1 {
            let text = help(&[group.0, command]);
            assert!(
                text.contains(&format!("Example:\n  fondaco {} {command}", group.0)),
                "{command}"
            );
        }
    }
    let completions = fondaco().args(["completions", "bash"]).output().unwrap();
    assert!(String::from_utf8(completions.stdout).unwrap().contains("rollback"));
    assert_eq!(fondaco().arg("--nonsense").output().unwrap().status.code(), Some(2));
}
