//! Requests to the control port. The paths and the meaning of the answers are in `fondaco/control.py`.

use fondaco_admin::{Client, Endpoint};
use serde_json::Value;

use crate::fault::Fault;

/// Sends a request with a body of JSON, and returns the answer as JSON. It blocks.
pub fn request(endpoint: &Endpoint, method: &str, path: &str, body: Option<&str>) -> Result<String, Fault> {
    let client: Client = endpoint.client()?;
    let body: Value = match body {
        Some(text) => serde_json::from_str(text).map_err(|error| Fault::bad_input(error.to_string()))?,
        None => Value::Object(serde_json::Map::new()),
    };
    let answer: Value = match method {
        "GET" => client.get(path)?,
        "POST" => client.post(path, &body)?,
        "PATCH" => client.patch(path, &body)?,
        "PUT" => client.put(path, &body)?,
        "DELETE" => match client.delete(path) {
            Ok(()) => Value::Null,
            Err(error) => return Err(error.into()),
        },
        other => return Err(Fault::bad_input(format!("unknown method {other:?}"))),
    };
    Ok(answer.to_string())
}
