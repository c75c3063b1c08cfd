//! Writes, case by case: the replicas that take them, the copies that are required, and the error otherwise.

use std::sync::Arc;

use fondaco_client::ClientError;
use fondaco_client::quorum::{Home, Intent, QuorumPart};
use fondaco_client::read::{Steering, SteeringPolicy};
use fondaco_model::versioned::{Handoff, Record, Resolution, TIME_UNIX_MS_MAX, Update, resolve};
use fondaco_protocol::replica::{PutOver, ReplicaCommand, ReplicaErrorCode, ReplicaOperation};

use super::script::{begin_put, begin_write, first_key, get, no_quorum, put, value, values, with_value, written};
use super::world::{Shape, World, id};

#[test]
fn a_write_goes_to_one_replica_and_then_all_others() {
    let mut world = World::new(1, &Shape::three(), Some(2));
    let key = first_key();
    let (at, written) = put(&mut world, &key, "v");
    let asked = world.asked(at);
    assert_eq!(
        asked.nodes(ReplicaCommand::Get),
        [2, 1],
        "the contexts of a read quorum, the local replica first"
    );
    assert_eq!(asked.nodes(ReplicaCommand::Put), [2]);
    assert_eq!(asked.nodes(ReplicaCommand::Merge), [1, 3]);
    assert_eq!(world.holders(&key, &written.unwrap().context, false), 3);
}

#[test]
fn a_write_replaces_values_that_only_other_replicas_have() {
    // Nodes 1 and 3 have the value, and node 2, which lacks it, takes the next write.
    let mut world = World::new(1, &Shape::three(), Some(2));
    let key = first_key();
    world.refuse(2, "FONDACO.RPUT", ReplicaErrorCode::Overloaded);
    world.refuse(2, "FONDACO.RMERGE", ReplicaErrorCode::Overloaded);
    put(&mut world, &key, "old").1.unwrap();
    assert!(!world.replicas[&id(2)].records.contains_key(key.key()));
    world.replica(2).refuses.clear();
    put(&mut world, &key, "new").1.unwrap();
    assert_eq!(values(&world.healed(&key)), ["new"]);
}

#[test]
fn the_next_replica_takes_a_write_that_the_first_refuses() {
    let mut world = World::new(1, &Shape::three(), None);
    let key = first_key();
    world.refuse(1, "FONDACO.RPUT", ReplicaErrorCode::DiskFull);
    let (at, written) = put(&mut world, &key, "v");
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [1, 2]);
    assert_eq!(world.holders(&key, &written.unwrap().context, false), 3);
    // A replica that has not answered its context is not asked to take the write first.
    world.replica(1).is_up = false;
    let (at, written) = put(&mut world, &key, "w");
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [1, 2, 3]);
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [2]);
    assert_eq!(world.holders(&key, &written.unwrap().context, false), 2);
}

/// A retry budget of one in ten writes.
fn few_retries() -> Steering {
    Steering::new(&SteeringPolicy {
        retry_stock_max: 1,
        ..SteeringPolicy::default()
    })
}

#[test]
fn a_full_local_disk_does_not_prevent_writes() {
    let mut world = World::new(1, &Shape::three(), Some(2));
    world.caller.steering = few_retries();
    let key = first_key();
    for command in ["FONDACO.RPUT", "FONDACO.RMERGE"] {
        world.refuse(2, command, ReplicaErrorCode::DiskFull);
    }
    for number in 0..100 {
        let (at, written) = put(&mut world, &key, &number.to_string());
        assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [2, 1]);
        assert_eq!(world.holders(&key, &written.unwrap().context, false), 2);
    }
}

#[test]
fn a_write_error_names_replicas_that_were_not_asked() {
    let mut world = World::new(1, &Shape::three(), Some(2));
    world.caller.steering = few_retries();
    let key = first_key();
    world.refuse(2, "FONDACO.RPUT", ReplicaErrorCode::Overloaded);
    let failed = (0..100).find_map(|_| match put(&mut world, &key, "v").1 {
        Ok(_) => None,
        failed => Some(no_quorum(failed)),
    });
    let failed = failed.expect("retries are bounded");
    let why = |number: u32| {
        let missing = failed.missing.iter().find(|missing| missing.node == id(number));
        missing.unwrap().why.to_string()
    };
    assert!(why(2).starts_with("said"), "{}", why(2));
    assert!(
        why(1).starts_with("was not asked: too many requests fail"),
        "{}",
        why(1)
    );
    assert_eq!(why(3), "was not asked");
}

/// A write that node 1 carries out only after a later write was acknowledged.
fn overtaken(late: Update) -> Record {
    let (mut world, key) = with_value(&Shape::three(), None);
    world.replica(1).late_us.insert("FONDACO.RPUT", 400_000);
    let at = begin_write(&mut world, &key, Intent::All, late);
    world.answer(at);
    written(&mut world, at).unwrap();
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [1, 2]);
    world.replica(1).late_us.clear();
    let next = begin_put(&mut world, &key, "next");
    world.answer(next);
    written(&mut world, next).unwrap();
    assert!(world.now_us < 400_000, "the first write is still on its way");
    world.finish();
    world.catch_up();
    world.healed(&key)
}

#[test]
fn a_late_write_replaces_no_newer_value() {
    let record = overtaken(Update::put("late".into(), 1, None));
    assert_eq!(values(&record), ["late", "next"], "they are siblings");
    let latest = resolve(&record, Resolution::Latest, 0);
    assert_eq!(*latest.value().unwrap(), "next", "and older");
}

#[test]
fn a_late_deletion_or_expired_value_hides_no_newer_value() {
    for late in [Update::delete(1), Update::put("brief".into(), 1, Some(2))] {
        let record = overtaken(late);
        for resolution in [Resolution::Latest, Resolution::All] {
            let resolved = resolve(&record, resolution, 3);
            assert_eq!(*resolved.values, ["next"], "{resolution}");
        }
    }
}

#[test]
fn all_replicas_asked_to_take_a_write_get_the_same() {
    let (mut world, key) = with_value(&Shape::three(), None);
    // Node 2 reports late a write that only it has, when node 1 may have taken this one already.
    let update = Update::put("elsewhere".into(), TIME_UNIX_MS_MAX, None);
    let elsewhere = world.write_at(2, &key, update);
    world.replica(2).late_us.insert("FONDACO.RGET", 300_000);
    world.replica(1).late_us.insert("FONDACO.RPUT", 700_000);
    let (at, written) = put(&mut world, &key, "v");
    let written = written.unwrap().context;
    let asked = world.asked(at);
    assert_eq!(asked.nodes(ReplicaCommand::Get), [1, 2, 3]);
    let puts = asked.list.iter().filter_map(|(node, _, operation)| match operation {
        ReplicaOperation::Put { context, update, .. } => Some((node.get(), context, update)),
        _ => None,
    });
    let [(1, first, update), (second, again, same)] = puts.collect::<Vec<_>>()[..] else {
        panic!("{asked:?}");
    };
    assert!([2, 3].contains(&second));
    assert_eq!((first, update), (again, same));
    assert!(!first.covers_all(&elsewhere));
    assert!(world.replica(second).records[key.key()].context().covers_all(&written));
}

#[test]
fn a_single_replica_is_overwritten_without_a_context_read() {
    let mut world = World::new(1, &Shape::of(2, 1), None);
    let key = first_key();
    for text in ["one", "two"] {
        let (at, written) = put(&mut world, &key, text);
        written.unwrap();
        let asked = world.asked(at);
        assert_eq!(asked.list.len(), 1);
        let (_, _, ReplicaOperation::Put { over, .. }) = &asked.list[0] else {
            panic!("{asked:?}");
        };
        assert_eq!(*over, PutOver::All);
    }
    assert_eq!(values(&world.healed(&key)), ["two"]);
}

#[test]
fn a_write_waits_for_a_slow_replica_only_if_needed() {
    let mut world = World::new(1, &Shape::three(), Some(1));
    let key = first_key();
    world.replica(3).delay_us = 10_000_000;
    let began_us = world.now_us;
    let at = begin_put(&mut world, &key, "v");
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
fn a_write_waits_briefly_for_preferred_replicas() {
    let shape = Shape::three().with(|settings| (settings.writes, settings.preferred_writes) = (1, 3));
    for (delay_us, took_us) in [(5_000, 5_000..9_000), (100_000, 10_000..15_000)] {
        let mut world = World::new(1, &shape, Some(1));
        let key = first_key();
        world.replica(3).delay_us = delay_us;
        let began_us = world.now_us;
        let at = begin_put(&mut world, &key, "v");
        world.answer(at);
        written(&mut world, at).unwrap();
        let lasted_us = world.now_us - began_us;
        assert!(took_us.contains(&lasted_us), "{lasted_us} us for {delay_us}");
    }
}

#[test]
fn a_failed_write_names_the_missing_replicas() {
    let shape = Shape::three().with(|settings| settings.handoff = Handoff::None);
    let mut world = World::new(1, &shape, Some(1));
    let key = first_key();
    world.replica(3).is_up = false;
    world.refuse(2, "FONDACO.RMERGE", ReplicaErrorCode::DiskFull);
    let shortfall = no_quorum(put(&mut world, &key, "v").1);
    assert_eq!(
        (shortfall.part, shortfall.had, shortfall.required),
        (QuorumPart::Writes, 1, 2)
    );
    assert_eq!(
        shortfall.to_string(),
        "1 of 2 writes: node 2 (10.0.0.2:6500) said \"DISKFULL as the test says\", node 3 (10.0.0.3:6500) cannot be \
         reached (there is no connection); it may have been written to some, and be read later"
    );
    assert_eq!(world.caller.counts.read().no_quorum, 1);
    assert_eq!(values(&world.healed(&key)), ["v"], "it may be read from now on");
}

#[test]
fn a_pending_replica_counts_in_the_error_of_a_write() {
    let mut world = World::new(1, &Shape::three(), None);
    world.replica(1).is_up = false;
    world.replica(3).is_up = false;
    world.replica(2).delay_us = 5_000;
    let shortfall = no_quorum(put(&mut world, &first_key(), "v").1);
    let missing: Vec<u32> = shortfall.missing.iter().map(|missing| missing.node.get()).collect();
    assert_eq!((shortfall.part, shortfall.had), (QuorumPart::Reads, 1), "{shortfall}");
    assert_eq!(missing, [1, 3]);
}

#[test]
fn one_refusal_ends_a_write() {
    let mut world = World::new(1, &Shape::three(), None);
    let key = first_key();
    for number in 1..=3 {
        world.refuse(number, "FONDACO.RGET", ReplicaErrorCode::Refused);
    }
    let (at, written) = put(&mut world, &key, "v");
    assert!(matches!(written, Err(ClientError::Refused { .. })), "{written:?}");
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [0; 0]);
    let (_, record) = get(&mut world, &key);
    assert!(matches!(record, Err(ClientError::Refused { .. })), "{record:?}");
}

#[test]
fn an_exhausted_quota_ends_a_write_not_taken_elsewhere() {
    for may_have_taken_it in [false, true] {
        let mut world = World::new(1, &Shape::three(), Some(1));
        let key = first_key();
        if may_have_taken_it {
            world.replica(1).late_us.insert("FONDACO.RPUT", 700_000);
        }
        for number in 1 + u32::from(may_have_taken_it)..=3 {
            world.refuse(number, "FONDACO.RPUT", ReplicaErrorCode::Quota);
        }
        let (at, written) = put(&mut world, &key, "v");
        let asked = world.asked(at).nodes(ReplicaCommand::Put);
        match may_have_taken_it {
            true => {
                assert!(asked.len() > 1, "{asked:?}");
                written.unwrap();
            }
            false => {
                assert_eq!(asked.len(), 1);
                assert!(matches!(written, Err(ClientError::Refused { .. })), "{written:?}");
            }
        }
    }
}

#[test]
fn other_zones_must_answer_if_the_settings_require_it() {
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
    let at = begin_put(&mut world, &key, "v");
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
    let said = shortfall.to_string();
    assert!(
        said.starts_with("2 of 1 writes and 0 of 1 other zones (none in \"zone-1\"): node 2 (10.0.0.2:6500) "),
        "{said}"
    );
}

#[test]
fn a_home_zone_without_nodes_is_not_counted() {
    let shape = Shape::of(4, 4).zones(2).with(|settings| {
        (settings.reads, settings.writes, settings.zone_writes) = (1, 1, 1);
        settings.handoff = Handoff::None;
    });
    for zone in [None, Some("nowhere")] {
        let mut world = World::new(1, &shape, None);
        world.home = Arc::new(Home::of(&shape.topology(|_| true), None, zone));
        assert_eq!(world.home.zone, None);
        let key = first_key();
        put(&mut world, &key, "v").1.unwrap();
        // Nodes 1 and 3 are in one zone.
        for lost in [2, 4] {
            world.replica(lost).is_up = false;
        }
        let shortfall = no_quorum(put(&mut world, &key, "w").1);
        assert_eq!(
            (shortfall.part, shortfall.had, shortfall.zones_had),
            (QuorumPart::Writes, 2, 0)
        );
        assert_eq!(shortfall.zones_missing, ["zone-1".into()]);
    }
    let topology = shape.topology(|_| true);
    let home = |node, zone| Home::of(&topology, node, zone).zone;
    assert_eq!(home(Some(id(2)), None).as_deref(), Some("zone-1"));
    assert_eq!(home(Some(id(2)), Some("zone-0")).as_deref(), Some("zone-0"));
}

#[test]
fn a_write_keeps_values_that_its_context_does_not_cover() {
    let (mut world, key) = with_value(&Shape::three(), None);
    let context = get(&mut world, &key).1.unwrap().context().clone();
    for text in ["one", "two"] {
        let update = value(&world, text);
        let at = begin_write(&mut world, &key, Intent::Context(context.clone()), update);
        world.answer(at);
        written(&mut world, at).unwrap();
        world.finish();
        assert_eq!(
            world.asked(at).nodes(ReplicaCommand::Get),
            [0; 0],
            "no read is needed before it"
        );
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
