//! The RESP server: one event loop a core, each with its own connections.
//!
//! - `event_loop`: the threads, and how connections come to them;
//! - `connection`: one client, from reading to writing;
//! - `buffers`: how much memory all connections may take together;
//! - `loop_memory`: memory that the connections of a loop use in turns;
//! - `queue`: the requests of a connection on versioned stores, and writes to hybrid ones, in order, each with one source of its answer;
//! - `window`: look-ups in versions, done together;
//! - `canary`: a new version of a store against the current one;
//! - `clients`: the connected clients, for `CLIENT` and for dropping silent and slow ones;
//! - `wrong_passwords`: wrong passwords, slowed down and logged;
//! - `refusal`: the errors that look-ups are answered with;
//! - `traced`: which requests are traced, and their spans;
//! - `commands`: everything that is not a look-up.
//!
//! Loops share immutable data and counters, and nothing else.

mod buffers;
mod canary;
mod clients;
mod commands;
mod connection;
mod event_loop;
mod events;
mod loop_memory;
mod queue;
pub(crate) mod refusal;
mod session;
mod traced;
mod versions;
mod window;
mod wrong_passwords;

use std::borrow::Cow;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use fondaco_catalog::{PeerAccess, Settings, SharedAccess, SharedCatalog};
use fondaco_metrics::{NodeMetrics, SlowLog};
use fondaco_model::StoreName;
use fondaco_replica::Replicas;
use fondaco_stream::EventWriters;
use tokio::sync::watch;

use crate::changes::ChangeReader;
use crate::compute::Compute;
use crate::forward::Quotas;
use crate::graph::{GraphQueries, Graphs};
pub use buffers::BufferBudget;
use canary::Comparisons;
use clients::Clients;
pub(crate) use queue::log_event;
use wrong_passwords::WrongPasswords;

/// The configuration that a server is started with.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// How other nodes and clients reach it, as the topology says: `host:port`; where it listens unless said.
    pub advertised: Option<String>,
    /// How many event loops, at least 1.
    pub loops: usize,
    /// How to speak TLS, if at all.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The users, and what each may read.
    pub access: Arc<SharedAccess>,
    /// How other nodes are reached.
    pub peers: PeerAccess,
    /// The replicas of versioned stores on this node; `None` on a router.
    pub replicas: Option<Arc<Replicas>>,
    /// Writes events to the topics of hybrid stores.
    pub events: Arc<EventWriters>,
    /// Reads the changes of stores for clients that follow them.
    pub changes: Option<Arc<dyn ChangeReader>>,
    /// Memory for the requests and replies of clients. The longest request may take half of it.
    pub buffers: BufferBudget,
    /// The store of keys whose prefix names no store. Such keys are refused unless it is set.
    pub default_store: Option<StoreName>,
    /// Where this process serves HTTP, for `INFO`; `None` if it does not.
    pub http: Option<String>,
    /// The version of the program, for `HELLO` and `INFO`.
    pub program_version: &'static str,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; is another server running there?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// A thread or its runtime cannot be made.
    #[error("cannot start an event loop: {0}")]
    Loop(#[source] io::Error),
}

/// The state that all event loops of a server share.
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) address: SocketAddr,
    pub(crate) catalog: Arc<SharedCatalog>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<NodeMetrics>,
    pub(crate) clients: Clients,
    pub(crate) wrong_passwords: WrongPasswords,
    pub(crate) slow_log: SlowLog,
    pub(crate) quotas: Quotas,
    /// Of writes.
    pub(crate) write_quotas: Quotas,
    pub(crate) compute: Compute,
    pub(crate) comparisons: Comparisons,
    pub(crate) graphs: Graphs,
    pub(crate) started: Instant,
    pub(crate) started_at: SystemTime,
}

impl ServerState {
    /// How others reach this server, `host:port`.
    pub(crate) fn advertised(&self) -> Cow<'_, str> {
        match &self.config.advertised {
            Some(address) => address.into(),
            None => self.address.to_string().into(),
        }
    }
}

/// A running server. Dropping it ends it.
pub struct Server {
    address: SocketAddr,
    graphs: GraphQueries,
    shutdown: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// A port that is taken: clients that connect wait until a server is started on it.
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    /// Takes a port; 0 lets the system choose.
    ///
    /// # Errors
    /// The address is taken or not ours.
    pub fn on(address: SocketAddr) -> Result<Self, ServerError> {
        let listen_error = |source| ServerError::Listen { address, source };
        let listener = listen(address).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        Ok(Self { listener, address })
    }

    /// The port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Server {
    /// Listens, and starts the event loops.
    ///
    /// `metrics` has counters for as many loops as the configuration asks for.
    ///
    /// # Errors
    /// The address is taken or not ours, or threads cannot be made.
    pub fn start(
        config: ServerConfig,
        catalog: Arc<SharedCatalog>,
        settings: Arc<Settings>,
        metrics: Arc<NodeMetrics>,
    ) -> Result<Self, ServerError> {
        let listening = Listening::on(config.listen)?;
        Self::start_on(listening, config, catalog, settings, metrics)
    }

    /// Starts the event loops on a port that was taken before, wherever the configuration would listen.
    ///
    /// # Errors
    /// Threads cannot be made.
    pub fn start_on(
        listening: Listening,
        config: ServerConfig,
        catalog: Arc<SharedCatalog>,
        settings: Arc<Settings>,
        metrics: Arc<NodeMetrics>,
    ) -> Result<Self, ServerError> {
        let Listening { listener, address } = listening;
        let loops = config.loops.max(1);
        let shared = Arc::new(ServerState {
            config,
            address,
            catalog,
            settings,
            graphs: Graphs::new(Arc::clone(&metrics)),
            metrics,
            clients: Clients::default(),
            wrong_passwords: WrongPasswords::default(),
            slow_log: SlowLog::default(),
            quotas: Quotas::new(),
            write_quotas: Quotas::new(),
            compute: Compute::start(loops.div_ceil(2)).map_err(ServerError::Loop)?,
            comparisons: Comparisons::default(),
            started: Instant::now(),
            started_at: SystemTime::now(),
        });
        let (shutdown, ended) = watch::channel(false);
        let threads = event_loop::start(&shared, listener, loops, &ended).map_err(ServerError::Loop)?;
        Ok(Self {
            address,
            graphs: GraphQueries::of(&shared),
            shutdown,
            threads,
        })
    }

    /// Graphs of the cluster, for another port of the process.
    pub fn graphs(&self) -> GraphQueries {
        self.graphs.clone()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it: no new clients, and those connected are dropped. Returns when all threads have ended.
    pub fn shutdown(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Without a receiver the loops have ended already.
        let _ = self.shutdown.send(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("an event loop ended by a panic");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    const BACKLOG: i32 = 1024;
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
