//! A version that is built by tasks is the one that the local builder makes of the same rows, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{DataType, Schema, TimeUnit};
use fondaco_builder::task::{self, Spec, Written};
use fondaco_builder::{
    BuildError, BuildOptions, IncrementOptions, OnDuplicate, Progress, ValueSelection, build_batches, build_increment,
};
use fondaco_format::{Compression, MANIFEST_FILE, Manifest, Version, verify};
use fondaco_model::ValueType;
use fondaco_storage::Location;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::generate::{Place, assert_says, get, table, texts, write_binary_rows, write_parquet};
use crate::sort::{Row, rows};

/// A directory with its manifest's identity and all its other files.
fn content(dir: &Path) -> (String, BTreeMap<String, Vec<u8>>) {
    let (_, identity) = Manifest::read_identified(dir).unwrap();
    let files = fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (
            entry.file_name().into_string().unwrap(),
            fs::read(entry.path()).unwrap(),
        )
    });
    let files = files.filter(|(name, _)| name != MANIFEST_FILE);
    (identity.to_string(), files.collect())
}

/// The description of a build whose output is beside that of the place.
fn spec(place: &Place, change: impl FnOnce(&mut Value)) -> Spec {
    let mut spec = json!({
        "store": "pymk",
        "partitions": 4,
        "output": place.output().with_extension("tasks"),
        "key": ["k"],
        "value": "v",
        "temporary": place.temporary(),
    });
    change(&mut spec);
    Spec::from_json(&spec.to_string()).unwrap()
}

fn stream(schema: &Schema, batches: &[RecordBatch]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, schema).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    bytes
}

fn batches_of(bytes: &[u8]) -> Vec<RecordBatch> {
    let reader = arrow_ipc::reader::StreamReader::try_new(bytes, None).unwrap();
    reader.map(Result::unwrap).collect()
}

fn planned(spec: &Spec, rows: &RecordBatch) -> Result<Spec, BuildError> {
    task::plan(spec, &stream(rows.schema_ref(), &[])[..])
}

/// Encodes rows in batches of this many.
fn encoded(spec: &Spec, rows: &RecordBatch, batch_rows: usize) -> Result<RecordBatch, BuildError> {
    let starts = (0..rows.num_rows()).step_by(batch_rows.max(1));
    let batches: Vec<RecordBatch> = starts
        .map(|start| rows.slice(start, batch_rows.min(rows.num_rows() - start)))
        .collect();
    let mut bytes = Vec::new();
    let count = task::encode(
        spec,
        &stream(rows.schema_ref(), &batches)[..],
        &mut bytes,
        &Progress::new(),
    )?;
    assert_eq!(count, rows.num_rows() as u64);
    let schema = arrow_ipc::reader::StreamReader::try_new(&bytes[..], None)
        .unwrap()
        .schema();
    Ok(arrow_select::concat::concat_batches(&schema, &batches_of(&bytes)).unwrap())
}

/// The encoded rows of some partitions in the order of their positions, as an engine passes them on: equal positions are in
/// any order.
fn sorted(encoded: &RecordBatch, partitions: &[u32], batch_rows: usize) -> Vec<u8> {
    let positions = encoded["position"].as_primitive::<Int64Type>();
    let of = encoded["partition"].as_primitive::<Int32Type>();
    let mut rows: Vec<u64> = (0..encoded.num_rows() as u64).rev().collect();
    rows.retain(|row| partitions.contains(&(of.value(*row as usize) as u32)));
    rows.sort_by_key(|row| positions.value(*row as usize));
    let rows = UInt64Array::from(rows);
    let batch = arrow_select::take::take_record_batch(encoded, &rows).unwrap();
    let batches: Vec<RecordBatch> = (0..batch.num_rows())
        .step_by(batch_rows.max(1))
        .map(|start| batch.slice(start, batch_rows.min(batch.num_rows() - start)))
        .collect();
    stream(batch.schema_ref(), &batches)
}

fn write(spec: &Spec, partitions: &[u32], attempt: &str, rows: &[u8]) -> Result<Written, BuildError> {
    task::write(spec, partitions, attempt, rows, &Progress::new())
}

/// Runs all tasks, each with some partitions, and returns their results in another order.
fn lines(spec: &Spec, encoded: &RecordBatch, tasks: &[Vec<u32>], batch_rows: usize) -> Result<String, BuildError> {
    let mut lines = Vec::new();
    for (number, partitions) in tasks.iter().enumerate() {
        let rows = sorted(encoded, partitions, batch_rows);
        let written = write(spec, partitions, &format!("task-{number}"), &rows)?;
        lines.push(serde_json::to_string(&written).unwrap());
    }
    lines.reverse();
    Ok(lines.join("\n"))
}

/// Builds by two tasks.
fn build_by_tasks(spec: &Spec, rows: &RecordBatch) -> Result<task::Committed, BuildError> {
    let spec = planned(spec, rows)?;
    let encoded = encoded(&spec, rows, 1000)?;
    let (odd, even): (Vec<u32>, Vec<u32>) = (0..spec.partitions).partition(|partition| partition % 2 == 1);
    let lines = lines(&spec, &encoded, &[odd, even], 700)?;
    task::commit(&spec, &lines)
}

fn output_of(spec: &Spec) -> &Path {
    Path::new(&spec.output)
}

fn binary_table(rows: &[Row]) -> RecordBatch {
    let keys: BinaryArray = rows.iter().map(|(key, _)| Some(&key[..])).collect();
    let values: BinaryArray = rows.iter().map(|(_, value)| Some(&value[..])).collect();
    let numbers = Int64Array::from_iter_values(0..rows.len() as i64);
    table(vec![
        ("k", Arc::new(keys)),
        ("v", Arc::new(values)),
        ("number", Arc::new(numbers)),
    ])
}

/// Checks that tasks make the version of the place, which the local builder made.
fn check_equal(place: &Place, spec: &Spec) {
    let [local, tasks] = [&*place.output(), output_of(spec)].map(content);
    assert_eq!(local.0, tasks.0, "identities");
    assert!(local.1 == tasks.1, "files");
    verify(output_of(spec)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn tasks_make_the_version_of_the_local_builder(
        rows in rows(),
        distinct: bool,
        on_duplicate in prop::sample::select(vec![OnDuplicate::Fail, OnDuplicate::First, OnDuplicate::Last]),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]),
        partition_bits in 0..6u32,
        chunk_bytes in prop::sample::select(vec![5_000_u64, 200_000, 1 << 30]),
        memory_bytes in prop::sample::select(vec![1_u64 << 20, 256 << 20]),
        batch_rows in prop::sample::select(vec![1_usize, 7, 1000]),
        tasks in 1..6usize,
        seed: u64,
    ) {
        let mut rows = rows;
        if distinct {
            let mut seen = std::collections::HashSet::new();
            rows.retain(|(key, _)| seen.insert(key.clone()));
        }
        let place = Place::new();
        write_binary_rows(&place, &rows, 1);
        let local = place.build(|options| {
            options.on_duplicate = on_duplicate;
            options.compression = compression;
            options.partitions = (1 << partition_bits).try_into().unwrap();
            options.chunk_bytes_target = chunk_bytes;
        });
        let dictionary = local.as_ref().ok().and_then(|report| report.manifest.as_ref()?.dictionary.clone());
        let spec = spec(&place, |spec| {
            spec["partitions"] = json!(1 << partition_bits);
            spec["compression"] = json!(compression);
            spec["chunk_bytes"] = json!(chunk_bytes);
            spec["on_duplicate"] = json!(on_duplicate.to_string());
            spec["order_by"] = json!("number");
            spec["memory_bytes"] = json!(memory_bytes);
            spec["dictionary"] = json!(dictionary.map(|file| place.output().join(file.name)));
        });
        let rows = binary_table(&rows);
        let spec = planned(&spec, &rows).unwrap();
        let encoded = encoded(&spec, &rows, batch_rows).unwrap();
        let mut division = vec![vec![]; tasks];
        for partition in 0..1_u32 << partition_bits {
            division[(fondaco_format::key_hash(&(seed ^ u64::from(partition)).to_le_bytes()) % tasks as u64) as usize]
                .push(partition);
        }
        let made = lines(&spec, &encoded, &division, batch_rows).and_then(|lines| task::commit(&spec, &lines));
        match (local, made) {
            (Ok(local), Ok(made)) => {
                prop_assert_eq!(local.records, made.report.records);
                prop_assert_eq!(local.bytes, made.report.bytes);
                prop_assert_eq!(local.duplicates, made.report.duplicates);
                prop_assert_eq!(local.rows, made.report.rows);
                prop_assert_eq!(local.partitions, made.report.partitions);
                check_equal(&place, &spec);
            }
            (Err(BuildError::Duplicate { key, .. }), Err(error)) => {
                let error = error.to_string();
                prop_assert!(error.contains("occurs twice"), "{}", error);
                drop(key);
            }
            (local, made) => prop_assert!(false, "{:?}, {:?}", local.map(drop), made.map(drop)),
        }
        prop_assert_eq!(fs::read_dir(place.temporary()).unwrap().count(), 0);
    }
}

#[test]
fn a_large_partition_has_the_same_chunks_though_a_task_sees_only_its_beginning() {
    for (rows, value_bytes) in [(40_000_u32, 1000), (70, 2 << 20)] {
        let rows: Vec<Row> = (0..rows)
            .map(|n| {
                (
                    format!("key{n}").into_bytes(),
                    n.to_string().repeat(value_bytes / 4).into_bytes(),
                )
            })
            .collect();
        let place = Place::new();
        write_binary_rows(&place, &rows, 1);
        let version = place.built(|options| {
            options.partitions = 1.try_into().unwrap();
            options.chunk_bytes_target = 1 << 20;
        });
        let chunks = version.manifest().chunks.len();
        assert!((32..=256).contains(&chunks), "{chunks} chunks");
        let spec = spec(&place, |spec| {
            spec["partitions"] = json!(1);
            spec["chunk_bytes"] = json!(1 << 20);
            spec["memory_bytes"] = json!(1 << 20);
        });
        let rows = binary_table(&rows);
        let spec = planned(&spec, &rows).unwrap();
        let encoded = encoded(&spec, &rows, 1000).unwrap();
        let lines = lines(&spec, &encoded, &[vec![0]], 1000).unwrap();
        task::commit(&spec, &lines).unwrap();
        check_equal(&place, &spec);
    }
}

#[test]
fn sets_of_ids_and_objects_of_all_columns_are_equal_too() {
    let count = 2000;
    let keys = StringArray::from_iter_values((0..count).map(|n| format!("k{n}")));
    let ids = StringArray::from_iter_values((0..count).map(|n| format!("{},{n},7", n * 3)));
    let times = TimestampMicrosecondArray::from_iter_values((0..count).map(|n| n * 1_000_003));
    let rows = table(vec![
        ("k", Arc::new(keys)),
        ("v", Arc::new(ids)),
        ("at", Arc::new(times.with_timezone("Europe/Berlin"))),
    ]);
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &rows, 100);
    place.build(|options| options.declared = ValueType::Ids.into()).unwrap();
    let ids = spec(&place, |spec| spec["value_type"] = json!("ids"));
    build_by_tasks(&ids, &rows).unwrap();
    check_equal(&place, &ids);

    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &rows, 100);
    place
        .build(|options| options.value = ValueSelection::AllOthers)
        .unwrap();
    let objects = spec(&place, |spec| spec["value"] = Value::Null);
    build_by_tasks(&objects, &rows).unwrap();
    check_equal(&place, &objects);
    let version = Version::open(output_of(&objects)).unwrap();
    let expected = r#"{"v":"3,1,7","at":"1970-01-01T00:00:01.000003Z"}"#;
    assert_eq!(get(&version, "k1").as_deref(), Some(expected));
}

#[test]
fn rows_in_memory_make_the_version_of_the_same_rows_in_files() {
    let rows: Vec<Row> = (0..20_000_u32)
        .map(|n| (format!("key{n}").into_bytes(), n.to_string().into_bytes()))
        .collect();
    let rows = binary_table(&rows).project(&[0, 1]).unwrap();
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &rows, 3000);
    place.built(|_| {});
    let identity = content(&place.output()).0;
    let in_memory = BuildOptions {
        inputs: Vec::new(),
        output: Location::local(place.output().with_extension("memory")),
        ..place.options()
    };
    let batches = RecordBatchIterator::new([Ok(rows.slice(0, 3)), Ok(rows.slice(3, 19_997))], rows.schema());
    let report = build_batches(&in_memory, Box::new(batches), &Progress::new()).unwrap();
    assert_eq!((report.rows, report.records), (20_000, 20_000));
    assert_eq!(content(&place.output().with_extension("memory")).0, identity);

    // The same as files and streams of Arrow IPC.
    for name in ["a.arrow", "a.feather", "a.arrows"] {
        let files = Place::new();
        match name {
            "a.arrows" => drop(files.write(
                name,
                stream(rows.schema_ref(), &[rows.slice(0, 5), rows.slice(5, 19_995)]),
            )),
            _ => {
                let file = fs::File::create(files.input(name)).unwrap();
                let mut writer = FileWriter::try_new(file, rows.schema_ref()).unwrap();
                writer.write(&rows).unwrap();
                writer.finish().unwrap();
            }
        }
        files.built(|_| {});
        assert_eq!(content(&files.output()).0, identity, "{name}");
        let cut = fs::read(files.input(name)).unwrap();
        let cut = &cut[..cut.len() - 8];
        let files = Place::new();
        files.write(name, cut);
        assert_says(
            &files.refused(|_| {}),
            &[name, "not a complete file or stream of Arrow IPC"],
        );
    }
}

/// A build of 300 rows in four partitions.
fn small() -> (Place, RecordBatch) {
    let keys: Vec<String> = (0..300).map(|n| format!("key{n}")).collect();
    let rows: Vec<_> = keys.iter().map(|key| (Some(&**key), Some("value"))).collect();
    (Place::new(), texts(&rows))
}

#[test]
fn attempts_at_the_same_time_and_killed_ones_leave_one_version() {
    let (place, rows) = small();
    write_parquet(&place.input("a.parquet"), &rows, 100);
    place.built(|_| {});
    let spec = planned(&spec(&place, |_| {}), &rows).unwrap();
    let encoded = encoded(&spec, &rows, 100).unwrap();
    let all = [0, 1, 2, 3];
    let rows = sorted(&encoded, &all, 10);
    let results = thread::scope(|scope| {
        let attempt = |number: usize| {
            let (spec, rows) = (&spec, &rows);
            scope.spawn(move || write(spec, &all, &format!("{number}.0"), rows).unwrap())
        };
        let attempts: Vec<_> = (0..8).map(attempt).collect();
        attempts
            .into_iter()
            .map(|attempt| attempt.join().unwrap())
            .collect::<Vec<_>>()
    });
    // A killed one leaves what a process cannot delete any more.
    fs::write(output_of(&spec).join("attempt-9.0-p00001-c0000.data"), "part").unwrap();
    let line = |result: &Written| serde_json::to_string(result).unwrap();
    let both = format!("{}\n{}", line(&results[0]), line(&results[1]));
    assert_says(
        &task::commit(&spec, &both).unwrap_err().to_string(),
        &["several tasks have partition 0, 1, 2, 3", "one attempt of each"],
    );
    for _ in 0..2 {
        // A commit may be repeated.
        task::commit(&spec, &line(&results[5])).unwrap();
        check_equal(&place, &spec);
    }
    let late = write(&spec, &all, "late", &rows).unwrap_err();
    assert!(matches!(late, BuildError::OutputNotEmpty { .. }), "{late}");
    assert_says(&task::abort(&spec).unwrap_err().to_string(), &["complete version"]);
    check_equal(&place, &spec);
}

#[test]
fn a_commit_needs_every_partition_and_every_file() {
    let (place, rows) = small();
    let spec = planned(&spec(&place, |_| {}), &rows).unwrap();
    let encoded = encoded(&spec, &rows, 100).unwrap();
    let three = lines(&spec, &encoded, &[vec![0, 2], vec![3]], 100).unwrap();
    let refused = |lines: &str| task::commit(&spec, lines).unwrap_err().to_string();
    assert_says(&refused(&three), &["no task has partition 1"]);
    assert_says(&refused("nonsense"), &["line 1 is no result of a task"]);
    let last = write(&spec, &[1], "last", &sorted(&encoded, &[1], 100)).unwrap();
    let all = format!("{three}\n{}\n", serde_json::to_string(&last).unwrap());
    let file = output_of(&spec).join(&last.chunks[0].data.name);
    let moved = place.output();
    fs::rename(&file, &moved).unwrap();
    assert_says(
        &refused(&all),
        &[&last.chunks[0].data.name, "a place that all tasks and the commit share"],
    );
    assert!(!output_of(&spec).join(MANIFEST_FILE).exists());
    fs::rename(&moved, &file).unwrap();
    task::commit(&spec, &all).unwrap();
    verify(output_of(&spec)).unwrap();
}

#[test]
fn a_task_that_fails_leaves_nothing_under_temporary_names() {
    let (place, rows) = small();
    let spec = planned(&spec(&place, |_| {}), &rows).unwrap();
    let encoded = encoded(&spec, &rows, 100).unwrap();
    let complete = sorted(&encoded, &[0, 1, 2, 3], 10);
    let temporary = || {
        let names = fs::read_dir(output_of(&spec))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("attempt-")).count()
    };
    let refused = |partitions: &[u32], rows: &[u8]| {
        let error = write(&spec, partitions, "1", rows).unwrap_err().to_string();
        assert_eq!(temporary(), 0, "{error}");
        error
    };
    // The last eight bytes are the mark of the end.
    for missing in [1, 8, 9, 500, complete.len() / 2] {
        assert_says(
            &refused(&[0, 1, 2, 3], &complete[..complete.len() - missing]),
            &["stream of rows failed"],
        );
    }
    assert_says(
        &refused(&[1, 2, 3], &complete),
        &["is in partition 0, which is not one of this task (1, 2, 3)"],
    );
    let unsorted = stream(encoded.schema_ref(), std::slice::from_ref(&encoded));
    assert_says(
        &refused(&[0, 1, 2, 3], &unsorted),
        &["after a key with a higher position", "sort the rows"],
    );
    let progress = Progress::new();
    progress.cancel();
    let cancelled = task::write(&spec, &[0, 1, 2, 3], "2", &complete[..], &progress);
    assert!(matches!(cancelled, Err(BuildError::Cancelled)));
    assert_eq!(temporary(), 0);
    for (partitions, attempt) in [(&[4][..], "1"), (&[1, 1], "1"), (&[1], "a/b"), (&[1], "")] {
        let refused = write(&spec, partitions, attempt, &complete);
        assert_says(&refused.unwrap_err().to_string(), &["invalid task"]);
    }
    task::abort(&spec).unwrap();
    assert!(!output_of(&spec).exists());
    task::abort(&spec).unwrap();
}

#[test]
fn an_abort_does_not_delete_the_files_of_others() {
    let (place, rows) = small();
    let spec = planned(&spec(&place, |_| {}), &rows).unwrap();
    write(
        &spec,
        &[0],
        "1",
        &sorted(&encoded(&spec, &rows, 100).unwrap(), &[0], 10),
    )
    .unwrap();
    let other = output_of(&spec).join("thesis.tex");
    fs::write(&other, "").unwrap();
    assert_says(
        &task::abort(&spec).unwrap_err().to_string(),
        &["thesis.tex", "no task wrote"],
    );
    fs::remove_file(other).unwrap();
    task::abort(&spec).unwrap();
    assert!(!output_of(&spec).exists());
}

#[test]
fn duplicates_are_errors_that_name_the_key() {
    let place = Place::new();
    let rows = |values: &[&str], orders: Vec<i64>| {
        let keys: StringArray = values.iter().map(|_| Some("twice")).collect();
        let values: StringArray = values.iter().map(|value| Some(*value)).collect();
        let orders: ArrayRef = Arc::new(Int64Array::from(orders));
        table(vec![("k", Arc::new(keys)), ("v", Arc::new(values)), ("at", orders)])
    };
    let last = spec(&place, |spec| {
        spec["on_duplicate"] = json!("last");
        spec["order_by"] = json!("at");
    });
    let failing = spec(&place, |_| {});
    let error = build_by_tasks(&failing, &rows(&["a", "a"], vec![1, 2])).unwrap_err();
    assert_says(&error.to_string(), &["\"twice\" occurs twice", "order_by"]);
    let error = build_by_tasks(&last, &rows(&["a", "b"], vec![1, 1])).unwrap_err();
    assert_says(
        &error.to_string(),
        &["\"twice\"", "equal value of \"at\"", "different values"],
    );
    let made = build_by_tasks(&last, &rows(&["a", "b", "c"], vec![-5, 7, 3])).unwrap();
    assert_eq!((made.report.records, made.report.duplicates), (1, 2));
    let version = Version::open(output_of(&last)).unwrap();
    assert_eq!(get(&version, "twice").as_deref(), Some("b"));
}

#[test]
fn a_plan_refuses_what_would_fail_in_tasks() {
    let (place, rows) = small();
    let refused = |change: &dyn Fn(&mut Value)| planned(&spec(&place, change), &rows).unwrap_err().to_string();
    assert_says(
        &refused(&|spec| spec["key"] = json!(["kk"])),
        &["no column \"kk\"", "did you mean \"k\""],
    );
    assert_says(
        &refused(&|spec| spec["on_duplicate"] = json!("first")),
        &["needs \"order_by\""],
    );
    assert_says(
        &refused(&|spec| spec["on_duplicate"] = json!("some")),
        &["\"on_duplicate\"", "fail, first or last"],
    );
    assert_says(&refused(&|spec| spec["delete"] = json!("v")), &["needs \"base\""]);
    assert_says(&refused(&|spec| spec["partitions"] = json!(3)), &["\"partitions\""]);
    assert_says(
        &refused(&|spec| spec["values"] = json!(["v"])),
        &["\"value\" and \"values\""],
    );
    assert_says(&refused(&|spec| spec["order_by"] = json!("at")), &["no column \"at\""]);
    let unknown = json!({"store": "s", "partitions": 1, "output": "o", "key": ["k"], "colour": 1}).to_string();
    assert_says(
        &Spec::from_json(&unknown).unwrap_err().to_string(),
        &["unknown field `colour`"],
    );
    let used = spec(&place, |_| {});
    fs::create_dir(output_of(&used)).unwrap();
    fs::write(output_of(&used).join("x"), "").unwrap();
    assert_says(&planned(&used, &rows).unwrap_err().to_string(), &["is not empty"]);
}

#[test]
fn a_bad_row_ends_a_task_and_is_named() {
    let place = Place::new();
    let rows = texts(&[(Some("a"), Some("1")), (Some("b"), None), (None, Some("3"))]);
    let spec = planned(&spec(&place, |_| {}), &rows).unwrap();
    let error = encoded(&spec, &rows, 2).unwrap_err().to_string();
    assert_says(&error, &["1 bad row(s)", "row 2", "\"v\" is null", "k=b"]);
    let rows = rows.slice(2, 1);
    assert_says(
        &encoded(&spec, &rows, 2).unwrap_err().to_string(),
        &["row 1", "\"k\" is null"],
    );
}

#[test]
fn a_version_without_records_is_refused_unless_it_is_allowed() {
    let place = Place::new();
    let rows = texts(&[]);
    let refused = build_by_tasks(&spec(&place, |_| {}), &rows);
    assert!(matches!(refused, Err(BuildError::EmptyInput)));
    let allowed = spec(&place, |spec| spec["allow_empty"] = json!(true));
    task::abort(&allowed).unwrap();
    let made = build_by_tasks(&allowed, &rows).unwrap();
    assert_eq!((made.report.records, made.report.chunks), (0, 0));
    assert_eq!(Version::open(output_of(&allowed)).unwrap().records(), 0);
}

#[test]
fn a_difference_by_tasks_makes_the_version_of_the_local_builder() {
    let row = |n: u32, text: &str| (format!("key{n}").into_bytes(), format!("{n} {text}").into_bytes());
    let old: Vec<Row> = (0..4000).map(|n| row(n, "old")).collect();
    for compression in [Compression::None, Compression::Zstd] {
        let place = Place::new();
        write_binary_rows(&place, &old, 1);
        let base = place.output().with_extension("base");
        place
            .build(|options| {
                options.output = Location::local(&*base);
                options.compression = compression;
                options.chunk_bytes_target = 2000;
            })
            .unwrap();
        // Changes in a few chunks: keys that are changed, new and deleted.
        let changed: Vec<Row> = (0..20).chain([9000, 9001]).map(|n| row(n, "new")).collect();
        let sets = Place::new();
        write_binary_rows(&sets, &changed, 1);
        let gone: Vec<String> = (100..110).chain([7777]).map(|n| format!("key{n}")).collect();
        let deletes = sets.temporary().join("gone.csv");
        fs::write(&deletes, format!("k\n{}\n", gone.join("\n"))).unwrap();
        let increment = IncrementOptions {
            build: BuildOptions {
                output: Location::local(place.output()),
                ..sets.options()
            },
            base: base.clone(),
            deletes: vec![deletes.to_str().unwrap().to_owned()],
            has_final_values: false,
        };
        let local = build_increment(&increment, &Progress::new()).unwrap();

        let keys = changed
            .iter()
            .map(|(key, _)| key.clone())
            .chain(gone.iter().map(|key| key.clone().into_bytes()));
        let keys: BinaryArray = keys.map(Some).collect();
        let values = changed
            .iter()
            .map(|(_, value)| Some(value.clone()))
            .chain(gone.iter().map(|_| None));
        let values: BinaryArray = values.collect();
        let is_gone = (0..keys.len()).map(|row| Some(row >= changed.len()));
        let rows = table(vec![
            ("k", Arc::new(keys.clone()) as ArrayRef),
            ("v", Arc::new(values)),
            ("gone", Arc::new(is_gone.collect::<BooleanArray>())),
        ]);
        let spec = spec(&place, |spec| {
            spec["base"] = json!(base);
            spec["delete"] = json!("gone");
        });
        let made = build_by_tasks(&spec, &rows).unwrap();
        check_equal(&place, &spec);
        let increment = made.increment.unwrap();
        assert_eq!(
            (increment.deleted, increment.absent, increment.changed_chunks),
            (local.deleted, local.absent, local.changed_chunks)
        );
        assert_eq!((increment.deleted, increment.absent), (10, 1));
        assert!(increment.patch_bytes > 0 && increment.patch_bytes == local.patch_bytes);
        let chunks = local.build.chunks;
        assert!(
            increment.changed_chunks < chunks,
            "{} of {chunks}",
            increment.changed_chunks
        );
        let built = Manifest::read(output_of(&spec)).unwrap();
        assert_eq!(built.patches, Manifest::read(&place.output()).unwrap().patches);
    }
}

#[test]
fn times_with_any_zone_are_instants() {
    let at = TimestampMicrosecondArray::from(vec![0_i64]).with_timezone("America/New_York");
    let rows = table(vec![
        ("k", Arc::new(StringArray::from(vec!["a"])) as ArrayRef),
        ("v", Arc::new(at)),
    ]);
    let place = Place::new();
    let spec = planned(&spec(&place, |_| {}), &rows).unwrap();
    let encoded = encoded(&spec, &rows, 1).unwrap();
    assert_eq!(encoded["value"].as_binary::<i32>().value(0), b"1970-01-01T00:00:00Z");
    let of_column = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    assert_eq!(spec.schema.unwrap().values[0].r#type, of_column.to_string());
}

#[test]
fn tasks_make_records_of_the_schema_in_their_plan() {
    let text = r#"{"type":"record","name":"R","fields":[{"name":"v","type":"string"},{"name":"n","type":"long"}]}"#;
    let keys = StringArray::from_iter_values((0..500).map(|n| format!("k{n}")));
    let values = StringArray::from_iter_values((0..500).map(|n| n.to_string()));
    let rows = table(vec![
        ("k", Arc::new(keys)),
        ("v", Arc::new(values)),
        ("n", Arc::new(arrow_array::Int64Array::from_iter_values(0..500))),
    ]);
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &rows, 100);
    let schema = fondaco_schema::Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap();
    place.built(|options| {
        options.declared.value_type = ValueType::Avro;
        options.declared.key_type = "(string,integer)".parse().unwrap();
        options.declared.schemas.insert(7, schema);
        options.key = vec!["k".to_owned(), "n".to_owned()];
        options.value = ValueSelection::AllOthers;
    });
    let spec = spec(&place, |spec| {
        spec["value"] = Value::Null;
        spec["key"] = json!(["k", "n"]);
        spec["key_type"] = json!("(string,integer)");
        spec["value_type"] = json!("avro");
        spec["value_schemas"] = json!([{"id": 7, "text": text}]);
    });
    build_by_tasks(&spec, &rows).unwrap();
    check_equal(&place, &spec);
}
