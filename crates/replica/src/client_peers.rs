//! The way to other nodes through the client library: its connections, its sense of which nodes answer.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use fondaco_client::quorum::{OnReply, ReplicaError, ReplicaErrorCode, ReplicaReply, ReplicaRequest};
use fondaco_client::{Client, ClientBuilder, ClientError};
use fondaco_model::NodeId;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::error::ReplicasError;
use crate::peers::Peers;

/// Other nodes, as a client of the cluster reaches them. Its connections live on a thread of its own, which ends
/// with it.
pub struct ClientPeers {
    client: Client,
    runtime: Handle,
    ended: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl ClientPeers {
    /// Begins to follow the topology that the client is to be made with.
    ///
    /// # Errors
    /// A client that cannot be made, or a thread that cannot be had.
    pub fn start(builder: ClientBuilder) -> Result<Self, ReplicasError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ReplicasError::io("start the runtime", "peers".as_ref()))?;
        let handle = runtime.handle().clone();
        let ended = Arc::new(Notify::new());
        let theirs = Arc::clone(&ended);
        let (sender, receiver) = mpsc::sync_channel(1);
        let run = move || {
            runtime.block_on(async move {
                // It is waited for below.
                let _ = sender.send(builder.build());
                theirs.notified().await;
            });
        };
        let thread = std::thread::Builder::new()
            .name("peers".into())
            .spawn(run)
            .map_err(ReplicasError::io("start the thread", "peers".as_ref()))?;
        let unavailable = |_| ClientError::NoTopology {
            waited_ms: 0,
            reason: "the thread of the connections to other nodes has ended".into(),
        };
        let client = receiver.recv().map_err(unavailable).flatten()?;
        Ok(Self {
            client,
            runtime: handle,
            ended,
            thread: Some(thread),
        })
    }
}

impl Peers for ClientPeers {
    fn ask(&self, node: NodeId, request: ReplicaRequest, answer: OnReply) {
        let client = self.client.clone();
        self.runtime.spawn(async move {
            let timeout = Duration::from_millis(request.timeout_ms);
            let reply = client.ask_replica(node, request, timeout).await;
            answer(reply.unwrap_or_else(|error| ReplicaReply::Error(error_of(&error))));
        });
    }
}

fn error_of(error: &ClientError) -> ReplicaError {
    let code = match error {
        ClientError::Timeout { .. } => ReplicaErrorCode::Timeout,
        ClientError::Overloaded { .. } => ReplicaErrorCode::Overloaded,
        _ => ReplicaErrorCode::Other,
    };
    ReplicaError::new(code, error.to_string())
}

impl Drop for ClientPeers {
    fn drop(&mut self) {
        self.ended.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the connections to other nodes ended by a panic");
        }
    }
}

impl fmt::Debug for ClientPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientPeers")
    }
}
