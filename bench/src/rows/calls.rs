//! The functions that the steps of rows call by name.

use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};

use super::fan_out;
use super::procedures::{
    after_swap, balance, beside, bulk, cluster_push, convergence, in_process, loading, many_swaps, move_partition,
    node_death, router_cache, scale, setup, streams, swap, versioned,
};
use super::runner::Running;
use super::spec::Step;

/// Something that goes on beside a load, in some threads, until it is told to stop; it returns what it has counted.
pub struct Beside {
    pub count: u64,
    pub run: Box<BesideThread>,
}

type BesideThread = dyn Fn(u64, &AtomicBool) -> Result<u64> + Sync;

/// Calls a function; most are documented where they are.
pub fn call(running: &mut Running<'_>, name: &str, step: &Step) -> Result<()> {
    let function: fn(&mut Running<'_>, &Step) -> Result<()> = match name {
        // Anything that is set up or changed.
        "command" => setup::command,
        "forget" => setup::forget,
        "prepare-push" => setup::prepare_push,
        "push" => setup::push,
        "settle" => setup::settle,
        "deploy-again" => setup::deploy_again,
        "push-graph" => setup::push_graph,
        "fio" => setup::fio,
        "texts" => setup::texts,
        // Engines in processes of their own.
        "open-engines" => in_process::open,
        "warm-engines" => in_process::warm,
        "hot-gets" => in_process::hot_gets,
        "cold-gets" => in_process::cold_gets,
        "close-engines" => in_process::close,
        "try-engines" => in_process::try_engines,
        "load-all" => loading::load_all,
        "best-engine" => loading::best_engine,
        // Versioned stores.
        "sync-always" => versioned::sync_always,
        "rewrite-log" => versioned::rewrite_log,
        "with-rewriting" => versioned::with_rewriting,
        "sum-of-costs" => versioned::sum_of_costs,
        "fill-and-compare" => convergence::fill,
        "heal" => convergence::heal,
        // Clusters.
        "swaps" => swap::over_the_control_port,
        "after-swap" => after_swap::measure,
        "many-swaps" => many_swaps::measure,
        "swaps-for-readers" => swap::for_readers,
        "move-partition" => move_partition::measure,
        "balance" => balance::measure_two,
        "balance-joins" => balance::measure_join,
        "cache-hits" => router_cache::hits,
        "stickiness" => router_cache::stickiness,
        "push-to-nodes" => cluster_push::measure,
        "node-death" => node_death::measure,
        // Many keys or stores.
        "build-and-deploy" => scale::build_and_deploy,
        "add-batch-stores" => scale::add_batch_stores,
        // Streams of events.
        "consume" => streams::applied::measure,
        "look-for-events" => streams::fresh::measure,
        "send-events" => streams::send_events,
        "drop-events" => streams::drop_events,
        "apply-events" => streams::apply_events,
        "overlay-size" => streams::overlay_size,
        "add-stores" => streams::many::add_stores,
        "read-streams" => streams::many::measure,
        "through-kafka" => bulk::measure,
        "send-bulk" => bulk::send,
        // A simulated cluster.
        "simulate-latency" => fan_out::latency_chart,
        "simulate" => fan_out::simulate_queries,
        "vary" => fan_out::vary,
        "plan" => fan_out::plan,
        "plan-time" => fan_out::plan_time,
        "plan-at-node-rate" => fan_out::plan_at_node_rate,
        _ => bail!("no function is called {name:?}"),
    };
    function(running, step)
}

/// The work beside a load.
pub fn beside(running: &Running<'_>, name: &str) -> Result<Beside> {
    match name {
        "graph-questions" => beside::graph_questions(running),
        "long-values" => beside::long_values(running),
        "scans" => beside::scans(running),
        "three-hops" => beside::three_hops(running),
        "backups" => beside::backups(running),
        _ => bail!("nothing is called {name:?}"),
    }
}
