//! Records, updates and clocks as bytes.

use bytes::Bytes;
use fondaco_model::versioned::{
    Change, DotSource, FieldTimes, Over, Record, RecordError, Resolution, Seen, TIME_UNIX_MS_MAX, Update, VectorClock,
    resolve,
};
use proptest::prelude::*;

use crate::history::{History, clock, put, replica, steps, written};

fn small() -> Record {
    let mut dots = DotSource::new(replica(1), 0);
    let now_unix_ms = 1_700_000_000_000;
    written(
        &Record::default(),
        &mut dots,
        &VectorClock::new(),
        put("value", now_unix_ms),
    )
}

/// The bytes with the checksum that they should have.
fn sealed(mut bytes: Vec<u8>) -> Bytes {
    if bytes.len() >= 9 {
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[9..]);
        bytes[1..9].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes.into()
}

fn updates() -> impl Strategy<Value = Update> {
    let seen = (1..5u32, 1..100u64, 0..100u64, any::<i64>()).prop_map(|(number, since, more, total)| Seen {
        replica: replica(number),
        since,
        counter: since + more,
        total,
    });
    let seen = prop::collection::vec(seen, 0..4).prop_map(|mut seen| {
        seen.sort_unstable();
        seen.dedup_by_key(|sum| (sum.replica, sum.since));
        seen.into_boxed_slice()
    });
    let change = prop_oneof![
        any::<Vec<u8>>().prop_map(|value| Change::Put(value.into())),
        Just(Change::Delete),
        any::<Vec<u8>>().prop_map(|value| Change::PutFields {
            value: value.into(),
            times: FieldTimes::default()
        }),
        any::<i64>().prop_map(Change::Add),
        (any::<Option<i64>>(), seen).prop_map(|(value, seen)| Change::SetCounter { value, seen }),
    ];
    (0..=TIME_UNIX_MS_MAX, prop::option::of(any::<u64>()), change).prop_map(
        |(written_unix_ms, expires_unix_ms, change)| Update {
            written_unix_ms,
            expires_unix_ms,
            change,
        },
    )
}

#[test]
fn a_small_record_adds_few_bytes_to_its_value() {
    let bytes = small().to_bytes();
    assert_eq!(Record::plain_value(&bytes), Some(&b"value"[..]));
    assert!(bytes.len() - "value".len() <= 28, "{}", bytes.len());
}

#[test]
fn values_are_slices_of_the_decoded_bytes() {
    let bytes = Bytes::from(small().to_bytes());
    let record = Record::decode(bytes.clone()).unwrap();
    let value = record.siblings()[0].value.as_ref().unwrap();
    assert!(bytes.as_ptr_range().contains(&value.as_ptr()));
}

#[test]
fn any_changed_bit_is_noticed() {
    let bytes = small().to_bytes();
    assert_eq!(Record::plain_value(&bytes), Some(&b"value"[..]));
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let read = Record::decode(changed.clone().into());
        let expected = match bit / 8 {
            0 => matches!(read, Err(RecordError::UnknownVersion { .. })),
            _ => matches!(read, Err(RecordError::Checksum { .. })),
        };
        assert!(expected, "bit {bit}: {read:?}");
        assert!(Record::decode_context(&changed).is_err());
    }
    for length in 0..bytes.len() {
        assert!(Record::decode(Bytes::copy_from_slice(&bytes[..length])).is_err());
    }
}

#[test]
fn the_empty_clock_is_encoded_as_no_bytes() {
    assert_eq!(VectorClock::decode(b""), Ok(VectorClock::new()));
    assert_eq!(VectorClock::new().to_bytes(), b"");
}

proptest! {
    #[test]
    fn records_are_decoded_as_they_were_encoded(steps in steps(4, 60), updates in prop::collection::vec(updates(), 0..5)) {
        let history = History::run(4, &steps);
        let mut dots = DotSource::new(replica(9), 0);
        let mut record = history.replicas[0].record.clone();
        for update in updates {
            record = written(&record, &mut dots, &VectorClock::new(), update);
        }
        let mut bytes = b"before".to_vec();
        record.encode(&mut bytes);
        let bytes = Bytes::from(bytes).slice(6..);
        prop_assert_eq!(bytes.len(), record.encoded_bytes());
        prop_assert_eq!(&Record::decode(bytes.clone()), &Ok(record.clone()));
        prop_assert_eq!(&Record::decode_context(&bytes), &Ok(record.context().clone()));
        prop_assert_eq!(VectorClock::decode(&record.context().to_bytes()), Ok(record.context().clone()));
        prop_assert_eq!(Record::stated_digest(&bytes), Record::digest(&bytes));
    }

    #[test]
    fn a_plain_value_is_the_resolved_value_at_all_times(
        steps in steps(4, 60), update in updates(), at in any::<u64>(), bit in any::<prop::sample::Index>(),
    ) {
        let mut dots = DotSource::new(replica(9), 0);
        let record = History::run(4, &steps).replicas[0].record.clone();
        let plain = written(&record, &mut dots, record.context(), update);
        for record in [record, plain] {
            let mut bytes = record.to_bytes();
            let value = Record::plain_value(&bytes);
            for resolution in [Resolution::Latest, Resolution::All, Resolution::Set] {
                let resolved = resolve(&record, resolution, at);
                prop_assert!(value.is_none_or(|value| resolved.values[..] == [value]));
            }
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Without the checksum not every change is noticed, but none does harm.
            let _ = Record::plain_value(&bytes);
        }
    }

    /// So that a write over everything need not decode the record.
    #[test]
    fn a_write_over_everything_needs_only_the_clock(steps in steps(4, 60), update in updates()) {
        prop_assume!(matches!(update.change, Change::Put(_) | Change::Delete));
        let record = History::run(4, &steps).replicas[0].record.clone();
        let seen = Record::decode_seen(&record.to_bytes()).unwrap();
        prop_assert_eq!(seen.context(), record.context());
        let replaced = |local: &Record| {
            let mut dots = DotSource::new(replica(9), 0);
            Record::write(Some(local), &mut dots, Over::Context(local.context()), update.clone())
        };
        prop_assert_eq!(replaced(&seen), replaced(&record));
    }

    #[test]
    fn updates_are_decoded_as_they_were_encoded(update in updates()) {
        prop_assert_eq!(Update::decode(update.to_bytes().into()), Ok(update));
    }

    #[test]
    fn clocks_are_decoded_as_they_were_encoded(seen in prop::collection::btree_map(1..u32::MAX, 1..1u64 << 62, 0..20)) {
        let clock = clock(&seen.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(VectorClock::decode(&clock.to_bytes()), Ok(clock));
    }

    /// So that equal records have equal bytes on all replicas, also if one of them got the record from a node that
    /// encodes it differently.
    #[test]
    fn any_decoded_bytes_are_encoded_the_same(bytes: Vec<u8>) {
        let mut bytes = bytes;
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        let bytes = sealed(bytes);
        if let Ok(record) = Record::decode(bytes.clone()) {
            prop_assert_eq!(record.to_bytes(), &bytes[..]);
        }
        if let Ok(update) = Update::decode(bytes.clone()) {
            prop_assert_eq!(update.to_bytes(), &bytes[..]);
        }
        if let Ok(clock) = VectorClock::decode(&bytes) {
            let again = VectorClock::decode(&clock.to_bytes());
            prop_assert_eq!(again, Ok(clock));
        }
    }

    #[test]
    fn decoded_damaged_records_are_encoded_the_same(
        steps in steps(3, 30), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = History::run(3, &steps).replicas[0].record.to_bytes();
        for (place, byte) in changes {
            let place = 5 + place.index(bytes.len() - 5);
            bytes[place] = byte;
        }
        let bytes = sealed(bytes);
        if let Ok(record) = Record::decode(bytes.clone()) {
            prop_assert_eq!(record.to_bytes(), &bytes[..]);
            let merged = record.merge(&record);
            prop_assert_eq!(merged, record);
        }
    }
}
