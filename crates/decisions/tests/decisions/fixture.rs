//! A small cluster as a view, with its events.

use fondaco_decisions::operator::{MoveCosts, OperatorError, PlanRequest};
use fondaco_decisions::{Change, Controller, Now, Patience, Record, RecordPath, operator};
use fondaco_model::cluster::{
    Announcement, ClusterRecord, ClusterView, ReplicaReport, ReplicaState, Revised, StoreRecord, StoreReport,
    VersionDetail,
};
use fondaco_model::versioned::VersionedChange;
use fondaco_model::{
    Identity, Move, NodeId, PROTOCOL, PartitionCount, PartitionId, Placement, RoutingTable, StoreChange,
    StoreDefinition, StoreName, VersionNumber,
};

/// A cluster as all processes see it.
pub struct Cluster {
    pub view: ClusterView,
    pub controller: Controller,
    pub now_ms: u64,
    revision: u64,
}

pub fn node(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

pub fn version(number: u64) -> VersionNumber {
    VersionNumber::new(number).unwrap()
}

pub fn name(name: &str) -> StoreName {
    name.parse().unwrap()
}

pub fn detail(build: &str) -> VersionDetail {
    VersionDetail {
        source: format!("file:///versions/{build}"),
        manifest_checksum: build.to_owned(),
        partitions: PartitionCount::ONE,
        bytes: 100,
        index_bytes: 10,
        records: 5,
        chunks: 1,
        built_unix_ms: 0,
        compression: "none".to_owned(),
        events: None,
    }
}

/// A request to give a node its share.
pub fn add(number: u32) -> PlanRequest {
    PlanRequest {
        add: [node(number)].into(),
        ..PlanRequest::default()
    }
}

/// A request to take all partitions from a node.
pub fn remove(number: u32) -> PlanRequest {
    PlanRequest {
        remove: [node(number)].into(),
        ..PlanRequest::default()
    }
}

/// The move of a replica from a node to another.
pub fn one_move(partition: PartitionId, from: NodeId, to: NodeId) -> Move {
    Move {
        partition,
        from: Some(from),
        to: Some(to),
    }
}

/// A request to move replicas by hand.
pub fn by_hand(moves: impl IntoIterator<Item = Move>) -> PlanRequest {
    PlanRequest {
        moves: moves.into_iter().collect(),
        ..PlanRequest::default()
    }
}

/// This request, with this number of moves of a node at a time.
pub fn at_a_time(moves_per_node: u32, request: PlanRequest) -> PlanRequest {
    PlanRequest {
        moves_per_node: Some(moves_per_node),
        ..request
    }
}

/// Another number of replicas.
pub fn with_replicas(replicas: u32) -> StoreChange {
    StoreChange {
        replicas: Some(Some(replicas)),
        ..StoreChange::default()
    }
}

/// Other settings of a versioned store.
pub fn with_settings(change: VersionedChange) -> StoreChange {
    StoreChange {
        versioned: Some(change),
        ..StoreChange::default()
    }
}

pub fn announcement(number: u32) -> Announcement {
    Announcement {
        identity: Identity::of(u128::from(number)),
        id: None,
        zone: "z".to_owned(),
        group: None,
        weight: 1,
        resp: format!("host{number}:6500"),
        http: format!("host{number}:6580"),
        host: None,
        backup: false,
        mysql: false,
        protocol: PROTOCOL,
    }
}

impl Cluster {
    /// A cluster that waits for this number of nodes, and has none.
    pub fn empty(nodes_initial: u32, partitions: u32, replicas: u32) -> Self {
        let view = ClusterView {
            cluster: Some(ClusterRecord {
                identity: Identity::of(1 << 100),
                partitions: partitions.try_into().unwrap(),
                placement: Placement::Ring,
                replicas,
                nodes_initial,
                adoptions: 0,
            }),
            ..ClusterView::default()
        };
        Self {
            view,
            controller: Controller::new(Patience::default()),
            now_ms: 0,
            revision: 0,
        }
    }

    /// A cluster of nodes 1 to `nodes`, which are live and have a routing table.
    pub fn of(nodes: u32, partitions: u32, replicas: u32) -> Self {
        let mut cluster = Self::empty(nodes, partitions, replicas);
        (1..=nodes).for_each(|number| cluster.announce(announcement(number)));
        cluster.settle();
        assert!(cluster.view.routing.is_some());
        cluster
    }

    /// Live nodes 1 to `nodes` with a routing table. Those from `remote` on are in zone `remote`, the others in zone `near`.
    pub fn in_two_zones(nodes: u32, partitions: u32, replicas: u32, remote: u32) -> Self {
        let mut cluster = Self::empty(nodes, partitions, replicas);
        for number in 1..=nodes {
            let zone = if number < remote { "near" } else { "remote" }.to_owned();
            let announcement = announcement(number);
            cluster.announce(Announcement { zone, ..announcement });
        }
        cluster.settle();
        cluster
    }

    /// The cluster of [`of`](Self::of), with a batch store.
    pub fn with_store(nodes: u32, partitions: u32, replicas: u32, store: &str) -> Self {
        let mut cluster = Self::of(nodes, partitions, replicas);
        cluster.create(store);
        cluster
    }

    pub fn announce(&mut self, announcement: Announcement) {
        let identity = announcement.identity.clone();
        self.view.announcements.insert(identity, announcement);
    }

    /// The session of a node ends.
    pub fn leave(&mut self, number: u32) {
        let identity = self.view.nodes[&node(number)].record.identity.clone();
        self.view.announcements.remove(&identity);
        self.view.reports.remove(&node(number));
    }

    fn now_unix_ms(&self) -> u64 {
        1_000_000 + self.now_ms
    }

    /// The leader looks once.
    pub fn decide(&mut self) -> Vec<Change> {
        let now = Now {
            monotonic_ms: self.now_ms,
            unix_ms: self.now_unix_ms(),
        };
        self.controller.decide(&self.view, now)
    }

    /// The leader looks, and its changes are carried out, until there are no more.
    pub fn settle(&mut self) {
        for _ in 0..100 {
            let changes = self.decide();
            if changes.is_empty() {
                return;
            }
            assert!(changes.iter().all(|change| self.apply(change)), "{changes:?}");
        }
        panic!("the leader never comes to an end");
    }

    /// Time passes, with the leader looking every second.
    pub fn wait(&mut self, ms: u64) {
        for _ in 0..ms / 1_000 {
            self.now_ms += 1_000;
            self.settle();
        }
    }

    /// Carries out a change, as the coordination service does.
    pub fn apply(&mut self, change: &Change) -> bool {
        let unchanged = change.unchanged.iter().map(|(path, revision)| (path, Some(*revision)));
        let written = change.writes.iter().map(|write| (&write.path, write.expected));
        if unchanged
            .chain(written)
            .any(|(path, expected)| self.revision(path) != expected)
        {
            return false;
        }
        for write in &change.writes {
            self.revision += 1;
            self.write(&write.path, write.record.clone());
        }
        true
    }

    fn revision(&self, path: &RecordPath) -> Option<u64> {
        match path {
            RecordPath::Routing => self.view.routing.as_ref().map(|entry| entry.revision),
            RecordPath::Numbers => self.view.numbers.as_ref().map(|entry| entry.revision),
            RecordPath::Node(id) => self.view.nodes.get(id).map(|entry| entry.revision),
            RecordPath::Store(name) => self.view.stores.get(name).map(|entry| entry.revision),
            RecordPath::Dropped(id) => self.view.dropped.get(id).map(|entry| entry.revision),
            RecordPath::Schema(key) => self.view.schemas.get(key).map(|entry| entry.revision),
            RecordPath::User(name) => self.view.users.get(name).map(|entry| entry.revision),
            RecordPath::Plan(number) => self.view.plans.get(number).map(|entry| entry.revision),
            // Only adoptions write it, and they get its revision separately.
            RecordPath::Cluster => None,
            path => panic!("no decision writes {path}"),
        }
    }

    fn write(&mut self, path: &RecordPath, record: Option<Record>) {
        let revision = self.revision;
        match (path, record) {
            (RecordPath::Routing, Some(Record::Routing(record))) => {
                self.view.routing = Some(Revised { record, revision });
            }
            (RecordPath::Numbers, Some(Record::Numbers(record))) => {
                self.view.numbers = Some(Revised { record, revision });
            }
            (RecordPath::Node(id), Some(Record::Node(record))) => {
                self.view.nodes.insert(*id, Revised { record, revision });
            }
            (RecordPath::Store(name), Some(Record::Store(record))) => {
                let record = *record;
                self.view.stores.insert(name.clone(), Revised { record, revision });
            }
            (RecordPath::Store(name), None) => _ = self.view.stores.remove(name),
            (RecordPath::Dropped(id), Some(Record::Dropped(record))) => {
                let record = *record;
                self.view.dropped.insert(*id, Revised { record, revision });
            }
            (RecordPath::Schema(key), Some(Record::Schema(record))) => {
                let record = *record;
                self.view.schemas.insert(*key, Revised { record, revision });
            }
            (RecordPath::Schema(key), None) => _ = self.view.schemas.remove(key),
            (RecordPath::Dropped(id), None) => _ = self.view.dropped.remove(id),
            (RecordPath::Plan(number), Some(Record::Plan(record))) => {
                let record = *record;
                self.view.plans.insert(*number, Revised { record, revision });
            }
            (RecordPath::Plan(number), None) => _ = self.view.plans.remove(number),
            (RecordPath::Node(id), None) => _ = self.view.nodes.remove(id),
            (RecordPath::Cluster, Some(Record::Cluster(record))) => self.view.cluster = Some(record),
            (path, record) => panic!("{record:?} was written at {path}"),
        }
    }

    pub fn store(&self, store: &str) -> &StoreRecord {
        &self.view.stores[store].record
    }

    /// Changes an operator's definition in place.
    pub fn change_store(&mut self, store: &str, change: impl FnOnce(&mut StoreRecord)) {
        self.revision += 1;
        let entry = self.view.stores.get_mut(store).unwrap();
        change(&mut entry.record);
        entry.revision = self.revision;
    }

    /// An operator's request is carried out.
    pub fn request(
        &mut self,
        request: impl FnOnce(&ClusterView) -> Result<Change, OperatorError>,
    ) -> Result<(), OperatorError> {
        let change = request(&self.view)?;
        assert!(self.apply(&change));
        Ok(())
    }

    pub fn create(&mut self, store: &str) {
        self.define(StoreDefinition::batch(name(store))).unwrap();
    }

    /// An operator creates a store.
    pub fn define(&mut self, definition: StoreDefinition) -> Result<(), OperatorError> {
        self.request(|view| operator::create_store(view, definition, 7))
    }

    /// An operator creates a versioned store.
    pub fn define_versioned(&mut self, store: &str, change: &VersionedChange) -> Result<(), OperatorError> {
        let settings = operator::versioned_settings(&self.view, None, change)?;
        self.define(StoreDefinition::versioned(name(store), settings))
    }

    /// An operator alters a store.
    pub fn alter(&mut self, store: &str, change: &StoreChange) -> Result<(), OperatorError> {
        self.request(|view| operator::alter_store(view, &name(store), change, 9))
    }

    /// An operator drops a store, whose data is not kept.
    pub fn drop_store(&mut self, store: &str) {
        self.request(|view| operator::drop_store(view, &name(store), 8, 0))
            .unwrap();
    }

    /// An operator begins a push. Returns the version.
    pub fn push(&mut self, store: &str, build: &str) -> VersionNumber {
        self.push_on(store, build, operator::PushTerms::default())
    }

    /// The same, on these terms.
    pub fn push_on(&mut self, store: &str, build: &str, terms: operator::PushTerms) -> VersionNumber {
        let detail = VersionDetail {
            partitions: self.view.partitions().unwrap(),
            ..detail(build)
        };
        self.request(|view| operator::push(view, &name(store), detail, terms, 8))
            .unwrap();
        self.store(store).pushing().unwrap()
    }

    /// An operator cancels the push under way.
    pub fn cancel_push(&mut self, store: &str) {
        self.request(|view| operator::cancel_push(view, &name(store), None, 9))
            .unwrap();
    }

    /// An operator makes a version current.
    pub fn swap(&mut self, store: &str, version: VersionNumber) {
        let change = operator::swap(&self.view, &name(store), version).unwrap().unwrap();
        assert!(self.apply(&change));
    }

    /// An operator goes back to the version before the current one.
    pub fn roll_back(&mut self, store: &str) {
        let change = operator::roll_back(&self.view, &name(store), None).unwrap().unwrap();
        assert!(self.apply(&change));
    }

    /// An operator has a plan made. Returns its number.
    pub fn propose(&mut self, request: &PlanRequest) -> Result<u64, OperatorError> {
        let costs = MoveCosts {
            bytes: &|_| 100,
            rates: [0, 0],
        };
        let now_unix_ms = self.now_unix_ms();
        let (plan, change) = operator::propose_plan(&self.view, request, &costs, now_unix_ms)?;
        assert!(self.apply(&change));
        Ok(plan.number)
    }

    /// An operator has a plan made, and run; the leader begins its first moves.
    pub fn run(&mut self, request: &PlanRequest) -> u64 {
        let number = self.propose(request).unwrap();
        self.request(|view| operator::run_plan(view, number)).unwrap();
        self.settle();
        number
    }

    /// An operator cancels the plan under way.
    pub fn cancel_plan(&mut self) {
        self.request(|view| operator::cancel_plan(view, None, 10)).unwrap();
    }

    /// The routing table is changed, whatever the leader decides.
    pub fn change_table(&mut self, change: impl FnOnce(&RoutingTable) -> RoutingTable) {
        self.revision += 1;
        let record = change(self.table());
        let revision = self.revision;
        self.view.routing = Some(Revised { record, revision });
    }

    pub fn table(&self) -> &RoutingTable {
        &self.view.routing.as_ref().unwrap().record
    }

    /// A node reports.
    pub fn report(&mut self, number: u32, store: &str, version: VersionNumber, replica: ReplicaReport) {
        let epoch = self.view.routing.as_ref().unwrap().record.epoch();
        let record = self.view.stores[store].record.clone();
        let replicas = self.view.replicas(&record) as u32;
        let report = self.view.reports.entry(node(number)).or_default();
        report.epoch = epoch;
        let of_store = report.stores.entry(name(store)).or_insert_with(|| StoreReport {
            id: record.id,
            replicas,
            swaps: 0,
            versions: Default::default(),
            lacking: Default::default(),
            held: 0,
            keys: 0,
            bytes: 0,
        });
        (of_store.id, of_store.replicas) = (record.id, replicas);
        of_store.swaps = record.versions.swaps();
        of_store.versions.insert(version, replica);
    }

    /// A node reports that it knows the present table.
    pub fn knows(&mut self, number: u32) {
        let epoch = self.table().epoch();
        self.view.reports.entry(node(number)).or_default().epoch = epoch;
    }

    pub fn ready(&mut self, numbers: impl IntoIterator<Item = u32>, store: &str, version: VersionNumber) {
        for number in numbers {
            self.report(number, store, version, ReplicaReport::of(ReplicaState::Ready));
        }
    }

    /// A version is pushed to all of this number of nodes, and becomes current.
    pub fn pushed(&mut self, nodes: u32, store: &str, build: &str) -> VersionNumber {
        let version = self.push(store, build);
        self.ready(1..=nodes, store, version);
        self.settle();
        assert_eq!(self.store(store).versions.current(), Some(version));
        version
    }
}
