//! Days of rising and falling load, with the real decisions, a hook that fails and leaders that come and go.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_decisions::balance::{BalanceInput, Decision, HookAnswer, MachineAction, Outcome, decide};
use fondaco_model::{NodeId, PartitionId};
use proptest::prelude::*;

use crate::fixture::{Random, after, cluster, load};

const STEP_MS: u64 = 30_000;
const PARTITIONS: usize = 64;
const NODES_MIN: u32 = 2;
const NODES_MAX: u32 = 6;

type Moves = BTreeMap<PartitionId, Vec<NodeId>>;

/// A cluster of nodes with one core each, and a hook.
struct World {
    input: BalanceInput,
    random: Random,
    /// How often calls fail, take longer, and leaders are killed.
    trouble: f64,
    /// The plan under way: its moves, the nodes that leave, and after how many steps it ends.
    plan: Option<(Moves, BTreeSet<NodeId>, u32)>,
    /// By the numbers of requests: the nodes that the hook has started, and after how many steps each joins.
    machines: BTreeMap<u64, (NodeId, u32)>,
    nodes_last: u32,
    /// When each request to start or return a node was made, and whether it is one to start.
    made: Vec<(u64, bool)>,
}

impl World {
    fn new(seed: u64, trouble: f64) -> Self {
        let mut input = cluster(&[0.1; NODES_MIN as usize]);
        let machines = input.machines.as_mut().unwrap();
        (machines.settings.nodes_min, machines.settings.nodes_max) = (NODES_MIN, NODES_MAX);
        let state = input.partitions[0].clone();
        input.partitions = (0..PARTITIONS)
            .map(|at| {
                let mut state = state.clone();
                state.owners = vec![NodeId::new(at as u32 % NODES_MIN + 1).unwrap()];
                state
            })
            .collect();
        Self {
            input,
            random: Random(seed),
            trouble,
            plan: None,
            machines: BTreeMap::new(),
            nodes_last: NODES_MIN,
            made: Vec::new(),
        }
    }

    /// Half a minute passes, in which the cluster has this load, in cores.
    fn step(&mut self, cores: f64) {
        let each = cores / PARTITIONS as f64;
        for state in &mut self.input.partitions {
            state.costs = vec![each * 1000.0];
            state.requests = vec![each * 1000.0];
        }
        for node in &mut self.input.nodes {
            let held = self
                .input
                .partitions
                .iter()
                .filter(|state| state.owners.contains(&node.node))
                .count();
            let noise = 1.0 + 0.02 * (self.random.next() - 0.5);
            node.cpu.0 = (held as f64 * each * noise).min(1.0);
        }
        let decision = decide(&self.input);
        self.input.struggled.clone_from(&decision.struggling);
        self.check(&decision);
        let next = after(&self.input, &decision, STEP_MS);
        if let Outcome::Move { next, leaving, .. } = &decision.outcome {
            let steps = 1 + (3.0 * self.random.next()) as u32;
            self.plan = Some((next.clone(), leaving.clone(), steps));
        }
        self.input = next;
        self.hook(&decision);
        self.move_on();
        if self.random.next() < self.trouble / 10.0 {
            // Another controller leads: it knows what is in coordination.
            let machines = self.input.machines.as_mut().unwrap();
            (machines.answer, machines.idle_since_unix_ms) = (None, None);
            self.input.struggled.clear();
        }
    }

    fn check(&mut self, decision: &Decision) {
        let decided = decision.machines.as_ref().unwrap();
        if let (Some(_), Some(request)) = (decided.begun, &decided.state.pending) {
            match request.action {
                MachineAction::Request { .. } => self.made.push((self.input.at_unix_ms, true)),
                MachineAction::Return { .. } => self.made.push((self.input.at_unix_ms, false)),
                _ => {}
            }
        }
        let members = self.input.nodes.iter().filter(|node| !node.leaving).count() as u32;
        assert!((NODES_MIN..=NODES_MAX).contains(&members), "{members} nodes");
        if let Outcome::Move { leaving, .. } = &decision.outcome {
            assert!(members - leaving.len() as u32 >= NODES_MIN, "{decision:#?}");
        }
    }

    /// The hook is called, if it is to be.
    fn hook(&mut self, decision: &Decision) {
        let decided = decision.machines.as_ref().unwrap();
        let Some(request) = decided.state.pending.as_ref().filter(|_| decided.call) else {
            return;
        };
        let fate = self.random.next();
        let answer = match &request.action {
            MachineAction::Request { .. } => {
                let new = NodeId::new(self.nodes_last + 1).unwrap();
                let (node, _) = *self.machines.entry(request.number).or_insert_with(|| {
                    self.nodes_last += 1;
                    (new, 2)
                });
                let http = Some(format!("node-{node}"));
                HookAnswer::Done { http }
            }
            MachineAction::Return { node, machine } => {
                let at = machine.expect("every node that is returned came through the hook");
                let started = self.machines.remove(&at);
                assert!(started.is_none_or(|(started, _)| started == *node));
                let mut partitions = self.input.partitions.iter();
                assert!(
                    !partitions.any(|state| state.owners.contains(node)),
                    "it has partitions"
                );
                self.input.nodes.retain(|load| load.node != *node);
                HookAnswer::Done { http: None }
            }
            MachineAction::Enlarge { .. } => unreachable!("this hook does not enlarge"),
        };
        // The action stays done, also if the answer is lost.
        let answer = match fate {
            fate if fate < self.trouble / 2.0 => HookAnswer::Lost {
                reason: "trouble".to_owned(),
            },
            fate if fate < self.trouble => HookAnswer::Pending,
            _ => answer,
        };
        self.input.machines.as_mut().unwrap().answer = Some((request.number, answer));
    }

    /// Plans end, and nodes join.
    fn move_on(&mut self) {
        for (node, steps) in self.machines.values_mut() {
            *steps = steps.saturating_sub(1);
            if *steps == 0 && !self.input.nodes.iter().any(|load| load.node == *node) {
                self.input.nodes.push(load(node.get(), 0.0));
                self.input.nodes.sort_by_key(|load| load.node);
            }
        }
        let machines = self.input.machines.as_mut().unwrap();
        let http = machines.state.pending.as_ref().and_then(|request| request.http.clone());
        let mut nodes = self.input.nodes.iter().map(|load| load.node);
        machines.joined = nodes.find(|node| http == Some(format!("node-{node}")));
        if let Some((moves, leaving, steps)) = &mut self.plan {
            *steps -= 1;
            for node in self.input.nodes.iter_mut().filter(|node| leaving.contains(&node.node)) {
                node.leaving = true;
            }
            if *steps == 0 {
                for (partition, owners) in moves {
                    self.input.partitions[partition.get() as usize]
                        .owners
                        .clone_from(owners);
                }
                self.input.moved_unix_ms = Some(self.input.at_unix_ms);
                self.plan = None;
            }
        }
        self.input.plan = self.plan.as_ref().map(|_| 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever the load and the troubles, the cluster stays within its limits.
    #[test]
    fn limits_hold_whatever_the_load(seed: u64, trouble in 0.0..0.5, swing in 0.0..2.5) {
        let mut world = World::new(seed, trouble);
        for step in 0..2880 {
            let day = f64::from(step) / 2880.0;
            let cores = 2.5 + swing * (std::f64::consts::TAU * day).sin() + 0.2 * world.random.next();
            world.step(cores);
        }
    }

    /// After some hours of the same load nothing is requested or returned any more.
    #[test]
    fn a_steady_load_settles(seed: u64, trouble in 0.0..0.3, cores in 0.2..4.0) {
        let mut world = World::new(seed, trouble);
        for _ in 0..960 {
            world.step(cores);
        }
        let settled = world.made.len();
        prop_assert!(world.made.windows(2).all(|two| !two[1].1 || two[0].1), "no request after a return");
        for _ in 0..960 {
            world.step(cores);
        }
        prop_assert_eq!(world.made.len(), settled);
        let used = cores / world.input.nodes.len() as f64;
        prop_assert!(used < 0.84 || world.input.nodes.len() == NODES_MAX as usize, "{}", used);
    }
}

#[test]
fn a_day_and_a_night_bring_nodes_and_take_them_back() {
    let mut world = World::new(7, 0.1);
    let mut most = 0;
    for step in 0..5760 {
        let day = f64::from(step) / 2880.0;
        world.step(2.2 - 1.6 * (std::f64::consts::TAU * day).cos());
        most = most.max(world.input.nodes.len());
    }
    assert!(most >= 4, "{most} nodes at most");
    assert!(
        world.input.nodes.len() <= 3,
        "{} nodes at night",
        world.input.nodes.len()
    );
    let changes = world.made.len();
    assert!(
        (4..=30).contains(&changes),
        "{changes} requests and returns in two days"
    );
    assert!(
        world.machines.len() as u32 + NODES_MIN <= world.input.nodes.len() as u32 + 1,
        "no machine is forgotten"
    );
}
