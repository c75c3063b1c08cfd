//! The offsets at which other nodes have begun to read the stream of a version.
//!
//! A node that gains a partition reads the stream from where the version begins in the topic. If the topic has deleted
//! records, some of them may have been there when other nodes began: only those nodes know. A partition does not begin
//! before all nodes that have the version have answered, or for thirty seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fondaco_api::{StreamStatus, VersionStream};
use fondaco_cluster::Mirror;
use fondaco_fetch::PeerClient;
use fondaco_model::cluster::ClusterView;
use fondaco_model::{Identity, NodeId, StoreName, VersionNumber};
use fondaco_stream::{BegunElsewhere, OverlayOptions, StreamError};
use parking_lot::{Condvar, Mutex};
use ureq::http::StatusCode;

/// For how long nodes that do not answer are asked again.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait until then.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// For how long an answer is used: long enough for all partitions of the topic to begin.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// How long the thread of the ingest that asks waits for the answers. It does other work until they are there.
const ANSWERED_AT_ONCE: Duration = Duration::from_millis(200);

/// Asks the other nodes of the cluster for their start offsets.
pub(super) struct StartOffsets {
    pub(super) peers: PeerClient,
    pub(super) mirror: Mirror,
    /// This node.
    pub(super) own: Identity,
}

/// A question to all nodes.
#[derive(Default)]
struct Question {
    asked: Mutex<Asked>,
    answered: Condvar,
}

#[derive(Default)]
enum Asked {
    #[default]
    Never,
    Now,
    /// When, and the first offset of each partition of the topic.
    Answered(Instant, BTreeMap<u32, u64>),
}

impl StartOffsets {
    /// Asks at which offsets other nodes have begun to read a topic for a version.
    pub(super) fn of_other_nodes(self: &Arc<Self>, options: &OverlayOptions, topic: String) -> BegunElsewhere {
        let (start_offsets, question) = (Arc::clone(self), Arc::<Question>::default());
        let (store, version) = (options.store.clone(), options.version);
        Box::new(move |partition| {
            let mut asked = question.asked.lock();
            let is_old = matches!(&*asked, Asked::Answered(at, _) if at.elapsed() >= KNOWN_FOR);
            if is_old || matches!(&*asked, Asked::Never) {
                *asked = Asked::Now;
                if let Err(error) = start_offsets.ask(&store, version, &question) {
                    *asked = Asked::Never;
                    return Err(unanswered(&topic, &format!("no thread can be started: {error}")));
                }
                question.answered.wait_for(&mut asked, ANSWERED_AT_ONCE);
            }
            match &*asked {
                Asked::Answered(_, begun) => Ok(begun.get(&partition).copied()),
                Asked::Never | Asked::Now => Err(unanswered(&topic, "they have not answered yet")),
            }
        })
    }

    /// Asks on threads of their own: a node that hangs must not keep one of the ingest, nor the answers of others.
    fn ask(self: &Arc<Self>, store: &StoreName, version: VersionNumber, question: &Arc<Question>) -> io::Result<()> {
        let (start_offsets, question, store) = (Arc::clone(self), Arc::clone(question), store.clone());
        let run = move || {
            let begun = start_offsets.ask_all(&store, version);
            *question.asked.lock() = Asked::Answered(Instant::now(), begun);
            question.answered.notify_all();
        };
        let thread = std::thread::Builder::new().name("ask nodes".to_owned());
        thread.spawn(run).map(drop)
    }

    fn ask_all(self: &Arc<Self>, store: &StoreName, version: VersionNumber) -> BTreeMap<u32, u64> {
        let deadline = Instant::now() + PATIENCE;
        let view = self.mirror.view();
        let live = view.nodes.iter().filter(|&(&node, _)| view.is_live(node));
        let others = live.filter(|(_, node)| node.record.identity != self.own);
        let (sender, answers) = mpsc::channel();
        let mut asked = BTreeSet::new();
        for (&node, _) in others {
            let (start_offsets, sender, store) = (Arc::clone(self), sender.clone(), store.clone());
            let run = move || {
                if let Some(begun) = start_offsets.ask_until(node, &store, version, deadline) {
                    // The thread that waits for it may have given up.
                    let _ = sender.send((node, begun));
                }
            };
            asked.insert(node);
            // One that cannot be started gives no answer.
            let _ = std::thread::Builder::new().name("ask node".to_owned()).spawn(run);
        }
        drop(sender);
        let mut begun = BTreeMap::new();
        while let Ok((node, answer)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            asked.remove(&node);
            for (partition, offset) in answer {
                let known = begun.entry(partition).or_insert(offset);
                *known = offset.min(*known);
            }
        }
        if !asked.is_empty() {
            tracing::warn!(%store, %version, nodes = ?asked, "nodes do not say where they have begun to read the stream: if the topic has deleted events since the push of the version, push a new one");
        }
        begun
    }

    /// Asks a node until it answers. Returns the first offset of each partition of the topic.
    fn ask_until(
        &self,
        node: NodeId,
        store: &StoreName,
        version: VersionNumber,
        deadline: Instant,
    ) -> Option<BTreeMap<u32, u64>> {
        while Instant::now() < deadline {
            let view = self.mirror.view();
            let record = &view.nodes.get(&node)?.record;
            let versions = self.ask_once(&record.http, store);
            let is_known = versions.is_some();
            let mut versions = versions.into_iter().flatten();
            match versions.find(|known| known.version == version.get()) {
                Some(known) => return Some(known.begun_offsets),
                // One that has it, and does not say so, has yet to open it.
                None if is_known && !has(&view, node, store, version) => return Some(BTreeMap::new()),
                None if !view.is_live(node) => return Some(BTreeMap::new()),
                None => std::thread::sleep(ASK_AGAIN),
            }
        }
        None
    }

    /// The versions of a store as a node has read their streams; `None` if it does not answer.
    fn ask_once(&self, address: &str, store: &StoreName) -> Option<Vec<VersionStream>> {
        let answer = self
            .peers
            .port(address)
            .get(&format!("/v1/stores/{store}/stream?own=true"));
        match answer.ok()? {
            (StatusCode::OK, body) => Some(serde_json::from_slice::<StreamStatus>(&body).ok()?.versions),
            // It does not know the store yet.
            (StatusCode::NOT_FOUND, _) => Some(Vec::new()),
            _ => None,
        }
    }
}

/// Whether a node has a version, by what is known of the cluster: of one that is being pushed, that is not known.
fn has(view: &ClusterView, node: NodeId, store: &StoreName, version: VersionNumber) -> bool {
    let (Some(record), Some(table)) = (view.stores.get(store), &view.routing) else {
        return true;
    };
    let owned = table.record.owned(view.replicas(&record.record));
    record.record.pushed() != Some(version) && owned.get(&node).is_some_and(|owned| !owned.is_empty())
}

fn unanswered(topic: &str, reason: &str) -> StreamError {
    StreamError::Unavailable {
        topic: topic.to_owned(),
        reason: format!("other nodes are asked where they have begun to read it, and {reason}"),
    }
}
