//! The memory that a build uses.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::node::{fondaco, until, write_csv};

const MIB: u64 = 1 << 20;

/// The peak memory of a process so far, in bytes, or `None` if it has ended.
fn peak_memory_bytes(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// Builds a version of all rows in a folder; returns the peak of its memory, in bytes.
fn peak_of_build(directory: &Path, input: &Path, options: &[&str]) -> u64 {
    let mut build = fondaco()
        .args(["build", "s", "--key", "key", "--value", "value"])
        .args(options)
        .arg("--output")
        .arg(directory.join("version"))
        .arg("--work")
        .arg(directory)
        .arg(input)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut peak, mut ended) = (0, None);
    until("the build ends", || {
        peak = peak.max(peak_memory_bytes(&build).unwrap_or(0));
        ended = build.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
    fs::remove_dir_all(directory.join("version")).unwrap();
    peak
}

/// Writes row groups of one page in each column, with values that do not compress.
fn write_parquet(path: &Path, groups: u64, rows: u64, value_bytes: usize) {
    let field = |name: &str, kind| Field::new(name, kind, false);
    let fields = vec![field("key", DataType::Utf8), field("value", DataType::Binary)];
    let schema = Arc::new(Schema::new(fields));
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(usize::MAX)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties)).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for group in 0..groups {
        let keys: StringArray = (0..rows).map(|row| Some(format!("key {group} {row}"))).collect();
        let mut bytes = vec![0; rows as usize * value_bytes];
        random.fill(&mut bytes);
        let values: BinaryArray = bytes.chunks(value_bytes).map(Some).collect();
        let columns: [ArrayRef; 2] = [Arc::new(keys), Arc::new(values)];
        writer
            .write(&RecordBatch::try_new(Arc::clone(&schema), columns.to_vec()).unwrap())
            .unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

#[test]
fn many_threads_decode_within_the_memory_limit() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("input");
    fs::create_dir(&input).unwrap();
    // Each row group takes 8 MiB in memory, and more while it is decoded; together that would be 512 MiB.
    write_parquet(&input.join("rows.parquet"), 64, 2048, 4096);
    // With up to 8 threads, a build keeps freed memory for a while.
    for threads in ["64", "8"] {
        let peak = peak_of_build(directory.path(), &input, &["--memory", "32MiB", "--threads", threads]);
        // The limit promised in the documentation.
        assert!(peak < (32 + 256) * MIB, "{} MiB at the peak", peak / MIB);
    }
}

#[test]
fn a_build_uses_little_more_than_its_memory_limit() {
    const FILES: u64 = 16;
    const ROWS: u64 = 16_000;
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("input");
    fs::create_dir(&input).unwrap();
    for file in 0..FILES {
        let rows = (file * ROWS..(file + 1) * ROWS).map(|row| (row.to_string(), format!("{row:01000}")));
        write_csv(&input.join(format!("{file}.csv")), rows);
    }
    // Four times as much input as memory, and many threads: each loads, sorts and frees its share.
    let peak = peak_of_build(directory.path(), &input, &["--memory", "64MiB", "--threads", "16"]);
    // The documentation promises 256 MiB above the limit, which covers large batches of columns. These rows need 64 MiB
    // for the sort, some 20 for the program, and 3 for each thread.
    let most = (64 + 20 + 16 * 3 + 28) * MIB;
    assert!(peak > 64 * MIB && peak < most, "{} MiB at the peak", peak / MIB);
}
