//! `fondaco inspect`: the contents of a version or a chunk, read from its files, without a node.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use fondaco_format::{
    Built, Checksum, Checksummer, ChunkEntry, DATA_KIND, FileEntry, INDEX_KIND, MANIFEST_FILE, Manifest, ValueSchema,
    Version, check_index, verify,
};
use fondaco_model::KeyType;
use fondaco_schema::{Schemas, key_to_json, value_to_json};
use serde::Serialize;

use crate::output::{self, Output, table};

/// `fondaco inspect`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco inspect /data/pymk-1 --verify --keys 5
  fondaco inspect /data/pymk-1/p00003-c0000-0123456789abcdef.index")]
pub struct InspectOptions {
    /// The directory of a version, or a file of one of its chunks
    path: PathBuf,

    /// Read every byte, and check every checksum and every record
    #[arg(long)]
    verify: bool,

    /// Print this many keys, with the lengths of their values, and those of declared types as JSON
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    keys: usize,

    /// List all chunks
    #[arg(long)]
    chunks: bool,
}

#[derive(Serialize)]
struct Inspected {
    directory: String,
    /// The checksum that identifies the version.
    checksum: Checksum,
    manifest: Manifest,
    built: Built,
    files_bytes: u64,
    data_bytes: u64,
    index_bytes: u64,
    further_bytes: u64,
    verified: bool,
    keys: Vec<SampleKey>,
}

#[derive(Serialize)]
struct SampleKey {
    key: String,
    value_bytes: usize,
    /// The id of the schema of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<u16>,
    /// The value as JSON, if its type has such a form.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<serde_json::Value>,
}

impl SampleKey {
    fn of(manifest: &Manifest, schemas: &Schemas, key: &[u8], value: &[u8]) -> anyhow::Result<Self> {
        let (schema, decoded) = match manifest.value_type.has_schemas() {
            true => {
                let (id, json) = schemas.decode(value)?;
                (Some(id), Some(json))
            }
            false => (None, value_to_json(manifest.value_type, value)?),
        };
        Ok(Self {
            key: match &manifest.key_type {
                KeyType::One(_) => String::from_utf8_lossy(key).into_owned(),
                tuple => key_to_json(tuple, key)?.to_string(),
            },
            value_bytes: value.len(),
            schema,
            value: decoded,
        })
    }
}

#[derive(Serialize)]
struct InspectedFile {
    file: String,
    kind: String,
    store: String,
    partition: u32,
    partitions: u32,
    chunk: u32,
    records: u64,
    bytes: u64,
    checksum: String,
}

/// Runs `fondaco inspect`.
pub fn inspect(options: &InspectOptions, output: &Output) -> anyhow::Result<()> {
    let path = &options.path;
    if !path.is_file() {
        return inspect_version(path, options, output);
    }
    match path.file_name().is_some_and(|name| name == MANIFEST_FILE) {
        true => inspect_version(directory_of(path), options, output),
        false => inspect_file(path, output),
    }
}

/// The directory that contains a file.
fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

fn inspect_version(directory: &Path, options: &InspectOptions, output: &Output) -> anyhow::Result<()> {
    let (manifest, checksum) = Manifest::read_identified(directory)?;
    if options.verify {
        output.note(&format!("reading {} …", output::bytes(manifest.files_bytes())));
        verify(directory)?;
    }
    let mut keys = Vec::new();
    if options.keys > 0 {
        let version = Version::open(directory)?;
        let texts = manifest.value_schemas.iter().map(ValueSchema::parts);
        let schemas = Schemas::of_texts(manifest.value_type, texts)?;
        for record in version.scan().take(options.keys) {
            let (key, value) = record?;
            keys.push(SampleKey::of(&manifest, &schemas, &key, &value)?);
        }
    }
    let inspected = Inspected {
        directory: directory.display().to_string(),
        checksum,
        files_bytes: manifest.files_bytes(),
        data_bytes: manifest.data_bytes(),
        index_bytes: manifest.index_bytes(),
        further_bytes: further_files(&manifest).map(|(_, file)| file.bytes).sum(),
        built: manifest.built.clone(),
        manifest,
        verified: options.verify,
        keys,
    };
    output.result(&inspected, |inspected| version_text(inspected, options))
}

/// The files of all chunks besides the index and the data, with their kinds.
fn further_files(manifest: &Manifest) -> impl Iterator<Item = (&str, &FileEntry)> {
    let further = manifest.chunks.iter().flat_map(|chunk| &chunk.further);
    further.map(|further| (&*further.kind, &further.file))
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
    let mut lines = vec![
        (
            "version",
            format!(
                "of store {}, format version {}",
                manifest.store, manifest.format_version
            ),
        ),
        ("checksum", inspected.checksum.to_string()),
        (
            "built",
            format!(
                "{} by {}",
                output::timestamp(inspected.built.created_unix_ms),
                inspected.built.built_by
            ),
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
            format!(
                "{}{} ({})",
                match manifest.key_type.is_bytes() {
                    true => String::new(),
                    false => format!("{}, of ", manifest.key_type),
                },
                manifest.schema.key.name,
                manifest.schema.key.r#type
            ),
        ),
        (
            "value",
            format!(
                "{}, {} of {}",
                manifest.value_type.name(),
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
    let schemas: Vec<String> = manifest
        .value_schemas
        .iter()
        .map(|schema| schema.id.to_string())
        .collect();
    if !schemas.is_empty() {
        lines.push(("schemas", schemas.join(", ")));
    }
    if let Some(base) = manifest.base {
        lines.push(("base", format!("the version with checksum {base}")));
    }
    if !manifest.patches.is_empty() {
        let bytes = manifest.patches.iter().map(|patch| patch.patch.bytes).sum();
        let count = output::count(manifest.patches.len() as u64);
        lines.push(("patches", format!("for {count} chunks, {}", output::bytes(bytes))));
    }
    if let Some(cut) = manifest.cut_unix_ms {
        lines.push((
            "cut",
            format!("it includes the events up to {}", output::timestamp(cut)),
        ));
    }
    let further: BTreeSet<&str> = further_files(manifest).map(|(kind, _)| kind).collect();
    if !further.is_empty() {
        let kinds: Vec<&str> = further.into_iter().collect();
        lines.push((
            "further",
            format!("{} of {}", output::bytes(inspected.further_bytes), kinds.join(", ")),
        ));
    }
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
                    format!("p{:05}-c{:04}", chunk.partition.get(), chunk.chunk),
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
        text.push_str(&format!("{:?}: {} bytes", sample.key, sample.value_bytes));
        if let Some(value) = &sample.value {
            text.push_str(&format!(", {value}"));
        }
        text.push('\n');
    }
    text
}

/// Compares a file of a chunk with its entry in the manifest.
fn inspect_file(path: &Path, output: &Output) -> anyhow::Result<()> {
    let manifest = Manifest::read(directory_of(path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let found = manifest.chunks.iter().find_map(|chunk| {
        let (kind, entry) = files_of(chunk).find(|(_, file)| file.name == *name)?;
        Some((chunk, kind, entry))
    });
    let Some((chunk, kind, entry)) = found else {
        bail!("{path:?} belongs to no chunk: the manifest in its directory does not list it");
    };
    let found = checksum_of(path)?;
    if found != entry.checksum {
        bail!(
            "{path:?} is corrupt: its checksum is {found}, and its manifest says {}; build or fetch the version again",
            entry.checksum
        );
    }
    if kind == INDEX_KIND {
        let bytes = fs::read(path).with_context(|| format!("cannot read {path:?}"))?;
        check_index(&bytes).map_err(|reason| anyhow!("{path:?} is corrupt: {reason}"))?;
    }
    let inspected = InspectedFile {
        file: path.display().to_string(),
        kind: kind.to_owned(),
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
            file.kind,
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

/// The files of a chunk, with their kinds.
fn files_of(chunk: &ChunkEntry) -> impl Iterator<Item = (&str, &FileEntry)> {
    let further = chunk.further.iter().map(|further| (&*further.kind, &further.file));
    [(DATA_KIND, &chunk.data), (INDEX_KIND, &chunk.index)]
        .into_iter()
        .chain(further)
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
