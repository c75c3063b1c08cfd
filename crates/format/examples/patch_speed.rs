//! Measures how long it takes to make a chunk from that of an earlier version and a patch, against copying it.
//!
//! ```text
//! cargo run --release -p fondaco-format --example patch_speed -- [MIB]
//! ```
//!
//! Records have 1 KiB, which hardly compresses, and every twentieth one is changed.

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use fondaco_format::{
    Checksum, Checksummer, ChunkPlan, ChunkWriter, Compression, Encoder, FileEntry, Patch, key_hash, write_change,
    write_patch,
};
use fondaco_model::PartitionId;

const VALUE_BYTES: usize = 1024;
const CHANGED_EACH: usize = 20;
/// As fetches read and write.
const PIECE_BYTES: usize = 16 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mib: usize = std::env::args().nth(1).map_or(Ok(1024), |text| text.parse())?;
    let dir = tempfile::tempdir_in("target")?;
    let path = |name: &str| dir.path().join(name);
    let mut records: Vec<(u64, Vec<u8>)> = (0..mib << 10)
        .map(|n| n.to_string().into_bytes())
        .map(|key| (key_hash(&key), key))
        .collect();
    records.sort_unstable();
    let plan = ChunkPlan {
        partition: PartitionId::new(0),
        chunk: 0,
        chunk_count: 1,
    };
    let mut random = fastrand::Rng::with_seed(1);
    let mut value = || -> Vec<u8> { (0..VALUE_BYTES).map(|_| random.alphanumeric() as u8).collect() };
    let mut encoder = Encoder::new(Compression::None, None)?;
    let mut base = ChunkWriter::new(plan, Compression::None, File::create(path("base"))?);
    let mut changes = Vec::new();
    for (number, (hash, key)) in records.iter().enumerate() {
        base.append(*hash, key, encoder.encode(&value())?)?;
        if number % CHANGED_EACH == 0 {
            write_change(&mut changes, key, Some(encoder.encode(&value())?));
        }
    }
    let counts = base.counts();
    let (entry, ..) = base.finish(Vec::new())?;
    let (patch, _) = write_patch(
        entry.data.checksum,
        &plan,
        counts,
        &changes[..],
        File::create(path("patch"))?,
    )?;
    println!(
        "{} MB in a chunk, {:.1} MB in the patch",
        entry.data.bytes / 1_000_000,
        patch.bytes as f64 / 1e6
    );
    for _ in 0..3 {
        for file in ["copied", "made"] {
            if path(file).exists() {
                fs::remove_file(path(file))?;
            }
        }
        let began = Instant::now();
        copy(&path("base"), &path("copied"), &entry.data)?;
        let copied = began.elapsed();
        let began = Instant::now();
        let opened = Patch::open(&path("patch"), File::open(path("patch"))?)?;
        let mut writer = opened.begin(File::create(path("made"))?);
        opened.apply((&path("base"), &mut File::open(path("base"))?), &mut writer)?;
        let (_, made, _) = writer.finish(Vec::new())?;
        made.sync_all()?;
        println!(
            "copied and synced in {copied:.2?}, made and synced in {:.2?}",
            began.elapsed()
        );
    }
    Ok(())
}

/// Copies a file as a fetch does: in pieces, with its checksum.
fn copy(from: &Path, to: &Path, entry: &FileEntry) -> Result<(), Box<dyn Error>> {
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    let (mut piece, mut checksum) = (vec![0; PIECE_BYTES], Checksummer::new());
    loop {
        let count = from.read(&mut piece)?;
        if count == 0 {
            to.sync_all()?;
            let found: Checksum = checksum.finish();
            assert_eq!(found, entry.checksum);
            return Ok(());
        }
        checksum.update(&piece[..count]);
        to.write_all(&piece[..count])?;
    }
}
