//! Measures reads of 10 of 100 fields of 1000 keys through a router, against whole values: bytes on the wire from the nodes to the router
//! and from the router to the client, and latency; and the best of 1000 dot products of 128 floats.
//!
//! ```text
//! cargo build --release && cargo run --release -p fondaco --example routed_fields
//! ```
//!
//! It starts a development cluster of four nodes and a router on free ports with the `fondaco` that lies beside it, and ends it.

use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

const KEYS: usize = 1000;
const FIELDS: usize = 100;
const ASKED: usize = 10;
const FLOATS: usize = 128;
const ROUNDS: usize = 200;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The cluster, ended when this is dropped.
struct Cluster {
    child: Child,
    http: String,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() -> Outcome<()> {
    let here = std::env::current_exe()?;
    let program: PathBuf = here
        .ancestors()
        .nth(2)
        .ok_or("the example lies in no directory of examples")?
        .join("fondaco");
    let dir = tempfile::tempdir()?;
    let mut child = Command::new(&program)
        .args([
            "dev", "--json", "--nodes", "4", "--loops", "1", "--log", "error", "--data",
        ])
        .arg(dir.path().join("data"))
        .args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no output")?;
    let serving: Value = serde_json::Deserializer::from_reader(stdout)
        .into_iter()
        .next()
        .ok_or("the cluster did not start")??;
    let http = serving["http"].as_str().ok_or("no address")?.to_owned();
    let cluster = Cluster { child, http };
    fill(&cluster, &program, dir.path())?;

    let mut answer = ureq::get(format!("http://{}/v1/dev/members", cluster.http)).call()?;
    let members: Value = serde_json::from_reader(answer.body_mut().as_reader())?;
    let addresses = |role: &str| -> Vec<String> {
        let members = members["members"].as_array().into_iter().flatten();
        let members = members.filter(|member| member["role"] == role);
        members
            .filter_map(|member| Some(member["resp"].as_str()?.to_owned()))
            .collect()
    };
    let (nodes, routers) = (addresses("node"), addresses("router"));
    let mut router = connect(routers.first().ok_or("no router")?)?;
    // Values, too, are to come from the nodes.
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("router-cache-bytes")
        .arg(0)
        .exec(&mut router)?;

    let keys: Vec<String> = (0..KEYS).map(|key| format!("items:{key}")).collect();
    let fields: Vec<String> = (0..ASKED).map(|at| name(at * 10)).collect();
    let vector: Vec<u8> = floats(7).iter().flat_map(|float| float.to_le_bytes()).collect();
    let mut of_fields = redis::cmd("FONDACO.MGET");
    of_fields.arg("FIELDS").arg(ASKED).arg(&fields);
    let mut as_raw = of_fields.clone();
    as_raw.arg("AS").arg("RAW");
    let mut top = redis::cmd("FONDACO.MSCORE");
    top.arg("DOT")
        .arg("v")
        .arg("VECTOR")
        .arg(&vector)
        .arg("TOP")
        .arg(10)
        .arg("KEYS");
    println!(
        "{:<22} {:>16} {:>18} {:>9} {:>9}",
        "1000 keys", "bytes from nodes", "bytes from router", "p50 ms", "p99 ms"
    );
    for (what, mut command) in [
        ("whole values", redis::cmd("MGET")),
        ("10 of 100 fields", of_fields),
        ("the same, AS RAW", as_raw),
        ("DOT of 128, TOP 10", top),
    ] {
        command.arg(&keys);
        let before = (sent(&nodes)?, sent(&routers)?);
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let found: Vec<redis::Value> = command.query(&mut router)?;
            times.push(began.elapsed());
            assert!(!found.is_empty());
        }
        let after = (sent(&nodes)?, sent(&routers)?);
        times.sort_unstable();
        let at = |share: f64| times[((ROUNDS - 1) as f64 * share) as usize];
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{what:<22} {:>16} {:>18} {:>9.2} {:>9.2}",
            (after.0 - before.0) / ROUNDS as u64,
            (after.1 - before.1) / ROUNDS as u64,
            ms(at(0.5)),
            ms(at(0.99))
        );
    }
    Ok(())
}

fn name(at: usize) -> String {
    format!("field_{at}")
}

fn floats(key: usize) -> Vec<f32> {
    (0..FLOATS)
        .map(|at| ((key * 31 + at) % 17) as f32 / 4.0 - 2.0)
        .collect()
}

/// Makes the store, with a vector and 100 fields.
fn fill(cluster: &Cluster, program: &PathBuf, dir: &std::path::Path) -> Outcome<()> {
    let kind = |at: usize| if at.is_multiple_of(2) { "long" } else { "string" };
    let mut fields: Vec<Value> = (0..FIELDS)
        .map(|at| json!({"name": name(at), "type": kind(at)}))
        .collect();
    fields.push(json!({"name": "v", "type": {"type": "array", "items": "float"}}));
    let schema = json!({"type": "record", "name": "Item", "fields": fields});
    let mut rows = String::new();
    for key in 0..KEYS {
        let mut row = Map::new();
        row.insert("key".into(), json!(key.to_string()));
        for at in 0..FIELDS {
            let text = format!("text {at} of item {key}");
            row.insert(
                name(at),
                if at.is_multiple_of(2) {
                    json!(key * at)
                } else {
                    json!(text)
                },
            );
        }
        row.insert("v".into(), json!(floats(key)));
        writeln!(rows, "{}", Value::Object(row))?;
    }
    let (schema_file, input) = (dir.join("item.avsc"), dir.join("items.jsonl"));
    std::fs::write(&schema_file, schema.to_string())?;
    std::fs::write(&input, rows)?;
    let columns: Vec<String> = (0..FIELDS).map(name).chain(["v".into()]).collect();
    let run = |arguments: &[&str]| -> Outcome<()> {
        let status = Command::new(program)
            .args(arguments)
            .args(["--http", &cluster.http])
            .stdout(Stdio::null())
            .status()?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("fondaco {}: {status}", arguments.join(" ")).into()),
        }
    };
    let (schema_file, input) = (schema_file.display().to_string(), input.display().to_string());
    run(&["store", "create", "items", "--value-type", "avro"])?;
    run(&["schema", "register", "items", &schema_file])?;
    run(&["push", "items", &input, "--key", "key", "--values", &columns.join(",")])
}

fn connect(address: &str) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("redis://{address}"))?.get_connection()
}

/// The bytes that were sent from these addresses over the connections that are open, as the kernel counts them for `ss`.
fn sent(addresses: &[String]) -> Outcome<u64> {
    let shown = Command::new("ss").args(["-Htin", "state", "established"]).output()?;
    let text = String::from_utf8(shown.stdout)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut bytes = 0;
    for lines in lines.chunks_exact(2) {
        let local = lines[0].split_whitespace().nth(2).ok_or("no local address")?;
        if addresses.iter().any(|address| address == local) {
            let count = lines[1]
                .split_whitespace()
                .find_map(|word| word.strip_prefix("bytes_sent:"));
            bytes += count.map_or(Ok(0), str::parse)?;
        }
    }
    Ok(bytes)
}
