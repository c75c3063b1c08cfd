//! Coordination by ZooKeeper, for the processes of a cluster.
//!
//! A separate thread keeps the session: it connects, reconnects, and makes a new session when the old one is lost.
//! Callers, watches and candidates see it as a [`Link`](connection::Link) that comes and goes, and resume when it comes
//! back.
//!
//! - An entry is a node with data. A node without data is only a parent, not an entry.
//! - A revision is the zxid of the write, which ZooKeeper assigns in the order of all writes.
//! - A watch is one persistent recursive watch for each of its prefixes (ZooKeeper 3.6 and later).

mod campaign;
mod changes;
mod connection;
mod settings;
mod tls;
mod watching;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use zookeeper_client::{Acls, Client, Error, Stat};

pub use self::settings::ZooKeeperSettings;
pub use self::tls::ZooKeeperTls;

use self::changes::{Failure, commit, create_ephemeral};
use self::connection::{Link, Refusal};
use self::tls::Tls;
use crate::election::{Election, Lead};
use crate::entry::{Change, Entry, Revision, check_changes};
use crate::error::CoordinationError;
use crate::on_drop::OnDrop;
use crate::path::EntryPath;
use crate::service::{Coordination, Session};
use crate::watch::{Feed, Watch};

/// Pause between two attempts of a call whose answer was lost.
const RETRY: Duration = Duration::from_millis(50);

/// A session with ZooKeeper.
pub struct ZooKeeperCoordination {
    settings: Arc<ZooKeeperSettings>,
    links: watch::Receiver<Link>,
    runtime: Handle,
    candidates: AtomicU64,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ZooKeeperCoordination {
    /// Begins a session. It does not wait for ZooKeeper: until ZooKeeper answers, the session is
    /// [suspended](crate::SessionState::Suspended), and calls fail after their timeout.
    ///
    /// # Errors
    /// Invalid settings, or a thread that cannot be started.
    pub fn connect(settings: ZooKeeperSettings) -> Result<Self, CoordinationError> {
        settings.check()?;
        let tls = settings.tls.as_ref();
        let tls = tls.map(|tls| Tls::new(tls, &settings.servers)).transpose()?;
        let settings = Arc::new(settings);
        let started = |source| CoordinationError::Thread { source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(started)?;
        let (publish, links) = watch::channel(Link::none());
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let keeping = connection::keep(Arc::clone(&settings), tls, publish, stopped);
        let thread = std::thread::Builder::new()
            .name("zookeeper".to_owned())
            .spawn(move || runtime.block_on(keeping))
            .map_err(started)?;
        Ok(Self {
            settings,
            links,
            runtime: handle,
            candidates: AtomicU64::new(0),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Asks ZooKeeper until it answers, or until the timeout. The operation learns whether it is a retry: then the
    /// first attempt may have succeeded.
    fn ask<T, F>(
        &self,
        action: String,
        operation: impl Fn(Client, bool) -> F + Send + 'static,
    ) -> Result<T, CoordinationError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let mut links = self.links.clone();
        let (settings, what) = (Arc::clone(&self.settings), action.clone());
        let asking = async move {
            let mut again = false;
            loop {
                let link = connection::connected(&mut links).await?;
                match operation(link, again).await {
                    Ok(answer) => return Ok(answer),
                    Err(Failure::Final(error)) => return Err(error),
                    Err(Failure::ZooKeeper(error)) if !connection::is_loss(&error) => {
                        let reason = error.to_string();
                        return Err(CoordinationError::Refused { action: what, reason });
                    }
                    Err(Failure::ZooKeeper(error)) => {
                        tracing::debug!(action = what, %error, "the answer of ZooKeeper was lost");
                        again = true;
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        };
        let (answer, answered) = mpsc::sync_channel(1);
        let waited = settings.call_timeout();
        let known = self.links.clone();
        self.runtime.spawn(async move {
            let result = tokio::time::timeout(waited, asking).await;
            let servers = settings.servers.clone();
            let late = |_| {
                Err(match known.borrow().refusal.clone() {
                    Some(Refusal::Tls(reason)) => CoordinationError::Untrusted { action, reason },
                    Some(Refusal::Root(reason)) => CoordinationError::NoRoot {
                        action,
                        root: settings.root.clone(),
                        reason,
                    },
                    None => CoordinationError::Unavailable {
                        action,
                        servers,
                        waited,
                    },
                })
            };
            // The send fails if the caller's thread is gone.
            let _ = answer.send(result.unwrap_or_else(late));
        });
        answered.recv().unwrap_or(Err(CoordinationError::Closed))
    }

    fn commit(&self, action: String, changes: Vec<Change>) -> Result<Option<Revision>, CoordinationError> {
        check_changes(&changes)?;
        let (changes, settings) = (Arc::new(changes), Arc::clone(&self.settings));
        self.ask(action, move |client, again| {
            let (changes, settings) = (Arc::clone(&changes), Arc::clone(&settings));
            async move { commit(&client, acls(&settings), &changes, again).await }
        })
    }
}

impl Coordination for ZooKeeperCoordination {
    fn sync(&self) -> Result<(), CoordinationError> {
        self.ask(
            "wait for the newest metadata entries".to_owned(),
            |client, _| async move { Ok(client.sync("/").await?) },
        )
    }

    fn read(&self, path: &EntryPath) -> Result<Option<Entry>, CoordinationError> {
        let node = node_of(path);
        self.ask(format!("read metadata entry {path:?}"), move |client, _| {
            let read = client.get_data(&node);
            async move { entry(read.await) }
        })
    }

    fn write(&self, path: &EntryPath, bytes: &[u8], expected: Option<Revision>) -> Result<Revision, CoordinationError> {
        let change = Change::Write {
            path: path.clone(),
            bytes: bytes.to_vec(),
            expected,
        };
        let revision = self.commit(format!("write metadata entry {path:?}"), vec![change])?;
        // A write always returns a revision.
        revision.ok_or_else(|| CoordinationError::Conflict { path: path.clone() })
    }

    fn delete(&self, path: &EntryPath, expected: Revision) -> Result<(), CoordinationError> {
        let action = format!("delete metadata entry {path:?}");
        let path = path.clone();
        self.commit(action, vec![Change::Delete { path, expected }]).map(drop)
    }

    fn children(&self, path: &EntryPath) -> Result<Vec<String>, CoordinationError> {
        let node = node_of(path);
        self.ask(format!("list the metadata below {path:?}"), move |client, _| {
            let node = node.clone();
            async move { Ok(names_below(&client, &node).await?) }
        })
    }

    fn read_children(&self, path: &EntryPath) -> Result<BTreeMap<String, Entry>, CoordinationError> {
        let node = node_of(path);
        self.ask(format!("read the metadata below {path:?}"), move |client, _| {
            let node = node.clone();
            async move {
                // Requests are sent when they are made: all of these are under way before the first answer.
                let read = |name: String| {
                    let reading = client.get_data(&format!("{node}/{name}"));
                    (name, reading)
                };
                let reads: Vec<_> = names_below(&client, &node).await?.into_iter().map(read).collect();
                let mut entries = BTreeMap::new();
                for (name, reading) in reads {
                    if let Some(entry) = entry(reading.await)? {
                        entries.insert(name, entry);
                    }
                }
                Ok(entries)
            }
        })
    }

    fn transact(&self, changes: &[Change]) -> Result<Option<Revision>, CoordinationError> {
        match changes {
            [] => Ok(None),
            _ => self.commit("change metadata entries".to_owned(), changes.to_vec()),
        }
    }

    fn create_ephemeral(&self, path: &EntryPath, bytes: &[u8]) -> Result<Revision, CoordinationError> {
        let change = Change::Write {
            path: path.clone(),
            bytes: bytes.to_vec(),
            expected: None,
        };
        check_changes(std::slice::from_ref(&change))?;
        let settings = Arc::clone(&self.settings);
        let (path, bytes) = (path.clone(), Arc::<[u8]>::from(bytes));
        self.ask(
            format!("create ephemeral metadata entry {path:?}"),
            move |client, again| {
                let (path, bytes, settings) = (path.clone(), Arc::clone(&bytes), Arc::clone(&settings));
                async move { create_ephemeral(&client, acls(&settings), &path, &bytes, again).await }
            },
        )
    }

    fn watch(&self, prefixes: &[EntryPath]) -> Result<Watch, CoordinationError> {
        let (watch, feed) = Feed::new();
        let task = self
            .runtime
            .spawn(watching::feed_events(self.links.clone(), prefixes.to_vec(), feed));
        let task = task.abort_handle();
        Ok(watch.ending_with(OnDrop::new(move || task.abort())))
    }

    fn elect(&self, path: &EntryPath, candidate: &[u8]) -> Result<Election, CoordinationError> {
        check_changes(&[Change::Write {
            path: path.clone(),
            bytes: candidate.to_vec(),
            expected: None,
        }])?;
        let lead = Lead::default();
        let (resign, resigned) = oneshot::channel();
        let candidacy = campaign::Candidacy {
            election: node_of(path),
            number: self.candidates.fetch_add(1, Ordering::Relaxed),
            bytes: candidate.to_vec(),
            settings: Arc::clone(&self.settings),
            lead: lead.clone(),
        };
        self.runtime
            .spawn(campaign::run(candidacy, self.links.clone(), resigned));
        let resign = OnDrop::new(move || {
            // The send fails if the session, and the candidate with it, has ended.
            let _ = resign.send(());
        });
        Ok(Election::new(lead, resign))
    }

    fn session(&self) -> Session {
        self.links.borrow().session
    }
}

impl Drop for ZooKeeperCoordination {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread ends in bounded time; its panic, if there was one, was printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The path of an entry's node below the root.
fn node_of(path: &EntryPath) -> String {
    format!("/{path}")
}

fn acls(settings: &ZooKeeperSettings) -> Acls<'static> {
    match settings.digest {
        Some(_) => Acls::creator_all(),
        None => Acls::anyone_all(),
    }
}

/// Decodes the entry of a node.
fn entry(read: Result<(Vec<u8>, Stat), Error>) -> Result<Option<Entry>, Failure> {
    match read {
        Ok((bytes, _)) if bytes.is_empty() => Ok(None),
        Ok((bytes, stat)) => Ok(Some(Entry {
            bytes,
            revision: revision_of(stat.mzxid),
        })),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn revision_of(zxid: i64) -> Revision {
    Revision::new(zxid as u64)
}

async fn names_below(client: &Client, node: &str) -> Result<Vec<String>, Error> {
    let mut names = match client.list_children(node).await {
        Ok(names) => names,
        Err(Error::NoNode) => Vec::new(),
        Err(error) => return Err(error),
    };
    names.retain(|name| EntryPath::is_name(name));
    names.sort_unstable();
    Ok(names)
}
