//! Some fields of values, and scores over them. The nodes read and compute them; here they become columns.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::DataType;
use bytes::Bytes;
use fondaco_admin::Endpoint;
use fondaco_client::{BatchReply, ClientError};
use fondaco_format::{Column, Schema as Columns, ValueEncoding};
use fondaco_model::{StoreName, ValueType};
use fondaco_protocol::WireKey;
use fondaco_schema::{Form, Query, QueryError, Schema, Schemas, What};
use fondaco_typed::{TypedSchema, type_text};
use serde_json::{Value, json};

use crate::control;
use crate::fault::Fault;
use crate::schemas::SchemaCache;
use crate::values::{Typed, Values};

/// The schemas of the values of a cluster's stores, as they were last asked for.
#[derive(Default)]
pub struct ValueSchemas(Mutex<HashMap<StoreName, Arc<Schemas>>>);

impl ValueSchemas {
    /// The schemas of a store, with which a query can be carried out: they are asked for again if it cannot. It blocks.
    pub fn prepare(
        &self,
        endpoint: &Endpoint,
        store: &StoreName,
        query: Query,
    ) -> Result<(Arc<Schemas>, Query), Fault> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |schemas: &Schemas| {
            let named = query.clone().with_schema_of(schemas).ok()?;
            let schema = schemas.get(named.schema?)?;
            let fields = schema.fields();
            let has = |name: &str| fields.iter().any(|field| field.name == name);
            query.fields().into_iter().all(has).then_some(named)
        };
        let cached = known().get(store).cloned();
        if let Some(schemas) = cached
            && let Some(named) = fits(&schemas)
        {
            return Ok((schemas, named));
        }
        let schemas = Arc::new(ask(endpoint, store)?);
        known().insert(store.clone(), Arc::clone(&schemas));
        let named = query.with_schema_of(&schemas).map_err(ClientError::from)?;
        Ok((schemas, named))
    }
}

fn ask(endpoint: &Endpoint, store: &StoreName) -> Result<Schemas, Fault> {
    let list = control::request(endpoint, "GET", &format!("/v1/stores/{store}/schemas"), None)?;
    let mut schemas = Schemas::default();
    for resource in list["schemas"].as_array().into_iter().flatten() {
        let id = resource["id"].as_u64().and_then(|id| u16::try_from(id).ok());
        let value_type = resource["value_type"]
            .as_str()
            .and_then(|text| text.parse::<ValueType>().ok());
        let (Some(id), Some(value_type), Some(text)) = (id, value_type, resource["schema"].as_str()) else {
            return Err(Fault::new(
                "failed",
                format!("the control port answered another form of a schema: {resource}"),
            ));
        };
        let schema = Schema::of_text(value_type, text, resource["message"].as_str());
        schemas.insert(id, schema.map_err(|error| Fault::new("WRONGTYPE", error.to_string()))?);
    }
    Ok(schemas)
}

/// The answer to a query, with columns of the types that it has by the schema. It may block: for the columns of the key.
pub fn typed(
    keys: Vec<WireKey>,
    reply: BatchReply,
    query: &Query,
    schemas: &Schemas,
    (cache, store): (&SchemaCache, &StoreName),
) -> Result<Values, Fault> {
    let versions: Vec<(String, u64)> = reply
        .stores
        .iter()
        .map(|of| (of.name.to_string(), of.version.get()))
        .collect();
    let version = versions.first().map(|(_, version)| *version);
    let column = |name: &str, r#type: String| Column {
        name: name.into(),
        r#type,
    };
    let reader = query.schema.and_then(|id| schemas.get(id));
    let values = match &query.what {
        What::Fields { form: Form::Raw, .. } => {
            let raw = Arc::new(Typed::new(&TypedSchema::raw()));
            return Ok(Values::typed(keys, reply.values, versions, raw));
        }
        What::Fields { names, .. } => {
            let known: BTreeMap<String, String> = reader.map(Schema::column_types).into_iter().flatten().collect();
            let of_field = |name: &String| column(name, known.get(name).cloned().unwrap_or_else(|| "json".into()));
            names.iter().map(of_field).collect()
        }
        What::Dot(_) | What::Cosine(_) => vec![column("score", "Float64".into())],
        What::Count { .. } => vec![column("count", "UInt64".into())],
        What::Hadamard(_) => vec![column("products", "List(Float32)".into())],
    };
    let elements = reply
        .values
        .into_iter()
        .map(|element| element.map(|element| element.map(|bytes| as_json(bytes, query))));
    let schema = Columns {
        key: key_column(cache, store, version)?,
        values,
        encoding: ValueEncoding::Json,
    };
    let typed = Arc::new(Typed::new(&TypedSchema::of(&schema, ValueType::Json)));
    Ok(Values::typed(keys, elements.collect(), versions, typed))
}

/// The column of the keys, as it was pushed; bytes if there are several, or none.
fn key_column(cache: &SchemaCache, store: &StoreName, version: Option<u64>) -> Result<Column, Fault> {
    let known = cache.columns(store, version)?;
    let field = known
        .decoder
        .schema()
        .fields()
        .first()
        .filter(|_| known.key_columns == 1);
    let (name, r#type) = match field {
        Some(field) => (field.name().clone(), type_text(field)),
        None => ("key".into(), DataType::Binary.to_string()),
    };
    Ok(Column { name, r#type })
}

/// An element as a JSON object with the column of its score; fields are one already.
fn as_json(element: Bytes, query: &Query) -> Bytes {
    let number = || <[u8; 8]>::try_from(&element[..]).map_or(0, u64::from_le_bytes);
    let object = match &query.what {
        What::Fields { .. } => return element,
        What::Dot(_) | What::Cosine(_) => json!({"score": float(f64::from_bits(number()))}),
        What::Count { .. } => json!({"count": number()}),
        What::Hadamard(_) => {
            let (floats, _) = element.as_chunks::<4>();
            // By its shortest text, which is read back as the same 32 bits.
            let text = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes).to_string();
            let floats: Vec<Value> = floats
                .iter()
                .map(|bytes| float(text(bytes).parse().unwrap_or(f64::NAN)))
                .collect();
            json!({"products": floats})
        }
    };
    object.to_string().into()
}

/// A float in JSON.
fn float(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => number.into(),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// The places of the keys with the highest scores, the highest first.
pub fn best(reply: &BatchReply, query: &Query, count: usize) -> Vec<usize> {
    let score = |bytes: &Bytes| {
        let number = <[u8; 8]>::try_from(&bytes[..]).map_or(0, u64::from_le_bytes);
        match query.what {
            What::Count { .. } => number as f64,
            _ => f64::from_bits(number),
        }
    };
    let scores = reply.values.iter().enumerate();
    let scores = scores.filter_map(|(at, value)| Some((score(value.as_ref().ok()?.as_ref()?), at)));
    let mut scores: Vec<(f64, usize)> = scores.filter(|(score, _)| !score.is_nan()).collect();
    // Equal scores in the order of their keys.
    scores.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    scores.into_iter().take(count).map(|(_, at)| at).collect()
}

/// Reads the words of a query.
pub fn query(words: &[Vec<u8>]) -> Result<Query, Fault> {
    match Query::parse(words, 0).map_err(ClientError::from)? {
        Some((query, end)) if end == words.len() => Ok(query),
        _ => Err(ClientError::from(QueryError::Syntax("these words are no query".into())).into()),
    }
}
