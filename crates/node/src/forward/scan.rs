//! Listing the keys of partitions that other nodes hold, for `SCAN`, and counting them, for `DBSIZE`.

use std::collections::BTreeSet;

use fondaco_catalog::{Catalog, Membership};
use fondaco_client::ClientError;
use fondaco_format::ScanPosition;
use fondaco_model::{NodeId, PartitionId, StoreName};
use fondaco_resp::ReplyItem;

use super::{Forwarder, refusal};

/// Keys, and the hash to go on from in their partition; `None` at its end.
pub(crate) type Listed = (Vec<Vec<u8>>, Option<u64>);

impl Forwarder {
    /// Asks the other nodes that hold a partition of a store, one after the other, and returns the first answer that can be parsed.
    /// The first part of the request is the command.
    ///
    /// # Errors
    /// The error to answer with: that of the node that was asked last; or that no other node holds the partition.
    pub(super) async fn ask_holder<T>(
        &self,
        catalog: &Catalog,
        store: &StoreName,
        partition: PartitionId,
        request: &[&[u8]],
        parse: impl Fn(&[u8], &[ReplyItem]) -> Option<T>,
    ) -> Result<T, String> {
        let mut error = refusal(ClientError::NoReplica {
            store: store.clone(),
            partition,
        });
        let Some(membership) = catalog.membership() else {
            return Err(error);
        };
        let client = self.client().map_err(refusal)?;
        let topology = membership.topology();
        let holders = topology.stores.get(store).into_iter();
        let holders = holders.flat_map(|store| topology.replicas(store, partition));
        for node in holders.filter(|&node| !membership.is(node)) {
            match client.ask(node, request, self.deadline()).await {
                Ok((reply, items)) => match parse(&reply, &items) {
                    Some(answer) => return Ok(answer),
                    None => {
                        let command = String::from_utf8_lossy(request[0]);
                        error = format!("ERR node {node} answered {command} with something else");
                    }
                },
                Err(failed) => error = refusal(failed),
            }
        }
        Err(error)
    }

    /// Lists keys of one partition from a position on, as a node that holds it tells: the first that
    /// answers.
    ///
    /// # Errors
    /// As of [`ask_holder`](Self::ask_holder).
    pub(crate) async fn scan(
        &self,
        catalog: &Catalog,
        store: u16,
        position: ScanPosition,
        count: usize,
    ) -> Result<Listed, String> {
        let name = &catalog.stores()[store as usize].name;
        let ScanPosition { partition, hash } = position;
        let membership = catalog.membership();
        let partitions = membership.map_or_else(String::new, |membership| membership.topology().partitions.to_string());
        let (number, hash, count) = (partition.to_string(), hash.to_string(), count.to_string());
        let request = [
            b"FONDACO.SCAN",
            name.as_str().as_bytes(),
            partitions.as_bytes(),
            number.as_bytes(),
            hash.as_bytes(),
            count.as_bytes(),
        ];
        self.ask_holder(catalog, name, partition, &request, listed).await
    }

    /// About how many keys a store has, as the nodes tell that hold it.
    ///
    /// # Errors
    /// The error to answer with: of the first node that did not tell.
    pub(crate) async fn count(&self, membership: &Membership, store: &StoreName) -> Result<u64, String> {
        let client = self.client().map_err(refusal)?;
        let topology = membership.topology();
        let partitions = topology.partitions.partitions();
        let leaders = partitions.filter_map(|partition| Some(membership.live_owners(partition).next()?.0));
        let leaders: BTreeSet<NodeId> = leaders.collect();
        let mut keys = 0;
        for node in leaders {
            let request = [b"FONDACO.SIZE", store.as_str().as_bytes()];
            let answer = client.ask(node, &request, self.deadline()).await;
            let (_, items) = answer.map_err(refusal)?;
            match items[..] {
                [ReplyItem::Integer(count @ 0..)] => keys += count as u64,
                _ => return Err(format!("ERR node {node} answered FONDACO.SIZE with something else")),
            }
        }
        Ok(keys)
    }
}

/// The answer to `FONDACO.SCAN`: a hash or null, and an array of keys.
fn listed(reply: &[u8], items: &[ReplyItem]) -> Option<Listed> {
    let bulk = |item: &ReplyItem| match item {
        ReplyItem::Bulk(place) => reply.get(place.range()),
        _ => None,
    };
    let [ReplyItem::Array(2), hash, ReplyItem::Array(length), keys @ ..] = items else {
        return None;
    };
    let hash = match hash {
        ReplyItem::Null => None,
        hash => Some(std::str::from_utf8(bulk(hash)?).ok()?.parse().ok()?),
    };
    let keys: Vec<Vec<u8>> = keys.iter().filter_map(|key| Some(bulk(key)?.to_vec())).collect();
    (keys.len() == *length as usize).then_some((keys, hash))
}

#[cfg(test)]
mod tests {
    use fondaco_resp::{Limits, ReplyItems, ReplyParse, parse_reply};

    use super::*;

    fn parsed(reply: &str) -> Option<Listed> {
        let mut items = ReplyItems::new();
        let parse = parse_reply(reply.as_bytes(), &Limits::default(), &mut items);
        assert!(matches!(parse, Ok(ReplyParse::Complete { .. })));
        listed(reply.as_bytes(), items.as_slice())
    }

    #[test]
    fn what_a_node_lists_is_a_hash_and_keys() {
        let keys = || vec![b"a".to_vec(), b"bc".to_vec()];
        assert_eq!(
            parsed("*2\r\n$2\r\n17\r\n*2\r\n$1\r\na\r\n$2\r\nbc\r\n"),
            Some((keys(), Some(17)))
        );
        assert_eq!(
            parsed("*2\r\n$-1\r\n*2\r\n$1\r\na\r\n$2\r\nbc\r\n"),
            Some((keys(), None))
        );
        assert_eq!(parsed("*2\r\n$-1\r\n*0\r\n"), Some((Vec::new(), None)));
        for other in [
            "+OK\r\n",
            "*0\r\n",
            "*2\r\n$1\r\nx\r\n*0\r\n",
            "*2\r\n$-1\r\n*1\r\n:1\r\n",
        ] {
            assert_eq!(parsed(other), None, "{other:?}");
        }
    }
}
