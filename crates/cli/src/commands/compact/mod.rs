//! `fondaco store compact`: a new version of a hybrid store from the current one and the events on top of it.
//!
//! It is an incremental push: nodes say what the events up to a time have made of keys, and that is the difference. The
//! time is one up to which no event may come any more, on any node, so that none is lost: later ones count on top.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use fondaco_control::http::{
    CHANGED_TO_VALUE, Frame, NodeList, StoreResource, StreamStatus, VersionResource, VersionStream,
};
use fondaco_model::{PartitionId, PartitionSet, StoreName};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde::Serialize;

use super::build::parse_bytes;
use super::push::{self, ChangedFiles, PushOptions};
use crate::client::{Client, is_refused};
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Display, INTERVAL};
use crate::scratch::Scratch;

/// How many bytes of changes are written at a time.
const GROUP_BYTES: usize = 16 << 20;
/// How often a time is chosen that is too early by the time a node is asked.
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

/// What all nodes say of the events on top of a version.
struct Parts {
    /// Up to when all of them know all events.
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
    let client = Client::new(&node)?;
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
            // Nodes put updates together, and partitions move.
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
            let client = Client::of_node(&port.at(&node.http))?;
            let status: StreamStatus = client.get(&format!("/v1/stores/{name}/stream"))?;
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
                    "{} has read too few events since it began to tell up to when it knows all: it does once one was logged longer \
                     than the store's --grace after another one",
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
        let read = |number: usize, part: &Part| {
            let mut files = PartFiles::new(dir, number);
            for partition in part.partitions.iter() {
                let path = format!(
                    "/v1/stores/{name}/stream/changes/{partition}?version={}&until_unix_ms={}",
                    current.version, self.until_unix_ms
                );
                let mut next = Some(path.clone());
                while let Some(page) = next {
                    if is_over.load(Relaxed) {
                        bail!("interrupted");
                    }
                    let (bytes, after) = part.client.get_page(&page)?;
                    count.fetch_add(files.add(&bytes)?, Relaxed);
                    next = after.map(|after| format!("{path}&after={after}"));
                }
            }
            files.finish()
        };
        let mut all = Files::default();
        thread::scope(|scope| {
            let read = &read;
            let parts = self.nodes.iter().enumerate();
            let threads: Vec<_> = parts
                .map(|(number, part)| scope.spawn(move || read(number, part)))
                .collect();
            let mut display = Display::new(output.is_quiet());
            while threads.iter().any(|thread| !thread.is_finished()) {
                if interrupt.is_asked() {
                    is_over.store(true, Relaxed);
                }
                display.show(
                    "reading events",
                    0.0,
                    &format!("{} keys", output::count(count.load(Relaxed))),
                );
                thread::park_timeout(INTERVAL.min(Duration::from_millis(100)));
            }
            for thread in threads {
                let files = match thread.join() {
                    Ok(files) => files.inspect_err(|_| is_over.store(true, Relaxed))?,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                all.changed.extend(files.0);
                all.deleted.extend(files.1);
            }
            anyhow::Ok(())
        })?;
        all.count = count.load(Relaxed);
        Ok(all)
    }
}

/// Files with changes, for a build.
#[derive(Default)]
struct Files {
    changed: Vec<PathBuf>,
    deleted: Vec<PathBuf>,
    /// How many keys.
    count: u64,
}

/// The files of one node, in Parquet, since keys and values are any bytes.
struct PartFiles {
    changed: Table,
    deleted: Table,
}

impl PartFiles {
    fn new(dir: &Path, number: usize) -> Self {
        Self {
            changed: Table::new(dir.join(format!("changed-{number}.parquet")), &["key", "value"]),
            deleted: Table::new(dir.join(format!("deleted-{number}.parquet")), &["key"]),
        }
    }

    /// Adds the keys of a page. Returns how many.
    fn add(&mut self, mut page: &[u8]) -> anyhow::Result<u64> {
        let mut count = 0;
        while let Some(Frame { key, mut record }) =
            Frame::read(&mut page).context("the node sent no page of changes")?
        {
            match record.first() {
                Some(&CHANGED_TO_VALUE) => {
                    record.remove(0);
                    self.changed.add([key, record])?;
                }
                _ => self.deleted.add([key])?,
            }
            count += 1;
        }
        Ok(count)
    }

    fn finish(self) -> anyhow::Result<(Option<PathBuf>, Option<PathBuf>)> {
        Ok((self.changed.finish()?, self.deleted.finish()?))
    }
}

/// A file of rows.
struct Table {
    path: PathBuf,
    names: &'static [&'static str],
    columns: Vec<Vec<ByteArray>>,
    bytes: usize,
    file: Option<SerializedFileWriter<File>>,
}

impl Table {
    fn new(path: PathBuf, names: &'static [&'static str]) -> Self {
        Self {
            path,
            names,
            columns: vec![Vec::new(); names.len()],
            bytes: 0,
            file: None,
        }
    }

    fn add<const N: usize>(&mut self, row: [Vec<u8>; N]) -> anyhow::Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(row) {
            self.bytes += cell.len();
            column.push(cell.into());
        }
        match self.bytes >= GROUP_BYTES {
            true => self.flush().with_context(|| format!("cannot write {:?}", self.path)),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let columns: String = self
                    .names
                    .iter()
                    .map(|name| format!("required binary {name};"))
                    .collect();
                let schema = Arc::new(parse_message_type(&format!("message changes {{ {columns} }}"))?);
                // A value is looked at once.
                let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
                none.insert(SerializedFileWriter::new(
                    File::create(&self.path)?,
                    schema,
                    Arc::new(properties),
                )?)
            }
        };
        let mut group = file.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group.next_column()?.context("the schema lacks a column")?;
            if let ColumnWriter::ByteArrayColumnWriter(writer) = writer.untyped() {
                writer.write_batch(column, None, None)?;
            }
            writer.close()?;
            column.clear();
        }
        group.close()?;
        self.bytes = 0;
        Ok(())
    }

    /// The path of the file, if there are rows.
    fn finish(mut self) -> anyhow::Result<Option<PathBuf>> {
        if self.columns.iter().all(Vec::is_empty) && self.file.is_none() {
            return Ok(None);
        }
        let failed = format!("cannot write {:?}", self.path);
        if self.columns.iter().any(|column| !column.is_empty()) {
            self.flush().context(failed.clone())?;
        }
        if let Some(file) = self.file {
            file.close().context(failed)?;
        }
        Ok(Some(self.path))
    }
}
