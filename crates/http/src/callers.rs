//! The caller of a request: another process of the cluster, a caller with the token, or a user with a role, by password or by the
//! cookie of a session.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fondaco_catalog::{PasswordDigest, SharedAccess, User};
use fondaco_cluster::{Mirror, as_user};
use fondaco_model::StoreName;
use fondaco_model::cluster::{ControlRole, UserRecord};
use fondaco_protocol::{SessionKey, now_unix_ms, proof};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The name of the cookie of a session.
const COOKIE: &str = "fondaco-session";

/// The header that a browser sends with changes: other web pages cannot know its value.
pub(super) const CSRF_HEADER: &str = "fondaco-csrf";

/// How long a session lasts, in milliseconds.
const SESSION_MS: u64 = 12 * 3_600_000;

/// The caller of a request.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// The name, for people; empty where the port asks for nothing.
    pub(super) name: String,
    pub(super) role: ControlRole,
    /// Whether it is another process of the cluster.
    pub(super) is_node: bool,
    /// The rights on stores; `None` is all.
    pub(super) user: Option<User>,
    /// The value that changes must show, if a cookie proves the caller.
    pub(super) csrf: Option<String>,
}

impl Caller {
    /// A caller with all rights.
    pub(super) fn admin(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            role: ControlRole::Admin,
            is_node: false,
            user: None,
            csrf: None,
        }
    }

    /// Another process of the cluster.
    pub(super) fn node() -> Self {
        Self {
            is_node: true,
            ..Self::admin("node")
        }
    }

    /// Whether the caller may read a store; of all stores without a name.
    pub(super) fn may_read(&self, store: Option<&StoreName>) -> bool {
        match (&self.user, store) {
            (None, _) => true,
            (Some(user), Some(store)) => user.may_read(store),
            (Some(user), None) => user.stores.iter().chain(&user.writes).any(|pattern| pattern == "*"),
        }
    }
}

/// Recognises users of the cluster.
pub struct Users {
    /// The cluster, which has the users.
    pub mirror: Mirror,
    /// Verifies passwords.
    pub access: Arc<SharedAccess>,
    /// Signs the cookies of sessions.
    pub key: SessionKey,
}

/// The content of a session's cookie.
#[derive(Serialize, Deserialize)]
struct SessionText {
    /// The user; `None` is a caller with the token.
    user: Option<String>,
    /// The fingerprint of the user's password: another password ends the session.
    password: String,
    csrf: String,
    until_unix_ms: u64,
}

impl Users {
    /// The user whom a request names with a password (`Basic`) or a session.
    pub(super) async fn of(&self, headers: &HeaderMap) -> Option<Caller> {
        match basic(headers) {
            Some((name, password)) => self.with_password(&name, &password).await,
            None => self.of_session(headers),
        }
    }

    /// The user with this password and a role.
    pub(super) async fn with_password(&self, name: &str, password: &str) -> Option<Caller> {
        let record = self.record(name)?;
        let hash: Arc<str> = record.password.as_str().into();
        let digest = PasswordDigest::of(password.as_bytes());
        let is_right = self.access.verify(name, &hash, digest, password.as_bytes()).await;
        is_right.then(|| caller(&record)).flatten()
    }

    fn record(&self, name: &str) -> Option<UserRecord> {
        let view = self.mirror.view();
        let user = view.users.get(&name.parse().ok()?)?;
        Some(user.record.clone())
    }

    /// Begins a session: its cookie, and the caller with the value that changes must show.
    pub(super) fn begin(&self, mut caller: Caller, is_secure: bool) -> Option<(String, Caller)> {
        let csrf = proof::nonce().ok()?;
        let user = caller.user.as_ref().map(|user| user.name.clone());
        let password = match &user {
            None => String::new(),
            Some(name) => fingerprint(&self.record(name)?),
        };
        let text = SessionText {
            user,
            password,
            csrf: csrf.clone(),
            until_unix_ms: now_unix_ms() + SESSION_MS,
        };
        let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&text).ok()?);
        let tag = self.key.sign(&text);
        let secure = if is_secure { "; Secure" } else { "" };
        let seconds = SESSION_MS / 1000;
        caller.csrf = Some(csrf);
        let cookie = format!("{COOKIE}={text}.{tag}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}");
        Some((cookie, caller))
    }

    /// The cookie that ends a session.
    pub(super) fn end() -> String {
        format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0")
    }

    fn of_session(&self, headers: &HeaderMap) -> Option<Caller> {
        let cookies = headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|value| value.split(';'));
        let value = cookies.find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))?;
        let (text, tag) = value.split_once('.')?;
        if !self.key.verifies(text, tag) {
            return None;
        }
        let session: SessionText = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        if session.until_unix_ms < now_unix_ms() {
            return None;
        }
        let caller = match &session.user {
            None => Caller::admin("token"),
            Some(name) => {
                let record = self.record(name)?;
                if fingerprint(&record) != session.password {
                    return None;
                }
                caller(&record)?
            }
        };
        Some(Caller {
            csrf: Some(session.csrf),
            ..caller
        })
    }
}

/// A user as a caller; `None` without a role.
fn caller(record: &UserRecord) -> Option<Caller> {
    Some(Caller {
        name: record.name.to_string(),
        role: record.role?,
        is_node: false,
        user: Some(as_user(record)),
        csrf: None,
    })
}

/// The fingerprint of a password, which does not disclose the password.
fn fingerprint(record: &UserRecord) -> String {
    hex::encode(&Sha256::digest(record.password.as_bytes())[..8])
}

fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let encoded = given.strip_prefix("Basic ")?;
    let text = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}
