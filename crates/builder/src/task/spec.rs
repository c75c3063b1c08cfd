//! The description of a build that all its tasks get: a JSON document.

use std::path::PathBuf;
use std::str::FromStr;

use bytes::Bytes;
use fondaco_format::{Compression, Schema, ValueSchema};
use fondaco_model::{KeyType, PartitionCount, StoreName, ValueType};
use fondaco_schema::Schemas;
use fondaco_storage::Location;
use serde::{Deserialize, Serialize};

use super::error::TaskError;
use crate::build::check;
use crate::declaration::Declaration;
use crate::error::BuildError;
use crate::increment::Base;
use crate::options::{BuildOptions, NonFinite, Numbers, OnDuplicate, ReadOptions, ValueSelection};

/// The default memory of a task, in bytes.
const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;

/// The longest dictionary, in bytes; trained ones have at most 110 KiB.
const DICTIONARY_BYTES_MAX: u64 = 16 << 20;

/// A build by tasks. Members that are left out have the defaults of `fondaco build`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The store.
    pub store: String,
    /// The number of partitions of the cluster.
    pub partitions: u32,
    /// The location of the version: a path or a URL that every task can write to.
    pub output: String,
    /// The columns of the key.
    pub key: Vec<String>,
    /// The column that is the value.
    #[serde(default)]
    pub value: Option<String>,
    /// The columns that make up the value, as a JSON object; if there is no `value` either, all except the key.
    #[serde(default)]
    pub values: Option<Vec<String>>,
    /// The columns that a value of all columns lacks.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// How decimals and 64-bit integers are written in JSON: `number` or `text`.
    #[serde(default)]
    pub numbers: Option<String>,
    /// The form of NaN and infinity: `fail`, `null` or `text`.
    #[serde(default)]
    pub non_finite: Option<String>,
    /// The type of values: any but `graph`.
    #[serde(default)]
    pub value_type: ValueType,
    /// The type of keys.
    #[serde(default)]
    pub key_type: KeyType,
    /// Of types of values with schemas: those of the store, as its manifests have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value_schemas: Vec<ValueSchema>,
    /// The id of the one that rows become records of; `None`: the last.
    #[serde(default)]
    pub schema_id: Option<u16>,
    /// The compression of values.
    #[serde(default)]
    pub compression: Compression,
    /// A path or a URL of the dictionary of zstd; without one, values are compressed without a dictionary.
    #[serde(default)]
    pub dictionary: Option<String>,
    /// How large a chunk may be.
    #[serde(default)]
    pub chunk_bytes: Option<u64>,
    /// The treatment of rows with the same key: `fail`, or keep the `first` or the `last` by `order_by`.
    #[serde(default)]
    pub on_duplicate: Option<String>,
    /// The column that orders rows with the same key.
    #[serde(default)]
    pub order_by: Option<String>,
    /// A column of booleans: rows in which it is true delete their keys.
    #[serde(default)]
    pub delete: Option<String>,
    /// The location of the version that the rows change.
    #[serde(default)]
    pub base: Option<String>,
    /// The version contains all events of streams up to this time.
    #[serde(default)]
    pub cut_unix_ms: Option<u64>,
    /// Whether a version without records is no error.
    #[serde(default)]
    pub allow_empty: bool,
    /// The memory of a task, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The directory for temporary files.
    #[serde(default)]
    pub temporary: Option<PathBuf>,
    /// The columns as they are described in the manifest; [`plan`](super::plan()) adds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
}

impl Spec {
    /// Parses a document.
    ///
    /// # Errors
    /// It is no JSON of this form, or has an unknown member.
    pub fn from_json(text: &str) -> Result<Self, BuildError> {
        serde_json::from_str(text).map_err(|error| TaskError::spec(error.to_string()).into())
    }

    /// The location of the version.
    pub(super) fn location(&self) -> Result<Location, BuildError> {
        self.output.parse().map_err(|error| refused("output", &error))
    }

    /// The options of the build, checked.
    pub(super) fn options(&self) -> Result<BuildOptions, BuildError> {
        let store: StoreName = self.store.parse().map_err(|error| refused("store", &error))?;
        let partitions = PartitionCount::try_from(self.partitions).map_err(|error| refused("partitions", &error))?;
        let value = match (&self.value, &self.values) {
            (Some(_), Some(_)) => return Err(TaskError::spec("it has \"value\" and \"values\": leave out one").into()),
            (Some(column), None) => ValueSelection::Column(column.clone()),
            (None, Some(columns)) => ValueSelection::Columns(columns.clone()),
            (None, None) => ValueSelection::AllOthers,
        };
        let options = BuildOptions {
            key: self.key.clone(),
            reading: ReadOptions {
                exclude: self.exclude.clone(),
                csv_columns: None,
                numbers: choice::<Numbers>("numbers", &self.numbers)?,
                non_finite: choice::<NonFinite>("non_finite", &self.non_finite)?,
                allow_drift: false,
            },
            declared: Declaration {
                value_type: self.value_type,
                key_type: self.key_type.clone(),
                schemas: Schemas::of_texts(self.value_type, self.value_schemas.iter().map(ValueSchema::parts))
                    .map_err(|error| refused("value_schemas", &error))?,
                schema_id: self.schema_id,
            },
            value,
            on_duplicate: choice::<OnDuplicate>("on_duplicate", &self.on_duplicate)?,
            allow_empty: self.allow_empty,
            memory_bytes: self.memory_bytes.unwrap_or(MEMORY_BYTES_DEFAULT),
            cut_unix_ms: self.cut_unix_ms,
            compression: self.compression,
            chunk_bytes_target: self.chunk_bytes.unwrap_or(BuildOptions::CHUNK_BYTES_TARGET_DEFAULT),
            dictionary: self.dictionary.as_deref().map(read_dictionary).transpose()?,
            ..BuildOptions::new(
                store,
                partitions,
                Vec::new(),
                "",
                self.location()?,
                self.temporary.clone().unwrap_or_else(std::env::temp_dir),
            )
        };
        if options.on_duplicate != OnDuplicate::Fail && self.order_by.is_none() {
            let reason = "\"on_duplicate\" needs \"order_by\": the rows of an engine have no order of their own";
            return Err(TaskError::spec(reason).into());
        }
        if self.delete.is_some() && self.base.is_none() {
            let reason = "\"delete\" needs \"base\": only in an earlier version there are keys to delete";
            return Err(TaskError::spec(reason).into());
        }
        check(&options)?;
        Ok(options)
    }

    /// The version that the rows change, and the options with what stays as it is in that version.
    pub(super) fn with_base(&self, options: BuildOptions) -> Result<(BuildOptions, Option<Base>), BuildError> {
        let Some(base) = &self.base else {
            return Ok((options, None));
        };
        let location: Location = base.parse().map_err(|error| refused("base", &error))?;
        let base = Base::open(&location, &options.store, false)?;
        if base.manifest.partitions != options.partitions {
            let reason = format!(
                "\"partitions\" is {}, and the base has {}: give the same number",
                options.partitions, base.manifest.partitions
            );
            return Err(TaskError::spec(reason).into());
        }
        let options = BuildOptions {
            declared: base.declaration(&options.declared)?,
            compression: base.manifest.compression,
            dictionary: base.dictionary.clone().map(Bytes::from),
            ..options
        };
        check(&options)?;
        Ok((options, Some(base)))
    }
}

fn refused(member: &str, error: &dyn std::fmt::Display) -> BuildError {
    TaskError::spec(format!("{member:?}: {error}")).into()
}

fn choice<T: FromStr<Err = impl std::fmt::Display> + Default>(
    member: &str,
    text: &Option<String>,
) -> Result<T, BuildError> {
    match text {
        Some(text) => text.parse().map_err(|error| refused(member, &error)),
        None => Ok(T::default()),
    }
}

/// Reads the dictionary of a version.
///
/// # Errors
/// It cannot be read.
pub fn read_dictionary(place: &str) -> Result<Bytes, BuildError> {
    let (directory, name) = match place.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((directory, name)) => (directory, name),
        None => (".", place),
    };
    let directory: Location = directory.parse()?;
    Ok(directory.read_whole(name, DICTIONARY_BYTES_MAX)?.into())
}
