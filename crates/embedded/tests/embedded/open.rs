//! Versions that are opened by themselves.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fondaco_builder::{BuildOptions, GraphOptions, Progress, Types, UnknownVertices, ValueSelection, build_graph};
use fondaco_embedded::{EmbeddedError, Reader, Snapshot};
use fondaco_format::{Compression, FormatError, Manifest};
use fondaco_model::{PartitionCount, PartitionId, PartitionSet, ValueType};
use fondaco_storage::Location;
use rustix::fs::{Advice, fadvise};

use crate::versions::{built, built_with, key, store, value};

const KEYS: usize = 3000;

fn keys(count: usize) -> Vec<String> {
    (0..count).map(key).collect()
}

/// Drops all files of a directory from the page cache.
fn drop_from_memory(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

fn set(partitions: &[u32]) -> PartitionSet {
    partitions
        .iter()
        .map(|&partition| PartitionId::new(partition))
        .collect()
}

/// The data files of a partition.
fn data_of(dir: &Path, partition: u32) -> Vec<PathBuf> {
    let manifest = Manifest::read(dir).unwrap();
    let chunks = manifest
        .chunks
        .iter()
        .filter(|chunk| chunk.partition.get() == partition);
    chunks.map(|chunk| dir.join(&chunk.data.name)).collect()
}

#[test]
fn keys_are_found_alone_and_together_from_memory_and_from_the_disk() {
    for compression in [Compression::None, Compression::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let path = built(dir.path(), 4, KEYS, 7, compression);
        drop_from_memory(&path);
        let reader = Reader::open(&path).unwrap();
        let wanted = keys(KEYS + 50);
        for _ in 0..2 {
            let values = reader.get_many(&wanted).unwrap();
            assert_eq!(values.len(), wanted.len());
            for (number, found) in values.iter().enumerate() {
                let expected = (number < KEYS).then(|| value(number, 7));
                assert_eq!(found, expected.as_deref().map(str::as_bytes), "{number}");
                assert_eq!(values.get(number), found);
            }
        }
        reader.warm().unwrap();
        for number in [0, 1, KEYS - 1] {
            let expected = value(number, 7).into_bytes();
            assert_eq!(reader.get(key(number)).unwrap(), Some(expected.clone()));
            let snapshot = reader.snapshot().unwrap();
            let borrowed = snapshot.get(key(number)).unwrap().unwrap();
            assert_eq!(borrowed.to_vec(), expected);
            assert!(borrowed.is_intact());
        }
        assert_eq!(reader.get(key(KEYS)).unwrap(), None);
        assert_eq!(reader.get("").unwrap(), None);
        assert!(reader.get_many::<&str>(&[]).unwrap().is_empty());
        assert_eq!(reader.version(), None);
        assert_eq!(reader.snapshot().unwrap().schema().values[0].name, "city");
    }
}

#[test]
fn readers_and_snapshots_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Reader>();
    is_shared::<Snapshot>();
}

#[test]
fn a_scan_has_each_record_of_its_partitions_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = built(dir.path(), 4, KEYS, 1, Compression::Lz4);
    let reader = Reader::open(&path).unwrap();
    let all: Vec<_> = reader.scan(None).unwrap().flat_map(Result::unwrap).collect();
    assert_eq!(all.len(), KEYS);
    let by_key: BTreeMap<_, _> = all.iter().cloned().collect();
    for number in 0..KEYS {
        assert_eq!(by_key[key(number).as_bytes()], value(number, 1).into_bytes());
    }
    let mut parts = Vec::new();
    for some in [set(&[0]), set(&[1, 2]), set(&[3])] {
        let part: Vec<_> = reader.scan(Some(&some)).unwrap().flat_map(Result::unwrap).collect();
        assert!(part.len() < KEYS);
        parts.extend(part);
    }
    assert_eq!(parts, all);
    let error = reader.scan(Some(&set(&[4]))).err().unwrap();
    assert!(
        error.to_string().contains("has 4 partitions, not one with number 4"),
        "{error}"
    );
}

#[test]
fn a_key_of_a_missing_partition_is_an_error_and_not_absent() {
    let dir = tempfile::tempdir().unwrap();
    let path = built(dir.path(), 4, KEYS, 1, Compression::None);
    data_of(&path, 2).iter().for_each(|file| fs::remove_file(file).unwrap());
    let reader = Reader::open(&path).unwrap();
    let snapshot = reader.snapshot().unwrap();
    assert_eq!(snapshot.partitions(), set(&[0, 1, 3]));
    let is_missing = |error: &EmbeddedError| matches!(error, EmbeddedError::Format(FormatError::NotHeld { .. }));
    let found: Vec<_> = keys(KEYS).iter().map(|key| reader.get(key)).collect();
    let missing = found
        .iter()
        .filter(|found| found.as_ref().is_err_and(is_missing))
        .count();
    assert!(missing > 0 && missing < KEYS);
    assert!(found.iter().flatten().all(Option::is_some));
    assert!(is_missing(&reader.get_many(&keys(KEYS)).err().unwrap()));
    assert!(is_missing(&reader.scan(Some(&set(&[2]))).err().unwrap()));
    let records = reader.scan(None).unwrap().flat_map(Result::unwrap).count();
    assert_eq!((records as u64, records), (snapshot.records(), KEYS - missing));
}

#[test]
fn a_damaged_record_is_an_error_in_each_kind_of_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = built(dir.path(), 1, KEYS, 1, Compression::None);
    let file = &data_of(&path, 0)[0];
    let mut bytes = fs::read(file).unwrap();
    let text = value(42, 1).into_bytes();
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert!(reader.get(key(42)).unwrap_err().to_string().contains("corrupt"));
    assert!(reader.get_many(&keys(100)).unwrap_err().to_string().contains("corrupt"));
    let scanned: Result<Vec<_>, _> = reader.scan(None).unwrap().collect();
    assert!(scanned.unwrap_err().to_string().contains("corrupt"));
    let intact = (0..KEYS).filter(|&number| {
        reader
            .get(key(number))
            .is_ok_and(|found| found == Some(value(number, 1).into_bytes()))
    });
    assert!(intact.count() >= KEYS - 4, "only keys of the same bucket are affected");
}

#[test]
fn a_directory_without_a_manifest_and_a_graph_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = Reader::open(dir.path()).err().unwrap();
    assert!(error.to_string().contains("no manifest"), "{error}");

    let edges = dir.path().join("edges.csv");
    fs::write(&edges, "from,to\nada,mary\n").unwrap();
    let output = Location::local(dir.path().join("graph"));
    let inputs = vec![edges.display().to_string()];
    let mut options = BuildOptions::new(
        store(),
        PartitionCount::ONE,
        inputs,
        "from",
        output,
        dir.path().to_owned(),
    );
    options.key = vec!["from".into(), "to".into()];
    options.value = ValueSelection::Columns(vec![]);
    let options = GraphOptions {
        build: options,
        edge_type: "knows".into(),
        symmetric: Types::None,
        indexed: Types::None,
        vertices: vec![],
        vertex_name: "name".into(),
        unknown_vertices: UnknownVertices::Add,
        known: None,
    };
    build_graph(&options, &Progress::default()).unwrap();
    let error = Reader::open(dir.path().join("graph")).err().unwrap();
    assert!(error.to_string().contains("fondaco graph query cities"), "{error}");
}

#[test]
fn records_are_decoded_by_the_schema_in_the_manifest() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("users.csv"), "shop,id,age\nrome,1,36\n").unwrap();
    let text = r#"{"type":"record","name":"User","fields":[{"name":"age","type":"int"}]}"#;
    let mut options = BuildOptions::new(
        "users".parse().unwrap(),
        4.try_into().unwrap(),
        vec![dir.path().join("users.csv").to_str().unwrap().to_owned()],
        "shop",
        Location::local(dir.path().join("version")),
        dir.path().to_owned(),
    );
    options.key.push("id".to_owned());
    options.declared.value_type = ValueType::Avro;
    options.declared.key_type = "(string,integer)".parse().unwrap();
    let schema = fondaco_schema::Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap();
    options.declared.schemas.insert(200, schema);
    let snapshot = Reader::open(built_with(&options)).unwrap().snapshot().unwrap();
    let key = snapshot.key(&serde_json::json!(["rome", 1])).unwrap();
    let value = snapshot.get_owned(&key).unwrap().unwrap();
    assert_eq!(snapshot.decode(&value).unwrap(), Some(serde_json::json!({"age": 36})));
    let error = snapshot.decode(b"\x05").unwrap_err().to_string();
    assert!(error.contains("no schema has the id 5"), "{error}");
    assert!(snapshot.key(&serde_json::json!(["rome"])).is_err());
}
