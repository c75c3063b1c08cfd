//! The schemas of the store's values, asked for at a control port while events are read.

use std::sync::Arc;

use fondaco_admin::{AdminError, Client};
use fondaco_api::{NewSchema, SchemaList, SchemaResource};
use fondaco_schema::{Schema, Schemas};
use fondaco_stream::{StoreSchemas, Unfound};

use crate::follow::Cluster;

/// The schemas of the store that was created at a time, in milliseconds since 1970.
pub(super) struct ClusterSchemas {
    pub(super) cluster: Arc<Cluster>,
    pub(super) created_unix_ms: u64,
}

impl ClusterSchemas {
    /// All schemas that the cluster has now. The list may be that of a moment ago; the question for the schema after the last one
    /// makes the process look at the coordination service.
    fn ask(&self, client: &Client) -> Result<Option<SchemaList>, AdminError> {
        let store = self.cluster.store();
        let found = client.store(store)?;
        if found.is_none_or(|found| found.created_unix_ms != self.created_unix_ms) {
            return Ok(None);
        }
        let path = format!("/v1/stores/{store}/schemas");
        loop {
            let list: SchemaList = client.get(&path)?;
            let next = list.schemas.last().map_or(1, |last| last.id + 1);
            match client.get::<SchemaResource>(&format!("{path}/{next}")) {
                Ok(_) => {}
                Err(AdminError::Refused { code, .. }) if code == "schema_not_found" => return Ok(Some(list)),
                Err(error) => return Err(error),
            }
        }
    }

    fn dropped(&self) -> String {
        format!("store {:?} was dropped", self.cluster.store())
    }
}

impl StoreSchemas for ClusterSchemas {
    fn present(&self) -> Result<Arc<Schemas>, String> {
        let list = self
            .cluster
            .ask(|client| self.ask(client))
            .map_err(|error| error.to_string())?;
        let list = list.ok_or_else(|| self.dropped())?;
        let texts = list.schemas.iter();
        let texts = texts.map(|schema| (schema.id, &*schema.schema, schema.message.as_deref()));
        let schemas = Schemas::of_texts(list.value_type, texts).map_err(|error| error.to_string())?;
        Ok(Arc::new(schemas))
    }

    fn register(&self, schema: &Schema) -> Result<u16, Unfound> {
        let store = self.cluster.store();
        let new = NewSchema {
            schema: schema.to_text().into(),
            message: schema.message().map(str::to_owned),
            dry_run: false,
        };
        let asked = self.cluster.ask(|client| {
            let found = client.store(store)?;
            match found.is_some_and(|found| found.created_unix_ms == self.created_unix_ms) {
                true => client.post(&format!("/v1/stores/{store}/schemas"), &new).map(Some),
                false => Ok(None),
            }
        });
        match asked {
            Ok(Some(SchemaResource { id, .. })) => Ok(id),
            Ok(None) => Err(Unfound::Yet(self.dropped())),
            Err(AdminError::Refused { code, message }) if ["schema_clash", "too_many_schemas"].contains(&&*code) => {
                Err(Unfound::Ever(message))
            }
            Err(error) => Err(Unfound::Yet(error.to_string())),
        }
    }
}
