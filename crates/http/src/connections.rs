//! The open connections of the control port, and which of them gives way when the limit is reached.
//!
//! Requests that are being answered have places of the same kind, but fewer. A request waits there until its body is
//! complete, so that clients that send half of a body and stop do not keep others out either.
//!
//! A connection is *waiting* while it has no complete header to answer: during the TLS handshake, before its first
//! request, and between two requests. It is *busy* from a complete header until the body of the answer has been handed
//! over. When the limit is reached, a new connection takes the place of the one that has been waiting for longest. So
//! clients that connect and send nothing do not keep others out, health checks least of all. Busy connections are never
//! dropped: the limit of concurrent requests bounds them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// All connections.
#[derive(Debug)]
pub(super) struct Connections {
    limit: usize,
    table: Mutex<Table>,
    /// Notified of each connection that ends.
    ended: Notify,
    evicted: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Table {
    open: usize,
    /// Turns to wait, given out in order.
    next_turn: u64,
    /// The waiting connections by their turn: the first has waited for longest.
    waiting: BTreeMap<u64, Arc<Notify>>,
}

/// One connection. It is waiting at first.
#[derive(Debug)]
pub(super) struct Connection {
    connections: Arc<Connections>,
    /// Notified when the connection must give way.
    evicted: Arc<Notify>,
    /// Its turn while it is waiting.
    turn: Mutex<Option<u64>>,
}

impl Connections {
    /// At most `limit` connections at a time; those that gave way are counted in `evicted`.
    pub(super) fn new(limit: usize, evicted: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            table: Mutex::default(),
            ended: Notify::new(),
            evicted,
        })
    }

    /// Takes a place for a new connection; if all are taken, that of the connection that has waited for longest.
    pub(super) async fn enter(self: &Arc<Self>) -> Connection {
        loop {
            let ended = self.ended.notified();
            {
                let mut table = self.table.lock();
                if table.open < self.limit {
                    table.open += 1;
                    let connection = Connection {
                        connections: Arc::clone(self),
                        evicted: Arc::new(Notify::new()),
                        turn: Mutex::new(None),
                    };
                    connection.wait_in(&mut table);
                    return connection;
                }
                if let Some((_, oldest)) = table.waiting.pop_first() {
                    self.evicted.fetch_add(1, Relaxed);
                    oldest.notify_one();
                }
            }
            ended.await;
        }
    }

    /// The same, unless all are busy.
    pub(super) async fn enter_unless_busy(self: &Arc<Self>) -> Option<Connection> {
        let is_busy = {
            let table = self.table.lock();
            table.open >= self.limit && table.waiting.is_empty()
        };
        match is_busy {
            true => None,
            false => Some(self.enter().await),
        }
    }

    /// Waits until no connection is open.
    pub(super) async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.table.lock().open == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Connection {
    /// A header is complete: the connection is busy. Returns whether it was waiting, and did not have to give way.
    pub(super) fn begin(&self) -> bool {
        let mut table = self.connections.table.lock();
        let turn = self.turn.lock().take();
        turn.is_some_and(|turn| table.waiting.remove(&turn).is_some())
    }

    /// The response is sent: the connection is waiting again, as the last one.
    pub(super) fn finish(&self) {
        self.wait_in(&mut self.connections.table.lock());
    }

    /// Waits until the connection must give way.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    fn wait_in(&self, table: &mut Table) {
        let turn = table.next_turn;
        table.next_turn += 1;
        table.waiting.insert(turn, Arc::clone(&self.evicted));
        if let Some(earlier) = self.turn.lock().replace(turn) {
            table.waiting.remove(&earlier);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.begin();
        self.connections.table.lock().open -= 1;
        self.connections.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_longest_waiting_connection_gives_way_and_busy_ones_stay() {
        let evicted = Arc::new(AtomicU64::new(0));
        let connections = Connections::new(3, Arc::clone(&evicted));
        let enter = || now(connections.enter());
        let (first, second, third) = (enter().unwrap(), enter().unwrap(), enter().unwrap());
        assert!(first.begin() && second.begin());
        second.finish();
        // By now the second has waited for less time than the third.
        assert!(enter().is_none(), "the third has not ended yet");
        assert!(now(third.evicted()).is_some() && !third.begin());
        assert!(now(first.evicted()).is_none() && now(second.evicted()).is_none());
        drop(third);
        let fourth = enter().unwrap();
        fourth.begin();
        assert!(enter().is_none());
        assert!(now(second.evicted()).is_some());
        drop(second);
        let fifth = enter().unwrap();
        fifth.begin();
        assert!(enter().is_none(), "all are busy");
        assert!(matches!(now(connections.enter_unless_busy()), Some(None)));
        assert_eq!(evicted.load(Relaxed), 2);
        drop((first, fourth, fifth));
        assert!(now(connections.all_ended()).is_some());
    }
}
