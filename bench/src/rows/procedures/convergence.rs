//! How replicas converge after a node has missed writes: by hinted handoff, or, without hints, by comparing hash trees
//! (anti-entropy). Measures the time from the start of the node's process, and the bytes transferred in relation to the
//! bytes that the node missed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fondaco_model::NodeId;

use super::super::runner::Running;
use super::super::spec::Step;
use crate::dataset::{Dataset, KEY_BYTES, Scattered};
use crate::load;
use crate::machine::disk;
use crate::report::markdown::number;
use crate::servers::control::ControlPort;
use crate::servers::fondaco::Member;
use crate::servers::replicas::Replicas;
use crate::servers::{Wait, wait_until};

const STORE: &str = "records";
const REPLICAS: u64 = 2;
/// The share of all keys that the node misses.
const MISSED: f64 = 0.01;
/// The disk space per byte of each replica: for records, the log, and compactions.
const ROOM: f64 = 1.5;
/// The time limit for loading; a slower load is cut short.
const FILL_TIME: Duration = Duration::from_secs(300);
/// The number of parts of a load.
const PARTS: u64 = 4;
/// Rounds have different records.
const ROUNDS: u64 = 3;
/// Polling itself uses CPU time.
const CONVERGED: Wait = Wait {
    limit: Duration::from_secs(240),
    poll: Duration::from_millis(100),
};
/// The share, and the least number, of missed records that are sampled for their length and their arrival.
const SAMPLED: f64 = 0.01;
const SAMPLES_MIN: usize = 100;

/// The replicas of the store, with their records.
pub struct Filled {
    replicas: Replicas,
    dataset: Dataset,
}

/// Loads as many records as space and time allow, and waits until all replicas are equal.
pub fn fill(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let wanted = running.dataset;
    let mut replicas = Replicas::of(running.fondaco()?.nodes()[0].resp(), STORE)?;
    let record_bytes = (wanted.value_bytes + KEY_BYTES) as u64;
    let room = disk::available_bytes(&running.bench.work)? as f64 / ((record_bytes * REPLICAS) as f64 * ROOM);
    let records = wanted.records.min(room as u64);
    let began = Instant::now();
    let mut filled = 0;
    for part in 1..=PARTS {
        let end = records * part / PARTS;
        replicas.fill(filled..end, wanted.value_bytes)?;
        filled = end;
        let took = began.elapsed();
        if took + took / part as u32 > FILL_TIME {
            break;
        }
    }
    let dataset = Dataset {
        records: filled,
        ..wanted
    };
    let took = began.elapsed();
    replicas.wait_until_equal(filled, CONVERGED)?;
    // Pending disk writes must not count for the measurement.
    rustix::fs::sync();
    if dataset != wanted {
        let wanted = number(wanted.records as f64);
        let note = format!(
            "Fewer than the intended {wanted} records: the disk has no room for more, or they take longer to load than the row may take."
        );
        running.notes.push(note);
    }
    running.figures.set("filled_records", number(filled as f64));
    running.figures.set("filled_s", number(took.as_secs_f64()));
    running.kept.convergence = Some(Filled { replicas, dataset });
    Ok(())
}

/// Kills a node, makes it miss writes, starts it again, and waits until it has them: by hinted handoff, or, with the argument
/// `none`, by anti-entropy.
pub fn heal(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let handoff = step.arguments.first().context("no way of handoff")?;
    let by_hints = handoff != "none";
    let Filled { mut replicas, dataset } = running.kept.convergence.take().context("nothing is filled")?;
    let round = running.round;
    let cluster = running.fondaco_mut()?;
    cluster.control().alter(STORE, &["--handoff", handoff])?;
    // Nodes with lower numbers start the comparison with it, so only this node is asked whether it has hash trees.
    let (victim_id, address) = replicas.last_node()?;
    let victim = cluster.nodes().iter().position(|node| node.resp() == address);
    let victim = victim.context("a node that is not of this cluster")?;
    let others = cluster.nodes().iter().filter(|node| node.resp() != address);
    let coordinator = others.clone().map(Member::resp).next().context("no other node")?;
    let others: Vec<ControlPort> = others.map(|node| node.control().clone()).collect();
    let missed = missed(&replicas, victim_id, dataset, round);
    let stored_before = sum(&others, &["hints_stored"])?;
    let delivered_before = sum(&others, &["hints_delivered"])?;

    cluster.node(victim).kill()?;
    wait_until("the others know that a node is gone", || {
        let live = others.iter().map(|node| node.gauge("nodes_live"));
        Ok(live
            .collect::<Result<Vec<_>>>()?
            .iter()
            .all(|&live| live == others.len() as u64))
    })?;
    load::write_records(
        coordinator,
        &format!("{STORE}:"),
        dataset.value_bytes,
        missed.iter().copied(),
    )?;
    let hints = if by_hints { missed.len() as u64 } else { 0 };
    wait_until("all hints are kept", || {
        Ok(sum(&others, &["hints_stored"])? >= stored_before + hints)
    })?;
    let samples: Vec<u64> = missed
        .iter()
        .step_by((missed.len() / samples(dataset)).max(1))
        .copied()
        .collect();
    let mut sampled_bytes = 0;
    for &id in &samples {
        sampled_bytes += replicas.stored_bytes(victim_id, id)?;
    }
    let differing_bytes = sampled_bytes as f64 / samples.len() as f64 * missed.len() as f64;

    let traffic = ["bytes_in", "bytes_out"];
    let before = sum(&others, &traffic)?;
    let began = Instant::now();
    cluster.node(victim).start_again()?;
    let ready = began.elapsed();
    let (converged, trees) = if by_hints {
        CONVERGED.until("all hints are delivered", || {
            Ok(sum(&others, &["hints_delivered"])? >= delivered_before + hints)
        })?;
        let converged = began.elapsed();
        replicas.wait_for_trees(victim_id, CONVERGED)?;
        (converged, began.elapsed())
    } else {
        replicas.wait_for_trees(victim_id, CONVERGED)?;
        let trees = began.elapsed();
        replicas.wait_until_seen(victim_id, &samples, CONVERGED)?;
        (began.elapsed(), trees)
    };
    replicas.wait_until_equal(dataset.records, CONVERGED)?;
    // Its process is a new one, whose counters start at 0.
    let own = sum(std::slice::from_ref(cluster.nodes()[victim].control()), &traffic)?;
    let traffic_bytes = sum(&others, &traffic)? - before + own;
    // When the node was ready, had its hash trees, and had received all missed writes.
    let name = &step.name;
    let values = [
        ("ready", "s", ready.as_secs_f64()),
        ("trees", "s", trees.as_secs_f64()),
        ("converged", "s", converged.as_secs_f64()),
        ("traffic", "MB", traffic_bytes as f64 / 1e6),
        ("missed", "MB", differing_bytes / 1e6),
    ];
    running.record(name, values);
    running.kept.convergence = Some(Filled { replicas, dataset });
    Ok(())
}

/// The number of sampled records.
fn samples(dataset: Dataset) -> usize {
    let samples = dataset.records as f64 * MISSED * SAMPLED;
    (samples as usize).max(SAMPLES_MIN)
}

/// The records of a node that it will miss; different ones in each round.
fn missed(replicas: &Replicas, node: NodeId, dataset: Dataset, round: u64) -> Vec<u64> {
    let Dataset { records, .. } = dataset;
    let scattered = Scattered::new(records);
    let from = round * (records / ROUNDS);
    let all = (0..records).map(|number| scattered.place((from + number) % records));
    all.filter(|&id| replicas.holds(node, id))
        .take((records as f64 * MISSED) as usize)
        .collect()
}

/// The sum of counters over some nodes.
fn sum(nodes: &[ControlPort], counters: &[&str]) -> Result<u64> {
    nodes
        .iter()
        .flat_map(|node| counters.iter().map(|counter| node.counter(counter)))
        .sum()
}
