//! When keys of hybrid stores expire that other nodes have, for `TTL` and its like.

use fondaco_catalog::Catalog;
use fondaco_client::ClientError;
use fondaco_model::{PartitionId, SlotPrefix};
use fondaco_resp::ReplyItem;

use super::{Forwarder, refusal};

/// When a key expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The key has no value.
    Absent,
    /// The value does not expire.
    Never,
    /// At this time, in milliseconds since 1970.
    At(u64),
}

impl Expiry {
    /// As `PEXPIRETIME` answers it.
    pub(crate) fn to_integer(self) -> i64 {
        match self {
            Self::Absent => -2,
            Self::Never => -1,
            Self::At(unix_ms) => i64::try_from(unix_ms).unwrap_or(i64::MAX),
        }
    }

    fn parse(items: &[ReplyItem]) -> Option<Self> {
        match *items {
            [ReplyItem::Integer(-2)] => Some(Self::Absent),
            [ReplyItem::Integer(-1)] => Some(Self::Never),
            [ReplyItem::Integer(unix_ms)] => Some(Self::At(u64::try_from(unix_ms).ok()?)),
            _ => None,
        }
    }
}

impl Forwarder {
    /// When a key expires, as a node that holds it says: the first that answers.
    ///
    /// # Errors
    /// The error to answer with: of the node that was asked last, or that there is none.
    pub(crate) async fn expiry(&self, catalog: &Catalog, store: u16, key: &[u8]) -> Result<Expiry, String> {
        let name = &catalog.stores()[store as usize].name;
        let slot = SlotPrefix::of(name).slot(key);
        let none = |partition| {
            let store = name.clone();
            refusal(ClientError::NoReplica { store, partition })
        };
        let Some(membership) = catalog.membership() else {
            return Err(none(PartitionId::new(0)));
        };
        let topology = membership.topology();
        let partition = topology.partitions.partition_of(slot);
        let mut error = none(partition);
        let client = self.client().map_err(refusal)?;
        let holders = topology.stores.get(name).into_iter();
        let holders = holders.flat_map(|store| topology.replicas(store, partition));
        let request = [b"FONDACO.EXPIRY", name.as_str().as_bytes(), key];
        for node in holders.filter(|&node| !membership.is(node)) {
            match client.ask(node, &request, self.deadline()).await {
                Ok((_, items)) => match Expiry::parse(&items) {
                    Some(expiry) => return Ok(expiry),
                    None => error = format!("ERR node {node} answered FONDACO.EXPIRY with something else"),
                },
                Err(failed) => error = refusal(failed),
            }
        }
        Err(error)
    }
}
