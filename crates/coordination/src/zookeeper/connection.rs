//! Keeps a session with ZooKeeper, and publishes its state.
//!
//! The client library reconnects by itself while its session may live. After that this module takes over: it tries to
//! resume the same session without a time limit, because a ZooKeeper that was down as a whole counts session time from
//! its return. Only when ZooKeeper reports the session as expired does it make a new one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use zookeeper_client::{Client, CreateMode, Error, SessionId, SessionState as ClientState};

use super::settings::ZooKeeperSettings;
use super::tls::{PROBE_MAX, Tls};
use super::{RETRY, acls};
use crate::error::CoordinationError;
use crate::service::{Session, SessionState};

/// Pause between two attempts to connect, when all servers have been tried.
const RECONNECT: Duration = Duration::from_millis(250);

/// Pause between two attempts to create the root when ZooKeeper refuses it.
const REFUSED: Duration = Duration::from_secs(10);

/// How long the end of a session waits for ZooKeeper to confirm, so that ephemeral entries are deleted at once.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// The state of a session, as its users see it.
#[derive(Clone)]
pub(super) struct Link {
    /// The client, rooted; only while it is connected.
    pub(super) client: Option<Client>,
    pub(super) session: Session,
    /// The number of connections so far. When it has grown, events may have been missed.
    pub(super) connections: u64,
    /// Why the last attempt to connect by TLS failed, if TLS was the reason.
    pub(super) refusal: Option<String>,
}

impl Link {
    pub(super) fn none() -> Self {
        Self {
            client: None,
            session: Session {
                generation: 0,
                state: SessionState::Suspended { since: Instant::now() },
            },
            connections: 0,
            refusal: None,
        }
    }

    fn suspend(&mut self) {
        self.client = None;
        if self.session.state == SessionState::Connected {
            self.session.state = SessionState::Suspended { since: Instant::now() };
        }
    }
}

/// Whether a retry may get an answer.
pub(super) fn is_loss(error: &Error) -> bool {
    matches!(
        error,
        Error::ConnectionLoss
            | Error::Custom(_)
            | Error::SessionExpired
            | Error::SessionMoved
            | Error::Timeout
            | Error::ClientClosed
            | Error::NotReadOnly
            | Error::Throttled
    )
}

/// Waits for a connected client.
pub(super) async fn connected(links: &mut watch::Receiver<Link>) -> Result<Client, CoordinationError> {
    loop {
        let link = links.borrow_and_update().clone();
        match (link.client, link.session.state) {
            (Some(client), _) => return Ok(client),
            (None, SessionState::Closed) => return Err(CoordinationError::Closed),
            (None, _) => links.changed().await.map_err(|_| CoordinationError::Closed)?,
        }
    }
}

/// Keeps the session until it is stopped.
pub(super) async fn keep(
    settings: Arc<ZooKeeperSettings>,
    tls: Option<Tls>,
    links: watch::Sender<Link>,
    mut stopped: oneshot::Receiver<()>,
) {
    tokio::select! {
        _ = &mut stopped => {}
        () = keep_for_ever(&settings, tls.as_ref(), &links) => {}
    }
    let client = links.borrow().client.clone();
    links.send_modify(|link| {
        link.client = None;
        link.session.state = SessionState::Closed;
    });
    if let Some(client) = client {
        close(client).await;
    }
}

/// Drops a client, and waits until the session is closed: all other users dropped theirs when they saw the closed link.
async fn close(client: Client) {
    let mut states = client.state_watcher();
    drop(client);
    let closed = async { while !states.changed().await.is_terminated() {} };
    let _ = tokio::time::timeout(CLOSE_MAX, closed).await;
}

async fn keep_for_ever(settings: &ZooKeeperSettings, tls: Option<&Tls>, links: &watch::Sender<Link>) {
    let mut known = None;
    let mut counted = None;
    let mut is_out = false;
    loop {
        let mut connector = Client::connector()
            .with_session_timeout(settings.session_timeout())
            .with_fail_eagerly();
        if let Some(digest) = &settings.digest {
            connector = connector.with_auth("digest", digest.as_bytes());
        }
        if let Some(session) = &known {
            connector = connector.with_session(Clone::clone(session));
        }
        let connected = match tls {
            Some(tls) => {
                let connector = connector.with_tls(tls.options.clone());
                connector.secure_connect(&settings.servers).await
            }
            None => connector.connect(&settings.servers).await,
        };
        match connected {
            Ok(client) => {
                is_out = false;
                known = Some(client.session().clone());
                serve(settings, links, client, &mut counted).await;
            }
            Err(Error::SessionExpired) if known.is_some() => {
                tracing::warn!(servers = settings.servers, "the session with ZooKeeper was lost");
                known = None;
            }
            Err(error) => {
                let refusal = match tls {
                    Some(tls) => {
                        let explained = tokio::time::timeout(PROBE_MAX, tls.explain(&settings.servers)).await;
                        explained.ok().flatten()
                    }
                    None => None,
                };
                let is_news = links.borrow().refusal != refusal;
                if !std::mem::replace(&mut is_out, true) || is_news {
                    let reason = refusal.clone().unwrap_or_else(|| error.to_string());
                    tracing::warn!(
                        servers = settings.servers,
                        reason,
                        "no connection to ZooKeeper; trying again"
                    );
                }
                if is_news {
                    links.send_modify(|link| link.refusal = refusal);
                }
                tokio::time::sleep(RECONNECT).await;
            }
        }
    }
}

/// Publishes a session's state until it is lost. A session that was not counted yet starts a generation.
async fn serve(
    settings: &ZooKeeperSettings,
    links: &watch::Sender<Link>,
    client: Client,
    counted: &mut Option<SessionId>,
) {
    let session = client.session_id();
    let mut states = client.state_watcher();
    let mut state = states.state();
    loop {
        match state {
            ClientState::SyncConnected => match prepare(settings, &client).await {
                Ok(rooted) => {
                    let is_new = counted.replace(session) != Some(session);
                    links.send_modify(|link| {
                        link.session.generation += u64::from(is_new);
                        link.session.state = SessionState::Connected;
                        link.client = Some(rooted);
                        link.connections += 1;
                        link.refusal = None;
                    });
                    tracing::info!(servers = settings.servers, %session, "connected to ZooKeeper");
                }
                Err(error) => {
                    let pause = match is_loss(&error) {
                        true => RETRY,
                        false => {
                            let root = &settings.root;
                            tracing::error!(root, %error, "cannot use the root in ZooKeeper; check its access rights");
                            REFUSED
                        }
                    };
                    let changed = tokio::time::timeout(pause, states.changed()).await;
                    state = changed.unwrap_or(state);
                    continue;
                }
            },
            _ => {
                tracing::warn!(servers = settings.servers, %state, "the connection to ZooKeeper was lost");
                links.send_modify(Link::suspend);
                if state.is_terminated() {
                    return;
                }
            }
        }
        state = states.changed().await;
    }
}

/// A client below the root, which exists, on a server that has caught up with the leader.
async fn prepare(settings: &ZooKeeperSettings, client: &Client) -> Result<Client, Error> {
    client.sync("/").await?;
    client
        .mkdir(&settings.root, &CreateMode::Persistent.with_acls(acls(settings)))
        .await?;
    let rooted = client.clone().chroot(settings.root.as_str());
    rooted.map_err(|_| Error::BadArguments(&"root"))
}
