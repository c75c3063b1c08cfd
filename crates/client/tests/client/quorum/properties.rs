//! Invariants that hold whatever nodes do: operations start in any order, and their requests are late, lost, or fail.

use std::collections::BTreeMap;

use fondaco_client::ClientError;
use fondaco_client::quorum::{Edit, Expiry, Intent};
use fondaco_model::NodeId;
use fondaco_model::versioned::{Handoff, Record, Resolution, VectorClock, resolve};
use fondaco_protocol::replica::{Known, ReplicaCommand, ReplicaOperation};
use proptest::prelude::*;

use super::script::{begin_get, begin_put, begin_update, begin_write, read, updated, value, values, written};
use super::world::{Faults, Flaw, Shape, World, key};

/// A write that was acknowledged.
struct Acknowledged {
    value: String,
    context: VectorClock,
    /// Whether it was to replace all earlier values.
    is_over_all: bool,
    /// The number of writes acknowledged before it started.
    after: usize,
}

/// The kind of an operation.
enum Doing {
    Read { after: usize },
    Put { value: String, after: usize },
    PutOver { value: String, after: usize },
}

fn faults() -> impl Strategy<Value = Faults> {
    let chance = || prop_oneof![3 => Just(0u32), 2 => 0..60u32, 1 => 0..400u32];
    (chance(), chance(), chance(), chance(), chance()).prop_map(|(unsent, lost, never, errors, slow)| Faults {
        unsent,
        lost,
        never,
        errors,
        slow,
    })
}

fn shape() -> impl Strategy<Value = Shape> {
    let settings = (
        1..=4u32,
        1..=2u32,
        0..4u32,
        0..4u32,
        0..4u32,
        0..4u32,
        0..4usize,
        any::<bool>(),
    );
    settings.prop_map(
        |(replicas, spare, reads, writes, more_reads, more_writes, handoff, sloppy)| {
            let between = |least: u32, more: u32| least + more % (replicas - least + 1);
            Shape::of(replicas + spare, replicas).zones(2).with(|settings| {
                settings.reads = between(1, reads);
                settings.writes = between(1, writes);
                settings.preferred_reads = between(settings.reads, more_reads);
                settings.preferred_writes = between(settings.writes, more_writes);
                settings.handoff = Handoff::ALL[handoff];
                settings.sloppy = sloppy && settings.handoff != Handoff::None;
            })
        },
    )
}

/// Runs operations on one key concurrently, and checks each against its promise.
fn run(seed: u64, shape: &Shape, faults: Faults, home: Option<u32>, operations: usize, flaw: Option<Flaw>) {
    let settings = shape.settings;
    let overlaps = settings.reads + settings.writes > shape.replicas && !settings.sloppy;
    let (mut world, key) = (World::new(seed, shape, home), key("k"));
    (world.faults, world.flaw) = (faults, flaw);
    let mut doing: BTreeMap<usize, Doing> = BTreeMap::new();
    let mut acknowledged: Vec<Acknowledged> = Vec::new();
    let mut seen = VectorClock::default();
    let mut begun = 0;
    loop {
        while begun < operations && (doing.is_empty() || world.random.u8(..3) == 0) {
            begun += 1;
            let after = acknowledged.len();
            let (at, what) = match world.random.u8(..4) {
                0 => {
                    let text = format!("over {begun}");
                    let update = value(&world, &text);
                    let at = begin_write(&mut world, &key, Intent::Context(seen.clone()), update);
                    (at, Doing::PutOver { value: text, after })
                }
                1 | 2 => {
                    let text = format!("put {begun}");
                    (begin_put(&mut world, &key, &text), Doing::Put { value: text, after })
                }
                _ => {
                    let keys = [key.clone()];
                    (begin_get(&mut world, &keys), Doing::Read { after })
                }
            };
            doing.insert(at, what);
        }
        let Some(answered) = world.step() else { break };
        for at in answered {
            let what = doing.remove(&at).unwrap();
            bound_asks(&world, at, shape, &what);
            match what {
                Doing::Read { after } => {
                    let Ok(record) = read(&mut world, at).pop().unwrap() else {
                        continue;
                    };
                    for write in acknowledged[..after].iter().filter(|_| overlaps) {
                        assert!(
                            record.context().covers_all(&write.context),
                            "{:?} was acknowledged, but {record:?} does not include it",
                            write.value
                        );
                    }
                    seen = record.context().clone();
                }
                Doing::Put { value, after } | Doing::PutOver { value, after } => {
                    let Ok(written) = written(&mut world, at) else { continue };
                    let holders = world.holders(&key, &written.context, settings.sloppy);
                    assert!(holders >= settings.writes as usize, "{value:?} is on {holders} nodes");
                    let is_over_all = value.starts_with("put");
                    acknowledged.push(Acknowledged {
                        value,
                        context: written.context,
                        is_over_all,
                        after,
                    });
                }
            }
        }
    }
    assert!(doing.is_empty());
    world.catch_up();
    let healed = world.healed(&key);
    let left = values(&healed);
    let latest = resolve(&healed, Resolution::Latest, 0).value().cloned();
    for (place, write) in acknowledged.iter().enumerate() {
        assert!(healed.context().covers_all(&write.context), "{:?} is lost", write.value);
        for later in acknowledged
            .iter()
            .filter(|later| overlaps && later.is_over_all && later.after > place)
        {
            // Compared by dot, not by value: a write that was tried twice may have left its value elsewhere, too.
            assert!(
                later.context.covers_all(&write.context),
                "{:?} was to replace {:?}",
                later.value,
                write.value
            );
            assert_ne!(
                latest.as_deref(),
                Some(write.value.as_bytes()),
                "{:?} had replaced it",
                later.value
            );
        }
    }
    assert!(acknowledged.is_empty() || !left.is_empty(), "nothing was ever deleted");
}

#[test]
fn replicas_that_lie_are_noticed() {
    for flaw in [
        Flaw::ForgetMerges,
        Flaw::HideContexts,
        Flaw::HideRecords,
        Flaw::SayTheSame,
    ] {
        let faults = Faults {
            unsent: 300,
            ..Faults::default()
        };
        let one = |seed| run(seed, &Shape::three(), faults, None, 20, Some(flaw));
        let noticed = (0..100).any(|seed| std::panic::catch_unwind(|| one(seed)).is_err());
        assert!(noticed, "{flaw:?}");
    }
}

/// No node gets the same request twice, and no unconcerned node gets a request.
fn bound_asks(world: &World, at: usize, shape: &Shape, what: &Doing) {
    let asked = world.asked(at);
    let replicas = shape.replicas as usize;
    let owners: Vec<u32> = shape.topology(|_| true).owners[partition(world)]
        .iter()
        .map(|node| node.get())
        .collect();
    let is_digest = |operation: &ReplicaOperation| match operation {
        ReplicaOperation::GetOther { keys } => keys.iter().all(|key| key.known == Known::Awaited),
        _ => false,
    };
    // A node that answered a digest may be asked for the record.
    for (command, digest) in [
        (ReplicaCommand::Get, true),
        (ReplicaCommand::Get, false),
        (ReplicaCommand::Put, false),
    ] {
        let of = |(_, of, operation): &&(NodeId, ReplicaCommand, ReplicaOperation)| {
            *of == command && is_digest(operation) == digest
        };
        let mut nodes: Vec<u32> = asked.list.iter().filter(of).map(|(node, ..)| node.get()).collect();
        assert!(
            nodes.iter().all(|node| owners.contains(node)),
            "{nodes:?} of {owners:?}"
        );
        let count = nodes.len();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), count, "{command:?} twice");
        assert!(count <= replicas);
    }
    let merges = asked.nodes(ReplicaCommand::Merge).len();
    assert!(merges <= replicas, "{merges} merges were sent to {replicas} replicas");
    let mut hints = asked.hints();
    assert!(hints.len() <= 3 * replicas);
    hints.sort_unstable();
    hints.dedup();
    assert_eq!(hints.len(), asked.hints().len(), "a hint twice");
    if matches!(what, Doing::Read { .. }) {
        assert_eq!(asked.nodes(ReplicaCommand::Put), Vec::<u32>::new());
        assert_eq!(hints, []);
    }
}

fn partition(world: &World) -> usize {
    let partitions = world.caller.directory.topology().partitions;
    partitions.partition_of(key("k").slot()).get() as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(400)))]

    #[test]
    fn acknowledged_writes_are_stored_and_read(
        seed: u64,
        shape in shape(),
        faults in faults(),
        home in prop_oneof![Just(None), Just(Some(1)), Just(Some(2))],
        operations in 1..25usize,
    ) {
        let home = home.filter(|&home| home <= shape.nodes);
        run(seed, &shape, faults, home, operations, None);
    }

    #[test]
    fn without_faults_every_increment_counts_once(seed: u64, home in 1..4u32, clients in 1..6usize) {
        let mut world = World::new(seed, &Shape::three(), Some(home));
        let key = key("n");
        let number = |record: &Record, now_unix_ms: u64| -> u64 {
            let resolved = resolve(record, Default::default(), now_unix_ms);
            resolved.value().map_or(0, |text| std::str::from_utf8(text).unwrap().parse().unwrap())
        };
        let increment = |world: &mut World| {
            begin_update(world, &key, Box::new(move |record, now| Edit::Put {
                value: (number(record, now) + 1).to_string().into(),
                expiry: Expiry::Store,
            }))
        };
        let all: Vec<usize> = (0..clients).map(|_| increment(&mut world)).collect();
        world.finish();
        let counted = |at: usize| match updated(&mut world, at) {
            Ok(_) => 1,
            Err(ClientError::Conflict { .. }) => 0,
            Err(error) => panic!("{error}"),
        };
        let counted: u64 = all.into_iter().map(counted).sum();
        prop_assert_eq!(number(&world.healed(&key), 0), counted);
        prop_assert!(counted > 0);
    }
}
