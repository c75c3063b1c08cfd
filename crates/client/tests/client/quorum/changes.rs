//! Changes of existing values, and counters, with concurrent writes.

use fondaco_client::ClientError;
use fondaco_client::quorum::{AddedMeanwhile, Edit, EditOptions, Expiry, Intent};
use fondaco_model::versioned::{self, Resolution, resolve};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::ReplicaCommand;

use super::script::{
    begin_update, begin_update_with, begin_write, first_key, get, no_quorum, put, updated, value, values, with_value,
    written,
};
use super::world::{Shape, World, id, times};

#[test]
fn a_conditional_write_fails_after_another_write() {
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
fn a_change_sees_the_current_value_and_may_keep_it() {
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
        "the first owner of the routing table, for all coordinators"
    );
    assert!(get(&mut world, &key).1.unwrap().is_deleted(u64::MAX));
}

#[test]
fn a_change_is_retried_on_a_concurrent_write() {
    let (mut world, key) = with_value(&Shape::three(), Some(2));
    let append = || begin_update_of("+");
    let first = append()(&mut world, &key);
    let second = append()(&mut world, &key);
    world.finish();
    updated(&mut world, first).unwrap();
    updated(&mut world, second).unwrap();
    assert_eq!(values(&world.healed(&key)), ["old++"]);
    assert!(world.caller.counts.read().conflicts >= 1);
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
fn a_conditional_write_does_not_conflict_with_itself() {
    let (mut world, key) = with_value(&Shape::three(), None);
    let context = get(&mut world, &key).1.unwrap().context().clone();
    // The first replica takes the write, but its answer comes too late; the next one has received it by then, and does
    // not take it again.
    world.replica(1).delay_us = 10_000_000;
    let update = value(&world, "new");
    let at = begin_write(&mut world, &key, Intent::Unchanged(context), update);
    let taken = world.replicas[&id(1)].records[key.key()].clone();
    world.replica(2).records.insert(key.key().to_vec().into(), taken);
    world.finish();
    no_quorum(written(&mut world, at));
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Put), [1, 2]);
    assert_eq!(values(&world.healed(&key)), ["new"]);
}

#[test]
fn an_addition_is_written_without_a_read_and_once() {
    let shape = Shape::three().with(|settings| settings.resolution = Resolution::Counter);
    let mut world = World::new(1, &shape, Some(1));
    let key = first_key();
    let add = |world: &World| versioned::Update::add(5, world.env().now_unix_ms, None);
    let update = add(&world);
    let at = begin_write(&mut world, &key, Intent::All, update);
    world.finish();
    written(&mut world, at).unwrap();
    assert_eq!(world.asked(at).nodes(ReplicaCommand::Get), [0; 0]);
    // It is unknown whether the addition was made: it is not made again.
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
fn setting_a_counter_keeps_concurrent_additions() {
    let shape = Shape::three().with(|settings| settings.resolution = Resolution::Counter);
    let mut world = World::new(1, &shape, Some(1));
    let key = first_key();
    let set = |_: &versioned::Record, _: u64| Edit::Put {
        value: "100".into(),
        expiry: Expiry::Store,
    };
    let options = EditOptions {
        added: AddedMeanwhile::Stays,
        ..times().into()
    };
    let setting = begin_update_with(&mut world, &key, Box::new(set), options);
    let update = versioned::Update::add(7, world.env().now_unix_ms, None);
    let adding = begin_write(&mut world, &key, Intent::All, update);
    world.finish();
    updated(&mut world, setting).unwrap();
    written(&mut world, adding).unwrap();
    let total = resolve(&world.healed(&key), Resolution::Counter, 0);
    assert_eq!(*total.value().unwrap(), "107");
}

#[test]
fn a_change_of_a_counter_is_retried_after_additions() {
    let shape = Shape::three().with(|settings| settings.resolution = Resolution::Counter);
    let mut world = World::new(1, &shape, Some(1));
    let key = first_key();
    let double = |record: &versioned::Record, now: u64| {
        let total = resolve(record, Resolution::Counter, now);
        let total = total
            .value()
            .map_or(1, |total| String::from_utf8_lossy(total).parse().unwrap());
        Edit::Put {
            value: (2 * total).to_string().into(),
            expiry: Expiry::Store,
        }
    };
    let doubling = [(); 3].map(|()| begin_update(&mut world, &key, Box::new(double)));
    world.finish();
    for at in doubling {
        updated(&mut world, at).unwrap();
    }
    let total = resolve(&world.healed(&key), Resolution::Counter, 0);
    assert_eq!(*total.value().unwrap(), "8");
}
