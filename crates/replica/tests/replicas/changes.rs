//! Clients that follow the changes of partitions, at any replica.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::{Engine, LogEngine, LogOptions};
use fondaco_model::versioned::{Record, Update, VersionedSettings};
use fondaco_model::{NodeId, PartitionCount, PartitionId};
use fondaco_protocol::replica::{ReplicaOperation, ReplicaReply};
use fondaco_replica::{ChangePosition, Changes, ChangesError, ChangesFrom, ReplicaOptions};
use fondaco_testing::until;

use crate::cluster::{Cluster, STORE_ID, ask, merging, node, now_unix_ms, pair, put, quiet, settings_of, value};

/// All comparisons, continuously.
fn busy() -> ReplicaOptions {
    ReplicaOptions {
        exchange_period: Duration::from_millis(30),
        ..quiet()
    }
}

fn in_a_log(dir: &Path) -> Arc<dyn Engine> {
    Arc::new(LogEngine::open(&dir.join("engine"), LogOptions::default()).unwrap())
}

/// A client that follows all partitions, and keeps its positions as bytes.
pub struct Follower {
    from: BTreeMap<u32, ChangesFrom>,
    partitions: PartitionCount,
    /// The last record of each key.
    pub last: BTreeMap<Bytes, Record>,
    /// All changes: the node that returned each, its key and its record.
    pub all: Vec<(u32, Bytes, Record)>,
}

impl Follower {
    pub fn new(cluster: &Cluster, from: &ChangesFrom) -> Self {
        let partitions = cluster.table.partitions();
        let all = partitions.partitions().map(|partition| (partition.get(), from.clone()));
        Self {
            from: all.collect(),
            partitions,
            last: BTreeMap::new(),
            all: Vec::new(),
        }
    }

    /// After splits: positions of a partition are positions of its halves.
    fn follow_splits(&mut self, partitions: PartitionCount) {
        let from = |partition: PartitionId| {
            let known = self.partitions.covering(partition, partitions);
            (partition.get(), self.from[&known.get()].clone())
        };
        self.from = partitions.partitions().map(from).collect();
        self.partitions = partitions;
    }

    /// Reads a partition at a node once. The client may stop after any change.
    pub fn read(
        &mut self,
        cluster: &Cluster,
        number: u32,
        partition: u32,
        count: usize,
        stop_after: Option<usize>,
    ) -> Result<Changes, ChangesError> {
        let of = (self.partitions, PartitionId::new(partition));
        let read = cluster
            .node(number)
            .changes(STORE_ID, of, &self.from[&partition], count)?;
        let mut position = &read.position;
        for change in read.changes.iter().take(stop_after.unwrap_or(usize::MAX)) {
            self.last.insert(change.key.clone(), change.record.clone());
            self.all.push((number, change.key.clone(), change.record.clone()));
            if stop_after.is_some() {
                position = &change.position;
            }
        }
        if stop_after.is_none_or(|_| !read.changes.is_empty()) {
            let kept = ChangePosition::decode(&position.to_bytes()).unwrap();
            self.from.insert(partition, ChangesFrom::After(kept));
        }
        Ok(read)
    }

    /// Reads all partitions at a node to their ends.
    pub fn read_all(&mut self, cluster: &Cluster, number: u32) {
        self.follow_splits(cluster.table.partitions());
        for partition in self.partitions.partitions() {
            while !self.read(cluster, number, partition.get(), 100, None).unwrap().is_end {}
        }
    }

    /// Each change of a key at one node has seen those before.
    fn assert_order(&self) {
        let mut before: BTreeMap<&Bytes, (u32, &Record)> = BTreeMap::new();
        for (number, key, record) in &self.all {
            if let Some((earlier_number, earlier)) = before.insert(key, (*number, record))
                && earlier_number == *number
            {
                let is_later = record.context().covers_all(earlier.context());
                assert!(is_later, "{key:?} at node {number}: {record:?} after {earlier:?}");
            }
        }
    }
}

/// The records that a node has.
pub fn records(cluster: &Cluster, number: u32) -> BTreeMap<Bytes, Record> {
    let partitions = cluster.table.partitions();
    let page = |partition| {
        let replicas = cluster.node(number);
        let page = replicas.records_page(STORE_ID, (partitions, partition), None, None, usize::MAX);
        page.unwrap().map_or_else(Vec::new, |page| page.records)
    };
    let all = partitions.partitions().flat_map(page);
    all.map(|pair| (pair.key, Record::decode(pair.record).unwrap()))
        .collect()
}

fn names(changes: &[(u32, Bytes, Record)]) -> Vec<&str> {
    changes
        .iter()
        .map(|(_, key, _)| std::str::from_utf8(key).unwrap())
        .collect()
}

#[test]
fn each_change_of_a_node_is_returned_once() {
    let cluster = Cluster::in_memory(1, 2, &quiet());
    for number in 0..500 {
        put(
            cluster.node(1),
            &format!("k{}", number % 200),
            value(&number.to_string()),
        );
    }
    let mut follower = Follower::new(&cluster, &ChangesFrom::Start);
    let mut random = fastrand::Rng::with_seed(7);
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            for number in 500..3000 {
                let update = match number % 7 {
                    0 => Update::delete(now_unix_ms()),
                    _ => value(&number.to_string()),
                };
                put(cluster.node(1), &format!("k{}", number * 17 % 200), update);
            }
        });
        // In small steps, so that the scan takes as long as the writes.
        while !writes.is_finished() {
            for partition in 0..2 {
                let stop_after = random.bool().then(|| random.usize(1..4));
                follower
                    .read(&cluster, 1, partition, random.usize(1..5), stop_after)
                    .unwrap();
            }
        }
    });
    follower.read_all(&cluster, 1);
    follower.assert_order();
    assert_eq!(follower.last, records(&cluster, 1));
    let mut seen = BTreeSet::new();
    for (_, key, record) in &follower.all {
        let newest = record.siblings().iter().map(|sibling| sibling.dot).max();
        assert!(seen.insert((key, newest)), "{key:?} was returned twice: {record:?}");
    }
    assert!(follower.all.len() >= 200, "{}", follower.all.len());
}

#[test]
fn a_waiting_client_is_woken_by_a_change() {
    let cluster = Cluster::in_memory(1, 1, &quiet());
    put(cluster.node(1), "before", value("a"));
    let mut follower = Follower::new(&cluster, &ChangesFrom::Now);
    let mut read = follower.read(&cluster, 1, 0, 10, None).unwrap();
    assert!(read.changes.is_empty() && read.is_end);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let wait =
        |read: &mut Changes, time| runtime.block_on(async { tokio::time::timeout(time, read.wait()).await.is_ok() });
    assert!(!wait(&mut read, Duration::from_millis(50)));
    put(cluster.node(1), "k", value("b"));
    assert!(wait(&mut read, Duration::from_secs(60)));
    let mut read = follower.read(&cluster, 1, 0, 10, None).unwrap();
    assert_eq!(names(&follower.all), ["k"]);
    // A write that changes no record wakes no waiter.
    let known = cluster.record(1, "k").unwrap().to_bytes();
    ask(cluster.node(1), merging("k", known.into()));
    assert!(!wait(&mut read, Duration::from_millis(50)));
}

#[test]
fn what_all_replicas_have_is_not_returned_again() {
    let mut cluster = Cluster::of(3, 2, &busy(), in_a_log);
    for number in 0..300 {
        let key = format!("k{number}");
        let record = put(cluster.node(number % 3 + 1), &key, value("a"));
        if number % 2 == 0 {
            ask(cluster.node((number + 1) % 3 + 1), merging(&key, record));
        }
    }
    let mut follower = Follower::new(&cluster, &ChangesFrom::Start);
    until("the records at the first replica", || {
        follower.read_all(&cluster, 1);
        follower.last.len() == 300
    });
    // The positions cover them after some comparisons.
    until("coverage", || {
        follower.read_all(&cluster, 1);
        let mut elsewhere = Follower::new(&cluster, &ChangesFrom::Start);
        elsewhere.from = follower.from.clone();
        elsewhere.read_all(&cluster, 2);
        elsewhere.all.is_empty()
    });
    follower.all.clear();
    put(cluster.node(3), "k7", value("b"));
    until("the change", || {
        follower.read_all(&cluster, 3);
        !follower.all.is_empty()
    });
    assert_eq!(names(&follower.all), ["k7"]);
    // Its log is gone, and so are those of the others.
    for number in 1..=3 {
        cluster.stop(node(number));
        cluster.start(node(number), &busy(), in_a_log);
    }
    cluster.tell();
    put(cluster.node(3), "k8", value("b"));
    follower.read_all(&cluster, 3);
    let last: BTreeSet<&str> = names(&follower.all).into_iter().collect();
    assert_eq!(last, BTreeSet::from(["k7", "k8"]));
}

#[test]
fn the_preparation_of_a_large_partition_continues_from_read_to_read() {
    let options = ReplicaOptions {
        changes_examined_max: 10,
        ..busy()
    };
    let cluster = Cluster::in_memory(2, 1, &options);
    for number in 0..300 {
        let key = format!("k{number}");
        let record = put(cluster.node(1), &key, value("a"));
        ask(cluster.node(2), merging(&key, record));
    }
    let mut follower = Follower::new(&cluster, &ChangesFrom::Now);
    follower.read(&cluster, 1, 0, 100, None).unwrap();
    put(cluster.node(1), "new", value("a"));
    let mut reads = 0;
    until("coverage", || {
        follower.read(&cluster, 1, 0, 100, None).unwrap();
        reads += 1;
        assert_eq!(names(&follower.all), ["new"], "changes do not wait for the preparation");
        let mut elsewhere = Follower::new(&cluster, &ChangesFrom::Start);
        elsewhere.from = follower.from.clone();
        elsewhere.read_all(&cluster, 2);
        elsewhere.all.is_empty()
    });
    assert!(reads >= 29, "{reads} reads scanned 300 records");
    let mut all = Follower::new(&cluster, &ChangesFrom::Start);
    all.read_all(&cluster, 1);
    assert_eq!(all.last, records(&cluster, 1));
}

#[test]
fn a_store_can_be_followed_from_now_and_from_a_time() {
    let cluster = Cluster::in_memory(2, 1, &quiet());
    let hour_ms = 3_600_000;
    put(
        cluster.node(1),
        "old",
        Update::put("a".into(), now_unix_ms() - 2 * hour_ms, None),
    );
    put(cluster.node(1), "new", value("a"));
    let follow = |from| {
        let mut follower = Follower::new(&cluster, &from);
        follower.read_all(&cluster, 1);
        put(cluster.node(1), "next", value("a"));
        // If the replica changes early, only writes of that time are sent again.
        let mut elsewhere = Follower::new(&cluster, &from);
        elsewhere.from = follower.from.clone();
        for (key, record) in records(&cluster, 1) {
            let key = String::from_utf8(key.to_vec()).unwrap();
            ask(cluster.node(2), merging(&key, record.to_bytes().into()));
        }
        elsewhere.read_all(&cluster, 2);
        follower.read_all(&cluster, 1);
        let sorted = |follower: &Follower| {
            let keys = follower.last.keys().map(|key| String::from_utf8(key.to_vec()).unwrap());
            keys.collect::<Vec<_>>()
        };
        (sorted(&follower), sorted(&elsewhere))
    };
    let (followed, elsewhere) = follow(ChangesFrom::Now);
    assert_eq!(followed, ["next"]);
    assert!(!elsewhere.contains(&"old".to_owned()), "{elsewhere:?}");
    let since = ChangesFrom::Since(now_unix_ms() - hour_ms);
    assert_eq!(
        follow(since),
        (vec!["new".into(), "next".into()], vec!["new".into(), "next".into()])
    );
    assert_eq!(follow(ChangesFrom::Start).0, ["new", "next", "old"]);
}

#[test]
fn positions_are_refused_when_deletions_may_be_forgotten() {
    let mut cluster = Cluster::in_memory(2, 1, &busy());
    cluster.settings = VersionedSettings {
        tombstone_grace_ms: 4000,
        ..cluster.settings
    };
    cluster.tell();
    put(cluster.node(1), "k", value("a"));
    let mut follower = Follower::new(&cluster, &ChangesFrom::Start);
    follower.read_all(&cluster, 1);
    let kept = follower.from.clone();
    let other = |from: &BTreeMap<u32, ChangesFrom>| {
        let mut elsewhere = Follower::new(&cluster, &ChangesFrom::Start);
        elsewhere.from = from.clone();
        elsewhere.read(&cluster, 2, 0, 10, None).map(drop)
    };
    assert_eq!(other(&kept), Ok(()));
    until("the end of three quarters of the grace period", || {
        other(&kept).is_err()
    });
    assert!(matches!(other(&kept), Err(ChangesError::TooFarBehind { .. })));
    // Where it was read, it is still known; and the new position is young.
    until("a young position", || {
        follower.read_all(&cluster, 1);
        other(&follower.from).is_ok()
    });
    assert!(matches!(
        other(&BTreeMap::from([(0, ChangesFrom::Since(now_unix_ms() - 4000))])),
        Err(ChangesError::TooFarBehind { .. })
    ));
}

#[test]
fn a_slow_client_scans_what_the_log_has_forgotten() {
    const MIB: usize = 1 << 20;
    let cluster = Cluster::in_memory(1, 1, &quiet());
    let mut follower = Follower::new(&cluster, &ChangesFrom::Start);
    put(cluster.node(1), "known", value("a"));
    follower.read_all(&cluster, 1);
    put(cluster.node(1), "k0", value("a"));
    let mut scanning = Follower::new(&cluster, &ChangesFrom::Start);
    scanning.read(&cluster, 1, 0, 1, None).unwrap();
    let long = Bytes::from(vec![b'v'; MIB]);
    for number in 0..70 {
        let update = Update::put(long.clone(), now_unix_ms(), None);
        put(cluster.node(1), &format!("k{number}"), update);
    }
    follower.all.clear();
    follower.read_all(&cluster, 1);
    let returned: BTreeSet<&str> = names(&follower.all).into_iter().collect();
    assert_eq!((returned.len(), returned.contains("known")), (70, false));
    // A scan that is overtaken cannot go on.
    let outcome = scanning.read(&cluster, 1, 0, 1, None).map(drop);
    assert!(matches!(outcome, Err(ChangesError::TooFarBehind { .. })), "{outcome:?}");
}

#[test]
fn stores_that_evict_and_nodes_that_own_nothing_are_not_followed() {
    let cluster = Cluster::forgetting(1, 1, &quiet());
    let mut follower = Follower::new(&cluster, &ChangesFrom::Start);
    let outcome = follower.read(&cluster, 1, 0, 10, None).map(drop);
    assert!(matches!(outcome, Err(ChangesError::Evicts { .. })), "{outcome:?}");
    let mut cluster = Cluster::in_memory(2, 1, &quiet());
    cluster.replicas = 1;
    cluster.tell();
    let mut follower = Follower::new(&cluster, &ChangesFrom::Start);
    let outcome = follower.read(&cluster, 2, 0, 10, None).map(drop);
    assert!(matches!(outcome, Err(ChangesError::NotHere { .. })), "{outcome:?}");
    let mut read = follower.read(&cluster, 1, 0, 10, None).unwrap();
    // The partition is split: clients are woken, and have to ask for the halves.
    cluster.table = Arc::new(cluster.table.split().unwrap());
    cluster.tell();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), read.wait())
            .await
            .unwrap()
    });
    let outcome = follower.read(&cluster, 1, 0, 10, None).map(drop);
    assert!(matches!(outcome, Err(ChangesError::NotHere { .. })), "{outcome:?}");
    follower.read_all(&cluster, 1);
}

/// One random history: replicas miss writes, get them as hints or by comparisons, restart, split and move their partitions, and are
/// cut off, while a client follows at any of them, and stops after any change.
fn follow_history(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut cluster = Cluster::of(4, 2, &busy(), in_a_log);
    cluster.replicas = 3;
    cluster.settings = settings_of(3);
    cluster.tell();
    let mut follower = Follower::new(&cluster, &ChangesFrom::Start);
    let (mut cut, mut is_moving) = (None, false);
    for step in 0..700 {
        let number = random.u32(1..=4);
        match random.u32(0..1000) {
            0..600 => write(&cluster, &mut random, number, step, cut),
            600..940 => {
                follower.follow_splits(cluster.table.partitions());
                let partition = random.u32(0..cluster.table.partitions().get());
                let stop_after = random.bool().then(|| random.usize(1..20));
                match follower.read(&cluster, number, partition, random.usize(1..50), stop_after) {
                    Ok(_) | Err(ChangesError::NotHere { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            940..960 => {
                if let Some(node) = cut.take() {
                    cluster.network.mend(node);
                } else {
                    cluster.network.cut(node(number));
                    cut = Some(node(number));
                }
            }
            960..975 => {
                cluster.stop(node(number));
                cluster.start(node(number), &busy(), in_a_log);
                cluster.tell();
            }
            975..980 if cluster.table.partitions().get() < 8 && !is_moving => {
                cluster.table = Arc::new(cluster.table.split().unwrap());
                cluster.tell();
            }
            980.. if is_moving => is_moving = !finish(&mut cluster),
            980.. if cut.is_none() => {
                let mut owners: Vec<NodeId> = (1..=4).map(node).collect();
                random.shuffle(&mut owners);
                let partitions = cluster.table.partitions().get() as usize;
                let planned = cluster.table.with_plan(vec![owners; partitions]);
                if let Ok(planned) = planned {
                    cluster.table = Arc::new(planned);
                    cluster.tell();
                    is_moving = true;
                }
            }
            _ => {}
        }
    }
    cut.iter().for_each(|&node| cluster.network.mend(node));
    until("the end of moves", || !is_moving || finish(&mut cluster));
    // Every record is at every owner, and nowhere else.
    until("equal replicas", || {
        let mut partitions = cluster.table.partitions().partitions();
        partitions.all(|partition| {
            let owners = cluster.table.owners(partition).iter().take(cluster.replicas);
            let pages = owners.map(|owner| {
                let of = (cluster.table.partitions(), partition);
                let page = cluster.nodes[owner].records_page(STORE_ID, of, None, None, usize::MAX);
                page.unwrap().map(|page| page.records)
            });
            let pages: Vec<_> = pages.collect();
            pages.iter().all(|page| page.is_some() && *page == pages[0])
        }) && cluster.nodes.values().all(|replicas| {
            let status = replicas.status(STORE_ID).unwrap();
            status.surplus == 0 && replicas.hinted_nodes() == 0
        })
    });
    follower.follow_splits(cluster.table.partitions());
    let mut expected = BTreeMap::new();
    for partition in cluster.table.partitions().partitions() {
        let owners = &cluster.table.owners(partition)[..cluster.replicas];
        let owner = owners[random.usize(0..owners.len())].get();
        until("the end of the changes", || {
            follower
                .read(&cluster, owner, partition.get(), 100, None)
                .unwrap()
                .is_end
        });
        expected.extend(records(&cluster, owner));
    }
    follower.assert_order();
    let values = |records: &BTreeMap<Bytes, Record>| -> BTreeMap<Bytes, Vec<_>> {
        records
            .iter()
            .map(|(key, record)| (key.clone(), record.siblings().to_vec()))
            .collect()
    };
    assert_eq!(values(&follower.last), values(&expected), "seed {seed}");
    assert!(expected.len() > 30, "seed {seed}: {} keys", expected.len());
}

/// Writes a key at a node, if it owns it. Others get the record at once, as a hint, or later by a comparison.
fn write(cluster: &Cluster, random: &mut fastrand::Rng, number: u32, step: u32, cut: Option<NodeId>) {
    let key = format!("k{}", random.u32(0..60));
    let update = match random.u32(0..5) {
        0 => Update::delete(now_unix_ms()),
        _ => value(&step.to_string()),
    };
    let ReplicaReply::Written(record) = ask(cluster.node(number), crate::cluster::putting(&key, update)) else {
        return;
    };
    for other in (1..=4).filter(|&other| other != number) {
        let is_cut = [number, other].iter().any(|&number| cut == Some(node(number)));
        match random.u32(0..3) {
            0 if !is_cut => drop(ask(cluster.node(other), merging(&key, record.clone()))),
            1 if is_cut => {
                let operation = ReplicaOperation::Hint {
                    target: node(other),
                    records: vec![pair(&key, record.clone())],
                };
                ask(cluster.node(number), operation);
            }
            _ => {}
        }
    }
}

/// Finishes the plan in progress once all next owners are synchronised. Returns whether it did.
fn finish(cluster: &mut Cluster) -> bool {
    let is_synchronised = |partition: PartitionId| {
        let next = cluster.table.next(partition).unwrap_or_default();
        next.iter().take(cluster.replicas).all(|next| {
            let status = cluster.nodes[next].status(STORE_ID).unwrap();
            status.synchronised.contains(partition)
        })
    };
    if !cluster.table.partitions().partitions().all(is_synchronised) {
        return false;
    }
    cluster.table = Arc::new(cluster.table.finished());
    cluster.tell();
    true
}

#[test]
fn a_follower_ends_with_what_the_replicas_have() {
    let mut seeds = fondaco_testing::random("followers of changes");
    for _ in 0..4 {
        follow_history(seeds.u64(..));
    }
}
