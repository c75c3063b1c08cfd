//! The rows to export.

use std::path::PathBuf;

use fondaco_admin::Endpoint;
use fondaco_api::{SchemaList, StoreResource};
use fondaco_format::{Column, Manifest, Schema, ValueEncoding, ValueSchema};
use fondaco_model::{KeyPart, KeyType, PartitionId, PartitionSet, StoreKind, StoreName, ValueType};
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
            false => TypedSchema::of_version(manifest),
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

/// The columns of a store that is no batch store. Without a version, those are the parts of its keys, and the fields of its newest
/// schema if it has one.
pub(crate) fn columns_of_store(
    selection: &Selection,
    name: &StoreName,
    endpoint: &Endpoint,
    store: &StoreResource,
) -> Result<TypedSchema, ExportError> {
    let client = endpoint.client()?;
    let (key_type, value_type) = (store.options.key_type.clone().unwrap_or_default(), store.value_type());
    let has_version = store.versions.iter().any(|version| version.current);
    let is_declared =
        !matches!(value_type, ValueType::Bytes | ValueType::Ids | ValueType::Graph) || !key_type.is_bytes();
    if selection.raw || !has_version && !is_declared {
        return Ok(TypedSchema::raw());
    }
    // Its records may have schemas that the version lacks.
    let schemas = match value_type.has_schemas() {
        true => client.get::<SchemaList>(&format!("/v1/stores/{name}/schemas"))?.schemas,
        false => Vec::new(),
    };
    let schemas = schemas.into_iter().map(|schema| ValueSchema {
        id: schema.id,
        text: schema.schema,
        message: schema.message,
    });
    let schemas: Vec<ValueSchema> = schemas.collect();
    let schema = match has_version {
        true => manifest_of_current(&client, endpoint, (name, store))?.schema,
        false => without_input(&key_type, value_type),
    };
    Ok(TypedSchema::of_declared(&schema, (&key_type, value_type), &schemas))
}

/// The columns of keys and values that no input had.
fn without_input(key_type: &KeyType, value_type: ValueType) -> Schema {
    let text = |part: &KeyPart| match part {
        KeyPart::Bytes => "Binary",
        KeyPart::String => "Utf8",
        KeyPart::Integer => "Int64",
    };
    let (name, r#type) = match key_type {
        KeyType::One(part) => ("key".to_owned(), text(part).to_owned()),
        KeyType::Tuple(parts) => {
            let names: Vec<String> = (1..=parts.len()).map(|number| format!("key.{number}")).collect();
            (names.join(","), parts.iter().map(text).collect::<Vec<_>>().join(","))
        }
    };
    let of_value = match value_type {
        ValueType::Json => "json",
        _ => "Binary",
    };
    Schema {
        key: Column { name, r#type },
        values: vec![Column {
            name: "value".to_owned(),
            r#type: of_value.to_owned(),
        }],
        encoding: ValueEncoding::Raw,
    }
}
