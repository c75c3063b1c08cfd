//! Writes of many keys in few requests.
//!
//! A [`Write`](crate::quorum::Write) of one key with three replicas takes five requests: two replicas are asked for their contexts, one
//! takes the write, and two merge its record. Here the caller has read the contexts of many keys in one operation, and each replica gets
//! the records of all keys that it has to merge in one request.
//!
//! It is the path for settled replicas only: all are expected to answer, and no plan moves the partition. A write that did not reach all
//! of them is reported as not written. The caller then makes it again by [`Client::write`], with the same context and time. So the value
//! may be written twice, as by a [`Write`](crate::quorum::Write) whose first replica was slow: both replace the same, and are older than
//! all that replaced one of them.
//!
//! The invariants:
//!
//! - A write that is reported as written is on all replicas, under the newest table that is known then.
//! - No replica takes a write whose context is unknown.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::versioned::Update;
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{KeyRecord, PutOver, ReplicaOperation, ReplicaReply};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};

use crate::client::Client;
use crate::quorum::{Intent, SettledReplicas};

/// How many writes a replica is asked to take at the same time.
const PUTS_AT_ONCE: usize = 256;

/// The write of one of many keys.
#[derive(Debug, Clone)]
pub(crate) struct KeyWrite {
    /// The key.
    pub(crate) key: WireKey,
    /// The values that it replaces: with the context that was read, or [`Intent::All`] if it could not be read.
    pub(crate) intent: Intent,
    /// The value or the deletion, with its time.
    pub(crate) update: Update,
}

impl KeyWrite {
    /// The key within its store.
    fn own_key(&self) -> Bytes {
        self.key.as_bytes().slice_ref(self.key.key())
    }

    /// The request to the replica that takes it first; `None` if its context is unknown.
    fn put(&self) -> Option<ReplicaOperation> {
        let (over, context) = match &self.intent {
            Intent::All => return None,
            Intent::Context(context) => (PutOver::Context, context),
            Intent::Unchanged(context) => (PutOver::Unchanged, context),
        };
        Some(ReplicaOperation::Put {
            over,
            key: self.own_key(),
            context: context.clone(),
            update: self.update.clone(),
            is_charged: false,
        })
    }
}

impl Client {
    /// Writes keys to all of their replicas, each of which has this time for each of two steps. Returns which of them are written. All
    /// others may be written, or may not.
    pub(crate) async fn write_to_all(&self, writes: &[KeyWrite], timeout: Duration) -> Vec<bool> {
        let mut is_written = vec![false; writes.len()];
        let Ok(snapshot) = self.inner().newest() else {
            return is_written;
        };
        let mut groups: HashMap<SettledReplicas, Vec<usize>> = HashMap::new();
        for (at, write) in writes.iter().enumerate() {
            let replicas = SettledReplicas::of(&write.key, &write.intent, &snapshot.home, &snapshot.directory);
            if let Some(replicas) = replicas {
                groups.entry(replicas).or_default().push(at);
            }
        }
        let groups = groups
            .into_iter()
            .map(|(replicas, places)| self.write_group(replicas, places, writes, timeout));
        let written = join_all(groups).await.concat();
        // No write is acknowledged under a table that is known to be old.
        let epoch = snapshot.directory.topology().epoch;
        let newest = self.inner().newest();
        if newest.is_ok_and(|newest| newest.directory.topology().epoch == epoch) {
            self.inner().counters.writes.fetch_add(written.len() as u64, Relaxed);
            written.into_iter().for_each(|at| is_written[at] = true);
        }
        is_written
    }

    /// Writes those at these places, whose replicas are the same. Returns the places of those that all replicas have.
    async fn write_group(
        &self,
        replicas: SettledReplicas,
        places: Vec<usize>,
        writes: &[KeyWrite],
        timeout: Duration,
    ) -> Vec<usize> {
        let replicas = &replicas;
        let Some((&first, others)) = replicas.nodes.split_first() else {
            return Vec::new();
        };
        let put = |at: usize| async move {
            let request = replicas.request(writes[at].put()?, timeout);
            match self.ask_replica(first, request, timeout).await {
                Ok(ReplicaReply::Written(record)) => {
                    let key = writes[at].own_key();
                    Some((at, KeyRecord { key, record }))
                }
                _ => None,
            }
        };
        let puts = stream::iter(places.into_iter().map(put)).buffer_unordered(PUTS_AT_ONCE);
        let taken: Vec<(usize, KeyRecord)> = puts.filter_map(std::future::ready).collect().await;
        if taken.is_empty() {
            return Vec::new();
        }
        let (places, records): (Vec<usize>, Vec<KeyRecord>) = taken.into_iter().unzip();
        let merge = |node| {
            let records = records.clone();
            let request = replicas.request(ReplicaOperation::Merge { records }, timeout);
            self.ask_replica(node, request, timeout)
        };
        let merged = join_all(others.iter().copied().map(merge)).await;
        match merged.iter().all(|reply| *reply == Ok(ReplicaReply::Done)) {
            true => places,
            false => Vec::new(),
        }
    }
}
