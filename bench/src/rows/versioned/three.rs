//! Three nodes with three replicas of each record, waiting for two of them: N 3, R 2, W 2. Peers keep each record once.

use anyhow::Result;

use super::{Contender, Course, LOGGED, Loaded, Mix, REDIS_PREFIX, Role, STORE, SYNCED, sync_always};
use crate::bench::Bench;
use crate::load;
use crate::rows::Measured;
use crate::servers::cluster::{Cluster, Server};
use crate::servers::control::ControlPort;
use crate::servers::mariadb::{Commit, MariaDb};
use crate::servers::redis::Redis;

pub(in crate::rows) fn measure(bench: &Bench) -> Result<Measured> {
    let course = Course::begin(bench);
    let dataset = course.dataset;
    let prefix = format!("{STORE}:");
    let cluster = Cluster::start(bench, "versioned-three", 3)?;
    cluster.fill_versioned(STORE, [3, 2, 2], dataset)?;
    let coordinator = cluster.nodes()[0].resp();
    let redis = Redis::start_logging(bench, None)?;
    load::fill(redis.address(), REDIS_PREFIX, dataset)?;
    let parquet = bench.parquet(dataset)?;
    let mariadb = MariaDb::start_durable(bench, None)?;
    mariadb.load(&parquet, dataset)?;

    let own = || Contender {
        name: "fondaco",
        target: Loaded::Resp(coordinator, &prefix),
        cpu_time: Box::new(|| cluster.cpu_time_of_nodes()),
        role: Role::Server,
    };
    mariadb.set_commit(Commit::Written)?;
    let mut lines = course.lines(
        &LOGGED.map(without_target),
        &[
            own(),
            Contender::redis(&redis, "Redis, everysec, one copy"),
            Contender::mariadb(&mariadb, "MariaDB, 2, one copy"),
        ],
    )?;

    mariadb.set_commit(Commit::Synced)?;
    redis.sync_always()?;
    let controls: Vec<&ControlPort> = cluster.nodes().iter().map(Server::control).collect();
    sync_always(&controls, coordinator, &prefix, dataset)?;
    let synced = course.lines(
        &SYNCED.map(without_target),
        &[
            own(),
            Contender::redis(&redis, "Redis, always, one copy"),
            Contender::mariadb(&mariadb, "MariaDB, 1, one copy"),
        ],
    )?;
    lines.extend(synced);
    mariadb.end()?;
    cluster.end()?;
    Ok(Measured {
        lines,
        notes: vec![
            "The store has engine log. One node is asked, and coordinates: a read asks two replicas; a write asks two for their contexts, and is stored by three, two of which it waits for. CPU time is that of all three nodes. They, the client, ZooKeeper and the peers, which are idle meanwhile, share two cores.".into(),
            "Redis and MariaDB keep each record once, on one server: there is no target. Otherwise they and the requests are as in versioned-one, but may use both cores, too.".into(),
            "Each replica was filled over the protocol between replicas, not through a coordinator.".into(),
        ],
        ..Measured::default()
    })
}

fn without_target(mix: Mix) -> Mix {
    Mix {
        of_redis_min: None,
        ..mix
    }
}
