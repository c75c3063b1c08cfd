//! An index file: any bytes, and one as it should be with a few bytes changed and every checksum right.

#![no_main]

use fondaco_format::{DATA_HEADER_BYTES, FORMAT_VERSION, check_index};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

const BLOCK_BYTES: usize = 4096;
const BUCKETS_PER_BLOCK: usize = 1022;

/// The blocks of an index of buckets of these lengths, before their checksums.
fn blocks(bucket_lengths: &[u8]) -> Vec<u8> {
    let mut starts = vec![DATA_HEADER_BYTES as u32];
    for &length in bucket_lengths {
        starts.push(starts[starts.len() - 1] + u32::from(length));
    }
    let end = starts[starts.len() - 1];
    let mut file = b"FONDINDX".to_vec();
    let header = [FORMAT_VERSION, 0, 0, 1, bucket_lengths.len() as u32, 0, 7, 0, end, 0];
    file.extend(header.iter().flat_map(|number| number.to_le_bytes()));
    file.resize(BLOCK_BYTES, 0);
    for first in (0..bucket_lengths.len()).step_by(BUCKETS_PER_BLOCK) {
        let places = starts[first..].iter().copied().chain(std::iter::repeat(end));
        file.extend(places.take(BUCKETS_PER_BLOCK + 1).flat_map(u32::to_le_bytes));
        file.resize(file.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    file
}

fuzz_target!(|input: (&[u8], Vec<(u16, u8)>)| {
    let (bytes, changes) = input;
    let _ = check_index(bytes);
    let mut file = blocks(bytes);
    for (place, byte) in &changes {
        let place = usize::from(*place) % file.len();
        file[place] = *byte;
    }
    for block in file.chunks_exact_mut(BLOCK_BYTES) {
        let (contents, checksum) = block.split_at_mut(BLOCK_BYTES - 4);
        checksum.copy_from_slice(&(xxh3_64(contents) as u32).to_le_bytes());
    }
    let checked = check_index(&file);
    if changes.is_empty() && !bytes.is_empty() {
        checked.expect("an index as it should be");
    }
});
