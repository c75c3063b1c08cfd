//! `/v1/session`: signing in and out, for browsers.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fondaco_api::{ErrorResource, SessionResource};
use serde::Deserialize;
use subtle::ConstantTimeEq;
use utoipa::ToSchema;

use crate::app::App;
use crate::body::JsonBody;
use crate::callers::{Caller, Users};
use crate::error::ApiError;

/// How a wrong password is slowed down.
const WRONG_PASSWORD_PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

/// The proof of a caller.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Credentials {
    /// The name of a user of the cluster who has a role.
    user: Option<String>,
    /// The user's password.
    password: Option<String>,
    /// The token, instead of user and password.
    token: Option<String>,
}

/// Show the user who is signed in.
#[utoipa::path(get, path = "/v1/session", tag = "access", security(()), responses(
    (status = 200, description = "The session", body = SessionResource),
    (status = "default", description = "An error: unauthorized", body = ErrorResource),
))]
pub(super) async fn show(State(app): State<App>, request: Request) -> Result<Json<SessionResource>, ApiError> {
    match request.extensions().get::<Caller>() {
        Some(caller) => Ok(Json(resource(&app, caller))),
        None => Err(ApiError::new("unauthorized", "sign in first: POST /v1/session")),
    }
}

/// Sign in: the answer sets a cookie. Changes must then have the header `fondaco-csrf`.
#[utoipa::path(post, path = "/v1/session", tag = "access", security(()), request_body = Credentials, responses(
    (status = 200, description = "The session", body = SessionResource),
    (status = "default", description = "An error: invalid_request, unauthorized", body = ErrorResource),
))]
pub(super) async fn begin(
    State(app): State<App>,
    headers: HeaderMap,
    JsonBody(credentials): JsonBody<Credentials>,
) -> Result<Response, ApiError> {
    let caller = match (&app.users, &app.token) {
        (Some(users), Some(token)) => known(users, token, &credentials).await,
        // The port asks for nothing.
        _ => return Ok(Json(resource(&app, &Caller::admin(""))).into_response()),
    };
    let Some(caller) = caller else {
        let user = credentials.user.as_deref().unwrap_or("");
        tracing::warn!(target: "audit", user, "a wrong user, password or token at the control port");
        tokio::time::sleep(WRONG_PASSWORD_PAUSE).await;
        return Err(ApiError::new(
            "unauthorized",
            "wrong user or password, wrong token, or a user without a role",
        ));
    };
    let is_secure = app.is_tls || headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    let begun = app.users.as_ref().and_then(|users| users.begin(caller, is_secure));
    let (cookie, caller) = begun.ok_or_else(|| ApiError::new("internal", "the session cannot be made"))?;
    let mut response = Json(resource(&app, &caller)).into_response();
    let cookie = HeaderValue::try_from(cookie).map_err(|_| ApiError::new("internal", "the cookie cannot be made"))?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Sign out.
#[utoipa::path(delete, path = "/v1/session", tag = "access", security(()), responses(
    (status = 204, description = "The cookie is deleted"),
    (status = "default", description = "An error", body = ErrorResource),
))]
pub(super) async fn end() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Ok(cookie) = HeaderValue::try_from(Users::end()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

async fn known(users: &Users, token: &str, credentials: &Credentials) -> Option<Caller> {
    if let Some(given) = &credentials.token {
        return bool::from(given.as_bytes().ct_eq(token.as_bytes())).then(|| Caller::admin("token"));
    }
    let (user, password) = (credentials.user.as_ref()?, credentials.password.as_ref()?);
    users.with_password(user, password).await
}

fn resource(app: &App, caller: &Caller) -> SessionResource {
    SessionResource {
        user: (!caller.name.is_empty()).then(|| caller.name.clone()),
        role: caller.role,
        sign_in: app.token.is_some(),
        csrf: caller.csrf.clone(),
    }
}
