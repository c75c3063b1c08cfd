//! Reads, case by case: the nodes that are asked, the answers that are required, and the error otherwise.

use fondaco_client::ClientError;
use fondaco_client::quorum::{Intent, QuorumPart};
use fondaco_model::versioned::{Handoff, Record};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{Known, KnownKey, ReplicaCommand, ReplicaErrorCode, ReplicaOperation};

use super::script::{begin_get, begin_write, get, no_quorum, put, read, value, values, with_value, written};
use super::world::{Shape, World, id, key};

#[test]
fn a_read_asks_the_preferred_number_of_nearest_replicas() {
    let shape = Shape::three();
    let (mut world, key) = with_value(&shape, Some(3));
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    assert_eq!(
        world.asked(at).nodes(ReplicaCommand::Get),
        [3, 1],
        "the local replica, and the next one"
    );

    let (mut world, key) = with_value(&Shape::three().with(|settings| settings.preferred_reads = 3), None);
    let (at, _) = get(&mut world, &key);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [1, 2, 3]);

    let zones = Shape::three().zones(3).with(|settings| settings.reads = 1);
    let (mut world, key) = with_value(&zones.with(|settings| settings.preferred_reads = 1), Some(2));
    let (at, _) = get(&mut world, &key);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [2]);
}

#[test]
fn others_need_not_send_the_local_record() {
    let (mut world, key) = with_value(&Shape::three(), Some(1));
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    let digest = |world: &World, number| {
        let record = world.replicas[&id(number)].records[key.key()].to_bytes();
        Record::stated_digest(&record)
    };
    let other_than = |world: &World| ReplicaOperation::GetOther {
        keys: vec![KnownKey {
            key: key.key().to_vec().into(),
            known: Known::Digest(digest(world, 1)),
        }],
    };
    let asked = &world.asked(at).list;
    assert!(matches!(&asked[0], (node, _, ReplicaOperation::Get { .. }) if *node == id(1)));
    let second = (id(2), ReplicaCommand::Get, other_than(&world));
    assert_eq!(asked[1..], [second], "no replica needs a repair");

    // Values that another replica has in addition are sent, and merged.
    let update = value(&world, "new");
    world.write_at(2, &key, update);
    let known = other_than(&world);
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["new"]);
    let asked = &world.asked(at).list;
    assert_eq!(asked[1], (id(2), ReplicaCommand::Get, known));
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Merge), [1]);
    assert_eq!(digest(&world, 1), digest(&world, 2));

    // A replica without the record reports that, and gets it.
    world.replica(2).records.clear();
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["new"]);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Merge), [2]);
}

/// The nodes that were asked for a record, or only for its digest; and the known digest, if one was sent.
fn questions(world: &World, at: usize) -> Vec<(u32, Known)> {
    let known = |operation: &ReplicaOperation| match operation {
        ReplicaOperation::Get { .. } => Some(Known::Nothing),
        ReplicaOperation::GetOther { keys } => Some(keys[0].known),
        _ => None,
    };
    let asked = world.asked(at).list.iter();
    asked
        .filter_map(|(node, _, operation)| Some((node.get(), known(operation)?)))
        .collect()
}

#[test]
fn only_one_of_concurrent_requests_returns_the_record() {
    let (mut world, key) = with_value(&Shape::three(), None);
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    assert_eq!(questions(&world, at), [(1, Known::Nothing), (2, Known::Awaited)]);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Merge), [0; 0]);

    // All three replicas are needed, and have the same record.
    let (mut world, key) = with_value(&Shape::three().with(|settings| settings.reads = 3), None);
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    let asked = [(1, Known::Nothing), (2, Known::Awaited), (3, Known::Awaited)];
    assert_eq!(questions(&world, at), asked);

    // If not all replicas are needed, any of them may be late.
    let (mut world, key) = with_value(&Shape::three().with(|settings| settings.preferred_reads = 3), None);
    let (at, _) = get(&mut world, &key);
    assert!(questions(&world, at).iter().all(|asked| asked.1 == Known::Nothing));
}

#[test]
fn a_replica_with_another_digest_is_asked_for_its_record() {
    for late in [1, 2] {
        let (mut world, key) = with_value(&Shape::three(), None);
        let update = value(&world, "new");
        world.write_at(2, &key, update);
        world.replica(late).delay_us = 1_000;
        let known = Record::stated_digest(&world.replicas[&id(1)].records[key.key()].to_bytes());
        let (at, record) = get(&mut world, &key);
        assert_eq!(values(&record.unwrap()), ["new"]);
        let asked = [(1, Known::Nothing), (2, Known::Awaited), (2, Known::Digest(known))];
        assert_eq!(questions(&world, at), asked);
        assert_eq!(world.asked(at).nodes(ReplicaCommand::Merge), [1]);
    }
    // There is no local record to compare with.
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).records.clear();
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    let asked = [(1, Known::Nothing), (2, Known::Awaited), (2, Known::Nothing)];
    assert_eq!(questions(&world, at), asked);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Merge), [1]);
    // No replica has a record.
    world.replicas.values_mut().for_each(|replica| replica.records.clear());
    let (at, record) = get(&mut world, &key);
    assert!(record.unwrap().is_empty());
    assert_eq!(questions(&world, at), [(1, Known::Nothing), (2, Known::Awaited)]);
}

#[test]
fn another_replica_sends_the_record_if_the_first_fails() {
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).is_up = false;
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    let asked = [(1, Known::Nothing), (2, Known::Awaited), (3, Known::Nothing)];
    assert_eq!(questions(&world, at), asked);

    // It may still answer, but the read does not wait for it: no other replica is left.
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).delay_us = 700_000;
    world.replica(3).is_up = false;
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    let asked = questions(&world, at);
    assert_eq!(asked[..2], [(1, Known::Nothing), (2, Known::Awaited)]);
    assert!(asked[2..].contains(&(2, Known::Nothing)), "{asked:?}");
}

#[test]
fn another_replica_is_asked_for_each_failed_one() {
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).is_up = false;
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [1, 2, 3]);
}

#[test]
fn another_replica_is_asked_for_each_slow_one() {
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(2).delay_us = 10_000_000;
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [1, 2, 3]);
    assert!((500_000..600_000).contains(&world.now_us), "half of the deadline");
}

#[test]
fn a_failed_read_names_the_missing_replicas() {
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).is_up = false;
    world.refuse(3, "FONDACO.RGET", ReplicaErrorCode::Corrupt);
    world.replica(3).delay_us = 5_000;
    let shortfall = no_quorum(get(&mut world, &key).1);
    assert_eq!(
        (shortfall.part, shortfall.had, shortfall.required),
        (QuorumPart::Reads, 1, 2)
    );
    assert_eq!(
        ClientError::NoQuorum(shortfall).to_string(),
        "1 of 2 reads: node 1 (10.0.0.1:6500) cannot be reached (there is no connection), node 3 (10.0.0.3:6500) \
         said \"CORRUPT as the test says\""
    );
}

#[test]
fn a_pending_replica_counts_in_the_error_of_a_read() {
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).is_up = false;
    world.replica(3).is_up = false;
    world.replica(2).delay_us = 5_000;
    let began_us = world.now_us;
    let shortfall = no_quorum(get(&mut world, &key).1);
    assert!(world.now_us - began_us < 5_000, "the read does not wait for it");
    let missing: Vec<u32> = shortfall.missing.iter().map(|missing| missing.node.get()).collect();
    assert_eq!((shortfall.had, shortfall.required, missing), (1, 2, vec![1, 3]));

    // A replica that does not answer in time counts as missing.
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).is_up = false;
    world.replica(2).delay_us = 10_000_000;
    world.replica(3).delay_us = 10_000_000;
    let shortfall = no_quorum(get(&mut world, &key).1);
    assert_eq!((shortfall.had, shortfall.missing.len()), (0, 3));
}

#[test]
fn a_read_of_many_keys_asks_each_node_once() {
    let mut world = World::new(1, &Shape::of(4, 2), None);
    let keys: Vec<WireKey> = (0..40u32)
        .map(|number| key(&format!("{}", number * 1_000_003)))
        .collect();
    for key in &keys {
        put(&mut world, key, "v").1.unwrap();
    }
    let at = begin_get(&mut world, &keys);
    world.answer(at);
    assert!(
        read(&mut world, at)
            .iter()
            .all(|record| values(record.as_ref().unwrap()) == ["v"])
    );
    let mut asked = world.asked(at).nodes(ReplicaCommand::Get);
    asked.sort_unstable();
    assert_eq!(asked, [1, 2, 3, 4]);

    world.replica(4).is_up = false;
    let at = begin_get(&mut world, &keys);
    world.answer(at);
    let owners = world.caller.directory.topology().owners.clone();
    let partitions = world.caller.directory.topology().partitions;
    for (key, record) in keys.iter().zip(read(&mut world, at)) {
        let is_on_4 = owners[partitions.partition_of(key.slot()).get() as usize].contains(&id(4));
        match is_on_4 {
            true => assert_eq!(no_quorum(record).required, 2),
            false => assert_eq!(values(&record.unwrap()), ["v"]),
        }
    }
}

#[test]
fn a_key_that_no_replica_has_is_missing() {
    let mut world = World::new(1, &Shape::three(), None);
    assert!(get(&mut world, &key("absent")).1.unwrap().is_empty());
}

#[test]
fn a_replica_with_a_damaged_record_is_repaired() {
    let (mut world, key) = with_value(&Shape::three(), Some(1));
    let read = ReplicaCommand::Get.name();
    world.refuse(1, read, ReplicaErrorCode::Corrupt);
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Merge), [1]);
    // A key that no replica has needs no repair.
    let (at, record) = get(&mut world, &WireKey::parse("s:absent".into()).unwrap());
    assert!(record.unwrap().is_empty());
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Merge), [0; 0]);
}

#[test]
fn only_replicas_with_older_records_get_the_merged_record() {
    let shape = Shape::three().with(|settings| {
        (settings.reads, settings.writes) = (3, 1);
        (settings.preferred_reads, settings.preferred_writes) = (3, 1);
        settings.handoff = Handoff::None;
    });
    let (mut world, key) = with_value(&shape, None);
    let (at, _) = get(&mut world, &key);
    assert_eq!(
        world.asked(at).nodes(ReplicaCommand::Merge),
        [0; 0],
        "all have the same"
    );
    // Two replicas each have a value that the other lacks, and one lacks both.
    let context = world.replicas[&id(1)].records[key.key()].context().clone();
    for (number, text) in [(1, "one"), (2, "two")] {
        let update = value(&world, text);
        for other in 1..=3 {
            world.replica(other).is_up = other == number;
        }
        let at = begin_write(&mut world, &key, Intent::Context(context.clone()), update);
        world.answer(at);
        written(&mut world, at).unwrap();
        world.finish();
    }
    for number in 1..=3 {
        world.replica(number).is_up = true;
    }
    let (at, record) = get(&mut world, &key);
    let record = record.unwrap();
    assert_eq!(values(&record), ["one", "two"]);
    let mut repaired = world.asked(at).nodes(ReplicaCommand::Merge);
    repaired.sort_unstable();
    assert_eq!(repaired, [1, 2, 3]);
    assert!(
        world
            .replicas
            .values()
            .all(|replica| replica.records[key.key()] == record)
    );
    assert_eq!(world.caller.counts.read().repairs, 3);
}
