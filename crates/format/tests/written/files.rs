//! Files of versions by chunk and kind; and versions that the current builder does not make: of the previous format,
//! and with further files.

#![allow(dead_code, reason = "not every test that has this module needs all of it")]

use std::path::{Path, PathBuf};

use fondaco_format::{Checksum, ChunkEntry, FurtherFile, MANIFEST_FILE, Manifest};

/// A version built by an old release: 500 keys `member-N` with values `1:N:`, in two partitions.
pub fn version_1() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/version-1")
}

/// The file name of this kind and chunk; `chunk` is its beginning: `p00001-c0000`.
pub fn file_name(dir: &Path, chunk: &str, kind: &str) -> String {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let mut names = names.filter(|name| name.starts_with(chunk) && name.ends_with(&format!(".{kind}")));
    names.next().unwrap()
}

/// The content of a further file of a chunk in these tests.
pub fn further_content(chunk: &ChunkEntry) -> Vec<u8> {
    format!("what {} has, inverted", chunk.data.name).into_bytes()
}

/// Adds a further file of this kind to each chunk of a version.
pub fn add_further(dir: &Path, kind: &str) {
    let mut manifest = Manifest::read(dir).unwrap();
    for chunk in &mut manifest.chunks {
        let content = further_content(chunk);
        let checksum = Checksum::of(&content);
        let further = FurtherFile::new(chunk.partition, chunk.chunk, kind, content.len() as u64, checksum);
        std::fs::write(dir.join(&further.file.name), content).unwrap();
        chunk.further.push(further);
    }
    std::fs::write(dir.join(MANIFEST_FILE), manifest.to_bytes()).unwrap();
}
