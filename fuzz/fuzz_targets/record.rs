//! A record of a versioned store, an update and a clock, as the bytes are and with the right checksum in them.

#![no_main]

use bytes::Bytes;
use fondaco_model::versioned::{Record, Resolution, Update, VectorClock, resolve};
use libfuzzer_sys::fuzz_target;

fn check(bytes: Bytes) {
    if let Ok(record) = Record::decode(bytes.clone()) {
        assert_eq!(record.to_bytes(), &bytes[..]);
        assert_eq!(Record::decode_context(&bytes).as_ref(), Ok(record.context()));
        assert_eq!(Record::stated_digest(&bytes), Record::digest(&bytes));
        assert_eq!(record.merge(&record), record);
        assert_eq!(record.merge(&Record::default()), record);
        for &resolution in Resolution::ALL {
            let _ = resolve(&record, resolution, 1_700_000_000_000);
        }
    }
    let _ = Record::decode_seen(&bytes);
    if let Ok(update) = Update::decode(bytes.clone()) {
        assert_eq!(update.to_bytes(), &bytes[..]);
    }
    if let Ok(clock) = VectorClock::decode(&bytes) {
        assert_eq!(VectorClock::decode(&clock.to_bytes()), Ok(clock));
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(Bytes::copy_from_slice(bytes));
    // The checksum stands after the version, and covers all that follows it.
    let mut sealed = vec![1, 0, 0, 0, 0, 0, 0, 0, 0];
    sealed.extend_from_slice(bytes);
    let checksum = xxhash_rust::xxh3::xxh3_64(bytes);
    sealed[1..9].copy_from_slice(&checksum.to_le_bytes());
    check(sealed.into());
});
