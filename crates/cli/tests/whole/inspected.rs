//! The output of `fondaco inspect` for versions, without any node.

use std::fs;
use std::path::Path;

use fondaco_format::{Checksum, MANIFEST_FILE, Manifest};
use serde_json::Value;
use tempfile::TempDir;

use super::node::fondaco;
use super::version_files::{add_further, version_1};

fn done(arguments: &[&str]) -> String {
    let output = fondaco().args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn inspected(version: &Path) -> Value {
    serde_json::from_str(&done(&["inspect", version.to_str().unwrap(), "--verify", "--json"])).unwrap()
}

/// Builds a version of some cities.
fn build(dir: &TempDir, name: &str, more: &[&str]) -> std::path::PathBuf {
    let (input, output) = (dir.path().join("cities.csv"), dir.path().join(name));
    let rows: String = (0..2000).map(|id| format!("{id},city {}\n", id % 300)).collect();
    fs::write(&input, format!("id,name\n{rows}")).unwrap();
    let arguments = ["build", "cities", input.to_str().unwrap(), "--key", "id", "--quiet"];
    done(&[&arguments[..], &["--output", output.to_str().unwrap()], more].concat());
    output
}

#[test]
fn two_builds_of_one_input_are_the_same_version() {
    let dir = TempDir::new().unwrap();
    let one = build(
        &dir,
        "one",
        &["--compress", "zstd", "--threads", "1", "--memory", "256MiB"],
    );
    let other = build(
        &dir,
        "other",
        &["--compress", "zstd", "--threads", "3", "--memory", "64MiB"],
    );
    let (first, second) = (inspected(&one), inspected(&other));
    assert_eq!(first["checksum"], second["checksum"]);
    assert_eq!(first["manifest"], second["manifest"]);
    assert_ne!(first["built"]["created_unix_ms"], second["built"]["created_unix_ms"]);
    for entry in fs::read_dir(&one).unwrap().map(Result::unwrap) {
        let (here, there) = (entry.path(), other.join(entry.file_name()));
        let same = fs::read(&here).unwrap() == fs::read(&there).unwrap();
        assert_eq!(same, entry.file_name() != MANIFEST_FILE, "{here:?}");
    }
    let compressed_otherwise = inspected(&build(&dir, "a-third", &["--compress", "lz4"]));
    assert_ne!(first["checksum"], compressed_otherwise["checksum"]);
}

#[test]
fn base_cut_and_further_files_are_shown() {
    let dir = TempDir::new().unwrap();
    let version = build(&dir, "version", &[]);
    let text = done(&["inspect", version.to_str().unwrap()]);
    for absent in ["base ", "cut ", "further "] {
        assert!(!text.contains(absent), "{text}");
    }
    let base = Checksum::of(b"base");
    let manifest = Manifest {
        base: Some(base),
        cut_unix_ms: Some(1_767_225_600_000),
        undated_unix_ms: None,
        ..Manifest::read(&version).unwrap()
    };
    fs::write(version.join(MANIFEST_FILE), manifest.to_bytes()).unwrap();
    add_further(&version, "inverted");
    let text = done(&["inspect", version.to_str().unwrap(), "--verify"]);
    let base = base.to_string();
    for shown in [
        "format version 2",
        &base,
        "2026-01-01T00:00:00Z",
        "of inverted",
        "bytes, json of",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    let manifest = Manifest::read(&version).unwrap();
    let further: u64 = manifest.chunks.iter().map(|chunk| chunk.further[0].file.bytes).sum();
    assert_eq!(inspected(&version)["further_bytes"], further);
    let file = version.join(&manifest.chunks[0].further[0].file.name);
    let text = done(&["inspect", file.to_str().unwrap()]);
    assert!(text.starts_with("inverted of store cities: partition 0"), "{text}");
    fs::write(&file, "damaged").unwrap();
    let refused = fondaco().args(["inspect", file.to_str().unwrap()]).output().unwrap();
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && error.contains("is corrupt"), "{error}");
}

#[test]
fn a_version_of_the_previous_format_is_shown() {
    let shown = inspected(&version_1());
    assert_eq!(shown["manifest"]["format_version"], 1);
    assert_eq!(shown["manifest"]["value_type"], "bytes");
    assert_eq!(shown["built"]["built_by"], "fondaco-build 0.1.0");
    let bytes = fs::read(version_1().join(MANIFEST_FILE)).unwrap();
    assert_eq!(shown["checksum"], Checksum::of(&bytes).to_string());
    let text = done(&["inspect", version_1().join("p00001-c0000.index").to_str().unwrap()]);
    assert!(text.starts_with("index of store pymk: partition 1 of 2"), "{text}");
}
