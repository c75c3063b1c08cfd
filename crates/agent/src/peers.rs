//! Access to other nodes through the client library: its connections, and its failure detector.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use fondaco_client::{Client, ClientBuilder, ClientError};
use fondaco_model::NodeId;
use fondaco_protocol::replica::{OnReply, ReplicaError, ReplicaErrorCode, ReplicaReply, ReplicaRequest};
use fondaco_replica::Peers;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Other nodes, as a client of the cluster reaches them. Its connections live on a separate thread, which ends when
/// this is dropped. No connection is opened before the first request.
pub(crate) struct ClientPeers {
    client: Arc<Mutex<Way>>,
    runtime: Handle,
    ended: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// The client, which connects to all nodes as soon as it is made.
struct Way {
    /// The builder, until the first request makes the client.
    builder: Option<Box<ClientBuilder>>,
    /// The client, or why it could not be made.
    made: Option<Result<Client, ClientError>>,
}

impl Way {
    /// The client. To be called within the runtime of its connections.
    fn client(&mut self) -> Result<Client, ClientError> {
        if let Some(builder) = self.builder.take() {
            self.made = Some(builder.build());
        }
        let unknown = || {
            Err(ClientError::NoTopology {
                waited_ms: 0,
                reason: "the connections to other nodes could not be made".into(),
            })
        };
        self.made.clone().unwrap_or_else(unknown)
    }
}

impl ClientPeers {
    /// Other nodes, reached through a client that `builder` makes.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(builder: ClientBuilder) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let ended = Arc::new(Notify::new());
        let theirs = Arc::clone(&ended);
        let run = move || runtime.block_on(theirs.notified());
        let thread = std::thread::Builder::new().name("peers".into()).spawn(run)?;
        Ok(Self {
            client: Arc::new(Mutex::new(Way {
                builder: Some(Box::new(builder)),
                made: None,
            })),
            runtime: handle,
            ended,
            thread: Some(thread),
        })
    }
}

impl Peers for ClientPeers {
    fn ask(&self, node: NodeId, request: ReplicaRequest, answer: OnReply) {
        let client = Arc::clone(&self.client);
        self.runtime.spawn(async move {
            let timeout = Duration::from_millis(request.timeout_ms);
            let client = client.lock().client();
            let reply = match client {
                Ok(client) => client.ask_replica(node, request, timeout).await,
                Err(error) => Err(error),
            };
            answer(reply.unwrap_or_else(|error| ReplicaReply::Error(error_of(&error))));
        });
    }
}

fn error_of(error: &ClientError) -> ReplicaError {
    let code = match error {
        // The node did not answer, so it refused nothing.
        ClientError::Timeout { .. } | ClientError::Unavailable { .. } | ClientError::NoTopology { .. } => {
            ReplicaErrorCode::Timeout
        }
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
