//! Records that expire: look-ups in every way leave them out, and their times are kept.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use fondaco_format::{ColdStep, Compression, Lifetimes, Lookup, ScanPosition, Version};
use fondaco_model::PartitionId;

use crate::written::{Shape, write_dated};

const HOUR_MS: u64 = 3_600_000;

#[test]
fn records_are_absent_once_their_time_is_over_in_look_ups_and_scans() {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    // By the number of the key: no time, an old time, a new one.
    let own_ms = move |key: &[u8]| match key[1] % 3 {
        0 => None,
        1 => Some(now_ms - 3 * HOUR_MS),
        _ => Some(now_ms - HOUR_MS),
    };
    let value = |number: u8| {
        vec![
            number;
            if number.is_multiple_of(7) {
                150_000
            } else {
                5 + usize::from(number)
            }
        ]
    };
    let records: BTreeMap<Vec<u8>, Vec<u8>> = (0..90).map(|number| (vec![b'k', number], value(number))).collect();
    for compression in [Compression::None, Compression::Lz4] {
        let shape = Shape {
            partitions: 4,
            chunks: 2,
            compression,
        };
        for undated_ms in [now_ms - 3 * HOUR_MS, now_ms - HOUR_MS] {
            let dir = tempfile::tempdir().unwrap();
            write_dated("pymk", dir.path(), &records, &shape, &own_ms);
            let version = Version::open(dir.path()).unwrap();
            let all: BTreeMap<_, _> = version.scan().map(Result::unwrap).collect();
            assert_eq!(all, records, "without lifetimes nothing expires");
            version.set_lifetimes(Lifetimes {
                ttl_ms: 2 * HOUR_MS,
                undated_unix_ms: undated_ms,
            });
            let lives = |key: &[u8]| own_ms(key).unwrap_or(undated_ms) == now_ms - HOUR_MS;
            let expected: BTreeMap<_, _> = records.clone().into_iter().filter(|(key, _)| lives(key)).collect();
            assert!((30..=60).contains(&expected.len()));
            for _ in 0..2 {
                for (key, value) in &records {
                    let found = version.get_owned(key).unwrap();
                    assert_eq!(found.as_ref(), expected.get(key));
                    let probe = version.probe(key);
                    let mut found = version.lookup(&probe, key).unwrap();
                    while let Lookup::Cold(read) = found {
                        let range = read.range();
                        let mut bytes = vec![0; (range.end - range.start) as usize];
                        std::os::unix::fs::FileExt::read_exact_at(version.cold_file(&read), &mut bytes, range.start)
                            .unwrap();
                        found = match version.complete(read, key, bytes).unwrap() {
                            ColdStep::Found(value) => Lookup::Found(value),
                            ColdStep::Absent => Lookup::Absent,
                            ColdStep::Read(next) => Lookup::Cold(next),
                        };
                    }
                    assert_eq!(matches!(found, Lookup::Found(_)), lives(key));
                    let dated = version.get_dated(key).unwrap();
                    assert_eq!(dated, Some((value.clone(), own_ms(key))), "expired or not");
                }
            }
            let keys: Vec<_> = records.keys().collect();
            let mut many = BTreeMap::new();
            version.get_many(&keys, |at, found| {
                if let Some(found) = found.unwrap() {
                    many.insert(keys[at].clone(), found.to_vec());
                }
            });
            assert_eq!(many, expected);
            let scanned: BTreeMap<_, _> = version.scan().map(Result::unwrap).collect();
            assert_eq!(scanned, expected);
            let (listed, next) = version.keys_from(ScanPosition::START, usize::MAX).unwrap();
            assert_eq!((listed.len(), next), (expected.len(), None));
            let mut expired = Vec::new();
            for partition in (0..4).map(PartitionId::new) {
                let mut hash = Some(0);
                while let Some(from) = hash {
                    let position = ScanPosition { partition, hash: from };
                    let (keys, next) = version.expired_from(position, now_ms, 3).unwrap();
                    expired.extend(keys);
                    hash = next;
                }
            }
            expired.sort();
            expired.dedup();
            let over: Vec<_> = records.keys().filter(|key| !lives(key)).cloned().collect();
            assert_eq!(expired, over);
        }
    }
}
