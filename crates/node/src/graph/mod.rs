//! The graph service: queries of graphs and changes of versioned and hybrid ones, on threads for computations.
//!
//! A query reads its graph through the client library, in one version. If that changes meanwhile, the query begins again.

mod changes;
mod events;
mod networks;
mod operation;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use fondaco_catalog::{Catalog, ServingStore, Setting, StoreId};
use fondaco_client::graph::{GraphSource, description, in_one_version};
use fondaco_graph::query::{Limits, Prepared, QueryResult, Value};
use fondaco_graph::{Ask, Description, Network, Relation, Source, network};
use fondaco_metrics::NodeMetrics;
use fondaco_model::{StoreKind, StoreName, ValueType};

use crate::compute::{NoResult, Sets, Stop};
use crate::forward::StoreVersion;
use crate::server::{ServerState, refusal};
use networks::{Kept, Name};

pub(crate) use changes::{Change, Changed, change};
pub(crate) use events::change_by_events;
pub(crate) use networks::Networks;
pub(crate) use operation::{Answered, Listed, Operation, Question, id_of, limited};

/// The state that all queries of this process share.
#[derive(Debug)]
pub(crate) struct Graphs {
    pub(crate) networks: Networks,
    /// The descriptions of versions that were asked for lately: few, since versions are.
    descriptions: Mutex<Vec<(StoreVersion, Arc<Description>)>>,
}

/// How many descriptions are kept.
const DESCRIPTIONS_MAX: usize = 64;

impl Drop for Graph {
    fn drop(&mut self) {
        let requests = &self.shared.metrics.graphs.requests;
        requests.fetch_add(self.source.requests(), Relaxed);
    }
}

/// A graph that is asked, in one version.
pub(crate) struct Graph {
    shared: Arc<ServerState>,
    store: StoreId,
    /// Whether it changes within a version: nothing is remembered of it.
    is_hybrid: bool,
    source: Arc<GraphSource<Sets>>,
    description: Arc<Description>,
}

impl Graphs {
    pub(crate) fn new(metrics: Arc<NodeMetrics>) -> Self {
        Self {
            networks: Networks::new(metrics),
            descriptions: Mutex::default(),
        }
    }

    /// The description of a version, if it was read already.
    pub(crate) fn described(&self, version: StoreVersion) -> Option<Arc<Description>> {
        let known = self.descriptions.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(of, _)| *of == version);
        found.map(|(_, description)| Arc::clone(description))
    }

    fn describe(&self, version: StoreVersion, description: &Arc<Description>) {
        let mut known = self.descriptions.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= DESCRIPTIONS_MAX {
            known.remove(0);
        }
        known.push((version, Arc::clone(description)));
    }
}

/// Graphs, asked through another port than that of RESP.
#[derive(Debug, Clone)]
pub struct GraphQueries(Weak<ServerState>);

impl GraphQueries {
    pub(crate) fn of(shared: &Arc<ServerState>) -> Self {
        Self(Arc::downgrade(shared))
    }

    /// Answers a query in openCypher, within the time that the settings allow, or less. It is not charged to a quota.
    ///
    /// # Errors
    /// The error to answer with, its code first: `NOSTORE`, `WRONGTYPE`, and those of queries.
    pub async fn query(
        &self,
        graph: &StoreName,
        text: &str,
        parameters: BTreeMap<String, Value>,
        timeout_ms: Option<u64>,
        partial: bool,
    ) -> Result<QueryResult, String> {
        let shared = self.0.upgrade().ok_or("CLUSTERDOWN the process is stopping")?;
        let store = {
            let catalog = shared.catalog.load();
            let store = catalog.stores().iter().find(|store| store.name == *graph);
            let store = store.ok_or_else(|| refusal::no_store(graph.as_str().as_bytes()))?;
            check_type(&catalog, store)?;
            store.id
        };
        let query = Query {
            prepared: Prepared::new(text)?,
            parameters,
            explain: false,
            partial,
        };
        let asking = Arc::clone(&shared);
        let work = async move |stop| ask(asking, store, &Asked::Query(query), stop).await;
        match in_time(&shared, timeout_ms, work).await? {
            Answer::Query(result, _) => Ok(*result),
            Answer::Question(_) | Answer::Steps(_) => Ok(QueryResult::default()),
        }
    }
}

/// Checks that a store is a graph.
///
/// # Errors
/// The error to answer with.
pub(crate) fn check_type(catalog: &Catalog, store: &ServingStore) -> Result<(), String> {
    let value_type = catalog.value_type(store);
    if value_type == ValueType::Graph {
        return Ok(());
    }
    Err(format!(
        "WRONGTYPE store {:?} has values of type {value_type}, and is no graph: push one with --edges",
        store.name
    ))
}

/// Has work on a graph done on the threads for that: within this many milliseconds, if that is less than the settings allow.
///
/// # Errors
/// The error to answer with.
pub(crate) async fn in_time<T: Send + 'static, F: Future<Output = Result<T, String>> + Send + 'static>(
    shared: &ServerState,
    timeout_ms: Option<u64>,
    work: impl FnOnce(Stop) -> F,
) -> Result<T, String> {
    let longest_ms = shared.settings.get(Setting::GraphTimeoutMs);
    let timeout_ms = timeout_ms.unwrap_or(longest_ms).min(longest_ms);
    let deadline = Instant::now() + Duration::from_millis(timeout_ms);
    let done = shared.compute.run(deadline, work).await;
    done.map_err(|none| match none {
        NoResult::Late => {
            format!("TIMEOUT the query took more than {timeout_ms} ms: bound it, or raise graph-timeout-ms")
        }
        other => other.refusal(),
    })?
}

/// A request on a graph.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A question about a social network.
    Question(Question),
    /// A query in openCypher.
    Query(Query),
}

/// A query in openCypher.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) prepared: Prepared,
    pub(crate) parameters: BTreeMap<String, Value>,
    /// Whether its steps are wanted, without carrying them out.
    pub(crate) explain: bool,
    /// Whether a query that ends at a limit has the rows so far as its answer.
    pub(crate) partial: bool,
}

/// The answer to a request on a graph.
#[derive(Debug)]
pub(crate) enum Answer {
    Question(Answered),
    Query(Box<QueryResult>, Arc<Description>),
    /// The steps of a query.
    Steps(Vec<String>),
}

/// Asks a graph, and begins again if its version changes meanwhile.
///
/// # Errors
/// The error to answer with.
pub(crate) async fn ask(shared: Arc<ServerState>, store: StoreId, asked: &Asked, stop: Stop) -> Result<Answer, String> {
    let metrics = &shared.metrics.graphs;
    metrics.queries.fetch_add(1, Relaxed);
    let done = in_one_version(|| attempt(&shared, store, asked, &stop)).await;
    metrics.failures.fetch_add(done.is_err().into(), Relaxed);
    done
}

async fn attempt(shared: &Arc<ServerState>, store: StoreId, asked: &Asked, stop: &Stop) -> Result<Answer, String> {
    let catalog = Arc::clone(&shared.catalog.load());
    let graph = Graph::open(shared, &catalog, store, stop).await?;
    let query = match asked {
        Asked::Question(question) => return operation::carry_out(&graph, question).await.map(Answer::Question),
        Asked::Query(query) => query,
    };
    if query.explain {
        return Ok(Answer::Steps(
            query.prepared.explain(&graph.description, &query.parameters),
        ));
    }
    let setting = |setting| shared.settings.get(setting);
    let stop = stop.clone();
    let limits = Limits {
        deadline: stop.deadline,
        rows_max: setting(Setting::GraphRowsMax) as usize,
        expanded_max: setting(Setting::GraphExpandedMax),
        may_go_on: Box::new(move || stop.may_go_on()),
        partial: query.partial,
    };
    let result = query
        .prepared
        .run(&*graph.source, &graph.description, &query.parameters, &limits);
    Ok(Answer::Query(Box::new(result.await?), Arc::clone(&graph.description)))
}

impl Graph {
    async fn open(
        shared: &Arc<ServerState>,
        catalog: &Arc<Catalog>,
        store: StoreId,
        stop: &Stop,
    ) -> Result<Self, String> {
        let place = catalog.stores().iter().position(|known| known.id == store);
        let place = place.ok_or("NOSTORE the graph was dropped meanwhile")? as u16;
        let sets = Sets::new(Arc::clone(shared), Arc::clone(catalog), place, stop.clone());
        let source = Arc::new(GraphSource::new(sets, None));
        let is_hybrid = catalog.stores()[place as usize].kind == StoreKind::Hybrid;
        let version = StoreVersion::current(catalog, place).filter(|_| !is_hybrid);
        let known = version.and_then(|version| shared.graphs.described(version));
        let description = match known {
            Some(known) => known,
            None => {
                let name = &catalog.stores()[place as usize].name;
                let description = Arc::new(description(&*source, name).await?);
                if let (Some(version), Some(pinned)) = (version, source.pinned())
                    && version.version == pinned.version
                {
                    shared.graphs.describe(version, &description);
                }
                description
            }
        };
        Ok(Self {
            shared: Arc::clone(shared),
            store,
            is_hybrid,
            source,
            description,
        })
    }

    /// The network of a vertex, from the cache if it is there; and whether it was.
    async fn network(&self, relation: Relation<'_>, id: u64) -> Result<(Arc<Network>, bool), String> {
        let networks = &self.shared.graphs.networks;
        let setting = |setting| self.shared.settings.get(setting);
        let bytes_max = setting(Setting::GraphCacheBytes);
        if bytes_max == 0 || self.is_hybrid {
            let network = network(&*self.source, relation, id, Ask::SynchronousUnion).await?;
            return Ok((Arc::new(network), false));
        }
        networks.resize(bytes_max);
        let name = Name {
            store: self.store,
            version: self.source.pinned().map(|pinned| pinned.version),
            edge_type: relation.name.into(),
            direction: relation.direction,
            id,
        };
        let age = Duration::from_secs(setting(Setting::GraphCacheAgeSeconds));
        match networks.get(&name, age / 2, age) {
            Kept::Network { network, renew } => {
                if renew {
                    self.renew(name);
                }
                Ok((network, true))
            }
            Kept::Nothing => {
                let compute = network(&*self.source, relation, id, Ask::SynchronousUnion);
                Ok((networks.get_or_compute(name, compute).await?, false))
            }
        }
    }

    /// Computes a network again, in the background.
    fn renew(&self, name: Name) {
        let (shared, store) = (Arc::clone(&self.shared), self.store);
        let timeout = Duration::from_millis(shared.settings.get(Setting::GraphTimeoutMs));
        let work = {
            let shared = Arc::clone(&shared);
            async move |stop: Stop| {
                let catalog = Arc::clone(&shared.catalog.load());
                let computing = shared.graphs.networks.compute(name.clone());
                let renewed = async {
                    let graph = Self::open(&shared, &catalog, store, &stop).await?;
                    let relation = Relation::of(&graph.description, &name.edge_type, name.direction)?;
                    network(&*graph.source, relation, name.id, Ask::AsynchronousUnion).await
                };
                match renewed.await {
                    Ok(network) => computing.keep(Some(network)),
                    Err(error) => tracing::debug!(error, "a network was not computed again"),
                }
            }
        };
        let begun = shared.compute.begin(Instant::now() + timeout, work);
        // The stale entry is served until it is too old, and the next query then computes it.
        if let Err(NoResult::Full) = begun {
            tracing::debug!("no network is computed again: too much is under way");
        }
    }
}
