//! Queries over fields of values: carried out by the nodes that have them; values of versioned stores are read with their quorums, and
//! the query is carried out here.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_ids::Computation;
use fondaco_protocol::WireKey;
use fondaco_resp::Protocol;
use fondaco_schema::{Evaluator, Form, Query, QueryError, Schemas, What};

use crate::client::Client;
use crate::error::ClientError;
use crate::options::{Partial, ReadOptions};
use crate::read::BatchReply;

/// A query in a message to a node: the version of the protocol that fields in pairs are encoded in, then the query.
pub fn encode_query(protocol: Protocol, query: &Query) -> Computation {
    let mut bytes = vec![protocol.number() as u8];
    bytes.extend(query.to_bytes());
    Computation::Fields(bytes.into())
}

/// Reads the parameter of [`encode_query`].
///
/// # Errors
/// It is malformed.
pub fn decode_query(parameter: &[u8]) -> Result<(Protocol, Query), QueryError> {
    let protocol = parameter
        .first()
        .and_then(|number| Protocol::from_number((*number).into()));
    let (Some(protocol), Some(query)) = (protocol, parameter.get(1..)) else {
        let reason = "a query in a message begins with the version of the client's protocol";
        return Err(QueryError::Syntax(reason.into()));
    };
    Ok((protocol, Query::of_bytes(query)?))
}

impl From<QueryError> for ClientError {
    fn from(error: QueryError) -> Self {
        Self::Fields(error)
    }
}

impl Client {
    /// Some fields of the values of keys of one store, or scores over them: for each key what
    /// [`Found::into_bytes`](fondaco_schema::Found::into_bytes) describes. Fields are JSON objects, unless the query wants them raw.
    ///
    /// The schemas are those of the store. They have to contain the one that the query names: without one, name the newest.
    ///
    /// # Errors
    /// [`ClientError::Fields`], and any reason why a key cannot be read.
    pub async fn fields(
        &self,
        keys: Vec<WireKey>,
        query: &Query,
        schemas: Option<&Schemas>,
        options: &ReadOptions,
    ) -> Result<BatchReply, ClientError> {
        let mut query = query.clone();
        if let What::Fields { form, .. } = &mut query.what
            && *form == Form::Pairs
        {
            *form = Form::Json;
        }
        let Some(first) = keys.first() else {
            return self.read(keys, options).await;
        };
        let unknown = || ClientError::UnknownStore {
            store: first.store().into(),
        };
        if keys.iter().any(|key| key.store() != first.store()) {
            let reason = "all keys of a query over fields are of one store";
            return Err(QueryError::Type(reason.into()).into());
        }
        let snapshot = self.inner().newest()?;
        let (_, store) = snapshot.directory.store(first.store()).ok_or_else(unknown)?;
        let (value_type, is_versioned) = (store.value_type, store.versioned.is_some());
        let mut evaluator = Evaluator::new(&query, value_type, schemas)?;
        if !is_versioned {
            return self.compute(keys, encode_query(Protocol::Resp3, &query), options).await;
        }
        let mut reply = self.read(keys, options).await?;
        for value in &mut reply.values {
            let Ok(Some(bytes)) = value else { continue };
            let found = evaluator.apply(bytes).map(|found| found.into_bytes().map(Bytes::from));
            *value = found.map_err(|error| ClientError::Value(Arc::new(error)));
            if let (Err(error), Partial::Fail) = (&value, options.partial) {
                return Err(error.clone());
            }
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_is_malformed_is_refused() {
        let words: [&[u8]; 3] = [b"FIELDS", b"1", b"a"];
        let (query, _) = Query::parse(&words, 0).unwrap().unwrap();
        let sent = encode_query(Protocol::Resp3, &query).parameter();
        assert_eq!(decode_query(&sent), Ok((Protocol::Resp3, query)));
        for bytes in [
            &b""[..],
            b"\x09",
            b"\x03",
            b"\x03\xff\xff\xff\xff",
            &sent[..sent.len() - 1],
        ] {
            assert!(decode_query(bytes).is_err(), "{bytes:?}");
        }
    }
}
