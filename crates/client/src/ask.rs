//! A single request to one node over a connection of its own: for rare commands, not for look-ups.

use std::time::Duration;

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_resp::ReplyItem;

use crate::client::Client;
use crate::error::ClientError;
use crate::link::call;

impl Client {
    /// Sends a command to one node, and returns the reply with the items it consists of.
    ///
    /// It is neither retried nor hedged, and each call makes a connection; use [`Client::read`] for look-ups.
    ///
    /// # Errors
    /// [`ClientError::NoTopology`], or [`ClientError::Unavailable`]: the node is unknown or unreachable, answers with
    /// an error, or does not answer in time.
    pub async fn ask(
        &self,
        node: NodeId,
        arguments: &[&[u8]],
        timeout: Duration,
    ) -> Result<(Bytes, Vec<ReplyItem>), ClientError> {
        let unavailable = |reason: String| ClientError::Unavailable {
            node,
            reason: reason.into(),
        };
        let topology = self.topology().ok_or(ClientError::NoTopology {
            waited_ms: 0,
            reason: "no server has answered yet".into(),
        })?;
        let known = topology.nodes.get(&node);
        let address = &known
            .ok_or_else(|| unavailable("it is not in the topology".into()))?
            .resp;
        let transport = self.transport();
        let asked = async {
            let mut stream = transport.connect(address).await?;
            call(&mut stream, arguments, &transport.limits).await
        };
        match tokio::time::timeout(timeout, asked).await {
            Ok(answer) => answer.map_err(|error| unavailable(error.to_string())),
            Err(_) => Err(unavailable(format!("no answer within {} ms", timeout.as_millis()))),
        }
    }
}
