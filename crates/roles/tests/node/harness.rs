//! Nodes, versions and requests for tests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fondaco_format::{
    ChunkCounts, ChunkPlan, Compression, DATA_HEADER_BYTES, MANIFEST_FILE, Manifest, PatchEntry, RECORD_HEADER_BYTES,
    write_patch,
};
use fondaco_roles::{Config, Fondaco, Running};
pub use fondaco_testing::{eventually, until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::resp::Resp;
use crate::written::{self, Shape};

/// The longest that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(180);

/// How many partitions the nodes of the tests have.
pub const PARTITIONS: u32 = 4;

/// How many keys the versions of the tests have.
pub const KEYS: usize = 500;

pub fn key(number: usize) -> String {
    format!("member-{number}")
}

/// The value of a key in a build; values of different builds always differ.
pub fn value(build: u64, number: usize, padding: usize) -> String {
    format!("{build}:{number}:{}", "x".repeat(padding))
}

/// Builds that can be pushed, each in a directory of its own.
pub struct Builds {
    dir: TempDir,
    padding: usize,
}

impl Builds {
    /// In a place where files can be linked to the node's directory.
    pub fn beside() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            padding: 50,
        }
    }

    /// In a place where they cannot, if this machine has one, so that files are copied.
    pub fn elsewhere(padding: usize) -> Self {
        let memory = Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => TempDir::new_in(memory),
            false => TempDir::new(),
        };
        Self {
            dir: dir.unwrap(),
            padding,
        }
    }

    /// Writes a build. Returns its directory.
    pub fn build(&self, build: u64) -> PathBuf {
        self.build_of(build, PARTITIONS)
    }

    pub fn build_of(&self, build: u64, partitions: u32) -> PathBuf {
        self.write(&format!("build-{build}-{partitions}"), &self.records(build), partitions)
    }

    /// Writes a build in which one key has another value.
    pub fn build_changed(&self, build: u64, number: usize, changed: &str) -> PathBuf {
        let mut records = self.records(build);
        records.insert(key(number).into_bytes(), changed.into());
        self.write(&format!("build-{build}-changed-{number}"), &records, PARTITIONS)
    }

    /// Writes only the manifest and the patches of a build, which make it from the build before.
    pub fn patches_only(&self, build: u64) -> PathBuf {
        let base = Manifest::read(&self.dir.path().join(format!("build-{}-{PARTITIONS}", build - 1))).unwrap();
        let dir = self.build(build);
        let mut manifest = Manifest::read(&dir).unwrap();
        for (base, chunk) in base.chunks.iter().zip(&manifest.chunks) {
            let [data, index] = [&chunk.data.name, &chunk.index.name].map(|name| dir.join(name));
            let records = &std::fs::read(&data).unwrap()[DATA_HEADER_BYTES..];
            let plan = ChunkPlan {
                partition: chunk.partition,
                chunk: chunk.chunk,
                chunk_count: 2,
            };
            let counts = ChunkCounts {
                records: chunk.records,
                bytes: (records.len() - chunk.records as usize * RECORD_HEADER_BYTES) as u64,
            };
            let (patch, bytes) = write_patch(base.data.checksum, &plan, counts, records, Vec::new()).unwrap();
            std::fs::write(dir.join(&patch.name), bytes).unwrap();
            manifest.patches.push(PatchEntry {
                partition: chunk.partition,
                chunk: chunk.chunk,
                base: base.data.clone(),
                patch,
            });
            std::fs::remove_file(data)
                .and_then(|()| std::fs::remove_file(index))
                .unwrap();
        }
        std::fs::write(dir.join(MANIFEST_FILE), manifest.to_bytes()).unwrap();
        dir
    }

    fn records(&self, build: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let value = |number| value(build, number, self.padding).into_bytes();
        (0..KEYS)
            .map(|number| (key(number).into_bytes(), value(number)))
            .collect()
    }

    fn write(&self, name: &str, records: &BTreeMap<Vec<u8>, Vec<u8>>, partitions: u32) -> PathBuf {
        let dir = self.dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let shape = Shape {
            partitions,
            chunks: 2,
            compression: Compression::None,
        };
        written::write(&dir, records, &shape);
        dir
    }
}

/// Requests to a control port.
pub struct Client {
    pub addr: SocketAddr,
    pub token: Option<String>,
    /// More headers of each request.
    pub headers: Vec<(String, String)>,
    agent: ureq::Agent,
}

impl Client {
    pub fn new(addr: SocketAddr) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build();
        Self {
            addr,
            token: None,
            headers: Vec::new(),
            agent: config.into(),
        }
    }

    /// A request and its answer: status, content type, body.
    pub fn raw(&self, method: &str, path: &str, body: &[u8]) -> Result<(u16, String, Vec<u8>), ureq::Error> {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.addr));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = self.agent.run(request.body(body).unwrap())?;
        let content_type = response.headers().get("content-type");
        let content_type = content_type.map_or("", |value| value.to_str().unwrap()).to_owned();
        let status = response.status().as_u16();
        Ok((status, content_type, response.body_mut().read_to_vec()?))
    }

    /// A part of a file: status and body.
    pub fn range(&self, path: &str, range: &str) -> (u16, Vec<u8>) {
        let mut response = self
            .agent
            .get(format!("http://{}{path}", self.addr))
            .header("range", range)
            .call()
            .unwrap();
        (response.status().as_u16(), response.body_mut().read_to_vec().unwrap())
    }

    /// A request with a JSON answer.
    pub fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = match body {
            Value::Null => Vec::new(),
            body => serde_json::to_vec(&body).unwrap(),
        };
        let (status, _, answer) = self.raw(method, path, &body).unwrap();
        let answer = match answer.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&answer)
                .unwrap_or_else(|e| panic!("{method} {path}: {e} in {:?}", String::from_utf8_lossy(&answer))),
        };
        (status, answer)
    }

    /// A request that is answered with this status. Returns the answer.
    pub fn done(&self, method: &str, path: &str, body: Value, status: u16) -> Value {
        let (found, answer) = self.call(method, path, body);
        assert_eq!(found, status, "{method} {path}: {answer}");
        answer
    }

    pub fn get(&self, path: &str) -> Value {
        self.done("GET", path, Value::Null, 200)
    }

    /// A request that is refused with this status and code.
    pub fn refused(&self, method: &str, path: &str, body: Value, status: u16, code: &str) {
        let answer = self.done(method, path, body, status);
        assert_eq!(answer["error"]["code"], code, "{method} {path}: {answer}");
        assert!(
            answer["error"]["message"].as_str().is_some_and(|text| text.len() > 10),
            "{answer}"
        );
    }

    pub fn create(&self, backups: u32) {
        self.done("POST", "/v1/stores", json!({"name": "pymk", "backups": backups}), 201);
    }

    pub fn begin_push(&self, source: &Path) -> Value {
        self.done("POST", "/v1/stores/pymk/pushes", json!({"source": source}), 202)
    }

    /// Waits for the push of a store to end.
    pub fn ended_push(&self) -> Value {
        eventually("the push to end", || {
            let push = self.get("/v1/stores/pymk/push");
            push["ended_unix_ms"].is_u64().then_some(push)
        })
    }

    /// Pushes, and waits until the version is served. Returns its number.
    pub fn push(&self, source: &Path) -> u64 {
        self.begin_push(source);
        let push = self.ended_push();
        assert_eq!(push["state"], "swapped", "{push}");
        push["version"].as_u64().unwrap()
    }

    pub fn set_rate(&self, bytes_per_second: u64) {
        let change = json!({"fetch_rate_bytes_per_second": bytes_per_second});
        self.done("PATCH", "/v1/settings", change, 200);
    }

    /// The build whose values a store serves; fails if values of several builds are served, or some are missing.
    pub fn served_build(&self, padding: usize) -> u64 {
        let keys: Vec<_> = (0..KEYS).map(|number| format!("pymk:{}", key(number))).collect();
        let answer = self.done("POST", "/v1/lookup", json!({"keys": keys}), 200);
        let values = answer["values"].as_array().unwrap();
        let first = values[0]["utf8"].as_str().unwrap();
        let build = first.split_once(':').unwrap().0.parse().unwrap();
        for (number, found) in values.iter().enumerate() {
            assert_eq!(found["utf8"], value(build, number, padding), "{}", key(number));
        }
        build
    }
}

/// A node in this process.
pub struct TestNode {
    pub client: Client,
    pub dir: TempDir,
    running: Option<Running>,
}

impl TestNode {
    pub fn start() -> Self {
        Self::start_in(TempDir::new().unwrap())
    }

    pub fn start_in(dir: TempDir) -> Self {
        let config = config(dir.path());
        Self::start_with(dir, config)
    }

    /// A node that keeps given-up data for an hour.
    pub fn keeping(dir: TempDir) -> Self {
        let mut config = config(dir.path());
        config.keep_deleted = Duration::from_secs(3600);
        Self::start_with(dir, config)
    }

    pub fn start_with(dir: TempDir, config: Config) -> Self {
        let running = Fondaco::start(config).unwrap();
        Self {
            client: Client::new(running.http_addr()),
            dir,
            running: Some(running),
        }
    }

    /// Stops it as an operator would, and starts it again.
    pub fn restart(mut self) -> Self {
        self.stop();
        let empty = TempDir::new().unwrap();
        let dir = std::mem::replace(&mut self.dir, empty);
        Self::start_in(dir)
    }

    /// Stops it, and returns its directory.
    pub fn end(mut self) -> TempDir {
        self.stop();
        std::mem::replace(&mut self.dir, TempDir::new().unwrap())
    }

    /// A connection to its RESP port.
    pub fn resp(&self) -> Resp {
        Resp::at(self.running.as_ref().unwrap().resp_addr().unwrap())
    }

    /// Waits until it is ready.
    pub fn wait_ready(&self) {
        until("the node to be ready", || {
            self.client.call("GET", "/readyz", Value::Null).0 == 200
        });
    }

    /// Waits until it is not ready for a reason that contains this text.
    pub fn wait_not_ready(&self, says: &str) {
        eventually("the node not to be ready", || {
            let (status, readiness) = self.client.call("GET", "/readyz", Value::Null);
            let reasons = readiness["reasons"].as_array()?.iter();
            let says = reasons
                .into_iter()
                .any(|reason| reason.as_str().is_some_and(|reason| reason.contains(says)));
            (status == 503 && says).then_some(())
        });
    }

    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(running.shutdown());
        }
    }

    /// Waits until the store's directory holds these and nothing else.
    pub fn wait_for_dirs(&self, expected: &[&str]) {
        wait_for_dirs(self.dir.path(), expected);
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn config(dir: &Path) -> Config {
    let mut config = Config::local(dir, PARTITIONS.try_into().unwrap());
    config.resp_listen = ([127, 0, 0, 1], 0).into();
    config.http_listen = ([127, 0, 0, 1], 0).into();
    config.loops = 1;
    config.disk_reserve_bytes = 0;
    config.keep_deleted = Duration::ZERO;
    config
}

/// The first file in a directory whose name has this ending.
pub fn file_with(dir: &Path, ending: &str) -> String {
    let mut names = names(dir).into_iter();
    names.find(|name| name.ends_with(ending)).unwrap()
}

/// The names in a directory; empty if the directory is missing.
pub fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn wait_for_dirs(data_dir: &Path, expected: &[&str]) {
    let found = || (names(&data_dir.join("stores/pymk")), names(&data_dir.join("trash")));
    let deadline = Instant::now() + PATIENCE;
    while found() != (expected.iter().map(|name| (*name).to_owned()).collect(), Vec::new()) {
        assert!(Instant::now() < deadline, "expected {expected:?}, found {:?}", found());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A node in a process of its own, which can be killed.
pub struct NodeProcess {
    pub client: Client,
    pub resp: SocketAddr,
    child: Child,
}

impl NodeProcess {
    pub fn start(data_dir: &Path) -> Self {
        // Cargo builds the examples for the tests, and puts them beside them.
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("examples/embedded_node");
        let mut child = Command::new(program)
            .arg(data_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let addresses: Vec<SocketAddr> = line.split_whitespace().map(|addr| addr.parse().unwrap()).collect();
        let [resp, http] = addresses[..] else {
            panic!("the node did not start: {:?}", child.wait())
        };
        Self {
            client: Client::new(http),
            resp,
            child,
        }
    }

    /// Kills it, as a failing machine would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // It may be dead already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
