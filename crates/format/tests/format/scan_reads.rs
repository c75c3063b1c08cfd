//! Disk reads of a scan: large pieces, and not more than requested.

use std::collections::BTreeMap;

use crate::written::{Shape, write};
use fondaco_format::{Compression, ScanPosition, Version};

/// The number of read system calls of this thread, and the bytes that they returned.
fn reads_so_far() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    (number("syscr:"), number("rchar:"))
}

#[test]
fn a_scan_reads_many_records_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let record = |n: u32| (n.to_string().into_bytes(), vec![7; 1000]);
    let records: BTreeMap<_, _> = (0..4000).map(record).collect();
    let shape = Shape {
        partitions: 2,
        chunks: 2,
        compression: Compression::None,
    };
    write(dir.path(), &records, &shape);
    for is_warm in [false, true] {
        let version = Version::open(dir.path()).unwrap();
        if is_warm {
            version.warm().unwrap();
        }
        let (calls, bytes) = reads_so_far();
        let mut met = 0;
        let mut position = Some(ScanPosition::START);
        while let Some(from) = position {
            let (keys, next) = version.keys_from(from, 1000).unwrap();
            assert!(keys.iter().all(|key| records.contains_key(key)));
            met += keys.len();
            position = next;
        }
        assert_eq!(met, 4000);
        let (calls, bytes) = (reads_so_far().0 - calls, reads_so_far().1 - bytes);
        assert!(calls < 60, "{calls} reads for 4 MB");
        assert!(bytes < 6_000_000, "{bytes} bytes were read");

        let (_, bytes) = reads_so_far();
        let (keys, _) = version.keys_from(ScanPosition::START, 10).unwrap();
        assert!((10..20).contains(&keys.len()), "{}", keys.len());
        let bytes = reads_so_far().1 - bytes;
        assert!(bytes < 40_000, "{bytes} bytes for 10 keys");
    }
}
