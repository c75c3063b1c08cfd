//! Queries over fields of values, carried out where the values are: those of versions and their later events, or those that were
//! read at a quorum.
//!
//! The result for a key is an element: bytes that the process which was asked writes to the client. Fields are encoded as the
//! client's protocol has them, so that a router passes them on as they are; scores and counts are 8 bytes, little-endian.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_catalog::Catalog;
use fondaco_format::Value;
use fondaco_model::ValueType;
use fondaco_resp::{Protocol, Reply};
use fondaco_schema::{Evaluator, Found, Query, QueryError, Schemas, What, read_id};
use fondaco_stream::Found as Event;
use serde_json::Value as Json;

use super::Stop;
use crate::forward::ValueAnswer;
use crate::server::refusal;

/// After this many keys it is asked whether to go on.
const KEYS_BETWEEN_CHECKS: usize = 64;

/// A query over fields, and where it is carried out.
pub(crate) struct Fields {
    pub(crate) catalog: Arc<Catalog>,
    /// The store's place in the catalog.
    pub(crate) store: u16,
    pub(crate) query: Query,
    /// The protocol of the client that asked.
    pub(crate) protocol: Protocol,
    /// The most bytes of values that one request reads here, and of elements that it makes.
    pub(crate) bytes_max: usize,
    pub(crate) stop: Stop,
}

/// The error to answer with.
pub(crate) fn refused(error: &QueryError) -> String {
    let code = match error {
        QueryError::Type(_) => "WRONGTYPE",
        _ => "ERR",
    };
    format!("{code} {error}")
}

/// The type of a store's values, and their schemas.
pub(crate) fn types(catalog: &Catalog, store: u16) -> (ValueType, Option<&Schemas>) {
    let store = &catalog.stores()[usize::from(store)];
    let schemas = catalog.schemas(store).map(|schemas| &**schemas);
    (catalog.value_type(store), schemas)
}

impl Fields {
    /// The elements for keys of a version that is open here.
    ///
    /// # Errors
    /// The error to answer with for all keys.
    pub(crate) fn over_version(&self, version: u16, keys: &[Bytes]) -> Result<Vec<ValueAnswer>, String> {
        let (overlay, version) = (self.catalog.overlay(version), self.catalog.version(version));
        let mut evaluation = Evaluation::begin(self)?;
        for some in keys.chunks(KEYS_BETWEEN_CHECKS) {
            let begun = evaluation.elements.len();
            let bytes_begun = evaluation.bytes;
            loop {
                self.check_time()?;
                let event = |key: &Bytes| match overlay.map(|overlay| overlay.find(key)) {
                    None | Some(Ok(Event::Nothing)) => None,
                    Some(Ok(Event::Value(value))) => Some(Ok(Some(value))),
                    Some(Ok(Event::Deleted)) => Some(Ok(None)),
                    Some(Ok(Event::Behind | Event::Unknown)) => {
                        Some(Err(refusal::behind(&self.catalog, self.store).into()))
                    }
                    Some(Err(error)) => Some(Err(format!("CORRUPT {error}").into())),
                };
                let events: Vec<Option<ValueAnswer>> = some.iter().map(event).collect();
                let rest: Vec<usize> = (0..some.len()).filter(|&at| events[at].is_none()).collect();
                let rest_keys: Vec<&Bytes> = rest.iter().map(|&at| &some[at]).collect();
                let mut values: Vec<Result<Option<Value<'_>>, String>> = Vec::new();
                values.resize_with(some.len(), || Ok(None));
                version.get_many(&rest_keys, |at, found| {
                    values[rest[at]] = found.map_err(|error| refusal::failure(&error));
                });
                for (event, value) in events.iter().zip(&values) {
                    match (event, value) {
                        (Some(Ok(value)), _) => evaluation.add(value.as_deref())?,
                        (Some(Err(error)), _) => evaluation.elements.push(Err(Arc::clone(error))),
                        (None, Ok(value)) => evaluation.add(value.as_deref())?,
                        (None, Err(error)) => evaluation.elements.push(Err(error.as_str().into())),
                    }
                }
                if values.iter().flatten().flatten().all(Value::is_intact) {
                    break;
                }
                // A page of the files became unreadable meanwhile: they are read again.
                evaluation.elements.truncate(begun);
                evaluation.bytes = bytes_begun;
            }
        }
        Ok(evaluation.elements)
    }

    /// The elements for values that were read.
    ///
    /// # Errors
    /// The error to answer with for all keys.
    pub(crate) fn over_values(&self, values: Vec<ValueAnswer>) -> Result<Vec<ValueAnswer>, String> {
        let mut evaluation = Evaluation::begin(self)?;
        for (at, value) in values.into_iter().enumerate() {
            if at % KEYS_BETWEEN_CHECKS == 0 {
                self.check_time()?;
            }
            match value {
                Ok(value) => evaluation.add(value.as_deref())?,
                Err(error) => evaluation.elements.push(Err(error)),
            }
        }
        Ok(evaluation.elements)
    }

    fn check_time(&self) -> Result<(), String> {
        match self.stop.may_go_on() {
            true => Ok(()),
            false => Err("TIMEOUT the fields were not read in time: ask for fewer keys, or allow more time".into()),
        }
    }
}

/// A query that is being carried out.
struct Evaluation<'a> {
    fields: &'a Fields,
    schemas: Option<&'a Schemas>,
    evaluator: Evaluator<'a>,
    elements: Vec<ValueAnswer>,
    /// How many bytes of values were read, and of elements made.
    bytes: (usize, usize),
}

impl<'a> Evaluation<'a> {
    fn begin(fields: &'a Fields) -> Result<Self, String> {
        let (value_type, schemas) = types(&fields.catalog, fields.store);
        if let Some(id) = fields.query.schema
            && value_type.has_schemas()
            && schemas.is_none_or(|schemas| schemas.get(id).is_none())
        {
            // The process that asked knows it: it is on its way.
            return Err(unknown_schema(fields, id));
        }
        let evaluator = Evaluator::new(&fields.query, value_type, schemas).map_err(|error| refused(&error))?;
        Ok(Self {
            fields,
            schemas,
            evaluator,
            elements: Vec::new(),
            bytes: (0, 0),
        })
    }

    /// Adds the element for a value; an error of the value is its element.
    fn add(&mut self, value: Option<&[u8]>) -> Result<(), String> {
        let Some(value) = value else {
            self.elements.push(Ok(None));
            return Ok(());
        };
        self.bytes.0 += value.len();
        let element = match self.evaluator.apply(value) {
            Ok(found) => Ok(self.element(found)),
            Err(error) => {
                let unknown = read_id(value).ok().map(|(id, _)| id);
                let unknown = unknown.filter(|id| self.schemas.is_some_and(|schemas| schemas.get(*id).is_none()));
                Err(match unknown {
                    Some(id) => unknown_schema(self.fields, id).into(),
                    None => format!("WRONGTYPE {error}").into(),
                })
            }
        };
        if let Ok(Some(element)) = &element {
            self.bytes.1 += element.len();
        }
        self.elements.push(element);
        let bytes_max = self.fields.bytes_max;
        match self.bytes.0.max(self.bytes.1) <= bytes_max {
            true => Ok(()),
            false => Err(format!(
                "LIMIT the values of these keys, or the fields of them, have more than {bytes_max} bytes: ask for fewer keys, or raise \
                 compute-input-bytes-max"
            )),
        }
    }

    fn element(&self, found: Found) -> Option<Bytes> {
        let (Found::Fields(values), What::Fields { names, .. }) = (&found, &self.fields.query.what) else {
            return found.into_bytes().map(Bytes::from);
        };
        let mut bytes = Vec::new();
        let mut reply = Reply::new(&mut bytes, self.fields.protocol);
        reply.map(names.len());
        for (name, value) in names.iter().zip(values) {
            reply.bulk(name.as_bytes());
            write(value, &mut reply);
        }
        Some(bytes.into())
    }
}

/// A schema that is not known here: it may have been registered a moment ago.
fn unknown_schema(fields: &Fields, id: u16) -> String {
    let store = &fields.catalog.stores()[usize::from(fields.store)].name;
    format!("TRYAGAIN store {store:?} has no schema {id} here: if it was registered a moment ago, try again")
}

/// Writes the value of a field: lists, maps and records as JSON text.
fn write(value: &Json, reply: &mut Reply<'_>) {
    match value {
        Json::Null => reply.null(),
        Json::Bool(value) => reply.boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => reply.integer(integer),
            (None, Some(float)) if number.is_f64() => reply.double(float),
            _ => reply.bulk(number.to_string().as_bytes()),
        },
        Json::String(text) => reply.bulk(text.as_bytes()),
        Json::Array(_) | Json::Object(_) => reply.bulk(value.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_fields_keep_their_types_where_the_protocol_has_them() {
        let written = |value: Json, protocol| {
            let mut bytes = Vec::new();
            write(&value, &mut Reply::new(&mut bytes, protocol));
            String::from_utf8(bytes).unwrap()
        };
        for (value, resp3, resp2) in [
            (json!(null), "_\r\n", "$-1\r\n"),
            (json!(true), "#t\r\n", ":1\r\n"),
            (json!(-5), ":-5\r\n", ":-5\r\n"),
            (
                json!(u64::MAX),
                "$20\r\n18446744073709551615\r\n",
                "$20\r\n18446744073709551615\r\n",
            ),
            (json!(0.5), ",0.5\r\n", "$3\r\n0.5\r\n"),
            (json!("a"), "$1\r\na\r\n", "$1\r\na\r\n"),
            (json!([1, "b"]), "$7\r\n[1,\"b\"]\r\n", "$7\r\n[1,\"b\"]\r\n"),
        ] {
            assert_eq!(written(value.clone(), Protocol::Resp3), resp3);
            assert_eq!(written(value, Protocol::Resp2), resp2);
        }
    }
}
