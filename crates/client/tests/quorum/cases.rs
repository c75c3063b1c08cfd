//! The cases that there are, each by itself: who is asked, who must answer, and what is said when they do not.

use fondaco_client::quorum::{Edit, Expiry, Intent, QuorumPart, ReplicaCommand, ReplicaErrorCode};
use fondaco_client::{ClientError, WireKey};
use fondaco_model::versioned::{self, Handoff, Resolution, resolve};

use crate::script::{begin_get, begin_update, begin_write, get, no_quorum, put, read, updated, value, values, written};
use crate::world::{Shape, World, id, key};

/// A key of which node 1 is the first owner, 2 the second, and so on.
fn first_key() -> WireKey {
    let (shape, text) = (Shape::three(), |number: u32| key(&format!("key-{number}")));
    let partitions = shape.topology(|_| true).partitions;
    let of_first = |key: &WireKey| partitions.partition_of(key.slot()).get() == 0;
    (0..).map(text).find(of_first).unwrap()
}

/// A world in which a key has a value everywhere.
fn with_value(shape: &Shape, home: Option<u32>) -> (World, WireKey) {
    let (mut world, key) = (World::new(1, shape, home), first_key());
    put(&mut world, &key, "old").1.unwrap();
    for replica in world.replicas.values_mut() {
        replica.hints.clear();
    }
    (world, key)
}

#[test]
fn a_read_asks_as_many_as_are_preferred_and_the_nearest_first() {
    let shape = Shape::three();
    let (mut world, key) = with_value(&shape, Some(3));
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    assert_eq!(
        world.asked(at).nodes(ReplicaCommand::Get),
        [1, 3],
        "its own replica, and the next"
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
fn another_replica_is_asked_for_each_that_fails_and_no_more() {
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).is_up = false;
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [1, 2, 3]);
}

#[test]
fn another_replica_is_asked_for_each_that_takes_too_long() {
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(2).delay_us = 10_000_000;
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["old"]);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [1, 2, 3]);
    assert!((500_000..600_000).contains(&world.now_us), "half of the deadline");
}

#[test]
fn a_read_without_enough_replicas_says_who_was_missing_and_why() {
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).is_up = false;
    world
        .replica(3)
        .refuses
        .insert("FONDACO.RGET", ReplicaErrorCode::Corrupt);
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
fn a_read_of_many_keys_asks_each_node_once_and_answers_those_that_it_can() {
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
    let owners = world.directory.topology().owners.clone();
    let partitions = world.directory.topology().partitions;
    for (key, record) in keys.iter().zip(read(&mut world, at)) {
        let is_on_4 = owners[partitions.partition_of(key.slot()).get() as usize].contains(&id(4));
        match is_on_4 {
            true => assert_eq!(no_quorum(record).required, 2),
            false => assert_eq!(values(&record.unwrap()), ["v"]),
        }
    }
}

#[test]
fn a_key_that_no_replica_has_is_not_there() {
    let mut world = World::new(1, &Shape::three(), None);
    assert!(get(&mut world, &key("absent")).1.unwrap().is_empty());
}

#[test]
fn replicas_that_answered_less_get_the_join_and_others_nothing() {
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
    // Each of two has a value that the other has not, and one has neither.
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
    assert_eq!(world.counts.read().repairs, 3);
}

#[test]
fn a_write_goes_to_one_replica_first_and_then_to_all_others() {
    let mut world = World::new(1, &Shape::three(), Some(2));
    let key = first_key();
    let (at, written) = put(&mut world, &key, "v");
    let asked = world.asked(at);
    assert_eq!(
        asked.nodes(ReplicaCommand::Get),
        [1],
        "with its own replica a read quorum"
    );
    assert_eq!(asked.nodes(ReplicaCommand::Put), [2], "its own replica first");
    assert_eq!(asked.nodes(ReplicaCommand::Merge), [1, 3]);
    assert_eq!(world.holders(&key, &written.unwrap().context, false), 3);
}

#[test]
fn a_write_takes_the_place_of_what_is_only_on_other_replicas() {
    // Nodes 1 and 3 have it, and node 2, which has not, takes the next write.
    let mut world = World::new(1, &Shape::three(), Some(2));
    let key = first_key();
    world
        .replica(2)
        .refuses
        .insert("FONDACO.RPUT", ReplicaErrorCode::Overloaded);
    world
        .replica(2)
        .refuses
        .insert("FONDACO.RMERGE", ReplicaErrorCode::Overloaded);
    put(&mut world, &key, "old").1.unwrap();
    assert!(!world.replicas[&id(2)].records.contains_key(key.key()));
    world.replica(2).refuses.clear();
    put(&mut world, &key, "new").1.unwrap();
    assert_eq!(values(&world.healed(&key)), ["new"]);
}

#[test]
fn the_next_replica_takes_the_write_when_the_first_does_not() {
    let mut world = World::new(1, &Shape::three(), None);
    let key = first_key();
    world.replica(1).is_up = false;
    let (at, written) = put(&mut world, &key, "v");
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [1, 2]);
    assert_eq!(world.holders(&key, &written.unwrap().context, false), 2);
    // The context is of two replicas with the one that takes the write, whichever that is.
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [2, 3]);
}

#[test]
fn a_slow_replica_is_waited_for_only_where_it_is_needed() {
    let mut world = World::new(1, &Shape::three(), Some(1));
    let key = first_key();
    world.replica(3).delay_us = 10_000_000;
    let began_us = world.now_us;
    let at = crate::script::begin_put(&mut world, &key, "v");
    world.answer(at);
    written(&mut world, at).unwrap();
    assert!(world.now_us - began_us < 5_000, "two of three are enough");
    world.finish();

    let all = Shape::three().with(|settings| (settings.writes, settings.preferred_writes) = (3, 3));
    let mut world = World::new(1, &all, Some(1));
    world.replica(3).delay_us = 10_000_000;
    let shortfall = no_quorum(put(&mut world, &key, "v").1);
    assert_eq!((shortfall.had, shortfall.required), (2, 3));
    assert_eq!(&*shortfall.missing[0].why, "timed out");
}

#[test]
fn preferred_replicas_are_waited_for_a_little() {
    let shape = Shape::three().with(|settings| (settings.writes, settings.preferred_writes) = (1, 3));
    for (delay_us, took_us) in [(5_000, 5_000..9_000), (100_000, 10_000..15_000)] {
        let mut world = World::new(1, &shape, Some(1));
        let key = first_key();
        world.replica(3).delay_us = delay_us;
        let began_us = world.now_us;
        let at = crate::script::begin_put(&mut world, &key, "v");
        world.answer(at);
        written(&mut world, at).unwrap();
        let lasted_us = world.now_us - began_us;
        assert!(took_us.contains(&lasted_us), "{lasted_us} us for {delay_us}");
    }
}

#[test]
fn a_write_without_enough_replicas_fails_and_says_who_was_missing() {
    let shape = Shape::three().with(|settings| settings.handoff = Handoff::None);
    let mut world = World::new(1, &shape, Some(1));
    let key = first_key();
    world.replica(3).is_up = false;
    world
        .replica(2)
        .refuses
        .insert("FONDACO.RMERGE", ReplicaErrorCode::DiskFull);
    let shortfall = no_quorum(put(&mut world, &key, "v").1);
    assert_eq!(
        (shortfall.part, shortfall.had, shortfall.required),
        (QuorumPart::Writes, 1, 2)
    );
    assert_eq!(
        shortfall.to_string(),
        "1 of 2 writes: node 2 (10.0.0.2:6500) said \"DISKFULL as the test says\", node 3 (10.0.0.3:6500) cannot be \
         reached (there is no connection)"
    );
    assert_eq!(world.counts.read().no_quorum, 1);
    assert_eq!(values(&world.healed(&key)), ["v"], "it may be read from now on");
}

#[test]
fn nodes_that_the_cluster_does_not_see_are_asked_in_need_only() {
    let shape = Shape::three();
    let mut world = World::new(1, &shape, Some(1));
    let key = first_key();
    world.adopt(shape.topology(|node| node != id(2)));
    let (at, _) = put(&mut world, &key, "v");
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Merge), [3]);
    assert_eq!(world.asked(at).hints(), [(2, 3)]);
    world.adopt(shape.topology(|node| node == id(1)));
    let (at, written) = put(&mut world, &key, "w");
    written.unwrap();
    assert_eq!(
        world.asked(at).nodes(ReplicaCommand::Merge),
        [2],
        "as many as are needed"
    );
}

#[test]
fn who_refuses_speaks_for_all() {
    let mut world = World::new(1, &Shape::three(), None);
    let key = first_key();
    for number in 1..=3 {
        world
            .replica(number)
            .refuses
            .insert("FONDACO.RGET", ReplicaErrorCode::Refused);
    }
    let (at, written) = put(&mut world, &key, "v");
    assert!(matches!(written, Err(ClientError::Refused { .. })), "{written:?}");
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [0; 0]);
    let (_, record) = get(&mut world, &key);
    assert!(matches!(record, Err(ClientError::Refused { .. })), "{record:?}");
}

#[test]
fn other_zones_must_answer_where_the_settings_say_so() {
    let shape = Shape::of(4, 4).zones(2).with(|settings| {
        (settings.reads, settings.writes) = (1, 1);
        (settings.preferred_reads, settings.preferred_writes) = (1, 1);
        (settings.zone_reads, settings.zone_writes) = (1, 1);
    });
    // Nodes 1 and 3 are in one zone, 2 and 4 in the other.
    let mut world = World::new(1, &shape, Some(1));
    let key = first_key();
    world.replica(2).delay_us = 3_000;
    let began_us = world.now_us;
    let at = crate::script::begin_put(&mut world, &key, "v");
    world.replica(4).is_up = false;
    world.answer(at);
    written(&mut world, at).unwrap();
    assert!(
        world.now_us - began_us >= 3_000,
        "it was acknowledged in the other zone"
    );
    world.finish();
    let (at, record) = get(&mut world, &key);
    assert_eq!(values(&record.unwrap()), ["v"]);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [1, 2]);
    world.replica(2).is_up = false;
    world.replica(4).is_up = false;
    let shortfall = no_quorum(get(&mut world, &key).1);
    assert_eq!((shortfall.zones_had, shortfall.zones_required), (0, 1));
    let shortfall = no_quorum(put(&mut world, &key, "w").1);
    assert_eq!((shortfall.had, shortfall.zones_had), (2, 0));
}

#[test]
fn a_write_with_a_context_leaves_what_that_does_not_cover() {
    let (mut world, key) = with_value(&Shape::three(), None);
    let context = get(&mut world, &key).1.unwrap().context().clone();
    for text in ["one", "two"] {
        let update = value(&world, text);
        let at = begin_write(&mut world, &key, Intent::Context(context.clone()), update);
        world.answer(at);
        written(&mut world, at).unwrap();
        world.finish();
        assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [0; 0], "it was read before");
    }
    let record = get(&mut world, &key).1.unwrap();
    assert_eq!(values(&record), ["one", "two"]);
    let update = value(&world, "both");
    let at = begin_write(&mut world, &key, Intent::Context(record.context().clone()), update);
    world.finish();
    let context = written(&mut world, at).unwrap().context;
    let record = get(&mut world, &key).1.unwrap();
    assert_eq!((values(&record), record.context()), (vec!["both".to_owned()], &context));
}

#[test]
fn a_write_on_condition_fails_when_another_was_first() {
    let (mut world, key) = with_value(&Shape::three(), None);
    let context = get(&mut world, &key).1.unwrap().context().clone();
    put(&mut world, &key, "new").1.unwrap();
    let update = value(&world, "late");
    let at = begin_write(&mut world, &key, Intent::Unchanged(context), update);
    world.finish();
    assert!(matches!(written(&mut world, at), Err(ClientError::Conflict { .. })));
    assert_eq!(values(&world.healed(&key)), ["new"]);
}

#[test]
fn a_change_is_decided_on_what_is_there_and_may_be_none() {
    let (mut world, key) = with_value(&Shape::three(), Some(2));
    let at = begin_update(&mut world, &key, Box::new(|_, _| Edit::Keep));
    world.finish();
    let kept = updated(&mut world, at).unwrap();
    assert_eq!((values(&kept.before), kept.context), (vec!["old".to_owned()], None));
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [0; 0]);
    let at = begin_update(&mut world, &key, Box::new(|_, _| Edit::Delete));
    world.finish();
    assert!(updated(&mut world, at).unwrap().context.is_some());
    assert_eq!(
        world.asked(at).nodes(ReplicaCommand::Put),
        [1],
        "the first of the table, for all coordinators"
    );
    assert!(get(&mut world, &key).1.unwrap().is_deleted(u64::MAX));
}

#[test]
fn a_change_is_tried_again_on_what_another_wrote_meanwhile() {
    let (mut world, key) = with_value(&Shape::three(), Some(2));
    let append = || begin_update_of("+");
    let first = append()(&mut world, &key);
    let second = append()(&mut world, &key);
    world.finish();
    updated(&mut world, first).unwrap();
    updated(&mut world, second).unwrap();
    assert_eq!(values(&world.healed(&key)), ["old++"]);
    assert!(world.counts.read().conflicts >= 1);
}

fn begin_update_of(suffix: &'static str) -> impl Fn(&mut World, &WireKey) -> usize {
    move |world, key| {
        let decide = move |record: &versioned::Record, now| {
            let resolved = resolve(record, Resolution::Latest, now);
            let mut value = resolved.value().cloned().unwrap_or_default().to_vec();
            value.extend_from_slice(suffix.as_bytes());
            Edit::Put {
                value: value.into(),
                expiry: Expiry::Store,
            }
        };
        begin_update(world, key, Box::new(decide))
    }
}

#[test]
fn what_is_added_to_a_counter_is_written_without_reading_and_never_twice() {
    let shape = Shape::three().with(|settings| settings.resolution = Resolution::Counter);
    let mut world = World::new(1, &shape, Some(1));
    let key = first_key();
    let add = |world: &World| versioned::Update::add(5, world.moment().now_unix_ms, None);
    let update = add(&world);
    let at = begin_write(&mut world, &key, Intent::All, update);
    world.finish();
    written(&mut world, at).unwrap();
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [0; 0]);
    // Nobody knows whether it was added: it is not added once more.
    world.replica(1).delay_us = 10_000_000;
    let update = add(&world);
    let at = begin_write(&mut world, &key, Intent::All, update);
    world.finish();
    no_quorum(written(&mut world, at));
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [1]);
    let total = resolve(&world.healed(&key), Resolution::Counter, 0);
    assert_eq!(*total.value().unwrap(), "10");
}

#[test]
fn a_counter_is_set_to_a_number_and_keeps_what_was_added_meanwhile() {
    let shape = Shape::three().with(|settings| settings.resolution = Resolution::Counter);
    let mut world = World::new(1, &shape, Some(1));
    let key = first_key();
    let set = |_: &versioned::Record, _: u64| Edit::Put {
        value: "100".into(),
        expiry: Expiry::Store,
    };
    let setting = begin_update(&mut world, &key, Box::new(set));
    let update = versioned::Update::add(7, world.moment().now_unix_ms, None);
    let adding = begin_write(&mut world, &key, Intent::All, update);
    world.finish();
    updated(&mut world, setting).unwrap();
    written(&mut world, adding).unwrap();
    let total = resolve(&world.healed(&key), Resolution::Counter, 0);
    assert_eq!(*total.value().unwrap(), "107");
}

#[test]
fn an_old_topology_is_made_good_by_a_newer_one() {
    let shape = Shape::of(4, 2);
    let mut world = World::new(1, &shape, None);
    let key = first_key();
    // Its owners are 1 and 2; it has moved to 3 and 4, and nobody told.
    for number in [1, 2] {
        for command in ["FONDACO.RGET", "FONDACO.RPUT", "FONDACO.RMERGE"] {
            world.replica(number).refuses.insert(command, ReplicaErrorCode::NotHere);
        }
    }
    let reading = begin_get(&mut world, std::slice::from_ref(&key));
    let writing = crate::script::begin_put(&mut world, &key, "v");
    while world.now_us < 100_000 {
        assert_eq!(world.step(), Some(Vec::new()), "nobody has it, and both wait");
    }
    let mut topology = shape.topology(|_| true);
    topology.owners.rotate_left(2);
    world.adopt(topology);
    world.answer(reading);
    world.answer(writing);
    assert!(read(&mut world, reading).pop().unwrap().is_ok());
    written(&mut world, writing).unwrap();
    assert!(world.replicas[&id(3)].records.contains_key(key.key()));
    world.finish();
}

#[test]
fn a_store_that_is_dropped_meanwhile_is_unknown() {
    let shape = Shape::three();
    let mut world = World::new(1, &shape, None);
    let key = first_key();
    for number in 1..=3 {
        for command in ["FONDACO.RGET", "FONDACO.RPUT"] {
            world.replica(number).refuses.insert(command, ReplicaErrorCode::NoStore);
        }
    }
    let reading = begin_get(&mut world, std::slice::from_ref(&key));
    let writing = crate::script::begin_put(&mut world, &key, "v");
    while world.now_us < 20_000 {
        world.step();
    }
    let mut topology = shape.topology(|_| true);
    topology.stores.values_mut().for_each(|store| store.id = 9);
    world.adopt(topology);
    world.answer(reading);
    world.answer(writing);
    assert!(matches!(
        read(&mut world, reading)[0],
        Err(ClientError::UnknownStore { .. })
    ));
    assert!(matches!(
        written(&mut world, writing),
        Err(ClientError::UnknownStore { .. })
    ));
}
