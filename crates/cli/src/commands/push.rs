//! `fondaco push` and `deploy`: bring a new version to a store.
//!
//! A push is a build, in a directory that is deleted afterwards, and a deploy. A deploy asks the cluster to fetch and
//! swap, and watches: the nodes do the work, and continue if the watching command ends.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use fondaco_build::KnownIds;
use fondaco_control::http::{
    DryRunResource, NewPush, NewStore, PushResource, PushStateName, StoreResource, VersionList,
};
use fondaco_format::GIVEN_AWAY_FILE;
use fondaco_model::{PartitionCount, StoreName, ValueType};
use fondaco_storage::Location;
use serde::Serialize;
use url::Url;

use super::WrongUsage;
use super::build::{self, BuildResult, InputOptions};
use super::graph_ids::{check_ids_are_current, served_ids};
use super::increment::CurrentVersion;
use super::push_progress::{show, waiting_text};
use super::upload::{self, UploadResult};
use crate::client::{Client, Refused, is_refused};
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Display, INTERVAL};
use crate::scratch::Scratch;

/// `fondaco push`.
#[derive(Debug, Args)]
#[command(after_help = "\
The version is built in --work, which needs as much space as the values. If --work is on the
file system of the node's data, and the node runs as the same user, its files are linked, not copied. Nodes on other
machines need a location that they can read: use --output with an hdfs:// or s3:// URL,
or a directory that all of them mount. If there is no such location, --upload sends the version to the node
that --http names, and the others fetch it from there.

Example:
  fondaco push pymk 'connections/*.parquet' --key member --value candidates
  fondaco push features features.csv --key member --values age,score --create
  fondaco push pymk changed.parquet --delete gone.csv --key member --value candidates --incremental
  fondaco push social KNOWS=knows.csv --edges from,to --symmetric --vertices Person=people.csv --create
  fondaco push pymk 'connections/*.parquet' --key member --output s3://versions/pymk-2026-11-21
  fondaco push pymk 'connections/*.parquet' --key member --upload --http node-1:6580")]
pub struct PushOptions {
    #[command(flatten)]
    input: InputOptions,

    /// Keep the built version: in this directory, which is empty or missing, or at this URL
    #[arg(long, value_name = "URL")]
    output: Option<Location>,

    /// Send the version to the node over its control port, if no node can read the directory of the build
    #[arg(long)]
    upload: bool,

    /// Create the store if it does not exist
    #[arg(long)]
    create: bool,

    /// The input is a difference to the store's current version: records to set, and with --delete keys to delete. Nodes
    /// fetch only what changes
    #[arg(long, conflicts_with_all = ["edges", "create", "compress", "chunk_size"])]
    incremental: bool,

    /// Of a hybrid store: the version contains all events up to this time, and later ones count on top of it. A time such
    /// as 2026-11-26T08:00:00Z, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = unix_ms)]
    as_of: Option<u64>,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco deploy`.
#[derive(Debug, Args)]
#[command(after_help = "\
An interrupted upload resumes where it stopped, as long as the node keeps the received files.

Example:
  fondaco deploy pymk /data/pymk-1
  fondaco deploy pymk /data/pymk-1 --upload --http node-1:6580")]
pub struct DeployOptions {
    /// The store
    store: StoreName,

    /// The location of the built version: a path, or a URL that the node can read
    #[arg(value_name = "URL")]
    source: String,

    /// Send the version to the node over its control port, if no node can read the directory
    #[arg(long, conflicts_with = "dry_run")]
    upload: bool,

    /// Of a hybrid store: the version contains all events up to this time, and later ones count on top of it. A time such
    /// as 2026-11-26T08:00:00Z, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = unix_ms)]
    as_of: Option<u64>,

    /// Push a version that was built from a difference even if the store has another version now than it was built from
    #[arg(long)]
    any_base: bool,

    /// Check everything, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco cancel`.
#[derive(Debug, Args)]
#[command(after_help = "\
The nodes delete the files that they fetched of the version; the store serves its current version as before.

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
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<UploadResult>,
}

/// The result of a deploy, as JSON.
#[derive(Serialize)]
struct Deployed {
    #[serde(flatten)]
    push: PushResource,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<UploadResult>,
}

/// Runs `fondaco push`.
pub fn push(mut options: PushOptions, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&options.node)?;
    let name = &options.input.store.clone();
    // Checked before the build, since a build may take hours.
    let Target {
        partitions,
        store,
        disk_available_bytes,
    } = check(&client, &options)?;
    let asked = options.input.wanted_type();
    options.input.value_type = store.as_ref().map(|found| found.value_type).or(asked);
    let served = served_ids(&client, &options.node, &options.input.store, store.as_ref())?;
    let interrupt = Interrupt::listen()?;
    let work = options.input.work.clone().unwrap_or_else(std::env::temp_dir);
    let find = |store| CurrentVersion::find(&client, &options.node, store, &work, &interrupt, output);
    let current = store.as_ref().filter(|_| options.incremental).map(find).transpose()?;
    let from = build::Earlier {
        known: served.as_ref().map(|served| served as &dyn KnownIds),
        base: current.as_ref().map(CurrentVersion::dir),
    };
    if options.input.dry_run {
        let built = build::run(&options.input, partitions, from, None, &interrupt, output)?;
        return dry_run(built, disk_available_bytes, output);
    }
    let (location, scratch) = match &options.output {
        Some(location) => (location.clone(), None),
        None => {
            let scratch = Scratch::make(&work)?;
            (Location::local(scratch.path()?.join("version")), Some(scratch))
        }
    };
    let built = build::run(&options.input, partitions, from, Some(&location), &interrupt, output)?;
    drop(current);
    if !output.is_json() {
        output.note(built.text().trim_end());
    }
    if let (Some(scratch), Some(dir)) = (&scratch, location.local_path()) {
        give_away(scratch, dir, name, options.upload, output)?;
    }
    let pushed = create(&client, name, options.input.value_type, store.is_none(), output)
        .and_then(|()| check_ids_are_current(&client, store.as_ref().filter(|_| served.is_some())))
        .and_then(|()| {
            bring(
                &client,
                name,
                &location.to_string(),
                options.upload,
                PushTerms {
                    as_of_unix_ms: options.as_of,
                    any_base: false,
                },
                &interrupt,
                output,
            )
        });
    let pushed = match pushed {
        Ok(pushed) => pushed,
        // The user stopped the push and does not want the version.
        Err(error) if interrupt.is_asked() => {
            if let (true, Some(dir)) = (options.upload, location.local_path()) {
                upload::give_up(&client, name, dir);
            }
            return Err(error);
        }
        // It would undo what the other push has changed.
        Err(error) if is_refused(&error, "base_changed") => return Err(error),
        // The build may have taken hours, so keep it.
        Err(error) => {
            let kept = match scratch {
                Some(scratch) => scratch.keep()?.join("version").display().to_string(),
                None => location.to_string(),
            };
            return Err(error.context(format!(
                "store {name} did not get the version; the build is kept, try again: fondaco deploy {name} {kept}{}",
                if options.upload { " --upload" } else { "" }
            )));
        }
    };
    drop(scratch);
    let result = PushResult {
        build: built,
        push: Some(pushed.push),
        upload: pushed.upload,
    };
    output.result(&result, |result| {
        result.push.as_ref().map_or_else(String::new, |push| text(name, push))
    })
}

/// Marks the files of a build in a temporary directory: only this process changes them, and it deletes them afterwards, so
/// nodes may hard-link them.
fn give_away(scratch: &Scratch, dir: &Path, name: &StoreName, upload: bool, output: &Output) -> anyhow::Result<()> {
    let statement = dir.join(GIVEN_AWAY_FILE);
    std::fs::write(&statement, "").with_context(|| format!("cannot write {statement:?}"))?;
    if upload {
        // An upload may take hours, too.
        scratch.outlive_kill()?;
        output.note(&format!(
            "uploading {dir:?}; if it is interrupted, resume it with: fondaco deploy {name} {} --upload",
            dir.display()
        ));
    }
    Ok(())
}

/// What a version is pushed to.
struct Target {
    partitions: PartitionCount,
    /// `None` if it is to be created.
    store: Option<StoreResource>,
    /// The free space of the node's disk, if it has one.
    disk_available_bytes: Option<u64>,
}

/// Checks all that would refuse the push after the build.
fn check(client: &Client, options: &PushOptions) -> anyhow::Result<Target> {
    let name = &options.input.store;
    let status = client.status()?;
    if status.partitions == 0 {
        bail!(
            "{} has not seen its cluster yet: wait until fondaco status says that it is ready",
            client.address()
        );
    }
    if options.upload {
        let is_remote = |output: &Location| output.local_path().is_none();
        if options.output.as_ref().is_some_and(is_remote) {
            return Err(not_local());
        }
        upload::check(client, &status)?;
    }
    let store = client.store(name)?;
    match &store {
        Some(found) if found.versioned.is_some() => return Err(versioned(name)),
        Some(found) => {
            refuse_a_second_push(found.push.as_ref(), name)?;
            let is_graph = options.input.graph.edges.is_some();
            if is_graph != (found.value_type == ValueType::Graph) {
                return Err(wrong_rows(name, found.value_type, is_graph));
            }
            if let Some(asked) = options.input.value_type.filter(|asked| *asked != found.value_type) {
                bail!(
                    "the values of store {name:?} are of type {}, not {asked}: leave out --value-type, or push to another \
                     store",
                    found.value_type
                );
            }
        }
        None if options.create => {}
        None => bail!(
            "no store {name:?} on {}: create it with fondaco store create {name}, or use --create",
            client.address()
        ),
    }
    Ok(Target {
        partitions: build::partition_count(status.partitions)?,
        store,
        disk_available_bytes: status.disk_available_bytes,
    })
}

/// Reports what was read, and whether the version would fit on the node's disk.
fn dry_run(built: BuildResult, disk_available_bytes: Option<u64>, output: &Output) -> anyhow::Result<()> {
    if let Some(left) = disk_available_bytes
        && built.bytes() > left
    {
        bail!(
            "the version needs about {}, but the disk of the node has only {} free: free some space there",
            output::bytes(built.bytes()),
            output::bytes(left)
        );
    }
    let result = PushResult {
        build: built,
        push: None,
        upload: None,
    };
    output.result(&result, |result| result.build.text() + "nothing was changed\n")
}

/// Creates the store if it is missing. Another process may have created it during the build.
fn create(
    client: &Client,
    name: &StoreName,
    value_type: Option<ValueType>,
    is_missing: bool,
    output: &Output,
) -> anyhow::Result<()> {
    if !is_missing {
        return Ok(());
    }
    let new = NewStore {
        value_type: value_type.unwrap_or_default(),
        ..NewStore::batch(name.as_str())
    };
    match client.post::<StoreResource>("/v1/stores", &new) {
        Ok(_) => output.note(&format!("created store {name}")),
        Err(error) if is_refused(&error, "store_exists") => {
            output.note(&format!("store {name} was created meanwhile: pushing to it"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The error for edges pushed to a store that is no graph, or records to one that is.
fn wrong_rows(name: &StoreName, value_type: ValueType, has_edges: bool) -> anyhow::Error {
    anyhow::anyhow!(match has_edges {
        true => format!(
            "store {name:?} is no graph, its values are of type {value_type}: push the edges to another store, with --create"
        ),
        false => format!("store {name:?} is a graph: push its edges, with --edges FROM,TO in place of --key"),
    })
}

fn versioned(name: &StoreName) -> anyhow::Error {
    anyhow::Error::new(Refused {
        code: "versioned_store".to_owned(),
        message: format!(
            "store {name} is versioned and accepts no pushes: write to it with a Redis client (SET {name}:KEY VALUE), \
             or push to a store of another name"
        ),
    })
}

/// Runs `fondaco cancel`.
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

/// Runs `fondaco deploy`.
pub fn deploy(options: DeployOptions, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&options.node)?;
    let name = &options.store;
    if options.dry_run {
        let source = source_url(&options.source)?;
        let request = NewPush {
            source,
            dry_run: true,
            as_of_unix_ms: options.as_of,
            any_base: options.any_base,
        };
        let run: DryRunResource = client.post(&format!("/v1/stores/{name}/pushes"), &request)?;
        return output.result(&run, |run| dry_run_text(name, run));
    }
    if options.upload {
        upload::check(&client, &client.status()?)?;
    }
    let interrupt = Interrupt::listen()?;
    let deployed = bring(
        &client,
        name,
        &options.source,
        options.upload,
        PushTerms {
            as_of_unix_ms: options.as_of,
            any_base: options.any_base,
        },
        &interrupt,
        output,
    )?;
    output.result(&deployed, |deployed| text(name, &deployed.push))
}

/// On what terms a version is pushed.
#[derive(Clone, Copy)]
struct PushTerms {
    as_of_unix_ms: Option<u64>,
    any_base: bool,
}

/// Makes the cluster serve a built version; uploads it first if `--upload` was given.
fn bring(
    client: &Client,
    name: &StoreName,
    place: &str,
    upload: bool,
    terms: PushTerms,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<Deployed> {
    if !upload {
        let push = run(client, name, source_url(place)?, terms, interrupt, output)?;
        return Ok(Deployed { push, upload: None });
    }
    let location: Location = place.parse()?;
    let dir = location.local_path().ok_or_else(not_local)?;
    let upload = upload::send(client, name, dir, interrupt, output)?;
    output.note(&upload.text());
    let push = run(client, name, upload.source.clone(), terms, interrupt, output)?;
    Ok(Deployed {
        push,
        upload: Some(upload),
    })
}

/// A time as RFC 3339 or as milliseconds since 1970.
fn unix_ms(text: &str) -> Result<u64, String> {
    if let Ok(ms) = text.parse() {
        return Ok(ms);
    }
    let time = humantime::parse_rfc3339_weak(text).map_err(|error| error.to_string())?;
    let since = time
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|error| error.to_string())?;
    Ok(since.as_millis() as u64)
}

fn not_local() -> anyhow::Error {
    WrongUsage("--upload sends a directory of this machine: omit it if nodes can read the URL".to_owned()).into()
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

/// Makes the cluster fetch and swap, and watches it to the end.
fn run(
    client: &Client,
    name: &StoreName,
    source: String,
    terms: PushTerms,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<PushResource> {
    let request = NewPush {
        source,
        dry_run: false,
        as_of_unix_ms: terms.as_of_unix_ms,
        any_base: terms.any_base,
    };
    let mut push = begin(client, name, &request, interrupt, output)?;
    let version = push.version;
    let path = format!("/v1/stores/{name}/push");
    let mut display = Display::new(output.is_quiet());
    let mut cancelled = false;
    let mut waits_for = BTreeSet::new();
    while !is_end(push.state) {
        if interrupt.is_asked() && !cancelled {
            cancelled = true;
            // The push may have ended a moment ago; its result is read below.
            if let Err(error) = client.delete(&path)
                && !is_refused(&error, "push_ended")
            {
                return Err(error.context("the push could not be cancelled and continues"));
            }
        }
        std::thread::sleep(INTERVAL);
        let seen: PushResource = client
            .get(&path)
            .context("cannot watch the push any more; it continues")?;
        if seen.version != version {
            // The push ended since the last poll, and another one started at once: the list of versions tells how it
            // ended.
            if !is_kept(client, name, version)? {
                bail!("the push of version {version} ended, and another one was started: see fondaco versions {name}");
            }
            push.state = PushStateName::Swapped;
            break;
        }
        push = seen;
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
            true => "its files linked, not copied".to_owned(),
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

/// The source as a URL for the node, whose working directory differs.
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
