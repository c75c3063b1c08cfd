//! `fondaco inspect`: what is in a version or a chunk, read from its files, without a node.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use fondaco_format::{Checksum, Checksummer, ChunkEntry, MANIFEST_FILE, Manifest, Version, check_index, verify};
use serde::Serialize;

use crate::output::{self, Output, table};

/// `fondaco inspect`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco inspect /data/pymk-1 --verify --keys 5
  fondaco inspect /data/pymk-1/p00003-c0000.index")]
pub struct InspectOptions {
    /// The directory of a version, or a data or index file of it
    path: PathBuf,

    /// Read every byte, and check every checksum and every record
    #[arg(long)]
    verify: bool,

    /// Print so many keys, and the lengths of their values
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    keys: usize,

    /// List all chunks
    #[arg(long)]
    chunks: bool,
}

#[derive(Serialize)]
struct Inspected {
    directory: String,
    manifest: Manifest,
    files_bytes: u64,
    data_bytes: u64,
    index_bytes: u64,
    verified: bool,
    keys: Vec<SampleKey>,
}

#[derive(Serialize)]
struct SampleKey {
    key: String,
    value_bytes: usize,
}

#[derive(Serialize)]
struct InspectedFile {
    file: String,
    store: String,
    partition: u32,
    partitions: u32,
    chunk: u32,
    records: u64,
    bytes: u64,
    checksum: String,
}

/// Shows a version or a chunk.
pub fn inspect(options: &InspectOptions, output: &Output) -> anyhow::Result<()> {
    let path = &options.path;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("data" | "index") if path.is_file() => inspect_file(path, output),
        _ if path.file_name().is_some_and(|name| name == MANIFEST_FILE) => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            inspect_version(directory.unwrap_or(Path::new(".")), options, output)
        }
        _ => inspect_version(path, options, output),
    }
}

fn inspect_version(directory: &Path, options: &InspectOptions, output: &Output) -> anyhow::Result<()> {
    let manifest = Manifest::read(directory)?;
    if options.verify {
        output.note(&format!("reading {} …", output::bytes(manifest.files_bytes())));
        verify(directory)?;
    }
    let mut keys = Vec::new();
    if options.keys > 0 {
        let version = Version::open(directory)?;
        for record in version.scan().take(options.keys) {
            let (key, value) = record?;
            keys.push(SampleKey {
                key: String::from_utf8_lossy(&key).into_owned(),
                value_bytes: value.len(),
            });
        }
    }
    let inspected = Inspected {
        directory: directory.display().to_string(),
        files_bytes: manifest.files_bytes(),
        data_bytes: manifest.chunks.iter().map(|chunk| chunk.data.bytes).sum(),
        index_bytes: manifest.chunks.iter().map(|chunk| chunk.index.bytes).sum(),
        manifest,
        verified: options.verify,
        keys,
    };
    output.result(&inspected, |inspected| version_text(inspected, options))
}

fn version_text(inspected: &Inspected, options: &InspectOptions) -> String {
    let manifest = &inspected.manifest;
    let records = manifest.records.max(1) as f64;
    let values: Vec<String> = manifest
        .schema
        .values
        .iter()
        .map(|column| format!("{} ({})", column.name, column.r#type))
        .collect();
    let lines = [
        ("version", format!("of store {}", manifest.store)),
        (
            "built",
            format!("{} by {}", output::moment(manifest.created_unix_ms), manifest.built_by),
        ),
        ("records", output::count(manifest.records)),
        ("partitions", manifest.partitions.to_string()),
        ("chunks", output::count(manifest.chunks.len() as u64)),
        (
            "data",
            format!(
                "{}, {:.1} bytes a record",
                output::bytes(inspected.data_bytes),
                inspected.data_bytes as f64 / records
            ),
        ),
        (
            "indexes",
            format!(
                "{}, {:.2} bytes a record",
                output::bytes(inspected.index_bytes),
                inspected.index_bytes as f64 / records
            ),
        ),
        (
            "compression",
            format!(
                "{}{}",
                manifest.compression,
                if manifest.dictionary.is_some() {
                    ", with a dictionary"
                } else {
                    ""
                }
            ),
        ),
        (
            "key",
            format!("{} ({})", manifest.schema.key.name, manifest.schema.key.r#type),
        ),
        (
            "value",
            format!(
                "{} of {}",
                format!("{:?}", manifest.schema.encoding).to_lowercase(),
                values.join(", ")
            ),
        ),
        (
            "verified",
            if inspected.verified {
                "every byte and every record"
            } else {
                "no: see --verify"
            }
            .to_owned(),
        ),
    ];
    let mut text: String = lines
        .iter()
        .map(|(name, value)| format!("{name:<12}{value}\n"))
        .collect();
    if options.chunks {
        let rows: Vec<Vec<String>> = manifest
            .chunks
            .iter()
            .map(|chunk| {
                vec![
                    chunk.data.name.trim_end_matches(".data").to_owned(),
                    output::count(chunk.records),
                    output::count(chunk.data.bytes),
                    chunk.data.checksum.to_string(),
                    output::count(chunk.index.bytes),
                    chunk.index.checksum.to_string(),
                ]
            })
            .collect();
        text.push_str(&table(
            &["CHUNK", "RECORDS", "DATA BYTES", "CHECKSUM", "INDEX BYTES", "CHECKSUM"],
            &rows,
            &[false, true, true, false, true, false],
        ));
    }
    for sample in &inspected.keys {
        text.push_str(&format!("{:?}: {} bytes\n", sample.key, sample.value_bytes));
    }
    text
}

/// A data or index file: what its manifest says of it, and whether that is so.
fn inspect_file(path: &Path, output: &Output) -> anyhow::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let manifest = Manifest::read(directory.unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let of_file = |chunk: &&ChunkEntry| [chunk.data.name.as_str(), &chunk.index.name].contains(&&*name);
    let Some(chunk) = manifest.chunks.iter().find(of_file) else {
        bail!("{path:?} belongs to no version: the manifest beside it does not name it");
    };
    let is_index = chunk.index.name == name;
    let entry = if is_index { &chunk.index } else { &chunk.data };
    let found = checksum_of(path)?;
    if found != entry.checksum {
        bail!(
            "{path:?} is corrupt: its checksum is {found}, and its manifest says {}; build or fetch the version again",
            entry.checksum
        );
    }
    if is_index {
        let bytes = fs::read(path).with_context(|| format!("cannot read {path:?}"))?;
        check_index(&bytes).map_err(|reason| anyhow!("{path:?} is corrupt: {reason}"))?;
    }
    let inspected = InspectedFile {
        file: path.display().to_string(),
        store: manifest.store.to_string(),
        partition: chunk.partition.get(),
        partitions: manifest.partitions.get(),
        chunk: chunk.chunk,
        records: chunk.records,
        bytes: entry.bytes,
        checksum: entry.checksum.to_string(),
    };
    output.result(&inspected, |file| {
        format!(
            "{} of store {}: partition {} of {}, chunk {}, {} records, {} bytes, checksum {}, intact\n",
            if is_index { "index" } else { "data" },
            file.store,
            file.partition,
            file.partitions,
            file.chunk,
            output::count(file.records),
            output::count(file.bytes),
            file.checksum
        )
    })
}

fn checksum_of(path: &Path) -> anyhow::Result<Checksum> {
    let mut file = fs::File::open(path).with_context(|| format!("cannot open {path:?}"))?;
    let mut checksum = Checksummer::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file
            .read(&mut buffer)
            .with_context(|| format!("cannot read {path:?}"))?
        {
            0 => return Ok(checksum.finish()),
            count => checksum.update(&buffer[..count]),
        }
    }
}
