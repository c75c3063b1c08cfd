//! Starts a whole process of a cluster: the parts that its role needs, in the order of their dependencies.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fondaco_agent::{
    AgentParts, AgentWork, CompactionParts, CompactionWork, DataDir, Leader, Memory, NodeFile, PushCheck,
    ReportingParts, ReportingWork,
};
use fondaco_api::Role;
use fondaco_catalog::{Settings, SharedAccess, SharedCatalog};
use fondaco_cluster::{
    Audit, Bootstrap, Candidate, Counts, LiveSettings, MeteredCoordination, Mirror, Operator, RouterWork, new_identity,
};
use fondaco_controller::{BalancerParts, ControllerWork, Journal};
use fondaco_coordination::{Coordination, EmbeddedCoordination, ZooKeeperCoordination, ZooKeeperSettings};
use fondaco_decisions::Patience;
use fondaco_http::{App, AppParts, ClusterClient, DevHandle, Exposition, Limits, Observed, Traffic, Users};
use fondaco_metrics::NodeMetrics;
use fondaco_model::cluster::{Announcement, RouterRecord};
use fondaco_model::protocol;
use fondaco_node::{BufferBudget, GraphQueries, Listening, Server, ServerConfig};
use fondaco_os::{MemoryPlan, process};
use fondaco_protocol::SessionKey;
use fondaco_stream::{EventLog, EventWriters};
use tokio::sync::watch;

use crate::config::{Config, ZooKeeperConfig};
use crate::error::RoleError;
use crate::running::Running;
use crate::traces::{Origin, TracesWork};

/// How many threads of the control port do work that waits for a disk or the coordination service.
const BLOCKING_THREADS_MAX: usize = 32;

/// How long one wait for the first view of the cluster lasts.
const FIRST_SIGHT_STEP: Duration = Duration::from_secs(60);

/// How long an ephemeral entry in embedded coordination can outlive its session: not at all.
const EMBEDDED_SESSION_TIMEOUT: Duration = Duration::ZERO;

/// Starts processes of a cluster.
pub struct Fondaco;

/// A session with the coordination service, and its surroundings.
pub(crate) struct Surroundings {
    pub(crate) coordination: Arc<dyn Coordination>,
    /// How long a session outlives its process.
    pub(crate) session_timeout: Duration,
    pub(crate) data_dir: Option<DataDir>,
    /// The development cluster that the process is a member of.
    pub(crate) dev: Option<DevHandle>,
    /// The log of events of a process that is a whole cluster.
    pub(crate) events: Option<Arc<EventLog>>,
}

impl Fondaco {
    /// Starts a process, and returns when it serves. Waits for the disk and the network: do not call it on an event
    /// loop that others need.
    ///
    /// # Errors
    /// An error of the configuration, the data directory, the addresses or the cluster. If ZooKeeper does not answer,
    /// that is no error: the process then serves from the view that it remembers.
    pub fn start(config: Config) -> Result<Running, RoleError> {
        serving(Self::begin(config)?)
    }

    /// Starts a process, and returns before it knows its cluster: until then its clients get `LOADING`, see
    /// [`Running::wait_serving`]. Waits for the disk.
    ///
    /// # Errors
    /// An error of the configuration, the data directory or the addresses.
    pub fn begin(config: Config) -> Result<Running, RoleError> {
        config.check()?;
        let data_dir = config
            .role
            .holds_data()
            .then(|| DataDir::open(&config.data_dir))
            .transpose()?;
        let surroundings = match (&config.zookeeper, data_dir) {
            (None, Some(data_dir)) if config.role == Role::Single => Surroundings {
                coordination: EmbeddedCoordination::open(data_dir.metadata())?.session(),
                session_timeout: EMBEDDED_SESSION_TIMEOUT,
                events: Some(Arc::new(EventLog::in_dir(&data_dir.events()))),
                data_dir: Some(data_dir),
                dev: None,
            },
            (Some(zookeeper), data_dir) if config.role != Role::Single => Surroundings {
                coordination: zookeeper.connect()?,
                session_timeout: zookeeper.session_timeout,
                data_dir,
                dev: None,
                events: None,
            },
            (Some(_), _) => {
                let reason = "a cluster of one coordinates itself: leave zookeeper out, or choose another role";
                return Err(RoleError::InvalidConfig(reason.to_owned()));
            }
            (None, _) => {
                let reason = "a process that shares a cluster with others needs zookeeper: configure its servers";
                return Err(RoleError::InvalidConfig(reason.to_owned()));
            }
        };
        Self::begin_in(&config, surroundings)
    }

    /// Starts a process with this session, and returns when it serves. The configuration was checked, except for the
    /// coordination of its role.
    pub(crate) fn start_in(config: &Config, surroundings: Surroundings) -> Result<Running, RoleError> {
        serving(Self::begin_in(config, surroundings)?)
    }

    fn begin_in(config: &Config, surroundings: Surroundings) -> Result<Running, RoleError> {
        let begun = Instant::now();
        let tls = config.tls()?;
        let users = config.users()?;
        let peer_access = config.peer_access()?;
        process::raise_open_files_limit();
        let memory = MemoryPlan::of_process(config.memory_bytes);
        let buffers = BufferBudget::new(memory.buffer_bytes);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let loops = if config.loops == 0 { cores } else { config.loops };
        let settings = Arc::new(Settings::of_template(config.member.template.as_deref()));
        let metrics = Arc::new(NodeMetrics::new(loops));
        let catalog = Arc::new(SharedCatalog::loading());
        let remembered = surroundings
            .data_dir
            .as_ref()
            .and_then(|dir| Memory::read(&dir.view_file()));
        let (coordination, counts) = MeteredCoordination::around(surroundings.coordination);
        let access = Arc::new(SharedAccess::new(users));
        let (mirror, mirror_thread) = Mirror::start(
            &coordination,
            config.role.decides(),
            Arc::clone(&settings),
            Arc::clone(&access),
            remembered.map(Memory::into_view),
        )?;
        // Listen before anything is opened: a taken port is found before a fetch resumes.
        let listener = listen(config.http_listen)?;
        let http_addr = listener.local_addr().map_err(listen_error(config.http_listen))?;
        let listening = config
            .role
            .serves_resp()
            .then(|| Listening::on(config.resp_listen))
            .transpose()?;
        let graphs = Arc::new(OnceLock::new());
        let mut starting = Starting {
            config,
            resp_addr: listening.as_ref().map(Listening::address),
            http_addr,
            catalog: Arc::clone(&catalog),
            settings: Arc::clone(&settings),
            metrics: Arc::clone(&metrics),
            mirror,
            coordination,
            counts,
            session_timeout: surroundings.session_timeout,
            memory,
            buffers: buffers.clone(),
            graphs: Arc::clone(&graphs),
            access: Arc::clone(&access),
            events: surroundings.events,
        };
        let stores_dir = surroundings.data_dir.as_ref().map(DataDir::stores);
        let work = surroundings.data_dir.as_ref().map(DataDir::work);
        let works = starting.works(surroundings.data_dir)?;
        let (ended, watch) = watch::channel(false);
        let leader = starting.leader()?;
        let reporting = starting.reporting(&works, &leader)?;
        let compaction = starting.compaction(&works, work)?;
        let traces = starting.traces()?;
        let app = starting.app(&works, leader, stores_dir, surroundings.dev)?;
        let evicted = app.traffic.evicted();
        let gates = fondaco_http::check_gates(app.clone());
        let changes = fondaco_http::change_reader(&app);
        let router = fondaco_http::router(
            app,
            config.token.as_deref(),
            &starting.advertised_http()?,
            config.member.http_advertised.as_deref(),
            buffers.clone(),
        );
        let http = serve(listener, tls.clone(), (router, gates), evicted, watch)?;
        let mut running = Running {
            resp_addr: starting.resp_addr,
            http_addr,
            agent: works.agent,
            router: works.router,
            controller: works.controller,
            reporting,
            compaction,
            traces,
            coordination: Arc::clone(&starting.coordination),
            mirror: mirror_thread,
            resp: None,
            ended,
            http,
            role: config.role,
            view: starting.mirror.clone(),
            begun,
        };
        let server = ServerConfig {
            listen: config.resp_listen,
            advertised: starting.resp_addr.map(|_| starting.advertised_resp()).transpose()?,
            loops,
            tls,
            access,
            peers: peer_access,
            default_store: config.default_store.clone(),
            http: Some(starting.advertised_http()?),
            replicas: running.agent.as_ref().map(|agent| Arc::clone(agent.replicas())),
            events: Arc::new(EventWriters::new(starting.events.clone(), config.kafka.0.clone())),
            changes: Some(changes),
            buffers,
            program_version: env!("CARGO_PKG_VERSION"),
        };
        drop(starting);
        // Clients that connect before the first view are told to wait: none is told that a store does not exist.
        let start = |listening| Server::start_on(listening, server, catalog, settings, metrics);
        match listening.map(start).transpose() {
            Ok(resp) => {
                if let Some(resp) = &resp {
                    // It is set here alone.
                    let _ = graphs.set(resp.graphs());
                }
                running.resp = resp;
                Ok(running)
            }
            Err(error) => {
                running.stop();
                Err(error.into())
            }
        }
    }
}

/// Waits until a process serves.
fn serving(running: Running) -> Result<Running, RoleError> {
    loop {
        match running.wait_serving(FIRST_SIGHT_STEP) {
            Ok(true) => return Ok(running),
            Ok(false) => {}
            Err(error) => {
                running.stop();
                return Err(error);
            }
        }
    }
}

/// The parts of a process that depend on its role.
struct Works {
    agent: Option<Arc<AgentWork>>,
    router: Option<Arc<RouterWork>>,
    controller: Option<Arc<ControllerWork>>,
}

/// The inputs from which the parts of a process are made.
struct Starting<'a> {
    config: &'a Config,
    resp_addr: Option<SocketAddr>,
    http_addr: SocketAddr,
    catalog: Arc<SharedCatalog>,
    settings: Arc<Settings>,
    metrics: Arc<NodeMetrics>,
    mirror: Mirror,
    coordination: Arc<dyn Coordination>,
    counts: Arc<Counts>,
    session_timeout: Duration,
    memory: MemoryPlan,
    /// The memory budget that all connections share.
    buffers: BufferBudget,
    /// Set when the process serves RESP.
    graphs: Arc<OnceLock<GraphQueries>>,
    access: Arc<SharedAccess>,
    events: Option<Arc<EventLog>>,
}

impl Starting<'_> {
    /// The parts of a process that depend on its role.
    fn works(&mut self, data_dir: Option<DataDir>) -> Result<Works, RoleError> {
        Ok(Works {
            controller: self.controller()?.map(Arc::new),
            agent: self.agent(data_dir)?.map(Arc::new),
            router: self.router()?.map(Arc::new),
        })
    }

    /// How this process finds the leading controller.
    fn leader(&self) -> Result<Arc<Leader>, RoleError> {
        let coordination = Arc::clone(&self.coordination);
        let leader = Leader::new(coordination, self.config.peer_client()?, self.advertised_http()?);
        Ok(Arc::new(leader))
    }

    fn controller(&mut self) -> Result<Option<ControllerWork>, RoleError> {
        if !self.config.role.decides() {
            return Ok(None);
        }
        let data_dir = &self.config.data_dir;
        let journal = (!data_dir.as_os_str().is_empty()).then(|| data_dir.join("decisions.jsonl"));
        let candidate = Candidate {
            http: self.advertised_http()?,
        };
        let controller = ControllerWork::start(
            Arc::clone(&self.coordination),
            self.mirror.clone(),
            // A cluster of one is made by its node, which knows whether it has belonged to one.
            (self.config.role != Role::Single).then(|| self.bootstrap()),
            &candidate,
            Patience::default(),
            BalancerParts {
                settings: Arc::clone(&self.settings),
                journal: Journal::open(journal),
                machines: self.config.machines.clone(),
            },
        )?;
        Ok(Some(controller))
    }

    fn agent(&mut self, data_dir: Option<DataDir>) -> Result<Option<AgentWork>, RoleError> {
        let Some(data_dir) = data_dir else {
            return Ok(None);
        };
        let node_file = NodeFile::open(&data_dir)?;
        let member = &self.config.member;
        let resp = self.advertised_resp()?;
        let announcement = Announcement {
            identity: node_file.identity.clone(),
            id: member.id.or(node_file.id),
            zone: member.zone.clone(),
            group: member.group.clone(),
            weight: member.weight,
            http: self.advertised_http()?,
            host: member.host.clone().or_else(|| host_of(&resp)),
            backup: member.backup,
            resp,
            mysql: self.config.versioned.mysql.is_some(),
            protocol: protocol(),
        };
        let agent = AgentWork::start(AgentParts {
            coordination: Arc::clone(&self.coordination),
            mirror: self.mirror.clone(),
            catalog: Arc::clone(&self.catalog),
            data_dir,
            node_file,
            announcement,
            // Otherwise controllers make it, from their configuration.
            bootstrap: (self.config.role == Role::Single).then(|| self.bootstrap()),
            node_id: member.id,
            settings: Arc::clone(&self.settings),
            metrics: Arc::clone(&self.metrics),
            peers: self.config.peer_client()?,
            versioned: self.config.versioned.clone(),
            kafka: self.config.kafka.clone(),
            boot_id: process::boot_id(&self.config.boot_id_file),
            peer_access: self.config.peer_access()?,
            reserve_bytes: self.config.disk_reserve_bytes,
            memory: self.memory,
            keep_deleted: self.config.keep_deleted,
            session_timeout: self.session_timeout,
            events: self.events.clone(),
        })?;
        Ok(Some(agent))
    }

    /// How this process makes the cluster, if it finds none.
    fn bootstrap(&self) -> Bootstrap {
        Bootstrap {
            partitions: self.config.partitions,
            cluster: self.config.cluster.clone(),
            directory: (self.config.role == Role::Single).then(|| self.config.data_dir.clone()),
        }
    }

    fn router(&mut self) -> Result<Option<RouterWork>, RoleError> {
        if self.config.role != Role::Router {
            return Ok(None);
        }
        let record = RouterRecord {
            resp: self.advertised_resp()?,
            http: self.advertised_http()?,
            protocol: protocol(),
        };
        let router = RouterWork::start(
            Arc::clone(&self.coordination),
            self.mirror.clone(),
            Arc::clone(&self.catalog),
            self.config.peer_access()?,
            new_identity()?,
            record,
        )?;
        Ok(Some(router))
    }

    /// A node reports its load.
    fn reporting(&self, works: &Works, leader: &Arc<Leader>) -> Result<Option<ReportingWork>, RoleError> {
        let Some(agent) = &works.agent else {
            return Ok(None);
        };
        let parts = ReportingParts {
            agent: Arc::clone(agent),
            metrics: Arc::clone(&self.metrics),
            settings: Arc::clone(&self.settings),
            mirror: self.mirror.clone(),
            leader: Arc::clone(leader),
        };
        Ok(Some(ReportingWork::start(parts)?))
    }

    /// A node compacts stores, if the configuration names the program.
    fn compaction(&self, works: &Works, work: Option<PathBuf>) -> Result<Option<CompactionWork>, RoleError> {
        let (Some(agent), Some(work), Some(program)) = (&works.agent, work, &self.config.program) else {
            return Ok(None);
        };
        let mut environment = vec![("FONDACO_HTTP", self.advertised_http()?.into())];
        environment.extend(self.config.token.as_ref().map(|token| ("FONDACO_TOKEN", token.into())));
        if let Some(tls) = &self.config.tls {
            let trusted = self.config.peers.certificates.as_ref().unwrap_or(&tls.certificate);
            environment.push(("FONDACO_CA", trusted.into()));
        }
        let compaction = CompactionWork::start(CompactionParts {
            program: program.clone(),
            environment,
            work,
            reserve_bytes: self.config.disk_reserve_bytes,
            agent: Arc::clone(agent),
            mirror: self.mirror.clone(),
        });
        Ok(Some(compaction?))
    }

    /// Spans of requests are sent to a collector.
    fn traces(&self) -> Result<TracesWork, RoleError> {
        let origin = Origin {
            role: self.config.role.word(),
            address: match self.resp_addr {
                Some(_) => self.advertised_resp()?,
                None => self.advertised_http()?,
            },
        };
        TracesWork::start(&self.metrics, Arc::clone(&self.settings), origin)
    }

    fn app(
        &self,
        works: &Works,
        leader: Arc<Leader>,
        stores_dir: Option<PathBuf>,
        dev: Option<DevHandle>,
    ) -> Result<App, RoleError> {
        let traffic = Arc::new(Traffic::default());
        let limits = Limits::default();
        let operator = Operator::new(
            Arc::clone(&self.coordination),
            self.mirror.clone(),
            self.config.role.decides(),
            self.config.keep_deleted,
        );
        let observed = Observed {
            mirror: self.mirror.clone(),
            coordination: Arc::downgrade(&self.coordination),
            counts: Arc::clone(&self.counts),
            agent: works.agent.clone(),
            controller: works.controller.clone(),
            metrics: Arc::clone(&self.metrics),
            traffic: Arc::clone(&traffic),
            buffers: self.buffers.clone(),
            followers: limits.followers(),
            role: self.config.role.word(),
        };
        Ok(App::new(AppParts {
            role: self.config.role,
            operator,
            push_check: PushCheck {
                stores_dir,
                uploads: works.agent.as_ref().map(|agent| Arc::clone(agent.uploads())),
                reserve_bytes: self.config.disk_reserve_bytes,
                kafka: self.config.kafka.clone(),
            },
            agent: works.agent.clone(),
            router: works.router.clone(),
            controller: works.controller.clone(),
            dev,
            events: self.events.clone(),
            peers: self.config.peer_client()?,
            leader,
            exposition: Exposition::new(observed),
            traffic,
            catalog: Arc::clone(&self.catalog),
            cluster_client: ClusterClient::new(
                Arc::clone(&self.catalog),
                self.config.peer_access()?,
                works.agent.as_ref().map(|agent| Arc::clone(agent.replicas())),
            ),
            graphs: Arc::clone(&self.graphs),
            settings: LiveSettings {
                settings: Arc::clone(&self.settings),
                coordination: Arc::clone(&self.coordination),
                mirror: self.mirror.clone(),
            },
            metrics: Arc::clone(&self.metrics),
            token: self.config.token.clone(),
            is_tls: self.config.tls.is_some(),
            users: self.config.token.as_deref().map(|token| {
                Arc::new(Users {
                    mirror: self.mirror.clone(),
                    access: Arc::clone(&self.access),
                    key: SessionKey::new(token),
                })
            }),
            audit: Arc::new(Audit::new(Arc::clone(&self.coordination))),
            limits,
            resp_addr: self.resp_addr,
            http_addr: self.http_addr,
            started: Instant::now(),
            program_version: env!("CARGO_PKG_VERSION"),
        }))
    }

    fn advertised_resp(&self) -> Result<String, RoleError> {
        let addr = self.resp_addr.unwrap_or(self.config.resp_listen);
        self.advertised("resp_advertised", self.config.member.resp_advertised.as_ref(), addr)
    }

    fn advertised_http(&self) -> Result<String, RoleError> {
        let configured = self.config.member.http_advertised.as_ref();
        self.advertised("http_advertised", configured, self.http_addr)
    }

    /// The address at which others reach a port. The unspecified address is not one.
    fn advertised(&self, name: &str, configured: Option<&String>, addr: SocketAddr) -> Result<String, RoleError> {
        match configured {
            Some(address) => Ok(address.clone()),
            None if !addr.ip().is_unspecified() => Ok(addr.to_string()),
            None if self.config.role == Role::Single => Ok(format!("127.0.0.1:{}", addr.port())),
            None => Err(RoleError::InvalidConfig(format!(
                "it listens on {addr}, which others cannot connect to: set {name} to host:port"
            ))),
        }
    }
}

impl ZooKeeperConfig {
    /// A session. It is returned at once, and connects when ZooKeeper answers.
    pub(crate) fn connect(&self) -> Result<Arc<dyn Coordination>, RoleError> {
        let mut settings = ZooKeeperSettings::new(&self.connect, &self.root);
        settings.session_timeout_ms = self.session_timeout.as_millis() as u64;
        // An operator's request waits no longer than the session timeout.
        settings.call_timeout_ms = settings.session_timeout_ms;
        settings.digest.clone_from(&self.auth);
        settings.tls = self.tls()?;
        Ok(Arc::new(ZooKeeperCoordination::connect(settings)?))
    }
}

fn serve(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    (router, gates): (axum::Router, impl Future<Output = ()> + Send + 'static),
    evicted: Arc<AtomicU64>,
    ended: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, RoleError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(RoleError::io("start", "control runtime"))?;
    let serving = move || {
        runtime.block_on(async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => {
                    tokio::spawn(gates);
                    fondaco_http::serve(listener, tls, router, evicted, ended).await
                }
                Err(error) => tracing::error!(%error, "cannot serve HTTP"),
            }
        });
    };
    let thread = std::thread::Builder::new().name("control".into()).spawn(serving);
    thread.map_err(RoleError::io("start", "control thread"))
}

fn listen(addr: SocketAddr) -> Result<TcpListener, RoleError> {
    let listener = TcpListener::bind(addr).map_err(listen_error(addr))?;
    listener.set_nonblocking(true).map_err(listen_error(addr))?;
    Ok(listener)
}

fn listen_error(addr: SocketAddr) -> impl FnOnce(std::io::Error) -> RoleError {
    move |source| RoleError::Listen { addr, source }
}

/// The machine of an address, `host:port`; `None` for a loopback address, which many nodes may have.
fn host_of(address: &str) -> Option<String> {
    let (host, _) = address.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    let is_loopback = host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    (!is_loopback && host != "localhost").then(|| host.to_owned())
}
