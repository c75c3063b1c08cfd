//! Schemas of a store's values are registered, and never changed.

use fondaco_model::StoreName;
use fondaco_model::cluster::{ClusterView, SchemaRecord};
use fondaco_schema::Schema;

use super::{OperatorError, store};
use crate::change::{Change, RecordPath, Write};

/// How many schemas a store may have: each process knows all of them.
pub const SCHEMAS_MAX: usize = 1000;

/// How many bytes the texts of a store's schemas may have together.
pub const SCHEMAS_BYTES_MAX: usize = 4 << 20;

/// The outcome of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The schema.
    pub record: SchemaRecord,
    /// The change that registers it; `None` if the store has it.
    pub change: Option<Change>,
}

/// Registers a schema, unless the store has one that means the same. It is compared with all that the store has, since values of
/// each may still be read.
///
/// # Errors
/// No such store, or its values have no schemas of this language; the schema clashes with one of the store; or there are too many.
pub fn register_schema(
    view: &ClusterView,
    name: &StoreName,
    schema: &Schema,
    now_unix_ms: u64,
) -> Result<Registered, OperatorError> {
    let before = store(view, name)?;
    let definition = &before.record.definition;
    let (expected, found) = (definition.value_type, schema.value_type());
    if expected != found {
        return Err(OperatorError::WrongSchemaType {
            store: name.clone(),
            expected,
            found,
        });
    }
    let records: Vec<&SchemaRecord> = view.schemas_of(before.record.id).collect();
    let former = records.iter().map(|record| parsed(name, record));
    let former: Vec<Schema> = former.collect::<Result<_, _>>()?;
    let is_same = |known: &Schema| known.canonical() == schema.canonical();
    if let Some(at) = former.iter().position(is_same) {
        let record = records[at].clone();
        return Ok(Registered { record, change: None });
    }
    let text = schema.to_text();
    let bytes = records.iter().map(|record| record.text.len()).sum::<usize>() + text.len();
    if records.len() >= SCHEMAS_MAX || bytes > SCHEMAS_BYTES_MAX {
        return Err(OperatorError::TooManySchemas { store: name.clone() });
    }
    let mode = definition.compatibility;
    let clashes = fondaco_schema::check(schema, &former.iter().collect::<Vec<_>>(), mode)
        .err()
        .unwrap_or_default();
    if !clashes.is_empty() {
        let clash = |clash: &fondaco_schema::FormerClash| format!("schema {}: {clash}", records[clash.old].id);
        return Err(OperatorError::SchemaClash {
            store: name.clone(),
            mode,
            clashes: clashes.iter().map(clash).collect(),
        });
    }
    let record = SchemaRecord {
        store: before.record.id,
        id: records.last().map_or(1, |last| last.id + 1),
        value_type: found,
        text,
        message: schema.message().map(str::to_owned),
        registered_unix_ms: now_unix_ms,
    };
    let mut change = Change::of([Write::of(None, record.clone())]);
    // The store may have been dropped, or its mode changed.
    let path = RecordPath::Store(name.clone());
    change.unchanged.push((path, before.revision));
    Ok(Registered {
        record,
        change: Some(change),
    })
}

/// A registered schema.
fn parsed(store: &StoreName, record: &SchemaRecord) -> Result<Schema, OperatorError> {
    Schema::of_record(record).map_err(|error| OperatorError::DamagedSchema {
        store: store.clone(),
        id: record.id,
        reason: error.to_string(),
    })
}

/// Deletes all schemas of the store with this number.
pub(super) fn deleted_schemas(view: &ClusterView, store: u16) -> Vec<Write> {
    let own = view
        .schemas_of(store)
        .filter_map(|record| view.schemas.get(&record.key()));
    own.map(|schema| Write::delete(RecordPath::Schema(schema.record.key()), schema.revision))
        .collect()
}
