//! A node killed at random moments of fetch and swap, and started again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fondaco_testing::random;

use crate::harness::{Builds, NodeProcess, wait_for_dirs};

const ROUNDS: u64 = 20;
/// Builds are numbered from 2, so that the last round is checked too.
const ROUNDS_BETWEEN_LOOKS: u64 = 5;
const PADDING: usize = 2000;

fn survive(build_of: impl Fn(u64) -> PathBuf, padding: usize, rate: u64) {
    let mut random = random("kills of a node");
    let dir = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(dir.path());
    node.client.create(1);
    node.client.push(&build_of(1));
    for build in 2..2 + ROUNDS {
        node.client.set_rate(rate);
        node.client.begin_push(&build_of(build));
        // Twice in a row at times, so that what resumes is killed too.
        for _ in 0..=random.u64(..2) {
            let moment = Instant::now() + Duration::from_micros(random.u64(..150_000));
            std::thread::sleep(moment.saturating_duration_since(Instant::now()));
            node.kill();
            node = NodeProcess::start(dir.path());
            // The push continues meanwhile. Once a client has seen that it is swapped in, the build is served.
            let is_swapped = node.client.get("/v1/stores/pymk/push")["state"] == "swapped";
            let served = node.client.served_build(padding);
            let current = node.client.get("/v1/stores/pymk")["current_version"].as_u64().unwrap();
            assert!(
                (build - 1..=build).contains(&current) && served <= current,
                "{served} is served, {current} current after {build} was pushed"
            );
            let first = if is_swapped { build } else { build - 1 };
            assert!(
                served >= first,
                "{served} is served, and {build} is swapped in: {is_swapped}"
            );
        }
        node.client.set_rate(0);
        let push = node.client.ended_push();
        assert_eq!(push["state"], "swapped", "{push}");
        assert_eq!(node.client.served_build(padding), build);
        // Old versions stay for a while, for requests that are pinned to them: not every round waits for that.
        if build % ROUNDS_BETWEEN_LOOKS == 1 {
            let mut kept = [format!("version-{}", build - 1), format!("version-{build}")];
            kept.sort();
            wait_for_dirs(dir.path(), &[&kept[0], &kept[1]]);
        }
    }
}

#[test]
fn a_kill_while_copying_leaves_whole_versions_and_no_leaks() {
    // About a megabyte: killed at any time from the first file to long after the swap.
    let builds = Builds::elsewhere(PADDING);
    survive(|build| builds.build(build), PADDING, 8 << 20);
}

#[test]
fn a_kill_while_chunks_are_made_leaves_whole_versions() {
    let builds = Builds::elsewhere(PADDING);
    let build_of = |build| match build {
        1 => builds.build(1),
        build => builds.patches_only(build),
    };
    survive(build_of, PADDING, 8 << 20);
}

#[test]
fn a_kill_while_linking_leaves_whole_versions_and_no_leaks() {
    let builds = Builds::beside();
    survive(|build| builds.build(build), 50, 500 << 10);
}
