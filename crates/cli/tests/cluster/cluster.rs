//! A cluster of processes and a ZooKeeper; each can be killed and restarted by its name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use fondaco_testing::{ZooKeeper, free_port};
use serde_json::Value;
use tempfile::TempDir;

use super::node::{Node, fondaco, program, until};

/// How many lines of each member's log to print when a test fails.
const LOG_LINES_SHOWN: usize = 30;

/// The members and settings of a cluster.
pub struct Shape {
    pub nodes: u32,
    pub replicas: u32,
    pub controllers: u32,
    pub routers: u32,
    pub partitions: u32,
    /// The session timeout in ZooKeeper, in milliseconds. Longer than a busy machine may delay a process, unless the
    /// test is about that.
    pub session_timeout_ms: u64,
}

impl Shape {
    /// The usual timeout, for a test without failures.
    pub fn steady() -> Self {
        Self {
            session_timeout_ms: 20_000,
            ..Self::default()
        }
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            nodes: 3,
            replicas: 2,
            controllers: 1,
            routers: 1,
            partitions: 16,
            session_timeout_ms: 4_000,
        }
    }
}

/// A running cluster. Dropping it kills all its processes.
pub struct Cluster {
    /// Its members and settings.
    pub shape: Shape,
    /// The address of ZooKeeper.
    pub zookeeper: String,
    pub root: String,
    members: BTreeMap<String, Member>,
    /// The first and the last part of every configuration file.
    protection: (String, String),
    /// Environment variables of every process.
    environment: Vec<(String, String)>,
    pub dir: TempDir,
}

struct Member {
    process: Option<Node>,
    resp: String,
    http: String,
    /// Lines for the configuration of this member only.
    more: String,
    /// The address at which it reaches ZooKeeper, if it differs from that of other members.
    zookeeper: Option<String>,
    /// The command that starts it, if it is not the program itself.
    through: Option<Command>,
    /// The build of the program that it runs, if it is not the one under test.
    program: Option<PathBuf>,
}

/// A ZooKeeper shared by all tests that do not disturb it.
fn shared_zookeeper() -> &'static ZooKeeper {
    static SHARED: OnceLock<ZooKeeper> = OnceLock::new();
    SHARED.get_or_init(ZooKeeper::start)
}

/// A root in ZooKeeper that no other test uses.
pub fn new_root() -> String {
    static ROOTS: AtomicU32 = AtomicU32::new(0);
    format!("/fondaco/test-{}", ROOTS.fetch_add(1, Relaxed))
}

impl Cluster {
    /// A cluster that is ready.
    pub fn start(shape: Shape) -> Self {
        Self::start_at(shape, &shared_zookeeper().address())
    }

    /// A cluster that is ready, coordinated by this ZooKeeper.
    pub fn start_at(shape: Shape, zookeeper: &str) -> Self {
        let mut cluster = Self::prepare(shape, zookeeper);
        cluster.launch_until_ready();
        cluster
    }

    /// Like [`prepare`](Self::prepare), with a ZooKeeper that other tests share.
    pub fn prepare_shared(shape: Shape) -> Self {
        Self::prepare(shape, &shared_zookeeper().address())
    }

    /// The nodes, as `fondaco nodes` lists them.
    pub fn listed(&self) -> Vec<Value> {
        self.any().json(&["nodes"])["nodes"].as_array().unwrap().clone()
    }

    /// How many partitions each node has, in the order of their numbers.
    pub fn partitions(&self) -> Vec<u64> {
        let nodes = self.listed();
        nodes.iter().map(|node| node["partitions"].as_u64().unwrap()).collect()
    }

    /// A cluster in which nothing runs yet.
    pub fn prepare(shape: Shape, zookeeper: &str) -> Self {
        let mut cluster = Self {
            members: BTreeMap::new(),
            protection: Default::default(),
            environment: Vec::new(),
            zookeeper: zookeeper.to_owned(),
            root: new_root(),
            dir: tempfile::tempdir().unwrap(),
            shape,
        };
        for (role, count) in [
            ("controller", cluster.shape.controllers),
            ("node", cluster.shape.nodes),
            ("router", cluster.shape.routers),
        ] {
            (1..=count).for_each(|number| cluster.add(&format!("{role}-{number}"), ""));
        }
        cluster
    }

    /// Adds a member, without starting it, with these lines in its configuration.
    pub fn add(&mut self, name: &str, more: &str) {
        let member = Member {
            process: None,
            resp: format!("127.0.0.1:{}", free_port()),
            http: format!("127.0.0.1:{}", free_port()),
            more: more.to_owned(),
            zookeeper: None,
            through: None,
            program: None,
        };
        self.members.insert(name.to_owned(), member);
    }

    /// Lines and sections for the configuration of every member.
    pub fn protect(&mut self, lines: &str, sections: &str) {
        self.protection = (lines.to_owned(), sections.to_owned());
    }

    /// Sets environment variables of every process.
    pub fn set_environment(&mut self, environment: &[(&str, String)]) {
        let variables = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        self.environment = variables.collect();
    }

    /// Removes the lines that only this member's configuration has.
    pub fn widen(&mut self, name: &str) {
        self.member(name).more.clear();
    }

    /// Makes a member listen on another address than loopback, without authentication.
    pub fn listen_on(&mut self, name: &str, ip: &str) {
        let member = self.member(name);
        member.resp = format!("{ip}:{}", free_port());
        member.http = format!("{ip}:{}", free_port());
        member.more.push_str("allow-insecure = true\n");
    }

    /// Makes another command start a member; it gets the program and its arguments as arguments.
    pub fn enter(&mut self, name: &str, through: Command) {
        self.member(name).through = Some(through);
    }

    /// Makes a member run another build of the program from its next start on; `None` is the one under test.
    pub fn install(&mut self, name: &str, program: Option<&Path>) {
        self.member(name).program = program.map(Path::to_owned);
    }

    /// Makes a member use another address of ZooKeeper from its next start on.
    pub fn reroute(&mut self, name: &str, zookeeper: &str) {
        self.member(name).zookeeper = Some(zookeeper.to_owned());
    }

    /// Starts all members that do not run.
    pub fn launch_all(&mut self) {
        let names: Vec<String> = self.members.keys().cloned().collect();
        for name in names {
            if self.members[&name].process.is_none() {
                self.launch(&name);
            }
        }
    }

    /// The same, and waits until the cluster is ready.
    pub fn launch_until_ready(&mut self) {
        self.launch_all();
        self.until_ready();
    }

    /// The same as [`launch_all`](Self::launch_all), each beside the others: for members that wait before they serve.
    pub fn launch_all_at_once(&mut self) {
        let names: Vec<String> = self.members.keys().cloned().collect();
        let commands: Vec<Command> = names.iter().map(|name| self.logged(name)).collect();
        let started: Vec<Node> = std::thread::scope(|scope| {
            let starting: Vec<_> = commands
                .into_iter()
                .map(|command| scope.spawn(|| Node::start(command)))
                .collect();
            starting.into_iter().map(|node| node.join().unwrap()).collect()
        });
        for (name, process) in names.iter().zip(started) {
            self.member(name).process = Some(process);
        }
    }

    /// Starts a member.
    pub fn launch(&mut self, name: &str) {
        let process = Node::start(self.logged(name));
        self.member(name).process = Some(process);
    }

    /// The command that starts a member, which writes to its log.
    fn logged(&mut self, name: &str) -> Command {
        let log = File::options().create(true).append(true).open(self.log(name)).unwrap();
        let mut command = self.command(name);
        command.args(["--log", "info"]).stderr(log);
        command
    }

    /// Starts a member that is expected to fail; returns its exit code and its error output.
    pub fn launch_in_vain(&mut self, name: &str) -> (Option<i32>, String) {
        let mut child = self
            .command(name)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        super::node::wait(&mut child);
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// The command that starts a member.
    fn command(&mut self, name: &str) -> Command {
        let path = self.write_configuration(name);
        let role = match name.split('-').next() {
            Some("node") => "server",
            Some(role) => role,
            None => unreachable!("a name has a first part"),
        };
        let mut command = self.members[name].program.as_deref().map_or_else(fondaco, program);
        if let Some(through) = &self.members[name].through {
            let program = command.get_program().to_owned();
            command = Command::new(through.get_program());
            command.args(through.get_args()).arg(program);
        }
        command.arg(role).arg("--config").arg(path);
        command.envs(self.environment.iter().cloned());
        command
    }

    fn write_configuration(&mut self, name: &str) -> PathBuf {
        let path = self.dir.path().join(format!("{name}.toml"));
        let data = self.data(name);
        let member = &self.members[name];
        let zookeeper = member.zookeeper.as_ref().unwrap_or(&self.zookeeper);
        let (lines, sections) = &self.protection;
        let Shape {
            nodes,
            replicas,
            partitions,
            session_timeout_ms,
            ..
        } = self.shape;
        let text = format!(
            "data = {data:?}\nresp = {:?}\nhttp = {:?}\nloops = 1\n{}\n{lines}\n\
             [zookeeper]\nconnect = {zookeeper:?}\nroot = {:?}\nsession-timeout-ms = {session_timeout_ms}\n\
             [cluster]\npartitions = {partitions}\nreplicas = {replicas}\nnodes-initial = {nodes}\n{sections}",
            member.resp, member.http, member.more, self.root
        );
        fs::write(&path, text).unwrap();
        path
    }

    /// The data directory of a member.
    pub fn data(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The file of a member's log.
    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    /// A running member.
    pub fn get(&self, name: &str) -> &Node {
        let member = self.members.get(name).unwrap_or_else(|| panic!("there is no {name}"));
        member.process.as_ref().unwrap_or_else(|| panic!("{name} does not run"))
    }

    /// The HTTP address of a member, whether or not it runs.
    pub fn http_of(&self, name: &str) -> &str {
        &self.members[name].http
    }

    /// Kills a member, as a machine that loses power does.
    pub fn kill(&mut self, name: &str) {
        self.member(name).process.take().expect("it runs").kill();
    }

    /// Stops a member, as an operator does.
    pub fn stop(&mut self, name: &str) {
        let ended = self.member(name).process.take().expect("it runs").terminate();
        assert_eq!(ended, Some(0), "{name}");
    }

    /// The names of the nodes.
    pub fn nodes(&self) -> Vec<String> {
        (1..=self.shape.nodes).map(|number| format!("node-{number}")).collect()
    }

    /// The number of a running node.
    pub fn number(&self, name: &str) -> u64 {
        let status = self.get(name).http_get("/v1/status");
        status["node"].as_u64().unwrap_or_else(|| panic!("{name}: {status}"))
    }

    /// The RESP addresses of all running members that serve RESP.
    pub fn resp_addresses(&self) -> Vec<String> {
        let running = self.members.values().filter_map(|member| member.process.as_ref());
        let addresses = running.map(|process| process.resp.clone());
        addresses.filter(|address| !address.is_empty()).collect()
    }

    /// Any running process, for requests; a controller, if one runs.
    pub fn any(&self) -> &Node {
        let mut running = self.members.values().filter_map(|member| member.process.as_ref());
        running.next().expect("something runs")
    }

    /// Waits until all nodes of the shape are live and every running process is ready.
    pub fn until_ready(&self) {
        let nodes = self.shape.nodes as usize;
        let mut seen = Value::Null;
        until("the cluster is ready", || {
            seen = self.try_get(self.any(), "/v1/cluster").unwrap_or_default();
            let live = |nodes: &Vec<Value>| nodes.iter().filter(|node| node["live"] == true).count();
            seen["routing_epoch"].is_u64()
                && seen["nodes"].as_array().map_or(0, live) >= nodes
                && self.members.values().flat_map(|member| &member.process).all(is_ready)
        });
    }

    /// Sends a request to a process that may refuse it.
    pub fn try_get(&self, process: &Node, path: &str) -> Option<Value> {
        let url = format!("http://{}{path}", process.http);
        serde_json::from_reader(ureq::get(url).call().ok()?.body_mut().as_reader()).ok()
    }

    /// Waits until the cluster sees a node as live, or as absent.
    pub fn until_live(&self, number: u64, live: bool) {
        until("the cluster notices", || {
            let list = self.any().http_get("/v1/nodes");
            let nodes = list["nodes"].as_array().unwrap();
            nodes.iter().any(|node| node["node"] == number && node["live"] == live)
        });
    }

    fn member(&mut self, name: &str) -> &mut Member {
        self.members
            .get_mut(name)
            .unwrap_or_else(|| panic!("there is no {name}"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for name in self.members.keys() {
            let log = fs::read_to_string(self.log(name)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let end = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
            println!("the last that {name} said:\n{}", end.join("\n"));
        }
    }
}

/// Whether a process is ready to serve everything that it should.
pub fn is_ready(process: &Node) -> bool {
    ureq::get(format!("http://{}/readyz", process.http)).call().is_ok()
}
