//! Waiting until the effects of a record are visible to reads.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use fondaco_model::PartitionSet;
use parking_lot::Mutex;

use super::Overlay;
use crate::progress::Progress;
use crate::write::Written;

/// The records whose effects reads see, and the tasks that wait for more.
#[derive(Default)]
pub(super) struct Seen(Mutex<State>);

#[derive(Default)]
struct State {
    /// Of each group its partitions, and the offset after the last record of each topic partition.
    groups: Vec<(PartitionSet, BTreeMap<u32, u64>)>,
    waiting: Vec<Waker>,
}

impl Seen {
    /// Takes note of how far records were applied, and wakes the tasks that wait.
    pub(super) fn note(&self, progress: &Progress) {
        let groups = progress.groups.values();
        let groups = groups
            .map(|group| (group.partitions.clone(), group.offsets.clone()))
            .collect();
        let waiting = {
            let mut state = self.0.lock();
            state.groups = groups;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Overlay {
    /// Waits until reads of a key see the effect of a record, however long that takes: the caller has to bound it.
    pub async fn sees(&self, key: &[u8], written: Written) {
        let partition = self.options.partitions.partition_of(self.slots.slot(key));
        poll_fn(|context| {
            let mut state = self.seen.0.lock();
            let mut own = state
                .groups
                .iter()
                .filter(|(partitions, _)| partitions.contains(partition));
            if own.any(|(_, offsets)| {
                offsets
                    .get(&written.partition)
                    .is_some_and(|&next| next > written.offset)
            }) {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
