//! Pushes that are tried again, as a scheduler does after a lost answer: nothing is deployed twice, and the way back stays.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use fondaco_testing::{Answer, relay};
use serde_json::{Value, json};

use super::node::{Dev, Node, of_csv, until, wait};

const STORE: &str = "s";

fn rows(dev: &Dev, content: &str, count: usize) -> PathBuf {
    let value = content.repeat(20);
    dev.csv(
        &format!("{content}.csv"),
        (0..count).map(|key| (key.to_string(), value.clone())),
    )
}

fn arguments<'a>(rows: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    of_csv("push", STORE, rows, &[&["--create"], more].concat())
}

fn push(node: &Node, rows: &Path, more: &[&str]) -> Value {
    node.json(&arguments(rows, more))["push"].clone()
}

fn spawn(node: &Node, rows: &Path, more: &[&str]) -> Child {
    let mut command = node.command(&arguments(rows, more));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The versions of the store, the current one first.
fn versions(node: &Node) -> Vec<u64> {
    let list = node.http_get("/v1/stores/s/versions");
    let versions = list["versions"].as_array().unwrap().iter();
    versions.map(|version| version["version"].as_u64().unwrap()).collect()
}

fn says(node: &Node, content: &str) {
    assert_eq!(node.done(&["get", "s:7"]), content.repeat(20));
}

#[test]
fn content_that_is_current_is_not_deployed_again_and_the_way_back_stays() {
    let dev = Dev::start();
    let [a, b] = ["a", "b"].map(|content| rows(&dev, content, 50));
    push(&dev, &a, &[]);
    push(&dev, &b, &[]);
    let repeated = push(&dev, &b, &[]);
    assert_eq!((&repeated["version"], &repeated["repeated"]), (&json!(2), &json!(true)));
    let text = dev.done(&arguments(&b, &[]));
    assert!(
        text.contains("whose content is the same") && text.contains("--again"),
        "{text}"
    );
    let uploaded = push(&dev, &b, &["--upload"]);
    assert_eq!(uploaded["repeated"], true);
    assert_eq!(versions(&dev), [2, 1]);
    assert_eq!(push(&dev, &b, &["--again"])["version"], 3);
    assert_eq!(versions(&dev), [3, 2]);
    push(&dev, &a, &[]);
    push(&dev, &a, &[]);
    dev.done(&["rollback", STORE]);
    says(&dev, "b");
    // After the way back the other content is another one than the current one's.
    assert_eq!(push(&dev, &a, &[])["version"], 5);
    says(&dev, "a");
}

#[test]
fn a_run_that_is_tried_again_has_the_answer_of_the_first_try() {
    let dev = Dev::start();
    let [a, b] = ["a", "b"].map(|content| rows(&dev, content, 50));
    assert_eq!(push(&dev, &a, &["--run", "daily/1+0"])["run"], "daily/1+0");
    push(&dev, &b, &["--run", "daily/2+0"]);
    // An answer that was lost: the retry comes after the next run, and its input is gone.
    let gone = dev.path("gone.csv");
    let again = push(&dev, &gone, &["--run", "daily/1+0"]);
    assert_eq!((&again["version"], &again["repeated"]), (&json!(1), &json!(true)));
    says(&dev, "b");
    // The same content has an answer, too, and keeps it.
    assert_eq!(push(&dev, &b, &["--run", "daily/3+0"])["version"], 2);
    push(&dev, &a, &["--run", "daily/4+0"]);
    assert_eq!(push(&dev, &b, &["--run", "daily/3+0"])["version"], 2);
    says(&dev, "a");
    // Differences are not applied to what they have made already.
    let difference = ["--run", "daily/5+0", "--incremental"];
    let columns = ["push", STORE, b.to_str().unwrap(), "--key", "key", "--value", "value"];
    let incremental = [&columns[..], &difference].concat();
    let first = dev.json(&incremental)["push"]["version"].clone();
    assert_eq!(dev.json(&incremental)["push"]["version"], first);
    assert_eq!(
        push(&dev, &b, &["--run", "daily/6+0", "--upload", "--again"])["repeated"],
        false
    );
    assert_eq!(
        push(&dev, &b, &["--run", "daily/6+0", "--upload", "--again"])["repeated"],
        true
    );
    let kept = versions(&dev);

    // It is among the records of the cluster, not in the memory of the process.
    let (node, dir) = dev.into_parts();
    node.kill();
    let node = Node::dev(&dir.path().join("data"));
    assert_eq!(push(&node, &gone, &["--run", "daily/1+0"])["version"], 1);
    assert_eq!(versions(&node), kept);
    let named = node.http_post(
        "/v1/stores/s/pushes",
        json!({"source": "file:///absent", "run": "daily/1+0"}),
    );
    assert_eq!((&named["version"], &named["repeated"]), (&json!(1), &json!(true)));
    let url = format!("http://{}/v1/stores/s/pushes", node.http);
    let body = json!({"source": "file:///absent"});
    let mut answer = ureq::post(url)
        .header("Idempotency-Key", "daily/1+0")
        .content_type("application/json")
        .send(body.to_string())
        .unwrap();
    let answer: Value = serde_json::from_reader(answer.body_mut().as_reader()).unwrap();
    assert_eq!(answer["version"], 1);
}

#[test]
fn tries_at_the_same_time_join_and_a_cancelled_run_stays_cancelled() {
    let dev = Dev::start();
    let large = rows(&dev, "a", 50_000);
    push(&dev, &rows(&dev, "b", 50), &[]);
    // There is time for the second try, and to cancel.
    dev.done(&["config", "set", "fetch-rate-bytes-per-second=1000"]);
    let mut tries = [(), ()].map(|()| spawn(&dev, &large, &["--run", "r", "--json"]));
    until("the push is under way", || {
        dev.http_get("/v1/stores/s/push")["run"] == "r"
    });
    dev.done(&["config", "set", "fetch-rate-bytes-per-second=0"]);
    tries.iter_mut().for_each(|child| assert!(wait(child).success()));
    assert_eq!(versions(&dev), [2, 1]);

    dev.done(&["config", "set", "fetch-rate-bytes-per-second=1000"]);
    let mut cancelled = spawn(&dev, &large, &["--run", "c", "--again"]);
    until("the push is under way", || {
        dev.http_get("/v1/stores/s/push")["run"] == "c"
    });
    dev.done(&["cancel", STORE]);
    assert!(!wait(&mut cancelled).success());
    dev.done(&["config", "set", "fetch-rate-bytes-per-second=0"]);
    let refused = dev.refused(1, &arguments(&large, &["--run", "c", "--again"]));
    assert!(
        refused.contains("cancelled") && refused.contains("name another --run"),
        "{refused}"
    );
    let refused = dev.refused(1, &arguments(&large, &["--run", "c", "--again", "--json"]));
    assert!(refused.contains(r#""code":"run_failed""#), "{refused}");
    assert_eq!(push(&dev, &large, &["--run", "d", "--again"])["state"], "swapped");
}

/// A way to a node on which the answer to the first request for a push is lost. Returns its address.
fn losing_an_answer(node: &Node) -> String {
    let has_lost = AtomicBool::new(false);
    relay(&node.http, move |request| {
        let begins_push = request.starts_with(b"POST /v1/stores/s/pushes ");
        match begins_push && !has_lost.swap(true, SeqCst) {
            true => Answer::IsLost,
            false => Answer::Arrives,
        }
    })
}

#[test]
fn a_lost_answer_is_asked_for_again() {
    let [first, second] = [Dev::start(), Dev::start()];
    let rows = rows(&first, "a", 50);
    let to = format!("{},{}", first.http, losing_an_answer(&second));
    let rolled = first.json(&arguments(&rows, &["--to", &to]));
    let states: Vec<&Value> = rolled["clusters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["state"])
        .collect();
    assert_eq!(states, ["swapped", "swapped"], "{rolled}");
    for node in [&first, &second] {
        says(node, "a");
        assert_eq!(versions(node), [1], "nothing was deployed twice");
    }
    // With an id of the caller's, too, and to one cluster.
    let way = losing_an_answer(&second);
    let again = first.json(&arguments(&rows, &["--run", "r", "--again", "--http", &way]));
    assert_eq!(again["push"]["version"], 2, "{again}");
    assert_eq!(versions(&second), [2, 1]);
}
