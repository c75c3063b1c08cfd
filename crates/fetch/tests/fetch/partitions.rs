//! Fetching some partitions of a version, and more of them later.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fondaco_fetch::{FetchError, discard_leftovers, move_partitions};
use fondaco_format::{Checksum, MANIFEST_FILE, Manifest, Version};
use fondaco_model::PartitionId;
use fondaco_testing::until;

use crate::files::file_name;
use crate::place::{Place, Source, Tuning, control, hurried};

#[test]
fn only_wanted_partitions_are_fetched() {
    for linkable in [false, true] {
        let (source, place) = (Source::new(linkable), Place::new().wanting(&[1]));
        let control = control();
        place.fetch(Arc::clone(&source), &control, &Tuning::default()).unwrap();
        assert_eq!(place.held(), [1]);
        let progress = control.progress();
        assert_eq!((progress.files_done, progress.files_total), (2, 2));
        assert_eq!(progress.bytes_done, progress.bytes_total);
        let manifest = Manifest::read(source.dir.path()).unwrap();
        assert!(progress.bytes_total < manifest.files_bytes());
        assert_eq!(Manifest::read(&place.version()).unwrap(), manifest);
    }
}

#[test]
fn partitions_are_added_to_those_that_are_there() {
    for linkable in [false, true] {
        let (source, place) = (Source::new(linkable), Place::new().wanting(&[0]));
        place.fetched(&source);
        let first = place
            .version()
            .join(file_name(&place.version(), "p00000-c0000", "data"));
        let before = fs::metadata(&first).unwrap().ino();
        // The manifest is here: the source does not need one any more.
        fs::remove_file(source.dir.path().join(MANIFEST_FILE)).unwrap();
        let place = place.wanting(&[1]);
        place.fetched(&source);
        place.assert_whole();
        assert_eq!(fs::metadata(&first).unwrap().ino(), before);
    }
}

#[test]
fn an_interrupted_addition_keeps_held_partitions_and_resumes() {
    let (source, place) = (Source::new(false), Place::new().wanting(&[0]));
    place.fetched(&source);
    let place = place.wanting(&[1]);
    let (tuning, interrupted) = (Tuning::default(), control());
    tuning.rate.store(200 << 10, Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("something is fetched", || interrupted.progress().bytes_done >= 300_000);
            interrupted.interrupt();
        });
        let error = place.fetch(Arc::clone(&source), &interrupted, &tuning).unwrap_err();
        assert!(matches!(error, FetchError::Interrupted), "{error}");
    });
    assert_eq!(place.held(), [0]);
    assert_eq!(place.leftovers().len(), 1);
    source.bytes_read.store(0, Relaxed);
    place.fetched(&source);
    place.assert_whole();
    let whole = fs::metadata(source.dir.path().join(file_name(source.dir.path(), "p00001", "data")))
        .unwrap()
        .len();
    assert!(
        source.bytes_read.load(Relaxed) < whole,
        "existing bytes were read again"
    );
}

#[test]
fn leftovers_are_discarded_and_nothing_else() {
    let (source, place) = (Source::new(false), Place::new());
    place.fetched(&source);
    for (kind, ending) in [("data", "part"), ("index", "link")] {
        let name = file_name(&place.version(), "p00001-c0000", kind);
        fs::write(place.version().join(format!("{name}.{ending}")), "x").unwrap();
    }
    assert_eq!(place.leftovers().len(), 2);
    discard_leftovers(&place.version()).unwrap();
    place.assert_whole();
    discard_leftovers(&place.dir.path().join("nowhere")).unwrap();
}

#[test]
fn given_up_partitions_are_not_held_and_can_come_back() {
    let (source, place) = (Source::new(false), Place::new());
    place.fetched(&source);
    let open = Version::open(&place.version()).unwrap();
    let aside = place.dir.path().join("aside");
    assert!(move_partitions(&place.version(), &aside, |partition| partition == PartitionId::new(0)).unwrap());
    assert_eq!(place.held(), [1]);
    assert!(aside.join(MANIFEST_FILE).exists());
    assert_eq!(
        open.scan().map(Result::unwrap).count(),
        2000,
        "a reader that has it open can still read it"
    );
    assert!(move_partitions(&aside, &place.version(), |_| true).unwrap());
    place.assert_whole();
    assert!(
        !move_partitions(&aside, &place.version(), |_| true).unwrap(),
        "nothing is left"
    );
    move_partitions(&place.version(), &aside, |partition| partition == PartitionId::new(0)).unwrap();
    let place = place.wanting(&[0]);
    place.fetched(&source);
    place.assert_whole();
}

#[test]
fn files_of_other_partitions_stay_even_if_incomplete() {
    let (source, place) = (Source::new(false), Place::new());
    place.fetched(&source);
    fs::remove_file(place.version().join(file_name(&place.version(), "p00001", "index"))).unwrap();
    let aside = place.dir.path().join("aside");
    move_partitions(&place.version(), &aside, |partition| partition == PartitionId::new(0)).unwrap();
    let there = |(chunk, kind)| {
        let name = file_name(source.dir.path(), chunk, kind);
        place.version().join(name).exists()
    };
    assert_eq!(
        [("p00000", "data"), ("p00000", "index"), ("p00001", "data")].map(there),
        [false, false, true]
    );
}

#[test]
fn a_damaged_file_is_replaced_when_its_partition_is_fetched() {
    let (source, place) = (Source::new(false), Place::new());
    place.fetched(&source);
    let path = place.version().join(source.data_file());
    let mut bytes = fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    fs::write(&path, bytes).unwrap();
    place.fetched(&source);
    place.assert_whole();
}

#[test]
fn a_directory_with_another_version_is_not_added_to() {
    let (source, mut place) = (Source::new(false), Place::new().wanting(&[0]));
    place.fetched(&source);
    place.manifest_checksum = Some(Checksum::of(b"another"));
    let error = place
        .wanting(&[1])
        .fetch(Arc::clone(&source), &hurried(), &Tuning::default())
        .unwrap_err();
    assert!(matches!(error, FetchError::OtherVersion { .. }), "{error}");
}
