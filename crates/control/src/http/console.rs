//! `/console/`: the pages for people, which are a part of the program: they need no other server, and no network.

mod files;

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use super::error::ApiError;
use files::FILES;

/// What pages may do: run and show what this port gives them, and ask this port.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The first page.
pub(super) async fn redirect() -> Redirect {
    Redirect::permanent("/console/")
}

/// The first page.
pub(super) async fn index() -> Result<Response, ApiError> {
    answer("index.html")
}

/// A file of the pages.
pub(super) async fn file(Path(file): Path<String>) -> Result<Response, ApiError> {
    answer(&file)
}

fn answer(name: &str) -> Result<Response, ApiError> {
    let found = FILES.iter().find(|(known, _)| *known == name);
    let Some((_, content)) = found else {
        return Err(ApiError::new("file_not_found", "the console has no such file"));
    };
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let mut response = (StatusCode::OK, Body::from(*content)).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Another build of the program has other files.
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}
