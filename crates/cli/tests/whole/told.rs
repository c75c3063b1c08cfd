//! Errors of the command line, and the few arguments that it needs.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::node::{Dev, Node, fondaco, of_csv, write_csv};

fn rows(count: usize) -> impl Iterator<Item = (String, String)> {
    (0..count).map(|n| (format!("k{n}"), format!("value of {n}")))
}

/// The error output of a command with only these arguments.
fn error(arguments: &[&str]) -> String {
    let output = fondaco().args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn one_address_of_either_port_is_enough() {
    let dev = Dev::start();
    dev.push("a", rows(3));
    for address in [["--http", &dev.http], ["--resp", &dev.resp]] {
        for command in [&["get", "a:k1"][..], &["mget", "a:k1"], &["scan", "a"], &["status"]] {
            let output = fondaco().args(command).args(address).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?} {address:?}: {errors}");
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(
                text.contains("k1") || text.contains("value of 1") || text.contains("ready"),
                "{text}"
            );
        }
    }
}

#[test]
fn the_error_for_a_wrong_port_names_its_protocol() {
    let dev = Dev::start();
    let said = error(&["status", "--http", &dev.resp]);
    assert!(
        said.contains("speaks RESP") && said.contains(&format!("--resp {}", dev.resp)),
        "{said}"
    );
    let said = error(&["scan", "a", "--resp", &dev.http]);
    assert!(
        said.contains("speaks HTTP") && said.contains(&format!("--http {}", dev.http)),
        "{said}"
    );
    let said = error(&["status", "--tls", "--http", &dev.http]);
    assert!(said.contains("does not use TLS: omit --tls"), "{said}");
    let said = error(&["scan", "a", "--tls", "--resp", &dev.resp]);
    assert!(said.contains("does not use TLS: omit --tls"), "{said}");
}

#[test]
fn a_write_to_a_store_that_takes_none_names_its_kind() {
    let dev = Dev::start();
    dev.done(&["store", "create", "h", "--kind", "hybrid", "--stream", "log"]);
    dev.push("b", rows(1));
    let mut redis = dev.redis();
    let writes = [
        &["APPEND", "KEY", "v"][..],
        &["EXPIRE", "KEY", "10"],
        &["SET", "KEY", "v"],
        &["DEL", "KEY"],
        &["INCR", "KEY"],
        &["MSET", "KEY", "v"],
    ];
    // Events have no expiry of their own, and do not depend on the value.
    let of_hybrid = &writes[..2];
    for (key, writes, kind, other) in [
        ("h:k", of_hybrid, "a hybrid store", "batch store"),
        ("b:k", &writes[..], "a batch store", "hybrid"),
    ] {
        for write in writes {
            let words = write.iter().map(|&word| if word == "KEY" { key } else { word });
            let mut command = redis::Cmd::new();
            words.for_each(|word| _ = command.arg(word));
            let refused = command.exec(&mut redis).unwrap_err().to_string();
            assert!(
                refused.contains(kind) && !refused.contains(other),
                "{write:?} {key}: {refused}"
            );
        }
    }
}

#[test]
fn errors_for_programs_are_json_with_a_code() {
    let dev = Dev::start();
    for (code, exit, arguments) in [
        ("store_not_found", 1, &["store", "show", "none"][..]),
        ("wrong_usage", 2, &["get", "nocolon"]),
        ("wrong_usage", 2, &["status", "--nonsense"]),
        ("unreachable", 1, &["status", "--http", "127.0.0.1:1"]),
    ] {
        let said = dev.refused(exit, &[arguments, &["--json"]].concat());
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["error"]["code"], code, "{said}");
        assert!(!said["error"]["message"].as_str().unwrap().is_empty(), "{said}");
    }
}

#[test]
fn no_error_names_a_path_of_the_control_port() {
    let dev = Dev::start();
    let said = dev.refused(1, &["store", "show", "none"]);
    assert!(said.contains("fondaco store list") && !said.contains("/v1/"), "{said}");
}

#[test]
fn a_push_to_a_versioned_store_is_refused_first() {
    let dev = Dev::start();
    dev.done(&["store", "create", "carts", "--kind", "versioned"]);
    // The input does not exist, so nothing could be built.
    let said = dev.refused(1, &["push", "carts", "/none.csv", "--key", "key", "--value", "value"]);
    assert!(
        said.contains("is versioned") && said.contains("SET carts:KEY"),
        "{said}"
    );
}

#[test]
fn two_concurrent_pushes_that_create_the_store_both_succeed() {
    let dev = Dev::start();
    let pushes: Vec<_> = (0..2)
        .map(|number| {
            let path = dev.csv(&format!("{number}.csv"), rows(1000 + number));
            let mut command = dev.command(&of_csv("push", "s", &path, &["--create"]));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for push in pushes {
        let output = push.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(dev.json(&["store", "show", "s"])["current_version"], 2);
}

#[test]
fn a_mysql_store_is_refused_if_nodes_have_no_database() {
    let dev = Dev::start();
    let said = dev.refused(1, &["store", "create", "m", "--kind", "versioned", "--engine", "mysql"]);
    assert!(
        said.contains("node 1 has no MySQL database") && said.contains("[versioned]"),
        "{said}"
    );
    assert_eq!(dev.json(&["store", "list"])["stores"], json!([]));
}

/// A node that accepts no push, because its required free space exceeds its disk.
fn full_node(dir: &Path) -> Node {
    let path = dir.join("fondaco.toml");
    let data = dir.join("data");
    let text = format!("data = {data:?}\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ndisk-reserve = \"100TiB\"\n");
    fs::write(&path, text).unwrap();
    Node::server(&path)
}

#[test]
fn a_failed_push_keeps_its_build_for_a_retry() {
    let dir = tempfile::tempdir().unwrap();
    let node = full_node(dir.path());
    let csv = dir.path().join("s.csv");
    write_csv(&csv, rows(100));
    // On another file system than the node's data, so that files are copied and need room.
    let work = tempfile::tempdir_in("/dev/shm").unwrap();
    let work = work.path();
    let more = ["--create", "--work", work.to_str().unwrap()];
    let said = node.refused(1, &of_csv("push", "s", &csv, &more));
    let kept = said
        .split("fondaco deploy s ")
        .nth(1)
        .unwrap()
        .split(": ")
        .next()
        .unwrap();
    assert!(Path::new(kept).starts_with(fs::canonicalize(work).unwrap()), "{said}");
    let inspected = node.done(&["inspect", kept, "--verify"]);
    assert!(inspected.contains("100"), "{inspected}");
}

#[test]
fn durations_and_sizes_are_accepted_and_shown_with_units() {
    let dev = Dev::start();
    dev.done(&["store", "create", "carts", "--kind", "versioned", "--ttl", "1h"]);
    let shown = dev.done(&["store", "show", "carts"]);
    assert!(shown.contains("values live 1h unless"), "{shown}");
    assert!(shown.contains("tombstones are kept for 10days"), "{shown}");
    assert!(shown.contains('Z'), "a time has its zone: {shown}");
    let said = dev.refused(2, &["store", "alter", "carts", "--ttl", "60"]);
    assert!(said.contains("90s, 1h or 10days"), "{said}");
    let changed = dev.done(&["config", "set", "forward-timeout-ms=2s", "bulk-bytes-max=1MiB"]);
    assert!(changed.contains("forward-timeout-ms: 1s -> 2s\n"), "{changed}");
    assert!(changed.contains("bulk-bytes-max: 16MiB -> 1MiB\n"), "{changed}");
}

#[test]
fn a_reader_that_closes_the_pipe_ends_a_command_without_an_error() {
    let dev = Dev::start();
    dev.push("a", rows(5000));
    let commands: [&[&str]; 14] = [
        &["scan", "a"],
        &["scan", "a", "--json"],
        &["get", "a:k1"],
        &["mget", "a:k1", "a:k2"],
        &["mget", "a:k1", "--json"],
        &["status"],
        &["status", "--json"],
        &["versions", "a", "--json"],
        &["store", "list", "--json"],
        &["store", "show", "a"],
        &["config", "show", "--json"],
        &["audit", "--json"],
        &["why"],
        &["completions", "bash"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = dev.command(arguments).stdout(writer).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.is_empty(), "{arguments:?}: {told}");
    }
}
