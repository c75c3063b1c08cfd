//! Values and keys of the types that a store declares: a write is checked before it is carried out.

use fondaco_catalog::StoreTypes;
use fondaco_model::{StoreName, ValueType};
use fondaco_schema::{Schemas, ValueError, check_value, key_to_json, read_id};

use super::operation::Operation;
use super::siblings::Siblings;
use super::strings::Strings;
use super::{Refusal, ids};

/// A write to a key of a store, with the value as it is stored.
///
/// # Errors
/// The error to answer with: the key or the value is not of the store's type, or would be changed as text.
pub(in crate::server) fn checked(operation: Operation, store: &StoreTypes, key: &[u8]) -> Result<Operation, Refusal> {
    if operation.is_read() {
        return Ok(operation);
    }
    if !store.key_type.is_bytes() {
        let checked = key_to_json(&store.key_type, key);
        checked.map_err(|error| {
            let (name, key_type) = (&store.name, &store.key_type);
            format!("WRONGTYPE the keys of store {name:?} are of type {key_type}: {error}")
        })?;
    }
    if let Operation::Update(update) = operation {
        return Ok(Operation::Update(update.by(store)));
    }
    match store.value_type {
        ValueType::Bytes | ValueType::Graph => return Ok(operation),
        ValueType::Ids => return ids::checked(operation, &store.name),
        _ => {}
    }
    match &operation {
        Operation::Strings(Strings::Set(set)) => check(store, &set.value)?,
        Operation::Siblings(Siblings::Put { value, .. }) => check(store, value)?,
        Operation::Strings(Strings::Append(text)) if store.value_type == ValueType::String => check(store, text)?,
        Operation::Strings(Strings::Add(_)) if store.value_type == ValueType::Integer => {}
        Operation::Strings(Strings::Append(_) | Strings::SetRange(..) | Strings::Add(_)) => {
            let (name, value_type) = (&store.name, store.value_type);
            return Err(format!(
                "WRONGTYPE the values of store {name:?} are of type {value_type}: write a whole value with SET"
            ));
        }
        _ => {}
    }
    Ok(operation)
}

fn check(store: &StoreTypes, value: &[u8]) -> Result<(), Refusal> {
    check_stored(&store.name, store.value_type, store.schemas.as_deref(), value)
}

/// Checks a value of a store's type, with the id of its schema if it has one.
///
/// # Errors
/// The error to answer with. The answer to an unknown schema id is `TRYAGAIN`: the schema may have been registered a moment ago.
pub(in crate::server) fn check_stored(
    store: &StoreName,
    value_type: ValueType,
    schemas: Option<&Schemas>,
    value: &[u8],
) -> Result<(), Refusal> {
    let wrong =
        |error: ValueError| format!("WRONGTYPE the values of store {store:?} are of type {value_type}: {error}");
    if !value_type.has_schemas() {
        return check_value(value_type, value).map_err(wrong);
    }
    let (id, payload) = read_id(value).map_err(wrong)?;
    let schema = schemas.and_then(|schemas| schemas.get(id)).ok_or_else(|| {
        format!(
            "TRYAGAIN store {store:?} has no schema {id}: register it, fondaco schema register {store} FILE; if that was a moment ago, try again"
        )
    })?;
    schema.validate(payload).map_err(wrong)
}
