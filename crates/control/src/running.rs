//! A whole node in one process: its data directory, metadata, stores, and both servers, started in the
//! order in which they need each other and stopped in the reverse.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fondaco_node::{Access, LocationSource, NodeMetrics, Server, ServerConfig, Settings, SharedCatalog, SystemClock};
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use crate::config::Config;
use crate::coordination::{Coordination, EmbeddedCoordination, EntryPath};
use crate::data_dir::DataDir;
use crate::error::ControlError;
use crate::exposition::Exposition;
use crate::http::{self, App, AppParts, Traffic};
use crate::process;
use crate::settings::LiveSettings;
use crate::stores::{Stores, StoresParts};

/// How many threads do what waits for a disk, of the control port.
const BLOCKING_THREADS_MAX: usize = 16;

/// Starts nodes.
pub struct Fondaco;

/// A running node.
pub struct Running {
    resp_addr: SocketAddr,
    http_addr: SocketAddr,
    stores: Stores,
    resp: Server,
    ended: watch::Sender<bool>,
    http: JoinHandle<()>,
}

/// What is true of the whole cluster for ever.
#[derive(Serialize, Deserialize)]
struct ClusterRecord {
    partitions: u32,
}

impl Fondaco {
    /// Starts a node, and returns when it serves. Waits for the disk: not to be called on an event
    /// loop that others need.
    ///
    /// # Errors
    /// What is wrong with the configuration, the data directory or the addresses.
    pub fn start(config: Config) -> Result<Running, ControlError> {
        config.check()?;
        let tls = config.tls()?;
        let users = config.users()?;
        process::raise_open_files_limit();
        let data_dir = DataDir::open(&config.data_dir)?;
        let coordination: Arc<dyn Coordination> = Arc::new(EmbeddedCoordination::open(data_dir.metadata())?);
        check_cluster(&*coordination, &config, &data_dir)?;

        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let loops = if config.loops == 0 { cores } else { config.loops };
        let catalog = Arc::new(SharedCatalog::new());
        let settings = Arc::new(Settings::default());
        let metrics = Arc::new(NodeMetrics::new(loops));
        let live = LiveSettings::open(Arc::clone(&settings), Arc::clone(&coordination))?;
        // Listening before the stores are opened: a taken port is known before a push resumes.
        let listener = listen(config.http_listen)?;
        let http_addr = listener.local_addr().map_err(listen_error(config.http_listen))?;
        let stores = Stores::open(StoresParts {
            coordination,
            catalog: Arc::clone(&catalog),
            data_dir,
            partitions: config.partitions,
            settings: Arc::clone(&settings),
            metrics: Arc::clone(&metrics),
            reserve_bytes: config.disk_reserve_bytes,
            memory_bytes: process::memory_bytes().unwrap_or(0),
            now_unix_ms,
            clock: Arc::new(SystemClock::default()),
            sources: |location| Box::new(LocationSource::new(location)),
        })?;
        let started = start_servers(StartServers {
            config: &config,
            loops,
            tls,
            access: Access::new(users),
            catalog,
            settings,
            live,
            metrics,
            stores: stores.clone(),
            listener,
            http_addr,
        });
        if started.is_err() {
            stores.stop();
        }
        let running = started?;
        tracing::info!(resp = %running.resp_addr, http = %running.http_addr, data = ?config.data_dir, "serving");
        Ok(running)
    }
}

struct StartServers<'a> {
    config: &'a Config,
    loops: usize,
    tls: Option<Arc<rustls::ServerConfig>>,
    access: Access,
    catalog: Arc<SharedCatalog>,
    settings: Arc<Settings>,
    live: LiveSettings,
    metrics: Arc<NodeMetrics>,
    stores: Stores,
    listener: TcpListener,
    http_addr: SocketAddr,
}

fn start_servers(parts: StartServers<'_>) -> Result<Running, ControlError> {
    let program_version = env!("CARGO_PKG_VERSION");
    let resp = Server::start(
        ServerConfig {
            listen: parts.config.resp_listen,
            loops: parts.loops,
            tls: parts.tls.clone(),
            access: parts.access,
            program_version,
        },
        Arc::clone(&parts.catalog),
        parts.settings,
        Arc::clone(&parts.metrics),
    )?;
    let traffic = Arc::new(Traffic::default());
    let app = App::new(AppParts {
        exposition: Exposition::new(parts.stores.clone(), Arc::clone(&parts.metrics), Arc::clone(&traffic)),
        traffic,
        stores: parts.stores.clone(),
        catalog: parts.catalog,
        settings: parts.live,
        metrics: parts.metrics,
        partitions: parts.config.partitions.get(),
        resp_addr: resp.address(),
        http_addr: parts.http_addr,
        started: Instant::now(),
        program_version,
    });
    let router = http::router(app, parts.config.token.as_deref());
    let (ended, watch) = watch::channel(false);
    let (listener, tls) = (parts.listener, parts.tls);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(ControlError::io("start", "control runtime"))?;
    let http = std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            runtime.block_on(async move {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => http::server::serve(listener, tls, router, watch).await,
                    Err(error) => tracing::error!(%error, "cannot serve HTTP"),
                }
            });
        })
        .map_err(ControlError::io("start", "control thread"))?;
    Ok(Running {
        resp_addr: resp.address(),
        http_addr: parts.http_addr,
        stores: parts.stores,
        resp,
        ended,
        http,
    })
}

impl Running {
    /// Where RESP is served.
    pub fn resp_addr(&self) -> SocketAddr {
        self.resp_addr
    }

    /// Where HTTP is served.
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// The stores, for whoever runs in the same process.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Stops: no new requests, pushes interrupted to be resumed at the next start, and the data
    /// directory unlocked when this returns.
    pub async fn shutdown(self) {
        let (sender, done) = oneshot::channel();
        // Stopping waits for threads, which an event loop must not.
        let stopping = std::thread::Builder::new().name("stop".into()).spawn(move || {
            self.stop();
            // Nobody waits any more if the future was dropped.
            let _ = sender.send(());
        });
        match stopping {
            // The sender is only dropped by a panic in there, which was printed.
            Ok(_) => drop(done.await),
            Err(error) => tracing::error!(%error, "cannot start the thread that stops the node"),
        }
    }

    fn stop(self) {
        // The server may have ended by itself; then nobody listens.
        let _ = self.ended.send(true);
        self.stores.stop();
        if self.http.join().is_err() {
            tracing::error!("the control thread ended by a panic");
        }
        self.resp.shutdown();
        drop(self.stores);
        tracing::info!("stopped");
    }
}

/// Sets the number of partitions for ever, or checks that it is what it was.
fn check_cluster(coordination: &dyn Coordination, config: &Config, data_dir: &DataDir) -> Result<(), ControlError> {
    let path = EntryPath::new(["cluster"])?;
    let configured = config.partitions.get();
    let invalid = |error: serde_json::Error| ControlError::InvalidMetadata {
        entry: path.to_string(),
        reason: error.to_string(),
    };
    match coordination.read(&path)? {
        Some(entry) => {
            let found: ClusterRecord = serde_json::from_slice(&entry.bytes).map_err(invalid)?;
            if found.partitions == configured {
                return Ok(());
            }
            Err(ControlError::PartitionsChanged {
                path: data_dir.root().to_owned(),
                found: found.partitions,
                configured,
            })
        }
        None => {
            let record = ClusterRecord { partitions: configured };
            let bytes = serde_json::to_vec(&record).map_err(invalid)?;
            coordination.write(&path, &bytes, None)?;
            Ok(())
        }
    }
}

fn listen(addr: SocketAddr) -> Result<TcpListener, ControlError> {
    let listener = TcpListener::bind(addr).map_err(listen_error(addr))?;
    listener.set_nonblocking(true).map_err(listen_error(addr))?;
    Ok(listener)
}

fn listen_error(addr: SocketAddr) -> impl FnOnce(std::io::Error) -> ControlError {
    move |source| ControlError::Listen { addr, source }
}

fn now_unix_ms() -> u64 {
    // A clock before 1970 is not worth failing for.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}
