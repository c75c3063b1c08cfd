//! Sets whose members are records of their own: read by one scan, and compared as all records are.

use std::collections::BTreeSet;
use std::time::Duration;

use fondaco_ids::Members;
use fondaco_model::member;
use fondaco_model::versioned::Update;
use fondaco_protocol::replica::{Held, RecordPart, ReplicaError, ReplicaOperation, ReplicaReply};
use fondaco_replica::ReplicaOptions;
use fondaco_testing::until;

use crate::cluster::{Cluster, ask, merging, now_unix_ms, put, quiet, value};

const SETS: [&str; 3] = ["out:KNOWS{7}", "out:KNOWS{70}", "in:KNOWS{7}"];

/// The state that a node knows of the members of a set.
fn members(cluster: &Cluster, node: u32, set: &str) -> Result<Members, ReplicaError> {
    let operation = ReplicaOperation::Get {
        part: RecordPart::Members,
        keys: vec![set.to_owned().into()],
    };
    match ask(cluster.node(node), operation) {
        ReplicaReply::Records(mut found) => match found.pop().unwrap()? {
            Held::Nothing => Ok(Members::default()),
            Held::Record(members) => Ok(Members::parse(&members).unwrap()),
            Held::Same => panic!("nothing is known"),
        },
        other => panic!("{other:?}"),
    }
}

fn key(set: &str, id: u64) -> String {
    String::from_utf8(member::key(set.as_bytes(), id)).unwrap()
}

#[test]
fn replicas_come_to_know_the_same_members() {
    let options = ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    };
    let cluster = Cluster::in_memory(3, 4, &options);
    let mut random = fastrand::Rng::with_seed(3);
    let mut expected = SETS.map(|_| (BTreeSet::new(), BTreeSet::new()));
    for _ in 0..600 {
        let (at, id) = (random.usize(..SETS.len()), random.u64(..100));
        let (present, removed) = &mut expected[at];
        let is_added = random.u8(..3) > 0;
        let update = match is_added {
            true => value("1"),
            false => Update::delete(now_unix_ms()),
        };
        // One node gets the write, and maybe another one; the third has to learn of it.
        let node = random.u32(..3);
        let record = put(cluster.node(node + 1), &key(SETS[at], id), update);
        ask(cluster.node((node + 1) % 3 + 1), merging(&key(SETS[at], id), record));
        let (to, from) = if is_added {
            (present, removed)
        } else {
            (removed, present)
        };
        from.remove(&id);
        to.insert(id);
        // So that the next write of the key is after this one on all nodes.
        let record = cluster.record(node + 1, &key(SETS[at], id)).unwrap();
        ask(
            cluster.node((node + 2) % 3 + 1),
            merging(&key(SETS[at], id), record.to_bytes().into()),
        );
    }
    // A string that is no member is not taken for one.
    put(cluster.node(1), SETS[0], value("no member"));
    put(cluster.node(1), "vertex{7}", value("no member"));
    for (set, (present, removed)) in SETS.iter().zip(&expected) {
        let expected = Members {
            present: present.iter().copied().collect(),
            removed: removed.iter().copied().collect(),
        };
        until("all know the members", || {
            (1..=3).all(|node| members(&cluster, node, set).is_ok_and(|found| found == expected))
        });
    }
    assert_eq!(members(&cluster, 1, "out:KNOWS{8}").unwrap(), Members::default());
}

#[test]
fn a_replica_that_missed_a_large_set_receives_it() {
    const IDS: u64 = 3000;
    let options = ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    };
    let cluster = Cluster::in_memory(2, 4, &options);
    cluster.network.cut(crate::cluster::node(2));
    for id in 0..IDS {
        put(cluster.node(1), &key(SETS[0], id * id), value("1"));
    }
    assert_eq!(members(&cluster, 2, SETS[0]).unwrap(), Members::default());
    cluster.network.mend(crate::cluster::node(2));
    let all: Vec<u64> = (0..IDS).map(|id| id * id).collect();
    until("node 2 has the set", || {
        members(&cluster, 2, SETS[0]).is_ok_and(|found| found.present == all)
    });
}
