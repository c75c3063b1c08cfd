//! The loop of a connection: connect, use it until it breaks, reconnect with growing backoff.
//!
//! While there is no connection and none is being made, requests fail at once, so that they can go to other nodes. A
//! successful connection ends the suspension of a node.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::mpsc;

use super::connection::{Connection, End};
use super::transport::Transport;
use super::{CONNECTED, CONNECTING, DOWN, LineState, Message};
use crate::clock::Clock;
use crate::read::{Failure, NodeHealth};

const PAUSE_FIRST: Duration = Duration::from_millis(25);
const PAUSE_LAST: Duration = Duration::from_secs(1);
/// A connection that lived shorter than this counts as a failed attempt.
const LIVED_US_MIN: u64 = 1_000_000;

/// Maintains one connection to one node.
pub(super) struct ConnectionLoop {
    pub(super) requests: mpsc::UnboundedReceiver<Message>,
    pub(super) shared: Arc<LineState>,
    pub(super) address: Arc<str>,
    pub(super) health: Arc<NodeHealth>,
    pub(super) transport: Arc<Transport>,
    pub(super) clock: Clock,
}

impl ConnectionLoop {
    /// Maintains the connection until the client no longer uses it.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE_FIRST;
        while !self.requests.is_closed() {
            self.shared.stage.store(CONNECTING, Relaxed);
            let reason = match self.transport.connect(&self.address).await {
                Ok(stream) => {
                    let made_us = self.clock.now_us();
                    self.health.probe_succeeded(made_us);
                    self.shared.stage.store(CONNECTED, Relaxed);
                    let reason = match Connection::new(&mut self, stream).serve().await {
                        End::Unused => return,
                        End::Broken(reason) => reason,
                    };
                    tracing::debug!(address = %self.address, %reason, "a connection broke");
                    if self.clock.now_us() - made_us >= LIVED_US_MIN {
                        pause = PAUSE_FIRST;
                        continue;
                    }
                    reason
                }
                Err(error) => {
                    let now_us = self.clock.now_us();
                    if self.health.unreachable(now_us) {
                        tracing::warn!(address = %self.address, %error, "a node cannot be reached: using other nodes");
                    }
                    error.to_string().into()
                }
            };
            self.shared.stage.store(DOWN, Relaxed);
            self.refuse_for(pause.mul_f64(0.75 + fastrand::f64() / 2.0), &reason)
                .await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    /// Refuses requests for a while.
    async fn refuse_for(&mut self, pause: Duration, reason: &Arc<str>) {
        let end = tokio::time::sleep(pause);
        tokio::pin!(end);
        loop {
            tokio::select! {
                message = self.requests.recv() => match message {
                    Some(Message::Read(ask)) => ask.fail(Failure::Unsent(Arc::clone(reason))),
                    Some(Message::Replica(ask)) => ask.fail(Failure::Unsent(Arc::clone(reason))),
                    // The attempt to connect is the probe.
                    Some(Message::Watch) => {}
                    None => return,
                },
                () = &mut end => return,
            }
        }
    }
}
