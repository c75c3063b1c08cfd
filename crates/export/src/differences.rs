//! The keys that differ between two versions of a store, as a Parquet file.
//!
//! Both versions are fetched to this machine, and compared as nodes compare them. The columns are `key`, `change`, which is `gone`, `new` or
//! `changed`, and the values `before` and `after`; keys and values are as they are stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use fondaco_admin::Endpoint;
use fondaco_format::{Compared, Comparison, Version};
use fondaco_model::{PartitionId, StoreName, VersionNumber};
use fondaco_push::{Job, VersionCopy};
use serde::Serialize;

use crate::error::ExportError;
use crate::write::{Format, Table, write_file};

/// Two versions whose differences are exported.
#[derive(Debug, Clone)]
pub struct Differences {
    /// The store.
    pub store: StoreName,
    /// The former version.
    pub from: VersionNumber,
    /// The later version.
    pub to: VersionNumber,
    /// A process of the cluster.
    pub endpoint: Endpoint,
    /// An existing directory for the versions, which are deleted afterwards.
    pub work: PathBuf,
}

/// The result of an export of differences.
#[derive(Debug, Clone, Serialize)]
pub struct DifferenceReport {
    /// The number of keys that differ.
    pub keys: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
}

/// Writes the keys that differ between two versions to a Parquet file, which is replaced if it exists.
///
/// # Errors
/// No node has one of the versions, they cannot be compared, or the file cannot be written; or the job was cancelled.
pub fn export_differences(
    differences: &Differences,
    path: &Path,
    job: Job<'_>,
) -> Result<DifferenceReport, ExportError> {
    let Differences {
        store,
        from,
        to,
        endpoint,
        work,
    } = differences;
    let client = endpoint.client()?;
    let fetch = |version| VersionCopy::of_version(&client, endpoint, store, version, work, job);
    let (before, after) = (fetch(*from)?, fetch(*to)?);
    let (before, after) = (&Version::open(before.dir())?, &Version::open(after.dir())?);
    let field = |name: &str, of: DataType, nullable| Field::new(name, of, nullable);
    let schema = Arc::new(Schema::new(vec![
        field("key", DataType::Binary, false),
        field("change", DataType::Utf8, false),
        field("before", DataType::Binary, true),
        field("after", DataType::Binary, true),
    ]));
    let partitions = after.manifest().partitions;
    let rows = Table {
        schema: Arc::clone(&schema),
        partitions: partitions.get(),
        total: None,
        batches: Batches {
            schema,
            versions: (before, after),
            left: partitions.partitions().collect(),
            running: None,
        },
    };
    let (keys, bytes) = write_file(rows, Format::Parquet, path, job)?;
    Ok(DifferenceReport { keys, bytes })
}

/// The differences, partition by partition.
struct Batches<'v> {
    schema: SchemaRef,
    versions: (&'v Version, &'v Version),
    left: Vec<PartitionId>,
    running: Option<Comparison<'v>>,
}

impl Batches<'_> {
    /// The next batch, which may be empty, so that a job without differences can be cancelled, too.
    fn read(&mut self) -> Result<Option<RecordBatch>, ExportError> {
        loop {
            if let Some(running) = &mut self.running {
                if let Some(found) = running.step()? {
                    return batch(&self.schema, &found).map(Some);
                }
                self.running = None;
            }
            let Some(partition) = self.left.pop() else {
                return Ok(None);
            };
            let (before, after) = self.versions;
            self.running = Some(Comparison::new(before, after, partition, 0, false)?);
        }
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<RecordBatch, ExportError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

fn batch(schema: &SchemaRef, found: &[Compared]) -> Result<RecordBatch, ExportError> {
    let changes = found.iter().map(|one| match (&one.before, &one.after) {
        (Some(_), None) => "gone",
        (None, _) => "new",
        (Some(_), Some(_)) => "changed",
    });
    let keys = BinaryArray::from_iter_values(found.iter().map(|one| &one.key));
    let before: BinaryArray = found.iter().map(|one| one.before.as_deref()).collect();
    let after: BinaryArray = found.iter().map(|one| one.after.as_deref()).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(keys),
        Arc::new(StringArray::from_iter_values(changes)),
        Arc::new(before),
        Arc::new(after),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(ExportError::Arrow)
}
