//! The configuration of a client: the location of its cluster, and its behaviour.

use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use fondaco_model::VALUE_BYTES_MAX;
use fondaco_model::cluster::Topology;
use fondaco_protocol::replica::LocalReplica;
use fondaco_resp::Limits;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::alarm::Alarm;
use crate::client::{Client, Inner};
use crate::clock::Clock;
use crate::error::ClientError;
use crate::link::{Credentials, Transport};
use crate::options::ReadOptions;
use crate::quorum::QuorumCounters;
use crate::read::{HealthPolicy, KEYS_MAX, Steering, SteeringPolicy};
use crate::topology::TopologySource;

/// How long [`ClientBuilder::connect`] waits for the first topology.
const FIRST_TOPOLOGY_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes a client. See [`Client::builder`].
#[derive(Debug)]
pub struct ClientBuilder {
    source: Option<TopologySource>,
    wanted: Arc<Notify>,
    options: ReadOptions,
    zone: Option<String>,
    health: HealthPolicy,
    steering: SteeringPolicy,
    transport: Transport,
    replica: Option<Arc<dyn LocalReplica>>,
    charges_quotas: bool,
    counters: Arc<QuorumCounters>,
}

impl ClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            source: None,
            wanted: Arc::default(),
            options: ReadOptions::default(),
            zone: None,
            health: HealthPolicy::default(),
            steering: SteeringPolicy::default(),
            transport: Transport {
                connections_per_node: 1,
                in_flight_max: 4096,
                connect_timeout: Duration::from_millis(500),
                silence: Duration::from_millis(500),
                credentials: None,
                tls: None,
                limits: Limits {
                    bulk_bytes_max: VALUE_BYTES_MAX,
                    arguments_max: KEYS_MAX + 1,
                    ..Limits::default()
                },
                // Set by each topology, before the links to its nodes are made.
                protocol: AtomicU32::new(1),
                is_local: false,
                runtime: None,
            },
            replica: None,
            charges_quotas: false,
            counters: Arc::default(),
        }
    }

    /// Counts operations on versioned stores in these counters, instead of the client's own.
    pub fn quorum_counters(mut self, counters: Arc<QuorumCounters>) -> Self {
        self.counters = counters;
        self
    }

    /// Learns the topology from these nodes or routers, each given as host and port. One that answers is enough.
    pub fn seeds<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.source = Some(TopologySource::Seeds(seeds.into_iter().map(Into::into).collect()));
        self
    }

    /// Takes the topology from another source, as a server does from the coordination service.
    pub fn topology(mut self, topology: watch::Receiver<Option<Arc<Topology>>>) -> Self {
        self.source = Some(TopologySource::Given(topology));
        self
    }

    /// Notifies the source of the topology when a request found the topology to be old. With [`ClientBuilder::follow`]
    /// the direction is reversed: a notification makes the client poll at once.
    pub fn topology_wanted(mut self, wanted: Arc<Notify>) -> Self {
        self.wanted = wanted;
        self
    }

    /// The options of requests that set none themselves.
    pub fn options(mut self, options: ReadOptions) -> Self {
        self.options = options;
        self
    }

    /// The client's zone, named as nodes name theirs. The client asks nodes in this zone first, and counts zones other
    /// than this one where other zones must answer. If it is unset, or the zone has no nodes, no node is nearer than
    /// others, and other zones are those other than that of the first replica that answers.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// The replica of the node that contains this client: it is asked without a connection.
    pub fn replica(mut self, replica: Arc<dyn LocalReplica>) -> Self {
        self.replica = Some(replica);
        self
    }

    /// Declares that all writes were charged to the quotas of stores before, as nodes and routers do for their clients.
    /// Writes of other clients are charged by the nodes that take them.
    pub fn charges_quotas(mut self) -> Self {
        self.charges_quotas = true;
        self
    }

    /// The user and the password for nodes that require them.
    pub fn credentials(mut self, user: Option<String>, password: String) -> Self {
        self.transport.credentials = Some(Credentials { user, password });
        self
    }

    /// Speaks TLS with this configuration; [`trusting`](crate::trusting) makes one from a PEM file. Nodes are verified
    /// by the host of their address.
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.transport.tls = Some(config);
        self
    }

    /// The number of connections to each node, each shared by many requests; 1 by default. More are useful if many
    /// threads share one client.
    pub fn connections_per_node(mut self, connections: usize) -> Self {
        self.transport.connections_per_node = connections;
        self
    }

    /// The number of sub-requests that may be outstanding on one connection; 4096 by default. Beyond that, other nodes
    /// are asked, and then requests fail as [`ClientError::Overloaded`].
    pub fn in_flight_max(mut self, in_flight: usize) -> Self {
        self.transport.in_flight_max = in_flight;
        self
    }

    /// How long making a connection, or a probe, may take; 500 ms by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.transport.connect_timeout = timeout;
        self
    }

    /// How long a node that owes answers may be silent before it is probed; 500 ms by default. A node that does not
    /// answer the probe is suspended.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.transport.silence = silence;
        self
    }

    /// When nodes are suspended, and how they are probed.
    pub fn health(mut self, policy: HealthPolicy) -> Self {
        self.health = policy;
        self
    }

    /// The budgets of retries and hedges.
    pub fn steering(mut self, policy: SteeringPolicy) -> Self {
        self.steering = policy;
        self
    }

    /// Runs the client's own tasks on the `LocalSet` in which it is made; its requests must be made there, too. This
    /// saves the system calls that each request would pay to wake a task of a local set from outside.
    pub fn local(mut self) -> Self {
        self.transport.is_local = true;
        self
    }

    /// Makes the client at once; requests fail until the first topology arrives. Must be called within a tokio runtime,
    /// which then runs the client's tasks.
    ///
    /// # Errors
    /// [`ClientError::Configuration`]: neither seeds nor a topology were given, or the process may have no further
    /// timer.
    pub fn build(mut self) -> Result<Client, ClientError> {
        let source = self.take_source()?;
        self.transport.runtime = Handle::try_current().ok();
        let clock = Clock::new();
        let alarm = Alarm::new(clock).map_err(|error| ClientError::Configuration {
            reason: format!("cannot make a timer: {error}").into(),
        })?;
        let alarm = Arc::new(alarm);
        let transport = Arc::new(self.transport);
        let topologies = source.follow(&transport, self.wanted, false);
        let mut latest = topologies.latest;
        let source = Mutex::new(latest.clone());
        let inner = Arc::new(Inner {
            current: ArcSwapOption::empty(),
            source,
            changed: watch::Sender::new(None),
            steering: Steering::new(&self.steering).with_seed(fastrand::u64(..)),
            clock,
            alarm: Arc::clone(&alarm),
            options: self.options,
            topology_wanted: topologies.wanted,
            trouble: topologies.trouble,
            transport,
            zone: self.zone,
            health: self.health,
            replica: self.replica,
            charges_quotas: self.charges_quotas,
            counters: self.counters,
            background: AtomicUsize::new(0),
            tasks: OnceLock::new(),
        });
        let first = latest.borrow_and_update().clone();
        first.into_iter().for_each(|first| inner.adopt(first));
        let weak = Arc::downgrade(&inner);
        let transport = Arc::clone(&inner.transport);
        let follow = transport.spawn(async move {
            while latest.changed().await.is_ok() {
                // A request may have adopted it already.
                latest.mark_unchanged();
                match weak.upgrade() {
                    None => return,
                    Some(inner) => inner.catch_up(&mut inner.source.lock()),
                }
            }
        });
        let ring = transport.spawn(alarm.ring());
        let tasks = topologies.task.into_iter().chain([follow, ring]).collect();
        let unset = inner.tasks.set(tasks);
        debug_assert!(unset.is_ok(), "the client is not shared yet");
        Ok(Client::of(inner))
    }

    /// Only follows the topology, without look-ups: polls the seeds and the nodes that it learns of, one after the
    /// other, while the receiver lives. Must be called within a tokio runtime, which runs the polling.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn follow(mut self) -> Result<watch::Receiver<Option<Arc<Topology>>>, ClientError> {
        let source = self.take_source()?;
        Ok(source.follow(&Arc::new(self.transport), self.wanted, true).latest)
    }

    fn take_source(&mut self) -> Result<TopologySource, ClientError> {
        let source = match self.source.take() {
            Some(TopologySource::Seeds(seeds)) if seeds.is_empty() => None,
            source => source,
        };
        source.ok_or_else(|| ClientError::Configuration {
            reason: "set seeds or a topology".into(),
        })
    }

    /// Makes the client, and waits until it knows its cluster, for at most ten seconds.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`], and [`ClientError::NoTopology`].
    pub async fn connect(self) -> Result<Client, ClientError> {
        let client = self.build()?;
        client.ready(FIRST_TOPOLOGY_TIMEOUT).await?;
        Ok(client)
    }
}
