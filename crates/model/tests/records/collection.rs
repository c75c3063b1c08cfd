//! When a tombstone may be forgotten.

use fondaco_model::versioned::{DotSource, Horizon, Record, Remembered, Update, VectorClock};

use crate::history::{put, replica, written};

const GRACE_MS: u64 = 1000;

/// All conditions hold for forgetting a deletion made at 100, if it was found at 5.
const HORIZON: Horizon = Horizon {
    now_unix_ms: 1100,
    grace_ms: GRACE_MS,
    compared_ms: Some(6),
    oldest_hint_unix_ms: Some(u64::MAX),
};

fn record(update: Update) -> Record {
    let mut dots = DotSource::new(replica(1), 0);
    written(&Record::default(), &mut dots, &VectorClock::new(), update)
}

#[test]
fn a_tombstone_is_forgotten_after_its_grace_on_all_replicas() {
    assert_eq!(HORIZON.remembers(&record(Update::delete(100)), Some(5)), None);
    let alone = Horizon {
        compared_ms: Some(u64::MAX),
        ..HORIZON
    };
    assert_eq!(alone.remembers(&record(Update::delete(100)), Some(5)), None);
}

#[test]
fn each_reason_to_remember_is_enough() {
    let deleted = record(Update::delete(100));
    let found = Some(5);
    for (horizon, found, expected) in [
        (
            Horizon {
                now_unix_ms: 1099,
                ..HORIZON
            },
            found,
            Remembered::InGrace,
        ),
        (HORIZON, None, Remembered::IsNew),
        (HORIZON, Some(6), Remembered::NotCompared),
        (
            Horizon {
                compared_ms: None,
                ..HORIZON
            },
            found,
            Remembered::NotCompared,
        ),
        (
            Horizon {
                oldest_hint_unix_ms: None,
                ..HORIZON
            },
            found,
            Remembered::HintsUnknown,
        ),
        (
            Horizon {
                oldest_hint_unix_ms: Some(100),
                ..HORIZON
            },
            found,
            Remembered::OlderHint,
        ),
    ] {
        assert_eq!(horizon.remembers(&deleted, found), Some(expected), "{horizon:?}");
    }
    let newer_hint = Horizon {
        oldest_hint_unix_ms: Some(101),
        ..HORIZON
    };
    assert_eq!(newer_hint.remembers(&deleted, found), None);
}

#[test]
fn only_long_expired_values_are_forgotten() {
    assert_eq!(
        HORIZON.remembers(&record(put("value", 1)), Some(5)),
        Some(Remembered::HasValue)
    );
    let expiring = record(Update::put("value".into(), 1, Some(101)));
    assert_eq!(HORIZON.remembers(&expiring, Some(5)), Some(Remembered::InGrace));
    let later = Horizon {
        now_unix_ms: 1101,
        ..HORIZON
    };
    assert_eq!(later.remembers(&expiring, Some(5)), None);
}

#[test]
fn a_deletion_beside_a_value_stays_with_it() {
    let mut dots = DotSource::new(replica(2), 0);
    let both = written(
        &record(Update::delete(100)),
        &mut dots,
        &VectorClock::new(),
        put("value", 1),
    );
    assert_eq!(HORIZON.remembers(&both, Some(5)), Some(Remembered::HasValue));
}
