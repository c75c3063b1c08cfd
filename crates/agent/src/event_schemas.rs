//! Schemas that events name and this node does not know yet.

use std::sync::{Arc, Weak};

use fondaco_cluster::Operator;
use fondaco_model::StoreName;
use fondaco_model::cluster::StoreRecord;
use fondaco_schema::{Schema, Schemas};
use fondaco_stream::SchemaFinder;

/// Finds the schemas of one store.
pub(super) struct StoreSchemaFinder {
    /// Overlays may be in use for longer than the session with the coordination service should last.
    operator: Weak<Operator>,
    store: StoreName,
    id: u16,
    created_unix_ms: u64,
}

impl StoreSchemaFinder {
    pub(super) fn new(operator: &Arc<Operator>, store: &StoreRecord) -> Self {
        Self {
            operator: Arc::downgrade(operator),
            store: store.definition.name.clone(),
            id: store.id,
            created_unix_ms: store.created_unix_ms,
        }
    }
}

impl SchemaFinder for StoreSchemaFinder {
    fn present(&self) -> Result<Arc<Schemas>, String> {
        let operator = self.operator.upgrade().ok_or("the node ends")?;
        let (store, records) = operator
            .present_schemas(&self.store)
            .map_err(|error| error.to_string())?;
        if (store.id, store.created_unix_ms) != (self.id, self.created_unix_ms) {
            return Err(format!("store {:?} was dropped", self.store));
        }
        let parsed = records.iter().map(|record| {
            let schema = Schema::of_record(record);
            let schema = schema.map_err(|error| format!("schema {} cannot be used: {error}", record.id))?;
            Ok((record.id, schema))
        });
        Ok(Arc::new(parsed.collect::<Result<_, String>>()?))
    }
}
