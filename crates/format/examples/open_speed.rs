//! Measures how long it takes to open a version of many chunks, with its pages in the page cache and after they were
//! dropped from it.
//!
//! ```text
//! cargo run --release -p fondaco-format --example open_speed -- [CHUNKS [MIB_EACH]]
//! ```
//!
//! Opening reads only headers, so the records do not matter: each chunk repeats one of 1 MiB.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use fondaco_format::{
    Built, ChunkEntry, ChunkPlan, ChunkWriter, Column, Compression, DATA_KIND, Encoder, FORMAT_VERSION, INDEX_KIND,
    MANIFEST_FILE, Manifest, Schema, ValueEncoding, Version, chunk_of_hash, key_hash, unnamed_chunk_file,
};
use fondaco_model::{PartitionId, StoreName, ValueType};

/// The number of partitions that the chunks are spread over.
const PARTITIONS: u32 = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let chunks: u32 = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    let mib_each: u64 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let dir = tempfile::tempdir_in("target")?;
    write(dir.path(), chunks.next_multiple_of(PARTITIONS), mib_each)?;
    report("first, just written", time(dir.path())?);
    report("again", time(dir.path())?);
    for entry in std::fs::read_dir(dir.path())? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    report("pages forgotten", time(dir.path())?);
    Ok(())
}

fn report(what: &str, (opening, closing): (Duration, Duration)) {
    println!("{what:<22} open {opening:>9.1?}  close {closing:>9.1?}");
}

fn time(dir: &Path) -> Result<(Duration, Duration), Box<dyn std::error::Error>> {
    let began = Instant::now();
    let version = Version::open(dir)?;
    let opening = began.elapsed();
    assert_eq!(version.not_held().count(), 0);
    let began = Instant::now();
    drop(version);
    Ok((opening, began.elapsed()))
}

fn write(dir: &Path, chunks: u32, mib_each: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut encoder = Encoder::new(Compression::None, None)?;
    let each = chunks / PARTITIONS;
    let value = vec![b'v'; 92];
    let mut entries: Vec<ChunkEntry> = Vec::new();
    for number in 0..chunks {
        let (partition, chunk) = (PartitionId::new(number / each), number % each);
        let plan = ChunkPlan {
            partition,
            chunk,
            chunk_count: each,
        };
        let path = |kind| dir.join(unnamed_chunk_file(partition, chunk, kind));
        let data = File::create(path(DATA_KIND))?;
        let mut writer = ChunkWriter::new(plan, Compression::None, data);
        let is_in_chunk = |key: &[u8; 8]| chunk_of_hash(key_hash(key), each) == chunk;
        let key = (0..u64::MAX)
            .map(u64::to_be_bytes)
            .find(is_in_chunk)
            .ok_or("no such key")?;
        for _ in 0..mib_each * 9500 {
            writer.append(key_hash(&key), &key, encoder.encode(&value)?)?;
        }
        let index = File::create(path(INDEX_KIND))?;
        let (entry, ..) = writer.finish(index)?;
        std::fs::rename(path(DATA_KIND), dir.join(&entry.data.name))?;
        std::fs::rename(path(INDEX_KIND), dir.join(&entry.index.name))?;
        entries.push(entry);
    }
    let column = |name: &str| Column {
        name: name.into(),
        r#type: "binary".into(),
    };
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        store: "pymk".parse::<StoreName>()?,
        partitions: PARTITIONS.try_into()?,
        key_type: Default::default(),
        value_type: ValueType::Bytes,
        value_schemas: Vec::new(),
        compression: Compression::None,
        dictionary: None,
        records: entries.iter().map(|entry| entry.records).sum(),
        base: None,
        cut_unix_ms: None,
        undated_unix_ms: None,
        chunks: entries,
        schema: Schema {
            key: column("key"),
            values: vec![column("value")],
            encoding: ValueEncoding::Raw,
        },
        patches: Vec::new(),
        built: Built::default(),
    };
    std::fs::write(dir.join(MANIFEST_FILE), manifest.to_bytes())?;
    Ok(())
}
