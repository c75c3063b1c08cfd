//! Whether nodes that hold a key of a hybrid store have applied an event, for writes through a process that does not hold it.

use std::time::Instant;

use fondaco_catalog::Catalog;
use fondaco_model::{PROTOCOL_OF_EVENT_WRITES, SlotPrefix};
use fondaco_resp::ReplyItem;
use fondaco_stream::Written;

use super::{Forwarder, refusal};

impl Forwarder {
    /// Waits until all nodes that may be asked for a key have applied an event. A node that does not answer, or does not hold the key,
    /// is not asked for it either.
    ///
    /// # Errors
    /// A node has not applied it in time, or none has answered.
    pub(crate) async fn applied(
        &self,
        catalog: &Catalog,
        store: u16,
        key: &[u8],
        written: Written,
        until: Instant,
    ) -> Result<(), String> {
        let name = &catalog.stores()[store as usize].name;
        let membership = catalog.membership().ok_or("this process is in no cluster")?;
        let topology = membership.topology();
        if topology.protocol < PROTOCOL_OF_EVENT_WRITES {
            return Err(
                "some members of the cluster are of an earlier release: upgrade them, or ask a node that holds the key"
                    .into(),
            );
        }
        let partition = topology.partitions.partition_of(SlotPrefix::of(name).slot(key));
        let holders = topology.stores.get(name).into_iter();
        let holders = holders.flat_map(|store| topology.replicas(store, partition));
        let live =
            holders.filter(|node| topology.nodes.get(node).is_some_and(|node| node.live) && !membership.is(*node));
        let client = self.client().map_err(refusal)?;
        let (of_topic, offset) = (written.partition.to_string(), written.offset.to_string());
        let mut answered = Err("no node that holds it is live".to_owned());
        for node in live {
            let left = until.saturating_duration_since(Instant::now());
            let left_ms = left.as_millis().to_string();
            let request: [&[u8]; 6] = [
                b"FONDACO.APPLIED",
                name.as_str().as_bytes(),
                key,
                of_topic.as_bytes(),
                offset.as_bytes(),
                left_ms.as_bytes(),
            ];
            match client.ask(node, &request, left + self.deadline() / 2).await {
                Ok((_, items)) if items[..] == [ReplyItem::Integer(1)] => answered = Ok(()),
                Ok(_) => return Err(format!("node {node} has not read it in time")),
                // Reads pass it over, too.
                Err(error) => answered = answered.map_err(|_| refusal(error)),
            }
        }
        answered
    }
}
