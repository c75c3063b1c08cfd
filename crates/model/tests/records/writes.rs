//! How a write changes the record of the replica that takes it first.

use fondaco_model::versioned::{
    COUNTER_MAX, DotSource, Over, Record, SHADOWED_BYTES_MAX, SIBLINGS_MAX, TIME_UNIX_MS_MAX, Update, VectorClock,
    WriteError,
};

use crate::history::{clock, put, replica, values, written};

fn source(number: u32) -> DotSource {
    DotSource::new(replica(number), 0)
}

fn write(local: &Record, dots: &mut DotSource, over: Over<'_>, update: Update) -> Result<Record, WriteError> {
    Record::write(Some(local), dots, over, update)
}

#[test]
fn a_write_over_all_makes_local_and_covered_writes_obsolete() {
    let elsewhere = written(
        &Record::default(),
        &mut source(2),
        &VectorClock::new(),
        put("elsewhere", 0),
    );
    let here = written(&Record::default(), &mut source(1), &VectorClock::new(), put("here", 0));
    let mut dots = DotSource::new(replica(1), 1);
    let after = write(&here, &mut dots, Over::All(elsewhere.context()), put("new", 0)).unwrap();
    assert_eq!(values(&after.merge(&elsewhere)).len(), 1);
    let unread = write(&here, &mut dots, Over::All(&VectorClock::new()), put("new", 0)).unwrap();
    assert_eq!(values(&unread.merge(&elsewhere)).len(), 2, "unseen writes stay");
}

#[test]
fn a_write_over_an_unchanged_record_fails_after_a_change() {
    let mut dots = source(1);
    let first = written(&Record::default(), &mut dots, &VectorClock::new(), put("1", 0));
    let second = write(&first, &mut dots, Over::Unchanged(first.context()), put("2", 0)).unwrap();
    let late = write(&second, &mut dots, Over::Unchanged(first.context()), put("3", 0));
    assert_eq!(late, Err(WriteError::Conflict));
    let absent = Record::write(None, &mut dots, Over::Unchanged(&VectorClock::new()), put("1", 0));
    assert_eq!(values(&absent.unwrap()).len(), 1);
    let created = write(&second, &mut dots, Over::Unchanged(&VectorClock::new()), put("1", 0));
    assert_eq!(created, Err(WriteError::Conflict));
}

#[test]
fn a_write_is_later_than_the_writes_that_it_saw() {
    let mut dots = source(1);
    let ahead = written(&Record::default(), &mut dots, &VectorClock::new(), put("ahead", 5000));
    let by_context = written(&ahead, &mut dots, ahead.context(), put("behind", 10));
    assert_eq!(by_context.siblings()[0].written_unix_ms, 5001);
    // Also where the seen writes are not.
    let elsewhere = written(&Record::default(), &mut source(2), ahead.context(), put("behind", 10));
    assert_eq!(elsewhere.siblings()[0].written_unix_ms, 5001);
    let over_all = write(&ahead, &mut dots, Over::All(&VectorClock::new()), put("behind", 10)).unwrap();
    assert_eq!(over_all.siblings()[0].written_unix_ms, 5001);
    let concurrent = written(&ahead, &mut dots, &VectorClock::new(), put("behind", 10));
    assert!(
        concurrent
            .siblings()
            .iter()
            .any(|sibling| sibling.written_unix_ms == 10)
    );
}

/// A record that was evicted, moved away or collected here, and that others still have.
#[test]
fn a_replica_that_lost_a_record_does_not_restart_counting() {
    let mut dots = source(1);
    let deleted = written(&Record::default(), &mut dots, &VectorClock::new(), Update::delete(1000));
    let elsewhere = deleted.clone();
    let after = written(&Record::default(), &mut dots, &VectorClock::new(), put("new", 1000));
    assert_eq!(values(&elsewhere.merge(&after)).len(), 1);
    // Nor does a replica that restarts, and whose clock has gone on.
    let mut restarted = source(1);
    let after = written(
        &Record::default(),
        &mut restarted,
        &VectorClock::new(),
        put("new", 2000),
    );
    assert_eq!(values(&elsewhere.merge(&after)).len(), 1);
}

#[test]
fn a_key_has_a_limit_of_concurrent_values() {
    let mut dots = source(1);
    let mut record = Record::default();
    for _ in 0..SIBLINGS_MAX {
        record = written(&record, &mut dots, &VectorClock::new(), put("v", 0));
    }
    let one_more = write(&record, &mut dots, Over::Context(&VectorClock::new()), put("v", 0));
    assert_eq!(
        one_more,
        Err(WriteError::TooManySiblings {
            siblings: SIBLINGS_MAX,
            bytes: SIBLINGS_MAX
        })
    );
    let resolved = written(&record, &mut dots, record.context(), put("one", 0));
    assert_eq!(values(&resolved).len(), 1);
}

#[test]
fn many_or_long_siblings_are_forgotten_if_unread() {
    let mut dots = source(1);
    let mut record = Record::default();
    for number in 0..SIBLINGS_MAX as u64 {
        record.forget_shadowed();
        assert_eq!(record.siblings().len() as u64, number, "few and short ones stay");
        // The latest is neither the first nor the last.
        let time = if number == 7 { 5000 } else { number };
        record = written(&record, &mut dots, &VectorClock::new(), put("v", time));
    }
    let full = record.clone();
    record.forget_shadowed();
    assert_eq!(record.siblings().len(), 1);
    assert_eq!(record.siblings()[0].written_unix_ms, 5000);
    assert_eq!(full.merge(&record), record, "they count as seen, and do not come back");

    let long = "v".repeat(SHADOWED_BYTES_MAX);
    let mut record = written(&Record::default(), &mut dots, &VectorClock::new(), put(&long, 1));
    record.forget_shadowed();
    record = written(&record, &mut dots, &VectorClock::new(), put("v", 2));
    assert_eq!(record.siblings().len(), 2, "the latest may have any length");
    record.forget_shadowed();
    assert_eq!(values(&record).into_iter().collect::<Vec<_>>(), ["v"]);
}

#[test]
fn an_impossible_time_is_refused() {
    let update = put("v", TIME_UNIX_MS_MAX + 1);
    let refused = Record::write(None, &mut source(1), Over::All(&VectorClock::new()), update);
    assert!(matches!(refused, Err(WriteError::TimeOutOfRange { .. })), "{refused:?}");
}

#[test]
fn a_forged_context_affects_only_its_own_key() {
    let mut dots = source(1);
    let made_up = clock(&[(1, COUNTER_MAX)]);
    let refused = Record::write(None, &mut dots, Over::Context(&made_up), put("v", 0));
    assert_eq!(refused, Err(WriteError::CounterUsedUp { replica: replica(1) }));
    let almost = clock(&[(1, COUNTER_MAX - 1)]);
    Record::write(None, &mut dots, Over::Context(&almost), put("v", 0)).unwrap();
    assert!(dots.last() < 10, "{dots:?}");
}

#[test]
fn a_deletion_hides_only_the_writes_that_it_saw() {
    let [mut x, mut y] = [1, 2].map(source);
    let first = written(&Record::default(), &mut x, &VectorClock::new(), put("first", 0));
    let deleted = written(&first, &mut x, first.context(), Update::delete(5));
    assert!(deleted.is_deleted(5) && !first.is_deleted(5));
    let concurrent = written(&first, &mut y, first.context(), put("concurrent", 1));
    let merged = deleted.merge(&concurrent);
    assert_eq!(values(&merged).len(), 1);
    assert!(!merged.is_deleted(5));
}
