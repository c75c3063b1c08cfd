//! The names of the files of a version.
//!
//! ```text
//! manifest.json
//! p00012-c0003-0123456789abcdef.data    a file of chunk 3 of partition 12: its checksum, and its kind
//! p00012-c0003-0123456789abcdef.patch   what changed in the chunk; only where the version was built
//! dictionary-0123456789abcdef.zstd      the dictionary of the compression
//! ```
//!
//! A name contains the checksum of the file, so two versions with the same chunk have files of the same name. Only the
//! checksum of the bytes proves that two files are equal. Names in version 1 of the format have no checksums.

use fondaco_model::PartitionId;

use crate::checksum::Checksum;

/// The name of the manifest in a version's directory.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The kind of a chunk's data file.
pub const DATA_KIND: &str = "data";

/// The kind of a chunk's index file.
pub const INDEX_KIND: &str = "index";

/// The kind of a chunk's patch.
pub const PATCH_KIND: &str = "patch";

/// The name of the dictionary in version 1 of the format.
pub(crate) const DICTIONARY_FILE_V1: &str = "dictionary.zstd";

/// The longest name of a kind of files, in bytes.
const KIND_BYTES_MAX: usize = 32;

/// The name of a chunk's file.
pub fn chunk_file_name(partition: PartitionId, chunk: u32, checksum: Checksum, kind: &str) -> String {
    format!("p{:05}-c{chunk:04}-{checksum}.{kind}", partition.get())
}

/// The name under which a builder writes a chunk's file until its checksum is known. It is the only form of names in
/// version 1 of the format.
pub fn unnamed_chunk_file(partition: PartitionId, chunk: u32, kind: &str) -> String {
    format!("p{:05}-c{chunk:04}.{kind}", partition.get())
}

/// The name of a dictionary's file.
pub fn dictionary_file_name(checksum: Checksum) -> String {
    format!("dictionary-{checksum}.zstd")
}

/// Whether a version can have a file of this name. Such a name never leads out of the directory.
pub fn is_version_file(name: &str) -> bool {
    is_named_by_content(name)
        || [MANIFEST_FILE, DICTIONARY_FILE_V1].contains(&name)
        || parse_chunk_file(name).is_some_and(|(partition, chunk, kind)| {
            [DATA_KIND, INDEX_KIND].contains(&kind) && name == unnamed_chunk_file(partition, chunk, kind)
        })
}

/// Whether a name contains the checksum of its file.
pub fn is_named_by_content(name: &str) -> bool {
    let checksum_before = |rest: &str| rest.rsplit_once('-')?.1.parse::<Checksum>().ok();
    let Some((stem, _)) = name.split_once('.') else {
        return false;
    };
    let Some(checksum) = checksum_before(stem) else {
        return false;
    };
    name == dictionary_file_name(checksum)
        || parse_chunk_file(name).is_some_and(|(partition, chunk, kind)| {
            let is_kind = [DATA_KIND, INDEX_KIND, PATCH_KIND].contains(&kind) || is_further_kind(kind);
            is_kind && name == chunk_file_name(partition, chunk, checksum, kind)
        })
}

/// Whether a chunk's file, other than data, index and patch, may be of this kind. A kind has 1 to 32 of the
/// characters a to z, 0 to 9 and `-`, and is not an extension of files that are being fetched.
pub(crate) fn is_further_kind(kind: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=KIND_BYTES_MAX).contains(&kind.len())
        && kind.bytes().all(is_allowed)
        && ![DATA_KIND, INDEX_KIND, PATCH_KIND, "part", "link"].contains(&kind)
}

/// Partition, chunk and kind of a name with the beginning and end of a chunk's file.
fn parse_chunk_file(name: &str) -> Option<(PartitionId, u32, &str)> {
    let (partition, rest) = name.strip_prefix('p')?.split_once("-c")?;
    let (chunk, kind) = rest.split_once('.')?;
    let chunk = chunk.split_once('-').map_or(chunk, |(chunk, _)| chunk);
    Some((PartitionId::new(partition.parse().ok()?), chunk.parse().ok()?, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_version_files_are_recognised() {
        let checksum = Checksum::of(b"x");
        let partition = PartitionId::new(16383);
        let by_content = [
            chunk_file_name(partition, 0, checksum, DATA_KIND),
            chunk_file_name(partition, 12345, checksum, INDEX_KIND),
            chunk_file_name(partition, 2, checksum, PATCH_KIND),
            chunk_file_name(partition, 1, checksum, "inverted-by-city"),
            dictionary_file_name(checksum),
        ];
        for name in &by_content {
            assert!(is_version_file(name) && is_named_by_content(name), "{name}");
        }
        for name in [
            "manifest.json",
            "p00003-c0001.data",
            "p16383-c0000.index",
            "dictionary.zstd",
        ] {
            assert!(is_version_file(name) && !is_named_by_content(name), "{name}");
        }
        let with_checksum = |pattern: &str| pattern.replace("SUM", &checksum.to_string());
        for pattern in [
            "",
            "..",
            "../manifest.json",
            "p00003-c0001.part",
            "p00003-c0001.inverted",
            "p3-c1.data",
            "p00003-c0001.data/..",
            "lock",
            "p+0003-c0001.data",
            "p00003-c0001-SUM.data.part",
            "p00003-c0001-SUM.part",
            "p00003-c0001-SUM.link",
            "p00003-c0001-SUM.../x",
            "p00003-c0001-SUM.",
            "p00003-c0001-SUM",
            "p00003-c0001-0SUM.data",
            "p00003-c0001-0-SUM.data",
            "p3-c1-SUM.data",
            "dictionary-SUM.zst",
            "dictionary-.zstd",
        ] {
            let name = with_checksum(pattern);
            assert!(!is_version_file(&name) && !is_named_by_content(&name), "{name}");
        }
    }
}
