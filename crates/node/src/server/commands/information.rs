//! `INFO` and `DBSIZE`: what the node holds and does.

use std::fmt::Write;

use fondaco_model::StoreKind;
use fondaco_resp::Reply;
use fondaco_resp::command::all;

use super::connection::REDIS_VERSION;
use super::{Call, keyword};
use crate::catalog::{Catalog, Serving, ServingStore};
use crate::membership::{Member, Membership};
use crate::metrics::{COUNTERS, Counter};
use crate::server::Shared;

const SECTIONS: [&str; 7] = [
    "SERVER",
    "CLIENTS",
    "MEMORY",
    "STATS",
    "COMMANDSTATS",
    "CLUSTER",
    "KEYSPACE",
];

pub(super) fn dbsize(call: &Call<'_>, reply: &mut Reply<'_>) {
    let shared = &call.context.shared;
    let catalog = shared.catalog.load();
    let readable = catalog.stores().iter();
    let readable = readable.filter(|store| call.session.may_read(&store.name));
    let records: u64 = match catalog.membership() {
        // A client that knows of slots asks every node, and adds up.
        Some(membership) if call.session.follows_slots && !membership.is_router() => readable
            .map(|store| match store.kind {
                StoreKind::Batch => records_led(store, membership),
                StoreKind::Versioned => keys_written(shared, store, membership.led()),
            })
            .sum(),
        _ => readable.map(|store| records(shared, &catalog, store)).sum(),
    };
    reply.integer(records as i64);
}

/// How many keys a store has, here and elsewhere.
fn records(shared: &Shared, catalog: &Catalog, store: &ServingStore) -> u64 {
    match (store.kind, catalog.membership()) {
        (StoreKind::Versioned, Some(membership)) => {
            keys_written(shared, store, membership.topology().partitions.get() as usize)
        }
        _ => catalog.records(store),
    }
}

/// About how many keys a versioned store has in so many partitions, if all have as many as those that are held
/// here. Deleted ones count until they are forgotten. A router holds none, and knows of none.
fn keys_written(shared: &Shared, store: &ServingStore, partitions: usize) -> u64 {
    let status = shared
        .config
        .replicas
        .as_ref()
        .and_then(|replicas| replicas.status(store.id.get()));
    let (keys, held) = status.map_or((0, 0), |status| (status.keys, status.held.len()));
    match held {
        0 => 0,
        held => (u128::from(keys) * partitions as u128 / held as u128) as u64,
    }
}

/// The records of a store in those partitions that clients ask this node for.
fn records_led(store: &ServingStore, membership: &Membership) -> u64 {
    let chunks = store.version().map_or(&[][..], |version| &version.manifest().chunks);
    let led = chunks.iter().filter(|chunk| membership.leads(chunk.partition));
    led.map(|chunk| chunk.records).sum()
}

pub(super) fn info(call: &Call<'_>, reply: &mut Reply<'_>) {
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
        }
    }
    reply.verbatim(&text);
}

fn write_section(call: &Call<'_>, section: &str, text: &mut String) {
    let shared = &call.context.shared;
    text.push_str("# ");
    text.push_str(&section[..1]);
    text.push_str(&section[1..].to_ascii_lowercase());
    text.push_str("\r\n");
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a string does not fail.
        let _ = write!(text, "{name}:{value}\r\n");
    };
    match section {
        "SERVER" => {
            line("redis_version", &REDIS_VERSION);
            line("fondaco_version", &shared.config.program_version);
            line("redis_mode", &mode(&shared.catalog.load()));
            line("os", &std::env::consts::OS);
            line("arch_bits", &usize::BITS);
            line("process_id", &std::process::id());
            line("tcp_port", &shared.address.port());
            line("uptime_in_seconds", &shared.started.elapsed().as_secs());
            let since_epoch = shared
                .started_at
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap_or_default();
            line("started_unix_seconds", &since_epoch.as_secs());
        }
        "CLIENTS" => {
            line("connected_clients", &shared.metrics.clients());
        }
        "MEMORY" => {
            let memory = resident_bytes();
            line("used_memory", &memory);
            line("used_memory_rss", &memory);
            let indexes = shared
                .catalog
                .load()
                .stores()
                .iter()
                .filter_map(|store| store.version().cloned())
                .collect::<Vec<_>>();
            line(
                "index_bytes",
                &indexes.iter().map(|version| version.index_bytes()).sum::<u64>(),
            );
        }
        "STATS" => {
            line("total_commands_processed", &shared.metrics.latency_of_all().count());
            let hot = shared.metrics.counter(Counter::HotLookups) + shared.metrics.counter(Counter::ColdLookups);
            let misses = shared.metrics.counter(Counter::AbsentLookups);
            line("keyspace_hits", &hot.saturating_sub(misses));
            line("keyspace_misses", &misses);
            line("cold_reads_under_way", &shared.metrics.cold_reads());
            line("forwards_under_way", &shared.metrics.forwards());
            line("cache_bytes", &shared.metrics.cache_bytes());
            for (counter, name, _) in COUNTERS {
                line(name, &shared.metrics.counter(counter));
            }
        }
        "COMMANDSTATS" => {
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
        "CLUSTER" => {
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
                line("routers", &topology.routers);
            }
        }
        _ => {
            let catalog = shared.catalog.load();
            let stores = catalog
                .stores()
                .iter()
                .filter(|store| call.session.may_read(&store.name));
            let mut keys = 0;
            for store in stores {
                keys += records(shared, &catalog, store);
                line(&format!("store_{}", store.name), &store_line(shared, store, &catalog));
            }
            line("db0", &format!("keys={keys},expires=0,avg_ttl=0"));
        }
    }
}

fn store_line(shared: &Shared, store: &ServingStore, catalog: &Catalog) -> String {
    let keys = records(shared, catalog, store);
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

/// What kind of server clients see.
pub(super) fn mode(catalog: &Catalog) -> &'static str {
    let is_one_of_many = |membership: &Membership| !membership.is_router() && membership.topology().nodes.len() > 1;
    match catalog.membership() {
        Some(membership) if is_one_of_many(membership) => "cluster",
        _ => "standalone",
    }
}

/// How much memory of the process is resident, mapped files included; 0 where that cannot be told.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
