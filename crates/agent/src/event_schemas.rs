//! Schemas that events name and this node does not know yet.

use std::sync::{Arc, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fondaco_cluster::{ClusterError, Operator};
use fondaco_decisions::operator::OperatorError;
use fondaco_model::cluster::StoreRecord;
use fondaco_model::{RegistryAddress, StoreName, ValueType};
use fondaco_schema::{Schema, Schemas, ValueRules};
use fondaco_stream::{Foreign, LiveRules, SchemaFinder};

use crate::schema_registry::{RegistryClient, Unfound};

/// The rules for the values of a hybrid store, before its schemas are known.
pub(super) fn live_rules(operator: &Weak<Operator>, client: &RegistryClient, store: &StoreRecord) -> LiveRules {
    let registry = store
        .definition
        .stream
        .as_ref()
        .and_then(|stream| stream.registry.clone());
    let is_foreign = registry.is_some();
    let value_type = store.definition.value_type;
    let finder = Arc::new(StoreSchemaFinder {
        operator: Weak::clone(operator),
        client: client.clone(),
        registry,
        store: store.definition.name.clone(),
        id: store.id,
        created_unix_ms: store.created_unix_ms,
        value_type,
    });
    let rules = ValueRules::new(value_type, Arc::default());
    match is_foreign {
        true => LiveRules::with_foreign_values(rules, finder),
        false => LiveRules::new(rules, Some(finder)),
    }
}

/// Finds the schemas of one store.
struct StoreSchemaFinder {
    /// Overlays may be in use for longer than the session with the coordination service should last.
    operator: Weak<Operator>,
    client: RegistryClient,
    /// The registry of the events' producers.
    registry: Option<RegistryAddress>,
    store: StoreName,
    id: u16,
    created_unix_ms: u64,
    value_type: ValueType,
}

impl StoreSchemaFinder {
    fn operator(&self) -> Result<Arc<Operator>, String> {
        self.operator.upgrade().ok_or_else(|| "the node ends".to_owned())
    }

    /// The schema of the store for one of the registry outside.
    fn of_outside(&self, registry: &RegistryAddress, number: u32, message: &[u32]) -> Result<Foreign, Unfound> {
        let wrong = |reason: String| Unfound::Ever(format!("schema {number} of the registry {registry} {reason}"));
        let found = self.client.schema(registry, number, false)?;
        let (expected, schema_type) = (self.value_type, found.schema_type.as_deref().unwrap_or("AVRO"));
        if !schema_type.eq_ignore_ascii_case(expected.as_str()) {
            return Err(wrong(format!(
                "is of type {schema_type}, and the values of the store are of type {expected}"
            )));
        }
        let schema = match expected {
            // Values are stored as they are, whatever their schema refers to.
            ValueType::Json => return Ok(Foreign::Json),
            _ if !found.references.is_empty() => {
                return Err(wrong(
                    "refers to other schemas: register it without references".to_owned(),
                ));
            }
            ValueType::Protobuf => {
                // Some registries keep what Confluent's clients for Python send: that is serialized already.
                let serialized = match BASE64.decode(found.schema.trim()) {
                    Ok(file) => Ok(file),
                    Err(_) => BASE64.decode(self.client.schema(registry, number, true)?.schema.trim()),
                };
                let is_text = "is given as text only, and not as a serialized file of Protobuf: use a registry that can serialize it";
                Schema::of_protobuf_file(&serialized.map_err(|_| wrong(is_text.to_owned()))?, message)
            }
            _ => Schema::of_text(expected, &found.schema, None),
        };
        let schema = schema.map_err(|error| wrong(format!("cannot be used: {error}")))?;
        let operator = self.operator().map_err(Unfound::Yet)?;
        match operator.register_schema(&self.store, &schema, false) {
            Ok((record, _)) if record.store == self.id => Ok(Foreign::Schema(record.id, schema)),
            Ok(_) => Err(Unfound::Yet(format!("store {:?} was dropped", self.store))),
            Err(ClusterError::Operator(
                error @ (OperatorError::SchemaClash { .. } | OperatorError::TooManySchemas { .. }),
            )) => Err(wrong(format!("is not accepted: {error}"))),
            Err(error) => Err(Unfound::Yet(error.to_string())),
        }
    }
}

impl SchemaFinder for StoreSchemaFinder {
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

    fn foreign(&self, number: u32, message: &[u32]) -> Result<Foreign, String> {
        let registry = self.registry.as_ref().ok_or("the store has no registry outside")?;
        match self.of_outside(registry, number, message) {
            Ok(found) => Ok(found),
            Err(Unfound::Ever(reason)) => Ok(Foreign::Refused(reason)),
            Err(Unfound::Yet(reason)) => Err(reason),
        }
    }
}
