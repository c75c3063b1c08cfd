//! One version, for as long as a caller wants it.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fondaco_format::{Checksum, FormatError, Manifest, Schema, ValueSchema, Version};
use fondaco_model::{PartitionId, PartitionSet, SlotPrefix, ValueType, VersionNumber};
use fondaco_schema::{SchemaError, Schemas, key_of_json, value_to_json};
use fondaco_stream::Found;

use crate::error::EmbeddedError;
use crate::events::{Layer, ReadStream, StreamOf, Streams};
use crate::follow::State;
use crate::scan::Scan;
use crate::values::Values;

/// An open version, with its number in the cluster.
pub(crate) struct Open {
    pub(crate) version: Arc<Version>,
    pub(crate) number: Option<VersionNumber>,
    /// The events on top of it, if its store is hybrid.
    pub(crate) layer: Option<Arc<Layer>>,
    /// Whether it has all partitions.
    is_whole: bool,
    slots: SlotPrefix,
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
                number,
                layer: None,
                is_whole: version.held().count() == version.manifest().partitions.get() as usize,
                slots: SlotPrefix::of(&version.manifest().store),
                version: Arc::new(version),
                schemas: OnceLock::new(),
            }),
        }
    }

    /// With the events of the stream on top of it, if its store is hybrid.
    pub(crate) fn with_events(
        mut self,
        streams: &Streams,
        stream: Option<&StreamOf>,
        store_created_unix_ms: u64,
    ) -> Result<Self, EmbeddedError> {
        if let (Some(stream), Some(number)) = (stream, self.number) {
            self.layer = Some(streams.layer(&ReadStream {
                version: &self.version,
                number,
                store_created_unix_ms,
                stream,
            })?);
        }
        Ok(self)
    }

    /// Whether it answers for all partitions that it holds: it has read their streams.
    pub(crate) fn answers(&self) -> bool {
        self.layer.as_ref().is_none_or(|layer| layer.answers())
    }

    /// Whether it answers, and has read its stream as far as the store demands of a version that begins to answer.
    pub(crate) fn has_caught_up(&self, stream: Option<&StreamOf>) -> bool {
        let is_near = |(layer, stream): (&Arc<Layer>, &StreamOf)| layer.has_caught_up(&stream.settings);
        self.answers() && self.layer.as_ref().zip(stream).is_none_or(is_near)
    }

    /// The state of a reader that has it, and should.
    pub(crate) fn state(&self) -> State {
        match &self.layer {
            Some(layer) if !layer.answers() => State::CatchingUp,
            Some(layer) if layer.lacks_events() => State::EventsLost,
            _ => State::Current,
        }
    }

    /// Whether it lacks events that the topic had deleted before they were read.
    pub(crate) fn lacks_events(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| layer.lacks_events())
    }

    /// Whether it answers for a key.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        let partition = || self.version.manifest().partitions.partition_of(self.slots.slot(key));
        (self.is_whole || self.version.holds(partition()))
            && self.layer.as_ref().is_none_or(|layer| layer.overlay().answers(key))
    }

    /// Why a key is not answered for: its partition is not here, or has yet to read its stream.
    pub(crate) fn behind(&self, key: &[u8]) -> EmbeddedError {
        let partition = self.version.manifest().partitions.partition_of(self.slots.slot(key));
        match self.version.holds(partition) {
            true => self.behind_stream(),
            false => FormatError::NotHeld { partition }.into(),
        }
    }

    fn behind_stream(&self) -> EmbeddedError {
        EmbeddedError::Behind {
            store: self.version.manifest().store.clone(),
            version: self.number.map_or(0, VersionNumber::get),
        }
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EmbeddedError> {
        if let Some(layer) = &self.layer {
            match layer.find(key)? {
                Found::Value(value) => return Ok(Some(value.into())),
                Found::Deleted => return Ok(None),
                Found::Nothing => {}
                Found::Behind | Found::Unknown => return Err(self.behind(key)),
            }
        }
        Ok(self.version.get_owned(key)?)
    }
}

/// A value of a snapshot: in a mapped file of the version, or of an event.
#[derive(Debug, Clone)]
pub enum Value<'v> {
    /// Of the version.
    Stored(fondaco_format::Value<'v>),
    /// Of an event on top of it.
    Event(Bytes),
}

impl Value<'_> {
    /// Whether all bytes read of it so far are the verified ones. Call this after the last use of the bytes: a page of
    /// a mapped file may become unreadable at any time, and is zeros then. If this returns false, the bytes are
    /// worthless, and the key has to be looked up again.
    #[inline]
    pub fn is_intact(&self) -> bool {
        match self {
            Self::Stored(value) => value.is_intact(),
            Self::Event(_) => true,
        }
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(value) => value,
            Self::Event(value) => value,
        }
    }
}

/// One version of a store: all calls see the same data, whatever the cluster swaps in meanwhile; of a hybrid store the same version,
/// with the events that were read by the time of each call. Once another version was swapped in, and this one is not kept, no more events
/// are read for it. Its files stay open, and use the disk, until it is dropped.
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
        if let Some(layer) = &self.0.layer {
            match layer.find(key.as_ref())? {
                Found::Value(value) => return Ok(Some(Value::Event(value))),
                Found::Deleted => return Ok(None),
                Found::Nothing => {}
                Found::Behind | Found::Unknown => return Err(self.0.behind(key.as_ref())),
            }
        }
        Ok(self.0.version.get(key.as_ref())?.map(Value::Stored))
    }

    /// A copy of the value of a key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_owned(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, EmbeddedError> {
        self.0.get(key.as_ref())
    }

    /// The values of many keys: as [`Reader::get_many`](crate::Reader::get_many).
    ///
    /// # Errors
    /// As [`get`](Self::get), for any of the keys.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Values, EmbeddedError> {
        Values::read(&self.0, keys)
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
            let layer = self.0.layer.as_ref();
            if layer.is_some_and(|layer| !layer.overlay().ready().contains(partition)) {
                return Err(self.0.behind_stream());
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
        if let Some(layer) = &self.0.layer {
            return Ok(Some(layer.overlay().rules().load().schemas().decode(value)?.1));
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

    /// The number of records of the version in the partitions that are held, without events.
    pub fn records(&self) -> u64 {
        self.0.version.records()
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.0.version.dir()
    }
}
