//! Where other nodes have begun to read the stream of a version.
//!
//! A node that gains a partition reads the stream from where the version begins. If the topic has deleted records, they
//! may be some of those: that can only be known from nodes that have read them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use fondaco_fetch::PeerClient;
use fondaco_model::{Identity, StoreName, VersionNumber};
use fondaco_stream::{BegunElsewhere, OverlayOptions, StreamError};
use parking_lot::{Condvar, Mutex};

use crate::http::resources::StreamStatus;
use crate::mirror::Mirror;

/// For how long nodes that do not answer are asked again.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait until then.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// For how long an answer is used: long enough for all partitions of the topic.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// How long a thread of the ingest waits for the answers. It does other work until they are there.
const ANSWERED_AT_ONCE: Duration = Duration::from_millis(200);

/// The other nodes of the cluster.
pub(super) struct Others {
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

impl Others {
    /// What is asked for a version.
    pub(super) fn begun(self: &Arc<Self>, options: &OverlayOptions) -> BegunElsewhere {
        let (others, question) = (Arc::clone(self), Arc::<Question>::default());
        let (store, version) = (options.store.clone(), options.version);
        Box::new(move |partition| {
            let mut asked = question.asked.lock();
            let is_known = matches!(&*asked, Asked::Answered(at, _) if at.elapsed() < KNOWN_FOR);
            if !is_known && !matches!(&*asked, Asked::Now) {
                others.ask(&store, version, &question)?;
                *asked = Asked::Now;
            }
            if !is_known {
                question.answered.wait_for(&mut asked, ANSWERED_AT_ONCE);
            }
            match &*asked {
                Asked::Answered(_, begun) => Ok(begun.get(&partition).copied()),
                Asked::Never | Asked::Now => Err(unanswered(&store, "they have not answered yet")),
            }
        })
    }

    /// Asks on a thread of its own: a node that hangs must not keep one of the ingest.
    fn ask(
        self: &Arc<Self>,
        store: &StoreName,
        version: VersionNumber,
        question: &Arc<Question>,
    ) -> Result<(), StreamError> {
        let (others, question, name) = (Arc::clone(self), Arc::clone(question), store.clone());
        let run = move || {
            let begun = others.ask_until_all_answer(&name, version);
            *question.asked.lock() = Asked::Answered(Instant::now(), begun);
            question.answered.notify_all();
        };
        let spawned = std::thread::Builder::new().name("ask nodes".to_owned()).spawn(run);
        spawned
            .map(drop)
            .map_err(|error| unanswered(store, &format!("cannot start a thread: {error}")))
    }

    fn ask_until_all_answer(&self, store: &StoreName, version: VersionNumber) -> BTreeMap<u32, u64> {
        let since = Instant::now();
        let mut begun = BTreeMap::new();
        loop {
            let silent = self.ask_all(store, version, &mut begun);
            if silent.is_empty() {
                return begun;
            }
            if since.elapsed() >= PATIENCE {
                tracing::warn!(%store, %version, ?silent, "nodes do not say where they have begun with the stream: whether events are missing may remain unknown");
                return begun;
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Asks each live node once. Returns the addresses of those that have not answered.
    fn ask_all(&self, store: &StoreName, version: VersionNumber, begun: &mut BTreeMap<u32, u64>) -> Vec<String> {
        let view = self.mirror.view();
        let live = view.nodes.iter().filter(|&(&node, _)| view.is_live(node));
        let others = live
            .map(|(_, node)| &node.record)
            .filter(|node| node.identity != self.own);
        let mut silent = Vec::new();
        for node in others {
            let Some(answer) = self.ask_one(&node.http, store) else {
                silent.push(node.http.clone());
                continue;
            };
            let of_version = answer
                .versions
                .into_iter()
                .filter(|known| known.version == version.get());
            for (partition, offset) in of_version.flat_map(|known| known.begun_offsets) {
                let known = begun.entry(partition).or_insert(offset);
                *known = offset.min(*known);
            }
        }
        silent
    }

    /// What a node says of a stream; `None` if it does not answer.
    fn ask_one(&self, address: &str, store: &StoreName) -> Option<StreamStatus> {
        let answer = self.peers.port(address).get(&format!("/v1/stores/{store}/stream"));
        match answer.ok()? {
            (StatusCode::OK, body) => serde_json::from_slice(&body).ok(),
            // It does not know the store yet.
            (StatusCode::NOT_FOUND, _) => Some(StreamStatus { versions: Vec::new() }),
            _ => None,
        }
    }
}

fn unanswered(store: &StoreName, reason: &str) -> StreamError {
    StreamError::Unavailable {
        topic: store.to_string(),
        reason: format!("other nodes are asked where they have begun with it: {reason}"),
    }
}
