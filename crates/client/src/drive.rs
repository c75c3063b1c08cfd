//! Drives one request: between its logic and the connections, with the client's clock and alarm.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use fondaco_protocol::WireKey;
use tokio::sync::watch;

use crate::client::{Inner, Snapshot};
use crate::error::ClientError;
use crate::link::{Ask, Event, Exchange};
use crate::options::ReadOptions;
use crate::read::{BatchReply, Failure, Read};

/// What a request waits for.
enum Wake {
    Events(crate::link::Events),
    Directory(Arc<Snapshot>),
    Time,
}

/// Tells connections, when the request is over or given up, that nobody waits any more.
struct Waiting(Arc<Exchange>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Inner {
    /// Carries out one request.
    pub(crate) async fn read(&self, keys: Vec<WireKey>, options: &ReadOptions) -> Result<BatchReply, ClientError> {
        let (steering, clock) = (&self.steering, self.clock);
        let mut snapshot = self.current.load_full().ok_or_else(|| self.no_topology(0))?;
        let keys = Arc::new(keys);
        let waiting = Waiting(Exchange::new(Arc::clone(&keys)));
        let mut now_us = clock.now_us();
        let mut read = Read::start(keys, options.clone(), Arc::clone(&snapshot.directory), steering, now_us)?;
        let mut sleep = self.alarm.sleep();
        let mut newer: Option<watch::Receiver<Option<Arc<Snapshot>>>> = None;
        loop {
            self.send(&mut read, &waiting.0, &snapshot, now_us);
            while let Some(node) = read.take_suspended() {
                tracing::warn!(%node, "a node is suspended: others are asked");
                snapshot.link(node).inspect(|link| link.watch());
            }
            if read.is_done() {
                return read.finish();
            }
            if read.take_refresh() {
                self.topology_wanted.notify_one();
            }
            if newer.is_none() && read.wants_directory() {
                let mut changed = self.changed.subscribe();
                changed.mark_changed();
                newer = Some(changed);
            }
            let wake_at_us = read.wake_at_us();
            let wake = {
                let mut next = pin!(next_snapshot(newer.as_mut()));
                poll_fn(|context| {
                    if let Poll::Ready(events) = waiting.0.poll(context) {
                        return Poll::Ready(Wake::Events(events));
                    }
                    if let Poll::Ready(snapshot) = next.as_mut().poll(context) {
                        return Poll::Ready(Wake::Directory(snapshot));
                    }
                    let now_us = clock.now_us();
                    if now_us >= wake_at_us {
                        return Poll::Ready(Wake::Time);
                    }
                    sleep.until(wake_at_us, now_us, context.waker());
                    Poll::Pending
                })
                .await
            };
            now_us = clock.now_us();
            match wake {
                Wake::Events(events) => {
                    for event in events {
                        match event {
                            Event::Answer(id, answer) => {
                                let latest = self.current.load();
                                let latest = latest.as_ref().unwrap_or(&snapshot);
                                read.on_answer(id, answer, &latest.directory, steering, now_us);
                            }
                            Event::Failure(id, failure) => read.on_failure(id, failure, steering, now_us),
                        }
                    }
                    // The answer may have made it take a newer directory.
                    if let Some(latest) = self.current.load_full() {
                        snapshot = latest;
                    }
                }
                Wake::Directory(latest) => {
                    snapshot = latest;
                    read.on_directory(&snapshot.directory, steering, now_us);
                }
                Wake::Time => read.on_time(steering, now_us),
            }
        }
    }

    /// Sends what the request wants sent.
    fn send(&self, read: &mut Read, exchange: &Arc<Exchange>, snapshot: &Snapshot, now_us: u64) {
        while let Some(sub) = read.next_send(&self.steering, now_us) {
            let id = sub.id;
            let sent = match snapshot.link(sub.node) {
                Some(link) => link.submit(Ask::new(exchange, &sub)),
                None => Err(Failure::Unsent("the node is no longer in the topology".into())),
            };
            if let Err(failure) = sent {
                read.on_failure(id, failure, &self.steering, now_us);
            }
        }
    }
}

/// The next snapshot; never, where none is waited for.
pub(crate) async fn next_snapshot(newer: Option<&mut watch::Receiver<Option<Arc<Snapshot>>>>) -> Arc<Snapshot> {
    if let Some(newer) = newer {
        while newer.changed().await.is_ok() {
            let snapshot = newer.borrow_and_update().clone();
            if let Some(snapshot) = snapshot {
                return snapshot;
            }
        }
    }
    std::future::pending().await
}
