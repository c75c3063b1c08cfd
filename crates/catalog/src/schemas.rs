//! The schemas of all stores, parsed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fondaco_model::cluster::{ClusterView, SchemaKey};
use fondaco_schema::{Schema, Schemas};

/// The schemas of each store that has any. Copies share them.
#[derive(Debug, Clone, Default)]
pub struct StoreSchemas(Arc<Parts>);

#[derive(Debug, Default)]
struct Parts {
    /// The revision of each record, and its schema; none for a record that cannot be parsed.
    records: BTreeMap<SchemaKey, (u64, Option<Schema>)>,
    stores: HashMap<u16, Arc<Schemas>>,
}

impl StoreSchemas {
    /// The schemas in a view. Those that are known from the view before are not parsed again; if all are, the result is the former
    /// one.
    pub fn of(view: &ClusterView, before: &Self) -> Self {
        let known = &before.0.records;
        let is_known = |(key, record): (&SchemaKey, &_)| -> bool {
            let record: &fondaco_model::cluster::Revised<_> = record;
            known.get(key).is_some_and(|(revision, _)| *revision == record.revision)
        };
        if known.len() == view.schemas.len() && view.schemas.iter().all(is_known) {
            return before.clone();
        }
        let mut parts = Parts::default();
        let mut stores: BTreeMap<u16, Schemas> = BTreeMap::new();
        for (&key, found) in &view.schemas {
            let schema = match known.get(&key).filter(|(revision, _)| *revision == found.revision) {
                Some((_, schema)) => schema.clone(),
                None => Schema::of_record(&found.record)
                    .inspect_err(
                        |error| tracing::error!(store = key.store, id = key.id, %error, "a schema cannot be used"),
                    )
                    .ok(),
            };
            if let Some(schema) = &schema {
                stores.entry(key.store).or_default().insert(key.id, schema.clone());
            }
            parts.records.insert(key, (found.revision, schema));
        }
        parts.stores = stores
            .into_iter()
            .map(|(store, schemas)| (store, Arc::new(schemas)))
            .collect();
        Self(Arc::new(parts))
    }

    /// Whether both are the same copy.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The schemas of the store with this number; `None` if it has none.
    pub fn of_store(&self, store: u16) -> Option<&Arc<Schemas>> {
        self.0.stores.get(&store)
    }
}
