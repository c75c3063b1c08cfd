//! `fondaco store compact`: a new version of a hybrid store from the current one and the events on top of it.
//!
//! It is an incremental push: nodes say what the events up to a time have made of keys, and that is the difference. The
//! time is one up to which no event may come any more, on any node, so that none is lost: later ones count on top.

mod files;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use fondaco_admin::Client;
use fondaco_api::{NodeList, StoreResource, StreamStatus, VersionResource, VersionStream};
use fondaco_model::{PartitionId, PartitionSet, StoreName};
use serde::Serialize;

use self::files::{Files, PartFiles};
use super::build::parse_bytes;
use super::push::{self, ChangedFiles, PushOptions};
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Display, INTERVAL};
use crate::refusal::is_refused;
use crate::scratch::Scratch;

/// How often another time is chosen, because a node does not know what events up to the first one made.
const TRIES: u32 = 5;

/// `fondaco store compact`.
#[derive(Debug, Args)]
#[command(after_help = "\
Events count up to the store's --grace late, and later events than these stay on top of the new version.
The current version is fetched from nodes to --work, unless this machine has all of it.

Example:
  fondaco store compact counts
  fondaco store compact counts --upload --http node-1:6580")]
pub struct CompactOptions {
    /// The store
    name: StoreName,

    /// Send the version to the node over its control port, if no node can read --work
    #[arg(long)]
    upload: bool,

    /// How much memory the build uses, for instance 512MiB; the process takes up to 256MiB more
    #[arg(long, default_value = "256MiB", value_name = "BYTES", value_parser = parse_bytes)]
    memory: u64,

    /// The directory for temporary files: the current version and the new one
    #[arg(long, value_name = "DIRECTORY", env = "TMPDIR")]
    work: Option<PathBuf>,

    #[command(flatten)]
    node: ControlPort,
}

/// The result if there was nothing to do.
#[derive(Serialize)]
struct Nothing {
    changes: u64,
}

/// A node with a part of the overlay.
struct Part {
    client: Client,
    partitions: PartitionSet,
}

/// Which nodes say what the events on top of a version made.
struct Parts {
    /// Up to when each of them has all events.
    until_unix_ms: u64,
    nodes: Vec<Part>,
}

/// Runs `fondaco store compact`.
pub fn compact(options: CompactOptions, output: &Output) -> anyhow::Result<()> {
    let CompactOptions {
        name,
        upload,
        memory,
        work,
        node,
    } = options;
    let client = node.client()?;
    let store: StoreResource = client.get(&format!("/v1/stores/{name}"))?;
    if store.stream.is_none() {
        bail!("store {name:?} has no stream, and so no events to put into a version");
    }
    let Some(current) = store.versions.iter().find(|version| version.current) else {
        bail!("store {name:?} has no version to put events into: push one first, which may be empty");
    };
    let work = work.unwrap_or_else(std::env::temp_dir);
    let scratch = Scratch::make(&work)?;
    let interrupt = Interrupt::listen()?;
    let mut tries = 0;
    let (until_unix_ms, files) = loop {
        let parts = Parts::find(&client, &node, &name, current)?;
        match parts.collect(&name, current, &scratch.path()?, &interrupt, output) {
            Ok(files) => break (parts.until_unix_ms, files),
            // Updates are replaced by what they make, and partitions move.
            Err(error)
                if tries < TRIES
                    && ["not_settled", "unavailable"]
                        .iter()
                        .any(|code| is_refused(&error, code)) =>
            {
                tries += 1;
                output.note(&format!("trying again: {error:#}"));
                thread::sleep(Duration::from_secs(1));
            }
            Err(error) => return Err(error),
        }
    };
    drop(interrupt);
    let until = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(until_unix_ms));
    if files.changed.is_empty() && files.deleted.is_empty() {
        return output.result(&Nothing { changes: 0 }, |_| {
            format!(
                "no event up to {until} is on top of version {} of store {name}\n",
                current.version
            )
        });
    }
    output.note(&format!(
        "events up to {until} have changed {} keys of store {name}",
        output::count(files.count)
    ));
    let changed = ChangedFiles {
        store: &name,
        version: current.version,
        changed: &files.changed,
        deleted: &files.deleted,
        as_of_unix_ms: until_unix_ms,
        upload,
        memory_bytes: memory,
        work: &work,
    };
    push::push(PushOptions::of_changes(&changed, node)?, output)
}

impl Parts {
    /// Asks all nodes.
    fn find(client: &Client, port: &ControlPort, name: &StoreName, current: &VersionResource) -> anyhow::Result<Self> {
        let list: NodeList = client.get("/v1/nodes")?;
        let mut found: Vec<(Client, VersionStream)> = Vec::new();
        for node in list.nodes.iter().filter(|node| node.live) {
            let client = port.endpoint().client_of_node(&node.http)?;
            let status: StreamStatus = client.get(&format!("/v1/stores/{name}/stream?own=true"))?;
            let stream = status
                .versions
                .into_iter()
                .find(|stream| stream.version == current.version);
            found.extend(stream.map(|stream| (client, stream)));
        }
        let Some(count) = found.iter().map(|(_, stream)| stream.partitions_total).max() else {
            bail!(
                "no node reads the stream of version {} of store {name:?}",
                current.version
            );
        };
        // Of replicas one that lacks no records, and has come furthest, so that none waits for one that is behind.
        found.sort_by_key(|(_, stream)| (!stream.lost.is_empty(), std::cmp::Reverse(stream.settled_unix_ms)));
        let mut left: PartitionSet = (0..count).map(PartitionId::new).collect();
        let mut parts = Self {
            until_unix_ms: u64::MAX,
            nodes: Vec::new(),
        };
        for (client, stream) in found {
            let partitions: PartitionSet = left
                .iter()
                .filter(|partition| stream.ready.contains(*partition))
                .collect();
            if partitions.is_empty() {
                continue;
            }
            if !stream.lost.is_empty() {
                bail!(
                    "records of the topic were gone before {} read them, and no other node answers for its partitions {partitions}: push \
                     a new version",
                    client.address()
                );
            }
            if stream.settled_unix_ms == 0 {
                bail!(
                    "{} has read too few events since it was started to know up to when it has all: log events for longer than the \
                     store's --grace, and try again",
                    client.address()
                );
            }
            parts.until_unix_ms = parts.until_unix_ms.min(stream.settled_unix_ms);
            left = left.without(&partitions);
            parts.nodes.push(Part { client, partitions });
        }
        if !left.is_empty() {
            bail!("no live node answers for partitions {left} of store {name:?}: see fondaco status");
        }
        Ok(parts)
    }

    /// Writes what the events have changed to files in a directory.
    fn collect(
        &self,
        name: &StoreName,
        current: &VersionResource,
        dir: &Path,
        interrupt: &Interrupt,
        output: &Output,
    ) -> anyhow::Result<Files> {
        let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let read_part = |number: usize, part: &Part| {
            let mut files = PartFiles::new(dir, number);
            for partition in part.partitions.iter() {
                let path = format!(
                    "/v1/stores/{name}/stream/changes/{partition}?version={}&until_unix_ms={}",
                    current.version, self.until_unix_ms
                );
                let mut next = Some(path.clone());
                while let Some(page) = next.filter(|_| !is_over.load(Relaxed)) {
                    let (bytes, after) = part.client.get_page(&page)?;
                    count.fetch_add(files.add(&bytes)?, Relaxed);
                    next = after.map(|after| format!("{path}&after={after}"));
                }
            }
            files.finish()
        };
        // The others need not go on if one fails.
        let read = |number, part| read_part(number, part).inspect_err(|_| is_over.store(true, Relaxed));
        let mut all = Files::default();
        thread::scope(|scope| {
            let parts = self.nodes.iter().enumerate();
            let threads: Vec<_> = parts
                .map(|(number, part)| scope.spawn(move || read(number, part)))
                .collect();
            let mut display = Display::new(output.is_quiet());
            while threads.iter().any(|thread| !thread.is_finished()) {
                if interrupt.is_asked() {
                    is_over.store(true, Relaxed);
                }
                let read = format!("{} keys", output::count(count.load(Relaxed)));
                display.show("reading events", 0.0, &read);
                thread::park_timeout(INTERVAL.min(Duration::from_millis(100)));
            }
            for thread in threads {
                let (changed, deleted) = match thread.join() {
                    Ok(files) => files?,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                all.changed.extend(changed);
                all.deleted.extend(deleted);
            }
            anyhow::Ok(())
        })?;
        if interrupt.is_asked() {
            bail!("interrupted before all events were read; nothing was changed");
        }
        all.count = count.load(Relaxed);
        Ok(all)
    }
}
