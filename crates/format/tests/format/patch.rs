//! A patch makes exactly one chunk, and a changed byte of it never makes another one unnoticed.

use std::collections::BTreeMap;
use std::path::Path;

use fondaco_format::{
    Checksum, ChunkCounts, ChunkEntry, ChunkPlan, ChunkWriter, Compression, Encoder, FormatError, Patch, key_hash,
    write_change, write_patch,
};
use fondaco_model::PartitionId;
use proptest::prelude::*;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn plan() -> ChunkPlan {
    ChunkPlan {
        partition: PartitionId::new(3),
        chunk: 0,
        chunk_count: 1,
    }
}

fn counts(records: &Records) -> ChunkCounts {
    ChunkCounts {
        records: records.len() as u64,
        bytes: records
            .iter()
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum(),
    }
}

/// Some records have times.
fn time_ms(value: &[u8]) -> Option<u64> {
    value.len().is_multiple_of(3).then_some(1_000 + value.len() as u64)
}

fn in_order<V>(records: &BTreeMap<Vec<u8>, V>) -> Vec<(u64, &Vec<u8>, &V)> {
    let mut sorted: Vec<_> = records.iter().map(|(key, value)| (key_hash(key), key, value)).collect();
    sorted.sort_by_key(|(hash, key, _)| (*hash, *key));
    sorted
}

fn written(records: &Records) -> (ChunkEntry, Vec<u8>, Vec<u8>) {
    let mut encoder = Encoder::new(Compression::Lz4, None).unwrap();
    let mut writer = ChunkWriter::new(plan(), Compression::Lz4, Vec::new());
    for (hash, key, value) in in_order(records) {
        let encoded = encoder.encode(value).unwrap().at(time_ms(value));
        writer.append(hash, key, encoded).unwrap();
    }
    assert_eq!(writer.counts(), counts(records));
    writer.finish(Vec::new()).unwrap()
}

fn patch(base: Checksum, new: &Records, changes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Lz4, None).unwrap();
    let mut bytes = Vec::new();
    for (_, key, value) in in_order(changes) {
        let value = value.as_ref();
        let value = value.map(|value| encoder.encode(value).unwrap().at(time_ms(value)));
        write_change(&mut bytes, key, value);
    }
    write_patch(base, &plan(), counts(new), &bytes[..], Vec::new())
        .unwrap()
        .1
}

fn applied(patch: &[u8], base: &[u8]) -> Result<(ChunkEntry, Vec<u8>, Vec<u8>), FormatError> {
    let patch = Patch::open(Path::new("patch"), patch)?;
    let mut writer = patch.begin(Vec::new());
    patch.apply((Path::new("base"), &mut &base[..]), &mut writer)?;
    writer.finish(Vec::new())
}

fn bytes(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), length)
}

proptest! {
    #[test]
    fn a_patch_makes_the_chunk_of_the_changed_records(
        old in prop::collection::btree_map(bytes(1..3), bytes(0..100), 0..300),
        changes in prop::collection::btree_map(bytes(1..3), prop::option::of(bytes(0..100)), 0..50),
        flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut new = old.clone();
        for (key, value) in &changes {
            match value {
                Some(value) => drop(new.insert(key.clone(), value.clone())),
                None => drop(new.remove(key)),
            }
        }
        let (base, data, _) = written(&old);
        let patch = patch(base.data.checksum, &new, &changes);
        prop_assert_eq!(Patch::open(Path::new("patch"), &patch[..]).unwrap().base, base.data.checksum);
        let expected = written(&new);
        prop_assert!(applied(&patch, &data).unwrap() == expected);

        // Damage is an error, or shows in the checksums of the entry; it never panics.
        let flipped = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let at = flip.0.index(bytes.len());
            bytes[at] ^= 1 << (flip.1 % 8);
            bytes
        };
        if let Ok((entry, made, _)) = applied(&patch, &flipped(&data)) {
            prop_assert!(entry == expected.0 && made == expected.1, "a replaced record was damaged");
        }
        if let Ok((entry, made, _)) = applied(&flipped(&patch), &data) {
            prop_assert_eq!(entry.data.checksum == expected.0.data.checksum, made == expected.1);
        }
    }
}

#[test]
fn records_of_another_chunk_or_out_of_order_are_refused() {
    let records: Records = (0..100u8).map(|n| (vec![n], vec![n; 10])).collect();
    let (base, data, _) = written(&records);
    let mut encoder = Encoder::new(Compression::None, None).unwrap();
    let mut changes = Vec::new();
    for (_, key, value) in in_order(&records).iter().rev() {
        write_change(&mut changes, key, Some(encoder.encode(value).unwrap()));
    }
    let half = ChunkPlan {
        chunk_count: 2,
        ..plan()
    };
    for (plan, expected) in [(plan(), "out of order"), (half, "another chunk")] {
        let (_, patch) = write_patch(base.data.checksum, &plan, counts(&records), &changes[..], Vec::new()).unwrap();
        let error = applied(&patch, &data).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(expected), "{error}");
    }
}
