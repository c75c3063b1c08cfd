//! Clocks that are set while a cluster runs: forward or back by days, and differently on each machine.

use std::time::Instant;

use fondaco_testing::Clock;

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::{Readers, none_since};
use super::values::read_all;

const DAY_S: i64 = 86_400;

#[test]
fn clocks_that_jump_by_days_fail_no_read_or_push() {
    let members = ["controller-1", "node-2", "router-1"];
    let Some(clocks) = members.iter().map(|_| Clock::right()).collect::<Option<Vec<_>>>() else {
        return println!("skipped: there is no C compiler");
    };
    let mut cluster = Cluster::prepare_shared(Shape::steady());
    for (name, clock) in members.iter().zip(&clocks) {
        cluster.enter(name, clock.command());
    }
    cluster.launch_until_ready();
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    let readers = Readers::start(&cluster.resp_addresses());
    let began = Instant::now();
    let mut started_unix_ms = vec![started(&cluster)];
    for (version, [controller, node, router]) in (2..).zip([[40, -2, 0], [-40, 3, 1], [0, 0, 0]]) {
        for (clock, days) in clocks.iter().zip([controller, node, router]) {
            clock.set_ahead_s(days * DAY_S);
        }
        let answers = readers.answers();
        cluster.deploy(&cluster.build(version));
        started_unix_ms.push(started(&cluster));
        until("readers have gone on", || readers.answers() > answers + 200);
        for name in ["node-1", "node-2", "node-3", "router-1"] {
            let mut redis = cluster.get(name).redis();
            until("the swap is seen", || read_all(&mut redis) == Ok(version));
        }
    }
    none_since(&readers.stop(), began);
    let list = cluster.any().http_get("/v1/nodes");
    assert!(
        list["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .all(|node| node["live"] == true),
        "{list}"
    );
    // The controller is the process that was asked for pushes, so its clock did jump.
    let day_ms = 1000 * DAY_S;
    assert!(
        started_unix_ms[1] - started_unix_ms[0] > 39 * day_ms,
        "{started_unix_ms:?}"
    );
    assert!(
        started_unix_ms[2] - started_unix_ms[1] < -79 * day_ms,
        "{started_unix_ms:?}"
    );
}

/// When the last push started, by the clock of the process that was asked for it.
fn started(cluster: &Cluster) -> i64 {
    let push = cluster.any().http_get("/v1/stores/s/push");
    push["started_unix_ms"].as_i64().unwrap_or_else(|| panic!("{push}"))
}
