//! `fondaco push` and `deploy`: a new version comes to a store.
//!
//! A push is a build, in a directory that is deleted afterwards, and a deploy. A deploy asks the
//! cluster to fetch and to swap, and watches: the nodes do it, and go on if the watcher goes away.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use fondaco_control::http::{
    AbsentNode, DryRunResource, NewPush, NewStore, PushResource, PushStateName, ReplicaResource, ReplicaStateName,
    StoreResource,
};
use fondaco_format::GIVEN_AWAY_FILE;
use fondaco_model::StoreName;
use fondaco_storage::Location;
use serde::Serialize;
use url::Url;

use super::WrongUsage;
use super::build::{self, BuildResult, InputOptions};
use crate::arguments::ControlPort;
use crate::client::{Client, Refused, is_refused};
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Display, INTERVAL};
use crate::scratch::Scratch;

/// `fondaco push`.
#[derive(Debug, Args)]
#[command(after_help = "\
The version is built in --work, where it needs as much space as the values have. If that is on the
file system of the node's data, and the node runs as the same user, its files are linked and not copied. Nodes on other machines need a place
that they can read: say --output with an hdfs:// or s3:// URL, or a directory that all of them mount.

Example:
  fondaco push pymk 'connections/*.parquet' --key member --value candidates
  fondaco push features features.csv --key member --values age,score --create
  fondaco push pymk 'connections/*.parquet' --key member --output s3://versions/pymk-2026-11-21")]
pub struct PushOptions {
    #[command(flatten)]
    input: InputOptions,

    /// Keep the version that is built: in this directory, which is empty or missing, or at this URL
    #[arg(long, value_name = "URL")]
    output: Option<Location>,

    /// Create the store if there is none
    #[arg(long)]
    create: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco deploy`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco deploy pymk /data/pymk-1")]
pub struct DeployOptions {
    /// The store
    store: StoreName,

    /// Where the version was built: a path, or a URL that the node can read
    #[arg(value_name = "URL")]
    source: String,

    /// Check everything, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco cancel`.
#[derive(Debug, Args)]
#[command(after_help = "\
The nodes delete what they have of the version; the store serves on as before.

Example:
  fondaco cancel pymk")]
pub struct CancelOptions {
    /// The store
    store: StoreName,

    #[command(flatten)]
    node: ControlPort,
}

#[derive(Serialize)]
struct PushResult {
    build: BuildResult,
    push: Option<PushResource>,
}

/// Builds a version, and deploys it.
pub fn push(options: PushOptions, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&options.node)?;
    let name = &options.input.store;
    // Asked before anything is built: a build may take hours.
    let status = client.status()?;
    if status.partitions == 0 {
        bail!(
            "{} has not seen its cluster yet: wait until fondaco status says that it is ready",
            client.address()
        );
    }
    let partitions = build::partition_count(status.partitions)?;
    let store = client.store(name)?;
    match &store {
        Some(found) if found.versioned.is_some() => return Err(versioned(name)),
        Some(found) => refuse_a_second_push(found.push.as_ref(), name)?,
        None if options.create => {}
        None => bail!(
            "no store {name:?} on {}: create it with fondaco store create {name}, or say --create",
            client.address()
        ),
    }
    let interrupt = Interrupt::listen()?;
    if options.input.dry_run {
        let built = build::run(&options.input, partitions, None, &interrupt, output)?;
        if let Some(left) = status.disk_available_bytes
            && built.bytes() > left
        {
            bail!(
                "the version would have about {}, and the disk of the node has {} left: free some there",
                output::bytes(built.bytes()),
                output::bytes(left)
            );
        }
        let result = PushResult {
            build: built,
            push: None,
        };
        return output.result(&result, |result| result.build.text() + "nothing was changed\n");
    }
    let (location, scratch) = match &options.output {
        Some(location) => (location.clone(), None),
        None => {
            let work = options.input.work.clone().unwrap_or_else(std::env::temp_dir);
            let scratch = Scratch::make(&work)?;
            (Location::local(scratch.path()?.join("version")), Some(scratch))
        }
    };
    let built = build::run(&options.input, partitions, Some(&location), &interrupt, output)?;
    if !output.is_json() {
        output.note(built.text().trim_end());
    }
    if let (Some(_), Some(dir)) = (&scratch, location.local_path()) {
        // Only this process changes these files, and it deletes them afterwards: nodes may link them.
        let statement = dir.join(GIVEN_AWAY_FILE);
        std::fs::write(&statement, "").with_context(|| format!("cannot write {statement:?}"))?;
    }
    let source = source_url(&location.to_string())?;
    let pushed =
        create(&client, name, store.is_none(), output).and_then(|()| run(&client, name, source, &interrupt, output));
    let pushed = match pushed {
        Ok(pushed) => pushed,
        // Who stopped it does not want it.
        Err(error) if interrupt.is_asked() => return Err(error),
        // A build may have taken hours: it is kept.
        Err(error) => {
            let kept = match scratch {
                Some(scratch) => scratch.keep()?.join("version").display().to_string(),
                None => location.to_string(),
            };
            return Err(error.context(format!(
                "store {name} did not get the version; it is built, and this tries again: fondaco deploy {name} {kept}"
            )));
        }
    };
    drop(scratch);
    let result = PushResult {
        build: built,
        push: Some(pushed),
    };
    output.result(&result, |result| {
        result.push.as_ref().map_or_else(String::new, |push| text(name, push))
    })
}

/// Creates the store, unless there is one. Another process may have created it during the build.
fn create(client: &Client, name: &StoreName, is_missing: bool, output: &Output) -> anyhow::Result<()> {
    if !is_missing {
        return Ok(());
    }
    match client.post::<StoreResource>("/v1/stores", &NewStore::batch(name.as_str())) {
        Ok(_) => output.note(&format!("created store {name}")),
        Err(error) if is_refused(&error, "store_exists") => {
            output.note(&format!("store {name} was created meanwhile: pushing to that"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn versioned(name: &StoreName) -> anyhow::Error {
    anyhow::Error::new(Refused {
        code: "versioned_store".to_owned(),
        message: format!(
            "store {name} is versioned, and takes no pushes: write to it with any Redis client (SET {name}:KEY VALUE), \
             or push to a store of another name"
        ),
    })
}

/// Cancels the push of a store that is under way.
pub fn cancel(options: &CancelOptions, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&options.node)?;
    let push: PushResource = client.delete_for(&format!("/v1/stores/{}/push", options.store))?;
    output.result(&push, |push| {
        format!(
            "cancelled the push of version {} of store {}\n",
            push.version, options.store
        )
    })
}

/// Deploys a version that was built.
pub fn deploy(options: DeployOptions, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&options.node)?;
    let source = source_url(&options.source)?;
    let name = &options.store;
    if options.dry_run {
        let request = NewPush { source, dry_run: true };
        let run: DryRunResource = client.post(&format!("/v1/stores/{name}/pushes"), &request)?;
        return output.result(&run, |run| dry_run_text(name, run));
    }
    let interrupt = Interrupt::listen()?;
    let push = run(&client, name, source, &interrupt, output)?;
    output.result(&push, |push| text(name, push))
}

fn refuse_a_second_push(push: Option<&PushResource>, name: &StoreName) -> anyhow::Result<()> {
    match push {
        Some(push) if !is_end(push.state) => bail!(
            "version {} is being pushed to store {name}: wait for it, or cancel it: fondaco cancel {name}",
            push.version
        ),
        _ => Ok(()),
    }
}

/// Has the cluster fetch and swap, and watches it to the end.
fn run(
    client: &Client,
    name: &StoreName,
    source: String,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<PushResource> {
    let request = NewPush { source, dry_run: false };
    let mut push = begin(client, name, &request, interrupt, output)?;
    let version = push.version;
    let path = format!("/v1/stores/{name}/push");
    let mut display = Display::new(output.is_quiet());
    let mut cancelled = false;
    let mut waits_for = BTreeSet::new();
    while !is_end(push.state) {
        if interrupt.is_asked() && !cancelled {
            cancelled = true;
            // The push may have ended a moment ago: how, is asked below.
            if let Err(error) = client.delete(&path)
                && !is_refused(&error, "push_ended")
            {
                return Err(error.context("the push could not be cancelled, and goes on"));
            }
        }
        std::thread::sleep(INTERVAL);
        push = client.get(&path).context("lost sight of the push, which goes on")?;
        if push.version != version {
            bail!("the push of version {version} ended, and another one was started: see fondaco versions {name}");
        }
        show(&mut display, &push);
        for absent in &push.absent {
            if waits_for.insert(absent.node) {
                display.note(&waiting_text(absent));
            }
        }
    }
    drop(display);
    match push.state {
        PushStateName::Swapped => {
            note_late_nodes(client, name, output)?;
            Ok(push)
        }
        PushStateName::Cancelled => bail!("the push of version {version} of store {name} was cancelled"),
        _ => bail!(
            "the push of version {version} of store {name} failed: {}",
            push.error.as_deref().unwrap_or("see the node's log")
        ),
    }
}

/// Has the push begin. Another one of the store may have begun while this version was built: that one is waited for.
fn begin(
    client: &Client,
    name: &StoreName,
    request: &NewPush,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<PushResource> {
    let path = format!("/v1/stores/{name}/push");
    let mut is_noted = false;
    loop {
        match client.post(&format!("/v1/stores/{name}/pushes"), request) {
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

/// Which node is waited for, and since when.
fn waiting_text(absent: &AbsentNode) -> String {
    match absent.since_unix_ms {
        Some(since) => format!(
            "waiting for node {}, absent since {}",
            absent.node,
            output::moment(since)
        ),
        None => format!("waiting for node {}, which is absent", absent.node),
    }
}

fn show(display: &mut Display, push: &PushResource) {
    let fraction = push.bytes_done as f64 / push.bytes_total.max(1) as f64;
    display.show_with("fetching", fraction.min(1.0), time_left(push), &progress_text(push));
}

/// How long a push will still take, if its nodes know.
pub fn time_left(push: &PushResource) -> Option<Duration> {
    push.seconds_left.map(|seconds| Duration::from_secs(seconds.max(1)))
}

/// How far a push is: in bytes, and on each node where there are several.
pub fn progress_text(push: &PushResource) -> String {
    let bytes = format!(
        "{} of {}",
        output::bytes(push.bytes_done),
        output::bytes(push.bytes_total)
    );
    if push.nodes.len() > 1 {
        return format!("{bytes}, {}", nodes_text(&push.nodes));
    }
    let limit = match push.rate_limit_bytes_per_second {
        0 => String::new(),
        limit => format!(" of at most {}/s", output::bytes(limit)),
    };
    format!(
        "{bytes}, {} of {} files, {}/s{limit}",
        push.files_done,
        push.files_total,
        output::bytes(push.rate_bytes_per_second),
    )
}

/// How far each node is; of many, only how many are there and which one is last.
fn nodes_text(nodes: &[ReplicaResource]) -> String {
    const NODES_SHOWN_MAX: usize = 8;
    let fraction = |node: &ReplicaResource| match node.state {
        ReplicaStateName::Ready | ReplicaStateName::Serving => 1.0,
        ReplicaStateName::Fetching | ReplicaStateName::Failed => {
            node.bytes_done as f64 / node.bytes_total.max(1) as f64
        }
    };
    let one = |node: &ReplicaResource| match node.state {
        ReplicaStateName::Ready | ReplicaStateName::Serving => format!("node {} ready", node.node),
        ReplicaStateName::Fetching => format!("node {} {:.0} %", node.node, fraction(node) * 100.0),
        ReplicaStateName::Failed => format!("node {} failed", node.node),
    };
    if nodes.len() <= NODES_SHOWN_MAX {
        return nodes.iter().map(one).collect::<Vec<_>>().join(", ");
    }
    let ready = nodes.iter().filter(|node| fraction(node) >= 1.0).count();
    let last = nodes.iter().min_by(|a, b| fraction(a).total_cmp(&fraction(b)));
    let last = last.map_or_else(String::new, |last| format!(", last {}", one(last)));
    format!("{ready} of {} nodes ready{last}", nodes.len())
}

/// Says which nodes the push did not wait for.
fn note_late_nodes(client: &Client, name: &StoreName, output: &Output) -> anyhow::Result<()> {
    for node in client.store(name)?.map(|store| store.late).unwrap_or_default() {
        output.note(&format!(
            "node {node} does not have it yet: it is asked for this store when it has caught up"
        ));
    }
    Ok(())
}

fn text(name: &StoreName, push: &PushResource) -> String {
    let ended = push.ended_unix_ms.unwrap_or(push.started_unix_ms);
    let time = Duration::from_millis(ended.saturating_sub(push.started_unix_ms));
    format!(
        "store {name} serves version {}: {} records, fetched and swapped in {}\n",
        push.version,
        output::count(push.records),
        output::duration(time)
    )
}

fn dry_run_text(name: &StoreName, run: &DryRunResource) -> String {
    format!(
        "store {name} would serve it as version {}: {} records, {}, {}; nothing was changed\n",
        run.version,
        output::count(run.records),
        output::bytes(run.bytes_total),
        match run.links {
            true => "its files linked and not copied".to_owned(),
            false => format!("its files copied, {} on the disk", output::bytes(run.needed_bytes)),
        }
    )
}

fn is_end(state: PushStateName) -> bool {
    match state {
        PushStateName::Fetching | PushStateName::Ready => false,
        PushStateName::Swapped | PushStateName::Failed | PushStateName::Cancelled => true,
    }
}

/// What a place is to the node, whose working directory is another.
fn source_url(place: &str) -> anyhow::Result<String> {
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

    fn replica(node: u32, state: ReplicaStateName, bytes_done: u64) -> ReplicaResource {
        ReplicaResource {
            node,
            state,
            bytes_done,
            bytes_total: 100,
            error: None,
        }
    }

    #[test]
    fn of_few_nodes_each_is_shown_and_of_many_the_last_one() {
        let mut nodes = vec![
            replica(1, ReplicaStateName::Ready, 0),
            replica(2, ReplicaStateName::Fetching, 45),
            replica(3, ReplicaStateName::Failed, 10),
        ];
        assert_eq!(nodes_text(&nodes), "node 1 ready, node 2 45 %, node 3 failed");
        nodes.extend((4..20).map(|node| replica(node, ReplicaStateName::Serving, 0)));
        assert_eq!(nodes_text(&nodes), "17 of 19 nodes ready, last node 3 failed");
    }

    #[test]
    fn a_path_becomes_a_url_that_does_not_depend_on_the_working_directory() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(source_url("/data/a b").unwrap(), "file:///data/a%20b");
        assert_eq!(
            source_url("b").unwrap(),
            Url::from_file_path(here.join("b")).unwrap().as_str()
        );
        assert_eq!(source_url("s3://bucket/b").unwrap(), "s3://bucket/b");
    }
}
