//! The declaration of the store that a version is pushed to: its types, and the schemas of its registry.

use fondaco_admin::{AdminError, Client};
use fondaco_api::{NewSchema, NewStore, SchemaList, SchemaResource, StoreResource};
use fondaco_builder::Declaration;
use fondaco_model::StoreName;
use fondaco_schema::{Schema, SchemaError};

use crate::error::PushError;
use crate::observer::{Job, Note};

/// The id that the first schema of a store gets.
const FIRST_SCHEMA_ID: u16 = 1;

/// The declaration of a store that exists; `asked` has the id of the schema that rows become records of.
///
/// # Errors
/// The store has no such schema, or the cluster does not answer.
pub fn declaration(client: &Client, store: &StoreResource, asked: &Declaration) -> Result<Declaration, PushError> {
    let (name, value_type) = (&store.name, store.value_type());
    let mut declared = Declaration {
        key_type: store.options.key_type.clone().unwrap_or_default(),
        schema_id: asked.schema_id,
        ..value_type.into()
    };
    if !value_type.has_schemas() {
        return Ok(declared);
    }
    let list: SchemaList = client.get(&format!("/v1/stores/{name}/schemas"))?;
    for SchemaResource {
        id, schema, message, ..
    } in &list.schemas
    {
        let parsed = Schema::of_text(value_type, schema, message.as_deref());
        declared
            .schemas
            .insert(*id, parsed.map_err(|error| unreadable(name, *id, &error))?);
    }
    if let Some((_, given)) = asked.schemas.newest() {
        let known = declared
            .schemas
            .iter()
            .rev()
            .find(|(_, known)| known.canonical() == given.canonical());
        let Some((id, _)) = known else {
            return Err(PushError::Unfit(format!(
                "store {name} does not have the schema of --schema: register it first: fondaco schema register {name} FILE"
            )));
        };
        declared.schema_id = Some(id);
    }
    match (declared.written(), declared.schema_id) {
        (Some(_), _) => Ok(declared),
        (None, Some(id)) => Err(PushError::Unfit(format!(
            "store {name} has no schema {id}: see fondaco schema list {name}, and give one of them with --schema-id"
        ))),
        (None, None) => Err(PushError::Unfit(format!(
            "store {name} has no schema: register one: fondaco schema register {name} FILE"
        ))),
    }
}

/// The declaration of a store that is to be created: its one schema gets the first id.
pub(crate) fn of_new(name: &StoreName, asked: &Declaration) -> Result<Declaration, PushError> {
    let mut declared = asked.clone();
    if asked.value_type.has_schemas() {
        let Some((_, schema)) = asked.schemas.newest() else {
            return Err(PushError::WrongOptions(format!(
                "values of type {} need a schema: give it with --schema FILE, or create the store and register one: fondaco \
                 schema register {name} FILE",
                asked.value_type
            )));
        };
        declared.schemas = [(FIRST_SCHEMA_ID, schema.clone())].into_iter().collect();
        declared.schema_id = None;
    }
    Ok(declared)
}

/// Creates the store of a version with this declaration, unless it exists, with its schema.
pub(crate) fn create(client: &Client, name: &StoreName, declared: &Declaration, job: Job<'_>) -> Result<(), PushError> {
    if client.store(name)?.is_some() {
        return Ok(());
    }
    let mut new = NewStore::batch(name.as_str());
    if !declared.value_type.is_bytes() {
        new.options
            .insert("value_type".to_owned(), declared.value_type.name().into());
    }
    if !declared.key_type.is_bytes() {
        new.options
            .insert("key_type".to_owned(), declared.key_type.to_string().into());
    }
    let created: Result<StoreResource, AdminError> = client.post("/v1/stores", &new);
    match created {
        Ok(_) => job.note(Note::StoreCreated(name)),
        Err(error) if error.code() == "store_exists" => job.note(Note::StoreExists(name)),
        Err(error) => return Err(error.into()),
    }
    let Some((id, schema)) = declared.written().filter(|_| declared.value_type.has_schemas()) else {
        return Ok(());
    };
    let new = NewSchema {
        schema: schema.to_text().into(),
        message: schema.message().map(str::to_owned),
        dry_run: false,
    };
    let registered: SchemaResource = client.post(&format!("/v1/stores/{name}/schemas"), &new)?;
    match registered.id == id {
        true => Ok(()),
        false => Err(PushError::Unfit(format!(
            "store {name} was created meanwhile, and has the schema of this version under the id {} instead of {id}: push again",
            registered.id
        ))),
    }
}

fn unreadable(name: &str, id: u16, error: &SchemaError) -> PushError {
    PushError::Damaged(format!("schema {id} of store {name} cannot be read: {error}"))
}
