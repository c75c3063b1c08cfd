//! Requests to the control port. The paths and the meaning of the answers are in `fondaco/client.py` and `store.py`.

use fondaco_admin::{Client, Endpoint};
use fondaco_model::cluster::Topology;
use serde_json::{Map, Value};

use crate::fault::Fault;

/// Sends a request with a body of JSON, and returns the answer. It blocks.
pub fn request(endpoint: &Endpoint, method: &str, path: &str, body: Option<&str>) -> Result<Value, Fault> {
    let client: Client = endpoint.client()?;
    let body: Value = match body {
        Some(text) => serde_json::from_str(text).map_err(|error| Fault::bad_input(error.to_string()))?,
        None => Value::Object(Map::new()),
    };
    Ok(match method {
        "GET" => client.get(path)?,
        "POST" => client.post(path, &body)?,
        "PATCH" => client.patch(path, &body)?,
        "PUT" => client.put(path, &body)?,
        "DELETE" => match News::of(method, path) {
            Some(News::StoreGone(_)) => {
                client.delete(path)?;
                Value::Null
            }
            _ => client.delete_for(path)?,
        },
        other => return Err(Fault::bad_input(format!("unknown method {other:?}"))),
    })
}

/// The changes by a request that a client's next requests depend on.
pub enum News {
    /// The store of the answer has changed.
    Store,
    /// A store was dropped.
    StoreGone(String),
}

impl News {
    /// The changes by a request.
    pub fn of(method: &str, path: &str) -> Option<Self> {
        let of_stores = path.strip_prefix("/v1/stores")?;
        match method {
            "GET" => None,
            "DELETE" => {
                let name = of_stores.strip_prefix('/')?;
                let name = name.split('?').next()?;
                (!name.contains('/')).then(|| Self::StoreGone(name.to_owned()))
            }
            _ => Some(Self::Store),
        }
    }

    /// Whether a topology has them.
    pub fn are_known(&self, answer: &Value, topology: &Topology) -> bool {
        let named = |name: &str| topology.stores.get(name);
        match self {
            Self::StoreGone(name) => named(name).is_none(),
            // The answer to another request has no such members: nothing is waited for.
            Self::Store => answer
                .get("created_unix_ms")
                .and_then(|_| answer.get("name")?.as_str())
                .is_none_or(|name| {
                    let current = answer.get("current_version").and_then(Value::as_u64);
                    named(name).is_some_and(|known| {
                        current.is_none_or(|current| known.current.is_some_and(|known| known.get() == current))
                    })
                }),
        }
    }
}
