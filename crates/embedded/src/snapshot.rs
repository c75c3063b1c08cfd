//! One version, for as long as a caller wants it.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use fondaco_format::{Checksum, FormatError, Manifest, Schema, Value, ValueSchema, Version};
use fondaco_model::{PartitionId, PartitionSet, ValueType, VersionNumber};
use fondaco_schema::{SchemaError, Schemas, key_of_json, value_to_json};

use crate::error::EmbeddedError;
use crate::scan::Scan;
use crate::values::Values;

/// An open version, with its number in the cluster.
pub(crate) struct Open {
    pub(crate) version: Version,
    pub(crate) number: Option<VersionNumber>,
    /// The schemas of its values, parsed when they are first needed.
    schemas: OnceLock<Result<Schemas, SchemaError>>,
}

/// Opens a version. A program has seldom raised its limit of open files; if it is too low, this does.
pub(crate) fn open_version(dir: &Path) -> Result<Version, FormatError> {
    match Version::open(dir) {
        Err(FormatError::TooManyOpenFiles { .. }) => {
            fondaco_os::process::raise_open_files_limit();
            Version::open(dir)
        }
        opened => opened,
    }
}

impl Open {
    /// An open version, unless it is one of a graph.
    pub(crate) fn new(version: Version, number: Option<VersionNumber>) -> Result<Self, EmbeddedError> {
        match version.manifest().value_type {
            ValueType::Graph => Err(EmbeddedError::Graph {
                path: version.dir().to_owned(),
                store: version.manifest().store.clone(),
            }),
            _ => Ok(Self {
                version,
                number,
                schemas: OnceLock::new(),
            }),
        }
    }
}

/// One version of a store: all calls see the same data, whatever the cluster swaps in meanwhile. Its files stay open, and
/// use the disk, until it is dropped.
#[derive(Clone)]
pub struct Snapshot(Arc<Open>);

impl Snapshot {
    pub(crate) fn new(open: Arc<Open>) -> Self {
        Self(open)
    }

    /// The value of a key, borrowed from the mapped file where it is not compressed. Call [`Value::is_intact`] after the
    /// last use of its bytes: if the disk failed meanwhile, they are worthless.
    ///
    /// # Errors
    /// A damaged file, or a partition that is not held.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>, EmbeddedError> {
        Ok(self.0.version.get(key.as_ref())?)
    }

    /// A copy of the value of a key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_owned(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, EmbeddedError> {
        Ok(self.0.version.get_owned(key.as_ref())?)
    }

    /// The values of many keys: as [`Reader::get_many`](crate::Reader::get_many).
    ///
    /// # Errors
    /// As [`get`](Self::get), for any of the keys.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Values, EmbeddedError> {
        Ok(Values::read(&self.0.version, keys)?)
    }

    /// The records of some partitions, piece by piece; `None` for all partitions that are held.
    ///
    /// # Errors
    /// One of the partitions is not held, or the version does not have it.
    pub fn scan(&self, partitions: Option<&PartitionSet>) -> Result<Scan, EmbeddedError> {
        let version = &self.0.version;
        let partitions: Vec<PartitionId> = match partitions {
            Some(some) => some.iter().collect(),
            None => version.held().collect(),
        };
        let count = version.manifest().partitions;
        for &partition in &partitions {
            if partition.get() >= count.get() {
                return Err(EmbeddedError::Format(FormatError::NoPartition {
                    partition,
                    partitions: count,
                    path: version.dir().to_owned(),
                }));
            }
            if !version.holds(partition) {
                return Err(EmbeddedError::Format(FormatError::NotHeld { partition }));
            }
        }
        Ok(Scan::new(Arc::clone(&self.0), partitions))
    }

    /// A value of this version as JSON, by the type that its store declares: records by their schema, which is in the manifest. `None`
    /// for bytes and sets of ids, which have no JSON.
    ///
    /// # Errors
    /// The bytes are no such value.
    pub fn decode(&self, value: &[u8]) -> Result<Option<serde_json::Value>, EmbeddedError> {
        let value_type = self.manifest().value_type;
        if !value_type.has_schemas() {
            return Ok(value_to_json(value_type, value)?);
        }
        let parse = || {
            let texts = self.manifest().value_schemas.iter().map(ValueSchema::parts);
            Schemas::of_texts(value_type, texts)
        };
        let schemas = self.0.schemas.get_or_init(parse).as_ref().map_err(SchemaError::clone)?;
        Ok(Some(schemas.decode(value)?.1))
    }

    /// The key with this JSON, by the type of keys that the store declares: of a tuple a list, of bytes base64.
    ///
    /// # Errors
    /// The JSON is no such key.
    pub fn key(&self, json: &serde_json::Value) -> Result<Vec<u8>, EmbeddedError> {
        Ok(key_of_json(&self.manifest().key_type, json)?)
    }

    /// The number of the version in the cluster; `None` for a directory that was opened by itself.
    pub fn version(&self) -> Option<VersionNumber> {
        self.0.number
    }

    /// The checksum that identifies the version.
    pub fn checksum(&self) -> Checksum {
        self.0.version.identity()
    }

    /// Its manifest: counts, sizes, partitions, the type of its values.
    pub fn manifest(&self) -> &Manifest {
        self.0.version.manifest()
    }

    /// The columns that it was built from.
    pub fn schema(&self) -> &Schema {
        &self.manifest().schema
    }

    /// The partitions that are held.
    pub fn partitions(&self) -> PartitionSet {
        self.0.version.held().collect()
    }

    /// The number of records in the partitions that are held.
    pub fn records(&self) -> u64 {
        self.0.version.records()
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.0.version.dir()
    }
}
