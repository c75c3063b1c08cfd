//! `fondaco push`: brings a new version to a store.
//!
//! A push is a build, in a directory that is deleted afterwards, and a [deploy](super::deploy).

mod target;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Command, FromArgMatches};
use fondaco_admin::Client;
use fondaco_api::{NewStore, PushResource, StoreResource};
use fondaco_builder::KnownIds;
use fondaco_format::GIVEN_AWAY_FILE;
use fondaco_model::{StoreName, ValueType, VersionNumber};
use fondaco_storage::Location;
use serde::Serialize;

use self::target::{Target, check_all};
use super::bring::{Built, Deployed, goes_on, not_local, text};
use super::build::{self, BuildResult, InputOptions};
use super::graph_ids::{check_ids_are_current, served_ids};
use super::increment::CurrentVersion;
use super::rollout::{Cluster, ClusterOutcome, Rolled, Rollout, RolloutOptions, State};
use super::through::{Through, ThroughOptions};
use super::upload::{self, UploadResult};
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::refusal::is_refused;
use crate::scratch::Scratch;

/// `fondaco push`.
#[derive(Debug, Args)]
#[command(after_help = "\
The version is built in --work, which needs as much space as the values. If --work is on the
file system of the node's data, and the node runs as the same user, its files are linked, not copied. Nodes on other
machines need a location that they can read: use --output with an hdfs:// or s3:// URL,
or a directory that all of them mount. If there is no such location, --upload sends the version to the node
that --http names, and the others fetch it from there. If nodes reach a Kafka, --through sends it through a topic.

Example:
  fondaco push pymk 'connections/*.parquet' --key member --value candidates
  fondaco push features features.csv --key member --values age,score --create
  fondaco push pymk changed.parquet --delete gone.csv --key member --value candidates --incremental
  fondaco push social KNOWS=knows.csv --edges from,to --symmetric --vertices Person=people.csv --create
  fondaco push pymk 'connections/*.parquet' --key member --output s3://versions/pymk-2026-11-21
  fondaco push pymk 'connections/*.parquet' --key member --upload --http node-1:6580
  fondaco push pymk 'connections/*.parquet' --key member --through kafka://kafka-1:9092/versions
  fondaco push pymk 'connections/*.parquet' --key member --upload --to east-1:6580,west-1:6580 --pause 10m")]
pub struct PushOptions {
    #[command(flatten)]
    pub(super) input: InputOptions,

    /// Keep the built version: in this directory, which is empty or missing, or at this URL
    #[arg(long, value_name = "URL")]
    output: Option<Location>,

    /// Send the version to the node over its control port, if no node can read the directory of the build
    #[arg(long)]
    upload: bool,

    #[command(flatten)]
    through: ThroughOptions,

    /// Create the store if it does not exist
    #[arg(long)]
    create: bool,

    /// The input is a difference to the store's current version: records to set, and with --delete keys to delete. Nodes
    /// fetch only what changes
    #[arg(long, conflicts_with_all = ["edges", "create", "compress", "chunk_size"])]
    incremental: bool,

    #[command(flatten)]
    rollout: RolloutOptions,

    /// The version that the input is a difference to, if it is what events on top of that one made.
    #[arg(skip)]
    events_on: Option<u64>,

    #[command(flatten)]
    node: ControlPort,
}

/// What events up to a time have changed, and how it is pushed.
pub struct ChangedFiles<'a> {
    pub store: &'a StoreName,
    /// The version that the events are on top of.
    pub version: u64,
    /// Files with the columns key and value.
    pub changed: &'a [PathBuf],
    /// Files with the column key.
    pub deleted: &'a [PathBuf],
    pub as_of_unix_ms: u64,
    pub upload: bool,
    pub memory_bytes: u64,
    /// The directory for temporary files.
    pub work: &'a Path,
}

impl PushOptions {
    /// The incremental push of what events have changed.
    pub fn of_changes(files: &ChangedFiles<'_>, node: ControlPort) -> anyhow::Result<Self> {
        let mut arguments: Vec<OsString> = vec!["push".into(), files.store.as_str().into()];
        arguments.extend(["--key", "key", "--value", "value", "--incremental"].map(Into::into));
        arguments.extend(["--memory".into(), files.memory_bytes.to_string().into()]);
        arguments.extend(["--work".into(), files.work.into()]);
        arguments.extend(["--as-of".into(), files.as_of_unix_ms.to_string().into()]);
        arguments.extend(files.changed.iter().map(Into::into));
        arguments.extend(
            files
                .deleted
                .iter()
                .flat_map(|path| ["--delete".into(), OsString::from(path)]),
        );
        let parsed = Self::augment_args(Command::new("push")).try_get_matches_from(arguments);
        Ok(Self {
            upload: files.upload,
            events_on: Some(files.version),
            node,
            ..Self::from_arg_matches(&parsed?)?
        })
    }
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
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<BuildResult>,
    push: Option<PushResource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<UploadResult>,
}

impl PushResult {
    fn text(&self, name: &StoreName) -> String {
        self.push.as_ref().map_or_else(String::new, |push| text(name, push))
    }
}

/// The result of a push to several clusters.
#[derive(Serialize)]
struct RolloutResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<BuildResult>,
    clusters: Vec<ClusterOutcome>,
}

/// Runs `fondaco push`.
pub fn push(mut options: PushOptions, output: &Output) -> anyhow::Result<()> {
    let mut rollout = Rollout::new(&options.rollout, &options.node)?;
    let name = &options.input.store.clone();
    if rollout.know(name) {
        let interrupt = Interrupt::listen()?;
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
        };
        let mut rolled = rollout.bring(&known, &interrupt, output, |_| Ok(()));
        if rollout.is_several() {
            return finish(&rollout, rolled, &known, None, "", output);
        }
        if let Some(error) = rolled.error.take() {
            return Err(error);
        }
        let push = rolled.clusters.into_iter().find_map(|one| one.push);
        return output.result(
            &PushResult {
                build: None,
                push,
                upload: None,
            },
            |result| result.text(name),
        );
    }
    // Checked before the build, since a build may take hours.
    let through = options.through.find()?;
    let Target {
        partitions,
        store,
        disk_available_bytes,
    } = check_all(&mut rollout, &options, through.as_ref(), output)?;
    let versions = store.as_ref().map_or(&[][..], |store| &store.versions);
    let current = versions.iter().find(|version| version.current);
    if let Some(version) = options.events_on
        && current.is_none_or(|current| current.version != version)
    {
        bail!("version {version} of store {name} is not the current one any more: try again");
    }
    if options.incremental {
        // It may be another one than its build was told.
        let of_current = current.and_then(|current| current.as_of_unix_ms);
        options.input.as_of = options.input.as_of.or(of_current);
    }
    let first = rollout.first();
    let asked = options.input.wanted_type();
    options.input.value_type = store.as_ref().map(|found| found.value_type).or(asked);
    let served = served_ids(&first.client, &first.port, name, store.as_ref())?;
    let interrupt = Interrupt::listen()?;
    let work = options.input.work.clone().unwrap_or_else(std::env::temp_dir);
    let find = |store| CurrentVersion::find(&first.client, &first.port, store, &work, &interrupt, output);
    let current = store.as_ref().filter(|_| options.incremental).map(find).transpose()?;
    let from = build::Earlier {
        known: served.as_ref().map(|served| served as &dyn KnownIds),
        base: current.as_ref().map(CurrentVersion::dir),
        has_final_values: options.events_on.is_some(),
    };
    if options.input.dry_run {
        let built = build::run(&options.input, partitions, from, None, &interrupt, output)?;
        return dry_run(built, disk_available_bytes, output);
    }
    let (location, mut scratch) = destination(&options, &work)?;
    let built = build::run(&options.input, partitions, from, Some(&location), &interrupt, output)?;
    drop(current);
    if !output.is_json() {
        output.note(built.text().trim_end());
    }
    if let (Some(scratch), Some(dir)) = (&scratch, location.local_path()) {
        give_away(scratch, dir, name, options.upload, output)?;
    }
    let place = match &through {
        Some(through) => send_through(through, &location, &mut scratch, name, &interrupt, output)?,
        None => location.to_string(),
    };
    let prepare = |cluster: &Cluster| {
        create(&cluster.client, name, options.input.value_type, options.create, output)?;
        let has_ids = served.is_some() && std::ptr::eq(cluster, first);
        check_ids_are_current(&cluster.client, store.as_ref().filter(|_| has_ids))
    };
    let version = Built {
        store: name,
        place: &place,
        upload: options.upload,
        is_hybrid: store.as_ref().is_some_and(|store| store.stream.is_some()),
        as_of_unix_ms: options.input.as_of,
        started_unix_ms: None,
        any_base: false,
        if_current: options.events_on.and_then(VersionNumber::new),
        run: rollout.run(),
        again: options.rollout.again,
    };
    let rolled = rollout.bring(&version, &interrupt, output, prepare);
    // A version of another base would undo what the other push has changed. What events have made is found again.
    let base_changed = |error: &anyhow::Error| is_refused(error, "base_changed");
    let is_given_up =
        interrupt.is_asked() || options.events_on.is_some() || rolled.error.as_ref().is_some_and(base_changed);
    let is_unwanted = is_given_up && !rolled.error.as_ref().is_some_and(goes_on);
    if let (Some(_), false) = (&rolled.error, is_unwanted && !rolled.has_swapped()) {
        // The build may have taken hours, so keep it.
        let kept = match scratch {
            Some(scratch) => scratch.keep()?.join("version").display().to_string(),
            None => place.clone(),
        };
        return finish(&rollout, rolled, &version, Some(built), &kept, output);
    }
    if let (Some(_), true, Some(dir)) = (&rolled.error, options.upload, location.local_path()) {
        // The version is not wanted any more.
        let failed = rollout.in_state(&rolled, State::Failed);
        failed.for_each(|cluster| upload::give_up(&cluster.client, name, dir));
    }
    drop(scratch);
    finish(&rollout, rolled, &version, Some(built), "", output)
}

/// Where the version is built: at the location of `--output`, or in a directory that is deleted afterwards.
fn destination(options: &PushOptions, work: &Path) -> anyhow::Result<(Location, Option<Scratch>)> {
    if let Some(location) = &options.output {
        return Ok((location.clone(), None));
    }
    let scratch = Scratch::make(work)?;
    Ok((Location::local(scratch.path()?.join("version")), Some(scratch)))
}

/// Sends the version through a topic, and returns its place there. The build is deleted then, unless it is to be kept.
fn send_through(
    through: &Through,
    location: &Location,
    scratch: &mut Option<Scratch>,
    name: &StoreName,
    interrupt: &Interrupt,
    output: &Output,
) -> anyhow::Result<String> {
    let dir = location.local_path().ok_or_else(|| not_local("--through"))?;
    let sent = through.send(dir, interrupt, output);
    match (sent, scratch.take()) {
        (Err(error), Some(scratch)) if !interrupt.is_asked() => {
            // The build may have taken hours.
            scratch.keep()?;
            Err(through.failed(error, name, dir))
        }
        (Err(error), None) => Err(through.failed(error, name, dir)),
        (sent, _) => sent,
    }
}

/// Prints the result of a push, or of a deploy if nothing was built. `kept` is where a version is that was not brought
/// everywhere; empty if it is not wanted any more.
pub(super) fn finish(
    rollout: &Rollout,
    mut rolled: Rolled,
    version: &Built<'_>,
    build: Option<BuildResult>,
    kept: &str,
    output: &Output,
) -> anyhow::Result<()> {
    let name = version.store;
    let error = rolled.error.take();
    if rollout.is_several() {
        let text = rolled.text(version);
        let advice = rolled.advice(version, kept);
        let clusters = rolled.clusters;
        output.result(&RolloutResult { build, clusters }, |_| text)?;
        return match error {
            Some(error) if kept.is_empty() => Err(error),
            Some(error) => Err(error.context(advice)),
            None => Ok(()),
        };
    }
    let is_deploy = build.is_none();
    if let Some(error) = error {
        let difference = match build.as_ref().is_some_and(BuildResult::is_difference) {
            true => ", as long as the store has the version that it changes",
            false => "",
        };
        return Err(match kept {
            _ if is_deploy || kept.is_empty() => error,
            _ if goes_on(&error) => error.context(format!("it goes on from {kept}: keep that until it has ended")),
            _ => error.context(format!(
                "store {name} did not get the version; the build is kept, try again{difference}: \
                 fondaco deploy {name} {kept}{}",
                if version.upload { " --upload" } else { "" }
            )),
        });
    }
    let one = rolled.clusters.into_iter().next();
    let Some((push, upload)) = one.and_then(|one| Some((one.push?, one.upload))) else {
        bail!("store {name} did not get the version");
    };
    match build {
        None => output.result(&Deployed { push, upload }, |deployed| text(name, &deployed.push)),
        Some(build) => {
            let (build, push) = (Some(build), Some(push));
            output.result(&PushResult { build, push, upload }, |result| result.text(name))
        }
    }
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
        build: Some(built),
        push: None,
        upload: None,
    };
    output.result(&result, |result| {
        let build = result.build.as_ref().map_or_else(String::new, BuildResult::text);
        build + "nothing was changed\n"
    })
}

/// Creates the store if it is missing and may be created.
fn create(
    client: &Client,
    name: &StoreName,
    value_type: Option<ValueType>,
    may_create: bool,
    output: &Output,
) -> anyhow::Result<()> {
    if !may_create || client.store(name)?.is_some() {
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

/// Runs `fondaco cancel`.
pub fn cancel(options: &CancelOptions, output: &Output) -> anyhow::Result<()> {
    let client = options.node.client()?;
    let push: PushResource = client.delete_for(&format!("/v1/stores/{}/push", options.store))?;
    output.result(&push, |push| {
        format!(
            "cancelled the push of version {} of store {}\n",
            push.version, options.store
        )
    })
}
