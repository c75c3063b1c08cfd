//! Pushes and deploys from Python: rows in memory go to a build, and its version to the cluster.
//!
//! The job runs in a thread of its own. A signal, or a cancelled task, cancels it; the caller of a blocking push gets the
//! exception once the job has cleaned up.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use fondaco_admin::Endpoint;
use fondaco_builder::{BuildError, BuildOptions, Declaration, Phase, ValueSelection};
use fondaco_model::{KeyType, PartitionCount, StoreName, ValueType};
use fondaco_push::{
    BuildResult, CancelToken, Clusters, Deploy, Earlier, Job, Note, Observer, Outcome, Progress, Push, PushError,
    Pushed, Rows, RowsInMemory, build, declaration, deploy, push, with_causes,
};
use fondaco_schema::Schema;
use fondaco_storage::Location;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fault::Fault;
use crate::graph::GraphInput;
use crate::runtime::visit;

/// The threads of a build, unless more are asked for.
const BUILD_THREADS: usize = 2;

/// The options of a push, as `Store.push` gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushOptions {
    key: Vec<String>,
    value: Option<String>,
    values: Option<Vec<String>>,
    exclude: Vec<String>,
    on_duplicate: String,
    numbers: String,
    non_finite: String,
    value_type: Option<String>,
    key_type: Option<String>,
    /// Avro's JSON, or Protobuf's descriptor set in base64.
    schema: Option<String>,
    message: Option<String>,
    schema_id: Option<u16>,
    compression: String,
    create: bool,
    incremental: bool,
    deploy: bool,
    output: Option<String>,
    upload: bool,
    run: Option<String>,
    again: bool,
    allow_empty: bool,
    bad_rows_max: u64,
    memory_bytes: Option<u64>,
    threads: Option<usize>,
    temporary: Option<PathBuf>,
    as_of_unix_ms: Option<u64>,
}

/// What is pushed.
pub enum Input {
    /// Each row is a record.
    Rows(Batches),
    /// Tables of edges and of vertices.
    Graph(GraphInput),
}

/// The options of a deploy, as `Store.deploy` gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeployOptions {
    source: String,
    upload: bool,
    run: Option<String>,
    again: bool,
}

/// Rows from Python.
pub type Batches = Box<dyn arrow_array::RecordBatchReader + Send>;

impl From<PushError> for Fault {
    fn from(error: PushError) -> Self {
        let code = match &error {
            error if error.is_cancelled() => "CANCELLED",
            PushError::Build(BuildError::NotEnoughSpace { .. } | BuildError::Temporary { .. }) => "NOSPACE",
            PushError::NoSpace { .. } => "NOSPACE",
            PushError::Build(_) | PushError::Storage(_) => "BADINPUT",
            PushError::Admin(_) | PushError::WrongOptions(_) => error.code(),
            other if other.code() != "failed" => other.code(),
            _ => "PUSHFAILED",
        };
        Self::new(code.to_owned(), with_causes(&error))
    }
}

/// Pushes rows; returns what was built and deployed, as JSON. It blocks.
pub fn push_rows(
    endpoint: &Endpoint,
    store: &StoreName,
    input: Input,
    options: &PushOptions,
    job: Job<'_>,
) -> Result<Value, Fault> {
    let temporary = options.temporary.clone().unwrap_or_else(std::env::temp_dir);
    // It becomes that of the cluster.
    let partitions = fondaco_push::partition_count(1)?;
    let output = Location::local(temporary.join("fondaco-unused"));
    let mut building = BuildOptions::new(store.clone(), partitions, Vec::new(), "", output, temporary);
    building.key.clone_from(&options.key);
    building.value = match (&options.value, &options.values) {
        (Some(_), Some(_)) => return Err(Fault::bad_input("give value= or values=, and not both")),
        (Some(column), None) => ValueSelection::Column(column.clone()),
        (None, Some(columns)) => ValueSelection::Columns(columns.clone()),
        (None, None) => ValueSelection::AllOthers,
    };
    building.reading.exclude.clone_from(&options.exclude);
    building.on_duplicate = chosen("on_duplicate", &options.on_duplicate)?;
    building.reading.numbers = chosen("numbers", &options.numbers)?;
    building.reading.non_finite = chosen("non_finite", &options.non_finite)?;
    building.compression = chosen("compression", &options.compression)?;
    building.allow_empty = options.allow_empty;
    building.bad_rows_max = options.bad_rows_max;
    building.cut_unix_ms = options.as_of_unix_ms;
    building.memory_bytes = options.memory_bytes.unwrap_or(building.memory_bytes);
    building.threads = options.threads.unwrap_or(BUILD_THREADS);
    let value_type = options.value_type.as_deref();
    let value_type: Option<ValueType> = value_type.map(|text| chosen("value_type", text)).transpose()?;
    let key_type = options.key_type.as_deref();
    let key_type: Option<KeyType> = key_type.map(|text| chosen("key_type", text)).transpose()?;
    building.declared = Declaration {
        key_type: key_type.clone().unwrap_or_default(),
        schema_id: options.schema_id,
        ..value_type.unwrap_or_default().into()
    };
    if let Some(text) = &options.schema {
        let schema = Schema::of_text(building.declared.value_type, text, options.message.as_deref());
        let schema = schema.map_err(|error| Fault::bad_input(format!("schema: {error}")))?;
        building.declared.schemas.insert(options.schema_id.unwrap_or(1), schema);
    }
    let keep_at = options.output.as_deref().map(str::parse::<Location>).transpose();
    let keep_at = keep_at.map_err(PushError::from)?;
    if !options.create && options.deploy && endpoint.client()?.store(store)?.is_none() {
        return Err(Fault::new(
            "store_not_found",
            format!("no store is named {store:?}: create it, or push with create=True"),
        ));
    }
    let (rows, _files);
    match input {
        Input::Rows(batches) => rows = Rows::InMemory(RowsInMemory::new(batches)),
        Input::Graph(graph) => {
            let files = graph.write(&building.temporary, &options.key, job)?;
            building.inputs.clone_from(&files.inputs);
            rows = files.rows.clone();
            _files = files;
        }
    }
    if !options.deploy {
        let output = keep_at.ok_or_else(|| Fault::bad_input("deploy=False needs output=, the place of the version"))?;
        if options.incremental {
            return Err(Fault::bad_input(
                "an incremental push is deployed at once: leave deploy=False out",
            ));
        }
        building.output = output;
        building.partitions = cluster_partitions(endpoint)?;
        if let Some(found) = endpoint.client()?.store(store)? {
            building.declared = declaration(&endpoint.client()?, &found, &building.declared)?;
        }
        let built = build(&building, &rows, &[], Earlier::default(), job)?;
        return Ok(result(store, options.run.as_deref(), Some(&built), None));
    }
    let mut pushing = Push::new(building);
    pushing.rows = rows;
    pushing.value_type = value_type;
    pushing.key_type = key_type;
    pushing.incremental = options.incremental;
    pushing.keep_at = keep_at;
    pushing.upload = options.upload;
    pushing.create = options.create;
    let mut clusters = Clusters::one(endpoint.clone());
    clusters.run.clone_from(&options.run);
    clusters.again = options.again;
    match push(&clusters, pushing, job)? {
        Pushed::DryRun(built) => Ok(result(store, options.run.as_deref(), Some(&built), None)),
        Pushed::Ended(outcome) => ended(store, outcome),
    }
}

/// The choice that a text names.
pub fn chosen<T: FromStr<Err: Display>>(option: &str, text: &str) -> Result<T, Fault> {
    text.parse()
        .map_err(|error| Fault::bad_input(format!("{option}: {error}")))
}

/// Deploys a built version; returns the push, as JSON. It blocks.
pub fn deploy_version(
    endpoint: &Endpoint,
    store: &StoreName,
    options: &DeployOptions,
    job: Job<'_>,
) -> Result<Value, Fault> {
    let mut deploying = Deploy::new(store.clone(), options.source.as_str());
    deploying.upload = options.upload;
    let mut clusters = Clusters::one(endpoint.clone());
    clusters.run.clone_from(&options.run);
    clusters.again = options.again;
    ended(store, deploy(&clusters, &deploying, job)?)
}

/// The number of partitions of the cluster.
fn cluster_partitions(endpoint: &Endpoint) -> Result<PartitionCount, Fault> {
    let cluster: Value = endpoint.client()?.get("/v1/cluster")?;
    let partitions = cluster.get("partitions").and_then(Value::as_u64);
    let partitions = partitions.and_then(|number| u32::try_from(number).ok());
    Ok(fondaco_push::partition_count(partitions.unwrap_or_default())?)
}

fn ended(store: &StoreName, outcome: Outcome) -> Result<Value, Fault> {
    if let Some(error) = outcome.rolled.error {
        let Fault::Named { code, mut message } = Fault::from(error) else {
            return Err(Fault::new("PUSHFAILED", "the push failed"));
        };
        if let Some(kept) = outcome.kept {
            message.push_str(&format!("; the version is kept: deploy it with store.deploy({kept:?})"));
        }
        return Err(Fault::new(code, message));
    }
    let push = outcome
        .rolled
        .clusters
        .first()
        .and_then(|cluster| cluster.push.as_ref());
    let push = push.map(|push| serde_json::to_value(push).unwrap_or_default());
    Ok(result(store, outcome.run.as_deref(), outcome.build.as_ref(), push))
}

/// The result of a push.
fn result(store: &StoreName, run: Option<&str>, built: Option<&BuildResult>, push: Option<Value>) -> Value {
    let version = push.as_ref().and_then(|push| push.get("version").cloned());
    let member = |name: &str| {
        let built = built.and_then(|built| serde_json::to_value(built).ok());
        built.and_then(|built| built.get(name).cloned())
    };
    json!({
        "store": store.as_str(),
        "version": version,
        "run": run,
        "rows": member("rows"),
        "records": member("records"),
        "bytes": member("bytes"),
        "duplicates": member("duplicates"),
        "bad_rows": member("bad_rows"),
        "output": member("output"),
        "build": built,
        "push": push,
    })
}

/// Passes progress to a function of Python: the step, the fraction that is done, and details.
pub struct Reporter {
    to: Option<Py<PyAny>>,
    cancel: CancelToken,
    raised: Mutex<Option<PyErr>>,
}

impl Reporter {
    /// Calls this function.
    pub fn new(to: Option<Py<PyAny>>, cancel: CancelToken) -> Self {
        Self {
            to,
            cancel,
            raised: Mutex::new(None),
        }
    }

    /// The token of the job.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// The exception that the function raised.
    pub fn raised(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn report(&self, step: &str, fraction: Option<f64>, details: &str) {
        let Some(to) = &self.to else { return };
        let called = visit(|py| to.call1(py, (step, fraction, details)));
        if let Some(Err(error)) = called {
            self.cancel.cancel();
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

fn fraction(done: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| (done as f64 / total as f64).min(1.0))
}

impl Observer for Reporter {
    fn progress(&self, progress: Progress<'_>) {
        match progress {
            Progress::Building(now) => match now.phase {
                Phase::Preparing | Phase::Reading => {
                    self.report(
                        "reading",
                        fraction(now.bytes_read, now.bytes_total),
                        &format!("{} rows", now.rows_read),
                    );
                }
                Phase::Finishing | Phase::Done => self.report("finishing", Some(1.0), "waiting for the disk"),
                _ => self.report(
                    "writing",
                    fraction(now.records_written, now.records_total),
                    &format!("{} of {} records", now.records_written, now.records_total),
                ),
            },
            Progress::FetchingBase {
                bytes_done,
                bytes_total,
            } => {
                self.report("fetching the base", fraction(bytes_done, bytes_total), "");
            }
            Progress::Exporting { records, records_total } => self.report(
                "exporting",
                records_total.and_then(|total| fraction(records, total)),
                &format!("{records} rows"),
            ),
            Progress::ReadingEvents { keys } => self.report("reading events", None, &format!("{keys} keys")),
            Progress::Sending {
                bytes_sent,
                bytes_total,
                ..
            } => {
                self.report(
                    "sending",
                    fraction(bytes_sent, bytes_total),
                    &format!("{bytes_sent} of {bytes_total} bytes"),
                );
            }
            Progress::Uploading {
                bytes_arrived,
                bytes_total,
                ..
            } => self.report(
                "uploading",
                fraction(bytes_arrived, bytes_total),
                &format!("{bytes_arrived} of {bytes_total} bytes"),
            ),
            Progress::Fetching(push) => self.report(
                "fetching",
                fraction(push.bytes_done, push.bytes_total),
                &format!(
                    "{} of {} bytes on {} nodes",
                    push.bytes_done,
                    push.bytes_total,
                    push.nodes.len()
                ),
            ),
        }
    }

    fn step_ended(&self) {
        self.report("", None, "");
    }

    fn note(&self, note: Note<'_>) {
        let text = match note {
            Note::StoreCreated(store) => format!("created store {store}"),
            Note::RunKnown { run, version } => format!("run {run:?} has begun already, as version {version}"),
            Note::OtherPush(error) => format!("{error}; waiting for it"),
            Note::NoLeader => "no controller leads: the push continues when one does".to_owned(),
            Note::WaitingForNode(absent) => format!("waiting for node {}, which is absent", absent.node),
            Note::UploadRetried(error) => format!("{}; trying again", with_causes(error)),
            _ => return,
        };
        self.report("note", None, &text);
    }
}

/// Cancels a job when the future that waits for it is dropped.
pub struct CancelOnDrop(pub CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs a job in its own thread, and cancels it when this future is dropped or the token is used.
pub async fn run(
    reporter: Reporter,
    job: impl FnOnce(Job<'_>) -> Result<Value, Fault> + Send + 'static,
) -> Result<Value, Fault> {
    let cancel = reporter.cancel.clone();
    let guard = CancelOnDrop(cancel.clone());
    let ended = crate::client::blocking(move || {
        let ended = job(Job {
            observer: &reporter,
            cancel: &cancel,
        });
        match reporter.raised() {
            Some(error) => Err(Fault::Python(error)),
            None => ended,
        }
    })
    .await;
    drop(guard);
    ended
}
