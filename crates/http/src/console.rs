//! `/console/`: the pages for people, which are a part of the program: they need no other server, and no network.

mod files;

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use files::FILES;

use crate::error::ApiError;

/// The content security policy of pages: they may run and show the files of this port, and ask this port.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The names of the files of the pages in a folder.
    fn found(folder: &Path, prefix: &str, names: &mut BTreeSet<String>) {
        for entry in folder.read_dir().unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => found(&entry.path(), &format!("{name}/"), names),
                false if name.ends_with(".rs") || name.ends_with(".md") => {}
                false => assert!(names.insert(name)),
            }
        }
    }

    #[test]
    fn every_file_of_the_pages_is_served() {
        let mut names = BTreeSet::new();
        found(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console"),
            "",
            &mut names,
        );
        let served: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names, served);
    }
}
