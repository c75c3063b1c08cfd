//! A deploy: clusters serve a built version.

use std::collections::BTreeMap;

use fondaco_admin::Endpoint;
use fondaco_api::{DryRunResource, NewPush};
use fondaco_model::{Gates, StoreName};
use fondaco_storage::Location;

use crate::build::BuildResult;
use crate::cluster_deploy::{Built, not_local, source_url};
use crate::error::PushError;
use crate::observer::Job;
use crate::rollout::{Clusters, Rolled, Rollout};
use crate::topic::Topic;
use crate::upload;

/// A deploy.
#[derive(Debug, Clone)]
pub struct Deploy {
    /// The store.
    pub store: StoreName,
    /// The location of the built version: a path, or a URL that the nodes can read.
    pub source: String,
    /// Whether to send the version to the node over its control port, because no node can read the directory.
    pub upload: bool,
    /// The topic to send the version through.
    pub topic: Option<Topic>,
    /// Of a hybrid store: the version contains all events up to this time, in milliseconds since 1970. `None`: the time that its
    /// build was told.
    pub as_of_unix_ms: Option<u64>,
    /// Of a hybrid store: the time at which this version was first pushed to another cluster, in milliseconds since 1970.
    pub started_unix_ms: Option<u64>,
    /// Whether a version that was built from a difference is pushed even if the store has another version now.
    pub any_base: bool,
    /// The built versions of other stores that become current by the same write, each at a path or URL.
    pub with: BTreeMap<StoreName, String>,
}

impl Deploy {
    /// A deploy of the version at a path or URL that the nodes can read.
    pub fn new(store: StoreName, source: impl Into<String>) -> Self {
        Self {
            store,
            source: source.into(),
            upload: false,
            topic: None,
            as_of_unix_ms: None,
            started_unix_ms: None,
            any_base: false,
            with: BTreeMap::new(),
        }
    }
}

/// The end of a push or a deploy, in all clusters.
#[derive(Debug)]
pub struct Outcome {
    /// The store.
    pub store: StoreName,
    /// The build, if there was one.
    pub build: Option<BuildResult>,
    /// The end in each cluster, with the error that ended it.
    pub rolled: Rolled,
    /// The place of a version that is not in every cluster, for another try. `None`: it was not kept.
    pub kept: Option<String>,
    /// Whether it was uploaded.
    pub upload: bool,
    /// The id of the run, if it has one.
    pub run: Option<String>,
    /// Of a hybrid store: the version contains all events up to this time, in milliseconds since 1970.
    pub as_of_unix_ms: Option<u64>,
}

/// Makes clusters serve a built version: they fetch it and swap it in.
///
/// # Errors
/// The options are wrong, or a check before the first cluster has begun says no. An error after that is in the outcome.
pub fn deploy(clusters: &Clusters, options: &Deploy, job: Job<'_>) -> Result<Outcome, PushError> {
    let name = &options.store;
    let partitions = options.topic.as_ref().map(Topic::partitions).transpose()?;
    let mut rollout = Rollout::new(clusters)?;
    let is_several = rollout.is_several;
    let hybrid = rollout.check(job, |cluster| {
        if options.upload {
            upload::check(&cluster.client, &cluster.client.status()?)?;
        }
        let store = match is_several {
            true => cluster.client.store(name)?,
            false => None,
        };
        if let Some(topic) = &options.topic {
            topic.check(&cluster.client)?;
        }
        Ok(store.is_some_and(|store| store.stream.is_some()))
    })?;
    let place = match options.topic.as_ref().zip(partitions) {
        Some((topic, partitions)) if !rollout.know(name) => {
            let location: Location = options.source.parse()?;
            let dir = location.local_path().ok_or_else(|| not_local("--through"))?;
            topic.send(partitions, dir, job)?
        }
        _ => options.source.clone(),
    };
    let run = rollout.choose_run(name, &source_url(&options.source)?, &place)?;
    let version = Built {
        store: name,
        place: &place,
        upload: options.upload,
        is_hybrid: hybrid.contains(&true),
        as_of_unix_ms: options.as_of_unix_ms,
        started_unix_ms: options.started_unix_ms,
        any_base: options.any_base,
        if_current: None,
        run: run.as_deref(),
        again: rollout.again,
        with: &options.with,
        canary: rollout.canary.as_ref(),
        gates: &rollout.gates,
        serve_while_copying: rollout.serve_while_copying,
        checks: &rollout.checks,
    };
    let rolled = rollout.deploy(&version, job, |_| Ok(()));
    Ok(Outcome::new(&version, rolled, None, Some(place.clone())))
}

/// Checks all that a deploy to one cluster needs, and changes nothing.
///
/// # Errors
/// The cluster would refuse it.
pub fn check_only(endpoint: &Endpoint, options: &Deploy, again: bool) -> Result<DryRunResource, PushError> {
    let request = NewPush {
        source: source_url(&options.source)?,
        dry_run: true,
        as_of_unix_ms: options.as_of_unix_ms,
        started_unix_ms: options.started_unix_ms,
        any_base: options.any_base,
        if_current: None,
        run: None,
        again,
        with: sources(&options.with)?,
        canary: None,
        gates: Gates::default(),
        serve_while_copying: false,
    };
    Ok(endpoint
        .client()?
        .post(&format!("/v1/stores/{}/pushes", options.store), &request)?)
}

/// Locations as URLs for the node.
fn sources(with: &BTreeMap<StoreName, String>) -> Result<BTreeMap<StoreName, String>, PushError> {
    let source = |(store, place): (&StoreName, &String)| Ok::<_, PushError>((store.clone(), source_url(place)?));
    with.iter().map(source).collect()
}

impl Outcome {
    pub(crate) fn new(version: &Built<'_>, rolled: Rolled, build: Option<BuildResult>, kept: Option<String>) -> Self {
        Self {
            store: version.store.clone(),
            build,
            rolled,
            kept,
            upload: version.upload,
            run: version.run.map(str::to_owned),
            as_of_unix_ms: version.as_of_unix_ms,
        }
    }
}
