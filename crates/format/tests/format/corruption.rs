//! Any changed byte in a version is detected and never served.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::written::{Shape, write};
use fondaco_format::{Compression, FileDefect, FormatError, Version, verify};
use fondaco_model::PartitionId;
use proptest::prelude::*;

fn records() -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..400u32)
        .map(|i| {
            (
                format!("key-{i}").into_bytes(),
                format!("value-{i}-").repeat(i as usize % 9).into_bytes(),
            )
        })
        .collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Looks up every key: each answer must be the right one or an error.
fn hammer(dir: &Path) -> Result<(), fondaco_format::FormatError> {
    let version = Version::open(dir)?;
    let mut outcome = Ok(());
    for (key, value) in records() {
        match version.get(&key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "a wrong answer was served"),
            Err(error) => outcome = Err(error),
        }
        match version.get(&[&key[..], b"?"].concat()) {
            Ok(found) => assert!(found.is_none(), "an absent key was found"),
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_flipped_bit_in_any_file_is_detected(
        file in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
        compression in prop_oneof![Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)],
    ) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &records(), &Shape { partitions: 2, chunks: 2, compression });
        let path = file.get(&files(dir.path())).clone();
        let original = std::fs::read(&path).unwrap();
        let at = at.index(original.len());
        let mut flipped = original.clone();
        flipped[at] ^= 1 << bit;
        std::fs::write(&path, &flipped).unwrap();
        let served = hammer(dir.path());
        let verified = verify(dir.path());
        let is_manifest = path.ends_with("manifest.json");
        // White space around the manifest's JSON has no meaning, so such a flip may be undetected.
        prop_assert!(verified.is_err() || is_manifest, "{path:?} byte {at} bit {bit} is not detected");
        // Some flips cannot affect a look-up (headers' reserved bytes have checksums, too), but a flip in a record must
        // be detected.
        if path.extension().is_some_and(|e| e == "data") {
            prop_assert!(served.is_err(), "{path:?} byte {at} bit {bit} is served");
        }
    }

    #[test]
    fn any_truncated_file_is_detected(file in any::<prop::sample::Index>(), at in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &records(), &Shape { partitions: 2, chunks: 1, compression: Compression::None });
        let path = file.get(&files(dir.path())).clone();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..at.index(bytes.len())]).unwrap();
        // The manifest ends with a line break that has no meaning.
        prop_assume!(!(path.ends_with("manifest.json") && at.index(bytes.len()) + 1 == bytes.len()));
        prop_assert!(verify(dir.path()).is_err());
        let opened = Version::open(dir.path());
        if path.extension().is_some_and(|e| e == "data" || e == "index") {
            // Only its partition counts as missing.
            let name = path.file_name().unwrap().to_str().unwrap();
            let partition = PartitionId::new(name[1..6].parse().unwrap());
            prop_assert_eq!(opened.unwrap().not_held().collect::<Vec<_>>(), [partition]);
            let required = Version::open_required(dir.path(), [partition]);
            let is_length = |error: &FormatError| matches!(error, FormatError::MissingFile { defect: FileDefect::Length { .. }, .. });
            prop_assert!(required.is_err_and(|error| is_length(&error)));
        } else {
            prop_assert!(opened.is_err());
        }
    }
}

#[test]
fn bit_rot_under_an_open_version_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape {
        partitions: 1,
        chunks: 1,
        compression: Compression::None,
    };
    write(dir.path(), &records(), &shape);
    let version = Version::open(dir.path()).unwrap();
    for key in records().keys() {
        version.get(key).unwrap();
    }
    let data = files(dir.path())
        .into_iter()
        .find(|p| p.extension().is_some_and(|e| e == "data"))
        .unwrap();
    let file = OpenOptions::new().write(true).open(&data).unwrap();
    let bytes = file.metadata().unwrap().len();
    for at in (64..bytes).step_by(50) {
        file.write_all_at(b"\xA5", at).unwrap();
    }
    let records = records();
    let errors = records.iter().filter(|(key, value)| match version.get(key) {
        Ok(found) => {
            assert_eq!(found.as_deref(), Some(&value[..]));
            false
        }
        Err(error) => error.is_corruption(),
    });
    assert!(errors.count() > 100);
}

#[test]
fn exchanged_files_of_two_chunks_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape {
        partitions: 1,
        chunks: 2,
        compression: Compression::None,
    };
    // The lengths are equal on purpose: only the headers tell the files apart.
    let records = (0..400u32)
        .map(|i| (format!("k{i:03}").into_bytes(), vec![7; 20]))
        .collect();
    write(dir.path(), &records, &shape);
    let index: Vec<_> = files(dir.path())
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "index"))
        .collect();
    let (a, b) = (std::fs::read(&index[0]).unwrap(), std::fs::read(&index[1]).unwrap());
    assert_eq!(a.len(), b.len());
    std::fs::write(&index[0], b).unwrap();
    std::fs::write(&index[1], a).unwrap();
    assert!(Version::open(dir.path()).is_err());
}
