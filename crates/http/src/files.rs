//! The files of versions, for other nodes: a peer without a replica fetches it here when the source is gone or busy.
//!
//! A file gets its own name only when it is verified and durable, so that any file with such a name may be sent. Only
//! the file names of the format are allowed, so no path leads out of a version's directory. The number of files that
//! are sent at a time is limited; a peer beyond the limit asks another node.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fondaco_api::ErrorResource;
use fondaco_format::is_version_file;
use fondaco_model::{StoreName, VersionNumber};
use futures_core::Stream;
use rustix::fs::{Advice, fadvise};
use tokio::sync::mpsc;

use crate::app::App;
use crate::body::PathTexts;
use crate::error::ApiError;
use crate::limits::FILES_AT_ONCE_MAX;
use crate::other_nodes::ask_a_node;

/// How many seconds a peer beyond the limit should wait.
const RETRY_AFTER_SECONDS: u32 = 1;

/// How much is read and sent at a time, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// How many pieces may wait for a peer that reads slowly.
const PIECES_MAX: usize = 2;

/// How long a peer may take no data before it is given up.
const STALL_TIME_MAX: Duration = Duration::from_secs(30);

/// Send a file of a version, or its end. For other nodes.
#[utoipa::path(get, path = "/v1/stores/{store}/versions/{version}/files/{file}", tag = "versions", params(
    ("store" = String, Path, description = "The store"),
    ("version" = u64, Path, description = "The version"),
    ("file" = String, Path, description = "The name of the file in the version's manifest"),
    ("Range" = Option<String>, Header, description = "`bytes=FROM-` or `bytes=FROM-TO`"),
), responses(
    (status = 200, description = "The file", body = Vec<u8>, content_type = "application/octet-stream"),
    (status = 206, description = "The requested range", body = Vec<u8>, content_type = "application/octet-stream"),
    (status = "default", description = "An error: invalid_request, file_not_found, range_not_satisfiable, busy", body = ErrorResource),
))]
pub(super) async fn get(
    State(app): State<App>,
    PathTexts((store, version, name)): PathTexts<(String, String, String)>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let what = format!("version {version} of store {store:?}");
    let store: StoreName = store.parse().map_err(|error| ApiError::invalid(format!("{error}")))?;
    let version: VersionNumber = version.parse().map_err(|error| ApiError::invalid(format!("{error}")))?;
    if app.agent.is_none() {
        return Err(ask_a_node(&app, "this process holds no versions"));
    }
    let dirs = move |app: &App| {
        let agent = app.agent.as_ref();
        agent.map_or_else(Vec::new, |agent| agent.dirs_of(&store, version).into())
    };
    send_from(app, dirs, name, &what, &headers).await
}

/// Sends a file of a version, or the requested range, from the first directory that has it. `what` names the version in
/// errors.
pub(super) async fn send_from(
    app: App,
    dirs: impl FnOnce(&App) -> Vec<PathBuf> + Send + 'static,
    name: String,
    what: &str,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let not_found = format!("no file {name:?} of {what} is here");
    let not_found = || ApiError::new("file_not_found", not_found.clone());
    if !is_version_file(&name) {
        return Err(not_found());
    }
    let Ok(permit) = Arc::clone(&app.limits.files).try_acquire_owned() else {
        let message = format!("{FILES_AT_ONCE_MAX} files are being sent: try again, or ask another node");
        let mut response = ApiError::new("busy", message).into_response();
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        return Ok(response);
    };
    let opened = app.blocking(move |app| {
        let mut dirs = dirs(app).into_iter();
        Ok(dirs.find_map(|dir| open(&dir.join(&name)).ok()))
    });
    let (file, bytes) = opened.await?.ok_or_else(not_found)?;
    let range = headers.get(header::RANGE).map(|range| parse_range(range, bytes));
    let (status, from, to) = match range {
        None => (StatusCode::OK, 0, bytes),
        Some(Some((from, to))) => (StatusCode::PARTIAL_CONTENT, from, to),
        Some(None) => {
            let message = format!("the file has {bytes} bytes: ask for bytes=FROM- or bytes=FROM-TO within them");
            return Err(ApiError::new("range_not_satisfiable", message));
        }
    };
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    tokio::spawn(async move {
        let _permit = permit;
        send(file, from, to, sender).await;
    });
    let mut response = Response::new(Body::from_stream(Pieces(receiver)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(to - from));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status == StatusCode::PARTIAL_CONTENT
        && let Ok(range) = HeaderValue::from_str(&format!("bytes {from}-{}/{bytes}", to.saturating_sub(1)))
    {
        headers.insert(header::CONTENT_RANGE, range);
    }
    Ok(response)
}

fn open(path: &std::path::Path) -> io::Result<(File, u64)> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    // A file that is read once for a peer must not evict pages that live traffic uses. It is a hint: not all kernels
    // support it.
    let _ = fadvise(&file, 0, None, Advice::NoReuse);
    Ok((file, bytes))
}

/// The bounds of a requested range; `None` if it is invalid.
fn parse_range(range: &HeaderValue, bytes: u64) -> Option<(u64, u64)> {
    let (from, to) = range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let from: u64 = from.parse().ok()?;
    let to = match to {
        "" => bytes,
        last => last.parse::<u64>().ok()?.saturating_add(1).min(bytes),
    };
    (from < to).then_some((from, to))
}

/// Reads piece by piece, each when the queue has room, so that a slow peer holds no thread.
async fn send(file: File, from: u64, to: u64, sender: mpsc::Sender<io::Result<Bytes>>) {
    let file = Arc::new(file);
    let mut at = from;
    while at < to {
        let length = PIECE_BYTES.min((to - at) as usize);
        let reading = Arc::clone(&file);
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; length];
            reading.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
        });
        let piece = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let failed = piece.is_err();
        let sent = tokio::time::timeout(STALL_TIME_MAX, sender.send(piece)).await;
        if failed || !matches!(sent, Ok(Ok(()))) {
            return;
        }
        at += length as u64;
    }
}

/// The pieces as the stream of a response body.
struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_within_the_file() {
        let range = |text: &str| parse_range(&HeaderValue::from_str(text).unwrap(), 100);
        assert_eq!(range("bytes=0-"), Some((0, 100)));
        assert_eq!(range("bytes=10-19"), Some((10, 20)));
        assert_eq!(range("bytes=90-500"), Some((90, 100)));
        for text in ["bytes=100-", "bytes=-5", "bytes=5-4", "lines=1-2", "bytes=a-b"] {
            assert_eq!(range(text), None, "{text}");
        }
    }
}
