//! Reports about load, and the means that decisions are made of.

use fondaco_decisions::balance::{LoadReport, LoadWindow, MeanLoad, ResourceUse, decide};
use fondaco_model::PartitionCount;

use crate::fixture::node;
use crate::moves::{moved, one_struggles};

fn report(started: u64, number: u64, cpu: f64) -> LoadReport {
    LoadReport {
        divided: PartitionCount::ONE,
        node: node(1),
        started_unix_ms: started,
        number,
        interval_ms: 5_000,
        resources: ResourceUse {
            cpu,
            cpu_max: 2.0,
            ..ResourceUse::default()
        },
        partitions: Vec::new(),
        sizes: Vec::new(),
        stores: Vec::new(),
        hot_keys: Vec::new(),
    }
}

#[test]
fn late_repeated_and_impossible_reports_do_not_count() {
    let mut window = LoadWindow::default();
    for number in 1..=4 {
        assert!(window.take(report(1, number, 1.0), number * 5_000));
        assert!(window.mean(node(1), number * 5_000, 50_000).is_none(), "too few");
    }
    assert!(!window.take(report(1, 4, 9.0), 21_000), "sent twice");
    assert!(!window.take(report(1, 2, 9.0), 21_000), "late");
    assert!(!window.take(report(1, 5, f64::NAN), 21_000));
    assert!(!window.take(report(1, 5, -1.0), 21_000));
    assert!(window.take(report(1, 5, 2.0), 25_000));
    let mean = |window: &LoadWindow, at_ms| window.mean(node(1), at_ms, 50_000).map(|mean| mean.resources.cpu);
    assert_eq!(mean(&window, 25_000), Some(1.2));
    assert_eq!(mean(&window, 80_000), None, "they are old");
    assert!(window.take(report(2, 1, 1.0), 30_000), "its process has started again");
    assert_eq!(mean(&window, 30_000), None);
    assert!(!window.take(report(1, 6, 1.0), 31_000), "from the former process");
    assert!(
        window.take(report(1, 7, 1.0), 90_000),
        "of a process whose clock was set back"
    );
    assert!(window.take(report(1, 8, 1.0), 95_000));
}

#[test]
fn reports_of_before_a_move_are_only_shown() {
    let mut window = LoadWindow::default();
    for number in 1..=5 {
        assert!(window.take(report(1, number, 1.0), number * 5_000));
    }
    window.settle(25_000);
    assert!(window.mean(node(1), 25_000, 50_000).is_none());
    assert!(window.mean_shown(node(1), 25_000, 50_000).is_some());
    for number in 6..=10 {
        assert!(window.take(report(1, number, 2.0), number * 5_000));
    }
    let cpu = |mean: Option<MeanLoad>| mean.map(|mean| mean.resources.cpu);
    assert_eq!(cpu(window.mean(node(1), 50_000, 50_000)), Some(2.0));
    assert_eq!(cpu(window.mean_shown(node(1), 50_000, 50_000)), Some(1.5));
}

#[test]
fn reports_in_any_order_and_number_lead_to_one_decision() {
    let decided = |order: &[u64]| {
        let mut window = LoadWindow::default();
        for &number in order {
            // They arrive at the times when they would have in order: what differs is which of them are late.
            window.take(report(1, number, 1.9), 20_000 + number);
        }
        let mean = window.mean(node(1), 20_100, 50_000)?;
        let mut input = one_struggles();
        input.nodes[0].cpu = (mean.resources.cpu, mean.resources.cpu_max);
        Some(moved(&decide(&input)))
    };
    let in_order = decided(&[1, 2, 3, 4, 5, 6]).expect("it can be judged");
    assert!(!in_order.is_empty());
    assert_eq!(
        decided(&[1, 1, 2, 2, 3, 1, 4, 4, 5, 2, 6]),
        Some(in_order.clone()),
        "twice and late"
    );
    assert_eq!(decided(&[1, 2, 4, 3, 5, 6, 7]), Some(in_order), "one is left out");
    assert_eq!(
        decided(&[6, 5, 4, 3, 2, 1]),
        None,
        "one report is too little to judge by"
    );
}
