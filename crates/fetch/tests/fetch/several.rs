//! Fetching from several sources: the next one gives what the first does not.

use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fondaco_fetch::{CorruptFile, FetchError, FetchSource, Sources};
use fondaco_format::{Built, MANIFEST_FILE, Manifest};

use crate::place::{Place, Source, Tuning, control, hurried, relayed, several};

#[test]
fn a_corrupt_file_is_named_and_fetched_from_elsewhere() {
    for linkable in [false, true] {
        let (bad, good, place) = (Source::new(linkable), Source::new(false), Place::new());
        let file = bad.data_file();
        bad.corrupt(&file);
        let report = place
            .fetch(several([&bad, &good]), &hurried(), &Tuning::default())
            .unwrap();
        place.assert_whole();
        let location = bad.name();
        assert_eq!(report.corrupt, [CorruptFile { location, file }]);
    }
}

#[test]
fn a_file_that_is_wrong_in_every_source_is_refused() {
    let (bad, worse, place) = (Source::new(false), Source::new(false), Place::new());
    let file = bad.data_file();
    bad.corrupt(&file);
    worse.corrupt(&file);
    let error = place
        .fetch(several([&bad, &worse]), &hurried(), &Tuning::default())
        .unwrap_err();
    assert!(matches!(error, FetchError::Mismatch { .. }), "{error}");
    assert!(!place.version().exists() && !place.fetching().join(file).exists());
}

#[test]
fn a_source_without_a_file_is_skipped_only_for_it() {
    let (lacking, other, place) = (Source::new(false), Source::new(false), Place::new());
    let file = lacking.data_file();
    let bytes = fs::metadata(lacking.dir.path().join(&file)).unwrap().len();
    fs::remove_file(lacking.dir.path().join(file)).unwrap();
    let report = place
        .fetch(several([&lacking, &other]), &hurried(), &Tuning::default())
        .unwrap();
    place.assert_whole();
    assert_eq!(report.bytes_from[1], (other.name(), bytes));
    assert!(report.bytes_from[0].1 > 0 && report.corrupt.is_empty());
}

#[test]
fn a_missing_source_is_skipped() {
    let (gone, here, place) = (Source::new(false), Source::new(false), Place::new());
    gone.failures.store(u32::MAX, Relaxed);
    fs::remove_file(gone.dir.path().join(MANIFEST_FILE)).unwrap();
    let report = place
        .fetch(several([&gone, &here]), &hurried(), &Tuning::default())
        .unwrap();
    place.assert_whole();
    assert_eq!(report.bytes_from[0].1, 0);
}

#[test]
fn a_broken_source_is_continued_by_the_next() {
    let (breaking, other, place) = (Source::new(false), Source::new(false), Place::new());
    *breaking.breaks_after.lock() = Some(300_000);
    let report = place
        .fetch(several([&breaking, &other]), &hurried(), &Tuning::default())
        .unwrap();
    place.assert_whole();
    let total: u64 = report.bytes_from.iter().map(|(_, bytes)| bytes).sum();
    let whole: u64 = fs::read_dir(other.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(
        total < whole,
        "{total} bytes were read of {whole}: something was read twice"
    );
}

#[test]
fn a_source_is_not_blamed_for_bytes_of_another() {
    // The first gives wrong bytes and breaks; the second continues with right ones.
    let (bad, good, place) = (Source::new(false), Source::new(false), Place::new());
    let file = bad.data_file();
    bad.corrupt(&file);
    *bad.breaks_after.lock() = Some(300_000);
    let report = place
        .fetch(several([&bad, &good]), &hurried(), &Tuning::default())
        .unwrap();
    place.assert_whole();
    assert!(
        report.corrupt.iter().all(|corrupt| corrupt.location == bad.name()),
        "{report:?}"
    );
}

#[test]
fn another_version_under_the_same_name_is_refused() {
    let (changed, right, mut place) = (Source::new(false), Source::new(false), Place::new());
    let (manifest, identity) = Manifest::read_identified(right.dir.path()).unwrap();
    place.manifest_checksum = Some(identity);
    // As valid as before, but different.
    let other = Manifest {
        cut_unix_ms: Some(1),
        ..manifest
    };
    fs::write(changed.dir.path().join(MANIFEST_FILE), other.to_bytes()).unwrap();
    let error = place
        .fetch(several([&changed]), &hurried(), &Tuning::default())
        .unwrap_err();
    assert!(matches!(error, FetchError::SourceChanged { .. }), "{error}");
    place
        .fetch(several([&changed, &right]), &hurried(), &Tuning::default())
        .unwrap();
    place.assert_whole();
}

#[test]
fn manifests_with_different_build_times_identify_the_same_version() {
    let (rebuilt, mut place) = (Source::new(false), Place::new());
    let (manifest, identity) = Manifest::read_identified(rebuilt.dir.path()).unwrap();
    place.manifest_checksum = Some(identity);
    let built = Built {
        created_unix_ms: 7,
        built_by: "another".into(),
    };
    let bytes = Manifest { built, ..manifest }.to_bytes();
    fs::write(rebuilt.dir.path().join(MANIFEST_FILE), &bytes).unwrap();
    place
        .fetch(several([&rebuilt]), &hurried(), &Tuning::default())
        .unwrap();
    place.assert_whole();
    assert_eq!(fs::read(place.version().join(MANIFEST_FILE)).unwrap(), bytes);
}

#[test]
fn without_a_source_there_is_nothing_to_fetch() {
    let error = Place::new()
        .fetch(Sources::new([]), &hurried(), &Tuning::default())
        .unwrap_err();
    assert!(matches!(error, FetchError::NoSource), "{error}");
}

#[test]
fn a_relay_is_waited_for_in_place_of_the_source() {
    let (far, relay, place) = (Source::new(false), Source::new(false), Place::new());
    let file = relay.dir.path().join(relay.data_file());
    let later = relay.dir.path().join("later");
    fs::rename(&file, &later).unwrap();
    let arrives = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        fs::rename(later, file).unwrap();
    });
    let report = place
        .fetch(relayed(&far, &relay), &control(), &Tuning::default())
        .unwrap();
    arrives.join().unwrap();
    place.assert_whole();
    assert_eq!(far.bytes_read.load(Relaxed), 0);
    assert!(report.bytes_from[1].1 > 0, "{report:?}");
}

#[test]
fn a_failing_relay_is_replaced_by_the_source() {
    for fails in [true, false] {
        let (far, relay, place) = (Source::new(false), Source::new(false), Place::new());
        let file = relay.data_file();
        let bytes = fs::metadata(far.dir.path().join(&file)).unwrap().len();
        match fails {
            true => relay.failures.store(u32::MAX, Relaxed),
            false => fs::remove_file(relay.dir.path().join(&file)).unwrap(),
        }
        place
            .fetch(relayed(&far, &relay), &hurried(), &Tuning::default())
            .unwrap();
        place.assert_whole();
        assert!(far.bytes_read.load(Relaxed) >= bytes);
    }
}
