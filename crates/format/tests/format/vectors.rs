//! The place of a key is that of the vectors in `docs/vectors/keys.json`, which other programs test themselves with.

use fondaco_format::{bucket_of_hash, chunk_of_hash, key_hash, key_position};
use fondaco_model::{PartitionCount, SlotPrefix, StoreName};
use serde_json::Value;

fn number(text: &str) -> u32 {
    text.parse().unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2);
    digits
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn keys_are_where_the_vectors_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/keys.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    assert!(vectors.len() >= 20);
    for vector in vectors {
        let store: StoreName = vector["store"].as_str().unwrap().parse().unwrap();
        let key = bytes(vector["key"].as_str().unwrap());
        let slot = SlotPrefix::of(&store).slot(&key);
        assert_eq!(vector["slot"], slot.get(), "{vector}");
        let hash = key_hash(&key);
        assert_eq!(vector["hash"], format!("{hash:016x}"), "{vector}");
        for (count, expected) in vector["partitions"].as_object().unwrap() {
            let count: PartitionCount = number(count).try_into().unwrap();
            let partition = count.partition_of(slot);
            assert_eq!(expected["partition"], partition.get(), "{vector}");
            assert_eq!(
                expected["position"],
                key_position(count, partition, hash).to_string(),
                "{vector}"
            );
        }
        for (count, expected) in vector["chunks"].as_object().unwrap() {
            assert_eq!(*expected, chunk_of_hash(hash, number(count)), "{vector}");
        }
        for (counts, expected) in vector["buckets"].as_object().unwrap() {
            let (buckets, chunks) = counts.split_once(" of ").unwrap();
            assert_eq!(
                *expected,
                bucket_of_hash(hash, number(chunks), number(buckets)),
                "{vector}"
            );
        }
    }
}
