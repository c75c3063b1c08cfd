//! A network that falls apart: one node in a network namespace of its own, cut off from ZooKeeper and from
//! all others without a word.

use std::process::Command;
use std::time::Instant;

use fondaco_testing::{Proxy, ZooKeeper};

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::{Readers, none_since};
use super::values::{KEYS, read_all, value};

/// A network namespace with one link to this one. It goes with this.
struct Namespace {
    name: String,
    link: String,
    /// The address of this end.
    outside: String,
    /// The address of that end.
    inside: String,
}

impl Namespace {
    /// `None` where this process may not make one.
    fn new() -> Option<Self> {
        let id = std::process::id() % 250;
        let name = format!("fondaco-{}", std::process::id());
        let namespace = Self {
            link: format!("fondaco{id}"),
            outside: format!("10.231.{id}.1"),
            inside: format!("10.231.{id}.2"),
            name,
        };
        let Namespace {
            name,
            link,
            outside,
            inside,
        } = &namespace;
        let peer = format!("{link}-in");
        ip(&["netns", "add", name])?;
        ip(&["link", "add", link, "type", "veth", "peer", "name", &peer])?;
        ip(&["link", "set", &peer, "netns", name])?;
        ip(&["addr", "add", &format!("{outside}/30"), "dev", link])?;
        ip(&["link", "set", link, "up"])?;
        ip(&["-n", name, "addr", "add", &format!("{inside}/30"), "dev", &peer])?;
        ip(&["-n", name, "link", "set", &peer, "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        Some(namespace)
    }

    /// From now on nothing comes through, and nobody is told.
    fn cut(&self) {
        ip(&["link", "set", &self.link, "down"]).expect("it could be set up");
    }

    fn heal(&self) {
        ip(&["link", "set", &self.link, "up"]).expect("it was up before");
    }

    /// A command that runs in there.
    fn command(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &self.link]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Option<()> {
    let output = Command::new("ip").args(arguments).output().ok()?;
    output.status.success().then_some(())
}

#[test]
fn a_node_cut_off_from_all_others_is_done_without_and_returns() {
    let Some(namespace) = Namespace::new() else {
        return println!("skipped: no network namespace can be made here (it needs root, and the ip command)");
    };
    let zookeeper = ZooKeeper::start();
    let outside = Proxy::listening_on(&namespace.outside, zookeeper.port());
    let mut cluster = Cluster::prepare(Shape::default(), &zookeeper.address());
    for name in ["node-1", "node-2", "router-1", "controller-1"] {
        cluster.listen_on(name, &namespace.outside);
    }
    cluster.listen_on("node-3", &namespace.inside);
    cluster.reroute("node-3", &outside.address());
    cluster.enter("node-3", namespace.command());
    cluster.launch_all();
    cluster.until_ready();
    cluster.create(&["--tolerate-failures", "1"]);
    cluster.deploy(&cluster.build(1));
    let number = cluster.number("node-3");

    let readers = Readers::start(&["node-1", "node-2", "router-1"].map(|name| cluster.get(name).resp.clone()));
    until("readers are at work", || readers.answers() > 100);
    namespace.cut();
    cluster.until_live(number, false);
    let detected = Instant::now();
    let answers = readers.answers();
    until("readers have gone on", || readers.answers() > answers + 500);
    cluster.deploy(&cluster.build(2));
    let answers = readers.answers();
    until("readers have gone on", || readers.answers() > answers + 500);
    // The node serves what it knows, to who is on its side.
    let held = (0..KEYS).find(|key| {
        let port = cluster.get("node-3").resp.rsplit(':').next().unwrap().to_owned();
        let asked = namespace
            .command()
            .args([
                "redis-cli",
                "-h",
                &namespace.inside,
                "-p",
                &port,
                "GET",
                &format!("s:{key}"),
            ])
            .output();
        asked.is_ok_and(|asked| String::from_utf8_lossy(&asked.stdout).trim_end() == value(1, *key))
    });
    println!("cut off, it served key {held:?}");
    assert!(held.is_some());

    namespace.heal();
    cluster.until_nobody_is_late();
    cluster.until_ready();
    none_since(&readers.stop(), detected);
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(2));
}

#[test]
fn a_node_cut_off_from_zookeeper_alone_goes_on_serving_and_sends_for_what_it_does_not_have() {
    let zookeeper = ZooKeeper::start();
    let own_way = Proxy::to(zookeeper.port());
    let mut cluster = Cluster::prepare(Shape::default(), &zookeeper.address());
    cluster.reroute("node-3", &own_way.address());
    cluster.launch_all();
    cluster.until_ready();
    cluster.create(&["--tolerate-failures", "1"]);
    cluster.deploy(&cluster.build(1));
    let number = cluster.number("node-3");
    own_way.cut();
    cluster.until_live(number, false);
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(1));
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
    // The others go on to a version that it does not fetch, and hears of from them.
    cluster.deploy(&cluster.build(2));
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(2));
    let mut redis = cluster.get("node-3").redis();
    until("it hears of the swap", || read_all(&mut redis) == Ok(2));
    own_way.heal();
    cluster.until_nobody_is_late();
    cluster.until_live(number, true);
    cluster.until_ready();
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(2));
}
