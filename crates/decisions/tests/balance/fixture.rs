//! The inputs of decisions.

use fondaco_decisions::balance::{
    BalanceInput, BalanceMode, BalanceSettings, Decision, MachineInput, MachineSettings, MachineState, NodeLoad,
    PartitionState,
};
use fondaco_model::{NodeId, Placement};

/// Numbers that look random: SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() * limit as f64) as usize
    }
}

pub const NOW: u64 = 1_000_000_000;

pub fn node(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

/// A node that uses this part of its one core.
pub fn load(number: u32, cpu: f64) -> NodeLoad {
    NodeLoad {
        requests: 1000.0 * cpu,
        ..NodeLoad::of(node(number), (cpu, 1.0))
    }
}

/// A partition on these nodes, with this cost on each of them, in requests a second.
pub fn partition(owners: &[u32], cost: f64, bytes: u64) -> PartitionState {
    PartitionState {
        owners: owners.iter().copied().map(node).collect(),
        requests: vec![cost; owners.len()],
        costs: vec![cost; owners.len()],
        bytes,
    }
}

/// A cluster with one replica of each partition, which acts, and has no hook.
pub fn input(nodes: Vec<NodeLoad>, partitions: Vec<PartitionState>) -> BalanceInput {
    BalanceInput {
        number: 1,
        at_unix_ms: NOW,
        settings: BalanceSettings {
            mode: BalanceMode::Act,
            ..BalanceSettings::default()
        },
        placement: Placement::Ring,
        replicas: 1,
        plan: None,
        nodes,
        partitions,
        struggled: Default::default(),
        departures: Vec::new(),
        moved_unix_ms: None,
        hot_keys: Vec::new(),
        machines: None,
    }
}

pub fn settings() -> MachineSettings {
    MachineSettings {
        nodes_min: 1,
        nodes_max: 8,
        cool_down_ms: 600_000,
        calm_ms: 1_800_000,
        enlarges: false,
        returns_all: false,
    }
}

/// A cluster with a hook: nodes with these loads, each with eight partitions that no other has.
pub fn cluster(loads: &[f64]) -> BalanceInput {
    let nodes = (1..).zip(loads).map(|(number, &cpu)| load(number, cpu));
    let partitions = (1..).zip(loads);
    let partitions = partitions.flat_map(|(number, &cpu)| vec![partition(&[number], 125.0 * cpu, 1 << 20); 8]);
    BalanceInput {
        machines: Some(MachineInput {
            settings: settings(),
            state: MachineState::default(),
            answer: None,
            calling: false,
            joined: None,
            idle_since_unix_ms: None,
        }),
        ..input(nodes.collect(), partitions.collect())
    }
}

/// The same cluster at the next decision, `ms` later, as far as its leader is the same.
pub fn after(input: &BalanceInput, decision: &Decision, ms: u64) -> BalanceInput {
    let mut next = input.clone();
    next.at_unix_ms += ms;
    let decided = decision.machines.clone().expect("there is a hook");
    let machines = next.machines.as_mut().unwrap();
    machines.state = decided.state;
    machines.answer = None;
    machines.calling = false;
    machines.joined = None;
    machines.idle_since_unix_ms = decided.idle_since_unix_ms;
    next
}

pub fn says(decision: &Decision, text: &str) -> bool {
    let advice = decision.advice.iter().flat_map(|one| [&one.problem, &one.help]);
    decision.reasons.iter().chain(advice).any(|one| one.contains(text))
}
