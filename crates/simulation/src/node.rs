//! A simulated data node: it carries out the decisions of the real agent, on a simulated disk.

use std::sync::Arc;

use fondaco_client::read::{Answer, Element};
use fondaco_decisions::{
    Agent, AgentAction, FailedFetch, LocalFetch, LocalVersion, Membership, RecordPath, ReplicaKey, ServingSet,
};
use fondaco_model::cluster::Announcement;
use fondaco_model::{PROTOCOL, PartitionSet};
use fondaco_protocol::WireKey;

use crate::data::{DiskVersion, build_of, checksum};
use crate::event::ProcessEvent;
use crate::link::Request;
use crate::process::{Node, Role, RunningFetch};
use crate::reader::Question;
use crate::record::Value;
use crate::scenario::Flaw;
use crate::world::World;

/// The bytes of one partition.
const PARTITION_BYTES: u64 = 1_000;

impl World {
    /// Starts the node from its disk: complete versions are open, and the last view is remembered.
    pub(crate) fn start_node(&mut self, process: usize) {
        let Role::Node(node) = &mut self.processes[process].role else {
            return;
        };
        for (key, version) in &node.disk.versions {
            let local = LocalVersion {
                manifest_checksum: Some(checksum(version.build)),
                open: version.held.clone(),
                ..LocalVersion::default()
            };
            node.local.versions.insert(key.clone(), local);
        }
        if let Some(remembered) = node.disk.view.clone() {
            let mut view = Arc::unwrap_or_clone(remembered);
            view.remembered = true;
            view.announcements.clear();
            self.processes[process].view = view.into();
            self.look(process);
        }
    }

    /// The node does what is due now.
    pub(crate) fn look_as_node(&mut self, process: usize) {
        let view = self.processes[process].view.clone();
        let now = self.now_of(process);
        let whole = self.processes[process].view_is_whole;
        let Role::Node(node) = &mut self.processes[process].role else {
            return;
        };
        let membership = Membership {
            identity: node.identity.clone(),
            cluster: node.disk.cluster.clone(),
            id: node.disk.id,
        };
        if whole && !node.announced {
            node.announced = true;
            let announcement = Announcement {
                identity: node.identity.clone(),
                id: node.disk.id,
                zone: node.zone.clone(),
                group: None,
                weight: 1,
                resp: address(process),
                http: address(process),
                host: None,
                backup: false,
                mysql: false,
                protocol: PROTOCOL,
            };
            let request = Request::PutEphemeral {
                path: RecordPath::Announcement(node.identity.clone()),
                value: Arc::new(Value::Announcement(announcement)),
            };
            self.request(process, request);
        }
        let Role::Node(node) = &mut self.processes[process].role else {
            return;
        };
        let Ok(Some(id)) = membership.admission(&view) else {
            return;
        };
        if whole {
            node.disk.cluster = view.cluster.as_ref().map(|cluster| cluster.identity.clone());
            node.disk.id = Some(id);
            if !self.scenario.snapshots {
                node.disk.view = Some(Arc::clone(&view));
            }
        }
        let agent = node.agent.get_or_insert_with(|| Agent::new(id));
        let actions = agent.decide(&view, &node.local, now.monotonic_ms);
        for action in actions {
            self.act(process, action);
        }
        if self.scenario.flaw == Some(Flaw::ServesWhatIsNotHeld) {
            self.serve_what_is_not_held(process);
        }
    }

    fn act(&mut self, process: usize, action: AgentAction) {
        if !matches!(action, AgentAction::Publish(_) | AgentAction::Report(_)) {
            self.note(|| format!("node {process}: {}", brief(&action)));
        }
        match action {
            AgentAction::Fetch {
                store,
                version,
                partitions,
                detail,
                peers,
                ..
            } => {
                let view = self.processes[process].view.clone();
                let peers = peers.iter().filter_map(|peer| view.nodes.get(peer));
                let peers = peers.filter_map(|peer| process_at(&peer.record.resp)).collect();
                self.begin_fetch(
                    process,
                    (store, version),
                    partitions,
                    build_of(&detail.manifest_checksum),
                    detail.source,
                    peers,
                );
            }
            AgentAction::StopFetch { store, version, .. } => {
                if let Some(node) = self.node(process)
                    && let Some(fetch) = node.fetches.get_mut(&(store, version))
                {
                    fetch.stopping = true;
                }
            }
            AgentAction::Publish(serving) => {
                if let Some(node) = self.node(process) {
                    node.serving = serving;
                }
            }
            AgentAction::Drop { store, version } => {
                let keep_serving = self.scenario.flaw == Some(Flaw::DropsWhatIsServed);
                let key = (store, version);
                if let Some(node) = self.node(process) {
                    node.disk.versions.remove(&key);
                    node.local.versions.remove(&key);
                    if keep_serving && let Some(store) = node.serving.stores.get_mut(&key.0) {
                        store
                            .versions
                            .insert(key.1, (0..1).map(fondaco_model::PartitionId::new).collect());
                    }
                }
                self.look_soon(process);
            }
            AgentAction::DropPartitions {
                store,
                version,
                partitions,
            } => {
                let key = (store, version);
                if let Some(node) = self.node(process) {
                    if let Some(held) = node.disk.versions.get_mut(&key) {
                        held.held = held.held.without(&partitions);
                    }
                    if let Some(local) = node.local.versions.get_mut(&key) {
                        local.open = local.open.without(&partitions);
                    }
                }
                self.look_soon(process);
            }
            AgentAction::Report(report) => {
                let Some(id) = self.node(process).and_then(|node| node.disk.id) else {
                    return;
                };
                if self.processes[process].link.welcome {
                    let path = RecordPath::Report(id);
                    let value = Arc::new(Value::Report(report));
                    self.request(process, Request::PutEphemeral { path, value });
                } else if let Some(agent) = self.node(process).and_then(|node| node.agent.as_mut()) {
                    agent.forget_report();
                }
            }
        }
        self.check_serving(process);
    }

    fn begin_fetch(
        &mut self,
        process: usize,
        key: ReplicaKey,
        partitions: PartitionSet,
        build: u64,
        source: String,
        peers: Vec<usize>,
    ) {
        self.last_fetch += 1;
        let number = self.last_fetch;
        let never_again = self.scenario.flaw == Some(Flaw::NeverRetries);
        let Some(node) = self.node(process) else { return };
        if never_again && node.failed.contains(&key) {
            return;
        }
        let local = LocalFetch {
            manifest_checksum: checksum(build),
            partitions: partitions.clone(),
            bytes_done: 0,
            seconds_left: None,
            bytes_total: partitions.len() as u64 * PARTITION_BYTES,
        };
        node.local.fetches.insert(key.clone(), local);
        let fetch = RunningFetch {
            number,
            todo: partitions.iter().collect(),
            partitions,
            source,
            build,
            peers,
            stopping: false,
        };
        node.fetches.insert(key.clone(), fetch);
        self.fetch_on(process, key, number);
    }

    fn fetch_on(&mut self, process: usize, key: ReplicaKey, number: u64) {
        let step_ms = match self.rng.u32(..20) {
            0 => self.rng.u64(500..4_000),
            _ => self.rng.u64(5..200),
        };
        self.at_process(self.now_ms + step_ms, process, ProcessEvent::FetchStep { key, number });
    }

    /// A fetch completes its next partition, or ends.
    pub(crate) fn fetch_step(&mut self, process: usize, key: ReplicaKey, number: u64) {
        let Some(node) = self.node(process) else { return };
        let Some(fetch) = node.fetches.get(&key).filter(|fetch| fetch.number == number).cloned() else {
            return;
        };
        let monotonic_ms = self.now_of(process).monotonic_ms;
        let brought = match fetch.stopping {
            true => Err(None),
            false => self.bring(process, &key, &fetch).map_err(Some),
        };
        let Some(node) = self.node(process) else { return };
        let done = match brought {
            Ok(()) => {
                let (Some(fetch), Some(local)) = (node.fetches.get_mut(&key), node.local.fetches.get_mut(&key)) else {
                    return;
                };
                fetch.todo.pop();
                local.bytes_done += PARTITION_BYTES;
                fetch.todo.is_empty()
            }
            Err(error) => {
                if let Some(error) = error {
                    node.failed.push(key.clone());
                    if let Some(agent) = &mut node.agent {
                        let failed = FailedFetch {
                            source: fetch.source.clone(),
                            manifest_checksum: checksum(fetch.build),
                            partitions: fetch.partitions.clone(),
                            error: error.clone(),
                            for_good: false,
                        };
                        agent.fetch_failed(&key, failed, monotonic_ms);
                    }
                    self.note(|| format!("node {process}: fetch of {}-{} failed: {error}", key.0, key.1));
                }
                true
            }
        };
        if !done {
            return self.fetch_on(process, key, number);
        }
        let Some(node) = self.node(process) else { return };
        node.fetches.remove(&key);
        node.local.fetches.remove(&key);
        // Opens what is there, whether or not everything was fetched.
        if let (Some(disk), Some(local)) = (node.disk.versions.get(&key), node.local.versions.get_mut(&key)) {
            local.open = disk.held.clone();
        }
        self.look(process);
    }

    /// Fetches the next partition from its source, or from a peer.
    fn bring(&mut self, process: usize, key: &ReplicaKey, fetch: &RunningFetch) -> Result<(), String> {
        let now_ms = self.now_ms;
        let Some(&partition) = fetch.todo.last() else {
            return Ok(());
        };
        let full = self.node(process).is_some_and(|node| node.disk.full_until_ms > now_ms);
        if full {
            return Err("no space is left on the disk".to_owned());
        }
        let corrupt = |world: &mut Self| world.network.is_unreliable() && world.rng.u32(..100) == 0;
        let mut outcome = match self.sources.read(&fetch.source, now_ms) {
            Ok(build) if build != fetch.build => Err(format!("{:?} has changed", fetch.source)),
            Ok(_) if corrupt(self) => Err("the checksum of the source is wrong".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        for &peer in &fetch.peers {
            if outcome.is_ok() {
                break;
            }
            let reachable =
                self.processes[peer].running.is_running(now_ms) && self.network.connects(process, peer, now_ms);
            let Role::Node(other) = &self.processes[peer].role else {
                continue;
            };
            let version = other
                .disk
                .versions
                .get(key)
                .filter(|version| version.build == fetch.build);
            let has = version.is_some_and(|version| version.held.contains(partition));
            if reachable && has && !corrupt(self) {
                outcome = Ok(());
            }
        }
        outcome?;
        let Some(node) = self.node(process) else {
            return Ok(());
        };
        let version = node.disk.versions.entry(key.clone()).or_insert_with(|| DiskVersion {
            build: fetch.build,
            held: PartitionSet::EMPTY,
        });
        if version.build != fetch.build {
            return Err("the directory holds another version".to_owned());
        }
        version.held.insert(partition);
        node.local.versions.entry(key.clone()).or_insert_with(|| LocalVersion {
            manifest_checksum: Some(checksum(fetch.build)),
            ..LocalVersion::default()
        });
        Ok(())
    }

    /// A node answers from its own data, for the requested store and version.
    pub(crate) fn answer_as_node(&mut self, process: usize, question: &Question) -> Answer {
        let Question { store, version, .. } = question;
        let pins = self.scenario.flaw != Some(Flaw::DoesNotPin);
        let takes_names = self.scenario.flaw == Some(Flaw::TakesNamesForStores);
        let partitions = self.partitions;
        let mut broken = None;
        let Role::Node(node) = &self.processes[process].role else {
            return Answer::Error("ERR not a node".into());
        };
        let Some(serving) = node.serving.stores.get(store) else {
            return Answer::Error("NOSTORE no such store".into());
        };
        if serving.id != question.store_id && !takes_names {
            return Answer::Error("VERSIONGONE that store is another one here".into());
        }
        let asked = match pins {
            true => *version,
            false => serving.current.unwrap_or(*version),
        };
        let Some(open) = serving.versions.get(&asked) else {
            return Answer::Error("VERSIONGONE that version is not open here".into());
        };
        let held = node.disk.versions.get(&(store.clone(), asked));
        let element = |key: &WireKey| {
            let partition = partitions.partition_of(key.slot());
            if !open.contains(partition) {
                return Element::Error("NOTHERE that partition is not held here".into());
            }
            match held.filter(|held| held.held.contains(partition)) {
                Some(held) => Element::Value(Some(held.build.to_string().into())),
                None => {
                    broken = Some(format!(
                        "node {process} serves partition {partition} of {store}-{asked}, but does not hold it"
                    ));
                    Element::Value(None)
                }
            }
        };
        let elements = question.keys.iter().map(element).collect();
        if let Some(broken) = broken {
            self.violation(broken);
        }
        Answer::Elements(elements)
    }

    /// Checks that a node holds everything that it serves.
    fn check_serving(&mut self, process: usize) {
        let Role::Node(node) = &self.processes[process].role else {
            return;
        };
        let missing = |serving: &ServingSet| {
            let stores = serving.stores.iter();
            let versions = stores.flat_map(|(name, store)| store.versions.iter().map(move |served| (name, served)));
            let mut missing = versions.filter(|(name, (version, partitions))| {
                let held = node.disk.versions.get(&((*name).clone(), **version));
                !held.is_some_and(|held| held.held.covers(partitions))
            });
            missing.next().map(|(name, (version, _))| format!("{name}-{version}"))
        };
        if let Some(version) = missing(&node.serving) {
            self.violation(format!("node {process} serves {version}, but does not hold it"));
        }
    }

    fn serve_what_is_not_held(&mut self, process: usize) {
        let view = self.processes[process].view.clone();
        let all: PartitionSet = self.partitions.partitions().collect();
        let Some(node) = self.node(process) else { return };
        for (name, store) in &mut node.serving.stores {
            let current = view.stores.get(name).and_then(|store| store.record.versions.current());
            if let Some(current) = current {
                store.versions.insert(current, all.clone());
            }
        }
    }

    fn node(&mut self, process: usize) -> Option<&mut Node> {
        match &mut self.processes[process].role {
            Role::Node(node) => Some(node),
            _ => None,
        }
    }
}

/// The address of a process.
pub(crate) fn address(process: usize) -> String {
    format!("127.0.0.1:{process}")
}

/// The process at an address.
pub(crate) fn process_at(address: &str) -> Option<usize> {
    address.rsplit(':').next().and_then(|port| port.parse().ok())
}

fn brief(action: &AgentAction) -> String {
    match action {
        AgentAction::Fetch {
            store,
            version,
            partitions,
            peers,
            ..
        } => {
            format!("fetch {partitions:?} of {store}-{version}, peers {peers:?}")
        }
        other => format!("{other:?}"),
    }
}
