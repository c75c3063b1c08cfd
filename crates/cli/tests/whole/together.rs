//! Several clusters serve a version together, or none does: gates, canaries, clusters that do not answer, lost answers, and a push that is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use fondaco_testing::{Answer, Proxy, relay};
use serde_json::{Value, json};

use super::node::{Dev, Node, of_csv, until, wait};

const STORE: &str = "s";

/// How many keys the first versions have.
const KEYS: usize = 200;

/// Two clusters that serve a first version, the second one with this number of keys.
fn serving(keys_of_second: usize) -> [Dev; 2] {
    [KEYS, keys_of_second].map(|keys| {
        let dev = Dev::start();
        dev.push(STORE, rows("first", keys));
        dev
    })
}

fn rows(content: &str, keys: usize) -> impl Iterator<Item = (String, String)> {
    (0..keys).map(move |key| (key.to_string(), content.repeat(20)))
}

/// Builds a version that both clusters can fetch.
fn build(dev: &Dev, content: &str, keys: usize) -> PathBuf {
    build_for(dev, STORE, content, keys)
}

fn build_for(dev: &Dev, store: &str, content: &str, keys: usize) -> PathBuf {
    let csv = dev.csv(&format!("{content}.csv"), rows(content, keys));
    let version = dev.path(&format!("built-{content}"));
    let partitions = dev.http_get("/v1/status")["partitions"].to_string();
    let output = ["--partitions", &partitions, "--output", version.to_str().unwrap()];
    dev.done(&of_csv("build", store, &csv, &output));
    version
}

/// A command that is given its clusters only by `--to`.
fn to(clusters: &[&str], arguments: &[&str]) -> Child {
    let mut command = super::node::fondaco();
    command.args(arguments).args(["--json", "--to", &clusters.join(",")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn deploy(clusters: &[&str], version: &Path, more: &[&str]) -> Child {
    to(
        clusters,
        &[&["deploy", STORE, version.to_str().unwrap()], more].concat(),
    )
}

/// The states in the clusters, and what the command says on standard error; it ends with this code.
fn ended(mut command: Child, code: i32) -> (Vec<String>, String) {
    wait(&mut command);
    let output = command.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let clusters = result["clusters"].as_array().cloned().unwrap_or_default();
    let state = |one: &Value| one["state"].as_str().unwrap().to_owned();
    (clusters.iter().map(state).collect(), said)
}

fn last_push(node: &Node) -> Value {
    node.http_get("/v1/stores/s/push")
}

/// The versions of the store, the current one first.
fn versions(node: &Node) -> Vec<u64> {
    let list = node.http_get("/v1/stores/s/versions");
    let versions = list["versions"].as_array().unwrap().iter();
    versions.map(|version| version["version"].as_u64().unwrap()).collect()
}

/// A cluster fetches so slowly that it does not end before it is told to.
fn hold_back(node: &Node, is_slow: bool) {
    let rate = if is_slow { 1 } else { 0 };
    node.done(&["config", "set", &format!("fetch-rate-bytes-per-second={rate}")]);
}

#[test]
fn a_version_that_a_gate_stops_in_one_cluster_goes_live_in_none() {
    let [east, west] = serving(2 * KEYS);
    let version = build(&east, "second", KEYS);
    let clusters = [&*east.http, &*west.http];
    let (states, said) = ended(deploy(&clusters, &version, &["--gate", "gone <= 5%"]), 1);
    assert_eq!(states, ["dropped", "held"], "{said}");
    assert!(
        said.contains("200 of 400 keys") && said.contains("gone <= 5%"),
        "{said}"
    );
    let swap = format!("fondaco swap s --to 2 --http http://{}", west.http);
    assert!(said.contains(&swap), "{said}");
    assert_eq!((versions(&east), versions(&west)), (vec![1], vec![1]));
    assert_eq!(last_push(&east)["state"], "cancelled");
    // It stays for inspection, and for an operator who swaps it in all the same.
    assert_eq!(west.json(&["diff", STORE, "1", "2"])["gone"], KEYS);
    west.done(&["swap", STORE, "--to", "2"]);
    // The cluster that has it is not asked for more.
    let (states, said) = ended(deploy(&clusters, &version, &["--gate", "gone <= 5%"]), 0);
    assert_eq!(states, ["swapped", "swapped"], "{said}");
    assert_eq!((versions(&east), versions(&west)), (vec![3, 1], vec![2, 1]));

    // A check of the program counts as a gate, and a store that is missing as a cluster that fails.
    let third = build(&east, "third", KEYS);
    let check = format!("test $FONDACO_HTTP != http://{}", west.http);
    let (states, said) = ended(deploy(&clusters, &third, &["--gate-command", &check]), 1);
    assert_eq!(states, ["dropped", "held"], "{said}");
    let other = Dev::start();
    let (states, said) = ended(deploy(&[&east.http, &other.http], &third, &[]), 1);
    assert_eq!(states, ["dropped", "failed"], "{said}");
    assert_eq!((versions(&east), versions(&west)), (vec![3, 1], vec![2, 1]));
    let (_, said) = ended(deploy(&clusters, &third, &["--gate", "confirm"]), 1);
    assert!(said.contains("waits for an operator"), "{said}");
}

#[test]
fn a_canary_that_fails_rolls_the_version_back_where_it_is_current() {
    let [east, west] = serving(2 * KEYS);
    let version = build(&east, "second", KEYS);
    // The answer to the first rollback is lost, too.
    let has_lost = AtomicBool::new(false);
    let way = relay(&east.http, move |request| {
        let goes_back = request.starts_with(b"POST /v1/stores/s/rollback");
        match goes_back && !has_lost.swap(true, SeqCst) {
            true => Answer::IsLost,
            false => Answer::Arrives,
        }
    });
    let canary = ["--canary", "100%", "--canary-time", "10m", "--canary-min-reads", "5"];
    let command = deploy(&[&way, &west.http], &version, &canary);
    until("the first canary runs", || {
        last_push(&east)["canary"]["state"] == "running"
    });
    assert_eq!((versions(&west), &last_push(&west)["state"]), (vec![1], &json!("held")));
    east.done(&["canary", STORE, "promote"]);
    until("the second canary runs", || {
        last_push(&west)["canary"]["state"] == "running"
    });
    assert_eq!(versions(&east), [2, 1]);
    let mut redis = west.redis();
    until("the canary is rolled back", || {
        for key in 0..2 * KEYS {
            let _: Option<String> = redis::Commands::get(&mut redis, format!("s:{key}")).unwrap();
        }
        last_push(&west)["state"] == "failed"
    });
    let (states, said) = ended(command, 1);
    assert_eq!(states, ["rolled_back", "failed"], "{said}");
    assert!(said.contains("keys are missing") && said.contains(&west.http), "{said}");
    assert_eq!((versions(&east), versions(&west)), (vec![1, 2], vec![1]));
    assert_eq!(east.done(&["get", "s:7"]), "first".repeat(20));
}

#[test]
fn a_cluster_that_does_not_answer_ends_the_push_in_the_others() {
    let [east, west] = serving(KEYS);
    let version = build(&east, "second", KEYS);
    let port = west.http.rsplit_once(':').unwrap().1.parse().unwrap();
    let link = Proxy::to(port);
    let address = link.address();
    let clusters = [&*east.http, &*address];
    hold_back(&west, true);
    let command = deploy(&clusters, &version, &["--retry-time", "1s"]);
    until("one has it, and the other fetches it", || {
        last_push(&east)["awaits_confirmation"] == true && last_push(&west)["state"] == "fetching"
    });
    link.cut();
    let (states, said) = ended(command, 1);
    assert_eq!(states, ["dropped", "unreachable"], "{said}");
    let look = format!("fondaco versions s --http http://{address}");
    assert!(said.contains(&look) && said.contains("asking again"), "{said}");
    // Without a confirmation it goes live nowhere.
    hold_back(&west, false);
    until("it is fetched", || last_push(&west)["awaits_confirmation"] == true);
    assert_eq!((versions(&east), versions(&west)), (vec![1], vec![1]));
    // Before anything has begun, too.
    let (states, said) = ended(deploy(&clusters, &version, &["--retry-time", "1s"]), 1);
    assert!(states.is_empty() && said.contains("nothing was begun"), "{said}");
    let partial = ["--retry-time", "1s", "--partial"];
    let third = build(&east, "third", KEYS);
    let (states, said) = ended(deploy(&clusters, &third, &partial), 1);
    assert_eq!(states, ["swapped", "unreachable"], "{said}");
    assert_eq!(versions(&east), [3, 1]);
    link.heal();
    let (states, said) = ended(deploy(&clusters, &version, &[]), 0);
    assert_eq!(states, ["swapped", "swapped"], "{said}");
    assert_eq!((versions(&east), versions(&west)), (vec![4, 3], vec![3, 1]));
}

#[test]
fn a_killed_push_is_continued_by_the_same_command() {
    let [east, west] = serving(KEYS);
    let clusters = [&*east.http, &*west.http];
    let version = build(&east, "second", KEYS);
    let pause = ["--pause", "4s"];
    hold_back(&west, true);
    let mut command = deploy(&clusters, &version, &pause);
    until("one has it, and the other fetches it", || {
        last_push(&east)["awaits_confirmation"] == true && last_push(&west)["state"] == "fetching"
    });
    command.kill().unwrap();
    command.wait().unwrap();
    let mut command = deploy(&clusters, &version, &pause);
    hold_back(&west, false);
    until("the first one has swapped", || versions(&east)[0] == 2);
    command.kill().unwrap();
    command.wait().unwrap();
    assert_eq!(last_push(&west)["awaits_confirmation"], true);
    let (states, said) = ended(deploy(&clusters, &version, &pause), 0);
    assert_eq!(states, ["swapped", "swapped"], "{said}");
    assert_eq!((versions(&east), versions(&west)), (vec![2, 1], vec![2, 1]));

    // One that was killed while it gave the version up goes back everywhere, and is tried anew.
    let third = build(&east, "third", KEYS);
    let mut command = deploy(&clusters, &third, &["--pause", "1h"]);
    until("the first one has swapped", || versions(&east)[0] == 3);
    command.kill().unwrap();
    command.wait().unwrap();
    west.done(&["cancel", STORE]);
    let check = format!("test $FONDACO_HTTP != http://{}", west.http);
    let (states, said) = ended(deploy(&clusters, &third, &["--gate-command", &check]), 1);
    assert_eq!(states, ["dropped", "held"], "{said}");
    assert_eq!((versions(&east)[0], versions(&west)[0]), (2, 2));
}

#[test]
fn a_push_of_rows_that_is_killed_is_continued_by_the_same_command() {
    let [east, west] = serving(KEYS);
    let csv = east.csv("second.csv", rows("second", KEYS));
    let push = of_csv("push", STORE, &csv, &["--pause", "1h"]);
    let clusters = [&*east.http, &*west.http];
    let mut command = to(&clusters, &push);
    until("the first one has swapped", || versions(&east)[0] == 2);
    command.kill().unwrap();
    command.wait().unwrap();
    let (states, said) = ended(to(&clusters, &of_csv("push", STORE, &csv, &[])), 0);
    assert_eq!(states, ["swapped", "swapped"], "{said}");
    assert_eq!((versions(&east), versions(&west)), (vec![2, 1], vec![2, 1]));
}

#[test]
fn lost_answers_are_asked_for_again_and_nothing_is_done_twice() {
    let [east, west] = serving(KEYS);
    let csv = east.csv("second.csv", rows("second", KEYS));
    let lost = Arc::new([const { AtomicBool::new(false) }; 3]);
    let way = relay(&west.http, {
        let lost = Arc::clone(&lost);
        move |request| {
            let heads: [&[u8]; 3] = [
                b"POST /v1/stores/s/pushes ",
                b"GET /v1/stores/s/push?run=",
                b"POST /v1/stores/s/push/confirmation ",
            ];
            let which = heads.iter().position(|head| request.starts_with(head));
            match which.is_some_and(|which| !lost[which].swap(true, SeqCst)) {
                true => Answer::IsLost,
                false => Answer::Arrives,
            }
        }
    });
    let names = format!("east={},west={way}", east.http);
    let push = of_csv("push", STORE, &csv, &["--clusters", &names]);
    let (states, said) = ended(to(&["east", "west"], &push), 0);
    assert_eq!(states, ["swapped", "swapped"], "{said}");
    assert!(lost.iter().all(|lost| lost.load(SeqCst)));
    assert_eq!((versions(&east), versions(&west)), (vec![2, 1], vec![2, 1]));
    let (_, said) = ended(to(&["east", "north"], &push), 2);
    assert!(said.contains("--to north"), "{said}");
}

#[test]
fn sets_of_stores_go_live_together_in_each_cluster() {
    let [east, west] = serving(KEYS);
    for cluster in [&east, &west] {
        cluster.push("t", rows("first", KEYS));
    }
    let second = build(&east, "second", KEYS);
    let with = format!("t={}", build_for(&east, "t", "other", KEYS).display());
    let clusters = [&*east.http, &*west.http];
    let (states, said) = ended(deploy(&clusters, &second, &["--with", &with]), 0);
    assert_eq!(states, ["swapped", "swapped"], "{said}");
    for cluster in [&east, &west] {
        assert_eq!(cluster.done(&["get", "t:7"]), "other".repeat(20));
        assert_eq!(versions(cluster), [2, 1]);
    }
}
