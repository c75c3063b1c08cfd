//! Keeps a session with ZooKeeper, and publishes its state.
//!
//! The client library reconnects by itself while its session may live. After that this module takes over. It tries to
//! resume the same session without a time limit, because a ZooKeeper that was down as a whole counts session time
//! from its return. It makes a new one only in two cases:
//!
//! - ZooKeeper reports the session as expired.
//! - A request has no answer for half of the session timeout, while pings are answered. Such a session would live for
//!   ever and be of no use: it is closed, and its task ended, so that its ephemeral entries go.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use zookeeper_client::{Client, CreateMode, Error, SessionId, SessionInfo, SessionState as ClientState};

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
    /// Why the last attempt to connect failed, if waiting does not help.
    pub(super) refusal: Option<Refusal>,
}

/// A reason for a failed connection that has to be corrected by people.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The handshake of TLS failed.
    Tls(String),
    /// The root cannot be used: the answer of ZooKeeper.
    Root(String),
}

/// The tasks of the client library for one session or several in succession, on a thread of their own. They end when
/// this is dropped, whatever they wait for.
struct LibraryTasks {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl LibraryTasks {
    fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new()
            .name("zookeeper-tasks".to_owned())
            // The channel closes when the sender is dropped.
            .spawn(move || drop(runtime.block_on(stopped)))?;
        Ok(Self {
            runtime: handle,
            _stop: stop,
        })
    }

    /// Connects; the session's task is one of these tasks.
    async fn connect(
        &self,
        settings: &ZooKeeperSettings,
        tls: Option<&Tls>,
        known: Option<&SessionInfo>,
    ) -> Result<Client, Error> {
        let mut connector = Client::connector()
            .with_session_timeout(settings.session_timeout())
            .with_fail_eagerly();
        if let Some(digest) = &settings.digest {
            connector = connector.with_auth("digest", digest.as_bytes());
        }
        if let Some(session) = known {
            connector = connector.with_session(session.clone());
        }
        let servers = settings.servers.clone();
        let options = tls.map(|tls| tls.options.clone());
        let connecting = self.runtime.spawn(async move {
            match options {
                Some(options) => connector.with_tls(options).secure_connect(&servers).await,
                None => connector.connect(&servers).await,
            }
        });
        // A task that panicked has printed why.
        connecting.await.unwrap_or(Err(Error::ClientClosed))
    }
}

/// How the use of a session ended.
#[derive(PartialEq, Eq)]
enum Ending {
    /// The library gave it up, or ZooKeeper did.
    Lost,
    /// Requests were not answered.
    Unanswered,
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
            // Among others, the answer to a request whose session's task was ended.
            | Error::UnexpectedError(_)
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
    let mut tasks = None;
    tokio::select! {
        _ = &mut stopped => {}
        () = keep_for_ever(&settings, tls.as_ref(), &links, &mut tasks) => {}
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

async fn keep_for_ever(
    settings: &ZooKeeperSettings,
    tls: Option<&Tls>,
    links: &watch::Sender<Link>,
    tasks: &mut Option<LibraryTasks>,
) {
    let mut known = None;
    let mut counted = None;
    let mut is_out = false;
    loop {
        let own = match tasks.take().map_or_else(LibraryTasks::start, Ok) {
            Ok(started) => tasks.insert(started),
            Err(error) => {
                tracing::error!(%error, "cannot start a thread for the session with ZooKeeper; trying again");
                tokio::time::sleep(RECONNECT).await;
                continue;
            }
        };
        match own.connect(settings, tls, known.as_ref()).await {
            Ok(client) => {
                is_out = false;
                known = Some(client.session().clone());
                if serve(settings, links, &client, &mut counted).await == Ending::Unanswered {
                    let servers = &settings.servers;
                    tracing::warn!(
                        servers,
                        "ZooKeeper answers pings, but no requests; beginning a new session"
                    );
                    links.send_modify(Link::suspend);
                    close(client).await;
                    (known, *tasks) = (None, None);
                    tokio::time::sleep(RECONNECT).await;
                }
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
                let is_news = links.borrow().refusal != refusal.clone().map(Refusal::Tls);
                if !std::mem::replace(&mut is_out, true) || is_news {
                    let reason = refusal.clone().unwrap_or_else(|| error.to_string());
                    tracing::warn!(
                        servers = settings.servers,
                        reason,
                        "no connection to ZooKeeper; trying again"
                    );
                }
                if is_news {
                    links.send_modify(|link| link.refusal = refusal.map(Refusal::Tls));
                }
                tokio::time::sleep(RECONNECT).await;
            }
        }
    }
}

/// Publishes a session's state until it ends. A session that was not counted yet starts a generation.
async fn serve(
    settings: &ZooKeeperSettings,
    links: &watch::Sender<Link>,
    client: &Client,
    counted: &mut Option<SessionId>,
) -> Ending {
    // A request and the pause before it together take at most the session timeout.
    let patience = settings.session_timeout() / 2;
    let session = client.session_id();
    let mut states = client.state_watcher();
    let mut state = states.state();
    loop {
        if state == ClientState::SyncConnected {
            match tokio::time::timeout(patience, prepare(settings, client)).await {
                Ok(Ok(rooted)) => {
                    let is_new = counted.replace(session) != Some(session);
                    links.send_modify(|link| {
                        link.session.generation += u64::from(is_new);
                        link.session.state = SessionState::Connected;
                        link.client = Some(rooted);
                        link.connections += 1;
                        link.refusal = None;
                    });
                    tracing::info!(servers = settings.servers, %session, "connected to ZooKeeper");
                    tokio::select! {
                        changed = states.changed() => state = changed,
                        () = unanswered(client, patience) => return Ending::Unanswered,
                    }
                }
                Ok(Err(error)) => {
                    let pause = match is_loss(&error) {
                        true => RETRY,
                        false => {
                            let root = &settings.root;
                            tracing::error!(root, %error, "cannot use the root in ZooKeeper; check its access rights");
                            links.send_modify(|link| link.refusal = Some(Refusal::Root(error.to_string())));
                            REFUSED
                        }
                    };
                    let changed = tokio::time::timeout(pause, states.changed()).await;
                    state = changed.unwrap_or(state);
                }
                // The answer of a connection that was lost meanwhile cannot come.
                Err(_) if states.peek_state() == ClientState::SyncConnected => return Ending::Unanswered,
                Err(_) => state = states.state(),
            }
        } else {
            tracing::warn!(servers = settings.servers, %state, "the connection to ZooKeeper was lost");
            links.send_modify(Link::suspend);
            if state.is_terminated() {
                return Ending::Lost;
            }
            state = states.changed().await;
        }
    }
}

/// Asks ZooKeeper now and then, and returns when it does not answer for this time. The loss of a connection is an
/// answer.
async fn unanswered(client: &Client, patience: Duration) {
    loop {
        tokio::time::sleep(patience).await;
        if tokio::time::timeout(patience, client.check_stat("/")).await.is_err() {
            return;
        }
    }
}

/// A client below the root, which exists, on a server that has caught up with the leader.
async fn prepare(settings: &ZooKeeperSettings, client: &Client) -> Result<Client, Error> {
    client.sync("/").await?;
    // Not by creating it: that needs a right to its parent, also if it exists.
    match client.get_data(&settings.root).await {
        // Without the right to read it, each operation is refused by itself.
        Ok(_) | Err(Error::NoAuth) => {}
        Err(Error::NoNode) => {
            client
                .mkdir(&settings.root, &CreateMode::Persistent.with_acls(acls(settings)))
                .await?;
        }
        Err(error) => return Err(error),
    }
    let rooted = client.clone().chroot(settings.root.as_str());
    rooted.map_err(|_| Error::BadArguments(&"root"))
}
