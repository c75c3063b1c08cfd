//! A version that is built by the tasks of an engine, each a process.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::thread;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use fondaco_format::{key_hash, key_position};
use fondaco_model::{PartitionCount, PartitionId};
use fondaco_storage::{Location, S3Options, Secret, StorageOptions};
use fondaco_testing::{Hdfs, S3, SmallDisk};
use parquet::arrow::ArrowWriter;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::node::{fondaco, signal, until, wait};

const MIB: u64 = 1 << 20;

/// The description of a build with one partition, whose output is `tasks` in this directory.
fn spec(directory: &Path) -> Value {
    json!({
        "store": "s",
        "partitions": 1,
        "output": directory.join("tasks"),
        "key": ["key"],
        "value": "value",
        "temporary": directory,
    })
}

fn task(command: &str, spec: &Value, options: &[&str]) -> Child {
    task_in(&[], command, spec, options)
}

/// A task with these environment variables.
fn task_in(environment: &[(&str, String)], command: &str, spec: &Value, options: &[&str]) -> Child {
    fondaco()
        .envs(environment.iter().cloned())
        .args(["task", command, "--spec", &spec.to_string()])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a task to its end.
fn run(command: &str, spec: &Value, options: &[&str], input: &[u8]) -> Output {
    output_of(task(command, spec, options), input)
}

fn output_of(mut child: Child, input: &[u8]) -> Output {
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // A task that fails does not read all of it.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

fn done(command: &str, spec: &Value, options: &[&str], input: &[u8]) -> Vec<u8> {
    done_in(&[], command, spec, options, input)
}

fn done_in(environment: &[(&str, String)], command: &str, spec: &Value, options: &[&str], input: &[u8]) -> Vec<u8> {
    let output = output_of(task_in(environment, command, spec, options), input);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn stream(schema: &Schema, batches: &[RecordBatch]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, schema).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    bytes
}

fn rows(count: usize) -> RecordBatch {
    let schema = Schema::new(
        ["key", "value"]
            .map(|name| Field::new(name, DataType::Utf8, true))
            .to_vec(),
    );
    let keys = StringArray::from_iter_values((0..count).map(|row| format!("key {row}")));
    let values = StringArray::from_iter_values((0..count).map(|row| format!("{row:0100}")));
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(keys), Arc::new(values)]).unwrap()
}

/// The encoded rows in the order of their positions.
fn sorted(encoded: &[u8]) -> (SchemaRef, Vec<RecordBatch>) {
    let reader = StreamReader::try_new(encoded, None).unwrap();
    let schema = reader.schema();
    let mut rows: Vec<(i64, RecordBatch)> = Vec::new();
    for batch in reader {
        let batch = batch.unwrap();
        let positions = batch["position"].as_primitive::<Int64Type>();
        rows.extend((0..batch.num_rows()).map(|row| (positions.value(row), batch.slice(row, 1))));
    }
    rows.sort_by_key(|(position, _)| *position);
    (schema, rows.into_iter().map(|(_, row)| row).collect())
}

fn unfinished_files(output: &Path) -> usize {
    let Ok(entries) = fs::read_dir(output) else { return 0 };
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("attempt-"))
        .count()
}

#[test]
fn processes_of_an_engine_make_the_version_of_a_local_build_whatever_happens_to_some() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let rows = rows(3000);
    let mut writer = ArrowWriter::try_new(File::create(path("rows.parquet")).unwrap(), rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    let local = fondaco()
        .args([
            "build",
            "s",
            "--key",
            "key",
            "--value",
            "value",
            "--partitions",
            "1",
            "--json",
            "--output",
        ])
        .args([path("local"), path("rows.parquet")])
        .output()
        .unwrap();
    let local = json_of(&local.stdout);

    let spec = json_of(&done(
        "plan",
        &spec(directory.path()),
        &[],
        &stream(&rows.schema(), &[]),
    ));
    let encoded = done(
        "encode",
        &spec,
        &[],
        &stream(&rows.schema(), &[rows.slice(0, 999), rows.slice(999, 2001)]),
    );
    let (schema, sorted) = sorted(&encoded);
    let complete = stream(&schema, &sorted);

    // One attempt is asked to stop, and one is killed, each while it writes.
    let mut attempts: Vec<(Child, Signal)> = Vec::new();
    for (attempt, how) in [("1", Signal::TERM), ("2", Signal::KILL)] {
        let mut child = task("write", &spec, &["--partitions", "0", "--attempt", attempt]);
        let stdin = child.stdin.as_mut().unwrap();
        stdin.write_all(&complete[..complete.len() / 2]).unwrap();
        stdin.flush().unwrap();
        attempts.push((child, how));
    }
    let output = path("tasks");
    until("both tasks have begun", || output.exists());
    for (child, how) in &mut attempts {
        signal(child, *how);
        let status = wait(child);
        assert!(*how == Signal::KILL || status.code() == Some(1), "{status:?}");
    }
    fs::write(output.join("attempt-2-p00000-c0000.data"), "killed").unwrap();
    let cut_off = run(
        "write",
        &spec,
        &["--partitions", "0", "--attempt", "3"],
        &complete[..complete.len() - 8],
    );
    assert_eq!(cut_off.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&cut_off.stderr).contains("its writer was stopped"));
    assert_eq!(unfinished_files(&output), 1, "only that of the killed one");

    let line = done("write", &spec, &["--partitions", "0", "--attempt", "4"], &complete);
    let missing = run("commit", &spec, &[], b"");
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no task has partition 0"));
    let committed = json_of(&done("commit", &spec, &[], &line));
    for member in [
        "checksum",
        "records",
        "bytes",
        "rows",
        "partitions",
        "chunks",
        "files_bytes",
        "index_bytes",
    ] {
        assert!(
            local[member] == committed[member] && !local[member].is_null(),
            "{member}: {local}, {committed}"
        );
    }
    let names = |directory: PathBuf| {
        let mut names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(output), names(path("local")));
    let refused = run("abort", &spec, &["--json"], b"");
    assert_eq!(refused.status.code(), Some(1), "a version stays");
    assert_eq!(json_of(&refused.stderr)["error"]["code"], "version_complete");

    let mut unknown = spec.clone();
    unknown["colour"] = json!("red");
    let refused = run("encode", &unknown, &[], b"");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("unknown field `colour`"));
}

/// The peak memory of a process so far, in bytes, or `None` if it has ended.
fn peak_memory_bytes(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// Passes batches to a task, whose output is thrown away; returns the peak of its memory, in bytes.
fn peak_of(mut child: Child, schema: &SchemaRef, batches: impl Iterator<Item = RecordBatch> + Send) -> u64 {
    let stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut peak = 0;
    thread::scope(|scope| {
        let reading = scope.spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()).unwrap());
        let writing = scope.spawn(move || {
            let mut writer = StreamWriter::try_new(stdin, schema).unwrap();
            batches.for_each(|batch| writer.write(&batch).unwrap());
            writer.finish().unwrap();
        });
        let mut ended = None;
        until("the task ends", || {
            peak = peak.max(peak_memory_bytes(&child).unwrap_or(0));
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        writing.join().unwrap();
        reading.join().unwrap();
        assert!(ended.unwrap().success());
    });
    peak
}

#[test]
fn tasks_take_little_memory_for_any_number_of_rows() {
    const ROWS: usize = 150_000;
    const BATCH: usize = 1000;
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path());
    let fields = |names: [&str; 2]| {
        Arc::new(Schema::new(
            names.map(|name| Field::new(name, DataType::Binary, true)).to_vec(),
        ))
    };
    let mut keys: Vec<Vec<u8>> = (0..ROWS).map(|row| format!("key {row}").into_bytes()).collect();
    keys.sort_by_key(|key| key_position(PartitionCount::ONE, PartitionId::new(0), key_hash(key)));
    // 300 MiB in all.
    let batches = |schema: &SchemaRef| {
        let schema = Arc::clone(schema);
        let batches: Vec<Vec<Vec<u8>>> = keys.chunks(BATCH).map(<[_]>::to_vec).collect();
        batches.into_iter().map(move |keys| {
            let values: BinaryArray = keys.iter().map(|key| Some(key.repeat(200))).collect();
            let keys: BinaryArray = keys.iter().map(Some).collect();
            let columns: [ArrayRef; 2] = [Arc::new(keys), Arc::new(values)];
            assert_eq!(columns[0].len(), columns[1].len());
            RecordBatch::try_new(Arc::clone(&schema), columns.to_vec()).unwrap()
        })
    };
    let schema = fields(["key", "value"]);
    let peak = peak_of(task("encode", &spec, &[]), &schema, batches(&schema));
    assert!(peak < 100 * MIB, "encode takes {} MiB", peak / MIB);
    let write = task("write", &spec, &["--partitions", "0", "--attempt", "1"]);
    let peak = peak_of(write, &schema, batches(&schema));
    assert!(peak < 100 * MIB, "write takes {} MiB", peak / MIB);
}

#[test]
fn a_full_disk_is_named_and_nothing_unfinished_stays() {
    let Some(disk) = SmallDisk::temporary(4 * MIB) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path());
    spec["output"] = json!(disk.path().join("tasks"));
    let rows = rows(60_000);
    let spec = json_of(&done("plan", &spec, &[], &stream(&rows.schema(), &[])));
    let (schema, sorted) = sorted(&done("encode", &spec, &[], &stream(&rows.schema(), &[rows])));
    let complete = stream(&schema, &sorted);
    let full = run("write", &spec, &["--partitions", "0", "--attempt", "1"], &complete);
    let error = String::from_utf8_lossy(&full.stderr);
    assert!(
        full.status.code() == Some(1) && error.contains("no space left"),
        "{error}"
    );
    assert_eq!(unfinished_files(&disk.path().join("tasks")), 0);
    done("abort", &spec, &[], b"");
    assert!(!disk.path().join("tasks").exists());
}

/// Builds a version and a difference to it at two URLs, and compares them with those of local builds.
fn build_at(urls: [&str; 2], environment: &[(&str, String)], names: impl Fn(&str) -> Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let rows = rows(3000);
    let local = |name: &str, rows: &RecordBatch, options: &[&str]| {
        let input = path(&format!("{name}.parquet"));
        let mut writer = ArrowWriter::try_new(File::create(&input).unwrap(), rows.schema(), None).unwrap();
        writer.write(rows).unwrap();
        writer.close().unwrap();
        let mut build = fondaco();
        build.args(["build", "s", "--key", "key", "--value", "value", "--json", "--output"]);
        let output = build.args([path(name), input]).args(options).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json_of(&output.stdout)
    };
    let by_tasks = |spec: &Value, rows: &RecordBatch| {
        let empty = stream(&rows.schema(), &[]);
        let spec = json_of(&done_in(environment, "plan", spec, &[], &empty));
        let encoded = done_in(
            environment,
            "encode",
            &spec,
            &[],
            &stream(&rows.schema(), std::slice::from_ref(rows)),
        );
        let (schema, sorted) = sorted(&encoded);
        let complete = stream(&schema, &sorted);
        // An attempt that is killed while it writes.
        let mut killed = task_in(
            environment,
            "write",
            &spec,
            &["--partitions", "0", "--attempt", "killed"],
        );
        killed
            .stdin
            .as_mut()
            .unwrap()
            .write_all(&complete[..complete.len() / 2])
            .unwrap();
        signal(&killed, Signal::KILL);
        wait(&mut killed);
        let write = ["--partitions", "0", "--attempt", "1"];
        let line = done_in(environment, "write", &spec, &write, &complete);
        json_of(&done_in(environment, "commit", &spec, &[], &line))
    };
    let mut spec = spec(directory.path());
    spec["output"] = json!(urls[0]);
    let [local_base, base] = [local("base", &rows, &["--partitions", "1"]), by_tasks(&spec, &rows)];
    assert!(local_base["checksum"] == base["checksum"] && !base["checksum"].is_null());
    assert_eq!(names(urls[0]).len(), 3, "{:?}", names(urls[0]));

    // Two rows as they were, and five new ones.
    let changed = self::rows(3005).slice(2998, 7);
    let base_path = path("base");
    let local_next = local("next", &changed, &["--base", base_path.to_str().unwrap()]);
    spec["output"] = json!(urls[1]);
    spec["base"] = json!(urls[0]);
    let next = by_tasks(&spec, &changed);
    assert!(local_next["checksum"] == next["checksum"] && local_next["increment"] == next["increment"]);
    assert_eq!(names(urls[1]).len(), 4, "with a patch: {:?}", names(urls[1]));
}

fn names_at(location: &Location) -> Vec<String> {
    location.list().unwrap().into_iter().map(|file| file.name).collect()
}

#[test]
fn tasks_write_to_an_object_store() {
    let server = S3::start();
    let environment = [
        ("AWS_ENDPOINT_URL", server.endpoint()),
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY_ID.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_ACCESS_KEY.to_owned()),
    ];
    let options = StorageOptions {
        s3: S3Options {
            endpoint: Some(server.endpoint()),
            access_key_id: Some(S3::ACCESS_KEY_ID.into()),
            secret_access_key: Some(Secret::new(S3::SECRET_ACCESS_KEY)),
            ..S3Options::default()
        },
        ..StorageOptions::default()
    };
    let urls = ["s-1", "s-2"].map(|name| format!("s3://{}/{name}", S3::BUCKET));
    build_at([&urls[0], &urls[1]], &environment, |url| {
        names_at(&options.locate(url).unwrap())
    });
}

#[test]
fn tasks_write_to_hdfs() {
    let server = Hdfs::start();
    let urls = ["s-1", "s-2"].map(|name| format!("{}/versions/{name}", server.url()));
    build_at([&urls[0], &urls[1]], &[], |url| names_at(&url.parse().unwrap()));
}
