//! The topology of other servers, used while the coordination service does not answer.
//!
//! A process that alone is cut off from the service would answer from an old topology until nothing in it is true any
//! more. So it asks the nodes that it knows, one after the other, and takes the newer parts of their topologies: the
//! topology of requests never goes back. When the service answers again, these parts are forgotten: the service knows
//! at least as much as any process.
//!
//! Only requests use this topology. Fetching, opening, dropping and decisions follow the last answer of the service.

use std::sync::Arc;
use std::thread::JoinHandle;

use fondaco_catalog::PeerAccess;
use fondaco_client::Client;
use fondaco_model::NodeId;
use fondaco_model::cluster::{ClusterView, Topology};
use tokio::sync::{Notify, oneshot, watch};

use crate::change_signal::ChangeSignal;
use crate::error::ClusterError;
use crate::mirror::Sighting;

/// The topology for requests, in a process that knows it.
pub struct PeerTopology {
    access: PeerAccess,
    /// Notified when a request finds that the topology is old.
    wanted: Arc<Notify>,
    /// Raised when a newer part was received.
    change_signal: Arc<ChangeSignal>,
    /// The view of the last call.
    seen: Option<Arc<ClusterView>>,
    /// Set while the service does not answer.
    silence: Option<Silence>,
}

/// A time in which the service does not answer.
struct Silence {
    /// The last topology of the service, with all parts received since.
    known: Topology,
    /// `None` if there is no process to ask.
    asking: Option<Asking>,
}

/// The thread that asks.
struct Asking {
    topology: watch::Receiver<Option<Arc<Topology>>>,
    _stop: oneshot::Sender<()>,
    _thread: JoinHandle<()>,
}

impl PeerTopology {
    /// The topology of a process that reaches others with `access`.
    pub fn new(access: PeerAccess, wanted: Arc<Notify>, change_signal: Arc<ChangeSignal>) -> Self {
        Self {
            access,
            wanted,
            change_signal,
            seen: None,
            silence: None,
        }
    }

    /// The topology to use from now on, if it may have changed since the last call. `own` is this node, which is not
    /// asked.
    pub fn changed(&mut self, sighting: &Sighting, own: Option<NodeId>) -> Option<Topology> {
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

    /// Begins to ask the known processes, except for this one.
    fn ask(&self, known: &Topology, own: Option<NodeId>) -> Result<Option<Asking>, ClusterError> {
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
        let failed = ClusterError::io("start", "peer_topology thread");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return Err(failed(error)),
        };
        let guard = runtime.enter();
        let topology = builder.follow();
        drop(guard);
        let topology = topology?;
        let (stop, mut stopped) = oneshot::channel::<()>();
        let (mut heard, change_signal) = (topology.clone(), Arc::clone(&self.change_signal));
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
            // A name lookup that still runs does not delay this.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("peer_topology".into()).spawn(follow);
        Ok(Some(Asking {
            topology,
            _stop: stop,
            _thread: thread.map_err(failed)?,
        }))
    }
}

impl Silence {
    /// The present topology, if it has newer parts than before.
    fn hear(&mut self) -> Option<Topology> {
        let topology = &mut self.asking.as_mut()?.topology;
        if !topology.has_changed().unwrap_or(false) {
            return None;
        }
        let topology = topology.borrow_and_update().clone()?;
        let known = self.known.joined(&topology);
        if known == self.known {
            return None;
        }
        tracing::info!(
            epoch = known.epoch,
            revision = known.revision,
            "another server has a newer topology than the last answer of the coordination service"
        );
        self.known = known.clone();
        Some(known)
    }
}
