//! Self-describing data: every value names its version and its key, so that any mixing shows.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::node::{fondaco, of_csv, write_csv};

/// The number of keys of a version.
pub const KEYS: u64 = 2000;
/// The store that all tests use.
pub const STORE: &str = "s";

/// The value of a key in a version.
pub fn value(version: u64, key: u64) -> String {
    // Many lengths, so that records have different offsets in each version.
    let filler = "x".repeat((key * (version + 7) % 300) as usize);
    format!("version-{version} key-{key} {filler}")
}

/// The version of a value.
///
/// # Errors
/// The value is not that of the key in any version.
pub fn version_of(text: &str, key: u64) -> Result<u64, String> {
    let version = text
        .strip_prefix("version-")
        .and_then(|rest| rest.split(' ').next()?.parse().ok());
    match version {
        Some(version) if text == value(version, key) => Ok(version),
        _ => Err(format!("key {key} has value {text:?}")),
    }
}

/// Builds a version, beside others, and returns its directory.
pub fn build(dir: &Path, version: u64, partitions: u32) -> PathBuf {
    build_by(fondaco(), dir, version, partitions)
}

/// Builds a version with this build of the program, beside others, and returns its directory.
pub fn build_by(mut program: Command, dir: &Path, version: u64, partitions: u32) -> PathBuf {
    let csv = dir.join(format!("{version}.csv"));
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(version, key))));
    let output = dir.join(format!("built-{version}"));
    let done = program
        .args(of_csv(
            "build",
            STORE,
            &csv,
            &["--partitions", &partitions.to_string(), "--output"],
        ))
        .arg(&output)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    output
}

/// A directory on another file system than the nodes' data, so that nodes cannot link its files: each copies them, and
/// fetching takes time.
pub fn elsewhere() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    match shm.is_dir() {
        true => tempfile::tempdir_in(shm).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// Reads all keys at once, and returns their one version.
///
/// # Errors
/// A key cannot be read, is missing, or has a wrong value; or there are several versions.
pub fn read_all(redis: &mut redis::Connection) -> Result<u64, String> {
    read(redis, &(0..KEYS).collect::<Vec<_>>())
}

/// Reads keys in one request, and returns their one version.
///
/// # Errors
/// As [`read_all`].
pub fn read(redis: &mut redis::Connection, keys: &[u64]) -> Result<u64, String> {
    let texts = ask(redis, keys).map_err(|error| error.to_string())?;
    one_version(keys, &texts)
}

/// Reads keys.
///
/// # Errors
/// One of them cannot be read.
pub fn ask(redis: &mut redis::Connection, keys: &[u64]) -> redis::RedisResult<Vec<Option<String>>> {
    let wire_keys: Vec<String> = keys.iter().map(|key| format!("{STORE}:{key}")).collect();
    redis::cmd("MGET").arg(wire_keys).query(redis)
}

/// The common version of these answers.
///
/// # Errors
/// There is no common version.
pub fn one_version(keys: &[u64], texts: &[Option<String>]) -> Result<u64, String> {
    let mut versions = Vec::with_capacity(keys.len());
    for (&key, text) in keys.iter().zip(texts) {
        let text = text.as_deref().ok_or_else(|| format!("key {key} is missing"))?;
        versions.push(version_of(text, key)?);
    }
    match versions.iter().all(|&version| version == versions[0]) {
        true => Ok(versions[0]),
        false => Err(format!("one MGET has versions {versions:?}")),
    }
}
