//! Topologies from the cluster itself: `FONDACO.TOPOLOGY [tag]`, sent to one node or router at a time.
//!
//! The answer is an array of two strings, a tag and the topology as JSON, or null if the tag in the request is the
//! latest. One server is asked once a second, and soon after a request found the topology to be old. The next server is
//! asked when this one does not answer, or keeps answering an old topology. Further servers are learned from the
//! topologies. Known state never goes back: from an older answer, only the newer parts are taken. A seed that belongs
//! to another cluster is trusted: then the cluster has moved there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fondaco_model::cluster::Topology;
use fondaco_resp::ReplyItem;
use tokio::sync::{Notify, watch};

use super::Trouble;
use crate::link::{Stream, Transport, call, first_bulks};

const PERIOD: Duration = Duration::from_secs(1);
/// The least time between two requests, however many operations want a newer topology.
const SPACING: Duration = Duration::from_millis(10);
/// The pause after no server answered.
const PAUSE: Duration = Duration::from_millis(100);

/// Asks for topologies until the client is dropped.
pub(super) struct Seeds {
    seeds: Vec<String>,
    transport: Arc<Transport>,
    found: watch::Sender<Option<Arc<Topology>>>,
    trouble: watch::Sender<Trouble>,
    wanted: Arc<Notify>,
    /// The server of the next request, and the open connection to it.
    turn: usize,
    /// Whether each request goes to a different server.
    pub(super) roams: bool,
    connection: Option<Stream>,
    tag: Vec<u8>,
}

/// Whether a server refuses the user, the password, or what the user asks for: it will do so again.
fn is_refusal(error: &io::Error) -> bool {
    let text = error.to_string();
    let code = text.split(' ').next();
    matches!(code, Some("WRONGPASS" | "NOAUTH" | "NOPERM"))
}

/// A server's answer.
enum TopologyAnswer {
    Newer,
    Unchanged,
}

impl Seeds {
    pub(super) fn new(
        seeds: Vec<String>,
        transport: Arc<Transport>,
        found: watch::Sender<Option<Arc<Topology>>>,
        trouble: watch::Sender<Trouble>,
        wanted: Arc<Notify>,
    ) -> Self {
        Self {
            // A random start, so that many clients do not all ask the first server.
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
        // Of the present round through all servers.
        let (mut refusal, mut others) = (None, false);
        let mut urgent = false;
        while !self.found.is_closed() {
            match self.ask().await {
                Ok(answer) => {
                    failures = 0;
                    // The client knew from a node that the topology is old, but this server has no newer one: it is
                    // behind.
                    if self.roams || urgent && matches!(answer, TopologyAnswer::Unchanged) {
                        self.next_server();
                    }
                }
                Err(error) => {
                    tracing::debug!(server = self.server(), %error, "a server did not return the topology");
                    let reason: Arc<str> = format!("{} said: {error}", self.server()).into();
                    match is_refusal(&error) {
                        true => refusal = Some(Arc::clone(&reason)),
                        false => others |= error.kind() == io::ErrorKind::Other,
                    }
                    self.next_server();
                    failures += 1;
                    let asked_all = failures % self.servers() == 0;
                    let final_refusal = refusal.clone().filter(|_| asked_all && !others);
                    let _ = self.trouble.send(Trouble {
                        refused: final_refusal.is_some(),
                        reason: final_refusal.unwrap_or(reason),
                    });
                    if asked_all {
                        (refusal, others) = (None, false);
                        tokio::time::sleep(PAUSE).await;
                    }
                    continue;
                }
            }
            tokio::time::sleep(SPACING).await;
            let period = PERIOD.mul_f64(0.75 + fastrand::f64() / 2.0);
            urgent = tokio::time::timeout(period, self.wanted.notified()).await.is_ok();
        }
    }

    async fn ask(&mut self) -> io::Result<TopologyAnswer> {
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
            return Ok(TopologyAnswer::Unchanged);
        }
        let Some([tag, topology]) = first_bulks(&reply, &items) else {
            return Err(io::Error::other("the answer is not a tag and a topology"));
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
        Ok(if changed {
            TopologyAnswer::Newer
        } else {
            TopologyAnswer::Unchanged
        })
    }

    /// The tag stays: all servers give the same topology the same tag.
    fn next_server(&mut self) {
        self.connection = None;
        self.turn = self.turn.wrapping_add(1);
    }

    /// The server to ask: the seeds first, then the nodes of the last topology.
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
