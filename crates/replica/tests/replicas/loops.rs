//! Requests and direct writes of an event loop to its node's replica in one turn.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fondaco_engine::{DiskEngine, DiskOptions, Engine};
use fondaco_protocol::replica::{LocalReplica, ReplicaErrorCode, ReplicaOperation, ReplicaReply};
use fondaco_replica::{DirectEnd, DirectPlace, ReplicaOptions, Replicas, WriteBatcher};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use crate::cluster::{Cluster, PATIENCE, putting, quiet, request, value};
use crate::direct::{Appending, place};

/// Sends requests and appends to keys in one turn of a loop. Returns the outcomes, each once, in order; requests are
/// answered on the loop's own thread.
pub fn in_one_turn(
    replicas: &Arc<Replicas>,
    operations: Vec<ReplicaOperation>,
    writes: Vec<(DirectPlace, &'static str)>,
    timeout: Duration,
) -> (Vec<ReplicaReply>, Vec<DirectEnd>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let batcher = Arc::new(WriteBatcher::new(Arc::clone(replicas)));
    let (asked, appended) = (operations.len(), writes.len());
    let own = thread::current().id();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (ended, mut ends) = mpsc::unbounded_channel();
    let (mut answers, ends) = LocalSet::new().block_on(&runtime.unwrap(), async {
        let telling = [
            spawn_local(Arc::clone(&batcher).hand_over()),
            spawn_local(Arc::clone(&batcher).tell(move |writes| ended.send(writes).unwrap())),
        ];
        for (at, operation) in operations.into_iter().enumerate() {
            let sender = sender.clone();
            let answer = move |reply| {
                assert_eq!(thread::current().id(), own);
                sender.send((at, reply)).unwrap();
            };
            batcher.request(request(operation), Box::new(answer));
        }
        drop(sender);
        for (place, tail) in writes {
            batcher.write(place, 100, timeout, Appending(tail));
        }
        let all = async {
            let (mut answers, mut told) = (Vec::new(), Vec::new());
            // Ends when all replies have arrived or been dropped.
            while let Some(answer) = receiver.recv().await {
                answers.push(answer);
            }
            while told.len() < appended {
                told.extend(ends.recv().await.unwrap());
            }
            (answers, told.into_iter().map(|(_, end)| end).collect())
        };
        let all = tokio::time::timeout(PATIENCE, all).await.unwrap();
        telling.into_iter().for_each(|task| task.abort());
        all
    });
    answers.sort_by_key(|(at, _)| *at);
    assert!(answers.iter().map(|(at, _)| *at).eq(0..asked));
    (answers.into_iter().map(|(_, reply)| reply).collect(), ends)
}

/// Sends requests in one turn of a loop.
fn ask_in_one_turn(replicas: &Arc<Replicas>, operations: Vec<ReplicaOperation>) -> Vec<ReplicaReply> {
    in_one_turn(replicas, operations, Vec::new(), PATIENCE).0
}

fn disk(dir: &Path) -> Arc<dyn Engine> {
    Arc::new(DiskEngine::open(&dir.join("engine"), DiskOptions::default()).unwrap())
}

fn puts(count: usize) -> Vec<ReplicaOperation> {
    let put = |number| putting(&format!("key {number}"), value("a"));
    (0..count).map(put).collect()
}

fn assert_all_written(cluster: &Cluster, count: usize) {
    let replies = ask_in_one_turn(cluster.node(1), puts(count));
    assert!(replies.iter().all(|reply| matches!(reply, ReplicaReply::Written(_))));
    for number in 0..count {
        assert_eq!(cluster.values(1, &format!("key {number}")), [b"a" as &[u8]]);
    }
}

#[test]
fn requests_of_a_turn_are_answered_once_on_the_loop() {
    // More than fits into a batch.
    assert_all_written(&Cluster::in_memory(1, 1, &quiet()), 600);
    assert_all_written(&Cluster::of(1, 1, &quiet(), disk), 600);
}

/// A node with one shard, whose queue has room for four writes.
fn of_a_short_queue() -> Cluster {
    let options = ReplicaOptions {
        queue_items_max: 4,
        shards: 1,
        ..quiet()
    };
    Cluster::of(1, 1, &options, disk)
}

#[test]
fn requests_beyond_the_queue_are_refused_and_others_done() {
    let cluster = of_a_short_queue();
    let replies = ask_in_one_turn(cluster.node(1), puts(20));
    let is_done = |reply: &&ReplicaReply| matches!(reply, ReplicaReply::Written(_));
    let (done, refused) = replies.split_at(replies.iter().take_while(is_done).count());
    // An action of the node itself between two groups may take one place.
    assert!((1..=4).contains(&done.len()), "{replies:?}");
    let is_refusal = |reply: &ReplicaReply| matches!(reply, ReplicaReply::Error(error) if error.code == ReplicaErrorCode::Overloaded);
    assert!(refused.iter().all(is_refusal), "{refused:?}");
}

#[test]
fn requests_and_direct_writes_of_one_turn_share_its_batches() {
    let cluster = Cluster::of(1, 1, &quiet(), disk);
    let replicas = cluster.node(1);
    let writes = (0..20).map(|number| (place(replicas, &format!("direct {number}")).unwrap(), "b"));
    let (replies, ends) = in_one_turn(replicas, puts(20), writes.collect(), PATIENCE);
    assert!(
        replies.iter().all(|reply| matches!(reply, ReplicaReply::Written(_))),
        "{replies:?}"
    );
    assert_eq!(ends, vec![DirectEnd::Done; 20]);
    for number in 0..20 {
        assert_eq!(cluster.values(1, &format!("key {number}")), [b"a" as &[u8]]);
        assert_eq!(cluster.values(1, &format!("direct {number}")), [b"b" as &[u8]]);
    }
}

#[test]
fn direct_writes_beyond_the_queue_are_refused() {
    let cluster = of_a_short_queue();
    let write = (place(cluster.node(1), "direct").unwrap(), "b");
    // They are passed on after the requests.
    let (_, ends) = in_one_turn(cluster.node(1), puts(20), vec![write], PATIENCE);
    let is_refusal =
        |end: &DirectEnd| matches!(end, DirectEnd::Refused(error) if error.code == ReplicaErrorCode::Overloaded);
    assert!(ends.len() == 1 && is_refusal(&ends[0]), "{ends:?}");
    assert_eq!(cluster.record(1, "direct"), None);
}
