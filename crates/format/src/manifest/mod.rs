//! The manifest: the file that makes a directory a complete version. It is written last.

mod check;
mod file;

use fondaco_model::{KeyType, PartitionCount, PartitionId, PartitionSet, StoreName, ValueType};
use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::compression::Compression;
use crate::names::chunk_file_name;

/// The name of an empty marker file: the program that made this directory never changes its files and does not need
/// them any more, so another program may hard-link them.
pub const GIVEN_AWAY_FILE: &str = "given-away";

/// One file of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its name in the directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The checksum of all its bytes.
    pub checksum: Checksum,
}

/// One chunk of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkEntry {
    /// Its partition.
    pub partition: PartitionId,
    /// Its number in the partition, from 0.
    pub chunk: u32,
    /// The number of records.
    pub records: u64,
    /// Its data file.
    pub data: FileEntry,
    /// Its index file.
    pub index: FileEntry,
    /// Its further files, in the order of their kinds, at most one per kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<FurtherFile>,
}

/// A file of a chunk that look-ups do not need, for instance an inverted index. It is fetched, verified, linked,
/// counted and deleted like other files, even by readers that do not know its kind: they just do not open it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FurtherFile {
    /// Its kind: 1 to 32 of the characters a to z, 0 to 9 and `-`.
    pub kind: String,
    /// The file.
    pub file: FileEntry,
}

impl FurtherFile {
    /// The entry of a chunk's file of this kind, with the name that the file must have.
    pub fn new(partition: PartitionId, chunk: u32, kind: &str, bytes: u64, checksum: Checksum) -> Self {
        Self {
            kind: kind.to_owned(),
            file: FileEntry {
                name: chunk_file_name(partition, chunk, checksum, kind),
                bytes,
                checksum,
            },
        }
    }
}

impl ChunkEntry {
    /// All its files, in the order in which they are fetched: the index last.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        self.files_but_index().chain([&self.index])
    }

    /// All its files except the index.
    pub fn files_but_index(&self) -> impl Iterator<Item = &FileEntry> {
        let further = self.further.iter().map(|further| &further.file);
        [&self.data].into_iter().chain(further)
    }
}

/// A file from which a chunk is rebuilt, where the data file of an earlier version is: see
/// [`Patch`](crate::Patch). Nothing depends on it: the chunk may always be fetched whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchEntry {
    /// The partition of the chunk.
    pub partition: PartitionId,
    /// The number of the chunk in the partition.
    pub chunk: u32,
    /// The data file of the chunk in the earlier version.
    pub base: FileEntry,
    /// The patch.
    pub patch: FileEntry,
}

/// The circumstances of a build. They are not part of the version's identity: two copies of one version may differ in
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// When it was built, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The program that built it.
    pub built_by: String,
}

/// The source of keys and values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The column of the keys.
    pub key: Column,
    /// The columns of the values.
    pub values: Vec<Column>,
    /// How the columns became values.
    pub encoding: ValueEncoding,
}

/// One column of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as the input calls it.
    pub r#type: String,
}

/// A schema of values, which begin with its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueSchema {
    /// Its id in the store.
    pub id: u16,
    /// Of Avro its text; of Protobuf its serialized `FileDescriptorSet`, in base64.
    pub text: String,
    /// The full name of Protobuf's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl ValueSchema {
    /// Its id, text and message.
    pub fn parts(&self) -> (u16, &str, Option<&str>) {
        (self.id, &self.text, self.message.as_deref())
    }
}

/// The encoding of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueEncoding {
    /// One column, unchanged.
    Raw,
    /// A JSON object of several columns.
    Json,
}

/// The description of a version, complete without opening its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The format of the version: [`format_version`](crate::format_version), unless an older release built it.
    pub format_version: u32,
    /// The store that it was built for: slots depend on its name.
    pub store: StoreName,
    /// The number of partitions.
    pub partitions: PartitionCount,
    /// The type of keys.
    #[serde(default, skip_serializing_if = "KeyType::is_bytes")]
    pub key_type: KeyType,
    /// The type of values.
    pub value_type: ValueType,
    /// The schemas of the values, by their ids, if the type of values has schemas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value_schemas: Vec<ValueSchema>,
    /// The compression of values.
    pub compression: Compression,
    /// The file of the compression dictionary, if there is one.
    pub dictionary: Option<FileEntry>,
    /// The number of records.
    pub records: u64,
    /// For an incremental version: the identity of the version that it was built on. A push is refused if that
    /// is not the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Checksum>,
    /// The time of the last included stream events, inclusive, in milliseconds since 1970: on top of the version count
    /// those after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_unix_ms: Option<u64>,
    /// The time of the records that have none of their own, in milliseconds since 1970, if there are others: see
    /// [`Lifetimes`](crate::Lifetimes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undated_unix_ms: Option<u64>,
    /// The chunks, in the order of partition and number. An empty partition has none.
    pub chunks: Vec<ChunkEntry>,
    /// The source of keys and values.
    pub schema: Schema,
    /// The patches beside the chunks where the version was built, in the order of the chunks. They are no part of the
    /// version's identity, and nodes do not keep them.
    #[serde(skip)]
    pub patches: Vec<PatchEntry>,
    /// The circumstances of the build.
    #[serde(skip)]
    pub built: Built,
}

impl Manifest {
    /// The total length of all files, without the manifest itself.
    pub fn files_bytes(&self) -> u64 {
        // `check` bounds each of them, and there are too few of them to overflow.
        self.files().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// The total length of all data files.
    pub fn data_bytes(&self) -> u64 {
        self.chunks
            .iter()
            .map(|chunk| chunk.data.bytes)
            .fold(0, u64::saturating_add)
    }

    /// The total length of all index files, which should be in memory.
    pub fn index_bytes(&self) -> u64 {
        self.chunks
            .iter()
            .map(|chunk| chunk.index.bytes)
            .fold(0, u64::saturating_add)
    }

    /// All files, in the order in which they are fetched: data first and indexes last, so that the indexes are the most
    /// recent pages in memory.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        let others = self.chunks.iter().flat_map(ChunkEntry::files_but_index);
        let indexes = self.chunks.iter().map(|chunk| &chunk.index);
        others.chain(&self.dictionary).chain(indexes)
    }

    /// All files of the place where the version was built: patches, too.
    pub fn files_with_patches(&self) -> impl Iterator<Item = &FileEntry> {
        self.files().chain(self.patches.iter().map(|patch| &patch.patch))
    }

    /// The chunks of some partitions, in order.
    pub fn chunks_of(&self, partitions: &PartitionSet) -> impl Iterator<Item = &ChunkEntry> {
        self.chunks.iter().filter(|chunk| partitions.contains(chunk.partition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FormatError;
    use crate::names::{DATA_KIND, INDEX_KIND, PATCH_KIND};

    fn manifest() -> Manifest {
        let partition = PartitionId::new(1);
        let checksum = Checksum::of(b"");
        let file = |kind| FurtherFile::new(partition, 0, kind, 4096, checksum).file;
        Manifest {
            format_version: crate::FORMAT_VERSION,
            store: "pymk".parse().unwrap(),
            partitions: 4.try_into().unwrap(),
            key_type: KeyType::default(),
            value_type: ValueType::Bytes,
            value_schemas: vec![],
            compression: Compression::None,
            dictionary: None,
            records: 5,
            base: Some(Checksum::of(b"base")),
            cut_unix_ms: Some(1_700_000_000_000),
            undated_unix_ms: Some(1_600_000_000_000),
            chunks: vec![ChunkEntry {
                partition,
                chunk: 0,
                records: 5,
                data: file(DATA_KIND),
                index: file(INDEX_KIND),
                further: ["inverted", "inverted-2"]
                    .map(|kind| FurtherFile::new(partition, 0, kind, 7, checksum))
                    .into(),
            }],
            schema: Schema {
                key: Column {
                    name: "member".into(),
                    r#type: "int64".into(),
                },
                values: vec![],
                encoding: ValueEncoding::Json,
            },
            patches: vec![PatchEntry {
                partition,
                chunk: 0,
                base: FurtherFile::new(partition, 0, DATA_KIND, 4000, Checksum::of(b"base")).file,
                patch: file(PATCH_KIND),
            }],
            built: Built {
                created_unix_ms: 1,
                built_by: "test".into(),
            },
        }
    }

    /// The file of a manifest with a text replaced and a correct checksum.
    fn replaced(from: &str, to: &str) -> Vec<u8> {
        let text = String::from_utf8(manifest().to_bytes()).unwrap();
        let (inner, outer) = text.split_once(",\n\"checksum\"").unwrap();
        let inner = inner.strip_prefix("{\"manifest\": ").unwrap();
        assert!(inner.contains(from), "{inner}");
        let (inner, before) = (inner.replace(from, to), Checksum::of(inner.as_bytes()));
        let outer = outer.replace(&before.to_string(), &Checksum::of(inner.as_bytes()).to_string());
        format!("{{\"manifest\": {inner},\n\"checksum\"{outer}").into_bytes()
    }

    #[test]
    fn a_manifest_round_trips() {
        assert_eq!(Manifest::from_bytes(&manifest().to_bytes()).unwrap(), manifest());
        assert_eq!(Manifest::from_bytes(&replaced("pymk", "pymk")).unwrap(), manifest());
    }

    #[test]
    fn types_with_schemas_have_them_in_the_order_of_their_ids() {
        let with = |value_type, ids: &[u16]| {
            let schema = |&id: &u16| ValueSchema {
                id,
                text: "\"long\"".into(),
                message: None,
            };
            let changed = Manifest {
                key_type: "(string,integer)".parse().unwrap(),
                value_type,
                value_schemas: ids.iter().map(schema).collect(),
                ..manifest()
            };
            (Manifest::from_bytes(&changed.to_bytes()), changed)
        };
        let (read, written) = with(ValueType::Avro, &[1, 3]);
        assert_eq!(read.unwrap(), written);
        for (value_type, ids) in [
            (ValueType::Avro, &[][..]),
            (ValueType::Avro, &[0]),
            (ValueType::Avro, &[2, 1]),
            (ValueType::Avro, &[1, 1]),
            (ValueType::Json, &[1]),
        ] {
            assert!(with(value_type, ids).0.unwrap_err().is_corruption(), "{ids:?}");
        }
    }

    #[test]
    fn any_flipped_bit_in_the_identified_part_is_an_error() {
        let bytes = manifest().to_bytes();
        let identity = Manifest::identity(&bytes).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                if let Ok((read, found)) = Manifest::identified(&flipped) {
                    let (built, patches) = (manifest().built, manifest().patches);
                    let read = Manifest { built, patches, ..read };
                    assert_eq!(read, manifest(), "byte {at} bit {bit}");
                    assert_eq!(found, identity);
                }
            }
        }
    }

    #[test]
    fn builds_of_the_same_input_have_the_same_identity() {
        let later = Manifest {
            built: Built {
                created_unix_ms: 2,
                built_by: "another".into(),
            },
            ..manifest()
        };
        let identity = |manifest: &Manifest| Manifest::identity(&manifest.to_bytes()).unwrap();
        assert_ne!(later.to_bytes(), manifest().to_bytes());
        assert_eq!(identity(&later), identity(&manifest()));
        let without_patches = Manifest {
            patches: vec![],
            ..manifest()
        };
        assert_eq!(identity(&without_patches), identity(&manifest()));
        let other = Manifest {
            cut_unix_ms: None,
            ..manifest()
        };
        assert_ne!(identity(&other), identity(&manifest()));
    }

    #[test]
    fn versions_of_a_later_format_still_have_an_identity() {
        let later = replaced("\"format_version\": 2", "\"format_version\": 9");
        let error = Manifest::from_bytes(&later).unwrap_err().to_string();
        assert!(
            error.contains("format version 9") && error.contains("reads versions 1 to 2"),
            "{error}"
        );
        assert_ne!(
            Manifest::identity(&later).unwrap(),
            Manifest::identity(&manifest().to_bytes()).unwrap()
        );
    }

    #[test]
    fn an_unknown_type_of_values_is_refused_by_name() {
        let unknown = replaced(
            "\"value_type\": \"bytes\"",
            "\"value_type\": \"tree\", \"tree_depth\": 3",
        );
        let error = Manifest::from_bytes(&unknown).unwrap_err();
        assert!(
            matches!(&error, FormatError::UnknownValueType { found } if found == "tree"),
            "{error}"
        );
        assert!(
            error.to_string().contains("\"tree\"") && !error.is_corruption(),
            "{error}"
        );
        for &known in ValueType::ALL {
            let name = serde_json::to_value(known).unwrap();
            assert_eq!(name, known.name());
        }
    }

    #[test]
    fn invalid_manifests_are_refused() {
        let refused = |change: &dyn Fn(&mut Manifest)| {
            let mut changed = manifest();
            change(&mut changed);
            let error = Manifest::from_bytes(&changed.to_bytes()).unwrap_err();
            assert!(error.is_corruption(), "{error}");
        };
        let further = |kind: &str| FurtherFile::new(PartitionId::new(1), 0, kind, 7, Checksum::of(b""));
        refused(&|manifest| manifest.chunks[0].data.name = "../../etc/passwd".into());
        refused(&|manifest| manifest.chunks[0].data.name = "p00001-c0000.data".into());
        refused(&|manifest| manifest.chunks[0].data.checksum = Checksum::of(b"other"));
        refused(&|manifest| manifest.chunks[0].further[0].file.checksum = Checksum::of(b"other"));
        refused(&|manifest| manifest.chunks[0].further.swap(0, 1));
        refused(&|manifest| manifest.chunks[0].further[1] = further("inverted"));
        refused(&|manifest| manifest.patches[0].patch.name = "../../etc/passwd".into());
        refused(&|manifest| manifest.patches[0].base.name = manifest.chunks[0].index.name.clone());
        refused(&|manifest| manifest.patches.push(manifest.patches[0].clone()));
        refused(&|manifest| manifest.patches[0].chunk = 1);
        for kind in [
            "",
            "data",
            "index",
            "patch",
            "part",
            "link",
            "a/b",
            "..",
            "A",
            &"a".repeat(33),
        ] {
            refused(&|manifest| manifest.chunks[0].further = vec![further(kind)]);
        }
        // Microseconds.
        refused(&|manifest| manifest.cut_unix_ms = Some(1_700_000_000_000_000));
        refused(&|manifest| manifest.records = 6);
    }
}
