//! A process in any role, and the command line that talks to it.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

pub use fondaco_testing::until;
use serde_json::Value;
use tempfile::TempDir;

/// The time limit of any step. Far longer than it takes: the machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// A running node. Dropping it kills it.
pub struct Node {
    child: Child,
    /// The address of RESP; empty for a controller.
    pub resp: String,
    pub http: String,
}

/// A node with its own directory, which is deleted on drop.
pub struct Dev {
    node: Node,
    pub dir: TempDir,
}

impl Dev {
    /// `fondaco dev` on free ports.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::dev(&dir.path().join("data"));
        Self { node, dir }
    }

    /// Separates the node from its directory.
    pub fn into_parts(self) -> (Node, TempDir) {
        (self.node, self.dir)
    }

    /// A path in its directory, beside its data.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A CSV file of keys and values, in its directory.
    pub fn csv(&self, name: &str, rows: impl IntoIterator<Item = (String, String)>) -> PathBuf {
        let path = self.path(name);
        write_csv(&path, rows);
        path
    }

    /// Creates a store with these rows as its first version.
    pub fn push(&self, store: &str, rows: impl IntoIterator<Item = (String, String)>) {
        let path = self.csv(&format!("{store}.csv"), rows);
        self.done(&of_csv("push", store, &path, &["--create"]));
    }
}

impl std::ops::Deref for Dev {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

/// A CSV file of keys and values.
pub fn write_csv(path: &Path, rows: impl IntoIterator<Item = (String, String)>) {
    let mut text = "key,value\n".to_owned();
    for (key, value) in rows {
        text.push_str(&format!("{key},{value}\n"));
    }
    fs::write(path, text).unwrap();
}

/// The words of a push or a build of a file that [`write_csv`] made.
pub fn of_csv<'a>(command: &'a str, store: &'a str, csv: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let rows = [
        command,
        store,
        csv.to_str().unwrap(),
        "--key",
        "key",
        "--value",
        "value",
    ];
    [&rows, more].concat()
}

impl Node {
    /// `fondaco dev` on free ports, with this data directory.
    pub fn dev(data: &Path) -> Self {
        Self::dev_with(data, &[])
    }

    /// The same, with more arguments.
    pub fn dev_with(data: &Path, more: &[&str]) -> Self {
        let mut command = fondaco();
        command.arg("dev").arg("--data").arg(data).args(more);
        command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log", "error"]);
        Self::start(command)
    }

    /// `fondaco server` with this configuration.
    pub fn server(config: &Path) -> Self {
        let mut command = fondaco();
        command
            .arg("server")
            .arg("--config")
            .arg(config)
            .args(["--log", "error"]);
        Self::start(command)
    }

    /// Starts a command that prints its addresses.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.arg("--json").stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        // It prints one JSON object when it serves; the stream ends if it cannot serve.
        let serving = serde_json::Deserializer::from_reader(stdout)
            .into_iter::<Value>()
            .next();
        let Some(Ok(serving)) = serving else {
            let _ = child.kill();
            panic!("the node did not start: {:?}", child.wait());
        };
        Self {
            child,
            resp: serving["resp"].as_str().unwrap_or_default().to_owned(),
            http: serving["http"].as_str().unwrap().to_owned(),
        }
    }

    /// The id of its process. Only tests of clusters use it.
    #[allow(dead_code)]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM; returns the exit code.
    pub fn terminate(mut self) -> Option<i32> {
        signal(&self.child, rustix::process::Signal::TERM);
        let ended = wait(&mut self.child);
        ended.code()
    }

    /// A command that talks to this node.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = fondaco();
        command
            .args(arguments)
            .env("FONDACO_HTTP", &self.http)
            .env("FONDACO_RESP", &self.resp);
        command
    }

    /// Runs a command.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that succeeds; returns its output.
    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that succeeds, with `--json`.
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Runs a command that fails with this exit code; returns its error output.
    pub fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        errors
    }

    /// A Redis connection.
    pub fn redis(&self) -> redis::Connection {
        self.redis_as("")
    }

    /// A Redis connection; `login` is `user:password@`, and `?protocol=resp3` may follow.
    pub fn redis_as(&self, login: &str) -> redis::Connection {
        self.redis_url(&format!("redis://{login}{}", self.resp))
    }

    /// A Redis connection in RESP3.
    pub fn redis_resp3(&self) -> redis::Connection {
        self.redis_url(&format!("redis://{}/?protocol=resp3", self.resp))
    }

    fn redis_url(&self, url: &str) -> redis::Connection {
        let connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        connection.set_read_timeout(Some(DEADLINE)).unwrap();
        connection
    }

    /// A raw connection to the RESP port.
    pub fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(&self.resp).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket
    }

    /// A raw connection to the RESP port, with these bytes sent.
    pub fn socket_saying(&self, bytes: &[u8]) -> TcpStream {
        let mut socket = self.socket();
        socket.write_all(bytes).unwrap();
        socket
    }

    /// Sends GET to the control port.
    pub fn http_get(&self, path: &str) -> Value {
        let url = format!("http://{}{path}", self.http);
        serde_json::from_reader(ureq::get(url).call().unwrap().body_mut().as_reader()).unwrap()
    }

    /// Sends POST to the control port.
    pub fn http_post(&self, path: &str, body: Value) -> Value {
        let (is_success, said) = self.http_send(path, body);
        assert!(is_success, "{path}: {said}");
        said
    }

    /// Sends POST to the control port, which refuses it. Returns the code of the error.
    pub fn http_refused(&self, path: &str, body: Value) -> String {
        let (is_success, said) = self.http_send(path, body);
        assert!(!is_success, "{path}: {said}");
        said["error"]["code"].as_str().unwrap().to_owned()
    }

    /// Sends POST to the control port. Returns whether it succeeded, and the answer.
    pub fn http_send(&self, path: &str, body: Value) -> (bool, Value) {
        let url = format!("http://{}{path}", self.http);
        let request = ureq::post(url).config().http_status_as_error(false).build();
        let request = request.content_type("application/json");
        let mut answer = request.send(body.to_string()).unwrap();
        let said = serde_json::from_reader(answer.body_mut().as_reader()).unwrap();
        (answer.status().is_success(), said)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, without the environment variables of the tests.
pub fn fondaco() -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_fondaco")))
}

/// A build of the program, without the environment variables of the tests.
pub fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FONDACO_") {
            command.env_remove(name);
        }
    }
    command
}

/// Sends a signal.
pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits for a process to end by itself.
pub fn wait(child: &mut Child) -> std::process::ExitStatus {
    let mut ended = None;
    until("the process ends", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap()
}
