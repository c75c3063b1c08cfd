//! Fetching from one source that fails, gives wrong bytes, and is slow.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_fetch::FetchError;
use fondaco_format::MANIFEST_FILE;
use fondaco_testing::until;

use crate::place::{Place, Source, Tuning, control, hurried};

#[test]
fn a_copied_and_a_linked_version_are_whole() {
    for linkable in [false, true] {
        let (source, place, control) = (Source::new(linkable), Place::new(), control());
        place.fetch(Arc::clone(&source), &control, &Tuning::default()).unwrap();
        place.assert_whole();
        let progress = control.progress();
        assert_eq!(progress.bytes_done, progress.bytes_total);
        assert_eq!((progress.files_done, progress.files_total), (4, 4));
        let links = fs::metadata(place.version().join(source.data_file())).unwrap().nlink();
        assert_eq!(links, if linkable { 2 } else { 1 });
    }
}

#[test]
fn a_connection_that_breaks_is_resumed_where_it_broke() {
    let (source, place) = (Source::new(false), Place::new());
    *source.breaks_after.lock() = Some(300_000);
    place.fetched(&source);
    place.assert_whole();
}

#[test]
fn a_source_that_stays_away_fails_after_some_tries() {
    let (source, place) = (Source::new(false), Place::new());
    source.failures.store(4, Relaxed);
    place
        .fetch(Arc::clone(&source), &hurried(), &Tuning::default())
        .unwrap();
    place.assert_whole();

    let (source, place) = (Source::new(false), Place::new());
    source.failures.store(u32::MAX, Relaxed);
    let error = place
        .fetch(Arc::clone(&source), &hurried(), &Tuning::default())
        .unwrap_err();
    assert!(matches!(error, FetchError::Source { .. }), "{error}");
    assert!(error.to_string().contains("the network is down"), "{error}");
}

#[test]
fn a_changed_file_is_read_once_more_and_then_refused() {
    for linkable in [false, true] {
        let (source, place) = (Source::new(linkable), Place::new());
        let name = source.data_file();
        let path = source.dir.path().join(&name);
        let bytes = source.corrupt(&name);
        let error = place
            .fetch(Arc::clone(&source), &control(), &Tuning::default())
            .unwrap_err();
        let FetchError::Mismatch {
            file, expected, found, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*file, name);
        assert_ne!(expected, found);
        assert!(!place.version().exists());
        assert!(!place.fetching().join(&name).exists(), "it has its own name");
        assert!(!place.fetching().join(format!("{name}.link")).exists());
        assert_eq!(fs::read(&path).unwrap(), bytes, "the source is left as it is");
    }
}

#[test]
fn an_interrupted_fetch_keeps_its_files_and_reads_the_rest() {
    let (source, place) = (Source::new(false), Place::new());
    let tuning = Tuning::default();
    let interrupted = control();
    tuning.rate.store(300 << 10, Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("something is fetched", || {
                interrupted.progress().bytes_done >= 1_000_000
            });
            interrupted.interrupt();
        });
        let error = place.fetch(Arc::clone(&source), &interrupted, &tuning).unwrap_err();
        assert!(matches!(error, FetchError::Interrupted), "{error}");
    });
    assert!(!place.version().exists());
    let total = interrupted.progress().bytes_total;
    source.bytes_read.store(0, Relaxed);
    tuning.rate.store(0, Relaxed);
    let resumed = control();
    place.fetch(Arc::clone(&source), &resumed, &tuning).unwrap();
    place.assert_whole();
    let read = source.bytes_read.load(Relaxed);
    // A piece of each of the two files may be lost.
    assert!(read <= total - 850_000, "{read} of {total} bytes were read again");
    assert_eq!(resumed.progress().bytes_done, total);
}

#[test]
fn files_of_an_earlier_attempt_are_verified_before_use() {
    let (source, place) = (Source::new(false), Place::new());
    fs::create_dir(place.fetching()).unwrap();
    let name = source.data_file();
    let whole = fs::read(source.dir.path().join(&name)).unwrap();
    // Complete by its name and length, and corrupt.
    let mut rotten = whole.clone();
    rotten[100] ^= 1;
    fs::write(place.fetching().join(&name), rotten).unwrap();
    // A partial file with other content; one that is too long; and a link, through which the source could be changed.
    fs::write(place.fetching().join(format!("{name}.part")), vec![7; 1000]).unwrap();
    let mut others = fs::read_dir(source.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let other = others.find(|other| other != MANIFEST_FILE && *other != *name).unwrap();
    let other = other.to_str().unwrap();
    let link = place.fetching().join(format!("{other}.part"));
    fs::hard_link(source.dir.path().join(other), link).unwrap();
    let before = fs::read(source.dir.path().join(other)).unwrap();

    place.fetched(&source);
    place.assert_whole();
    assert_eq!(fs::read(source.dir.path().join(other)).unwrap(), before);
}

#[test]
fn complete_but_not_durable_files_need_no_source() {
    let (source, place) = (Source::new(false), Place::new());
    fs::create_dir(place.fetching()).unwrap();
    for entry in fs::read_dir(source.dir.path()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name != MANIFEST_FILE {
            fs::rename(entry.path(), place.fetching().join(format!("{name}.part"))).unwrap();
        }
    }
    let control = control();
    place.fetch(Arc::clone(&source), &control, &Tuning::default()).unwrap();
    place.assert_whole();
    assert_eq!(control.progress().files_done, 4);
}

#[test]
fn a_version_that_does_not_fit_is_refused_beforehand() {
    let (source, mut place) = (Source::new(false), Place::new());
    place.reserve_bytes = u64::MAX;
    let error = place
        .fetch(Arc::clone(&source), &control(), &Tuning::default())
        .unwrap_err();
    assert!(matches!(error, FetchError::NoSpace { .. }), "{error}");
    assert!(!place.fetching().exists());
}

#[test]
fn a_cancelled_fetch_stops_although_its_rate_would_take_hours() {
    let (source, place, control) = (Source::new(false), Place::new(), control());
    let tuning = Tuning::default();
    tuning.rate.store(100, Relaxed);
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| place.fetch(Arc::clone(&source), &control, &tuning));
        until("something is fetched", || control.progress().bytes_done > 0);
        control.cancel();
        control.interrupt();
        let error = fetch.join().unwrap().unwrap_err();
        assert!(matches!(error, FetchError::Cancelled), "{error}");
    });
}

#[test]
fn a_fetch_yields_only_to_reads_that_it_slows_down() {
    let (source, place, control) = (Source::new(false), Place::new(), control());
    let tuning = Tuning::default();
    tuning.rate.store(128 << 10, Relaxed);
    let (with_us, without_us) = (AtomicU64::new(5000), AtomicU64::new(5000));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| place.fetch(Arc::clone(&source), &control, &tuning));
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let us = if control.is_paused() { &without_us } else { &with_us };
                tuning.reads.record(Duration::from_micros(us.load(Relaxed)), 10);
                std::thread::yield_now();
            }
        });
        let wait_for = |what: &str, condition: &dyn Fn() -> bool| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !condition() {
                let in_vain = Instant::now() > deadline || fetch.is_finished();
                is_over.fetch_or(in_vain, Relaxed);
                assert!(!in_vain, "waited in vain for: {what}");
                std::thread::yield_now();
            }
        };
        let limit = || control.progress().rate_limit_bytes_per_second;
        // It has compared, without effect: reads are as slow without it.
        for _ in 0..4 {
            wait_for("a pause", &|| control.is_paused());
            wait_for("its end", &|| !control.is_paused());
            assert_eq!(limit(), 128 << 10);
        }
        assert!(control.progress().seconds_left.is_some());
        without_us.store(500, Relaxed);
        wait_for("it to slow down", &|| limit() <= 64 << 10);
        with_us.store(500, Relaxed);
        wait_for("it to recover", &|| limit() == 128 << 10);
        tuning.rate.store(0, Relaxed);
        fetch.join().unwrap().unwrap();
        is_over.store(true, Relaxed);
    });
    place.assert_whole();
}
