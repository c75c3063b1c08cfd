//! A version of one chunk with any records and any index, in which all checksums match.
//!
//! It is as hostile as a file can be. Opening, scanning, looking up and verifying may refuse it, but give
//! an answer: no panic, no reading past the end.

#![no_main]

use std::path::Path;

use fondaco_format::{
    Built, Checksum, ChunkEntry, Column, Compression, DATA_HEADER_BYTES, DATA_KIND, DataHeader, FORMAT_VERSION,
    FileEntry, INDEX_KIND, MANIFEST_FILE, Manifest, Schema, ValueEncoding, Version, chunk_file_name, search_records,
    verify,
};
use fondaco_model::{PartitionId, ValueType};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

const BLOCK_BYTES: usize = 4096;
const BUCKETS_PER_BLOCK: usize = 1022;
const RECORD_HEADER_BYTES: usize = 10;

fn short_checksum(bytes: &[u8]) -> [u8; 4] {
    (xxh3_64(bytes) as u32).to_le_bytes()
}

/// The first 24 bytes of either file: chunk 0 of 1 in partition 0.
fn start(magic: &[u8; 8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    for number in [FORMAT_VERSION, 0, 0, 1] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// A data file of these bytes, the checksum put into all that can be read as a record.
fn data_file(records: &[u8]) -> Vec<u8> {
    let mut file = start(b"FONDDATA");
    file.resize(DATA_HEADER_BYTES - 4, 0);
    file.extend_from_slice(&short_checksum(&file));
    file.extend_from_slice(records);
    let mut rest = &mut file[DATA_HEADER_BYTES..];
    while rest.len() > RECORD_HEADER_BYTES {
        let word = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]);
        let key_bytes = usize::from(u16::from_le_bytes([rest[8], rest[9]])) + 1;
        let record_bytes = RECORD_HEADER_BYTES + key_bytes + (word & ((1 << 27) - 1)) as usize;
        let Some((record, after)) = rest.split_at_mut_checked(record_bytes) else {
            break;
        };
        let (checksum, contents) = record.split_at_mut(4);
        checksum.copy_from_slice(&short_checksum(contents));
        rest = after;
    }
    file
}

/// An index file of these bucket starts.
fn index_file(starts: &[u16], records: u64, data_bytes: u64) -> Vec<u8> {
    let mut header = start(b"FONDINDX");
    header.extend_from_slice(&(starts.len() as u32).to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    header.extend_from_slice(&records.to_le_bytes());
    header.extend_from_slice(&data_bytes.to_le_bytes());
    let mut file = seal(header);
    for (number, block_starts) in starts.chunks(BUCKETS_PER_BLOCK).enumerate() {
        let next = starts.get((number + 1) * BUCKETS_PER_BLOCK);
        let mut places: Vec<_> = block_starts.iter().chain(next).map(|&start| u32::from(start)).collect();
        places.resize(BUCKETS_PER_BLOCK + 1, data_bytes as u32);
        file.extend(seal(places.iter().flat_map(|place| place.to_le_bytes()).collect()));
    }
    file
}

fn seal(mut block: Vec<u8>) -> Vec<u8> {
    block.resize(BLOCK_BYTES - 4, 0);
    block.extend_from_slice(&short_checksum(&block));
    block
}

fn write(dir: &Path, kind: &str, bytes: &[u8]) -> FileEntry {
    let checksum = Checksum::of(bytes);
    let name = chunk_file_name(PartitionId::new(0), 0, checksum, kind);
    std::fs::write(dir.join(&name), bytes).expect("room for a small file");
    FileEntry {
        name,
        bytes: bytes.len() as u64,
        checksum,
    }
}

fn manifest(data: FileEntry, index: FileEntry, records: u64, compression: Compression) -> Manifest {
    let column = |name: &str| Column {
        name: name.to_owned(),
        r#type: "binary".to_owned(),
    };
    Manifest {
        format_version: FORMAT_VERSION,
        store: "fuzz".parse().expect("a name"),
        partitions: 1.try_into().expect("a power of two"),
        key_type: Default::default(),
        value_type: ValueType::Bytes,
        value_schemas: Vec::new(),
        compression,
        dictionary: None,
        records,
        base: None,
        cut_unix_ms: None,
        undated_unix_ms: None,
        chunks: vec![ChunkEntry {
            partition: PartitionId::new(0),
            chunk: 0,
            records,
            data,
            index,
            further: vec![],
        }],
        schema: Schema {
            key: column("key"),
            values: vec![column("value")],
            encoding: ValueEncoding::Raw,
        },
        built: Built::default(),
        patches: Vec::new(),
    }
}

fuzz_target!(|input: (u8, Vec<u16>, bool, &[u8])| {
    let (records, mut starts, is_compressed, bytes) = input;
    let _ = DataHeader::parse(bytes);
    let _ = search_records(bytes, b"key");
    // Ascending starts come further; a fuzzer finds them too seldom by itself.
    if records % 2 == 0 {
        starts.push(DATA_HEADER_BYTES as u16);
        starts.sort_unstable();
    }
    let compression = if is_compressed {
        Compression::Lz4
    } else {
        Compression::None
    };
    let records = u64::from(records);
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let data = data_file(bytes);
    let _ = search_records(&data[DATA_HEADER_BYTES..], b"key");
    let index = index_file(&starts, records, data.len() as u64);
    let data = write(dir.path(), DATA_KIND, &data);
    let index = write(dir.path(), INDEX_KIND, &index);
    let manifest = manifest(data, index, records, compression);
    std::fs::write(dir.path().join(MANIFEST_FILE), manifest.to_bytes()).expect("room for a small file");
    let _ = verify(dir.path());
    let Ok(version) = Version::open(dir.path()) else {
        return;
    };
    let _ = version.get(b"key");
    let records: Vec<_> = version.scan().map_while(Result::ok).collect();
    for (key, _) in &records {
        // Several records may have one key here, but an answer is the value of one of them.
        if let Ok(Some(found)) = version.get(key) {
            let value = &*found;
            assert!(records.iter().any(|(k, v)| k == key && v[..] == *value));
        }
    }
});
