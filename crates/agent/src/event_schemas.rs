//! Schemas that events name and this node does not know yet: those of the coordination service.

use std::sync::{Arc, Weak};

use fondaco_cluster::{ClusterError, Operator};
use fondaco_decisions::operator::OperatorError;
use fondaco_model::StoreName;
use fondaco_model::cluster::StoreRecord;
use fondaco_schema::{Schema, Schemas};
use fondaco_stream::{LiveRules, RegistryClient, StoreSchemas, Unfound, live_rules};

/// The rules for the values of a hybrid store, before its schemas are known.
pub(super) fn rules_of(operator: &Weak<Operator>, client: &RegistryClient, store: &StoreRecord) -> LiveRules {
    let stream = store.definition.stream.as_ref();
    let registry = stream.and_then(|stream| stream.registry.clone());
    let schemas = RecordedSchemas {
        operator: Weak::clone(operator),
        store: store.definition.name.clone(),
        id: store.id,
        created_unix_ms: store.created_unix_ms,
    };
    let registry = registry.map(|registry| (client.clone(), registry));
    live_rules(Arc::default(), store.definition.value_type, schemas, registry)
}

/// The schemas of one store, in the records of the cluster.
struct RecordedSchemas {
    /// Overlays may be in use for longer than the session with the coordination service should last.
    operator: Weak<Operator>,
    store: StoreName,
    id: u16,
    created_unix_ms: u64,
}

impl RecordedSchemas {
    fn operator(&self) -> Result<Arc<Operator>, String> {
        self.operator.upgrade().ok_or_else(|| "the node ends".to_owned())
    }
}

impl StoreSchemas for RecordedSchemas {
    fn present(&self) -> Result<Arc<Schemas>, String> {
        let operator = self.operator()?;
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

    fn register(&self, schema: &Schema) -> Result<u16, Unfound> {
        let operator = self.operator().map_err(Unfound::Yet)?;
        match operator.register_schema(&self.store, schema, false) {
            Ok((record, _)) if record.store == self.id => Ok(record.id),
            Ok(_) => Err(Unfound::Yet(format!("store {:?} was dropped", self.store))),
            Err(ClusterError::Operator(
                error @ (OperatorError::SchemaClash { .. } | OperatorError::TooManySchemas { .. }),
            )) => Err(Unfound::Ever(error.to_string())),
            Err(error) => Err(Unfound::Yet(error.to_string())),
        }
    }
}
