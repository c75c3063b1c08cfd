//! Controllers over time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fastrand::Rng;
use fondaco_client::read::{
    AsynchronousUnion, ClientRate, EarlyTerminable, FanOutController, Fixed, GlobalRate, NonUnion, Pd, Query, Rates,
    SynchronousUnion,
};

const GROUPS: usize = 10;
const NODES: f64 = 20.0;

/// A query to the cluster of the paper: 10 groups of 20 nodes.
fn query(keys: usize, now_us: u64) -> Query {
    Query {
        keys,
        partitions: 3000,
        groups: GROUPS,
        nodes_per_group: NODES,
        now_us,
        rates: Rates::default(),
    }
}

/// The fan-outs of queries at this rate, for a time that begins at `now_us`.
fn run(
    controller: &dyn FanOutController,
    now_us: &mut u64,
    qps: f64,
    seconds: u64,
    random: Option<&mut Rng>,
) -> Vec<usize> {
    let until_us = *now_us + seconds * 1_000_000;
    let mut random = random;
    let mut pause_us = || {
        let weight = random.as_mut().map_or(1.0, |random| -(1.0 - random.f64()).ln());
        (1e6 / qps * weight) as u64
    };
    let mut found = Vec::new();
    loop {
        *now_us += pause_us();
        if *now_us >= until_us {
            return found;
        }
        found.push(controller.fan_out(&query(2000, *now_us)));
    }
}

/// The requests per second that these fan-outs made, each to all nodes of its groups.
fn requests_per_second(fan_outs: &[usize], seconds: u64) -> f64 {
    fan_outs.iter().sum::<usize>() as f64 * NODES / seconds as f64
}

#[test]
fn one_group_is_enough_for_those_that_wait() {
    assert_eq!(NonUnion.fan_out(&query(5000, 0)), 1);
    assert_eq!(SynchronousUnion.fan_out(&query(5000, 0)), 1);
    assert_eq!(Fixed(7).fan_out(&query(5000, 0)), 7);
    let early = |probability| EarlyTerminable { probability }.fan_out(&query(5000, 0));
    assert_eq!([0.0, 0.5, 1.0].map(early), [1, 6, 10]);
}

#[test]
fn asynchronous_unions_have_the_steps_of_the_paper() {
    let controller = AsynchronousUnion::default();
    let groups = |keys| controller.fan_out(&query(keys, 0));
    assert!((1..450).all(|keys| groups(keys) == 1));
    assert_eq!(groups(1800), 5);
    assert!((3000..10_000).all(|keys| groups(keys) == 10));
    assert!((1..10_000).all(|keys| groups(keys) <= groups(keys + 1)));
}

#[test]
fn the_client_makes_the_requests_that_it_may_whatever_the_rate_of_queries() {
    const DESIRED: f64 = 5000.0;
    for chance in [false, true] {
        let (controller, mut now_us, mut random) = (ClientRate::new(DESIRED), 0, Rng::with_seed(1));
        for qps in [30.0, 200.0, 60.0, 110.0, 26.0] {
            let mut random = chance.then_some(&mut random);
            run(&controller, &mut now_us, qps, 30, random.as_deref_mut());
            let settled = run(&controller, &mut now_us, qps, 120, random);
            let wanted = (DESIRED / (NODES * qps)).clamp(1.0, GROUPS as f64);
            // Chance also makes the number of queries differ from what is expected.
            let queries = if chance { settled.len() as f64 / 120.0 } else { qps };
            let (made, expected) = (requests_per_second(&settled, 120), wanted * NODES * queries);
            assert!(
                (made / expected - 1.0).abs() < 0.05,
                "{made} and not {expected} at {qps}, {chance}"
            );
            if !chance {
                let (least, most) = (settled.iter().min().unwrap(), settled.iter().max().unwrap());
                assert!(most - least <= 1, "it oscillates between {least} and {most} at {qps}");
            }
        }
    }
}

#[test]
fn a_client_that_starts_never_makes_more_requests_than_it_may() {
    let plain = || -> Box<dyn FanOutController> { Box::new(ClientRate::new(5000.0)) };
    let steadied = || -> Box<dyn FanOutController> { Box::new(Pd::around(Arc::new(ClientRate::new(5000.0)))) };
    for make in [&plain as &dyn Fn() -> Box<dyn FanOutController>, &steadied] {
        for qps in [30.0, 100.0, 200.0, 250.0] {
            let (controller, mut now_us) = (make(), 0);
            let way = run(&*controller, &mut now_us, qps, 4, None);
            let made = requests_per_second(&way, 4);
            assert!(made < 5000.0 * 1.02, "{made} at {qps}");
        }
    }
}

#[test]
fn few_queries_get_all_groups_and_too_many_get_one() {
    let (controller, mut now_us) = (ClientRate::new(5000.0), 0);
    let few = run(&controller, &mut now_us, 20.0, 60, None);
    assert_eq!(few[0], 1, "the rate is not known");
    assert!(few[1..].iter().all(|&groups| groups == GROUPS), "{few:?}");
    run(&controller, &mut now_us, 1000.0, 30, None);
    assert!(
        run(&controller, &mut now_us, 1000.0, 60, None)
            .iter()
            .all(|&groups| groups == 1)
    );
}

/// The rate of a node in each second, if all clients use a controller of their own, and nodes report the mean of the
/// last seconds.
fn rates_of_nodes(controllers: &[Box<dyn FanOutController>], qps: f64, seconds: usize) -> Vec<f64> {
    let mut rates: Vec<f64> = Vec::new();
    let mut random = Rng::with_seed(1);
    let offsets: Vec<f64> = controllers.iter().map(|_| random.f64()).collect();
    for second in 0..seconds {
        let last = &rates[rates.len().saturating_sub(3)..];
        let reported = last.iter().sum::<f64>() / last.len().max(1) as f64;
        let mut groups = 0;
        for (controller, offset) in controllers.iter().zip(&offsets) {
            for at in 0..qps as u32 {
                let mut query = query(
                    2000,
                    (second as f64 * 1e6 + (f64::from(at) + offset) / qps * 1e6) as u64,
                );
                let nodes = NODES as usize * GROUPS;
                query.rates = Rates {
                    reported_sum: (reported * nodes as f64) as u64,
                    reporting_nodes: if reported > 0.0 { nodes } else { 0 },
                };
                groups += controller.fan_out(&query);
            }
        }
        rates.push(groups as f64 / GROUPS as f64);
    }
    rates
}

#[test]
fn nodes_get_the_requests_that_they_may_from_all_clients_together() {
    const DESIRED: f64 = 400.0;
    let plain = || -> Box<dyn FanOutController> { Box::new(GlobalRate::new(1e9, DESIRED)) };
    let steadied = || -> Box<dyn FanOutController> { Box::new(Pd::around(Arc::new(GlobalRate::new(1e9, DESIRED)))) };
    for make in [&plain as &dyn Fn() -> Box<dyn FanOutController>, &steadied] {
        let controllers: Vec<_> = (0..20).map(|_| make()).collect();
        // Without control: 20 clients with 50 queries a second to all groups, 1000 a second to each node.
        let rates = rates_of_nodes(&controllers, 50.0, 200);
        for rate in &rates[100..] {
            assert!((rate / DESIRED - 1.0).abs() < 0.05, "{rate}: {:?}", &rates[100..]);
        }
        // In the first seconds nodes have not reported anything.
        let most = rates[5..].iter().fold(0.0_f64, |most, &rate| most.max(rate));
        assert!(most < 1.3 * DESIRED, "{most}");
    }
}

#[test]
fn the_client_limit_holds_if_nodes_can_take_more_or_report_nothing() {
    let (controller, mut now_us) = (GlobalRate::new(5000.0, 1e9), 0);
    run(&controller, &mut now_us, 50.0, 30, None);
    let made = requests_per_second(&run(&controller, &mut now_us, 50.0, 60, None), 60);
    assert!((made / 5000.0 - 1.0).abs() < 0.05, "{made}");
}

/// A number of groups that the test sets.
#[derive(Debug)]
struct Set(AtomicUsize);

impl FanOutController for Set {
    fn fan_out(&self, _query: &Query) -> usize {
        self.0.load(Relaxed)
    }
}

#[test]
fn a_pd_controller_converges_without_overshoot() {
    let set = Arc::new(Set(AtomicUsize::new(2)));
    let controller = Pd::around(Arc::clone(&set) as Arc<dyn FanOutController>);
    let mut now_us = 0;
    for (qps, target) in [(1000.0, 9), (10.0, 3), (2.0, 8), (0.1, 5)] {
        let before = set.0.swap(target, Relaxed);
        let way = run(&controller, &mut now_us, qps, if qps < 1.0 { 300 } else { 15 }, None);
        let (low, high) = (before.min(target), before.max(target));
        assert!(way.iter().all(|groups| (low..=high).contains(groups)), "{way:?}");
        let tail = &way[way.len() - way.len() / 4..];
        let mean = tail.iter().sum::<usize>() as f64 / tail.len() as f64;
        assert!((mean - target as f64).abs() < 0.2, "{mean} and not {target} at {qps}");
    }
}

#[test]
fn a_pd_controller_calms_a_controller_that_jumps_and_keeps_its_mean() {
    let set = Arc::new(Set(AtomicUsize::new(1)));
    let controller = Pd::around(Arc::clone(&set) as Arc<dyn FanOutController>);
    let jump = |at: u64| {
        set.0.store(if at.is_multiple_of(2) { 2 } else { 8 }, Relaxed);
        controller.fan_out(&query(2000, at * 10_000))
    };
    let all: Vec<usize> = (0..4000).map(jump).skip(2000).collect();
    let mean = all.iter().sum::<usize>() as f64 / all.len() as f64;
    assert!((mean - 5.0).abs() < 0.1, "{mean}");
    assert!(all.iter().all(|groups| (3..=7).contains(groups)));
}
