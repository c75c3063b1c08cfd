//! The columns of stores, as the manifests of their versions have them. Each version is asked for once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fondaco_admin::Endpoint;
use fondaco_export::{Rows, Selection, Source};
use fondaco_model::StoreName;

use crate::fault::Fault;
use crate::fields::ValueSchemas;
use crate::values::Typed;

/// The most stores whose columns are kept.
const STORES_MAX: usize = 1024;

/// The columns of a version, or of a store without versions.
type Known = (Option<u64>, Arc<Typed>);

/// The columns of the stores of one cluster.
pub struct SchemaCache {
    endpoint: Arc<Endpoint>,
    known: Mutex<HashMap<StoreName, Known>>,
    /// The schemas of values.
    pub values: ValueSchemas,
}

impl SchemaCache {
    /// Asks the cluster at this endpoint.
    pub fn new(endpoint: Arc<Endpoint>) -> Self {
        Self {
            endpoint,
            known: Mutex::default(),
            values: ValueSchemas::default(),
        }
    }

    /// The columns of a version of a store. It blocks if they are not known.
    pub fn columns(&self, store: &StoreName, version: Option<u64>) -> Result<Arc<Typed>, Fault> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, typed)) = known().get(store)
            && *of == version
        {
            return Ok(Arc::clone(typed));
        }
        let rows = Rows::none_of(&selection(store, &self.endpoint))?;
        let typed = Arc::new(Typed::new(rows.schema()));
        let mut known = known();
        if known.len() >= STORES_MAX {
            known.clear();
        }
        known.insert(store.clone(), (version, Arc::clone(&typed)));
        Ok(typed)
    }
}

/// All rows of a store.
pub fn selection(store: &StoreName, endpoint: &Endpoint) -> Selection {
    Selection::all_of(Source::Store {
        name: store.clone(),
        endpoint: endpoint.clone(),
    })
}
