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
use crate::observer::{INTERVAL, Job, Note, Progress};
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

/// Makes a cluster serve a built version; uploads it first if that was asked for. `begun` is set once the cluster has begun
/// the push.
pub(crate) fn deploy_to_cluster(
    client: &Client,
    built: &Built<'_>,
    begun: &mut bool,
    job: Job<'_>,
) -> Result<Deployed, PushError> {
    if let Some(run) = built.run
        && let Some(push) = push_of_run(client, built.store, run)?
    {
        *begun = true;
        job.note(Note::RunKnown {
            run,
            version: push.version,
        });
        let push = watch(client, built, push, job).map_err(|error| match error {
            PushError::Failed(_) => PushError::RunFailed {
                run: run.to_owned(),
                source: Box::new(error),
            },
            other => other,
        })?;
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
    };
    let push = begin(client, built.store, &request, job)?;
    *begun = true;
    let repeated = push.repeated;
    let push = watch(client, built, push, job)?;
    Ok(Deployed {
        push: PushResource { repeated, ..push },
        upload,
    })
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
    format!("/v1/stores/{store}/push?run={run}")
}

/// Whether a controller leads, as far as it can be found out.
fn has_leader(client: &Client) -> bool {
    let cluster = client.get::<ClusterResource>("/v1/cluster");
    cluster.map_or(true, |cluster| cluster.leader.is_some())
}

/// Watches a push to its end.
fn watch(client: &Client, built: &Built<'_>, mut push: PushResource, job: Job<'_>) -> Result<PushResource, PushError> {
    let (version, name) = (push.version, built.store);
    let path = format!("/v1/stores/{name}/push");
    let seen_at = built.run.map_or_else(|| path.clone(), |run| run_path(name, run));
    let step = job.step();
    let mut cancelled = false;
    let mut waits_for = BTreeSet::new();
    let (mut leads, mut asked) = (true, Instant::now());
    while !is_end(push.state) {
        if job.is_cancelled() && !cancelled {
            cancelled = true;
            // The push may have ended a moment ago; its result is read below.
            if let Err(error) = client.delete(&format!("{path}?version={version}"))
                && error.code() != "push_ended"
            {
                return Err(PushError::from(error).continuing("the push could not be cancelled and continues"));
            }
        }
        std::thread::sleep(INTERVAL);
        let seen: Result<PushResource, AdminError> = client.get(&seen_at);
        let seen =
            seen.map_err(|error| PushError::from(error).continuing("cannot watch the push any more; it continues"))?;
        if seen.version != version {
            // The push ended since the last poll, and another one started at once: the list of versions tells how it
            // ended.
            if !is_kept(client, name, version)? {
                return Err(PushError::Failed(format!(
                    "the push of version {version} ended, and another one was started: see fondaco versions {name}"
                )));
            }
            push.state = PushState::Swapped;
            break;
        }
        push = seen;
        if asked.elapsed() >= LEADER_INTERVAL {
            let led = std::mem::replace(&mut leads, has_leader(client));
            if led && !leads {
                job.note(Note::NoLeader);
            }
            asked = Instant::now();
        }
        if leads {
            step.show(Progress::Fetching(&push));
        }
        for absent in &push.absent {
            if waits_for.insert(absent.node) {
                job.note(Note::WaitingForNode(absent));
            }
        }
    }
    drop(step);
    if push.awaits_confirmation && !built.checks.is_empty() {
        push = confirm(client, built, push.version, job)?;
    }
    match push.state {
        PushState::Swapped => {
            // They serve the store again when they have caught up.
            for node in client.store(name)?.map(|store| store.late).unwrap_or_default() {
                job.note(Note::LateNode(node));
            }
            Ok(push)
        }
        PushState::Cancelled => {
            let cancelled_text = format!("the push of version {version} of store {name} was cancelled");
            Err(match cancelled {
                true => PushError::Cancelled(cancelled_text),
                false => PushError::Failed(cancelled_text),
            })
        }
        PushState::Held => Err(PushError::Held(format!(
            "version {version} of store {name} is fetched, but does not go live: {}; to swap it in all the same: fondaco swap {name} \
             --to {version}",
            push.error.as_deref().unwrap_or("see the node's log")
        ))),
        _ => Err(PushError::Failed(format!(
            "the push of version {version} of store {name} failed: {}",
            push.error.as_deref().unwrap_or("see the node's log")
        ))),
    }
}

/// Checks a version that awaits that, and makes it current, or has the cluster hold it for the reason found.
fn confirm(client: &Client, built: &Built<'_>, version: u64, job: Job<'_>) -> Result<PushResource, PushError> {
    let name = built.store;
    let push = format!("/v1/stores/{name}/push");
    let refused = built.checks.check(client, name, version, job);
    if job.is_cancelled() {
        client.delete(&format!("{push}?version={version}"))?;
        let message = format!("the push of version {version} of store {name} was cancelled");
        return Err(PushError::Cancelled(message));
    }
    let number = VersionNumber::new(version).ok_or_else(|| PushError::Damaged("version 0 was pushed".to_owned()))?;
    let confirmation = Confirmation {
        version: number,
        refused,
    };
    let confirmed = client.post(&format!("{push}/confirmation"), &confirmation);
    confirmed.or_else(|error: AdminError| {
        // An operator or another try of the run may have decided meanwhile.
        let last: Option<PushResource> = client.get(&push).ok();
        let decided = last.filter(|last| error.code() == "push_ended" && last.version == version);
        if let Some(decided) = decided {
            return Ok(decided);
        }
        let message = format!(
            "version {version} of store {name} is fetched, but cannot be confirmed: fondaco versions {name} shows it"
        );
        Err(PushError::from(error).within(message))
    })
}

/// Starts the push. If another push of the store started while this version was built, waits for its end.
fn begin(client: &Client, name: &StoreName, request: &NewPush, job: Job<'_>) -> Result<PushResource, PushError> {
    let mut is_noted = false;
    let mut lost_since = None;
    loop {
        let begun: Result<PushResource, AdminError> = client.post(&format!("/v1/stores/{name}/pushes"), request);
        match begun.map_err(PushError::from) {
            // The request may have arrived. One of the same run begins nothing else.
            Err(error) if error.is_away() && request.run.is_some() && !job.is_cancelled() => {
                if lost_since.get_or_insert_with(Instant::now).elapsed() >= ASK_AGAIN_MAX {
                    return Err(error.within("it is not known whether the push has begun"));
                }
                std::thread::sleep(INTERVAL);
                continue;
            }
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
