//! Makes one cluster serve a built version: uploads it if it was asked to, begins the push, and watches it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fondaco_admin::Client;
use fondaco_api::{ClusterResource, NewPush, PushResource, VersionList};
use fondaco_model::{PushState, StoreName, VersionNumber};
use fondaco_storage::Location;
use serde::Serialize;
use url::Url;

use super::WrongUsage;
use super::push_progress::{show, waiting_text};
use super::rollout::is_away;
use super::upload::{self, UploadResult};
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Display, INTERVAL};
use crate::refusal::is_refused;

/// How often a push is checked for a controller, which it needs.
const LEADER_INTERVAL: Duration = Duration::from_secs(2);

/// How long the request that begins a push is repeated, if its answers are lost.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(10);

/// A built version, and how it is to be brought to a cluster.
#[derive(Clone, Copy)]
pub struct Built<'a> {
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
}

/// The result of a deploy, as JSON.
#[derive(Serialize)]
pub struct Deployed {
    /// The push, which has ended.
    #[serde(flatten)]
    pub push: PushResource,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// The upload before it, if there was one.
    pub upload: Option<UploadResult>,
}

/// Makes a cluster serve a built version; uploads it first if that was asked for. `begun` is set once the cluster has begun
/// the push.
pub fn bring(
    client: &Client,
    built: &Built<'_>,
    begun: &mut bool,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<Deployed> {
    if let Some(run) = built.run
        && let Some(push) = push_of_run(client, built.store, run)?
    {
        *begun = true;
        output.note(&format!(
            "run {run:?} has begun already, as version {}: this is its end",
            push.version
        ));
        let push = watch(client, built, push, interrupt, output)
            .with_context(|| format!("run {run:?} has this end: to try again, name another --run"))?;
        return Ok(Deployed {
            push: PushResource { repeated: true, ..push },
            upload: None,
        });
    }
    let (source, upload) = match built.upload {
        false => (source_url(built.place)?, None),
        true => {
            let location: Location = built.place.parse()?;
            let dir = location.local_path().ok_or_else(|| not_local("--upload"))?;
            let upload = upload::send(client, built.store, dir, interrupt, output)?;
            output.note(&upload.text());
            (upload.source.clone(), Some(upload))
        }
    };
    let request = NewPush {
        source,
        dry_run: false,
        as_of_unix_ms: built.as_of_unix_ms,
        started_unix_ms: built.started_unix_ms,
        any_base: built.any_base,
        if_current: built.if_current,
        run: built.run.map(str::to_owned),
        again: built.again,
    };
    let push = begin(client, built.store, &request, interrupt, output)?;
    *begun = true;
    let repeated = push.repeated;
    let push = watch(client, built, push, interrupt, output)?;
    Ok(Deployed {
        push: PushResource { repeated, ..push },
        upload,
    })
}

/// The push that belongs to a run, if the cluster knows one.
pub fn push_of_run(client: &Client, store: &StoreName, run: &str) -> anyhow::Result<Option<PushResource>> {
    match client.get(&run_path(store, run)) {
        Ok(push) => Ok(Some(push)),
        Err(error) if is_refused(&error, "push_not_found") || is_refused(&error, "store_not_found") => Ok(None),
        Err(error) => Err(error),
    }
}

fn run_path(store: &StoreName, run: &str) -> String {
    let run: String = url::form_urlencoded::byte_serialize(run.as_bytes()).collect();
    format!("/v1/stores/{store}/push?run={run}")
}

/// Why a push that goes on is not watched to its end.
#[derive(Debug, Clone, Copy)]
struct GoesOn(&'static str);

impl fmt::Display for GoesOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Whether a push goes on after this error: its version has to stay.
pub fn goes_on(error: &anyhow::Error) -> bool {
    error.downcast_ref::<GoesOn>().is_some()
}

/// Whether a controller leads, as far as it can be found out.
fn has_leader(client: &Client) -> bool {
    let cluster = client.get::<ClusterResource>("/v1/cluster");
    cluster.map_or(true, |cluster| cluster.leader.is_some())
}

/// Watches a push to its end.
fn watch(
    client: &Client,
    built: &Built<'_>,
    mut push: PushResource,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<PushResource> {
    let (version, name) = (push.version, built.store);
    let path = format!("/v1/stores/{name}/push");
    let seen_at = built.run.map_or_else(|| path.clone(), |run| run_path(name, run));
    let mut display = Display::new(output.is_quiet());
    let mut cancelled = false;
    let mut waits_for = BTreeSet::new();
    let (mut leads, mut asked) = (true, Instant::now());
    while !is_end(push.state) {
        if interrupt.is_asked() && !cancelled {
            cancelled = true;
            // The push may have ended a moment ago; its result is read below.
            if let Err(error) = client.delete(&format!("{path}?version={version}"))
                && !is_refused(&error, "push_ended")
            {
                return Err(error.context(GoesOn("the push could not be cancelled and continues")));
            }
        }
        std::thread::sleep(INTERVAL);
        let seen: PushResource = client
            .get(&seen_at)
            .context(GoesOn("cannot watch the push any more; it continues"))?;
        if seen.version != version {
            // The push ended since the last poll, and another one started at once: the list of versions tells how it
            // ended.
            if !is_kept(client, name, version)? {
                bail!("the push of version {version} ended, and another one was started: see fondaco versions {name}");
            }
            push.state = PushState::Swapped;
            break;
        }
        push = seen;
        if asked.elapsed() >= LEADER_INTERVAL {
            let led = std::mem::replace(&mut leads, has_leader(client));
            if led && !leads {
                display.note("no controller leads: the push continues when one does; start one, or see fondaco status");
            }
            asked = Instant::now();
        }
        if leads {
            show(&mut display, &push);
        }
        for absent in &push.absent {
            if waits_for.insert(absent.node) {
                display.note(&waiting_text(absent));
            }
        }
    }
    drop(display);
    match push.state {
        PushState::Swapped => {
            note_late_nodes(client, name, output)?;
            Ok(push)
        }
        PushState::Cancelled => bail!("the push of version {version} of store {name} was cancelled"),
        _ => bail!(
            "the push of version {version} of store {name} failed: {}",
            push.error.as_deref().unwrap_or("see the node's log")
        ),
    }
}

/// Starts the push. If another push of the store started while this version was built, waits for its end.
fn begin(
    client: &Client,
    name: &StoreName,
    request: &NewPush,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<PushResource> {
    let path = format!("/v1/stores/{name}/push");
    let mut is_noted = false;
    let mut lost_since = None;
    loop {
        match client.post(&format!("/v1/stores/{name}/pushes"), request) {
            // The request may have arrived. One of the same run begins nothing else.
            Err(error) if is_away(&error) && request.run.is_some() && !interrupt.is_asked() => {
                if lost_since.get_or_insert_with(Instant::now).elapsed() >= ASK_AGAIN_MAX {
                    return Err(error.context("it is not known whether the push has begun"));
                }
                std::thread::sleep(INTERVAL);
                continue;
            }
            Err(error) if is_refused(&error, "push_in_progress") && !interrupt.is_asked() => {
                if !is_noted {
                    output.note(&format!("{error}; waiting for it"));
                    is_noted = true;
                }
            }
            begun => return begun,
        }
        while !interrupt.is_asked() && !is_end(client.get::<PushResource>(&path)?.state) {
            std::thread::sleep(INTERVAL);
        }
    }
}

/// Whether a store keeps a version, as the current one or as a backup.
fn is_kept(client: &Client, name: &StoreName, version: u64) -> anyhow::Result<bool> {
    let kept: VersionList = client.get(&format!("/v1/stores/{name}/versions"))?;
    Ok(kept.versions.iter().any(|kept| kept.version == version))
}

/// Reports the nodes that the push did not wait for.
fn note_late_nodes(client: &Client, name: &StoreName, output: &Output) -> anyhow::Result<()> {
    for node in client.store(name)?.map(|store| store.late).unwrap_or_default() {
        output.note(&format!(
            "node {node} does not have it yet: it serves this store again when it has caught up"
        ));
    }
    Ok(())
}

/// That an option to send the version was given for a location that is not on this machine.
pub fn not_local(option: &str) -> anyhow::Error {
    WrongUsage(format!(
        "{option} sends a directory of this machine: omit it if nodes can read the URL"
    ))
    .into()
}

/// The result of a push, as text.
pub fn text(name: &StoreName, push: &PushResource) -> String {
    if push.repeated {
        let version = push.version;
        return match &push.run {
            Some(run) => format!("run {run:?} made version {version} of store {name}: nothing else was deployed\n"),
            None => format!(
                "store {name} serves version {version}, whose content is the same: nothing was deployed; to deploy it all the \
                 same: --again\n"
            ),
        };
    }
    let ended = push.ended_unix_ms.unwrap_or(push.started_unix_ms);
    let time = Duration::from_millis(ended.saturating_sub(push.started_unix_ms));
    format!(
        "store {name} serves version {}: {} records, fetched and swapped in {}\n",
        push.version,
        output::count(push.records),
        output::duration(time)
    )
}

/// Whether a push has ended.
pub fn is_end(state: PushState) -> bool {
    match state {
        PushState::Fetching | PushState::Ready => false,
        PushState::Swapped | PushState::Failed | PushState::Cancelled => true,
    }
}

/// A location as a URL for the node, whose working directory differs.
pub fn source_url(place: &str) -> anyhow::Result<String> {
    if place.contains("://") {
        return Ok(place.to_owned());
    }
    let path: PathBuf = std::path::absolute(place).with_context(|| format!("cannot resolve {place:?}"))?;
    match Url::from_file_path(&path) {
        Ok(url) => Ok(url.into()),
        Err(()) => Err(WrongUsage(format!("invalid path {path:?}: use a path or a URL")).into()),
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
