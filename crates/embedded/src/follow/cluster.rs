//! The cluster, as its control ports describe it: the current version of the store, and the sources of its files.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use fondaco_admin::{AdminError, Client, Endpoint};
use fondaco_api::{NodeList, StoreResource};
use fondaco_fetch::{FetchSource, LocationSource, PeerClient, Sources};
use fondaco_format::Checksum;
use fondaco_model::{PartitionCount, StoreKind, StoreName, StreamSource, ValueType, VersionNumber};
use fondaco_storage::Location;
use parking_lot::Mutex;

use crate::error::EmbeddedError;
use crate::events::StreamOf;

/// The longest time for an answer: the end of a reader waits for it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// A version of a store. After the store is created again, the same number is another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VersionId {
    pub(super) number: VersionNumber,
    pub(super) checksum: Checksum,
}

/// The current version of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) id: VersionId,
    /// When the store was created: it identifies the store among those of its name.
    pub(super) store_created_unix_ms: u64,
    pub(super) partitions: PartitionCount,
    /// The location that it was built into.
    pub(super) source: Option<String>,
    /// The stream on top of it, if the store is hybrid.
    pub(super) stream: Option<StreamOf>,
}

impl Target {
    /// Whether it is the same version of the same store.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.id, self.store_created_unix_ms) == (other.id, other.store_created_unix_ms)
    }
}

/// The store, as the cluster describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    NoStore,
    NoVersion,
    Target(Box<Target>),
}

/// The control ports of a cluster.
pub(crate) struct Cluster {
    store: StoreName,
    endpoints: Vec<Endpoint>,
    /// The client of each endpoint, once it has been asked.
    clients: Vec<Mutex<Option<Arc<Client>>>>,
    /// The index of the one that is asked first: it answered last.
    preferred: AtomicUsize,
    peers: PeerClient,
}

impl Cluster {
    /// Sends no request.
    pub(super) fn new(endpoints: &[Endpoint], store: &StoreName) -> Result<Self, EmbeddedError> {
        let first = endpoints.first().ok_or(EmbeddedError::NoEndpoint)?;
        let peers = peers(first)?;
        let impatient = |endpoint: &Endpoint| Endpoint {
            request_time_max: endpoint.request_time_max.min(ANSWER_TIME_MAX),
            ..endpoint.clone()
        };
        Ok(Self {
            store: store.clone(),
            endpoints: endpoints.iter().map(impatient).collect(),
            clients: endpoints.iter().map(|_| Mutex::default()).collect(),
            preferred: AtomicUsize::new(0),
            peers,
        })
    }

    /// The store that is followed.
    pub(crate) fn store(&self) -> &StoreName {
        &self.store
    }

    /// The RESP addresses of the live nodes, and the first endpoint with its credentials.
    pub(crate) fn seeds(&self) -> Result<(Vec<String>, &Endpoint), AdminError> {
        let first = &self.endpoints[0];
        let nodes = self
            .ask(|client| client.get::<NodeList>("/v1/nodes"))?
            .nodes
            .into_iter();
        let nodes = nodes.filter(|node| node.live).map(|node| node.resp);
        Ok((first.resp.iter().cloned().chain(nodes).collect(), first))
    }

    /// The current version of the store.
    pub(super) fn look(&self) -> Result<Seen, EmbeddedError> {
        let store = self.store.clone();
        let (found, partitions) = self.ask(|client| {
            let found = client.store(&store)?;
            // Releases that do not tell the count of each version have only versions with the count of the cluster.
            let partitions = match found.as_ref().and_then(current) {
                Some(version) if version.partitions.is_none() => Some(client.status()?.partitions),
                Some(version) => version.partitions,
                None => None,
            };
            Ok((found, partitions))
        })?;
        let Some(found) = found else { return Ok(Seen::NoStore) };
        if found.kind == StoreKind::Versioned {
            return Err(EmbeddedError::OtherKind {
                store,
                kind: found.kind,
            });
        }
        if found.value_type() == ValueType::Graph {
            return Err(EmbeddedError::GraphStore { store });
        }
        let source = found.stream.as_ref().and_then(|stream| stream.source.as_ref());
        if let Some(StreamSource::Log(_)) = source {
            return Err(EmbeddedError::LogStream { store: found.name });
        }
        let (Some(version), Some(partitions)) = (current(&found), partitions) else {
            return Ok(Seen::NoVersion);
        };
        let number = VersionNumber::new(version.version);
        let checksum = version.checksum.as_ref().and_then(|checksum| checksum.parse().ok());
        let (Some(number), Some(checksum), Ok(partitions)) = (number, checksum, partitions.try_into()) else {
            return Err(EmbeddedError::NotDescribed {
                store,
                version: version.version,
            });
        };
        Ok(Seen::Target(Box::new(Target {
            id: VersionId { number, checksum },
            store_created_unix_ms: found.created_unix_ms,
            partitions,
            source: version.source.clone(),
            stream: StreamOf::of(&found, version)?,
        })))
    }

    /// The sources of a version, in the order of a node: the location that it was built into, if its files can be read
    /// there by name, then the live nodes. Topics of Kafka and uploads are read by nodes only.
    pub(super) fn sources(&self, target: &Target) -> Result<Sources, EmbeddedError> {
        let location = target
            .source
            .as_ref()
            .and_then(|source| source.parse::<Location>().ok());
        let nodes = self.ask(|client| client.get::<NodeList>("/v1/nodes"));
        let nodes = match (nodes, &location) {
            (Ok(list), _) => list.nodes,
            // The location may be there without the cluster.
            (Err(_), Some(_)) => Vec::new(),
            (Err(error), None) => return Err(error.into()),
        };
        let mut addresses: Vec<String> = nodes
            .into_iter()
            .filter_map(|node| node.live.then_some(node.http))
            .collect();
        // Readers should not all begin with the same node.
        let first = std::process::id() as usize % addresses.len().max(1);
        addresses.rotate_left(first);
        let location = location.map(|location| Box::new(LocationSource::new(location)) as Box<dyn FetchSource>);
        let peer = |address: &String| {
            let source = self.peers.source(address, &self.store, target.id.number);
            Box::new(source) as Box<dyn FetchSource>
        };
        Ok(Sources::new(location.into_iter().chain(addresses.iter().map(peer))))
    }

    /// Asks the control ports one after the other until one answers. Fails with the error of the first one.
    pub(crate) fn ask<T>(&self, ask: impl Fn(&Client) -> Result<T, AdminError>) -> Result<T, AdminError> {
        let (mut first_error, preferred) = (None, self.preferred.load(Relaxed));
        for step in 0..self.clients.len() {
            let at = (preferred + step) % self.clients.len();
            match self.client(at).and_then(|client| ask(&client)) {
                Ok(answer) => {
                    self.preferred.store(at, Relaxed);
                    return Ok(answer);
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.expect("there is an endpoint, and its answer was none"))
    }

    fn client(&self, at: usize) -> Result<Arc<Client>, AdminError> {
        let mut client = self.clients[at].lock();
        let known = match client.take() {
            Some(known) => known,
            None => Arc::new(self.endpoints[at].client()?),
        };
        Ok(Arc::clone(client.insert(known)))
    }
}

fn current(store: &StoreResource) -> Option<&fondaco_api::VersionResource> {
    store.versions.iter().find(|version| version.current)
}

/// How nodes are asked for files: with the credentials of the control port.
fn peers(endpoint: &Endpoint) -> Result<PeerClient, EmbeddedError> {
    let certificates = endpoint.ca.as_ref().map(|path| {
        fs::read(path).map_err(|source| EmbeddedError::Io {
            action: "read",
            path: path.clone(),
            source,
        })
    });
    let certificates = certificates.transpose()?;
    let peers = PeerClient::new(endpoint.token.as_deref(), certificates.as_deref())?;
    let is_tls = endpoint.tls || endpoint.http.as_ref().is_some_and(|http| http.starts_with("https://"));
    Ok(match is_tls {
        true => peers.over_tls(),
        false => peers,
    })
}
