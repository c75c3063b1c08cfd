//! Measures a build: generates a Parquet file of random rows, builds a version of it, and prints the time, the CPU time
//! and the peak memory.
//!
//! ```text
//! cargo run --release -p fondaco-build --example build_speed -- [ROWS [VALUE_BYTES [MEMORY_MIB [THREADS [COMPRESSION]]]]]
//! ```
//!
//! A separate process generates the file, so that its memory does not count.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use fondaco_build::{BuildOptions, OnDuplicate, Progress, ValueSelection, build};
use fondaco_storage::Location;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [generate, path, rows, value_bytes] = &arguments[..]
        && generate == "generate"
    {
        return write_input(Path::new(path), rows.parse()?, value_bytes.parse()?);
    }
    let number = |place: usize, default: u64| arguments.get(place).map_or(Ok(default), |text| text.parse());
    let (rows, value_bytes, memory_mib) = (number(0, 10_000_000)?, number(1, 100)?, number(2, 1024)?);
    let threads = number(3, std::thread::available_parallelism()?.get() as u64)?;

    let folder = tempfile::tempdir_in("target")?;
    let input = folder.path().join("input.parquet");
    let generator = Command::new(std::env::current_exe()?)
        .args([
            "generate".into(),
            input.clone(),
            PathBuf::from(rows.to_string()),
            PathBuf::from(value_bytes.to_string()),
        ])
        .status()?;
    if !generator.success() {
        return Err("the generator failed".into());
    }
    println!(
        "input: {rows} rows, values of {value_bytes} bytes, {} MB",
        fs::metadata(&input)?.len() / 1_000_000
    );

    let options = BuildOptions {
        store: "speed".parse()?,
        inputs: vec![input.to_string_lossy().into_owned()],
        format: None,
        delimiter: None,
        key: vec!["member".to_owned()],
        value: ValueSelection::Column("value".to_owned()),
        value_type: Default::default(),
        on_duplicate: OnDuplicate::Fail,
        bad_rows_max: 0,
        allow_empty: false,
        memory_bytes: memory_mib << 20,
        threads: threads as usize,
        partitions: 64.try_into()?,
        cut_unix_ms: None,
        compression: arguments.get(4).map_or("none", String::as_str).parse()?,
        chunk_bytes_target: BuildOptions::CHUNK_BYTES_TARGET_DEFAULT,
        output: Location::local(folder.path().join("version")),
        temporary: folder.path().to_owned(),
        dry_run: false,
    };
    let started = Instant::now();
    let report = build(&options, &Progress::new())?;
    let elapsed = started.elapsed();
    println!(
        "built: {} records in {} chunks, {:.2} s ({:.2} reading, {:.2} writing), {:.0} thousand a second, {} MB spilled",
        report.records,
        report.chunks,
        elapsed.as_secs_f64(),
        report.reading.as_secs_f64(),
        report.writing.as_secs_f64(),
        report.records as f64 / elapsed.as_secs_f64() / 1e3,
        report.spilled_bytes / 1_000_000,
    );
    println!(
        "processor time: {:.2} s; memory: {memory_mib} MiB allowed, {} MiB at the peak",
        processor_seconds()?,
        peak_memory_kib()? / 1024
    );
    Ok(())
}

/// Keys are scrambled numbers; values are text that does not compress much.
fn write_input(path: &Path, rows: u64, value_bytes: u64) -> Result<(), Box<dyn Error>> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("member", DataType::Int64, false),
        Field::new("value", DataType::Utf8, false),
    ]));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(1 << 20))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, Arc::clone(&schema), Some(properties))?;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut row = 0;
    while row < rows {
        let batch = (rows - row).min(8192);
        // Multiplying by an odd number never gives the same number twice.
        let keys: Int64Array = (row..row + batch)
            .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).cast_signed())
            .collect();
        let values: StringArray = (0..batch)
            .map(|_| {
                let mut value = String::with_capacity(value_bytes as usize + 16);
                while (value.len() as u64) < value_bytes {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    value += &format!("{random:016x}");
                }
                value.truncate(value_bytes as usize);
                Some(value)
            })
            .collect();
        writer.write(&RecordBatch::try_new(
            Arc::clone(&schema),
            vec![Arc::new(keys), Arc::new(values)],
        )?)?;
        row += batch;
    }
    writer.close()?;
    Ok(())
}

/// The user and system time of all threads. Other load on the machine does not change it.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<u64>)
        .sum::<Result<_, _>>()?;
    Ok(ticks as f64 / 100.0)
}

fn peak_memory_kib() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .ok_or("no VmHWM")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}
