//! Schemas that events name and that are not known here yet: of the store, or of a registry outside of the cluster.

mod client;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fondaco_model::{RegistryAddress, ValueType};
use fondaco_schema::{Schema, Schemas, ValueRules};

use crate::rules::{Foreign, LiveRules, SchemaFinder};

pub use self::client::{RegistryClient, Unfound};

/// The schemas of one store in the cluster. Calls may wait for a network.
pub trait StoreSchemas: Send + Sync {
    /// All schemas that the store has now: also one that another process registered just before the call.
    ///
    /// # Errors
    /// Why that is unknown: it is tried again.
    fn present(&self) -> Result<Arc<Schemas>, String>;

    /// The id of a schema of the store that means the same; without one, the schema is registered.
    ///
    /// # Errors
    /// [`Unfound::Ever`] if the store does not accept it.
    fn register(&self, schema: &Schema) -> Result<u16, Unfound>;
}

/// The rules for the values of a store, before more schemas than these are known; and the registry of the events' producers, if there
/// is one.
pub fn live_rules(
    schemas: Arc<Schemas>,
    value_type: ValueType,
    store: impl StoreSchemas + 'static,
    registry: Option<(RegistryClient, RegistryAddress)>,
) -> LiveRules {
    let is_foreign = registry.is_some();
    let finder = Arc::new(Finder {
        store,
        registry,
        value_type,
    });
    let rules = ValueRules::new(value_type, schemas);
    match is_foreign {
        true => LiveRules::with_foreign_values(rules, finder),
        false => LiveRules::new(rules, Some(finder)),
    }
}

/// Finds the schemas of one store.
struct Finder<S> {
    store: S,
    registry: Option<(RegistryClient, RegistryAddress)>,
    value_type: ValueType,
}

impl<S: StoreSchemas> Finder<S> {
    /// The schema of the store for one of the registry outside.
    fn of_outside(
        &self,
        (client, registry): &(RegistryClient, RegistryAddress),
        number: u32,
        message: &[u32],
    ) -> Result<Foreign, Unfound> {
        let wrong = |reason: String| Unfound::Ever(format!("schema {number} of the registry {registry} {reason}"));
        let found = client.schema(registry, number, false)?;
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
                    Err(_) => BASE64.decode(client.schema(registry, number, true)?.schema.trim()),
                };
                let is_text = "is given as text only, and not as a serialized file of Protobuf: use a registry that can serialize it";
                Schema::of_protobuf_file(&serialized.map_err(|_| wrong(is_text.to_owned()))?, message)
            }
            _ => Schema::of_text(expected, &found.schema, None),
        };
        let schema = schema.map_err(|error| wrong(format!("cannot be used: {error}")))?;
        match self.store.register(&schema) {
            Ok(id) => Ok(Foreign::Schema(id, schema)),
            Err(Unfound::Ever(reason)) => Err(wrong(format!("is not accepted: {reason}"))),
            Err(yet) => Err(yet),
        }
    }
}

impl<S: StoreSchemas> SchemaFinder for Finder<S> {
    fn present(&self) -> Result<Arc<Schemas>, String> {
        self.store.present()
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
