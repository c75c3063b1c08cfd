//! Compares look-ups within the process with the same look-ups over the loopback: GET and MGET of a node, by the Redis
//! protocol, in one run, on the same version.
//!
//! ```text
//! cargo run --release -p fondaco-embedded --example embedded_speed -- [KEYS [VALUE_BYTES [SECONDS [hybrid]]]]
//! ```
//!
//! With `hybrid`, a Kafka is started, and every second key has an event on top of the version.
//!
//! Each side has one thread that asks, and the node has one event loop. At the end, the same version is read after its
//! pages were dropped from memory: one key after the other, and in batches.

use std::error::Error;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use fondaco_admin::{AdminError, Client};
use fondaco_api::{NewPush, PushResource, StoreResource, StreamStatus};
use fondaco_builder::{BuildOptions, Progress, ValueSelection, build};
use fondaco_embedded::{Endpoint, FollowOptions, Reader};
use fondaco_model::VersionNumber;
use fondaco_roles::{Config, Fondaco};
use fondaco_storage::Location;
use fondaco_testing::Kafka;
use serde_json::json;

/// How many keys a batch has.
const BATCH: usize = 100;

/// How many requests a pipeline has.
const PIPELINE: usize = 64;

/// How many keys are read from the disk.
const COLD_KEYS: usize = 5000;

const PATIENCE: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let keys: usize = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let value_bytes: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let kafka = arguments.next().map(|_| Kafka::start());
    let dir = tempfile::tempdir_in("target")?;
    let built = version(dir.path(), keys, value_bytes)?;

    let mut config = Config::local(dir.path().join("node"), 4.try_into()?);
    config.resp_listen = ([127, 0, 0, 1], 0).into();
    config.http_listen = ([127, 0, 0, 1], 0).into();
    config.loops = 1;
    config.disk_reserve_bytes = 0;
    let running = Fondaco::start(config)?;
    assert!(running.wait_serving(PATIENCE)?);
    let endpoint = Endpoint::of_http(running.http_addr().to_string());
    let stream = kafka.as_ref().map(|kafka| format!("kafka://{}/speed", kafka.address()));
    let topic = kafka.as_ref().map(|kafka| kafka.make_topic("speed", 4));
    push(&endpoint.client()?, &built, stream)?;
    let reader = Reader::follow(FollowOptions::new(
        endpoint.clone(),
        "speed".parse()?,
        dir.path().join("reader"),
    ))?;
    reader.wait_for(VersionNumber::FIRST, PATIENCE)?;
    let resp = running.resp_addr().ok_or("the node has a RESP port")?;
    let mut node = redis::Client::open(format!("redis://{resp}"))?.get_connection()?;
    if let Some(topic) = &topic {
        let value = |number: usize| format!("{number:0>value_bytes$}");
        for number in (0..keys).step_by(2) {
            topic.send((number % 4) as i32, Some(&key(number)), Some(&value(number)), None);
            if number % 50_000 == 0 {
                topic.flush();
            }
        }
        topic.flush();
        let events = keys.div_ceil(2) as u64;
        let of_node = || -> Result<bool, AdminError> {
            let status: StreamStatus = endpoint.client()?.get("/v1/stores/speed/stream")?;
            Ok(status
                .versions
                .iter()
                .any(|version| version.applied + version.superseded >= events))
        };
        let of_reader = || {
            reader
                .status()
                .stream
                .is_some_and(|stream| stream.records_read >= events)
        };
        let deadline = Instant::now() + PATIENCE;
        while !of_reader() || !of_node()? {
            assert!(Instant::now() < deadline, "the events are read");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    let mut random = fastrand::Rng::with_seed(7);
    let mut some = |count: usize| -> Vec<String> { (0..count).map(|_| key(random.usize(..keys))).collect() };
    let (singles, batches): (Vec<_>, Vec<_>) = (some(1 << 16), (0..1 << 10).map(|_| some(BATCH)).collect());
    let wires = |keys: &[String]| -> Vec<String> { keys.iter().map(|key| format!("speed:{key}")).collect() };
    let (wire_singles, wire_batches): (_, Vec<_>) = (wires(&singles), batches.iter().map(|keys| wires(keys)).collect());
    let snapshot = reader.snapshot()?;
    let time = Duration::from_secs(seconds);

    println!("{keys} keys, values of {value_bytes} bytes, one thread, warm; keys per second");
    let get = rate(time, 1, &singles, |key| {
        Ok(reader.get(key)?.map_or(0, |value| value.len()))
    })?;
    let borrowed = rate(time, 1, &singles, |key| {
        Ok(snapshot.get(key)?.map_or(0, |value| value.len()))
    })?;
    let many = rate(time, BATCH, &batches, |keys| {
        Ok(reader.get_many(keys)?.iter().flatten().map(<[u8]>::len).sum())
    })?;
    let resp_get = rate(time, 1, &wire_singles, |key| {
        Ok(redis::cmd("GET").arg(key).query::<Vec<u8>>(&mut node)?.len())
    })?;
    let pipelines: Vec<&[String]> = wire_singles.chunks_exact(PIPELINE).collect();
    let resp_pipelined = rate(time, PIPELINE, &pipelines, |keys| {
        let mut pipeline = redis::pipe();
        for key in *keys {
            pipeline.cmd("GET").arg(key);
        }
        Ok(pipeline.query::<Vec<Vec<u8>>>(&mut node)?.iter().map(Vec::len).sum())
    })?;
    let resp_many = rate(time, BATCH, &wire_batches, |keys| {
        Ok(redis::cmd("MGET")
            .arg(keys)
            .query::<Vec<Vec<u8>>>(&mut node)?
            .iter()
            .map(Vec::len)
            .sum())
    })?;
    for (name, rate, peer) in [
        ("get", get, Some(resp_get)),
        ("snapshot.get, borrowed", borrowed, Some(resp_get)),
        ("get_many of 100", many, Some(resp_many)),
        ("node, GET", resp_get, None),
        ("node, GET in pipelines of 64", resp_pipelined, None),
        ("node, MGET of 100", resp_many, None),
    ] {
        let ratio = peer.map_or_else(String::new, |peer| format!("  {:.1} times the node", rate / peer));
        println!("{name:<30} {rate:>12.0}{ratio}");
    }
    let built = built.local_path().ok_or("it is a directory")?;
    let [cold_get, cold_many] = [
        cold(built, &singles[..COLD_KEYS], 1)?,
        cold(built, &singles[COLD_KEYS..][..COLD_KEYS], BATCH)?,
    ];
    println!("{:<30} {cold_get:>12.0}", "get, from the disk");
    println!(
        "{:<30} {cold_many:>12.0}  {:.1} times get",
        "get_many of 100, from the disk",
        cold_many / cold_get
    );
    drop(reader);
    tokio::runtime::Builder::new_current_thread()
        .build()?
        .block_on(running.shutdown());
    Ok(())
}

fn key(number: usize) -> String {
    format!("member-{number}")
}

/// Builds a version of the store `speed`.
fn version(dir: &Path, keys: usize, value_bytes: usize) -> Result<Location, Box<dyn Error>> {
    let rows = dir.join("rows.csv");
    let mut file = BufWriter::new(fs::File::create(&rows)?);
    writeln!(file, "id,value")?;
    for number in 0..keys {
        writeln!(file, "{},{number:0>value_bytes$}", key(number))?;
    }
    file.flush()?;
    let (inputs, output) = (
        vec![rows.display().to_string()],
        Location::local(std::path::absolute(dir)?.join("built")),
    );
    let mut options = BuildOptions::new("speed".parse()?, 4.try_into()?, inputs, "id", output, dir.to_owned());
    options.value = ValueSelection::Column("value".into());
    build(&options, &Progress::default())?;
    Ok(options.output)
}

/// Creates the store, and swaps the version in.
fn push(client: &Client, built: &Location, stream: Option<String>) -> Result<(), Box<dyn Error>> {
    let store = match stream {
        Some(stream) => json!({"name": "speed", "kind": "hybrid", "stream": {"source": stream}}),
        None => json!({"name": "speed"}),
    };
    let _: StoreResource = client.post("/v1/stores", &store)?;
    let new: NewPush = serde_json::from_value(json!({ "source": built.to_string() }))?;
    let _: PushResource = client.post("/v1/stores/speed/pushes", &new)?;
    let deadline = Instant::now() + PATIENCE;
    while client
        .store(&"speed".parse()?)?
        .is_none_or(|store| store.current_version.is_none())
    {
        assert!(Instant::now() < deadline, "the version is swapped in");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Drops a version from memory, and looks these keys up in batches: how many keys a second.
fn cold(built: &Path, keys: &[String], batch: usize) -> Result<f64, Box<dyn Error>> {
    for entry in fs::read_dir(built)? {
        let file = fs::File::open(entry?.path())?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    let reader = Reader::open(built)?;
    reader.warm()?;
    let began = Instant::now();
    for keys in keys.chunks(batch) {
        assert!(reader.get_many(keys)?.iter().all(|value| value.is_some()));
    }
    Ok(keys.len() as f64 / began.elapsed().as_secs_f64())
}

/// Asks for these again and again: how many keys a second. Each request has to find bytes.
fn rate<T>(
    time: Duration,
    keys_each: usize,
    requests: &[T],
    mut ask: impl FnMut(&T) -> Result<usize, Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let mut run = |time: Duration| -> Result<f64, Box<dyn Error>> {
        let (began, mut asked) = (Instant::now(), 0);
        for some in requests.chunks(64).cycle() {
            for request in some {
                assert!(ask(request)? > 0, "the key is there");
            }
            asked += some.len();
            if began.elapsed() >= time {
                break;
            }
        }
        Ok((asked * keys_each) as f64 / began.elapsed().as_secs_f64())
    };
    // Everything is in memory afterwards.
    run(time / 4)?;
    run(time)
}
