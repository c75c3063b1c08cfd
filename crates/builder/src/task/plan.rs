//! The checks before the first task, by the program that starts all of them.

use std::io::Read;
use std::path::PathBuf;

use super::error::TaskError;
use super::spec::Spec;
use super::{ROWS, encode};
use crate::build::check_output;
use crate::error::BuildError;
use crate::input::BatchStream;

/// Checks a build, and completes its description for the tasks. The input is a stream of Arrow IPC with the schema of the
/// rows; batches are not read.
///
/// # Errors
/// A column is missing or has an unsuitable type, the output is in use, or the base is unsuitable.
pub fn plan(spec: &Spec, schema: impl Read) -> Result<Spec, BuildError> {
    let (options, base) = spec.with_base(spec.options()?)?;
    check_output(&options)?;
    let stream = BatchStream::open(schema).map_err(TaskError::stream)?;
    let paths = [PathBuf::from(ROWS)];
    let rows = encode::rows(spec, &options, &paths, &stream.schema())?;
    encode::order_of(spec, &stream.schema())?;
    if let Some(base) = &base {
        base.check_schema(&rows.stored)?;
    }
    Ok(Spec {
        value_type: options.declared.value_type,
        key_type: options.declared.key_type.clone(),
        value_schemas: options.declared.value_schemas(&options.declared.written_ids()),
        schema_id: options.declared.written_ids().first().copied(),
        compression: options.compression,
        numbers: Some(spec.numbers.clone().unwrap_or_else(|| "number".to_owned())),
        non_finite: Some(spec.non_finite.clone().unwrap_or_else(|| "fail".to_owned())),
        on_duplicate: Some(options.on_duplicate.to_string()),
        chunk_bytes: Some(options.chunk_bytes_target),
        memory_bytes: Some(options.memory_bytes),
        // The manifest has the columns of the base.
        schema: Some(base.map_or(rows.stored, |base| base.manifest.schema)),
        ..spec.clone()
    })
}
