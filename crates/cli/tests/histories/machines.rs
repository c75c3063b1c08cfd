//! Nodes on simulated machines: each has its own network links, connection to ZooKeeper, disk and clock, and all of
//! these can fail.
//!
//! Clients, the router, the controller and ZooKeeper run on the host, which never fails.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use fondaco_testing::{Clock, Cut, End, Lan, Proxy, SmallDisk, ZooKeeper};
use rustix::process::{Pid, Signal, kill_process};

use super::cluster::{Cluster, Shape};
use super::stores::REPLICAS;

/// The size of a node's disk, in bytes.
const DISK_BYTES: u64 = 256 << 20;
/// The reserve that must stay free on it, in MiB.
const RESERVE_MIB: u64 = 16;
/// The interval of anti-entropy, in seconds.
const EXCHANGE_EVERY_SECONDS: u32 = 2;

/// A cluster whose nodes can be given faults. A node has at most one fault at a time; a wrong clock does not count.
pub struct Machines {
    machines: Vec<Machine>,
    pub cluster: Cluster,
    lan: Option<Lan>,
    /// The current faults of nodes.
    under_way: BTreeMap<usize, Trouble>,
    zookeeper: ZooKeeper,
}

struct Machine {
    name: String,
    zookeeper: Proxy,
    disk: Option<SmallDisk>,
    clock: Option<Clock>,
}

/// The kinds of faults of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Its process is killed.
    Killed,
    /// Its process is stopped, and later continues with everything that reached it meanwhile.
    Stopped,
    /// It is cut off from everything, without any notification.
    Alone,
    /// It is cut off from the other nodes, but clients and ZooKeeper reach it.
    Apart,
    /// It cannot send to the other nodes, but receives from them.
    Mute,
    /// It cannot receive from the other nodes, but sends to them.
    Deaf,
    /// It cannot send to one other node.
    Unheard,
    /// It is cut off from ZooKeeper only: others see it as absent.
    Unlisted,
    /// Its disk has no room for new writes, and a little for work in progress.
    DiskReserved,
    /// Its disk has no room at all.
    DiskFull,
}

impl Trouble {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Killed,
        Self::Stopped,
        Self::Alone,
        Self::Apart,
        Self::Mute,
        Self::Deaf,
        Self::Unheard,
        Self::Unlisted,
        Self::DiskReserved,
        Self::DiskFull,
    ];

    /// The network links that this fault cuts.
    fn cuts(self, node: usize, nodes: usize) -> BTreeSet<Cut> {
        let end = |node: usize| End::Host(node as u8);
        let others = || (0..nodes).filter(|&other| other != node).map(end);
        let from = |to| Cut { from: end(node), to };
        let to = |from| Cut { from, to: end(node) };
        match self {
            Self::Alone => Lan::both_ways(end(node), others().chain([End::Here])),
            Self::Apart => Lan::both_ways(end(node), others()),
            Self::Mute => others().map(from).collect(),
            Self::Deaf => others().map(to).collect(),
            Self::Unheard => others().take(1).map(from).collect(),
            _ => BTreeSet::new(),
        }
    }
}

impl Machines {
    /// Starts this many nodes, a router and a controller, and waits until all are ready.
    pub fn start(nodes: u8) -> Self {
        let zookeeper = ZooKeeper::start();
        let shape = Shape {
            nodes: nodes.into(),
            replicas: REPLICAS,
            partitions: 8,
            ..Shape::default()
        };
        let cluster = Cluster::prepare(shape, &zookeeper.address());
        let mut machines = Self {
            machines: Vec::new(),
            cluster,
            lan: Lan::of(nodes),
            under_way: BTreeMap::new(),
            zookeeper,
        };
        for node in 0..nodes {
            machines.add(node);
        }
        if let Some(lan) = &machines.lan {
            let here = lan.address(End::Here).to_string();
            for name in ["controller-1", "router-1"] {
                machines.cluster.listen_on(name, &here);
            }
        }
        let section = format!("[versioned]\nexchange-every-seconds = {EXCHANGE_EVERY_SECONDS}\n");
        machines.cluster.protect("", &section);
        machines.cluster.launch_all();
        machines.cluster.until_ready();
        machines
    }

    fn add(&mut self, node: u8) {
        let name = format!("node-{}", node + 1);
        let disk = SmallDisk::mount(&self.cluster.data(&name), DISK_BYTES);
        let clock = Clock::right();
        self.cluster
            .add(&name, &format!("disk-reserve = \"{RESERVE_MIB}MiB\"\n"));
        let mut through: Option<Command> = None;
        let mut here = "127.0.0.1".to_owned();
        if let Some(lan) = &self.lan {
            here = lan.address(End::Here).to_string();
            self.cluster.listen_on(&name, &lan.address(End::Host(node)).to_string());
            through = Some(lan.command(node));
        }
        if let Some(clock) = &clock {
            through = Some(match through {
                Some(through) => followed_by(through, &clock.command()),
                None => clock.command(),
            });
        }
        if let Some(through) = through {
            self.cluster.enter(&name, through);
        }
        let zookeeper = Proxy::listening_on(&here, self.zookeeper.port());
        self.cluster.reroute(&name, &zookeeper.address());
        self.machines.push(Machine {
            name,
            zookeeper,
            disk,
            clock,
        });
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.machines.len()
    }

    /// Whether this fault can be caused on this machine.
    pub fn can(&self, trouble: Trouble) -> bool {
        match trouble {
            Trouble::Killed | Trouble::Stopped | Trouble::Unlisted => true,
            Trouble::DiskReserved | Trouble::DiskFull => self.machines.iter().all(|machine| machine.disk.is_some()),
            Trouble::Alone | Trouble::Apart | Trouble::Mute | Trouble::Deaf | Trouble::Unheard => self.lan.is_some(),
        }
    }

    /// Whether a node has no fault.
    pub fn is_well(&self, node: usize) -> bool {
        !self.under_way.contains_key(&node)
    }

    /// Causes a fault on a node without one.
    pub fn harm(&mut self, node: usize, trouble: Trouble) {
        let machine = &self.machines[node];
        match (trouble, &machine.disk) {
            (Trouble::Killed, _) => self.cluster.kill(&machine.name),
            (Trouble::Stopped, _) => self.signal(node, Signal::STOP),
            (Trouble::Unlisted, _) => machine.zookeeper.cut(),
            (Trouble::DiskReserved, Some(disk)) => disk.fill_up_to((RESERVE_MIB << 20) / 2),
            (Trouble::DiskFull, Some(disk)) => disk.fill_up_to(0),
            _ => {}
        }
        let former = self.under_way.insert(node, trouble);
        assert!(former.is_none(), "node {node} has {former:?} already");
        self.cut();
    }

    /// Ends the fault of a node.
    pub fn heal(&mut self, node: usize) {
        let trouble = self.under_way.remove(&node);
        self.cut();
        let machine = &self.machines[node];
        match trouble {
            Some(Trouble::Killed) => {
                let name = machine.name.clone();
                self.cluster.launch(&name);
            }
            Some(Trouble::Stopped) => self.signal(node, Signal::CONT),
            Some(Trouble::Unlisted) => machine.zookeeper.heal(),
            Some(Trouble::DiskReserved | Trouble::DiskFull) => machine.disk.iter().for_each(SmallDisk::make_room),
            _ => {}
        }
    }

    /// Sets the clock of a node this many seconds off. Returns whether that is possible here.
    pub fn set_clock(&self, node: usize, ahead_s: i64) -> bool {
        let clock = &self.machines[node].clock;
        clock.iter().for_each(|clock| clock.set_ahead_s(ahead_s));
        clock.is_some()
    }

    /// Ends all faults, and waits until all nodes are live.
    pub fn heal_all(&mut self) {
        for node in 0..self.nodes() {
            self.heal(node);
            self.set_clock(node, 0);
        }
        self.cluster.until_ready();
    }

    fn cut(&mut self) {
        let nodes = self.nodes();
        let cuts = self
            .under_way
            .iter()
            .flat_map(|(&node, trouble)| trouble.cuts(node, nodes));
        let cuts = cuts.collect();
        if let Some(lan) = &mut self.lan {
            lan.set_cuts(cuts);
        }
    }

    fn signal(&self, node: usize, signal: Signal) {
        let process = self.cluster.get(&self.machines[node].name).pid();
        let pid = Pid::from_raw(process as i32).expect("a process has a number");
        kill_process(pid, signal).unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.machines[node].name));
    }
}

/// A command that runs another one, which runs the program that follows.
fn followed_by(mut first: Command, second: &Command) -> Command {
    first.arg(second.get_program()).args(second.get_args());
    first
}
