//! The records of a node, and its hints for others, read page by page.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use bytes::Bytes;
use fondaco_model::versioned::Record;
use fondaco_model::{PartitionId, slot_of_key};
use fondaco_protocol::replica::{KeyRecord, ReplicaOperation, ReplicaReply};
use fondaco_replica::RecordsPage;

use crate::cluster::{Cluster, STORE_ID, ask, node, pair, put, quiet, store, value};

/// The records of all pages of this size, and the number of pages.
fn all(page: impl Fn(Option<&[u8]>) -> RecordsPage) -> (Vec<KeyRecord>, usize) {
    let (mut records, mut after, mut pages) = (Vec::new(), None::<Bytes>, 0);
    loop {
        let RecordsPage {
            records: more, next, ..
        } = page(after.as_deref());
        records.extend(more);
        pages += 1;
        match next {
            Some(_) => after = next,
            None => return (records, pages),
        }
    }
}

fn keys(records: &[KeyRecord]) -> BTreeSet<&[u8]> {
    records.iter().map(|pair| &pair.key[..]).collect()
}

#[test]
fn pages_of_any_size_have_each_record_once() {
    let cluster = Cluster::in_memory(1, 4, &quiet());
    let names: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    for name in &names {
        put(cluster.node(1), name, value("some value"));
    }
    let mut found = BTreeSet::new();
    let (count, epoch) = (cluster.table.partitions(), NonZeroU64::new(cluster.table.epoch()));
    for partition in 0..4 {
        let partition = PartitionId::new(partition);
        let page = |bytes| {
            all(|after| {
                let page = cluster
                    .node(1)
                    .records_page(STORE_ID, (count, partition), epoch, after, bytes);
                page.unwrap().unwrap()
            })
        };
        let (records, pages) = page(500);
        assert!(pages > 1, "{pages}");
        assert_eq!(keys(&records).len(), records.len());
        assert_eq!(page(usize::MAX), (records.clone(), 1));
        // One record at a time.
        assert_eq!(page(1).0, records);
        for KeyRecord { key, record } in records {
            let (slot, record) = (slot_of_key(&store(), &key), Record::decode(record).unwrap());
            assert_eq!(cluster.view(node(1)).table.partitions().partition_of(slot), partition);
            assert!(!record.is_deleted(0));
            found.insert(key);
        }
    }
    assert_eq!(found, names.into_iter().map(Bytes::from).collect());
    let absent = cluster
        .node(1)
        .records_page(STORE_ID + 1, (count, PartitionId::new(0)), None, None, 1);
    assert!(absent.unwrap().is_none());
}

#[test]
fn hint_pages_cover_all_nodes_of_one_store() {
    let mut cluster = Cluster::in_memory(3, 4, &quiet());
    let mut expected = BTreeSet::new();
    for away in [1, 3] {
        cluster.set_live(node(away), false);
        cluster.network.cut(node(away));
        let records: Vec<KeyRecord> = (0..50)
            .map(|number| {
                let key = format!("for {away}: {number}");
                expected.insert(Bytes::from(key.clone()));
                pair(&key, put(cluster.node(2), &key, value("kept")))
            })
            .collect();
        let target = node(away);
        let kept = ask(cluster.node(2), ReplicaOperation::Hint { target, records });
        assert_eq!(kept, ReplicaReply::Done);
    }
    let page = |store, bytes| all(|after| cluster.node(2).hints_page(store, after, bytes).unwrap());
    for bytes in [1, 500, usize::MAX] {
        let (records, _) = page(STORE_ID, bytes);
        assert_eq!(records.len(), 100);
        assert!(keys(&records).into_iter().eq(expected.iter().map(|key| &key[..])));
    }
    for other in [0, STORE_ID + 1, u16::MAX] {
        assert_eq!(page(other, 500), (Vec::new(), 1), "{other}");
    }
}
