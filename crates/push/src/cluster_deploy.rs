//! The deploy of a built version to one cluster: uploads it if that was asked for, begins the push, and watches it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fondaco_admin::{AdminError, Client};
use fondaco_api::{ClusterResource, Confirmation, NewPush, PushResource, VersionList};
use fondaco_model::{CanaryTerms, Gates, PushState, StoreName, VersionNumber};
use fondaco_storage::Location;
use serde::Serialize;
use url::Url;

use crate::checks::Checks;
use crate::error::PushError;
use crate::observer::{INTERVAL, Job, Note, Progress, Step};
use crate::upload::{self, UploadResult};

/// How often a push is checked for a controller, which it needs.
const LEADER_INTERVAL: Duration = Duration::from_secs(2);

/// How long the request that begins a push is repeated, if its answers are lost.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(10);

/// A built version, and the terms of its deploy to a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Built<'a> {
    /// The store.
    pub store: &'a StoreName,
    /// Its location: a path or a URL.
    pub place: &'a str,
    /// Whether to send it over the control port.
    pub upload: bool,
    /// Whether the store is hybrid, as far as known.
    pub is_hybrid: bool,
    /// Of a hybrid store: up to when it contains all events.
    pub as_of_unix_ms: Option<u64>,
    /// Of a hybrid store: when it was first pushed to another cluster.
    pub started_unix_ms: Option<u64>,
    /// Whether it may be pushed though it was built from another version than the current one.
    pub any_base: bool,
    /// The version that must still be the current one, if it matters.
    pub if_current: Option<VersionNumber>,
    /// The run that the push belongs to.
    pub run: Option<&'a str>,
    /// Whether it is pushed even if its content is that of the current version.
    pub again: bool,
    /// The versions of other stores, a path or a URL each, that become current by the same write.
    pub with: &'a BTreeMap<StoreName, String>,
    /// The terms of its canary, if it has one.
    pub canary: Option<&'a CanaryTerms>,
    /// Gates beside those of the store.
    pub gates: &'a Gates,
    /// Whether it goes live while nodes copy it.
    pub serve_while_copying: bool,
    /// The checks of this program before it goes live.
    pub checks: &'a Checks,
}

/// The result of a deploy, as JSON.
#[derive(Debug, Serialize)]
pub struct Deployed {
    /// The push, which has ended.
    #[serde(flatten)]
    pub push: PushResource,
    /// The upload before it, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadResult>,
}

/// Makes a cluster serve a built version; uploads it first if that was asked for.
pub(crate) fn deploy_to_cluster(client: &Client, built: &Built<'_>, job: Job<'_>) -> Result<Deployed, PushError> {
    let Deployed { push, upload } = begin(client, built, ASK_AGAIN_MAX, job)?;
    // An upload precedes a push that this job begins.
    let known = built.run.filter(|_| push.repeated && upload.is_none());
    let repeated = push.repeated;
    let push = watch(client, built, push, job).map_err(|error| match (error, known) {
        (PushError::Failed(reason), Some(run)) => PushError::RunFailed {
            run: run.to_owned(),
            source: Box::new(PushError::Failed(reason)),
        },
        (error, _) => error,
    })?;
    Ok(Deployed {
        push: PushResource { repeated, ..push },
        upload,
    })
}

/// Begins the push in a cluster, unless it knows the run; uploads the version first if that was asked for. An answer that is lost is
/// asked again for this time, if the push belongs to a run.
pub(crate) fn begin(
    client: &Client,
    built: &Built<'_>,
    ask_again_max: Duration,
    job: Job<'_>,
) -> Result<Deployed, PushError> {
    if let Some(run) = built.run
        && let Some(push) = push_of_run(client, built.store, run)?
    {
        job.note(Note::RunKnown {
            run,
            version: push.version,
        });
        return Ok(Deployed {
            push: PushResource { repeated: true, ..push },
            upload: None,
        });
    }
    let place = |store: &StoreName, place: &str| match built.upload {
        false => Ok::<_, PushError>((source_url(place)?, None)),
        true => {
            let location: Location = place.parse()?;
            let dir = location.local_path().ok_or_else(|| not_local("--upload"))?;
            let upload = upload::send(client, store, dir, job)?;
            job.note(Note::Uploaded(&upload));
            Ok((upload.source.clone(), Some(upload)))
        }
    };
    let (source, upload) = place(built.store, built.place)?;
    let with = built
        .with
        .iter()
        .map(|(store, at)| Ok::<_, PushError>((store.clone(), place(store, at)?.0)));
    let request = NewPush {
        source,
        with: with.collect::<Result<_, PushError>>()?,
        dry_run: false,
        as_of_unix_ms: built.as_of_unix_ms,
        started_unix_ms: built.started_unix_ms,
        any_base: built.any_base,
        if_current: built.if_current,
        run: built.run.map(str::to_owned),
        again: built.again,
        canary: built.canary.cloned(),
        gates: built.gates.clone(),
        serve_while_copying: built.serve_while_copying,
    };
    // The request may have arrived. One of the same run begins nothing else.
    let again_max = built.run.map_or(Duration::ZERO, |_| ask_again_max);
    let push = ask_again(again_max, job, || request_push(client, built.store, &request, job));
    let push = push.map_err(|error| match error.is_away() && built.run.is_some() {
        true => error.within("it is not known whether the push has begun"),
        false => error,
    })?;
    Ok(Deployed { push, upload })
}

/// Asks until there is an answer, for this time at most, or until the job is cancelled.
pub(crate) fn ask_again<T>(
    time_max: Duration,
    job: Job<'_>,
    mut ask: impl FnMut() -> Result<T, PushError>,
) -> Result<T, PushError> {
    let mut since = None;
    loop {
        match ask() {
            Err(error) if error.is_away() && !time_max.is_zero() && !job.is_cancelled() => {
                let since = since.get_or_insert_with(|| {
                    job.note(Note::ClusterAway(&error));
                    Instant::now()
                });
                if since.elapsed() >= time_max {
                    return Err(error);
                }
                std::thread::sleep(INTERVAL);
            }
            answer => return answer,
        }
    }
}

/// The push that belongs to a run, if the cluster knows one.
pub(crate) fn push_of_run(client: &Client, store: &StoreName, run: &str) -> Result<Option<PushResource>, AdminError> {
    match client.get(&run_path(store, run)) {
        Ok(push) => Ok(Some(push)),
        Err(error) if ["push_not_found", "store_not_found"].contains(&error.code()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn run_path(store: &StoreName, run: &str) -> String {
    let run: String = url::form_urlencoded::byte_serialize(run.as_bytes()).collect();
    format!("{}?run={run}", push_path(store))
}

/// The path of the last push of a store.
pub(crate) fn push_path(store: &StoreName) -> String {
    format!("/v1/stores/{store}/push")
}

/// Whether a controller leads, as far as it can be found out.
fn has_leader(client: &Client) -> bool {
    let cluster = client.get::<ClusterResource>("/v1/cluster");
    cluster.map_or(true, |cluster| cluster.leader.is_some())
}

/// A push of a cluster, as it was last seen.
pub(crate) struct Watch<'a> {
    client: &'a Client,
    store: &'a StoreName,
    /// Its run, by which it is found when others have begun since.
    run: Option<&'a str>,
    pub(crate) push: PushResource,
    waits_for: BTreeSet<u32>,
    leads: bool,
    asked: Instant,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(client: &'a Client, built: &Built<'a>, push: PushResource) -> Self {
        Self {
            client,
            store: built.store,
            run: built.run,
            push,
            waits_for: BTreeSet::new(),
            leads: true,
            asked: Instant::now(),
        }
    }

    /// Looks at the push once.
    pub(crate) fn look(&mut self, job: Job<'_>) -> Result<(), PushError> {
        let (version, name) = (self.push.version, self.store);
        let path = self.run.map_or_else(|| push_path(name), |run| run_path(name, run));
        let seen: PushResource = self.client.get(&path)?;
        if seen.version != version {
            // The push ended since the last look, and another one started at once: the list of versions tells how it
            // ended.
            if !is_kept(self.client, name, version)? {
                return Err(PushError::Failed(format!(
                    "the push of version {version} ended, and another one was started: see fondaco versions {name}"
                )));
            }
            self.push.state = PushState::Swapped;
            return Ok(());
        }
        self.push = seen;
        if self.asked.elapsed() >= LEADER_INTERVAL {
            let led = std::mem::replace(&mut self.leads, has_leader(self.client));
            if led && !self.leads {
                job.note(Note::NoLeader);
            }
            self.asked = Instant::now();
        }
        for absent in &self.push.absent {
            if self.waits_for.insert(absent.node) {
                job.note(Note::WaitingForNode(absent));
            }
        }
        Ok(())
    }

    /// Shows the progress of the push.
    pub(crate) fn show(&self, step: &Step<'_>) {
        if self.leads {
            step.show(Progress::Fetching(&self.push));
        }
    }
}

/// Watches a push to its end.
fn watch(client: &Client, built: &Built<'_>, push: PushResource, job: Job<'_>) -> Result<PushResource, PushError> {
    let name = built.store;
    let step = job.step();
    let mut cancelled = false;
    let mut watch = Watch::new(client, built, push);
    while !is_end(watch.push.state) {
        if job.is_cancelled() && !cancelled {
            cancelled = true;
            // The push may have ended a moment ago; its result is read below.
            if let Err(error) = client.delete(&format!("{}?version={}", push_path(name), watch.push.version))
                && error.code() != "push_ended"
            {
                return Err(PushError::from(error).continuing("the push could not be cancelled and continues"));
            }
        }
        std::thread::sleep(INTERVAL);
        watch.look(job).map_err(|error| match error {
            PushError::Failed(_) => error,
            error => error.continuing("cannot watch the push any more; it continues"),
        })?;
        watch.show(&step);
    }
    drop(step);
    let mut push = watch.push;
    if push.awaits_confirmation && !built.checks.is_empty() {
        let refused = built.checks.check(client, name, push.version, job);
        if job.is_cancelled() {
            client.delete(&format!("{}?version={}", push_path(name), push.version))?;
            let message = format!("the push of version {} of store {name} was cancelled", push.version);
            return Err(PushError::Cancelled(message));
        }
        push = confirm(client, built, push.version, refused)?;
        if !is_end(push.state) {
            // Its canary is next.
            return self::watch(client, built, push, job);
        }
    }
    if push.state == PushState::Swapped {
        note_late_nodes(client, name, job)?;
    }
    let is_cancelled = cancelled && push.state == PushState::Cancelled;
    match ended(name, push, "") {
        Err(PushError::Failed(reason)) if is_cancelled => Err(PushError::Cancelled(reason)),
        ended => ended,
    }
}

/// Notes the nodes that serve the store again when they have caught up.
pub(crate) fn note_late_nodes(client: &Client, name: &StoreName, job: Job<'_>) -> Result<(), AdminError> {
    for node in client.store(name)?.map(|store| store.late).unwrap_or_default() {
        job.note(Note::LateNode(node));
    }
    Ok(())
}

/// The push that has ended, or why its version is not current. `at` is the option by which commands reach the cluster.
pub(crate) fn ended(name: &StoreName, push: PushResource, at: &str) -> Result<PushResource, PushError> {
    let version = push.version;
    let reason = push.error.as_deref().unwrap_or("see the node's log");
    match push.state {
        PushState::Swapped => Ok(push),
        PushState::Cancelled => Err(PushError::Failed(format!(
            "the push of version {version} of store {name} was cancelled{}",
            push.error.map_or_else(String::new, |reason| format!(": {reason}"))
        ))),
        PushState::Held => Err(PushError::Held(format!(
            "version {version} of store {name} is fetched, but does not go live: {reason}; to swap it in all the same: fondaco swap {name} \
             --to {version}{at}"
        ))),
        _ => Err(PushError::Failed(format!(
            "the push of version {version} of store {name} failed: {reason}"
        ))),
    }
}

/// Confirms a version that awaits that, or has the cluster hold it for the reason of its refusal.
pub(crate) fn confirm(
    client: &Client,
    built: &Built<'_>,
    version: u64,
    refused: Option<String>,
) -> Result<PushResource, PushError> {
    let (name, push) = (built.store, push_path(built.store));
    let number = VersionNumber::new(version).ok_or_else(|| PushError::Damaged("version 0 was pushed".to_owned()))?;
    let confirmation = Confirmation {
        version: number,
        refused,
    };
    let error = match client.post(&format!("{push}/confirmation"), &confirmation) {
        // An operator, another try of the run, or an earlier request whose answer was lost has decided.
        Err(error) if error.code() == "push_ended" => {
            let last: PushResource = client.get(&built.run.map_or(push, |run| run_path(name, run)))?;
            if last.version == version {
                return Ok(last);
            }
            error
        }
        Ok(push) => return Ok(push),
        Err(error) => error,
    };
    let message = format!(
        "version {version} of store {name} is fetched, but cannot be confirmed: fondaco versions {name} shows it"
    );
    Err(PushError::from(error).within(message))
}

/// Starts the push. If another push of the store started while this version was built, waits for its end.
fn request_push(client: &Client, name: &StoreName, request: &NewPush, job: Job<'_>) -> Result<PushResource, PushError> {
    let mut is_noted = false;
    loop {
        let begun: Result<PushResource, AdminError> = client.post(&format!("/v1/stores/{name}/pushes"), request);
        match begun.map_err(PushError::from) {
            Err(error) if error.code() == "push_in_progress" && !job.is_cancelled() => {
                if !is_noted {
                    job.note(Note::OtherPush(&error));
                    is_noted = true;
                }
            }
            begun => return begun,
        }
        for store in std::iter::once(name).chain(request.with.keys()) {
            while !job.is_cancelled() && is_being_pushed(client, store)? {
                std::thread::sleep(INTERVAL);
            }
        }
    }
}

/// Whether a push of a store is under way.
fn is_being_pushed(client: &Client, name: &StoreName) -> Result<bool, AdminError> {
    match client.get::<PushResource>(&format!("/v1/stores/{name}/push")) {
        Ok(push) => Ok(!is_end(push.state)),
        Err(error) if error.code() == "push_not_found" => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a store keeps a version, as the current one or as a backup.
fn is_kept(client: &Client, name: &StoreName, version: u64) -> Result<bool, AdminError> {
    let kept: VersionList = client.get(&format!("/v1/stores/{name}/versions"))?;
    Ok(kept.versions.iter().any(|kept| kept.version == version))
}

/// The error for an option to send the version, given for a location that is not on this machine.
pub(crate) fn not_local(option: &str) -> PushError {
    PushError::WrongOptions(format!(
        "{option} sends a directory of this machine: omit it if nodes can read the URL"
    ))
}

/// Whether a push has ended, or does nothing more before an operator decides.
pub fn is_end(state: PushState) -> bool {
    match state {
        PushState::Fetching | PushState::Ready => false,
        PushState::Held | PushState::Swapped | PushState::Failed | PushState::Cancelled => true,
    }
}

/// A location as a URL for the node, whose working directory differs.
pub(crate) fn source_url(place: &str) -> Result<String, PushError> {
    if place.contains("://") {
        return Ok(place.to_owned());
    }
    let path: PathBuf = std::path::absolute(place).map_err(PushError::file("resolve", place.as_ref()))?;
    match Url::from_file_path(&path) {
        Ok(url) => Ok(url.into()),
        Err(()) => Err(PushError::WrongOptions(format!(
            "invalid path {path:?}: use a path or a URL"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_a_url_independent_of_the_working_directory() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(source_url("/data/a b").unwrap(), "file:///data/a%20b");
        assert_eq!(
            source_url("b").unwrap(),
            Url::from_file_path(here.join("b")).unwrap().as_str()
        );
        assert_eq!(source_url("s3://bucket/b").unwrap(), "s3://bucket/b");
    }
}
