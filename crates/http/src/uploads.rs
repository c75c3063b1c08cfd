//! `/v1/stores/{store}/uploads`: uploading a version to a node, for clients whose disk no node can read.
//!
//! The manifest comes first and names the files. A file is sent from its beginning, in any number of requests; each
//! request's body is written as it arrives, so bytes that arrived before a connection broke are not sent again. Then
//! the upload is pushed like any other source.

use std::future::poll_fn;
use std::pin::Pin;

use axum::Json;
use axum::body::{BodyDataStream, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use fondaco_agent::{AgentWork, Turn, Upload, UploadError, UploadSource, is_pushing};
use fondaco_api::{ErrorResource, UploadFileResource, UploadResource};
use fondaco_cluster::ClusterError;
use fondaco_decisions::operator::OperatorError;
use fondaco_format::Checksum;
use fondaco_model::{NodeId, StoreName};
use futures_core::Stream;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::{BytesBody, PathTexts, QueryOf, StorePath};
use crate::error::ApiError;
use crate::files;
use crate::pushes::check_kind;

/// The longest manifest that is accepted, in bytes: some 100 000 chunks.
pub(super) const MANIFEST_BYTES_MAX: usize = 64 << 20;

/// How much of a refused request's body is read, in bytes, so that the client sees the answer and not a broken
/// connection.
const REFUSED_BYTES_MAX: usize = 16 << 20;

/// How many bytes of a body are collected before they are written.
const PIECE_BYTES: usize = 256 << 10;

/// The position of a request's body in its file.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Start {
    /// The number of bytes before it in the file. All of these must have arrived.
    offset: u64,
}

/// Begin to upload a version to this node, or ask how much of it has arrived: the body is its manifest. Refused before
/// any file is sent if the files do not fit on the disk.
#[utoipa::path(post, path = "/v1/stores/{store}/uploads", tag = "pushes", params(("store" = String, Path, description = "The store")), request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The version's manifest.json"), responses(
    (status = 200, description = "The upload", body = UploadResource),
    (status = "default", description = "An error: invalid_request, store_not_found, versioned_store, no_storage, invalid_source, not_enough_space, too_many_uploads", body = ErrorResource),
))]
pub(super) async fn begin(
    State(app): State<App>,
    StorePath(name): StorePath,
    BytesBody(manifest): BytesBody,
) -> Result<Json<UploadResource>, ApiError> {
    let upload = app.blocking(move |app| {
        check_kind(app, &name)?;
        let agent = storage(app)?;
        let view = app.operator.mirror().view();
        let partitions = view.buildable().ok_or(OperatorError::NoCluster)?;
        let node = number(agent)?;
        let free_space = |bytes| agent.free_space(bytes);
        let upload = agent.uploads().begin(&name, partitions, &manifest, free_space)?;
        Ok(resource(&upload, node))
    });
    Ok(Json(upload.await?))
}

/// Show how much of an upload has arrived.
#[utoipa::path(get, path = "/v1/stores/{store}/uploads/{upload}", tag = "pushes", params(
    ("store" = String, Path, description = "The store"),
    ("upload" = String, Path, description = "The upload"),
), responses(
    (status = 200, description = "The upload", body = UploadResource),
    (status = "default", description = "An error: invalid_request, upload_not_found, no_storage", body = ErrorResource),
))]
pub(super) async fn show(
    State(app): State<App>,
    PathTexts((store, id)): PathTexts<(String, String)>,
) -> Result<Json<UploadResource>, ApiError> {
    let (store, id) = parse(&store, &id)?;
    let upload = app.blocking(move |app| {
        let agent = storage(app)?;
        Ok(resource(&*agent.uploads().get(&store, id)?, number(agent)?))
    });
    Ok(Json(upload.await?))
}

/// Delete an upload.
#[utoipa::path(delete, path = "/v1/stores/{store}/uploads/{upload}", tag = "pushes", params(
    ("store" = String, Path, description = "The store"),
    ("upload" = String, Path, description = "The upload"),
), responses(
    (status = 204, description = "The upload is deleted"),
    (status = "default", description = "An error: invalid_request, upload_not_found, no_storage, push_in_progress", body = ErrorResource),
))]
pub(super) async fn delete(
    State(app): State<App>,
    PathTexts((store, id)): PathTexts<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let (store, id) = parse(&store, &id)?;
    app.blocking(move |app| {
        let agent = storage(app)?;
        let source = UploadSource {
            node: number(agent)?,
            id,
        };
        if app
            .operator
            .store(&store)
            .is_ok_and(|record| is_pushing(&record, source))
        {
            return Err(UploadError::Pushing { store, id }.into());
        }
        let dir = agent.uploads().forget(&store, id)?;
        Ok(agent.delete(&dir)?)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send the next bytes of a file. When it answers, they are durable, and a complete file is verified. After an error,
/// the part of the body that arrived counts: ask how much, and continue from there.
#[utoipa::path(put, path = "/v1/stores/{store}/uploads/{upload}/files/{file}", tag = "pushes", params(
    ("store" = String, Path, description = "The store"),
    ("upload" = String, Path, description = "The upload"),
    ("file" = String, Path, description = "The name of the file in the version's manifest"),
    Start,
), request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The bytes"), responses(
    (status = 200, description = "How much of the file has arrived", body = UploadFileResource),
    (status = "default", description = "An error: invalid_request, upload_not_found, file_not_found, wrong_offset, upload_busy, body_too_large, upload_corrupt, not_enough_space, no_storage", body = ErrorResource),
))]
pub(super) async fn put(
    State(app): State<App>,
    PathTexts((store, id, file)): PathTexts<(String, String, String)>,
    QueryOf(Start { offset }): QueryOf<Start>,
    request: Request,
) -> Result<Json<UploadFileResource>, ApiError> {
    let body = request.into_body();
    let length = body.size_hint().exact();
    let mut body = body.into_data_stream();
    let taken = async {
        let (store, id) = parse(&store, &id)?;
        let turn = app.blocking(move |app| Ok(storage(app)?.uploads().turn(&store, id, &file, offset, length)?));
        let turn = receive(&app, turn.await?, &mut body).await?;
        app.blocking(|_| Ok(turn.end()?)).await
    };
    match taken.await {
        Ok(file) => Ok(Json(file)),
        Err(error) => {
            drain(&mut body).await;
            Err(error)
        }
    }
}

/// Send a file of an upload, or its end. For other nodes, while the upload is being pushed.
#[utoipa::path(get, path = "/v1/stores/{store}/uploads/{upload}/files/{file}", tag = "pushes", params(
    ("store" = String, Path, description = "The store"),
    ("upload" = String, Path, description = "The upload"),
    ("file" = String, Path, description = "The name of the file in the version's manifest"),
    ("Range" = Option<String>, Header, description = "`bytes=FROM-` or `bytes=FROM-TO`"),
), responses(
    (status = 200, description = "The file", body = Vec<u8>, content_type = "application/octet-stream"),
    (status = 206, description = "The requested range", body = Vec<u8>, content_type = "application/octet-stream"),
    (status = "default", description = "An error: invalid_request, upload_not_found, file_not_found, range_not_satisfiable, busy, no_storage", body = ErrorResource),
))]
pub(super) async fn file(
    State(app): State<App>,
    PathTexts((store, id, name)): PathTexts<(String, String, String)>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (store, id) = parse(&store, &id)?;
    let what = format!("upload {id} for store {store:?}");
    let upload = app
        .blocking(move |app| Ok(storage(app)?.uploads().get(&store, id)?))
        .await?;
    let dirs = move |_: &App| vec![upload.dir().to_owned()];
    files::send_from(app, dirs, name, &what, &headers).await
}

/// Writes a body as it arrives, a piece at a time. If this is dropped because the connection broke, the pieces so far
/// have arrived.
async fn receive(app: &App, mut turn: Turn, body: &mut BodyDataStream) -> Result<Turn, ApiError> {
    let mut piece = Vec::new();
    loop {
        match next(body).await {
            Some(Ok(bytes)) => {
                turn.check_length(piece.len() + bytes.len())?;
                piece.extend_from_slice(&bytes);
                if piece.len() >= PIECE_BYTES {
                    turn = append(app, turn, std::mem::take(&mut piece)).await?;
                }
            }
            Some(Err(error)) => {
                let turn = append(app, turn, piece).await?;
                let file = turn.shown();
                tracing::debug!(file = %file.name, %error, "the body of an upload ended early");
                let (file, arrived) = (file.name, file.bytes_arrived);
                return Err(UploadError::CutShort { file, arrived }.into());
            }
            None => return append(app, turn, piece).await,
        }
    }
}

/// Reads the rest of a body, up to a limit.
pub(super) async fn drain(body: &mut BodyDataStream) {
    let mut drained = 0;
    while let Some(Ok(bytes)) = next(body).await {
        drained += bytes.len();
        if drained > REFUSED_BYTES_MAX {
            return;
        }
    }
}

async fn next(body: &mut BodyDataStream) -> Option<Result<Bytes, axum::Error>> {
    poll_fn(|context| Pin::new(&mut *body).poll_next(context)).await
}

async fn append(app: &App, mut turn: Turn, piece: Vec<u8>) -> Result<Turn, ApiError> {
    if piece.is_empty() {
        return Ok(turn);
    }
    app.blocking(move |_| {
        turn.append(&piece)?;
        Ok(turn)
    })
    .await
}

/// The part of this process that has a disk.
fn storage(app: &App) -> Result<&AgentWork, ApiError> {
    app.agent.as_deref().ok_or_else(|| {
        let view = app.operator.mirror().view();
        let there = view.nodes.iter().filter(|(node, _)| view.is_live(**node));
        let nodes = there.map(|(_, node)| node.record.http.clone()).collect();
        UploadError::NoStorage { nodes }.into()
    })
}

fn number(agent: &AgentWork) -> Result<NodeId, ApiError> {
    Ok(agent.node().ok_or(ClusterError::NothingSeen)?)
}

fn parse(store: &str, id: &str) -> Result<(StoreName, Checksum), ApiError> {
    let store: StoreName = store.parse().map_err(|error| ApiError::invalid(format!("{error}")))?;
    let id = id.parse().map_err(|_| {
        ApiError::invalid("invalid upload: it is the checksum of a manifest, 16 digits from 0 to f".to_owned())
    })?;
    Ok((store, id))
}

fn resource(upload: &Upload, node: NodeId) -> UploadResource {
    let files: Vec<UploadFileResource> = upload.files().collect();
    let bytes_total = upload.bytes();
    UploadResource {
        id: upload.id().to_string(),
        source: UploadSource { node, id: upload.id() }.to_string(),
        complete: files.iter().all(|file| file.complete),
        bytes_total,
        bytes_arrived: bytes_total - upload.bytes_missing(),
        files,
    }
}
