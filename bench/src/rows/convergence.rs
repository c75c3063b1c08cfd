//! How replicas converge after a node has missed writes: by hinted handoff, or, without hints, by comparing hash trees
//! (anti-entropy). Measures the time from the start of the node's process, and the bytes transferred in relation to the
//! bytes that the node missed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fondaco_model::NodeId;

use super::Measured;
use crate::bench::Bench;
use crate::dataset::{Dataset, KEY_BYTES, Scattered};
use crate::load;
use crate::machine::disk;
use crate::report::markdown::number;
use crate::report::{Line, Rounds};
use crate::servers::cluster::{Cluster, Server, Wait, wait_until};
use crate::servers::control::ControlPort;
use crate::servers::replicas::Replicas;

const STORE: &str = "records";
const REPLICAS: u64 = 2;
/// The name of the bytes that a node missed.
const MISSED_NAME: &str = "what it missed";
/// The share of all keys that the node misses.
const MISSED: f64 = 0.01;
/// The limit of bytes transferred per byte that differs.
const BYTES_MAX: f64 = 1.5;
/// The disk space per byte of each replica: for records, the log, and compactions.
const ROOM: f64 = 1.5;
/// The time limit for loading; a slower load is cut short.
const FILL_TIME: Duration = Duration::from_secs(300);
/// The number of parts of a load.
const PARTS: u64 = 4;
const ROUNDS: u64 = 3;
/// A further round starts only if it would end by this time, given the duration of the last one.
const ROUNDS_UNTIL: Duration = Duration::from_secs(540);
/// Polling itself uses CPU time.
const CONVERGED: Wait = Wait {
    limit: Duration::from_secs(240),
    poll: Duration::from_millis(100),
};
/// The share, and the least number, of missed records that are sampled for their length and their arrival.
const SAMPLED: f64 = 0.01;
const SAMPLES_MIN: usize = 100;

/// How a node gets the writes that it missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Hints,
    Comparing,
}

impl Way {
    const ALL: [Self; 2] = [Self::Hints, Self::Comparing];

    /// The store's handoff setting.
    fn handoff(self) -> &'static str {
        match self {
            Self::Hints => "consistent",
            Self::Comparing => "none",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Hints => "hinted handoff",
            Self::Comparing => "comparing hash trees",
        }
    }
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let began = Instant::now();
    let wanted = bench.dataset([100_000, 10_000_000], 1024);
    let mut cluster = Cluster::start(bench, "convergence", REPLICAS as u32)?;
    let options = ["--replicas", "2", "--reads", "1", "--writes", "1"];
    cluster.control().create_versioned(STORE, &options)?;
    let seed = cluster.nodes().first().context("a cluster without nodes")?.resp();
    let mut replicas = Replicas::of(seed, STORE)?;
    let (dataset, filled) = fill(bench, &mut replicas, wanted)?;
    replicas.wait_until_equal(dataset.records, CONVERGED)?;
    // Pending disk writes must not count for the measurement.
    rustix::fs::sync();
    let mut healed = Way::ALL.map(|_| Rounds::default());
    for round in 0..bench.rounds().min(ROUNDS) {
        let round_began = Instant::now();
        for (way, rounds) in Way::ALL.into_iter().zip(&mut healed) {
            heal(&mut cluster, &mut replicas, dataset, way, round, rounds)?;
        }
        if began.elapsed() + round_began.elapsed() > ROUNDS_UNTIL {
            break;
        }
    }
    cluster.end()?;
    let mut notes = vec![
        format!(
            "Three nodes; {} records of 1 KiB, each on two of them, R 1, W 1. A node is killed (SIGKILL); when the other nodes have noticed, as many of its records as 1 % of all are overwritten, and it is started again. Time counts from that start.",
            number(dataset.records as f64)
        ),
        "Bytes are all that the RESP ports of the three nodes received and sent from that start until all replicas were equal according to their hash trees: requests and replies between nodes, with keys, hashes and framing. They are compared with the size of the keys and records that the node had missed.".into(),
        "Hinted handoff ends when all hints are delivered; it need not wait for hash trees. Comparing ends when the node has all records of a sample, one in a hundred of those that it missed. Equality of all replicas is checked afterwards, since requests for hash trees delay comparisons. The comparison of a partition starts when its tree is built, by reading all its records, at 256 MiB/s at most. Hints and exchanges are limited to 32 MiB/s. These are the defaults.".into(),
        format!("Filled in {} s, over the protocol between replicas.", number(filled.as_secs_f64())),
    ];
    if dataset != wanted {
        notes.push(format!(
            "Fewer than the intended {} records: the disk has no room for more, or they take longer to load than the row may take.",
            number(wanted.records as f64)
        ));
    }
    let ways = Way::ALL.into_iter().zip(&healed);
    Ok(Measured {
        lines: ways.flat_map(|(way, rounds)| lines(way, rounds)).collect(),
        notes,
        ..Measured::default()
    })
}

/// Loads as many records as space and time allow; returns their number, and how long it took.
fn fill(bench: &Bench, replicas: &mut Replicas, wanted: Dataset) -> Result<(Dataset, Duration)> {
    let record_bytes = (wanted.value_bytes + KEY_BYTES) as u64;
    let room = disk::available_bytes(&bench.work)? as f64 / ((record_bytes * REPLICAS) as f64 * ROOM);
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
    Ok((dataset, began.elapsed()))
}

/// Kills a node, makes it miss writes, starts it again, and waits until it has them.
fn heal(
    cluster: &mut Cluster,
    replicas: &mut Replicas,
    dataset: Dataset,
    way: Way,
    round: u64,
    rounds: &mut Rounds,
) -> Result<()> {
    cluster.control().alter(STORE, &["--handoff", way.handoff()])?;
    // Nodes with lower numbers start the comparison with it, so only this node is asked whether it has hash trees.
    let (victim_id, address) = replicas.last_node()?;
    let victim = cluster.nodes().iter().position(|node| node.resp() == address);
    let victim = victim.context("a node that is not of this cluster")?;
    let others = cluster.nodes().iter().filter(|node| node.resp() != address);
    let coordinator = others.clone().map(Server::resp).next().context("no other node")?;
    let others: Vec<ControlPort> = others.map(|node| node.control().clone()).collect();
    let missed = missed(replicas, victim_id, dataset, round);
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
    let hints = match way {
        Way::Hints => missed.len() as u64,
        Way::Comparing => 0,
    };
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
    let (converged, trees) = match way {
        Way::Hints => {
            CONVERGED.until("all hints are delivered", || {
                Ok(sum(&others, &["hints_delivered"])? >= delivered_before + hints)
            })?;
            let converged = began.elapsed();
            replicas.wait_for_trees(victim_id, CONVERGED)?;
            (converged, began.elapsed())
        }
        Way::Comparing => {
            replicas.wait_for_trees(victim_id, CONVERGED)?;
            let trees = began.elapsed();
            replicas.wait_until_seen(victim_id, &samples, CONVERGED)?;
            (began.elapsed(), trees)
        }
    };
    replicas.wait_until_equal(dataset.records, CONVERGED)?;
    // Its process is a new one, whose counters start at 0.
    let own = sum(std::slice::from_ref(cluster.nodes()[victim].control()), &traffic)?;
    let traffic_bytes = sum(&others, &traffic)? - before + own;
    // When the node was ready, had its hash trees, and had received all missed writes.
    for (name, time) in [("ready", ready), ("trees", trees), ("converged", converged)] {
        rounds.add(name, "s", time.as_secs_f64());
    }
    rounds.add("traffic", "MB", traffic_bytes as f64 / 1e6);
    rounds.add(MISSED_NAME, "MB", differing_bytes / 1e6);
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

fn lines(way: Way, rounds: &Rounds) -> [Line; 4] {
    let line = |what: &str, ours: &str| rounds.line(format!("{}: {what}", way.title()), ours);
    let bytes = line("bytes between nodes until all are equal", "traffic");
    [
        line("from the node's start until it has what it missed", "converged"),
        line("of that, until the node is ready", "ready"),
        line("from the node's start until its hash trees are made", "trees"),
        bytes
            .peer(MISSED_NAME, rounds.figure(MISSED_NAME))
            .over_peer(MISSED_NAME)
            .at_most(BYTES_MAX),
    ]
}
