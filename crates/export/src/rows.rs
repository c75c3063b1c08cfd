//! Rows as Arrow batches.

use arrow_array::RecordBatch;
use fondaco_model::{StoreKind, StoreName};
use fondaco_push::{Job, VersionCopy};
use fondaco_typed::{Decoder, TypedSchema};

use crate::error::ExportError;
use crate::selection::{Selection, Source, columns, columns_of_store, store};
use crate::store_records::StoreRecords;
use crate::version_records::VersionRecords;

/// The most rows of a batch, but for the rest of a bucket.
pub(crate) const BATCH_ROWS: usize = 8192;

/// The bytes of keys and values after which a batch is complete.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// Records that become a batch.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) keys: Vec<Vec<u8>>,
    values: Vec<Option<Vec<u8>>>,
    pub(crate) bytes: usize,
}

impl Batch {
    pub(crate) fn add(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.keys.push(key);
        self.values.push(Some(value));
    }
}

enum Records {
    Version(Box<VersionRecords>),
    Store(Box<StoreRecords>),
}

/// The rows of a version or a store, as batches of one schema. After an error there are no more.
pub struct Rows {
    schema: TypedSchema,
    decoder: Decoder,
    records: Option<Records>,
    name: StoreName,
    version: Option<u64>,
    partitions: u32,
    total: Option<u64>,
}

impl Rows {
    /// Finds the rows. A version that is not on this machine is fetched first.
    ///
    /// # Errors
    /// There is no such version, store or partition; or the version cannot be fetched.
    pub fn open(selection: &Selection, job: Job<'_>) -> Result<Self, ExportError> {
        let wanted = selection.partitions.as_ref();
        let (work, mut number) = (&selection.work, None);
        let files = match &selection.source {
            Source::Version(location) => VersionCopy::at(location, wanted, work, job)?,
            Source::Store { name, endpoint } => {
                let resource = store(name, endpoint)?;
                number = resource.current_version;
                if resource.kind != StoreKind::Batch {
                    let schema = columns_of_store(selection, name, endpoint, &resource)?;
                    let partitions = endpoint.client()?.status()?.partitions;
                    selection.check(partitions)?;
                    let records = StoreRecords::new(selection, (name, endpoint), partitions)?;
                    return Ok(Self {
                        decoder: schema.decoder(),
                        schema,
                        records: Some(Records::Store(Box::new(records))),
                        name: name.clone(),
                        version: number,
                        partitions,
                        total: None,
                    });
                }
                VersionCopy::of_current(&endpoint.client()?, endpoint, (name, &resource), wanted, work, job)?
            }
        };
        let records = VersionRecords::new(selection, files)?;
        let manifest = records.version().manifest();
        let schema = selection.columns(manifest);
        Ok(Self {
            decoder: schema.decoder(),
            schema,
            name: manifest.store.clone(),
            version: number,
            partitions: manifest.partitions.get(),
            total: Some(records.total()),
            records: Some(Records::Version(Box::new(records))),
        })
    }

    /// The columns of the rows, and no rows. No version is fetched.
    ///
    /// # Errors
    /// There is no such version or store.
    pub fn none_of(selection: &Selection) -> Result<Self, ExportError> {
        let (name, schema, partitions) = columns(selection)?;
        Ok(Self {
            decoder: schema.decoder(),
            schema,
            records: None,
            name,
            version: None,
            partitions,
            total: Some(0),
        })
    }

    /// The columns.
    pub fn schema(&self) -> &TypedSchema {
        &self.schema
    }

    /// The store.
    pub fn store(&self) -> &StoreName {
        &self.name
    }

    /// The number of the current version of the store, if the rows come from a cluster.
    pub fn version(&self) -> Option<u64> {
        self.version
    }

    /// The number of partitions of the version, or of the cluster if the store has none: a [selection](Selection) may name them.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The number of all rows, if it is known.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, ExportError> {
        let batch = match &mut self.records {
            None => return Ok(None),
            Some(Records::Version(records)) => records.next()?,
            Some(Records::Store(records)) => records.next()?,
        };
        match batch.keys.is_empty() {
            true => Ok(None),
            false => Ok(Some(self.decoder.decode(&batch.keys, &batch.values)?)),
        }
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, ExportError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.read();
        if !matches!(batch, Ok(Some(_))) {
            self.records = None;
        }
        batch.transpose()
    }
}
