//! The cluster around a store: which nodes hold which partitions, how nodes are asked, and which failures are retried.
//!
//! A large backup takes hours: nodes stop and start meanwhile, and partitions move. So the topology is looked up again
//! and again, from any node that answers, and failed requests are retried for a while. Errors that no retry can fix end
//! the command at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use fondaco_admin::{AdminError, Client, Endpoint};
use fondaco_api::{NodeList, NodeStatus, RoutingResource, SchemaList, SchemaResource, StoreResource};
use fondaco_model::versioned::VersionedSettings;
use fondaco_model::{PartitionCount, StoreChange, StoreKind, StoreName, StoreOption, ValueType};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::pace::Pace;

/// How long a transient failure is retried: a node restarts within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Backoff between retries: doubled each time, up to the second value.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// How often a node that asks for a retry is asked again, before it counts as failed.
const ATTEMPTS_MAX: u32 = 40;

/// The time between these retries.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(250);

/// A transient failure, which is retried for a while.
#[derive(Debug, thiserror::Error)]
pub enum Passing {
    /// A node did not answer the request: other nodes may.
    #[error("node {node}: {reason:#}")]
    Node { node: u32, reason: anyhow::Error },
    /// Too few nodes are live, or partitions move, or no node returns the topology.
    #[error("{0:#}")]
    Cluster(anyhow::Error),
}

/// The settings of a versioned store that a backup keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSettings {
    /// When it was created, in milliseconds since 1970: tells it from another store of the same name.
    pub created_unix_ms: u64,
    /// How many nodes hold each partition.
    pub replicas: u32,
    /// The type of its values.
    #[serde(default, skip_serializing_if = "ValueType::is_bytes")]
    pub value_type: ValueType,
    /// The settings of versioned stores.
    pub versioned: VersionedSettings,
    /// The schemas of its values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemas: Vec<SchemaResource>,
    /// The other options that are not the default: members of the table [`StoreOption`].
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// Identifies a store, since another store may have taken its name.
#[derive(Debug, Clone, Copy)]
pub struct StoreId<'a> {
    /// Its name.
    pub name: &'a StoreName,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
}

impl StoreSettings {
    /// The identity of a store; `None` if there is no store of this name.
    pub fn of(port: &Client, name: &StoreName) -> anyhow::Result<Option<Self>> {
        let store: StoreResource = match port.get(&format!("/v1/stores/{name}")) {
            Err(error) if error.code() == "store_not_found" => return Ok(None),
            found => found?,
        };
        match store.versioned {
            Some(versioned) => {
                let value_type = store.value_type();
                let options = StoreChange {
                    value_type: None,
                    ..store.options
                };
                let mut others: Map<String, Value> = serde_json::from_value(serde_json::to_value(options)?)?;
                let is_of_kind = |option: &StoreOption| option.member(StoreKind::Versioned).is_some();
                others
                    .retain(|member, value| !value.is_null() && StoreOption::of_member(member).is_some_and(is_of_kind));
                let schemas = match value_type.has_schemas() {
                    true => port.get::<SchemaList>(&format!("/v1/stores/{name}/schemas"))?.schemas,
                    false => Vec::new(),
                };
                Ok(Some(Self {
                    schemas,
                    created_unix_ms: store.created_unix_ms,
                    replicas: store.replicas,
                    value_type,
                    versioned,
                    others,
                }))
            }
            None => {
                bail!("store {name:?} is not versioned: keep the inputs of its versions, and push them again")
            }
        }
    }
}

/// Connections to the nodes of a cluster.
pub struct Cluster<'a> {
    endpoint: &'a Endpoint,
    entry: Client,
    /// All nodes that were ever live, with their addresses.
    nodes: BTreeMap<u32, (String, Client)>,
}

impl<'a> Cluster<'a> {
    /// Sends no request yet.
    pub fn new(endpoint: &'a Endpoint) -> anyhow::Result<Self> {
        Ok(Self {
            endpoint,
            entry: endpoint.client()?,
            nodes: BTreeMap::new(),
        })
    }

    /// The process that the user named.
    pub fn entry(&self) -> &Client {
        &self.entry
    }

    /// The connection to a node that was live once.
    ///
    /// # Errors
    /// [`Passing::Node`] if the node is unknown.
    pub fn node(&self, node: u32) -> anyhow::Result<&Client> {
        let found = self.nodes.get(&node).map(|(_, port)| port);
        let reason = || anyhow!("its address is unknown");
        Ok(found.ok_or_else(|| Passing::Node { node, reason: reason() })?)
    }

    /// Looks up the nodes, and the owners of each partition of a store with this many replicas.
    ///
    /// # Errors
    /// [`Passing::Cluster`] if no node answers.
    pub fn look_up(&mut self, replicas: u32) -> anyhow::Result<Topology> {
        let (routing, list): (RoutingResource, NodeList) =
            self.ask_any(|port| Ok((port.get("/v1/routing")?, port.get("/v1/nodes")?)))?;
        let mut nodes = BTreeMap::new();
        for node in list.nodes {
            // A node that is not live and owns nothing is not waited for.
            if node.live || node.partitions > 0 || node.partitions_next.is_some_and(|count| count > 0) {
                nodes.insert(node.node, node.live);
            }
            if self.nodes.get(&node.node).is_none_or(|(http, _)| *http != node.http) {
                let port = self.endpoint.client_of_node(&node.http)?;
                self.nodes.insert(node.node, (node.http, port));
            }
        }
        let (mut owners, mut joint) = (routing.owners, routing.joint);
        let lists = owners.iter_mut().chain(joint.values_mut());
        lists.for_each(|list| list.truncate(replicas as usize));
        Ok(Topology {
            epoch: routing.epoch,
            partitions: PartitionCount::try_from(routing.partitions)?,
            owners,
            joint,
            nodes,
        })
    }

    /// The current settings of a store; `None` if there is no store of this name.
    ///
    /// # Errors
    /// [`Passing::Cluster`] if no node answers.
    pub fn settings(&self, store: &StoreName) -> anyhow::Result<Option<StoreSettings>> {
        self.ask_any(|port| StoreSettings::of(port, store))
    }

    /// Checks that a store still exists, and was not replaced by another one of its name. `what` names the job, for the
    /// error.
    ///
    /// # Errors
    /// The store was dropped, or no node answers for long.
    pub fn check_store(&self, store: StoreId<'_>, pace: &Pace<'_>, what: &str) -> anyhow::Result<()> {
        let mut patience = Patience::new();
        loop {
            match self.settings(store.name) {
                Ok(Some(now)) if now.created_unix_ms == store.created_unix_ms => return Ok(()),
                Ok(_) => bail!("store {:?} was dropped while it was {what}", store.name),
                Err(error) => patience.wait(pace, error)?,
            }
        }
    }

    /// Asks the process that the user named, or else any node that is connected to the coordination service.
    fn ask_any<T>(&self, ask: impl Fn(&Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let ask = |port: &Client| {
            // The status first: the answer is then no older than the status.
            match port.get::<NodeStatus>("/v1/status")?.coordination_silent_ms {
                None => ask(port),
                Some(silent_ms) => bail!(
                    "{} has heard nothing of the cluster for {silent_ms} ms, and its list of owners may be out of \
                     date: name another process, or wait",
                    port.address()
                ),
            }
        };
        let mut answer = ask(&self.entry);
        for (_, port) in self.nodes.values() {
            if answer.is_ok() {
                break;
            }
            answer = ask(port).or(answer);
        }
        Ok(answer.map_err(Passing::Cluster)?)
    }
}

/// The live nodes, and the owners of a store's partitions.
#[derive(Debug, Clone)]
pub struct Topology {
    /// The epoch of the routing table.
    pub epoch: u64,
    /// How many partitions there are.
    pub partitions: PartitionCount,
    /// The owners of each partition, in order of preference.
    pub owners: Vec<Vec<u32>>,
    /// For partitions that a plan moves: the nodes that take writes besides the owners.
    pub joint: BTreeMap<u32, Vec<u32>>,
    /// All nodes that are live or own something, and whether each is live.
    pub nodes: BTreeMap<u32, bool>,
}

impl Topology {
    /// The owners of a partition.
    pub fn owners_of(&self, partition: usize) -> &[u32] {
        self.owners.get(partition).map_or(&[], Vec::as_slice)
    }

    /// The nodes that have to take writes to a partition, enough of each group: its owners, and its next or previous
    /// owners while a plan moves it.
    pub fn writers_of(&self, partition: usize) -> impl Iterator<Item = &[u32]> {
        let joint = u32::try_from(partition)
            .ok()
            .and_then(|partition| self.joint.get(&partition));
        std::iter::once(self.owners_of(partition)).chain(joint.map(Vec::as_slice))
    }

    /// Whether a node is live.
    pub fn is_live(&self, node: u32) -> bool {
        self.nodes.get(&node).is_some_and(|is_live| *is_live)
    }
}

/// How long a failing request is retried.
pub struct Patience {
    ends: Instant,
    pause: Duration,
}

impl Patience {
    /// Starts the clock.
    pub fn new() -> Self {
        Self {
            ends: Instant::now() + PATIENCE,
            pause: PAUSES[0],
        }
    }

    /// Returns when it is time to retry.
    ///
    /// # Errors
    /// The original error, if it lasts too long; or that the user stopped the program.
    pub fn wait(&mut self, pace: &Pace<'_>, error: anyhow::Error) -> anyhow::Result<()> {
        if Instant::now() >= self.ends {
            return Err(error);
        }
        pace.pause(self.pause)?;
        self.pause = (2 * self.pause).min(PAUSES[1]);
        Ok(())
    }
}

/// Asks a node, and retries while it refuses with one of these codes.
///
/// # Errors
/// [`Passing::Node`]: the last refusal.
pub fn ask<T>(node: u32, passing: &[&str], ask: impl Fn() -> Result<T, AdminError>) -> anyhow::Result<T> {
    let mut attempt = 1;
    loop {
        match ask() {
            Err(error) if attempt < ATTEMPTS_MAX && passing.contains(&error.code()) => {
                attempt += 1;
                std::thread::sleep(ATTEMPT_INTERVAL);
            }
            // The node is well, but the owners have changed.
            Err(error) if error.code() == "old_routing" => return Err(Passing::Cluster(error.into()).into()),
            answer => {
                return Ok(answer.map_err(|error| Passing::Node {
                    node,
                    reason: error.into(),
                })?);
            }
        }
    }
}
