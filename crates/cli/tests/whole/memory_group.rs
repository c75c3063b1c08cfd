//! A server in a control group with little memory, like a container, under maximal write load: it is not killed,
//! refuses writes that do not fit with a named error, and loses no acknowledged write.
//!
//! If no control group can be made (missing rights, or no memory controller), the tests report that, and watch the
//! memory of a process that was configured with this limit instead.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::node::{DEADLINE, Node, fondaco};

const MIB: u64 = 1 << 20;
const MEMORY_BYTES: u64 = 256 * MIB;
/// The number of bytes written, unless the time limit comes first.
const WRITTEN_BYTES: u64 = 700 * MIB;
const WRITING_TIME: Duration = Duration::from_secs(45);
const CLIENTS: u64 = 2;
/// More than a log has memory for.
const KEYS: u64 = 300_000;
const VALUE_BYTES: usize = 1024;
/// The first values are short, so that the memory for keys is used up soon.
const FIRST_VALUE_BYTES: usize = 64;
const PIPELINE: u64 = 64;
/// The possible error codes of a refused write.
const REFUSALS: [&str; 3] = ["KEYSFULL", "OVERLOADED", "DISKFULL"];

/// A control group with a memory limit, of version 1 or 2, removed on drop.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Result<Self, String> {
        let is_first = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
        let (root, limit, swap) = match is_first {
            true => (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
            ),
            false => ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
        };
        if !is_first {
            // Usually enabled already.
            let _ = fs::write(Path::new(root).join("cgroup.subtree_control"), "+memory");
        }
        let dir = Path::new(root).join(format!("fondaco-test-{}-{name}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("cannot make {dir:?}: {error}"))?;
        let group = Self(dir);
        let limited = fs::write(group.0.join(limit), MEMORY_BYTES.to_string());
        limited.map_err(|error| format!("cannot limit {:?}: {error}", group.0))?;
        let swap_bytes = if is_first { MEMORY_BYTES } else { 0 };
        // There may be no swap to limit.
        let _ = fs::write(group.0.join(swap), swap_bytes.to_string());
        Ok(group)
    }

    /// How many processes of the group were killed by the OOM killer.
    fn kills(&self) -> u64 {
        let texts = ["memory.oom_control", "memory.events"].map(|file| fs::read_to_string(self.0.join(file)));
        let texts = texts.into_iter().flatten().collect::<String>();
        let count = texts.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.map_or(0, |count| count.trim().parse().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has ended leaves the group a moment later.
        let ends = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < ends {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The anonymous memory of a process.
fn own_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// Whether a write belongs to the first round through all keys of a client.
fn is_first(write: u64) -> bool {
    write < KEYS / CLIENTS
}

fn value_bytes(write: u64) -> usize {
    match is_first(write) {
        true => FIRST_VALUE_BYTES,
        false => VALUE_BYTES,
    }
}

/// A value that identifies its key and its write.
fn value(key: u64, write: u64) -> Vec<u8> {
    let mut value = vec![0; value_bytes(write)];
    // Pseudo-random, so that it does not compress.
    fastrand::Rng::with_seed(key << 32 ^ write).fill(&mut value);
    value
}

struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    fn send(&mut self, requests: &[u8]) {
        self.stream.get_mut().write_all(requests).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the connection ended: {line:?}");
        line.trim_end().to_owned()
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let line = self.line();
        let length = line.strip_prefix('$').unwrap_or_else(|| panic!("no value: {line}"));
        let length = usize::try_from(length.parse::<i64>().unwrap()).ok()?;
        let mut value = vec![0; length + 2];
        self.stream.read_exact(&mut value).unwrap();
        value.truncate(length);
        Some(value)
    }
}

fn request(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The record of one client: the last acknowledged write of each of its keys.
#[derive(Default)]
struct Ledger {
    acknowledged: Vec<Option<u64>>,
    refused: u64,
}

/// Writes the client's own keys, pipelined, and reads some of them in between.
fn write(address: &str, client: u64, written_bytes: &AtomicU64) -> Ledger {
    let mut connection = Client::connect(address);
    let mut random = fastrand::Rng::with_seed(client);
    let keys = KEYS / CLIENTS;
    let mut ledger = Ledger {
        acknowledged: vec![None; keys as usize],
        refused: 0,
    };
    let (ends, mut number) = (Instant::now() + WRITING_TIME, 0);
    while Instant::now() < ends && written_bytes.load(Relaxed) < WRITTEN_BYTES {
        // In turn at first, so that every key is written.
        let mut chosen: Vec<u64> = (0..PIPELINE)
            .map(|at| match is_first(number + at) {
                true => number + at,
                false => random.u64(..keys),
            })
            .collect();
        chosen.sort_unstable();
        chosen.dedup();
        let mut requests = Vec::new();
        for key in &chosen {
            let name = format!("s:{client}-{key}");
            requests.extend(request(&[b"SET", name.as_bytes(), &value(*key, number)]));
        }
        let read = random.usize(..keys as usize);
        requests.extend(request(&[b"GET", format!("s:{client}-{read}").as_bytes()]));
        connection.send(&requests);
        for key in chosen {
            match connection.line() {
                line if line == "+OK" => {
                    ledger.acknowledged[key as usize] = Some(number);
                    written_bytes.fetch_add(value_bytes(number) as u64, Relaxed);
                }
                line => {
                    assert!(
                        REFUSALS.iter().any(|name| line.contains(name)),
                        "not a named refusal: {line}"
                    );
                    ledger.refused += 1;
                    // The client was to write as fast as it can, but a refused write must not keep it going for ever.
                    written_bytes.fetch_add(VALUE_BYTES as u64 / 8, Relaxed);
                }
            }
        }
        let expected = ledger.acknowledged[read].map(|number| value(read as u64, number));
        assert!(
            connection.value() == expected,
            "key {read} does not have the written value"
        );
        number += PIPELINE;
    }
    ledger
}

/// Reads a part of all keys.
fn check(address: &str, client: u64, ledger: &Ledger) {
    let mut connection = Client::connect(address);
    for (key, number) in ledger.acknowledged.iter().enumerate().step_by(37) {
        connection.send(&request(&[b"GET", format!("s:{client}-{key}").as_bytes()]));
        let expected = number.map(|number| value(key as u64, number));
        assert!(
            connection.value() == expected,
            "key {key} does not have the written value"
        );
    }
}

/// Connections that have each sent half of a long request.
fn half_sent(address: &str) -> Vec<TcpStream> {
    let begin = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut bytes = b"*25\r\n$4\r\nMSET\r\n".to_vec();
        for _ in 0..11 {
            bytes.extend(b"$3\r\ns:k\r\n$500000\r\n");
            bytes.resize(bytes.len() + 500_000, b'x');
            bytes.extend(b"\r\n");
        }
        // As much as the server accepts now.
        let _ = stream.write_all(&bytes);
        stream
    };
    (0..12).map(begin).collect()
}

fn writes_to(engine: &str) {
    // Not on a memory file system, whose files would count as memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let config = dir.path().join("fondaco.toml");
    let data = dir.path().join("data");
    let group = Group::new(engine);
    let memory = match &group {
        Ok(_) => String::new(),
        Err(reason) => {
            eprintln!(
                "NO CONTROL GROUP: {reason}. Watching the memory of a process that is configured with the limit."
            );
            "memory = \"256MiB\"\n".to_owned()
        }
    };
    let text = format!("data = {data:?}\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n{memory}");
    fs::write(&config, text).unwrap();
    let server = fondaco();
    let mut command = Command::new(if group.is_ok() { "sh" } else { "env" });
    match &group {
        Ok(Group(dir)) => command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(dir.join("cgroup.procs")),
        Err(_) => &mut command,
    };
    command.arg(server.get_program());
    server.get_envs().for_each(|(name, _)| {
        command.env_remove(name);
    });
    command
        .arg("server")
        .arg("--config")
        .arg(&config)
        .args(["--log", "error"]);
    let node = Node::start(command);
    node.done(&["store", "create", "s", "--kind", "versioned", "--engine", engine]);
    let pid = node.pid();
    let (written_bytes, most_bytes) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let ledgers: Vec<Ledger> = thread::scope(|scope| {
        let _half = half_sent(&node.resp);
        let writers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn({
                    let (address, written_bytes) = (&node.resp, &written_bytes);
                    move || write(address, client, written_bytes)
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            most_bytes.fetch_max(own_bytes(pid).unwrap_or(0), Relaxed);
            thread::sleep(Duration::from_millis(20));
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let acknowledged: usize = ledgers
        .iter()
        .map(|ledger| ledger.acknowledged.iter().flatten().count())
        .sum();
    let refused: u64 = ledgers.iter().map(|ledger| ledger.refused).sum();
    eprintln!(
        "{engine}: {acknowledged} keys, {refused} writes refused, {} MiB counted, {} MiB of memory at most",
        written_bytes.load(Relaxed) / MIB,
        most_bytes.load(Relaxed) / MIB
    );
    assert!(acknowledged > 50_000, "only {acknowledged} keys");
    assert!(most_bytes.load(Relaxed) < MEMORY_BYTES, "it used too much memory");
    if let Ok(group) = &group {
        assert_eq!(group.kills(), 0);
    }
    for (client, ledger) in ledgers.iter().enumerate() {
        check(&node.resp, client as u64, ledger);
    }
    // Also after a kill, when the node has to load its memory again.
    node.kill();
    drop(group);
    let node = Node::server(&config);
    for (client, ledger) in ledgers.iter().enumerate() {
        check(&node.resp, client as u64, ledger);
    }
}

#[test]
fn the_log_engine_survives_writes_in_a_small_container() {
    writes_to("log");
}

#[test]
fn the_disk_engine_survives_writes_in_a_small_container() {
    writes_to("disk");
}
