//! `fondaco store`: manages stores.

use std::io::{self, IsTerminal, Write};

use anyhow::bail;
use clap::{Args, Subcommand};
use fondaco_api::{NewStore, PoisonList, StoreChange, StoreList, StoreResource, StreamStatus};
use fondaco_model::{StoreKind, StoreName, ValueType};
use fondaco_push::is_end;
use serde::Serialize;

use super::WrongUsage;
use super::compact::{self, CompactOptions};
use super::store_flags::StoreFlags;
use super::stream_options::{self, PartitionOptions};
use super::{versioned_options, versions};
use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco store`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Create a store
    Create(CreateOptions),
    /// List all stores
    List(ListOptions),
    /// Show a store, its versions, and its last push
    Show(NameOptions),
    /// List the records of a hybrid store's topic that are no events, as a node has read them
    Poison(PoisonOptions),
    /// Make a new version of a hybrid store of the current one and its events
    Compact(CompactOptions),
    /// Say in which partition of a topic records belong, for producers of a hybrid store whose partitioner is store
    Partition(PartitionOptions),
    /// Change a store
    Alter(AlterOptions),
    /// Drop a store with all its versions
    Drop(DropOptions),
    /// Restore a dropped store, as long as its data is kept
    Restore(RestoreOptions),
}

/// `fondaco store create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco store create pymk --backups 2
  fondaco store create features --replicas 3 --tolerate-failures 1 --read-keys-per-second 500000
  fondaco store create counts --kind hybrid --stream kafka://kafka-1:9092/views --rewind 2h
  fondaco store create carts --kind versioned --replicas 3 --reads 2 --writes 2")]
pub struct CreateOptions {
    /// The name of the store: the part of its keys before the colon
    name: StoreName,

    /// The kind: batch, filled by pushes; hybrid, filled by pushes and a stream; or versioned, written to by clients
    #[arg(long, default_value = "batch", value_parser = kind)]
    kind: StoreKind,

    #[command(flatten)]
    options: StoreFlags<true>,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco store list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco store list --json")]
pub struct ListOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco store show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco store show pymk")]
pub struct NameOptions {
    /// The store
    name: StoreName,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco store poison`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco store poison counts")]
pub struct PoisonOptions {
    /// The store
    name: StoreName,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco store alter`.
#[derive(Debug, Args)]
#[command(after_help = "\
Settings without an option stay unchanged.

Example:
  fondaco store alter pymk --backups 3
  fondaco store alter pymk --tolerate-failures any --read-keys-per-second 0
  fondaco store alter carts --durability fsync --ttl 1day
  fondaco store alter counts --paused true")]
pub struct AlterOptions {
    /// The store
    name: StoreName,

    #[command(flatten)]
    options: StoreFlags<false>,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco store drop`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nodes keep the data for a day, or as long as keep-deleted-seconds sets. Until then,
fondaco store restore brings the store back.

Example:
  fondaco store drop pymk --yes
  fondaco store drop pymk --now --yes")]
pub struct DropOptions {
    /// The store
    name: StoreName,

    /// Delete the data some seconds later, once requests under way have ended, and keep nothing; also what is kept of an
    /// earlier dropped store of this name
    #[arg(long)]
    now: bool,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco store restore`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco store restore pymk")]
pub struct RestoreOptions {
    /// The store
    name: StoreName,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco store`.
pub fn run(command: StoreCommand, output: &Output) -> anyhow::Result<()> {
    match command {
        StoreCommand::Create(options) => create(options, output),
        StoreCommand::List(options) => {
            let list: StoreList = options.node.client()?.get("/v1/stores")?;
            output.result(&list, list_text)
        }
        StoreCommand::Poison(options) => {
            let path = format!("/v1/stores/{}/stream/poison", options.name);
            let list: PoisonList = options.node.client()?.get(&path)?;
            output.result(&list, stream_options::poison_text)
        }
        StoreCommand::Compact(options) => compact::compact(options, output),
        StoreCommand::Partition(options) => {
            output.result(&options.partitions()?, |found| stream_options::partitions_text(found))
        }
        StoreCommand::Show(options) => {
            let client = options.node.client()?;
            let path = format!("/v1/stores/{}", options.name);
            let store: StoreResource = client.get(&path)?;
            if store.stream.is_none() {
                return output.result(&store, show_text);
            }
            let on_node: StreamStatus = client.get(&format!("{path}/stream"))?;
            let shown = Hybrid { store, on_node };
            output.result(&shown, |shown| {
                show_text(&shown.store) + &stream_options::progress_text(&shown.on_node)
            })
        }
        StoreCommand::Alter(options) => {
            if options.options.is_empty() {
                let usage = "nothing to change: give an option, see fondaco store alter --help";
                return Err(WrongUsage(usage.to_owned()).into());
            }
            let path = format!("/v1/stores/{}", options.name);
            let client = options.node.client()?;
            // Some options are other members of a document for another kind.
            let kind = client.get::<StoreResource>(&path)?.kind;
            let change = StoreChange {
                options: options.options.document(kind),
            };
            let store: StoreResource = client.patch(&path, &change)?;
            output.result(&store, show_text)
        }
        StoreCommand::Drop(options) => drop_store(&options, output),
        StoreCommand::Restore(options) => {
            let path = format!("/v1/stores/{}/restore", options.name);
            let nothing = serde_json::Map::new();
            let store: StoreResource = options.node.client()?.post(&path, &nothing)?;
            output.result(&store, show_text)
        }
    }
}

fn create(options: CreateOptions, output: &Output) -> anyhow::Result<()> {
    let client = options.node.client()?;
    let new = NewStore {
        name: options.name.to_string(),
        kind: options.kind,
        options: options.options.document(options.kind),
    };
    let store: StoreResource = client.post("/v1/stores", &new)?;
    output.result(&store, |store| match &store.versioned {
        None => format!(
            "created store {}\n{}next: fondaco push {} INPUT… {}\n",
            store.name,
            store.stream_problem.as_ref().map_or_else(String::new, |problem| {
                format!("its stream cannot be read yet, and a push waits until it can: {problem}\n")
            }),
            store.name,
            match store.value_type() {
                ValueType::Graph => "--edges FROM,TO",
                _ => "--key COLUMN",
            }
        ),
        Some(settings) => format!(
            "created store {}\n{}{}next: {}, with any Redis client\n",
            store.name,
            versioned_options::text(settings),
            versioned_options::away_text(settings, store.replicas),
            match store.value_type() {
                ValueType::Graph => format!("FONDACO.EDGE DECLARE {} TYPE", store.name),
                _ => format!("SET {}:KEY VALUE", store.name),
            }
        ),
    })
}

/// Parses the kind of a store.
fn kind(text: &str) -> Result<StoreKind, String> {
    let kind = StoreKind::ALL.iter().find(|kind| kind.as_str() == text);
    kind.copied()
        .ok_or_else(|| "the kind of a store is batch, hybrid or versioned".to_owned())
}

/// A hybrid store, and how far the node has read its stream.
#[derive(Serialize)]
struct Hybrid {
    #[serde(flatten)]
    store: StoreResource,
    on_node: StreamStatus,
}

fn drop_store(options: &DropOptions, output: &Output) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Dropped<'a> {
        dropped: &'a str,
    }
    let client = options.node.client()?;
    let name = &options.name;
    if !options.yes {
        if !io::stdin().is_terminal() {
            bail!("dropping store {name:?} deletes all its versions: confirm with --yes");
        }
        write!(io::stderr(), "drop store {name} with all its versions? [y/N] ")?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("nothing was dropped");
        }
    }
    client.delete(&format!("/v1/stores/{name}?now={}", options.now))?;
    let dropped = Dropped { dropped: name.as_str() };
    output.result(&dropped, |dropped| {
        let name = dropped.dropped;
        match options.now {
            true => format!("dropped store {name}\n"),
            false => format!("dropped store {name}\nto bring it back: fondaco store restore {name}\n"),
        }
    })
}

fn list_text(list: &StoreList) -> String {
    if list.stores.is_empty() {
        return "no stores yet: create one with fondaco store create NAME\n".to_owned();
    }
    let rows: Vec<Vec<String>> = list
        .stores
        .iter()
        .map(|store| {
            let current = store.versions.iter().find(|version| version.current);
            let fact = |fact: Option<u64>, text: fn(u64) -> String| fact.map_or_else(|| "-".to_owned(), text);
            vec![
                store.name.clone(),
                store.kind.as_str().to_owned(),
                fact(store.current_version, |version| version.to_string()),
                fact(current.and_then(|version| version.records), output::count),
                fact(size(store), output::bytes),
                fact(store.options.space_quota_bytes.flatten(), output::bytes),
                store.versions.len().to_string(),
                store.options.backups.unwrap_or_default().to_string(),
                store.replicas.to_string(),
            ]
        })
        .collect();
    table(
        &[
            "NAME", "KIND", "CURRENT", "RECORDS", "SIZE", "QUOTA", "VERSIONS", "BACKUPS", "REPLICAS",
        ],
        &rows,
        &[false, false, true, true, true, true, true, true, true],
    )
}

/// The bytes of the current version, or of the records of a versioned store.
fn size(store: &StoreResource) -> Option<u64> {
    let current = store.versions.iter().find(|version| version.current);
    match store.kind {
        StoreKind::Batch | StoreKind::Hybrid => current?.bytes,
        StoreKind::Versioned => store.space_used_bytes,
    }
}

fn show_text(store: &StoreResource) -> String {
    let options = &store.options;
    let mut text = format!(
        "store {}: {}, created {}, {} replica(s){}\n",
        store.name,
        store.kind.as_str(),
        output::timestamp(store.created_unix_ms),
        store.replicas,
        if options.everywhere == Some(true) {
            ", on every node"
        } else {
            ""
        }
    );
    if let Some(next) = store.replicas_next {
        text.push_str(&format!(
            "a plan gives it {next} replica(s): fondaco rebalance status\n"
        ));
    }
    if !store.value_type().is_bytes() {
        text.push_str(&format!("values are of type {}\n", store.value_type()));
    }
    if let Some(limit) = options.read_keys_per_second.flatten() {
        text.push_str(&format!(
            "routers read at most {} keys a second of it\n",
            output::count(limit)
        ));
    }
    if let Some(quota) = options.space_quota_bytes.flatten() {
        let used = store
            .space_used_bytes
            .map_or_else(|| "an unknown part".to_owned(), output::bytes);
        text.push_str(&format!(
            "one copy has {used} of a space quota of {}",
            output::bytes(quota)
        ));
        text.push_str(match store.over_space_quota {
            true => ": it takes only deletions until it is smaller, or the quota is raised\n",
            false => "\n",
        });
    }
    if let Some(gates) = options.gates.clone().flatten() {
        text.push_str(&format!("versions go live if they pass its gates: {gates}\n"));
    }
    if let Some(fan_out) = options.fan_out.flatten() {
        text.push_str(&format!("requests of several keys ask nodes by fan-out {fan_out}\n"));
    }
    if let Some(settings) = &store.versioned {
        text.push_str(&versioned_options::text(settings));
        return text;
    }
    if let Some(stream) = &store.stream {
        text.push_str(&stream_options::text(stream));
    }
    text.push_str(&format!("keeps {} backup(s)\n", options.backups.unwrap_or_default()));
    text.push_str(&match options.tolerate_failures.flatten() {
        None => "a swap needs one ready node for every partition\n".to_owned(),
        Some(0) => "a swap needs all nodes to be ready\n".to_owned(),
        Some(tolerated) => format!("a swap tolerates {tolerated} late node(s)\n"),
    });
    text.push_str(&versions::text(&store.name, &store.versions));
    for node in &store.late {
        text.push_str(&format!(
            "node {node} is late: it serves this store again when it has caught up\n"
        ));
    }
    if let Some(push) = store.push.as_ref().filter(|push| !is_end(push.state)) {
        text.push_str(&versions::push_text(push));
    } else if let Some(push) = &store.push {
        text.push_str(&format!(
            "last push: version {}, {}, from {}{}\n",
            push.version,
            format!("{:?}", push.state).to_lowercase(),
            push.source,
            push.error
                .as_ref()
                .map_or_else(String::new, |error| format!(": {error}"))
        ));
    }
    text
}
