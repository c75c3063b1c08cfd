//! Versioned stores against other systems: equal durability, and sums of costs.

use anyhow::{Result, bail};

use crate::load;
use crate::machine::process::Process;
use crate::report::Figure;
use crate::rows::runner::Running;
use crate::rows::spec::Step;
use crate::servers::fondaco::{Fondaco, Member};
use crate::servers::{Server, wait_until};

const STORE: &str = "records";

/// Makes these servers have each acknowledged write on disk; or, with the argument `no`, MariaDB in the operating system's cache.
pub fn sync_always(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let value_bytes = running.dataset.value_bytes;
    for name in &step.arguments {
        match (running.server(name)?, step.synced) {
            (Server::Fondaco(fondaco), true) => sync_store(fondaco, value_bytes)?,
            (Server::Redis(redis), true) => redis.sync_always()?,
            (Server::MariaDb(mariadb), synced) => mariadb.set_synced(synced)?,
            _ => bail!("{name:?} has no such setting"),
        }
    }
    Ok(())
}

/// Makes the store sync each write; returns when all nodes do, all of which own the record that is written for this
/// check.
fn sync_store(fondaco: &Fondaco, value_bytes: usize) -> Result<()> {
    fondaco.control().alter(STORE, &["--durability", "fsync"])?;
    let syncs = |node: &Member| node.control().counter("replica_syncs");
    let syncs = || fondaco.nodes().iter().map(syncs).collect::<Result<Vec<u64>>>();
    wait_until("each write is synced", || {
        let before = syncs()?;
        load::write_records(fondaco.nodes()[0].resp(), &format!("{STORE}:"), value_bytes, [0])?;
        Ok(syncs()?.iter().zip(&before).all(|(now, before)| now > before))
    })
}

/// The CPU time that Redis needs to rewrite its log; and the memory of servers, for texts.
pub fn rewrite_log(running: &mut Running<'_>, _: &Step) -> Result<()> {
    let Server::Redis(redis) = running.server("redis")? else {
        bail!("another server is called redis");
    };
    let took = redis.rewrite_log()?;
    running.add("rewriting", "ms", took.as_secs_f64() * 1000.0);
    let memory = |process: &Process| {
        process
            .status_bytes("RssAnon")
            .map(|bytes| bytes as f64 / f64::from(1 << 20))
    };
    for name in ["fondaco", "redis"] {
        let mebibytes = memory(running.server(name)?.process()?)?;
        running.add(&format!("{name} memory"), "MiB", mebibytes);
    }
    Ok(())
}

/// Charges the writes of the figure of the second argument their share of rewriting the log, into a new figure, the first.
pub fn with_rewriting(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let [name, of] = &step.arguments[..] else {
        bail!("two figures are needed");
    };
    let a_write = running.figures.figure("rewriting")?.median() / 1000.0 / running.dataset.records as f64;
    let Figure { unit, rounds } = running.figures.figure(of)?;
    let rounds = rounds
        .iter()
        .map(|per_second| 1.0 / (1.0 / per_second + a_write))
        .collect();
    running.figures.put(name, Figure { unit, rounds });
    Ok(())
}

/// The rate of what costs as much as both of two figures per second of CPU time, into a new figure, the first argument.
pub fn sum_of_costs(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let [name, one, other] = &step.arguments[..] else {
        bail!("three figures are needed");
    };
    let (one, other) = (running.figures.figure(one)?, running.figures.figure(other)?);
    let rounds = one.rounds.iter().zip(&other.rounds);
    let rounds = rounds.map(|(one, other)| 1.0 / (1.0 / one + 1.0 / other)).collect();
    running.figures.put(name, Figure::new(&one.unit, rounds));
    Ok(())
}
