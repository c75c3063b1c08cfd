//! `INFO` and `DBSIZE`: what the node holds and does.

use std::fmt::{Display, Write};
use std::sync::Arc;

use fondaco_catalog::{Catalog, Member, Membership, Serving, ServingStore};
use fondaco_metrics::{COUNTERS, Counter};
use fondaco_model::StoreKind;
use fondaco_os::process;
use fondaco_replica::ReplicaStatus;
use fondaco_resp::Reply;
use fondaco_resp::command::all;

use super::connection::REDIS_VERSION;
use super::{Call, Refusal, keyword};
use crate::server::ServerState;

const SECTIONS: [&str; 8] = [
    "SERVER",
    "CLIENTS",
    "MEMORY",
    "STATS",
    "REPLICATION",
    "COMMANDSTATS",
    "CLUSTER",
    "KEYSPACE",
];

pub(super) async fn dbsize(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let shared = &call.context.shared;
    let catalog = Arc::clone(&shared.catalog.load());
    let mut records = 0;
    for store in readable(call, &catalog) {
        records += match catalog.membership() {
            // A client that knows of slots asks every node, and adds up.
            Some(membership) if call.session.follows_slots && !membership.is_router() => {
                keys_led(shared, store, membership)
            }
            _ => keys_of(call, &catalog, store).await?,
        };
    }
    reply.integer(records as i64);
    Ok(())
}

/// `FONDACO.SIZE store`: how many keys this node has of it, in those partitions that it is the first owner of.
pub(super) fn size(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let shared = &call.context.shared;
    let catalog = shared.catalog.load();
    let place = call.session.readable_store(&catalog, call.arguments[1])?;
    let store = &catalog.stores()[place as usize];
    let keys = catalog
        .membership()
        .map(|membership| keys_led(shared, store, membership));
    reply.integer(keys.unwrap_or_else(|| catalog.records(store)) as i64);
    Ok(())
}

fn readable<'a>(call: &Call<'_>, catalog: &'a Catalog) -> Vec<&'a Arc<ServingStore>> {
    let stores = catalog.stores().iter();
    stores.filter(|store| call.session.may_read(&store.name)).collect()
}

/// How many keys a store has in those partitions that clients ask this node for.
fn keys_led(shared: &ServerState, store: &ServingStore, membership: &Membership) -> u64 {
    match store.kind {
        StoreKind::Batch | StoreKind::Hybrid => records_led(store, membership),
        StoreKind::Versioned => keys_written(shared, store, membership.led()).unwrap_or(0),
    }
}

/// How many keys a store has, here and on other nodes. Where nothing of a versioned store is here, as on routers, the nodes
/// are asked.
async fn keys_of(call: &Call<'_>, catalog: &Catalog, store: &ServingStore) -> Result<u64, Refusal> {
    let Some(membership) = catalog.membership().filter(|_| store.kind == StoreKind::Versioned) else {
        return Ok(catalog.records(store));
    };
    let partitions = membership.topology().partitions.get() as usize;
    match keys_written(&call.context.shared, store, partitions) {
        Some(keys) => Ok(keys),
        None => call.context.forwarder.count(membership, &store.name).await,
    }
}

/// About how many keys a versioned store has in this many partitions, if all have as many as those that are held
/// here; `None` if none is. Deleted ones count until they are forgotten.
fn keys_written(shared: &ServerState, store: &ServingStore, partitions: usize) -> Option<u64> {
    scaled(shared, store, partitions, |status| (status.keys, status.counted))
}

/// About how many keys of a versioned store expire, as far as sweeps have found; 0 where nothing of it is held.
fn keys_expiring(shared: &ServerState, store: &ServingStore, catalog: &Catalog) -> u64 {
    let partitions = catalog
        .membership()
        .map_or(0, |membership| membership.topology().partitions.get());
    scaled(shared, store, partitions as usize, |status| {
        (status.expiring, status.held.len())
    })
    .unwrap_or(0)
}

/// A number of some partitions, and how many these are, for this many partitions; `None` without any.
fn scaled(
    shared: &ServerState,
    store: &ServingStore,
    partitions: usize,
    number: impl FnOnce(&ReplicaStatus) -> (u64, usize),
) -> Option<u64> {
    let replicas = shared.config.replicas.as_ref()?;
    let status = replicas.status(store.id.get())?;
    let (number, of) = number(&status);
    let here = u128::from(number) * partitions as u128;
    Some(here.checked_div(of as u128)? as u64)
}

/// The records of a store in those partitions that clients ask this node for.
fn records_led(store: &ServingStore, membership: &Membership) -> u64 {
    let chunks = store.version().map_or(&[][..], |version| &version.manifest().chunks);
    let led = chunks.iter().filter(|chunk| membership.leads(chunk.partition));
    led.map(|chunk| chunk.records).sum()
}

pub(super) async fn info(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let asked: Vec<String> = call.arguments[1..].iter().map(|section| keyword(section)).collect();
    let everything = asked.iter().any(|section| section == "ALL" || section == "EVERYTHING");
    let default = asked.is_empty() || asked.iter().any(|section| section == "DEFAULT");
    let mut text = String::new();
    for section in SECTIONS {
        let wanted = everything || asked.iter().any(|s| s == section) || (default && section != "COMMANDSTATS");
        if wanted {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            write_section(call, section, &mut text);
            if section == "KEYSPACE" {
                write_keyspace(call, &mut text).await?;
            }
        }
    }
    reply.verbatim(&text);
    Ok(())
}

fn write_section(call: &Call<'_>, section: &str, text: &mut String) {
    let shared = &call.context.shared;
    text.push_str("# ");
    text.push_str(&section[..1]);
    text.push_str(&section[1..].to_ascii_lowercase());
    text.push_str("\r\n");
    let mut line = |name: &str, value: &dyn Display| {
        // Writing to a string does not fail.
        let _ = write!(text, "{name}:{value}\r\n");
    };
    match section {
        "SERVER" => write_server(shared, &mut line),
        "CLIENTS" => line("connected_clients", &shared.metrics.clients()),
        "MEMORY" => write_memory(shared, &mut line),
        "STATS" => write_stats(shared, &mut line),
        "COMMANDSTATS" => write_command_stats(shared, &mut line),
        "CLUSTER" => write_cluster(shared, &mut line),
        "REPLICATION" => write_replication(shared, &mut line),
        _ => {}
    }
}

/// Writes one line of `INFO`: a name and a value.
type Line<'a> = &'a mut dyn FnMut(&str, &dyn Display);

fn write_server(shared: &ServerState, line: Line<'_>) {
    line("redis_version", &REDIS_VERSION);
    line("fondaco_version", &shared.config.program_version);
    line("redis_mode", &mode(&shared.catalog.load()));
    line("os", &std::env::consts::OS);
    line("arch_bits", &usize::BITS);
    line("process_id", &std::process::id());
    line("tcp_port", &shared.address.port());
    if let Some(http) = &shared.config.http {
        line("http_address", http);
    }
    line("uptime_in_seconds", &shared.started.elapsed().as_secs());
    let since_epoch = shared
        .started_at
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    line("started_unix_seconds", &since_epoch.as_secs());
}

fn write_memory(shared: &ServerState, line: Line<'_>) {
    let memory = process::resident_bytes().unwrap_or(0);
    line("used_memory", &memory);
    line("used_memory_rss", &memory);
    let catalog = shared.catalog.load();
    let versions = catalog.stores().iter().filter_map(|store| store.version());
    line(
        "index_bytes",
        &versions.map(|version| version.index_bytes()).sum::<u64>(),
    );
    let replicas = shared.config.replicas.as_ref();
    if let Some(memory) = replicas.and_then(|replicas| replicas.key_memory()) {
        line("log_keys", &memory.keys);
        line("log_key_bytes", &memory.bytes);
        line("log_key_bytes_max", &memory.bytes_max);
    }
}

fn write_stats(shared: &ServerState, line: Line<'_>) {
    let metrics = &shared.metrics;
    line("total_commands_processed", &metrics.latency_of_all().count());
    let look_ups = metrics.counter(Counter::HotLookups) + metrics.counter(Counter::ColdLookups);
    let misses = metrics.counter(Counter::AbsentLookups);
    line("keyspace_hits", &look_ups.saturating_sub(misses));
    line("keyspace_misses", &misses);
    line("cold_reads_under_way", &metrics.cold_reads());
    line("forwards_under_way", &metrics.forwards());
    line("cache_bytes", &metrics.cache_bytes());
    for (counter, name, _) in COUNTERS {
        line(name, &metrics.counter(counter));
    }
}

fn write_command_stats(shared: &ServerState, line: Line<'_>) {
    for spec in all().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands)) {
        let latency = shared.metrics.latency(spec.id);
        let calls = latency.count();
        if calls > 0 {
            let us = latency.sum().as_micros();
            let statistics = format!(
                "calls={calls},usec={us},usec_per_call={:.2},failed_calls={}",
                us as f64 / calls as f64,
                shared.metrics.errors(spec.id)
            );
            line(&format!("cmdstat_{}", spec.name), &statistics);
        }
    }
}

fn write_cluster(shared: &ServerState, line: Line<'_>) {
    // The commands of Redis Cluster are answered everywhere.
    line("cluster_enabled", &1);
    if let Some(membership) = shared.catalog.load().membership() {
        let topology = membership.topology();
        match membership.member() {
            Member::Node(id) => line("node", id),
            Member::Router(identity) => line("router", identity),
        }
        line("routing_epoch", &topology.epoch);
        line("nodes", &topology.nodes.len());
        line("nodes_live", &topology.nodes.values().filter(|node| node.live).count());
        line("routers", &topology.routers.len());
    }
}

fn write_replication(shared: &ServerState, line: Line<'_>) {
    // Each process takes writes, and none follows another: see docs/commands.md.
    line("role", &"master");
    line("connected_slaves", &0);
    line("master_failover_state", &"no-failover");
    let catalog = shared.catalog.load();
    let own = catalog
        .membership()
        .map(|membership| membership.topology().cluster.to_string());
    line("master_replid", &format!("{:0<40}", own.unwrap_or_default()));
    line("master_repl_offset", &0);
}

async fn write_keyspace(call: &Call<'_>, text: &mut String) -> Result<(), Refusal> {
    let shared = &call.context.shared;
    let catalog = Arc::clone(&shared.catalog.load());
    let (mut keys, mut expires) = (0, 0);
    for store in readable(call, &catalog) {
        let own = keys_of(call, &catalog, store).await?;
        keys += own;
        expires += keys_expiring(shared, store, &catalog);
        // Writing to a string does not fail.
        let _ = write!(text, "store_{}:{}\r\n", store.name, store_line(store, own, &catalog));
    }
    let _ = write!(text, "db0:keys={keys},expires={expires},avg_ttl=0\r\n");
    Ok(())
}

fn store_line(store: &ServingStore, keys: u64, catalog: &Catalog) -> String {
    if store.kind == StoreKind::Versioned {
        return format!("kind=versioned,keys={keys}");
    }
    match &store.serving {
        Serving::Version(number, version) => format!(
            "version={number},keys={keys},bytes={}",
            version.manifest().files_bytes()
        ),
        Serving::Nothing => match catalog
            .membership()
            .and_then(|m| m.topology().stores.get(&store.name)?.current)
        {
            Some(number) => format!("version={number},keys={keys},elsewhere=1"),
            None => "version=none".into(),
        },
        Serving::Failed(number, _) => format!("version={number},failed=1"),
    }
}

/// The kind of server that clients see.
pub(super) fn mode(catalog: &Catalog) -> &'static str {
    let is_one_of_many = |membership: &Membership| !membership.is_router() && membership.topology().nodes.len() > 1;
    match catalog.membership() {
        Some(membership) if is_one_of_many(membership) => "cluster",
        _ => "standalone",
    }
}
