//! Old topologies, and absent nodes.

use fondaco_client::ClientError;
use fondaco_client::quorum::Intent;
use fondaco_model::versioned::VectorClock;
use fondaco_protocol::replica::{ReplicaCommand, ReplicaErrorCode};

use super::script::{begin_get, begin_put, begin_write, first_key, no_quorum, put, read, value, values, written};
use super::world::{Shape, World, id};

/// Moves each partition to the owners of the next one.
fn move_on(world: &mut World, shape: &Shape) {
    let mut topology = shape.topology(|_| true);
    topology.epoch = 2;
    topology.owners.rotate_left(1);
    world.adopt(topology);
}

#[test]
fn an_operation_continues_under_a_newer_topology() {
    let shape = Shape::of(4, 2);
    let mut world = World::new(1, &shape, None);
    let key = first_key();
    // Its owners were 1 and 2; it has moved to 3 and 4, and the coordinator does not know.
    for number in [1, 2] {
        for command in ["FONDACO.RGET", "FONDACO.RPUT", "FONDACO.RMERGE"] {
            world.refuse(number, command, ReplicaErrorCode::NotHere);
        }
    }
    let reading = begin_get(&mut world, std::slice::from_ref(&key));
    let writing = begin_put(&mut world, &key, "v");
    while world.now_us < 100_000 {
        assert_eq!(
            world.step(),
            Some(Vec::new()),
            "no node has it, and both operations wait"
        );
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
fn a_write_at_a_former_replica_causes_no_conflict() {
    let shape = Shape::of(4, 3);
    let (mut world, key) = (World::new(1, &shape, None), first_key());
    // Node 1 takes the write, but its answer comes too late. Then node 1 is not a replica any more, and one of the new
    // replicas has received the write.
    world.replica(1).delay_us = 10_000_000;
    let update = value(&world, "new");
    let at = begin_write(&mut world, &key, Intent::Unchanged(VectorClock::new()), update);
    let taken = world.replicas[&id(1)].records[key.key()].clone();
    world.replica(2).records.insert(key.key().to_vec().into(), taken);
    move_on(&mut world, &shape);
    world.finish();
    no_quorum(written(&mut world, at));
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [1, 2]);
    assert_eq!(values(&world.healed(&key)), ["new"]);
}

#[test]
fn a_write_over_all_goes_to_no_second_replica() {
    let shape = Shape::of(2, 1);
    let (mut world, key) = (World::new(1, &shape, None), first_key());
    world.replica(1).delay_us = 10_000_000;
    let at = begin_put(&mut world, &key, "v");
    move_on(&mut world, &shape);
    world.finish();
    no_quorum(written(&mut world, at));
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [1]);
    // The first replica did not take it, but the other one does.
    let (mut world, key) = (World::new(1, &shape, None), first_key());
    world.refuse(1, "FONDACO.RPUT", ReplicaErrorCode::NotHere);
    let at = begin_put(&mut world, &key, "v");
    while world.now_us < 5_000 {
        world.step();
    }
    move_on(&mut world, &shape);
    world.finish();
    written(&mut world, at).unwrap();
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put).last(), Some(&2));
}

#[test]
fn a_store_dropped_meanwhile_is_unknown() {
    let shape = Shape::three();
    let mut world = World::new(1, &shape, None);
    let key = first_key();
    for number in 1..=3 {
        for command in ["FONDACO.RGET", "FONDACO.RPUT"] {
            world.refuse(number, command, ReplicaErrorCode::NoStore);
        }
    }
    let reading = begin_get(&mut world, std::slice::from_ref(&key));
    let writing = begin_put(&mut world, &key, "v");
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

#[test]
fn absent_nodes_are_asked_only_if_needed() {
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
fn a_replica_asked_twice_counts_once() {
    let shape = Shape::of(4, 3);
    let (mut world, key) = (World::new(1, &shape, None), first_key());
    world.replica(1).delay_us = 200_000;
    for number in 2..=4 {
        let replica = world.replica(number);
        replica.refuses.insert("FONDACO.RGET", ReplicaErrorCode::NotHere);
    }
    let at = begin_get(&mut world, std::slice::from_ref(&key));
    while world.now_us < 50_000 {
        world.step();
    }
    move_on(&mut world, &shape);
    while world.now_us < 100_000 {
        world.step();
    }
    let mut topology = shape.topology(|_| true);
    topology.epoch = 3;
    world.adopt(topology);
    world.answer(at);
    let of_first = world.asked(at).nodes(ReplicaCommand::Get).into_iter();
    assert_eq!(of_first.filter(|&node| node == 1).count(), 2);
    let shortfall = no_quorum(read(&mut world, at).pop().unwrap());
    assert_eq!((shortfall.had, shortfall.required), (1, 2));
}
