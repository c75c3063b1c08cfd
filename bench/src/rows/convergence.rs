//! How replicas become equal again after a node has missed writes: by hints that were kept for it, and, where none
//! are kept, by comparing hash trees. The time from the start of its process, and the bytes that it takes, over those
//! that the node had missed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fondaco_model::NodeId;

use super::Measured;
use crate::bench::Bench;
use crate::dataset::{Dataset, KEY_BYTES, Scattered};
use crate::load;
use crate::machine::disk;
use crate::report::markdown::number;
use crate::report::{Figure, Line, Target};
use crate::servers::cluster::{Cluster, Server, Wait, wait_until};
use crate::servers::control::ControlPort;
use crate::servers::replicas::Replicas;

const STORE: &str = "records";
const REPLICAS: u64 = 2;
/// The share of all keys that the node misses.
const MISSED: f64 = 0.01;
/// What of the bytes that differ may travel.
const BYTES_MAX: f64 = 1.5;
/// The room on the disk for each byte of each replica: of records, of the log, and of what is merged.
const ROOM: f64 = 1.5;
/// What is loaded is cut short if it takes longer.
const FILL_TIME: Duration = Duration::from_secs(300);
/// Parts that it is loaded in.
const PARTS: u64 = 4;
const ROUNDS: u64 = 3;
/// A further round is begun only if it ends by then, if it takes as long as the last.
const ROUNDS_UNTIL: Duration = Duration::from_secs(540);
/// Looking itself takes time of the processors.
const CONVERGED: Wait = Wait {
    limit: Duration::from_secs(240),
    poll: Duration::from_millis(100),
};
/// The share of the missed records, and how many at least, that tell how long they are and whether they are there.
const SAMPLED: f64 = 0.01;
const SAMPLES_MIN: usize = 100;

/// Who sees to it that a node has what it missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Hints,
    Comparing,
}

impl Way {
    const ALL: [Self; 2] = [Self::Hints, Self::Comparing];

    /// What the store is told.
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

/// What was seen of one node that came back.
struct Healed {
    /// From the start of its process until it says that it is ready.
    ready: Duration,
    /// Until it had made its hash trees.
    trees: Duration,
    /// Until all that it missed was delivered, or replicas were equal.
    converged: Duration,
    /// What was said between the nodes until all replicas were equal.
    traffic_bytes: u64,
    /// Keys and records that it had missed.
    differing_bytes: f64,
}

pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let began = Instant::now();
    let wanted = Dataset {
        records: if bench.quick { 100_000 } else { 10_000_000 },
        value_bytes: 1024,
    };
    let mut cluster = Cluster::start(bench, "convergence", REPLICAS as u32)?;
    let options = ["--replicas", "2", "--reads", "1", "--writes", "1"];
    cluster.control().create_versioned(STORE, &options)?;
    let seed = cluster.nodes().first().context("a cluster without nodes")?.resp();
    let mut replicas = Replicas::of(seed, STORE)?;
    let (dataset, filled) = fill(bench, &mut replicas, wanted)?;
    replicas.wait_until_equal(dataset.records, CONVERGED)?;
    // What is still to be written is not of what follows.
    rustix::fs::sync();
    let mut healed = [Vec::new(), Vec::new()];
    for round in 0..bench.rounds().min(ROUNDS) {
        let round_began = Instant::now();
        for (way, healed) in Way::ALL.into_iter().zip(&mut healed) {
            healed.push(heal(&mut cluster, &mut replicas, dataset, way, round)?);
        }
        if began.elapsed() + round_began.elapsed() > ROUNDS_UNTIL {
            break;
        }
    }
    cluster.end()?;
    let mut notes = vec![
        format!(
            "Three nodes; {} records of 1 KiB, each on two of them, R 1, W 1. A node is killed (SIGKILL); when the others know, as many of its records as 1 % of all are overwritten, and it is started again. Time counts from that.",
            number(dataset.records as f64)
        ),
        "Bytes are all that the RESP ports of the three nodes received and sent from that start until all replicas were equal, by their hash trees: requests and replies between nodes, with keys, hashes and framing. They are compared with the keys and records that the node had missed.".into(),
        "Hinted handoff ends when all hints are delivered, which need not wait for hash trees; comparing ends when the node has all records of a sample, of one in a hundred that it had missed; that all replicas are equal is seen afterwards, since who asks for hash trees delays comparisons. Comparing begins with a partition when its tree is made: by reading all records of it, at 256 MiB/s at most. Hints and exchanges go at 32 MiB/s at most. These are the defaults.".into(),
        format!("Filled in {} s, as replicas give records to one another.", number(filled.as_secs_f64())),
    ];
    if dataset != wanted {
        notes.push(format!(
            "Not {} records, as it should be: for more there is no room on this disk, or they take longer to be loaded than the row may take.",
            number(wanted.records as f64)
        ));
    }
    let lines = Way::ALL
        .iter()
        .zip(&healed)
        .flat_map(|(way, healed)| lines(*way, healed));
    Ok(Measured {
        lines: lines.collect(),
        notes,
        ..Measured::default()
    })
}

/// Loads as many records as there is room and time for, and says how many, and how long it took.
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

/// Kills a node, has it miss writes, starts it again, and waits until it has them.
fn heal(cluster: &mut Cluster, replicas: &mut Replicas, dataset: Dataset, way: Way, round: u64) -> Result<Healed> {
    cluster.control().alter(STORE, &["--handoff", way.handoff()])?;
    // Those with lower numbers compare their replicas with its own, and it is asked alone whether it has hash trees.
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
    // Its process is a new one, that counts from nothing.
    let own = sum(std::slice::from_ref(cluster.nodes()[victim].control()), &traffic)?;
    Ok(Healed {
        ready,
        trees,
        converged,
        traffic_bytes: sum(&others, &traffic)? - before + own,
        differing_bytes,
    })
}

/// How many of the missed records are looked at.
fn samples(dataset: Dataset) -> usize {
    let samples = dataset.records as f64 * MISSED * SAMPLED;
    (samples as usize).max(SAMPLES_MIN)
}

/// Records of a node, as many as it is to miss; others in each round.
fn missed(replicas: &Replicas, node: NodeId, dataset: Dataset, round: u64) -> Vec<u64> {
    let Dataset { records, .. } = dataset;
    let scattered = Scattered::new(records);
    let from = round * (records / ROUNDS);
    let all = (0..records).map(|number| scattered.place((from + number) % records));
    all.filter(|&id| replicas.holds(node, id))
        .take((records as f64 * MISSED) as usize)
        .collect()
}

/// Counters of some nodes, taken together.
fn sum(nodes: &[ControlPort], counters: &[&str]) -> Result<u64> {
    nodes
        .iter()
        .flat_map(|node| counters.iter().map(|counter| node.counter(counter)))
        .sum()
}

fn lines(way: Way, healed: &[Healed]) -> [Line; 4] {
    let title = way.title();
    let figure = |unit: &str, of: &dyn Fn(&Healed) -> f64| Figure::new(unit, healed.iter().map(of).collect());
    let line = |what: &str, ours: Figure| Line {
        work: format!("{title}: {what}"),
        ours,
        peers: Vec::new(),
        ratio: None,
        targets: Vec::new(),
        memory: String::new(),
    };
    let seconds = |of: fn(&Healed) -> Duration| figure("s", &|healed| of(healed).as_secs_f64());
    let traffic = figure("MB", &|healed| healed.traffic_bytes as f64 / 1e6);
    let differing = figure("MB", &|healed| healed.differing_bytes / 1e6);
    let ratio = traffic.over(&differing);
    [
        line(
            "from the node's start until it has what it missed",
            seconds(|healed| healed.converged),
        ),
        line("of that, until the node is ready", seconds(|healed| healed.ready)),
        line(
            "from the node's start until its hash trees are made",
            seconds(|healed| healed.trees),
        ),
        Line {
            peers: vec![("what it missed".into(), differing)],
            ratio: Some((ratio, "what it missed".into())),
            targets: vec![Target::at_most(ratio, BYTES_MAX)],
            ..line("bytes between nodes until all are equal", traffic)
        },
    ]
}
