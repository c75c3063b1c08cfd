//! Machines on demand: the hook starts real nodes, hangs, fails and answers rubbish, and leaders die meanwhile.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use fondaco_testing::{CpuGroup, serve_http};
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::{Readers, none_since};

/// A hook whose calls are written down, and which fails as it is told to.
struct Hook {
    dir: PathBuf,
}

/// How controllers reach the hook.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Command,
    Url,
}

/// Has a script answer what is posted to a web server; returns the server's URL.
fn served(script: PathBuf) -> String {
    let address = serve_http(move |_, body| Some(run(&script, &body))).unwrap();
    format!("http://{address}/machines")
}

/// The answer of a script to this input, in the form of a web server: a failure has the errors of the script as its text.
fn run(script: &Path, body: &[u8]) -> (&'static str, Vec<u8>) {
    let mut child = Command::new(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap();
    match output.status.success() {
        true => ("200 OK", output.stdout),
        false => ("503 Service Unavailable", output.stderr),
    }
}

impl Hook {
    /// Has the controllers of a cluster use a hook, with these lines in `[machines]`.
    fn of(cluster: &mut Cluster, way: Way, lines: &str) -> Self {
        let dir = cluster.dir.path().join("hook");
        fs::create_dir(&dir).unwrap();
        let hook = Self { dir };
        let node = format!(
            "loops = 1\n[zookeeper]\nconnect = {:?}\nroot = {:?}\nsession-timeout-ms = 4000\n",
            cluster.zookeeper, cluster.root
        );
        fs::write(hook.dir.join("node.toml"), node).unwrap();
        let script = format!(
            "#!/bin/sh\nbody=$(cat)\necho \"$body\" >> {calls}\ncase $(cat {mood}) in\n\
             hangs) sleep 30 & wait;;\nfails) echo 'no quota' >&2; exit 3;;\nrubbish) echo 'Bad Gateway';;\n\
             *) echo \"$body\" | {program} hook local --config {config} --directory {machines};;\nesac\n",
            calls = hook.dir.join("calls").display(),
            mood = hook.dir.join("mood").display(),
            program = env!("CARGO_BIN_EXE_fondaco"),
            config = hook.dir.join("node.toml").display(),
            machines = hook.machines().display(),
        );
        hook.feels("well");
        let path = hook.dir.join("hook.sh");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let how = match way {
            Way::Command => format!("hook-command = [{path:?}]"),
            Way::Url => format!("hook-url = {:?}", served(path)),
        };
        let section =
            format!("[machines]\n{how}\nhook-timeout-seconds = 10\ncool-down-seconds = 2\ncalm-seconds = 4\n{lines}\n");
        cluster.protect("", &section);
        hook
    }

    fn feels(&self, mood: &str) {
        let next = self.dir.join("mood.next");
        fs::write(&next, mood).unwrap();
        fs::rename(&next, self.dir.join("mood")).unwrap();
    }

    fn machines(&self) -> PathBuf {
        self.dir.join("machines")
    }

    /// The calls so far with this action, each with the name of its request.
    fn calls(&self, action: &str) -> Vec<String> {
        let text = fs::read_to_string(self.dir.join("calls")).unwrap_or_default();
        let calls = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let calls = calls.filter(|call| call["action"] == action);
        calls.map(|call| call["request"].as_str().unwrap().to_owned()).collect()
    }

    /// How many nodes it runs.
    fn running(&self) -> usize {
        let entries = fs::read_dir(self.machines()).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().join("node.json").exists()).count()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // A test that failed leaves its nodes behind: their arguments have its directory.
        let machines = self.machines().display().to_string();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw)
                && String::from_utf8_lossy(&arguments).contains(&machines)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// A cluster of two nodes that are asked for something all the time, and act by themselves within seconds.
fn asked(way: Way, lines: &str) -> (Cluster, Hook, Readers) {
    let mut cluster = Cluster::prepare_shared(Shape {
        nodes: 2,
        replicas: 1,
        controllers: 2,
        ..Shape::default()
    });
    let hook = Hook::of(&mut cluster, way, lines);
    cluster.launch_until_ready();
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    cluster
        .any()
        .done(&["balance", "--mode", "act", "--window", "2s", "--cool-down", "2s"]);
    // Only the requests count, whatever else this machine has to do.
    for resource in ["cpu", "memory", "disk"] {
        let settings = ["percent=100", "calm-percent=100"].map(|name| format!("balance-{resource}-{name}"));
        let settings = settings.each_ref().map(String::as_str);
        cluster.any().done(&["config", "set", settings[0], settings[1]]);
    }
    let readers = Readers::start(&["node-1", "router-1"].map(|name| cluster.get(name).resp.clone()));
    (cluster, hook, readers)
}

/// How many requests a second each node may get: with few the cluster is at its limit, with many it is idle.
fn limit(cluster: &Cluster, requests: u64) {
    let setting = format!("balance-requests-per-second={requests}");
    cluster.get("node-1").done(&["config", "set", &setting]);
}

const FEW: u64 = 1;
const MANY: u64 = 1_000_000_000;

fn held(cluster: &Cluster) -> Vec<u64> {
    let nodes = cluster.get("node-1").json(&["nodes"])["nodes"].clone();
    let held = |node: &Value| node["partitions"].as_u64().unwrap();
    nodes.as_array().unwrap().iter().map(held).collect()
}

fn why(cluster: &Cluster) -> String {
    cluster.get("node-1").done(&["why", "--last", "300"])
}

/// The number of the last decision: one is made every 1.2 s.
fn decided(cluster: &Cluster) -> u64 {
    let last = cluster.get("node-1").json(&["why", "--last", "1"]);
    last["decisions"][0]["number"].as_u64().unwrap()
}

fn leader(cluster: &Cluster) -> &'static str {
    let leader = cluster.get("node-1").http_get("/v1/cluster")["leader"].clone();
    let names = ["controller-1", "controller-2"];
    names
        .into_iter()
        .find(|name| leader == json!(cluster.http_of(name)))
        .expect("one leads")
}

#[test]
fn a_full_cluster_gets_a_node_and_an_idle_one_returns_it() {
    let (cluster, hook, readers) = asked(Way::Command, "nodes-max = 3\nnodes-min = 2");
    let began = Instant::now();
    limit(&cluster, FEW);
    until("the hook has started a node, and it is filled", || {
        held(&cluster).get(2).is_some_and(|&held| held >= 5)
    });
    assert_eq!(hook.running(), 1);
    until("the limit is reached", || why(&cluster).contains("nodes-max is 3"));
    let said = why(&cluster);
    for reason in ["the whole cluster is at its limit", "request 1: node 3 has joined"] {
        assert!(said.contains(reason), "{reason}: {said}");
    }
    limit(&cluster, MANY);
    until("the node is drained and returned", || hook.running() == 0);
    assert_eq!(held(&cluster)[2], 0);
    until("the decision says so", || {
        why(&cluster).contains("has taken node 3 back")
    });
    let mut returns = hook.calls("return");
    returns.dedup();
    assert_eq!(returns.len(), 1, "{returns:?}");
    let before = held(&cluster);
    // The two nodes that did not come through the hook stay, for twice the calm after which one would go.
    let number = decided(&cluster);
    until("eight seconds of decisions are made", || {
        decided(&cluster) >= number + 7
    });
    assert_eq!(held(&cluster), before);
    assert_eq!(before.iter().sum::<u64>(), 16);
    assert!(!why(&cluster).contains("spare node 2"), "{}", why(&cluster));
    let answers = readers.answers();
    until("readers have gone on", || readers.answers() > answers + 200);
    none_since(&readers.stop(), began);

    // Every decision can be made again from its input.
    let decisions = cluster.get("node-1").json(&["why", "--last", "300"])["decisions"].clone();
    let begun = decisions.as_array().unwrap().iter().find(|one| one["request"] == 1);
    let number = begun.expect("it is listed")["number"].to_string();
    let replayed = cluster.get("node-1").done(&["why", &number, "--replay"]);
    assert!(replayed.contains("made again: the same"), "{replayed}");
}

#[test]
fn a_hook_in_trouble_stops_nothing_and_starts_one_node() {
    in_trouble(Way::Command);
}

#[test]
fn a_webhook_in_trouble_stops_nothing_and_starts_one_node() {
    in_trouble(Way::Url);
}

fn in_trouble(way: Way) {
    let (mut cluster, hook, _readers) = asked(way, "nodes-max = 3\nnodes-min = 2");
    hook.feels("fails");
    limit(&cluster, FEW);
    until("the failure is a reason", || why(&cluster).contains("no quota"));
    hook.feels("rubbish");
    until("rubbish is a reason", || why(&cluster).contains("not understood"));
    hook.feels("hangs");
    let before = leader(&cluster);
    let calls = hook.calls("request").len();
    until("it is called", || hook.calls("request").len() > calls);
    let number = decided(&cluster);
    until("decisions continue", || decided(&cluster) > number + 1);
    assert!(!why(&cluster).contains("no answer within"), "they waited for the hook");
    until("it is killed", || why(&cluster).contains("no answer within 10 s"));
    assert_eq!(leader(&cluster), before, "the leader still leads");

    // The leader dies between the request and the arrival.
    let calls = hook.calls("request").len();
    until("it is called again", || hook.calls("request").len() > calls);
    cluster.kill(before);
    hook.feels("well");
    until("the next leader has a node started", || {
        held(&cluster).get(2).is_some_and(|&held| held >= 5)
    });
    assert_eq!((hook.running(), held(&cluster).len()), (1, 3));
    let mut requests = hook.calls("request");
    requests.dedup();
    assert_eq!(requests.len(), 1, "{requests:?}");
}

/// Calls the local hook, without a controller.
fn call(hook: &Hook, body: &Value, more: &[&str]) -> Value {
    let mut command = super::node::fondaco();
    command
        .args(["hook", "local", "--config"])
        .arg(hook.dir.join("node.toml"));
    command.arg("--directory").arg(hook.machines()).args(more);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(body.to_string().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn nodes_of_the_local_hook_are_enlarged_while_they_run() {
    if let Err(reason) = CpuGroup::new("hook", 1.0) {
        return println!("skipped: {reason}");
    }
    let mut cluster = Cluster::prepare_shared(Shape {
        nodes: 1,
        replicas: 1,
        ..Shape::default()
    });
    let hook = Hook::of(&mut cluster, Way::Command, "nodes-max = 1");
    cluster.launch_until_ready();
    cluster.any().done(&["balance", "--window", "2s"]);
    let more = ["--cores", "0.4", "--cores-max", "1.5"];
    let name = format!("test-{}", std::process::id());
    let start = json!({"action": "request", "request": name, "zone": "default"});
    let started = call(&hook, &start, &more);
    assert_eq!(started["state"], "done", "{started}");
    let http = started["http"].as_str().unwrap();
    assert_eq!(call(&hook, &start, &more), started, "a name that it knows");
    let cores = || {
        let load = cluster.any().http_get("/v1/load");
        let nodes = load["nodes"].as_array().unwrap().clone();
        nodes
            .iter()
            .find(|node| node["node"] == 2)
            .map(|node| node["load"]["cpu_max"].clone())
    };
    until("it reports its limit", || cores() == Some(json!(0.4)));
    let enlarge = |request: &str| json!({"action": "enlarge", "request": request, "resource": "cpu", "http": http});
    for (request, limit) in [("a-1", 0.8), ("a-1", 0.8), ("a-2", 1.5)] {
        let enlarged = call(&hook, &enlarge(request), &more);
        assert_eq!(enlarged["state"], "done", "{enlarged}");
        until("it reports its new limit", || cores() == Some(json!(limit)));
    }
    let refused = call(&hook, &enlarge("a-3"), &more);
    assert!(refused.to_string().contains("--cores-max is 1.5"), "{refused}");
    let back = json!({"action": "return", "request": "a-4", "node": 2, "http": http, "machine": name});
    for _ in 0..2 {
        assert_eq!(call(&hook, &back, &more)["state"], "done");
        assert_eq!(hook.running(), 0);
    }
    cluster.until_live(2, false);
    for wrong in ["../x", "", "a/b"] {
        let refused = call(&hook, &json!({"action": "request", "request": wrong}), &more);
        assert_eq!(refused["state"], "failed", "{refused}");
    }
}
