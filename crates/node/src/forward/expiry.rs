//! The expiry times of keys of hybrid stores on other nodes, for `TTL` and its like.

use fondaco_catalog::Catalog;
use fondaco_model::{PartitionId, SlotPrefix};
use fondaco_resp::ReplyItem;

use super::Forwarder;

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
    /// As of [`ask_holder`](Self::ask_holder).
    pub(crate) async fn expiry(&self, catalog: &Catalog, store: u16, key: &[u8]) -> Result<Expiry, String> {
        let name = &catalog.stores()[store as usize].name;
        let slot = SlotPrefix::of(name).slot(key);
        let partitions = catalog.membership().map(|membership| membership.topology().partitions);
        let partition = partitions.map_or(PartitionId::new(0), |partitions| partitions.partition_of(slot));
        let request = [b"FONDACO.EXPIRY", name.as_str().as_bytes(), key];
        self.ask_holder(catalog, name, partition, &request, |_, items| Expiry::parse(items))
            .await
    }
}
