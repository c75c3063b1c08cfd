//! A running process of a cluster: its addresses, its fatal error if any, and its stop, in the reverse order of its
//! start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fondaco_agent::{AgentError, AgentWork, CompactionWork, MEMORY_AFTER, ReportingWork};
use fondaco_api::Role;
use fondaco_cluster::{Mirror, RouterWork};
use fondaco_controller::ControllerWork;
use fondaco_coordination::Coordination;
use fondaco_decisions::check_protocol;
use fondaco_node::Server;
use tokio::sync::{oneshot, watch};

use crate::error::RoleError;
use crate::traces::TracesWork;

/// How long the start of a process waits for a coordination service that it shares with others. Then it serves from the
/// view that it remembers, and continues to ask.
const FIRST_SIGHT_TIME_MAX: Duration = Duration::from_secs(10);

/// How long the start of a cluster of one waits for itself: as long as it takes to open what it has.
const OWN_SIGHT_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A running process.
pub struct Running {
    pub(crate) resp_addr: Option<SocketAddr>,
    pub(crate) http_addr: SocketAddr,
    pub(crate) agent: Option<Arc<AgentWork>>,
    pub(crate) router: Option<Arc<RouterWork>>,
    pub(crate) controller: Option<Arc<ControllerWork>>,
    pub(crate) reporting: Option<ReportingWork>,
    pub(crate) compaction: Option<CompactionWork>,
    pub(crate) traces: TracesWork,
    pub(crate) coordination: Arc<dyn Coordination>,
    pub(crate) mirror: JoinHandle<()>,
    pub(crate) resp: Option<Server>,
    pub(crate) ended: watch::Sender<bool>,
    pub(crate) http: JoinHandle<()>,
    pub(crate) role: Role,
    pub(crate) view: Mirror,
    pub(crate) begun: Instant,
}

impl Running {
    /// The RESP address; `None` if it does not serve RESP.
    pub fn resp_addr(&self) -> Option<SocketAddr> {
        self.resp_addr
    }

    /// The HTTP address.
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// Waits until the process must stop, and returns the reason. It then serves nothing any more, and must still be shut
    /// down. For most processes this never happens.
    pub fn failed(&self) -> impl Future<Output = Arc<AgentError>> + use<> {
        let fatal = self.agent.as_ref().map(|agent| agent.fatal());
        async move {
            if let Some(mut fatal) = fatal
                && let Ok(error) = fatal.wait_for(Option::is_some).await
                && let Some(error) = error.clone()
            {
                return error;
            }
            std::future::pending().await
        }
    }

    /// Waits at most for `patience` until it serves everything that it should, or from the view that it remembers.
    /// Returns whether it does. A process that shares a coordination service with others does not wait for that service
    /// for ever: it starts without, and clients get `LOADING` until it knows the cluster.
    ///
    /// # Errors
    /// Why it must not take part in its cluster. It must still be shut down.
    pub fn wait_serving(&self, patience: Duration) -> Result<bool, RoleError> {
        let timeout = match self.role {
            Role::Single => OWN_SIGHT_TIME_MAX,
            Role::Node | Role::Router | Role::Controller => FIRST_SIGHT_TIME_MAX,
        };
        let left = timeout.saturating_sub(self.begun.elapsed());
        let patience = patience.min(left);
        let is_over = || self.begun.elapsed() >= timeout;
        if let Some(agent) = &self.agent {
            let settled = agent.wait_settled(self.begun, MEMORY_AFTER, patience);
            return Ok(settled.map_err(RoleError::Unfit)? || is_over());
        }
        let is_seen = self.view.wait_until(patience, |sighting| {
            !sighting.view.remembered && sighting.view.cluster.is_some()
        });
        check_protocol(&self.view.view())?;
        if let Some(router) = self.router.as_ref().filter(|_| is_seen) {
            router.wait_looked(left);
        }
        Ok(is_seen || is_over())
    }

    /// Stops: takes no new requests and interrupts fetches, which continue at the next start. The data directory is
    /// unlocked when this returns.
    pub async fn shutdown(self) {
        let (sender, done) = oneshot::channel();
        // Stopping waits for threads, which an event loop must not.
        let stopping = std::thread::Builder::new().name("stop".into()).spawn(move || {
            self.stop();
            // If the future was dropped, there is no receiver.
            let _ = sender.send(());
        });
        match stopping {
            // Only a panic of the thread drops the sender, and it was printed.
            Ok(_) => drop(done.await),
            Err(error) => tracing::error!(%error, "cannot start the thread that stops the process"),
        }
    }

    pub(crate) fn stop(self) {
        drop(self.compaction);
        drop(self.reporting);
        // The server may have ended by itself; then there is no receiver.
        let _ = self.ended.send(true);
        if self.http.join().is_err() {
            tracing::error!("the control thread ended by a panic");
        }
        drop(self.controller);
        let streams = self.agent.as_ref().map(|agent| Arc::clone(agent.streams()));
        let replicas = self.agent.as_ref().map(|agent| Arc::clone(agent.replicas()));
        // The RESP port stays to the last: others ask here until they see that the node has left.
        drop(self.agent);
        drop(self.router);
        drop(self.coordination);
        if self.mirror.join().is_err() {
            tracing::error!("the mirror thread ended by a panic");
        }
        if let Some(resp) = self.resp {
            resp.shutdown();
        }
        drop(self.traces);
        // No more requests arrive.
        if let Some(streams) = streams {
            streams.close();
        }
        if let Some(replicas) = replicas {
            replicas.close();
        }
        tracing::info!("stopped");
    }
}
