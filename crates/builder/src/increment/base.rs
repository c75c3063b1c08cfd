//! The version that an incremental build changes.

use std::io::{self, Read};

use fondaco_format::{
    Checksum, Checksummer, ChunkEntry, FileEntry, FormatError, MANIFEST_FILE, Manifest, Schema, ValueEncoding,
    format_version,
};
use fondaco_model::{StoreName, ValueType};
use fondaco_storage::{FileReader, Location, StorageError};

use crate::declaration::Declaration;
use crate::error::BuildError;
use crate::schema_change::{SchemaChange, is_known};

/// The longest manifest that is read: that of a version with a million chunks has some 500 MiB.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// A complete version.
pub(crate) struct Base {
    pub(crate) dir: Location,
    pub(crate) manifest: Manifest,
    pub(crate) identity: Checksum,
    pub(crate) dictionary: Option<Vec<u8>>,
}

impl Base {
    /// Reads the manifest, and checks that a difference to the version can be built. One with final values may be of a graph.
    pub(crate) fn open(dir: &Location, store: &StoreName, has_final_values: bool) -> Result<Self, BuildError> {
        let refused = |reason: String| Err(BuildError::base(dir, reason));
        let manifest = dir.read_whole(MANIFEST_FILE, MANIFEST_BYTES_MAX);
        let manifest = manifest.map_err(|error| match error {
            StorageError::NotFound { .. } => {
                let path = dir.to_string().into();
                BuildError::base(dir, FormatError::NoManifest { path })
            }
            error => BuildError::base(dir, error),
        })?;
        let (manifest, identity) = Manifest::identified(&manifest).map_err(|error| BuildError::base(dir, error))?;
        if manifest.store != *store {
            return refused(format!("it was built for store {:?}: name that store", manifest.store));
        }
        if manifest.value_type == ValueType::Graph && !has_final_values {
            return refused("it is a graph, whose records depend on each other: build it from all its edges".into());
        }
        if manifest.format_version != format_version() {
            return refused(format!(
                "it has format version {}, and this program writes {}: build it from all records once",
                manifest.format_version,
                format_version()
            ));
        }
        if let Some(further) = manifest.chunks.iter().find_map(|chunk| chunk.further.first()) {
            return refused(format!(
                "its chunks have files of kind {:?}, which are not made again: build it from all records",
                further.kind
            ));
        }
        let mut partitions = manifest.chunks.chunk_by(|a, b| a.partition == b.partition);
        if let Some(chunks) = partitions.find(|chunks| !chunks.len().is_power_of_two()) {
            return refused(format!(
                "partition {} has {} chunks, which is no power of two: build it from all records",
                chunks[0].partition,
                chunks.len()
            ));
        }
        let mut base = Self {
            dir: dir.clone(),
            manifest,
            identity,
            dictionary: None,
        };
        let files = dir.list().map_err(|error| BuildError::base(dir, error))?;
        for file in base.manifest.files() {
            let place = files.binary_search_by(|found| found.name.cmp(&file.name));
            let found = place.map_or(0, |place| files[place].bytes);
            if found != file.bytes {
                let name = &file.name;
                return refused(format!(
                    "{name:?} has {found} bytes, but its manifest says {}: fetch or build it again",
                    file.bytes
                ));
            }
        }
        if let Some(entry) = &base.manifest.dictionary {
            let mut bytes = Vec::new();
            base.read(entry, |reader| reader.read_to_end(&mut bytes).map(drop))?;
            base.dictionary = Some(bytes);
        }
        Ok(base)
    }

    /// The chunks of a partition.
    pub(crate) fn chunks_of(&self, partition: u32) -> &[ChunkEntry] {
        let chunks = &self.manifest.chunks;
        let begin = chunks.partition_point(|chunk| chunk.partition.get() < partition);
        let end = chunks.partition_point(|chunk| chunk.partition.get() <= partition);
        &chunks[begin..end]
    }

    /// Hands over a file, and verifies it.
    pub(crate) fn read<T>(
        &self,
        entry: &FileEntry,
        work: impl FnOnce(&mut Checked) -> io::Result<T>,
    ) -> Result<T, BuildError> {
        let failed = |error: io::Error| BuildError::base(&self.dir, format!("cannot read {:?}: {error}", entry.name));
        let file = self.dir.open(&entry.name, 0);
        let mut reader = Checked {
            file: file.map_err(|error| failed(error.into()))?,
            checksum: Checksummer::new(),
        };
        let result = work(&mut reader).map_err(failed)?;
        io::copy(&mut reader, &mut io::sink()).map_err(failed)?;
        match reader.checksum.finish() == entry.checksum {
            true => Ok(result),
            false => Err(BuildError::base(
                &self.dir,
                format!("{:?} is corrupt: fetch or build the version again", entry.name),
            )),
        }
    }

    /// The declaration of a difference to the version.
    pub(crate) fn declaration(&self, given: &Declaration) -> Result<Declaration, BuildError> {
        let declared = given.on(&self.manifest);
        declared.map_err(|reason| BuildError::base(&self.dir, reason))
    }

    /// Refuses a difference whose values are made in another way than those of the version, or from columns of other types.
    pub(crate) fn check_schema(&self, schema: &Schema) -> Result<(), BuildError> {
        let own = &self.manifest.schema;
        let mut schema = schema.clone();
        // Records do not have the names of the key and of a value that is one column.
        schema.key.name.clone_from(&own.key.name);
        if let (ValueEncoding::Raw, [column], [own]) = (schema.encoding, &mut schema.values[..], &own.values[..]) {
            column.name.clone_from(&own.name);
        }
        let names = |schema: &Schema| {
            schema
                .values
                .iter()
                .map(|column| column.name.clone())
                .collect::<Vec<_>>()
        };
        let changes = match SchemaChange::between(own, &schema, self.manifest.value_type) {
            Some(change) => change.to_string(),
            None if !self.manifest.value_type.has_schemas()
                && is_known(own)
                && is_known(&schema)
                && names(own) != names(&schema) =>
            {
                format!("its columns were in the order {}", names(own).join(", "))
            }
            None => return Ok(()),
        };
        Err(BuildError::base(
            &self.dir,
            format!("the difference has another schema: {changes}; make its values alike, or build from all records"),
        ))
    }
}

/// A file that is read, and its checksum so far.
pub(crate) struct Checked {
    file: FileReader,
    checksum: Checksummer,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.checksum.update(&buffer[..count]);
        Ok(count)
    }
}
