//! Topologies from the cluster itself: `FONDACO.TOPOLOGY [tag]`, asked of one node or router at a time.
//!
//! The answer is an array of two strings, a tag and the topology as JSON, or null when the tag that was
//! sent is still that of the latest. One server is asked once a second, and soon after a request found
//! the topology to be old; the next one when it does not answer, or keeps telling what is old. Servers
//! that are not among the seeds are learnt from the topologies. What is known never goes back: of what a
//! server tells that is behind, only what is newer is taken. A server of another cluster is believed if it
//! is a seed: then that is where the cluster is now.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fondaco_model::cluster::Topology;
use fondaco_resp::ReplyItem;
use tokio::sync::{Notify, watch};

use crate::link::{Stream, Transport, call, first_bulks};

const PERIOD: Duration = Duration::from_secs(1);
/// The least time between two questions, however many requests want to know.
const SPACING: Duration = Duration::from_millis(10);
/// The pause after all servers were asked in vain.
const PAUSE: Duration = Duration::from_millis(100);

/// Asks for topologies until nobody wants them.
pub(super) struct Seeds {
    seeds: Vec<String>,
    transport: Arc<Transport>,
    found: watch::Sender<Option<Arc<Topology>>>,
    trouble: watch::Sender<Arc<str>>,
    wanted: Arc<Notify>,
    /// Where the next question goes, and the connection that is there already.
    turn: usize,
    /// Whether each question goes to another server.
    pub(super) roams: bool,
    connection: Option<Stream>,
    tag: Vec<u8>,
}

/// What a server said.
enum Told {
    Newer,
    Unchanged,
}

impl Seeds {
    pub(super) fn new(
        seeds: Vec<String>,
        transport: Arc<Transport>,
        found: watch::Sender<Option<Arc<Topology>>>,
        trouble: watch::Sender<Arc<str>>,
        wanted: Arc<Notify>,
    ) -> Self {
        Self {
            // So that many clients do not all ask the first.
            turn: fastrand::usize(..seeds.len().max(1)),
            seeds,
            transport,
            found,
            trouble,
            wanted,
            roams: false,
            connection: None,
            tag: Vec::new(),
        }
    }

    /// Asks until the client is gone.
    pub(super) async fn run(mut self) {
        let mut failures = 0;
        let mut urgent = false;
        while !self.found.is_closed() {
            match self.ask().await {
                Ok(told) => {
                    failures = 0;
                    // A server that knows no more than we do, when a node did, is behind itself.
                    if self.roams || urgent && matches!(told, Told::Unchanged) {
                        self.next_server();
                    }
                }
                Err(error) => {
                    tracing::debug!(server = self.server(), %error, "a server did not tell the topology");
                    let _ = self.trouble.send(format!("{} said: {error}", self.server()).into());
                    self.next_server();
                    failures += 1;
                    let all = self.servers();
                    tokio::time::sleep(if failures % all == 0 { PAUSE } else { Duration::ZERO }).await;
                    continue;
                }
            }
            tokio::time::sleep(SPACING).await;
            let period = PERIOD.mul_f64(0.75 + fastrand::f64() / 2.0);
            urgent = tokio::time::timeout(period, self.wanted.notified()).await.is_ok();
        }
    }

    async fn ask(&mut self) -> io::Result<Told> {
        let timeout = self.transport.connect_timeout;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.transport.connect(&self.server()).await?,
        };
        let mut arguments: Vec<&[u8]> = vec![b"FONDACO.TOPOLOGY"];
        if !self.tag.is_empty() {
            arguments.push(&self.tag);
        }
        let answered = tokio::time::timeout(timeout, call(&mut connection, &arguments, &self.transport.limits));
        let (reply, items) = answered.await.map_err(io::Error::other)??;
        if let [ReplyItem::Null] = items[..] {
            self.connection = Some(connection);
            return Ok(Told::Unchanged);
        }
        let Some([tag, topology]) = first_bulks(&reply, &items) else {
            return Err(io::Error::other("the answer is no tag and topology"));
        };
        let mut topology: Topology = serde_json::from_slice(topology)?;
        self.tag = tag.to_vec();
        self.connection = Some(connection);
        let is_seed = self.turn % self.servers() < self.seeds.len();
        let changed = self.found.send_if_modified(|latest| {
            if let Some(known) = latest
                && (known.cluster == topology.cluster || !is_seed)
            {
                topology = known.joined(&topology);
            }
            let changed = latest.as_deref() != Some(&topology);
            if changed {
                *latest = Some(Arc::new(topology));
            }
            changed
        });
        Ok(if changed { Told::Newer } else { Told::Unchanged })
    }

    /// The tag stays: whichever server knows the same calls it the same.
    fn next_server(&mut self) {
        self.connection = None;
        self.turn = self.turn.wrapping_add(1);
    }

    /// Whom to ask: the seeds first, then the nodes of the last topology.
    fn server(&self) -> String {
        let turn = self.turn % self.servers();
        if let Some(seed) = self.seeds.get(turn) {
            return seed.clone();
        }
        let latest = self.found.borrow();
        let node = latest
            .as_ref()
            .and_then(|topology| topology.nodes.values().nth(turn - self.seeds.len()));
        node.map(|node| node.resp.clone()).unwrap_or_default()
    }

    fn servers(&self) -> usize {
        let nodes = self.found.borrow().as_ref().map_or(0, |topology| topology.nodes.len());
        (self.seeds.len() + nodes).max(1)
    }
}
