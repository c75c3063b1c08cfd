//! The rows to export.

use std::path::PathBuf;

use fondaco_admin::Endpoint;
use fondaco_api::StoreResource;
use fondaco_format::Manifest;
use fondaco_model::{PartitionId, PartitionSet, StoreKind, StoreName};
use fondaco_push::{manifest_at, manifest_of_current};
use fondaco_storage::Location;
use fondaco_typed::TypedSchema;

use crate::error::ExportError;

/// The place that rows are read from.
#[derive(Debug, Clone)]
pub enum Source {
    /// The version at a location.
    Version(Location),
    /// A store of a cluster: its current version, or the records that its events and writes have made.
    Store {
        /// Its name.
        name: StoreName,
        /// A process of the cluster.
        endpoint: Endpoint,
    },
}

/// The rows to export.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The place that they are read from.
    pub source: Source,
    /// Their partitions; `None` for all.
    pub partitions: Option<PartitionSet>,
    /// Whether key and value are exported as they are.
    pub raw: bool,
    /// An existing directory for a version that has to be fetched.
    pub work: PathBuf,
}

impl Selection {
    /// All rows, with their types.
    pub fn all_of(source: Source) -> Self {
        Self {
            source,
            partitions: None,
            raw: false,
            work: std::env::temp_dir(),
        }
    }

    /// The columns of a version.
    pub(crate) fn columns(&self, manifest: &Manifest) -> TypedSchema {
        match self.raw {
            true => TypedSchema::raw(),
            false => TypedSchema::of(&manifest.schema, manifest.value_type),
        }
    }

    /// Refuses partitions that do not exist.
    pub(crate) fn check(&self, partitions: u32) -> Result<(), ExportError> {
        let mut wanted = self.partitions.iter().flat_map(PartitionSet::iter);
        let missing = wanted.find(|partition: &PartitionId| partition.get() >= partitions);
        missing.map_or(Ok(()), |partition| {
            Err(ExportError::WrongOptions(format!(
                "there is no partition {partition}: the partitions are 0 to {}",
                partitions - 1
            )))
        })
    }
}

/// A store of a cluster.
pub(crate) fn store(name: &StoreName, endpoint: &Endpoint) -> Result<StoreResource, ExportError> {
    Ok(endpoint.client()?.get(&format!("/v1/stores/{name}"))?)
}

/// The store, the columns of its rows, and the number of partitions. No record is read, and no file but a manifest.
pub(crate) fn columns(selection: &Selection) -> Result<(StoreName, TypedSchema, u32), ExportError> {
    match &selection.source {
        Source::Version(location) => {
            let manifest = manifest_at(location)?;
            let columns = selection.columns(&manifest);
            Ok((manifest.store, columns, manifest.partitions.get()))
        }
        Source::Store { name, endpoint } => {
            let resource = store(name, endpoint)?;
            if resource.kind != StoreKind::Batch {
                let columns = columns_of_store(selection, name, endpoint, &resource)?;
                return Ok((name.clone(), columns, endpoint.client()?.status()?.partitions));
            }
            let manifest = manifest_of_current(&endpoint.client()?, endpoint, (name, &resource))?;
            Ok((name.clone(), selection.columns(&manifest), manifest.partitions.get()))
        }
    }
}

/// The columns of a store that is no batch store. It may have no version, and then its records have no columns.
pub(crate) fn columns_of_store(
    selection: &Selection,
    name: &StoreName,
    endpoint: &Endpoint,
    store: &StoreResource,
) -> Result<TypedSchema, ExportError> {
    let has_version = store.versions.iter().any(|version| version.current);
    if !has_version {
        return Ok(TypedSchema::raw());
    }
    let manifest = manifest_of_current(&endpoint.client()?, endpoint, (name, store))?;
    Ok(selection.columns(&manifest))
}
