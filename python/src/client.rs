//! The client of a cluster. Each method makes one future, for which a blocking client waits, and which an asyncio client
//! returns.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_admin::Endpoint;
use fondaco_client::graph::GraphOptions;
use fondaco_client::quorum::{Intent, WriteTimes};
use fondaco_client::{Client as Inner, ClientError, PutOptions, SetOptions, trusting};
use fondaco_model::StoreName;
use fondaco_model::cluster::Topology;
use fondaco_model::versioned::{Record, Resolution, Update, VectorClock, resolve};
use fondaco_protocol::{WireKey, now_unix_ms};
use fondaco_push::{CancelToken, Job};
use fondaco_schema::{Content, ValueRules};
use futures_util::{StreamExt, stream};
use pyo3::BoundObject;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::arrow::reader;
use crate::control;
use crate::fault::Fault;
use crate::fields;
use crate::graph::{GraphInput, GraphPushOptions};
use crate::keys::{value, wire_key, wire_keys};
use crate::options::{Reading, milliseconds, put_options, read_options};
use crate::push::{CancelOnDrop, DeployOptions, Input, PushOptions, Reporter, deploy_version, push_rows, run};
use crate::runtime::{check_process, promise, wait, wait_for_job};
use crate::scan::{Scan, export_rows, of_store};
use crate::schemas::SchemaCache;
use crate::sets::{set_answer, set_query};
use crate::values::{Columns, Values};

/// How many writes of one call are under way at a time.
const WRITES_AT_ONCE: usize = 256;

/// How long a request that changed a store waits until the client knows it.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(2);

/// How often it looks.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(5);

/// The client of a cluster.
#[pyclass(frozen, module = "fondaco._native")]
pub struct Client {
    made_by: u32,
    is_async: bool,
    deadline: Duration,
    endpoint: Arc<Endpoint>,
    schemas: Arc<SchemaCache>,
    /// Asks for the newest topology.
    wanted: Arc<Notify>,
    /// Never dropped in a child of the process that made it: its threads are missing there.
    client: ManuallyDrop<Mutex<Option<Inner>>>,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.made_by == process::id() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.client) };
        }
    }
}

/// Makes an object of Python.
type Make = dyn for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>> + Send;

/// A result that needs the interpreter to become an object.
struct Made(Box<Make>);

impl Made {
    fn by(make: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>> + Send + 'static) -> Self {
        Self(Box::new(make))
    }
}

impl<'py> IntoPyObject<'py> for Made {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (self.0)(py)
    }
}

/// A client as `connect` makes it.
#[pyfunction]
#[pyo3(signature = (seeds, *, http, user, password, token, tls, ca, zone, deadline_ms, connect_ms, is_async))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub fn connect<'py>(
    py: Python<'py>,
    seeds: Vec<String>,
    http: Option<String>,
    user: Option<String>,
    password: Option<String>,
    token: Option<String>,
    tls: bool,
    ca: Option<PathBuf>,
    zone: Option<String>,
    deadline_ms: f64,
    connect_ms: f64,
    is_async: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let (deadline, connect_time) = (milliseconds(deadline_ms)?, milliseconds(connect_ms)?);
    let endpoint = Endpoint {
        http,
        resp: seeds.first().cloned(),
        user,
        password,
        token,
        tls,
        ca,
        ..Endpoint::default()
    };
    let connecting = async move {
        let seeds = match seeds.is_empty() {
            false => seeds,
            true => {
                let endpoint = endpoint.clone();
                vec![blocking(move || Ok(endpoint.resp_address()?)).await?]
            }
        };
        let mut builder = Inner::builder().seeds(seeds).options(fondaco_client::ReadOptions {
            deadline,
            ..fondaco_client::ReadOptions::default()
        });
        if let Some(password) = &endpoint.password {
            builder = builder.credentials(endpoint.user.clone(), password.clone());
        }
        if let Some(zone) = zone {
            builder = builder.zone(zone);
        }
        if endpoint.tls || endpoint.ca.is_some() {
            let path = endpoint.ca.clone().ok_or_else(|| {
                Fault::bad_input("name the certificates that the nodes are trusted by: ca=\"ca.pem\"")
            })?;
            let pem = fs::read(&path).map_err(|error| Fault::bad_input(format!("cannot read {path:?}: {error}")))?;
            builder = builder.tls(trusting(&pem)?);
        }
        let wanted = Arc::new(Notify::new());
        let client = builder.topology_wanted(Arc::clone(&wanted)).build()?;
        client.ready(connect_time).await?;
        let endpoint = Arc::new(endpoint);
        Ok(Client {
            made_by: process::id(),
            is_async,
            deadline,
            schemas: Arc::new(SchemaCache::new(Arc::clone(&endpoint))),
            endpoint,
            wanted,
            client: ManuallyDrop::new(Mutex::new(Some(client))),
        })
    };
    // Of several libraries in the lock, one has to be named.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match is_async {
        true => promise(py, connecting),
        false => Ok(wait(py, connecting)?.into_pyobject(py)?.into_any()),
    }
}

/// Runs a function that blocks, in a thread for such.
pub async fn blocking<T: Send + 'static>(run: impl FnOnce() -> Result<T, Fault> + Send + 'static) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(run).await {
        Ok(ended) => ended,
        Err(error) => Err(Fault::new(
            "failed",
            format!("the call ended without an answer: {error}"),
        )),
    }
}

impl Client {
    /// Waits for a future, or returns it.
    fn call<'py, T, F>(&self, py: Python<'py>, future: F) -> PyResult<Bound<'py, PyAny>>
    where
        T: for<'a> IntoPyObject<'a> + Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        match self.is_async {
            true => promise(py, future),
            false => {
                let value = wait(py, future)?;
                value
                    .into_pyobject(py)
                    .map(|value| value.into_any().unbind().into_bound(py))
                    .map_err(Into::into)
            }
        }
    }

    fn inner(&self) -> PyResult<Inner> {
        check_process(self.made_by)?;
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.ok_or_else(|| Fault::new("CLOSED", "the client is closed: connect again").into())
    }

    /// Runs a job with the control port; its result is JSON. After it, the client knows the version that it deployed.
    fn job<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        progress: Option<Py<PyAny>>,
        job: impl FnOnce(&Endpoint, &StoreName, Job<'_>) -> Result<serde_json::Value, Fault> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (client, wanted) = (self.inner()?, Arc::clone(&self.wanted));
        let (store, endpoint) = (store_name(store)?, Arc::clone(&self.endpoint));
        let reporter = Reporter::new(progress, CancelToken::default());
        let cancel = reporter.cancel_token();
        let name = store.clone();
        let job = async move {
            let result = run(reporter, move |job_of| job(&endpoint, &store, job_of)).await?;
            if let Some(version) = result.get("version").and_then(serde_json::Value::as_u64) {
                let is_known = |topology: &Topology| {
                    let known = topology.stores.get(&name).and_then(|known| known.current);
                    known.is_some_and(|known| known.get() >= version)
                };
                catch_up(&client, &wanted, is_known).await;
            }
            let result = result.to_string();
            Ok(Made::by(move |py| from_json(py, &result)))
        };
        match self.is_async {
            true => promise(py, job),
            false => wait_for_job(py, job, &cancel)?.into_pyobject(py),
        }
    }

    fn times(&self, deadline_ms: Option<f64>) -> Result<Duration, Fault> {
        Ok(deadline_ms.map(milliseconds).transpose()?.unwrap_or(self.deadline))
    }
}

/// The name of a store.
pub fn store_name(store: &str) -> Result<StoreName, Fault> {
    store.parse().map_err(|error| Fault::bad_input(format!("{error}")))
}

#[pymethods]
impl Client {
    #[getter]
    fn is_async(&self) -> bool {
        self.is_async
    }

    /// The value of a key.
    #[pyo3(signature = (store, key, options=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        key: &Bound<'py, PyAny>,
        options: Option<Reading>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let key = wire_key(&store_name(store)?, key)?;
        let options = read_options(options, self.deadline)?;
        self.call(py, async move {
            let mut reply = client.read(vec![key], &options).await?;
            let value = reply.values.pop().unwrap_or(Ok(None))?;
            Ok(Made::by(move |py| match value {
                Some(value) => Ok(PyBytes::new(py, &value).into_any()),
                None => Ok(py.None().into_bound(py)),
            }))
        })
    }

    /// The values of keys, of one store, or of those that the keys name.
    #[pyo3(signature = (store, keys, options=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        store: Option<&str>,
        keys: &Bound<'py, PyAny>,
        options: Option<Reading>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store.map(store_name).transpose()?;
        let keys = wire_keys(store.as_ref(), keys)?;
        let options = read_options(options, self.deadline)?;
        let columns = match store {
            Some(store) => Columns::Asked(Arc::clone(&self.schemas), store),
            None => Columns::None,
        };
        self.call(py, async move {
            let reply = client.read(keys.clone(), &options).await?;
            Ok(Values::new(keys, reply, columns))
        })
    }

    /// The row of a key as objects of Python.
    #[pyo3(signature = (store, key, options=None))]
    fn row<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        key: &Bound<'py, PyAny>,
        options: Option<Reading>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let key = wire_key(&store, key)?;
        let options = read_options(options, self.deadline)?;
        let columns = Columns::Asked(Arc::clone(&self.schemas), store);
        self.call(py, async move {
            let reply = client.read(vec![key.clone()], &options).await?;
            let values = Values::new(vec![key], reply, columns);
            // Asks for the columns, if they are not known, in a thread for what blocks.
            let values = blocking(move || values.columns().map(|_| values)).await?;
            Ok(Made::by(move |py| {
                let mut rows = values.rows(py, false)?;
                Ok(rows.pop().unwrap_or_else(|| py.None().into_bound(py)))
            }))
        })
    }

    /// Writes a key; returns the context.
    #[pyo3(signature = (store, key, new_value, context=None, ttl_ms=None, deadline_ms=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn put<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        key: &Bound<'py, PyAny>,
        new_value: &Bound<'py, PyAny>,
        context: Option<&[u8]>,
        ttl_ms: Option<u64>,
        deadline_ms: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let (key, new_value) = (wire_key(&store, key)?, value(new_value)?);
        let options = put_options(context, ttl_ms, self.times(deadline_ms)?)?;
        self.call(py, async move {
            let context = client.put(&store, key.key(), new_value, &options).await?;
            Ok(Made::by(move |py| Ok(PyBytes::new(py, &context.to_bytes()).into_any())))
        })
    }

    /// Writes keys, many at a time; returns the contexts in their order.
    #[pyo3(signature = (store, keys, new_values, contexts=None, ttl_ms=None, deadline_ms=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        keys: &Bound<'py, PyAny>,
        new_values: &Bound<'py, PyList>,
        contexts: Option<Vec<Option<Vec<u8>>>>,
        ttl_ms: Option<u64>,
        deadline_ms: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let keys = wire_keys(Some(&store), keys)?;
        let new_values = new_values
            .iter()
            .map(|one| value(&one))
            .collect::<Result<Vec<_>, _>>()?;
        let contexts = contexts.unwrap_or_else(|| vec![None; keys.len()]);
        if contexts.len() != keys.len() || new_values.len() != keys.len() {
            let counts = (keys.len(), new_values.len(), contexts.len());
            return Err(Fault::bad_input(format!(
                "there are {} keys, {} values and {} contexts: give as many of each",
                counts.0, counts.1, counts.2
            ))
            .into());
        }
        let deadline = self.times(deadline_ms)?;
        let options = contexts
            .iter()
            .map(|context| put_options(context.as_deref(), ttl_ms, deadline));
        let options = options.collect::<Result<Vec<PutOptions>, _>>()?;
        let writes = keys.into_iter().zip(new_values).zip(options);
        self.call(py, async move {
            let write = |((key, value), options): ((WireKey, Bytes), PutOptions)| {
                let (client, store) = (client.clone(), store.clone());
                async move { (client.put(&store, key.key(), value, &options).await, key) }
            };
            contexts_of(stream::iter(writes.map(write)).buffered(WRITES_AT_ONCE).collect().await)
        })
    }

    /// Deletes keys, many at a time; returns the contexts in their order.
    #[pyo3(signature = (store, keys, contexts=None, deadline_ms=None))]
    fn delete_many<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        keys: &Bound<'py, PyAny>,
        contexts: Option<Vec<Option<Vec<u8>>>>,
        deadline_ms: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let keys = wire_keys(Some(&store), keys)?;
        let contexts = contexts.unwrap_or_else(|| vec![None; keys.len()]);
        if contexts.len() != keys.len() {
            let counts = (keys.len(), contexts.len());
            return Err(Fault::bad_input(format!("there are {} keys and {} contexts", counts.0, counts.1)).into());
        }
        let deadline = self.times(deadline_ms)?;
        let options = contexts
            .iter()
            .map(|context| put_options(context.as_deref(), None, deadline));
        let options = options.collect::<Result<Vec<PutOptions>, _>>()?;
        let deletes = keys.into_iter().zip(options);
        self.call(py, async move {
            let delete = |(key, options): (WireKey, PutOptions)| {
                let (client, store) = (client.clone(), store.clone());
                async move { (client.delete(&store, key.key(), &options).await, key) }
            };
            contexts_of(
                stream::iter(deletes.map(delete))
                    .buffered(WRITES_AT_ONCE)
                    .collect()
                    .await,
            )
        })
    }

    /// Deletes a key; returns the context.
    #[pyo3(signature = (store, key, context=None, deadline_ms=None))]
    fn delete<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        key: &Bound<'py, PyAny>,
        context: Option<&[u8]>,
        deadline_ms: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let key = wire_key(&store, key)?;
        let options = put_options(context, None, self.times(deadline_ms)?)?;
        self.call(py, async move {
            let context = client.delete(&store, key.key(), &options).await?;
            Ok(Made::by(move |py| Ok(PyBytes::new(py, &context.to_bytes()).into_any())))
        })
    }

    /// The concurrent values of a key, and the context to replace them.
    #[pyo3(signature = (store, key, options=None))]
    fn get_context<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        key: &Bound<'py, PyAny>,
        options: Option<Reading>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let key = wire_key(&store_name(store)?, key)?;
        let options = read_options(options, self.deadline)?;
        self.call(py, async move {
            let (mut records, _room) = client.get_records(vec![key], &options).await?;
            let record = records.pop().unwrap_or_else(|| Ok(Record::default()))?;
            Ok(Made::by(move |py| siblings(py, &record, now_unix_ms())))
        })
    }

    /// The concurrent values of each key, and the context to replace them.
    #[pyo3(signature = (store, keys, options=None))]
    fn get_contexts<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        keys: &Bound<'py, PyAny>,
        options: Option<Reading>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let keys = wire_keys(Some(&store), keys)?;
        let options = read_options(options, self.deadline)?;
        self.call(py, async move {
            let (records, _room) = client.get_records(keys, &options).await?;
            let records = records.into_iter().collect::<Result<Vec<Record>, ClientError>>()?;
            Ok(Made::by(move |py| {
                let now_unix_ms = now_unix_ms();
                let all = records.iter().map(|record| siblings(py, record, now_unix_ms));
                Ok(PyList::new(py, all.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }))
        })
    }

    /// Adds to a number; returns the new one.
    #[pyo3(signature = (store, key, by, deadline_ms=None))]
    fn increment<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        key: &Bound<'py, PyAny>,
        by: i64,
        deadline_ms: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let key = wire_key(&store, key)?;
        let deadline = self.times(deadline_ms)?;
        self.call(py, async move { increment(&client, &store, key, by, deadline).await })
    }

    /// Changes fields of a value; returns the new one.
    #[pyo3(signature = (store, key, update))]
    fn update<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        key: &Bound<'py, PyAny>,
        update: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let key = wire_key(&store, key)?;
        let update = fondaco_schema::Update::parse(update.as_bytes());
        let update = update.map_err(|error| Fault::bad_input(error.to_string()))?;
        self.call(py, async move { update_fields(&client, &store, key, update).await })
    }

    /// A query over sets of ids: its answer as JSON.
    #[pyo3(signature = (store, keys, query, argument, ids_max=None, options=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn sets<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        keys: &Bound<'py, PyAny>,
        query: &str,
        argument: Vec<u64>,
        ids_max: Option<usize>,
        options: Option<Reading>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let keys = wire_keys(Some(&store), keys)?;
        let query = set_query(query, argument)?;
        let mut set_options = SetOptions {
            read: read_options(options, self.deadline)?,
            ..SetOptions::default()
        };
        set_options.ids_max = ids_max.unwrap_or(set_options.ids_max);
        self.call(py, async move {
            let keys: Vec<&[u8]> = keys.iter().map(WireKey::key).collect();
            let answer = client.sets(&store, &keys, &query, &set_options).await?;
            Ok(Made::by(move |py| set_answer(py, answer)))
        })
    }

    /// A query over fields of values, in the words of a command; with `top`, only the keys with the highest scores, in their order.
    #[pyo3(signature = (store, keys, words, top=None, options=None))]
    fn fields<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        keys: &Bound<'py, PyAny>,
        words: Vec<Vec<u8>>,
        top: Option<usize>,
        options: Option<Reading>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let store = store_name(store)?;
        let mut keys = wire_keys(Some(&store), keys)?;
        let query = fields::query(&words)?;
        let options = read_options(options, self.deadline)?;
        let (cache, endpoint) = (Arc::clone(&self.schemas), Arc::clone(&self.endpoint));
        self.call(py, async move {
            let topology = client.topology();
            let known = topology.as_ref().and_then(|topology| topology.stores.get(&store));
            let has_schemas = known.is_some_and(|known| known.value_type.has_schemas());
            let (schemas, query) = match has_schemas {
                true => {
                    let (cache, store) = (Arc::clone(&cache), store.clone());
                    blocking(move || cache.values.prepare(&endpoint, &store, query)).await?
                }
                false => (Arc::default(), query),
            };
            let mut reply = client.fields(keys.clone(), &query, Some(&*schemas), &options).await?;
            if let Some(count) = top {
                let best = fields::best(&reply, &query, count);
                keys = best.iter().map(|&at| keys[at].clone()).collect();
                reply.values = best.iter().map(|&at| reply.values[at].clone()).collect();
            }
            blocking(move || fields::typed(keys, reply, &query, &schemas, (&*cache, &store))).await
        })
    }

    /// A query of a graph: its columns, its rows, and why there may be more.
    #[pyo3(signature = (store, text, parameters, timeout_ms=None, rows_max=None, partial=false))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn query<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        text: String,
        parameters: &str,
        timeout_ms: Option<f64>,
        rows_max: Option<usize>,
        partial: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner()?;
        let graph = client.graph(store_name(store)?);
        let parameters: BTreeMap<String, serde_json::Value> = parsed(parameters)?;
        let parameters = parameters
            .iter()
            .map(|(name, value)| (name.clone(), fondaco_client::graph::Value::of_json(value)))
            .collect();
        let mut options = GraphOptions {
            partial,
            ..GraphOptions::default()
        };
        options.timeout = timeout_ms.map(milliseconds).transpose()?.unwrap_or(options.timeout);
        options.rows_max = rows_max.unwrap_or(options.rows_max);
        self.call(py, async move {
            let result = graph.query(&text, &parameters, &options).await?;
            let answer = serde_json::json!({
                "columns": result.columns,
                "rows": result.json_rows(),
                "incomplete": result.incomplete,
            });
            let answer = answer.to_string();
            Ok(Made::by(move |py| {
                let class = py.import("fondaco.graph")?.getattr("QueryResult")?;
                class.call1((from_json(py, &answer)?,))
            }))
        })
    }

    /// A request to the control port, and its answer, or a member of it.
    #[pyo3(signature = (method, path, body=None, member=None))]
    fn control<'py>(
        &self,
        py: Python<'py>,
        method: String,
        path: String,
        body: Option<String>,
        member: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (client, wanted) = (self.inner()?, Arc::clone(&self.wanted));
        let endpoint = Arc::clone(&self.endpoint);
        self.call(py, async move {
            let news = control::News::of(&method, &path);
            let answer = blocking(move || control::request(&endpoint, &method, &path, body.as_deref())).await?;
            if let Some(news) = news {
                catch_up(&client, &wanted, |topology| news.are_known(&answer, topology)).await;
            }
            let answer = answer.to_string();
            Ok(Made::by(move |py| {
                let answer = from_json(py, &answer)?;
                match member {
                    Some(member) => answer.get_item(member),
                    None => Ok(answer),
                }
            }))
        })
    }

    /// Pushes rows of Arrow; returns the result as an object.
    #[pyo3(signature = (store, rows, options, progress=None))]
    fn push<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        rows: &Bound<'py, PyAny>,
        options: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options: PushOptions = parsed(options)?;
        let rows = reader(rows)?;
        self.job(py, store, progress, move |endpoint, store, job| {
            push_rows(endpoint, store, Input::Rows(rows), &options, job)
        })
    }

    /// Pushes a graph of tables of edges and of vertices, each with its name; returns the result as an object.
    #[pyo3(signature = (store, edges, vertices, graph, options, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn push_graph<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        edges: Vec<(Option<String>, Bound<'py, PyAny>)>,
        vertices: Vec<(Option<String>, Bound<'py, PyAny>)>,
        graph: &str,
        options: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (graph, options): (GraphPushOptions, PushOptions) = (parsed(graph)?, parsed(options)?);
        let graph = GraphInput::new(edges, vertices, graph)?;
        self.job(py, store, progress, move |endpoint, store, job| {
            push_rows(endpoint, store, Input::Graph(graph), &options, job)
        })
    }

    /// Deploys a built version; returns the result as an object.
    #[pyo3(signature = (store, options, progress=None))]
    fn deploy<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        options: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options: DeployOptions = parsed(options)?;
        self.job(py, store, progress, move |endpoint, store, job| {
            deploy_version(endpoint, store, &options, job)
        })
    }

    /// All rows of a store.
    #[pyo3(signature = (store, raw=false))]
    fn scan<'py>(&self, py: Python<'py>, store: &str, raw: bool) -> PyResult<Bound<'py, PyAny>> {
        self.inner()?;
        let (store, endpoint) = (store_name(store)?, Arc::clone(&self.endpoint));
        self.call(py, async move {
            let cancel = CancelToken::default();
            let guard = CancelOnDrop(cancel.clone());
            let scan = blocking(move || Scan::open(&store, &endpoint, raw, &cancel)).await;
            drop(guard);
            scan
        })
    }

    /// Exports a store to a file; returns the report as an object.
    #[pyo3(signature = (store, path, format, raw, progress=None))]
    fn export<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        path: PathBuf,
        format: String,
        raw: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let selection = of_store(store, &self.endpoint, raw)?;
        self.job(py, store, progress, move |_, _, job| {
            export_rows(&selection, path, &format, job)
        })
    }

    /// Ends all connections once no call needs them.
    fn close(&self) -> PyResult<()> {
        check_process(self.made_by)?;
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(client);
        Ok(())
    }
}

/// Waits until the client knows what its own process has changed, so that its next request heeds it. The cluster is asked
/// once a second otherwise.
pub async fn catch_up(client: &Inner, wanted: &Notify, is_known: impl Fn(&Topology) -> bool) {
    let end = Instant::now() + CATCH_UP_TIME_MAX;
    while !client.topology().is_some_and(|topology| is_known(&topology)) && Instant::now() < end {
        wanted.notify_one();
        tokio::time::sleep(CATCH_UP_INTERVAL).await;
    }
}

/// The concurrent values of a record, and its context.
fn siblings<'py>(py: Python<'py>, record: &Record, now_unix_ms: u64) -> PyResult<Bound<'py, PyAny>> {
    let values = resolve(record, Resolution::All, now_unix_ms).values;
    let values = PyList::new(py, values.iter().map(|value| PyBytes::new(py, value)))?;
    let context = PyBytes::new(py, &record.context().to_bytes());
    Ok((values, context).into_pyobject(py)?.into_any())
}

/// Options that Python gives as JSON.
fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| Fault::bad_input(error.to_string()))
}

/// An object of Python from JSON.
fn from_json<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (text,))
}

/// The contexts of writes, or an error that counts those that failed.
fn contexts_of(written: Vec<(Result<VectorClock, ClientError>, WireKey)>) -> Result<Made, Fault> {
    let all = written.len();
    let failed = written.iter().filter(|(context, _)| context.is_err()).count();
    let mut contexts = Vec::with_capacity(all);
    for (context, key) in written {
        match context {
            Ok(context) => contexts.push(context.to_bytes()),
            Err(error) => {
                let Fault::Named { code, message } = Fault::from(error) else {
                    continue;
                };
                let key = String::from_utf8_lossy(key.key()).into_owned();
                let message = format!("{failed} of {all} keys were not written, the first is {key:?}: {message}");
                return Err(Fault::new(code, message));
            }
        }
    }
    Ok(Made::by(move |py: Python<'_>| {
        let contexts = contexts.iter().map(|context| PyBytes::new(py, context));
        Ok(PyList::new(py, contexts)?.into_any())
    }))
}

async fn increment(client: &Inner, store: &StoreName, key: WireKey, by: i64, deadline: Duration) -> Result<i64, Fault> {
    let topology = client.topology();
    let known = topology.as_ref().and_then(|topology| topology.stores.get(store));
    let settings = known.and_then(|known| known.versioned);
    if settings.is_some_and(|settings| settings.resolution == Resolution::Counter) {
        // An addition never conflicts. The counter is read only for the answer.
        let before = client.get(store, key.key()).await?;
        let after = added(before.as_deref(), by)?;
        let update = Update::add(by, now_unix_ms(), None);
        let intent = Intent::Context(VectorClock::default());
        client.write(key, intent, update, WriteTimes::from(deadline)).await?;
        return Ok(after);
    }
    let change = move |value: Option<&[u8]>| match added(value, by) {
        Ok(number) => Some(number.to_string().into_bytes()),
        // The value stays, and is found to be no number below.
        Err(_) => value.map(<[u8]>::to_vec),
    };
    let after = client.update(store, key.key(), change).await?;
    added(after.as_deref(), 0)
}

async fn update_fields(
    client: &Inner,
    store: &StoreName,
    key: WireKey,
    update: fondaco_schema::Update,
) -> Result<Made, Fault> {
    let topology = client.topology();
    let known = topology.as_ref().and_then(|topology| topology.stores.get(store));
    let value_type = known.map(|known| known.value_type).unwrap_or_default();
    if value_type.has_schemas() {
        return Err(Fault::bad_input(format!(
            "values of type {value_type} are updated by nodes and routers, which know their schemas: send FONDACO.UPDATE"
        )));
    }
    let rules = Arc::new(ValueRules::new(value_type, Arc::default()));
    let outcome = Arc::new(Mutex::new(Ok(None)));
    let fields: Vec<String> = update.fields().map(str::to_owned).collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let change = {
        let (rules, outcome) = (Arc::clone(&rules), Arc::clone(&outcome));
        move |value: Option<&Bytes>| {
            let mut content = Content::of(value.cloned(), &rules);
            let applied = content.apply(&update).map(|()| content.value());
            let changed = applied.as_ref().ok().cloned().flatten();
            *outcome.lock().unwrap_or_else(PoisonError::into_inner) = applied;
            changed
        }
    };
    client.update_fields(store, key.key(), &fields, change).await?;
    let outcome = std::mem::replace(&mut *outcome.lock().unwrap_or_else(PoisonError::into_inner), Ok(None));
    let value = outcome.map_err(|error| Fault::bad_input(error.to_string()))?;
    let shown = value.map(|value| rules.shown(&value)).transpose();
    let shown = shown.map_err(|error| Fault::bad_input(error.to_string()))?;
    let text = shown.unwrap_or_default().to_string();
    Ok(Made::by(move |py| from_json(py, &text)))
}

fn added(value: Option<&[u8]>, by: i64) -> Result<i64, Fault> {
    let number = match value {
        None => Some(0),
        Some(digits) => std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse::<i64>().ok()),
    };
    let number = number.ok_or_else(|| Fault::bad_input("the value is not an integer, or out of range"))?;
    number
        .checked_add(by)
        .ok_or_else(|| Fault::bad_input("the increment would overflow 64 bits"))
}
