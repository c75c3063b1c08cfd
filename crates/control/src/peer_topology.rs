//! What other servers say of the cluster while the coordination service says nothing.
//!
//! A process that is cut off from the service alone would answer from an old topology until nothing in it is
//! true any more. So it asks the nodes that it knows, one after the other, and takes what is newer, part by
//! part: what requests go by never goes back. When the service answers again, what was heard is forgotten: the
//! service knows all that any process can have heard.
//!
//! Requests go by it, and nothing else does: what is fetched, opened, dropped or decided follows from what
//! the service said last.

use std::sync::Arc;
use std::thread::JoinHandle;

use fondaco_client::Client;
use fondaco_model::NodeId;
use fondaco_model::cluster::{ClusterView, Topology};
use fondaco_node::PeerAccess;
use tokio::sync::{Notify, oneshot, watch};

use crate::change_signal::ChangeSignal;
use crate::error::ControlError;
use crate::mirror::Sighting;

/// The topology that requests go by, from a process that knows it.
pub(crate) struct PeerTopology {
    access: PeerAccess,
    /// Notified when a request found the topology to be old.
    wanted: Arc<Notify>,
    /// Rung when something was heard.
    change_signal: Arc<ChangeSignal>,
    /// The view that was looked at last.
    seen: Option<Arc<ClusterView>>,
    /// While the service says nothing.
    silence: Option<Silence>,
}

/// A time in which the service says nothing.
struct Silence {
    /// What the service said last, and all that was told since.
    known: Topology,
    /// None, if there is no process to ask.
    asking: Option<Asking>,
}

/// The thread that asks.
struct Asking {
    told: watch::Receiver<Option<Arc<Topology>>>,
    _stop: oneshot::Sender<()>,
    _thread: JoinHandle<()>,
}

impl PeerTopology {
    pub(crate) fn new(access: PeerAccess, wanted: Arc<Notify>, change_signal: Arc<ChangeSignal>) -> Self {
        Self {
            access,
            wanted,
            change_signal,
            seen: None,
            silence: None,
        }
    }

    /// The topology to go by from now on, if that may be another one than at the last look; `own` is no use to
    /// be asked.
    pub(crate) fn look(&mut self, sighting: &Sighting, own: Option<NodeId>) -> Option<Topology> {
        let view = &sighting.view;
        let is_seen = self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, view));
        self.seen = Some(Arc::clone(view));
        if sighting.is_current {
            let was_silent = self.silence.take().is_some();
            return (was_silent || !is_seen).then(|| Topology::of(view)).flatten();
        }
        match &mut self.silence {
            Some(silence) if is_seen => silence.hear(),
            Some(silence) => {
                silence.known = silence.known.joined(&Topology::of(view)?);
                Some(silence.known.clone())
            }
            None => {
                let known = Topology::of(view)?;
                let asking = self.ask(&known, own).unwrap_or_else(|error| {
                    tracing::warn!(%error, "cannot ask other servers for the topology");
                    None
                });
                let silence = self.silence.insert(Silence { known, asking });
                Some(silence.known.clone())
            }
        }
    }

    /// Begins to ask the known processes, but for this one.
    fn ask(&self, known: &Topology, own: Option<NodeId>) -> Result<Option<Asking>, ControlError> {
        let others = known.nodes.iter().filter(|&(&node, _)| Some(node) != own);
        let others: Vec<String> = others.map(|(_, node)| node.resp.clone()).collect();
        if others.is_empty() {
            return Ok(None);
        }
        let mut builder = Client::builder()
            .seeds(others)
            .topology_wanted(Arc::clone(&self.wanted));
        let PeerAccess {
            user, password, tls, ..
        } = self.access.clone();
        if let Some(password) = password {
            builder = builder.credentials(user, password);
        }
        if let Some(tls) = tls {
            builder = builder.tls(tls);
        }
        let failed = ControlError::io("start", "peer_topology thread");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return Err(failed(error)),
        };
        let guard = runtime.enter();
        let told = builder.follow();
        drop(guard);
        let told = told.map_err(|error| ControlError::InvalidConfig(error.to_string()))?;
        let (stop, mut stopped) = oneshot::channel::<()>();
        let (mut heard, change_signal) = (told.clone(), Arc::clone(&self.change_signal));
        let follow = move || {
            runtime.block_on(async move {
                loop {
                    tokio::select! {
                        // The receiver may have been dropped.
                        _ = &mut stopped => return,
                        changed = heard.changed() => match changed {
                            Ok(()) => change_signal.raise(),
                            Err(_) => return,
                        },
                    }
                }
            });
            // A name that is being looked up does not keep it.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("peer_topology".into()).spawn(follow);
        Ok(Some(Asking {
            told,
            _stop: stop,
            _thread: thread.map_err(failed)?,
        }))
    }
}

impl Silence {
    /// What is known by now, if it is more than before.
    fn hear(&mut self) -> Option<Topology> {
        let told = &mut self.asking.as_mut()?.told;
        if !told.has_changed().unwrap_or(false) {
            return None;
        }
        let told = told.borrow_and_update().clone()?;
        let known = self.known.joined(&told);
        if known == self.known {
            return None;
        }
        tracing::info!(
            epoch = known.epoch,
            revision = known.revision,
            "heard more of the cluster from another server than the coordination service said"
        );
        self.known = known.clone();
        Some(known)
    }
}
