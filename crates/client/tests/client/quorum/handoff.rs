//! Hinted handoff: which node keeps a hint for a replica that does not take a write, and when the hint counts.

use fondaco_client::quorum::QuorumPart;
use fondaco_model::versioned::Handoff;
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{ReplicaCommand, ReplicaErrorCode};

use super::script::{begin_put, first_key, no_quorum, put, values, written};
use super::world::{Shape, World, id, key};

/// Five nodes; 1, 2 and 3 own the key.
fn five(handoff: Handoff, sloppy: bool) -> (World, WireKey) {
    let shape = Shape::of(5, 3).with(|settings| (settings.handoff, settings.sloppy) = (handoff, sloppy));
    let partitions = shape.topology(|_| true).partitions;
    let keys = (0..).map(|number: u32| key(&format!("key-{number}")));
    let of_first = |key: &WireKey| partitions.partition_of(key.slot()).get() == 0;
    let key = { keys }.find(of_first).unwrap();
    (World::new(1, &shape, Some(1)), key)
}

#[test]
fn a_hint_is_kept_for_a_missed_write() {
    for handoff in [Handoff::Consistent, Handoff::Any, Handoff::Proximity] {
        let (mut world, key) = five(handoff, false);
        world.replica(3).is_up = false;
        let (at, written) = put(&mut world, &key, "v");
        written.unwrap();
        let [(3, keeper)] = world.asked(at).hints()[..] else {
            panic!("{:?}", world.asked(at).hints());
        };
        assert!(
            [4, 5].contains(&keeper),
            "{handoff}: a node without a copy of its own, not {keeper}"
        );
        let hints = &world.replicas[&id(keeper)].hints;
        assert_eq!(values(&hints[&(id(3), key.as_bytes().slice_ref(key.key()))]), ["v"]);
        assert_eq!(world.caller.counts.read().hints, 1);
    }
}

#[test]
fn a_slow_replica_gets_a_hint_after_the_acknowledgement() {
    let (mut world, key) = five(Handoff::Consistent, false);
    world.replica(2).delay_us = 10_000_000;
    let at = begin_put(&mut world, &key, "v");
    world.answer(at);
    written(&mut world, at).unwrap();
    assert_eq!(world.asked(at).hints(), []);
    world.finish();
    assert_eq!(world.asked(at).hints(), [(2, 4)]);
}

#[test]
fn another_node_keeps_the_hint_if_the_first_refuses() {
    let (mut world, key) = five(Handoff::Consistent, false);
    world.replica(3).is_up = false;
    world.refuse(4, "FONDACO.RHINT", ReplicaErrorCode::DiskFull);
    let (at, written) = put(&mut world, &key, "v");
    written.unwrap();
    assert_eq!(world.asked(at).hints(), [(3, 4), (3, 5)]);
    assert_eq!(world.replicas[&id(5)].hints.len(), 1);
}

#[test]
fn hints_count_only_in_a_sloppy_quorum() {
    for sloppy in [false, true] {
        let (mut world, key) = five(Handoff::Consistent, sloppy);
        world.replica(2).is_up = false;
        world.replica(3).is_up = false;
        let (at, written) = put(&mut world, &key, "v");
        match sloppy {
            // The contexts of two replicas cannot be read: nothing is written.
            false => {
                assert_eq!(no_quorum(written).part, QuorumPart::Reads);
                assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [0; 0]);
            }
            true => assert!(world.holders(&key, &written.unwrap().context, true) >= 2),
        }
    }
    for sloppy in [false, true] {
        let (mut world, key) = five(Handoff::Consistent, sloppy);
        for number in [2, 3] {
            world.refuse(number, "FONDACO.RMERGE", ReplicaErrorCode::DiskFull);
        }
        let (at, written) = put(&mut world, &key, "v");
        let mut hints = world.asked(at).hints();
        hints.sort_unstable();
        match sloppy {
            false => assert_eq!(no_quorum(written).had, 1),
            true => {
                assert!(world.holders(&key, &written.unwrap().context, true) >= 2);
                assert_eq!(hints.iter().map(|hint| hint.0).collect::<Vec<_>>(), [2, 3]);
            }
        }
    }
}

/// Nodes 1 and 4, 2 and 5, 3 and 6 each share a zone; 1 and 2 own the key, and node 1 writes. All nodes in the zone of
/// 2 are down.
fn lost_zone(handoff: Handoff, sloppy: bool) -> (World, WireKey) {
    let shape = Shape::of(6, 2).zones(3).with(|settings| {
        (settings.handoff, settings.sloppy) = (handoff, sloppy);
        (settings.reads, settings.writes, settings.zone_writes) = (1, 2, 1);
    });
    let mut world = World::new(1, &shape, Some(1));
    for lost in [2, 5] {
        world.replica(lost).is_up = false;
    }
    (world, first_key())
}

#[test]
fn a_hint_counts_for_the_zone_of_its_keeper() {
    for handoff in [Handoff::Consistent, Handoff::Any, Handoff::Proximity] {
        let (mut world, key) = lost_zone(handoff, true);
        let (at, written) = put(&mut world, &key, "v");
        written.unwrap();
        let hints = world.asked(at).hints();
        assert!(
            matches!(hints.last(), Some((2, 3 | 6))),
            "{handoff}: in the third zone, not {hints:?}"
        );
    }
}

#[test]
fn a_hint_counts_for_no_zone_in_a_strict_quorum() {
    let (mut world, key) = lost_zone(Handoff::Proximity, false);
    let at = begin_put(&mut world, &key, "v");
    world.answer(at);
    let shortfall = no_quorum(written(&mut world, at));
    assert_eq!((shortfall.had, shortfall.zones_had), (1, 0));
    assert_eq!(shortfall.zones_missing, ["zone-1".into()]);
}

#[test]
fn two_hints_on_one_node_are_one_copy() {
    let shape = Shape::three().with(|settings| {
        (settings.reads, settings.preferred_reads) = (1, 1);
        settings.sloppy = true;
    });
    let mut world = World::new(1, &shape, Some(1));
    world.replica(2).is_up = false;
    world.replica(3).is_up = false;
    let (at, written) = put(&mut world, &key("k"), "v");
    let shortfall = no_quorum(written);
    assert_eq!(
        (shortfall.had, shortfall.required),
        (1, 2),
        "{:?}",
        world.asked(at).hints()
    );
}

#[test]
fn without_handoff_no_hints_are_kept() {
    let (mut world, key) = five(Handoff::None, false);
    world.replica(3).is_up = false;
    let (at, written) = put(&mut world, &key, "v");
    written.unwrap();
    assert_eq!(world.asked(at).hints(), []);
    assert_eq!(world.caller.counts.read().hints_failed, 0);
}

#[test]
fn a_former_replica_gets_no_hint() {
    let (mut world, key) = five(Handoff::Consistent, false);
    world.refuse(3, "FONDACO.RMERGE", ReplicaErrorCode::NotHere);
    let (at, written) = put(&mut world, &key, "v");
    written.unwrap();
    assert_eq!(world.asked(at).hints(), []);
}
