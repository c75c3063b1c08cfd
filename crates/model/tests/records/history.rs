//! Replicas that take writes and merge each other's records, compared with a simple model: sets of writes.

use std::collections::BTreeSet;

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{Dot, DotSource, Over, Record, ReplicaId, Update, VectorClock};
use proptest::prelude::*;

pub fn replica(number: u32) -> ReplicaId {
    ReplicaId {
        node: NodeId::new(number).unwrap(),
        incarnation: 1,
    }
}

pub fn dot(number: u32, counter: u64) -> Dot {
    Dot {
        replica: replica(number),
        counter,
    }
}

/// A clock that has seen these counters of replicas, each at the time of its counter.
pub fn clock(seen: &[(u32, u64)]) -> VectorClock {
    let mut clock = VectorClock::new();
    for &(number, counter) in seen {
        clock.increment(dot(number, counter), counter);
    }
    clock
}

pub fn put(value: &str, written_unix_ms: u64) -> Update {
    Update::put(Bytes::copy_from_slice(value.as_bytes()), written_unix_ms, None)
}

/// The record after a write over this context, at a replica that has `local`.
pub fn written(local: &Record, dots: &mut DotSource, context: &VectorClock, update: Update) -> Record {
    Record::write(Some(local), dots, Over::Context(context), update).unwrap()
}

/// The values of all siblings, in no order.
pub fn values(record: &Record) -> BTreeSet<String> {
    let values = record.siblings().iter().filter_map(|sibling| sibling.value.as_ref());
    values.map(|value| String::from_utf8(value.to_vec()).unwrap()).collect()
}

/// The expected state of a record: the writes that were seen, and those of them that are not obsolete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Truth {
    pub seen: BTreeSet<Dot>,
    pub live: BTreeSet<Dot>,
}

impl Truth {
    fn merge(&self, other: &Self) -> Self {
        let stays = |a: &Self, b: &Self| -> BTreeSet<Dot> {
            let stays = a
                .live
                .iter()
                .filter(|dot| b.live.contains(dot) || !b.seen.contains(dot));
            stays.copied().collect()
        };
        Self {
            seen: &self.seen | &other.seen,
            live: &stays(self, other) | &stays(other, self),
        }
    }
}

/// The state of a replica.
#[derive(Debug, Clone)]
pub struct Replica {
    pub record: Record,
    pub truth: Truth,
    dots: DotSource,
}

/// An event.
#[derive(Debug, Clone)]
pub enum Step {
    /// A client writes at a replica, over the context of the read with this number, if there is one.
    Write {
        at: usize,
        read: usize,
        over_all: bool,
        time: u64,
    },
    /// A client reads from two replicas.
    Read { from: usize, and: usize },
    /// A replica merges the record of another one.
    Merge { into: usize, from: usize },
}

pub fn steps(replicas: usize, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let write = (
        0..replicas,
        any::<prop::sample::Index>(),
        prop::bool::weighted(0.2),
        0..50u64,
    );
    let step = prop_oneof![
        3 => write.prop_map(|(at, read, over_all, time)| Step::Write { at, read: read.index(1 << 16), over_all, time }),
        2 => (0..replicas, 0..replicas).prop_map(|(from, and)| Step::Read { from, and }),
        2 => (0..replicas, 0..replicas).prop_map(|(into, from)| Step::Merge { into, from }),
    ];
    prop::collection::vec(step, 0..most)
}

/// The results of some steps.
pub struct History {
    pub replicas: Vec<Replica>,
    /// The results of clients' reads.
    reads: Vec<(VectorClock, BTreeSet<Dot>)>,
    /// All writes.
    pub writes: Vec<Written>,
}

/// A write that was made.
pub struct Written {
    pub dot: Dot,
    pub written_unix_ms: u64,
    /// The writes that it had seen, and made obsolete.
    pub knew: BTreeSet<Dot>,
}

impl History {
    pub fn run(replicas: usize, steps: &[Step]) -> Self {
        let new = |number: usize| Replica {
            record: Record::default(),
            truth: Truth::default(),
            dots: DotSource::new(replica(number as u32 + 1), 0),
        };
        let mut history = Self {
            replicas: (0..replicas).map(new).collect(),
            reads: vec![Default::default()],
            writes: Vec::new(),
        };
        for step in steps {
            history.step(step);
        }
        history
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read { from, and } => {
                let (a, b) = (&self.replicas[from], &self.replicas[and]);
                let seen = &a.truth.seen | &b.truth.seen;
                self.reads.push((a.record.context().merge(b.record.context()), seen));
            }
            Step::Merge { into, from } => {
                let record = self.replicas[into].record.merge(&self.replicas[from].record);
                let truth = self.replicas[into].truth.merge(&self.replicas[from].truth);
                self.replicas[into].record = record;
                self.replicas[into].truth = truth;
            }
            Step::Write {
                at,
                read,
                over_all,
                time,
            } => {
                let (context, known) = self.reads[read % self.reads.len()].clone();
                let Replica { record, truth, dots } = &mut self.replicas[at];
                let before: BTreeSet<Dot> = record.siblings().iter().map(|sibling| sibling.dot).collect();
                let over = match over_all {
                    true => Over::All(&context),
                    false => Over::Context(&context),
                };
                *record = Record::write(Some(record), dots, over, put("v", time)).unwrap();
                let new = record
                    .siblings()
                    .iter()
                    .find(|sibling| !before.contains(&sibling.dot))
                    .unwrap();
                let (new, written_unix_ms) = (new.dot, new.written_unix_ms);
                truth.seen.extend(&known);
                truth.live.retain(|dot| !over_all && !known.contains(dot));
                let knew = match over_all {
                    true => truth.seen.clone(),
                    false => known,
                };
                truth.seen.insert(new);
                truth.live.insert(new);
                self.writes.push(Written {
                    dot: new,
                    written_unix_ms,
                    knew,
                });
            }
        }
    }

    /// Every replica merges every other's record, repeatedly, until all are equal. Fails if they never are.
    pub fn heal(&mut self) {
        let count = self.replicas.len();
        for _ in 0..=count {
            for into in 0..count {
                for from in 0..count {
                    self.step(&Step::Merge { into, from });
                }
            }
            if self.replicas.windows(2).all(|pair| pair[0].record == pair[1].record) {
                return;
            }
        }
        panic!("replicas never become equal");
    }
}
