//! The right that a caller needs for each operation.

use axum::http::Method;
use fondaco_model::cluster::ControlRole;

/// The right that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// Nothing: callers have nothing to show yet, and the answers disclose nothing.
    Open,
    /// This role at least.
    Role(ControlRole),
    /// This role at least, and the right to read the stores that it reads.
    Data(ControlRole),
}

/// The right that an operation needs, given the template of its path.
pub(super) fn right(path: &str, method: &Method) -> Right {
    use ControlRole::{Admin, Operator, Viewer};
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    match path {
        "/" | "/healthz" | "/readyz" | "/v1/session" => Right::Open,
        path if path.starts_with("/console") => Right::Open,
        "/v1/stores/{store}/keys/{key}"
        | "/v1/stores/{store}/versions/{version}/keys/{key}"
        | "/v1/stores/{store}/changes"
        | "/v1/lookup"
        | "/v1/graphs/{store}/query" => Right::Data(Viewer),
        // Whole stores, as nodes and backups read them.
        "/v1/stores/{store}/versions/{version}/files/{file}"
        | "/v1/stores/{store}/uploads/{upload}/files/{file}"
        | "/v1/stores/{store}/partitions/{partition}/records"
        | "/v1/stores/{store}/hints"
        | "/v1/stores/{store}/stream/changes/{partition}"
        | "/v1/stores/{store}/changes/part"
            if is_read =>
        {
            Right::Data(Operator)
        }
        _ if is_read => Right::Role(Viewer),
        "/v1/settings" | "/v1/cluster/adopt" | "/v1/losses/{loss}/accept" | "/v1/load" => Right::Role(Admin),
        path if path.starts_with("/v1/users") || path.starts_with("/v1/dev") => Right::Role(Admin),
        _ => Right::Role(Operator),
    }
}

/// Whether an operation changes something.
pub(super) fn is_change(path: &str, method: &Method) -> bool {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    !is_read && !matches!(path, "/v1/lookup" | "/v1/graphs/{store}/query" | "/v1/load")
}
