//! The value of a key for a client that asks for one value.

use fondaco_model::versioned::{DotSource, Record, Resolution, Resolved, Update, VectorClock, resolve};
use proptest::prelude::*;

use crate::history::{History, put, replica, steps, written};

/// A record with these concurrent values, each at its time.
fn concurrent(values: &[(&str, u64)]) -> Record {
    let values = (1..).zip(values);
    values.fold(Record::default(), |record, (number, (value, time))| {
        let mut dots = DotSource::new(replica(number), 0);
        written(&record, &mut dots, &VectorClock::new(), put(value, *time))
    })
}

fn texts(resolved: &Resolved) -> Vec<&str> {
    resolved
        .values
        .iter()
        .map(|value| std::str::from_utf8(value).unwrap())
        .collect()
}

fn text(record: &Record, resolution: Resolution) -> Option<String> {
    texts(&resolve(record, resolution, 0))
        .first()
        .map(|text| text.to_string())
}

#[test]
fn the_latest_is_chosen_by_time_then_by_dot() {
    let record = concurrent(&[("early", 1), ("late", 9), ("early too", 2)]);
    assert_eq!(text(&record, Resolution::Latest).unwrap(), "late");
    let same_time = concurrent(&[("one", 5), ("two", 5)]);
    assert_eq!(text(&same_time, Resolution::Latest).unwrap(), "two");
    assert_eq!(text(&Record::default(), Resolution::Latest), None);
}

#[test]
fn a_latest_deletion_hides_concurrent_values() {
    let mut dots = DotSource::new(replica(9), 0);
    let record = concurrent(&[("value", 5)]);
    let later = written(&record, &mut dots, &VectorClock::new(), Update::delete(6));
    assert_eq!(text(&later, Resolution::Latest), None);
    assert_eq!(text(&later, Resolution::All).unwrap(), "value");
    let earlier = written(&record, &mut dots, &VectorClock::new(), Update::delete(4));
    assert_eq!(text(&earlier, Resolution::Latest).unwrap(), "value");
}

#[test]
fn at_equal_times_a_deletion_is_later_than_a_value() {
    for (deletes, writes) in [(1, 2), (2, 1)] {
        let mut dots = [deletes, writes].map(|number| DotSource::new(replica(number), 0));
        let record = written(&Record::default(), &mut dots[0], &VectorClock::new(), Update::delete(5));
        let record = written(&record, &mut dots[1], &VectorClock::new(), put("value", 5));
        assert_eq!(text(&record, Resolution::Latest), None);
    }
}

#[test]
fn resolution_all_gives_all_values_the_latest_first() {
    let record = concurrent(&[("b", 2), ("c", 3), ("a", 1)]);
    assert_eq!(texts(&resolve(&record, Resolution::All, 0)), ["c", "b", "a"]);
    let twice = concurrent(&[("a", 2), ("b", 3), ("a", 2)]);
    assert_eq!(texts(&resolve(&twice, Resolution::All, 0)), ["b", "a"]);
}

#[test]
fn sets_are_united_in_the_order_of_the_latest() {
    let record = concurrent(&[
        (r#"["x", 1, {"b": 1, "a": 2}]"#, 1),
        (r#"[3, "x", {"a": 2, "b": 1}, 3]"#, 2),
    ]);
    assert_eq!(text(&record, Resolution::Set).unwrap(), r#"[3,"x",{"a":2,"b":1},1]"#);
}

#[test]
fn a_removed_element_stays_gone_unless_written_concurrently() {
    let [mut x, mut y] = [1, 2].map(|number| DotSource::new(replica(number), 0));
    let both = written(&Record::default(), &mut x, &VectorClock::new(), put("[1,2]", 0));
    let removed = written(&both, &mut x, both.context(), put("[2]", 0));
    assert_eq!(text(&removed.merge(&both), Resolution::Set).unwrap(), "[2]");
    let added = written(&both, &mut y, both.context(), put("[1,2,3]", 0));
    let merged = removed.merge(&added);
    assert_eq!(
        text(&merged, Resolution::Set).unwrap(),
        "[1,2,3]",
        "like the cart of Dynamo"
    );
    let again = written(&merged, &mut x, merged.context(), put("[2,3]", 0));
    assert_eq!(text(&again.merge(&added), Resolution::Set).unwrap(), "[2,3]");
}

#[test]
fn without_arrays_the_latest_value_is_used() {
    let record = concurrent(&[("[1]", 1), ("no array", 2), ("[2]", 3)]);
    assert_eq!(text(&record, Resolution::Set).unwrap(), "[2]");
    let single = concurrent(&[("[ 1, 1 ]", 1)]);
    assert_eq!(
        text(&single, Resolution::Set).unwrap(),
        "[ 1, 1 ]",
        "one value is as it was written"
    );
}

#[test]
fn expired_values_count_as_deleted() {
    let mut dots = DotSource::new(replica(9), 0);
    let expiring = Update::put("short".into(), 9, Some(100));
    let record = written(&concurrent(&[("long", 5)]), &mut dots, &VectorClock::new(), expiring);
    let at = |now_unix_ms| resolve(&record, Resolution::Latest, now_unix_ms);
    assert_eq!((texts(&at(99)), at(99).expires_unix_ms), (vec!["short"], Some(100)));
    assert_eq!((texts(&at(100)), at(100).expires_unix_ms), (vec![], None));
    assert_eq!(texts(&resolve(&record, Resolution::All, 100)), ["long"]);
    assert!(!record.is_deleted(100));
    assert_eq!(record.next_expiry_unix_ms(), Some(100));
}

proptest! {
    #[test]
    fn equal_replicas_resolve_to_equal_values(steps in steps(3, 40)) {
        let mut history = History::run(3, &steps);
        history.heal();
        for &resolution in Resolution::ALL {
            let said = resolve(&history.replicas[0].record, resolution, 0);
            for replica in &history.replicas {
                prop_assert_eq!(&resolve(&replica.record, resolution, 0), &said);
            }
            let is_written = !history.writes.is_empty();
            prop_assert_eq!(!said.values.is_empty(), is_written);
        }
    }
}
