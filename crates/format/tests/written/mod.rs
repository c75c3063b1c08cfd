//! Writes small versions for the tests, like a builder.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use fondaco_format::{
    Built, Checksum, ChunkPlan, ChunkWriter, Column, Compression, DATA_KIND, Encoder, FORMAT_VERSION, FileEntry,
    INDEX_KIND, MANIFEST_FILE, Manifest, Schema, ValueEncoding, chunk_of_hash, dictionary_file_name, key_hash,
    train_dictionary, unnamed_chunk_file,
};
use fondaco_model::{PartitionCount, StoreName, ValueType, slot_of_key};

/// The numbers of partitions and chunks of a version.
#[derive(Debug)]
pub struct Shape {
    pub partitions: u32,
    pub chunks: u32,
    pub compression: Compression,
}

/// Writes these records as a complete version into `dir`, which must exist.
pub fn write(dir: &Path, records: &BTreeMap<Vec<u8>, Vec<u8>>, shape: &Shape) {
    write_for("pymk", dir, records, shape);
}

/// The same, for a store of another name.
pub fn write_for(store: &str, dir: &Path, records: &BTreeMap<Vec<u8>, Vec<u8>>, shape: &Shape) {
    write_dated(store, dir, records, shape, &|_| None);
}

/// The same, with times of records.
pub fn write_dated(
    store: &str,
    dir: &Path,
    records: &BTreeMap<Vec<u8>, Vec<u8>>,
    shape: &Shape,
    time_ms: &dyn Fn(&[u8]) -> Option<u64>,
) {
    let store: StoreName = store.parse().unwrap();
    let partitions = PartitionCount::try_from(shape.partitions).unwrap();
    let dictionary = match shape.compression {
        Compression::Zstd => train_dictionary(&records.values().cloned().collect::<Vec<_>>()).unwrap(),
        _ => None,
    };
    let mut encoder = Encoder::new(shape.compression, dictionary.as_deref()).unwrap();
    let mut sorted: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (key, value) in records {
        let partition = partitions.partition_of(slot_of_key(&store, key));
        let hash = key_hash(key);
        let chunk = chunk_of_hash(hash, shape.chunks);
        sorted.entry((partition, chunk)).or_default().push((hash, key, value));
    }
    let populated: Vec<_> = sorted.keys().map(|&(partition, _)| partition).collect();
    for partition in populated {
        for chunk in 0..shape.chunks {
            sorted.entry((partition, chunk)).or_default();
        }
    }
    let mut chunks = Vec::new();
    for ((partition, chunk), mut records) in sorted {
        records.sort();
        let plan = ChunkPlan {
            partition,
            chunk,
            chunk_count: shape.chunks,
        };
        let path = |kind| dir.join(unnamed_chunk_file(partition, chunk, kind));
        let data = File::create(path(DATA_KIND)).unwrap();
        let mut writer = ChunkWriter::new(plan, shape.compression, data);
        for (hash, key, value) in records {
            let value = encoder.encode(value).unwrap().at(time_ms(key));
            writer.append(hash, key, value).unwrap();
        }
        let index = File::create(path(INDEX_KIND)).unwrap();
        let (entry, ..) = writer.finish(index).unwrap();
        std::fs::rename(path(DATA_KIND), dir.join(&entry.data.name)).unwrap();
        std::fs::rename(path(INDEX_KIND), dir.join(&entry.index.name)).unwrap();
        chunks.push(entry);
    }
    let dictionary = dictionary.map(|bytes| {
        let checksum = Checksum::of(&bytes);
        let name = dictionary_file_name(checksum);
        std::fs::write(dir.join(&name), &bytes).unwrap();
        FileEntry {
            name,
            bytes: bytes.len() as u64,
            checksum,
        }
    });
    let column = |name: &str| Column {
        name: name.into(),
        r#type: "binary".into(),
    };
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        store,
        partitions,
        key_type: Default::default(),
        value_type: ValueType::Bytes,
        value_schemas: Vec::new(),
        compression: shape.compression,
        dictionary,
        records: records.len() as u64,
        base: None,
        cut_unix_ms: None,
        undated_unix_ms: None,
        chunks,
        schema: Schema {
            key: column("key"),
            values: vec![column("value")],
            encoding: ValueEncoding::Raw,
        },
        patches: Vec::new(),
        built: Built {
            created_unix_ms: 0,
            built_by: "test".into(),
        },
    };
    std::fs::write(dir.join(MANIFEST_FILE), manifest.to_bytes()).unwrap();
}
