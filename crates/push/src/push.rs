//! A push: a build, in a directory that is deleted afterwards, and a [deploy](crate::deploy()).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fondaco_admin::Endpoint;
use fondaco_api::{PushResource, StoreResource, VersionResource};
use fondaco_builder::{BuildOptions, Declaration, KnownIds, RecordTimes};
use fondaco_format::GIVEN_AWAY_FILE;
use fondaco_model::{KeyType, StoreName, ValueType, VersionNumber};
use fondaco_storage::Location;

use crate::base_version;
use crate::build::{BuildResult, Earlier, Rows, build};
use crate::cluster_deploy::{Built, not_local};
use crate::declared;
use crate::deploy::Outcome;
use crate::error::PushError;
use crate::graph_ids::{check_ids_are_current, served_ids};
use crate::observer::{Job, Note};
use crate::rollout::{Cluster, Clusters, Rollout, State};
use crate::scratch::Scratch;
use crate::target::{Target, check_all};
use crate::topic::Topic;
use crate::upload;
use crate::version_copy::{VersionCopy, manifest_of_current};

/// A push.
#[derive(Debug, Clone)]
pub struct Push {
    /// The build. Its number of partitions and its declaration become those of the cluster, but for the id of the schema, and its output becomes a
    /// temporary directory or `keep_at`. The directory for temporary files needs as much space as the values.
    pub build: BuildOptions,
    /// The meaning of the rows.
    pub rows: Rows,
    /// The type of values that the store must have; `None`: that which it has.
    pub value_type: Option<ValueType>,
    /// The type of keys that the store must have; `None`: that which it has.
    pub key_type: Option<KeyType>,
    /// Of an incremental push: files, folders and globs with keys to delete.
    pub deletes: Vec<String>,
    /// Whether the input is a difference to the store's current version.
    pub incremental: bool,
    /// Whether a full push is refused if its columns, or their types, are not those of the store's current version.
    pub same_schema: bool,
    /// The location at which the version is built and kept; `None`: it is deleted afterwards.
    pub keep_at: Option<Location>,
    /// Whether to send the version to the node over its control port, because no node can read the directory of the build.
    pub upload: bool,
    /// The topic to send the version through.
    pub topic: Option<Topic>,
    /// Whether to create the store if it does not exist.
    pub create: bool,
    /// Of an incremental push of the results of events on top of a version: that version. It must still be the current one, and values
    /// are taken as the events made them.
    pub events_on: Option<u64>,
    /// The built versions of other stores that become current by the same write, each at a path or URL.
    pub with: BTreeMap<StoreName, String>,
}

impl Push {
    /// A push of records to a store that exists, from a directory that the nodes can read.
    pub fn new(build: BuildOptions) -> Self {
        Self {
            build,
            rows: Rows::Records,
            value_type: None,
            key_type: None,
            deletes: Vec::new(),
            incremental: false,
            same_schema: false,
            keep_at: None,
            upload: false,
            topic: None,
            create: false,
            events_on: None,
            with: BTreeMap::new(),
        }
    }
}

/// The end of a push.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a push has one")]
pub enum Pushed {
    /// The input was checked, and nothing was changed.
    DryRun(BuildResult),
    /// The version was deployed, or the outcome has the error that prevented it.
    Ended(Outcome),
}

/// Builds a version, and makes clusters serve it.
///
/// All that would refuse the version is checked before the build, which may take hours.
///
/// # Errors
/// A check says no, or the build fails: nothing has changed in a cluster. An error after that is in the outcome.
pub fn push(clusters: &Clusters, mut options: Push, job: Job<'_>) -> Result<Pushed, PushError> {
    let mut rollout = Rollout::new(clusters)?;
    let name = &options.build.store.clone();
    if rollout.know(name) {
        return Ok(Pushed::Ended(end_of_known_run(&rollout, name, job)));
    }
    let topic_partitions = options.topic.as_ref().map(Topic::partitions).transpose()?;
    let Target {
        partitions,
        store,
        disk_available_bytes,
    } = check_all(&mut rollout, &options, job)?;
    follow_current(&mut options, store.as_ref())?;
    let first = rollout.first();
    let asked = match options.rows {
        Rows::Edges(_) => Some(ValueType::Graph),
        Rows::Records | Rows::InMemory(_) => options.value_type,
    };
    let asked = Declaration {
        value_type: asked.unwrap_or_default(),
        key_type: options.key_type.clone().unwrap_or_default(),
        ..options.build.declared.clone()
    };
    options.build.declared = match &store {
        Some(store) => declared::declaration(&first.client, store, &asked)?,
        None => declared::of_new(name, &asked)?,
    };
    options.build.partitions = partitions;
    let served = served_ids(&first.client, &first.endpoint, name, store.as_ref())?;
    let work = options.build.temporary.clone();
    let is_compaction = options.events_on.is_some();
    let find = |store| base_version::find(&first.client, &first.endpoint, (name, store), is_compaction, &work, job);
    let base = store.as_ref().filter(|_| options.incremental).map(find).transpose()?;
    let replaced = store
        .as_ref()
        .filter(|store| !options.incremental && store.versions.iter().any(|one| one.current));
    let replaced = replaced.map(|store| manifest_of_current(&first.client, &first.endpoint, (name, store)));
    let replaced = match replaced.transpose() {
        Err(error) if options.same_schema => {
            return Err(error.within("cannot compare the columns with those of the store"));
        }
        read => read.ok().flatten(),
    };
    let from = Earlier {
        replaced: replaced.as_ref().map(|manifest| &manifest.schema),
        known: served.as_ref().map(|served| served as &dyn KnownIds),
        base: base.as_ref().map(VersionCopy::dir),
        has_final_values: is_compaction,
    };
    if options.build.dry_run {
        return dry_run(options, from, disk_available_bytes, job);
    }
    let (location, mut scratch) = destination(&options, &work)?;
    options.build.output = location.clone();
    let built = build(&options.build, &options.rows, &options.deletes, from, job)?;
    drop(base);
    if let (true, Some(change)) = (options.same_schema, &built.schema_change) {
        return Err(PushError::Unfit(format!(
            "the columns of store {name:?} have changed: {change}"
        )));
    }
    job.note(Note::Built(&built));
    if let (Some(scratch), Some(dir)) = (&scratch, location.local_path()) {
        give_away(scratch, dir, name, options.upload, job)?;
    }
    let place = match options.topic.as_ref().zip(topic_partitions) {
        Some((topic, partitions)) => send_through(topic, partitions, &location, &mut scratch, name, job)?,
        None => location.to_string(),
    };
    let content = built.checksum.as_ref().unwrap_or(&place);
    let run = rollout.choose_run(name, content, &place)?;
    let prepare = |cluster: &Cluster| {
        if options.create {
            declared::create(&cluster.client, name, &options.build.declared, job)?;
        }
        let has_ids = served.is_some() && std::ptr::eq(cluster, first);
        check_ids_are_current(&cluster.client, name, store.as_ref().filter(|_| has_ids))
    };
    let version = Built {
        store: name,
        place: &place,
        upload: options.upload,
        is_hybrid: store.as_ref().is_some_and(|store| store.stream.is_some()),
        as_of_unix_ms: options.build.cut_unix_ms,
        started_unix_ms: None,
        any_base: false,
        if_current: options.events_on.and_then(VersionNumber::new),
        run: run.as_deref(),
        again: rollout.again,
        with: &options.with,
        canary: rollout.canary.as_ref(),
        gates: &rollout.gates,
        serve_while_copying: rollout.serve_while_copying,
        checks: &rollout.checks,
    };
    let rolled = rollout.deploy(&version, job, prepare);
    let kept = match &rolled.error {
        None => None,
        Some(error) if rolled.has_swapped() || is_wanted_after(error, &options, job) => {
            // The build may have taken hours, so keep it.
            Some(match scratch {
                Some(scratch) => scratch.keep()?.join("version").display().to_string(),
                None => place.clone(),
            })
        }
        Some(_) => {
            if let (true, Some(dir)) = (options.upload, location.local_path()) {
                // The version is not wanted any more.
                let states = [State::Failed, State::Dropped].into_iter();
                let unwanted = states.flat_map(|state| rollout.in_state(&rolled, state));
                unwanted.for_each(|cluster| upload::give_up(&cluster.client, name, dir));
            }
            None
        }
    };
    Ok(Pushed::Ended(Outcome::new(&version, rolled, Some(built), kept)))
}

/// Cancels the push of a store that is under way. The nodes delete the files that they fetched of the version.
///
/// # Errors
/// No push is under way, or the cluster cannot be reached.
pub fn cancel(endpoint: &Endpoint, store: &StoreName) -> Result<PushResource, PushError> {
    Ok(endpoint.client()?.delete_for(&format!("/v1/stores/{store}/push"))?)
}

/// Watches the pushes of a run that every cluster knows: no version is needed.
fn end_of_known_run(rollout: &Rollout, name: &StoreName, job: Job<'_>) -> Outcome {
    let known = Built {
        store: name,
        place: "",
        upload: false,
        is_hybrid: false,
        as_of_unix_ms: None,
        started_unix_ms: None,
        any_base: false,
        if_current: None,
        run: rollout.run(),
        again: false,
        with: &BTreeMap::new(),
        canary: None,
        gates: &rollout.gates,
        serve_while_copying: false,
        checks: &rollout.checks,
    };
    let rolled = rollout.deploy(&known, job, |_| Ok(()));
    Outcome::new(&known, rolled, None, None)
}

/// Checks that the version whose events a push takes is still current. Gives a difference the time of the current version, if it
/// has none of its own.
fn follow_current(options: &mut Push, store: Option<&StoreResource>) -> Result<(), PushError> {
    let versions = store.map_or(&[][..], |store| &store.versions);
    let current = versions.iter().find(|version| version.current);
    if let Some(version) = options.events_on
        && current.is_none_or(|current| current.version != version)
    {
        return Err(PushError::Unfit(format!(
            "version {version} of store {} is not the current one any more: try again",
            options.build.store
        )));
    }
    if options.incremental {
        options.build.times = times(options, store, current);
        // The current version may be a later one than the build was given.
        let of_current = current.and_then(|current| current.as_of_unix_ms);
        options.build.cut_unix_ms = options.build.cut_unix_ms.or(of_current);
    }
    Ok(())
}

/// The times of the records of a difference and of the version that it changes, if the records of the store expire.
fn times(options: &Push, store: Option<&StoreResource>, current: Option<&VersionResource>) -> Option<RecordTimes> {
    let ttl_ms = store.and_then(|store| store.stream.as_ref()?.ttl_ms.flatten());
    let current = current.filter(|current| ttl_ms.is_some() || current.undated_unix_ms.is_some())?;
    let now_unix_ms = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_millis() as u64)
    };
    let own_unix_ms = || options.build.cut_unix_ms.unwrap_or_else(now_unix_ms);
    let undated_unix_ms = current
        .undated_unix_ms
        .or(current.as_of_unix_ms)
        .or(current.built_unix_ms);
    Some(RecordTimes {
        undated_unix_ms: undated_unix_ms.unwrap_or(0),
        // A compaction gives each value the time of its latest event.
        all_unix_ms: options.events_on.is_none().then(own_unix_ms),
    })
}

/// Checks the input, and that the nodes have room for the version.
fn dry_run(
    mut options: Push,
    from: Earlier<'_>,
    disk_available_bytes: Option<u64>,
    job: Job<'_>,
) -> Result<Pushed, PushError> {
    // The directory is used only to check that it is empty. A path below a file is always empty.
    options.build.output = Location::local(options.build.temporary.join("fondaco-dry-run"));
    let built = build(&options.build, &options.rows, &options.deletes, from, job)?;
    match disk_available_bytes {
        Some(free_bytes) if built.bytes > free_bytes => Err(PushError::NoSpace {
            needed_bytes: built.bytes,
            free_bytes,
        }),
        _ => Ok(Pushed::DryRun(built)),
    }
}

/// Whether the build of a failed push can still be deployed.
fn is_wanted_after(error: &PushError, options: &Push, job: Job<'_>) -> bool {
    // A version of another base would undo what the other push has changed. The results of events are read again.
    let is_given_up = job.is_cancelled() || options.events_on.is_some() || error.code() == "base_changed";
    !is_given_up || error.continues()
}

/// Where the version is built: at the location to keep it at, or in a directory that is deleted afterwards.
fn destination(options: &Push, work: &Path) -> Result<(Location, Option<Scratch>), PushError> {
    if let Some(location) = &options.keep_at {
        return Ok((location.clone(), None));
    }
    let scratch = Scratch::make(work)?;
    Ok((Location::local(scratch.path()?.join("version")), Some(scratch)))
}

/// Sends the version through a topic, and returns its place there. The build is deleted then, unless it is to be kept.
fn send_through(
    topic: &Topic,
    partitions: u32,
    location: &Location,
    scratch: &mut Option<Scratch>,
    name: &StoreName,
    job: Job<'_>,
) -> Result<String, PushError> {
    let dir = location.local_path().ok_or_else(|| not_local("--through"))?;
    let sent = topic.send(partitions, dir, job);
    match (sent, scratch.take()) {
        (Err(error), Some(scratch)) if !job.is_cancelled() => {
            // The build may have taken hours.
            scratch.keep()?;
            Err(topic.failed(error, name, dir))
        }
        (Err(error), None) => Err(topic.failed(error, name, dir)),
        (sent, _) => sent,
    }
}

/// Marks the files of a build in a temporary directory: only this process changes them, and it deletes them afterwards, so
/// nodes may hard-link them.
fn give_away(scratch: &Scratch, dir: &Path, store: &StoreName, upload: bool, job: Job<'_>) -> Result<(), PushError> {
    let statement = dir.join(GIVEN_AWAY_FILE);
    std::fs::write(&statement, "").map_err(PushError::file("write", &statement))?;
    if upload {
        // An upload may take hours, too.
        scratch.outlive_kill()?;
        job.note(Note::UploadBegins { store, dir });
    }
    Ok(())
}
