//! The mean length of a store's records, from a sample: tables do not know how many bytes they have.

use fondaco_engine::Table;

use crate::host::random_fraction;
use crate::replicas::Replicas;
use crate::table_key::range;

/// At how many random places of a store a sample is taken.
const SPOTS: usize = 8;

/// How many records are looked at in each place, at most.
const RECORDS_MAX: usize = 16;

/// How many bytes of records are read in each place, at most.
const BYTES_MAX: u64 = 1 << 20;

impl Replicas {
    /// The mean length of some records of a store on this node with their keys, in bytes; `None` if it has none here. It
    /// reads from the disk.
    pub fn sample_length(&self, store: u16) -> Option<f64> {
        let holding = self.holding();
        let store = holding.served(store)?;
        let partitions: Vec<_> = store.partitions.values().collect();
        let (mut records, mut bytes) = (0_u64, 0);
        for _ in 0..SPOTS.min(4 * partitions.len()) {
            let at = (random_fraction(&**self.host()) * partitions.len() as f64) as usize;
            let partition = partitions.get(at)?;
            // Of the sixteen parts of a partition, the records from one on.
            let part = (random_fraction(&**self.host()) * 16.0) as u64;
            let (from, _) = range(partition.count(), partition.id(), 4, part);
            let (_, to) = range(partition.count(), partition.id(), 0, 0);
            let found = sample(&*store.table, &from, to.as_deref());
            records += found.0;
            bytes += found.1;
        }
        (records > 0).then(|| bytes as f64 / records as f64)
    }
}

/// How many records were looked at in a range, and how many bytes they have.
fn sample(table: &dyn Table, from: &[u8], to: Option<&[u8]>) -> (u64, u64) {
    let (mut records, mut bytes) = (0, 0);
    let Ok(scan) = table.scan(from, to) else { return (0, 0) };
    for (key, record) in scan.take(RECORDS_MAX).flatten() {
        records += 1;
        bytes += (key.len() + record.len()) as u64;
        if bytes >= BYTES_MAX {
            break;
        }
    }
    (records, bytes)
}
