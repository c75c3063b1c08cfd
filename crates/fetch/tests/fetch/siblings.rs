//! Files that another version of the store has on the disk are linked, and only the others are fetched.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fondaco_fetch::{FetchPlan, FetchReport, FetchTarget, LocationSource, Sources, move_partitions};
use fondaco_format::{Manifest, Version, verify};
use fondaco_model::PartitionId;
use fondaco_storage::Location;

use crate::files::{add_further, file_name, further_content, version_1};
use crate::place::{Place, Source, Tuning, control, hurried};

/// A target with a version, and an empty target for another version of the store.
fn two_places() -> (Place, Place) {
    let (first, mut second) = (Place::new(), Place::new());
    first.fetch(Source::new(false), &control(), &Tuning::default()).unwrap();
    second.siblings.push(first.version());
    (first, second)
}

fn inode(dir: &Path, name: &str) -> u64 {
    fs::metadata(dir.join(name)).unwrap().ino()
}

fn fetched_bytes(report: &FetchReport) -> u64 {
    report.bytes_from.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn only_the_changed_chunk_of_a_version_is_fetched() {
    for linkable in [false, true] {
        let (first, second) = two_places();
        let changed = Source::with_value(linkable, 1999, "changed");
        let control = control();
        let report = second
            .fetch(Arc::clone(&changed), &control, &Tuning::default())
            .unwrap();
        second.assert_whole();

        let manifest = Manifest::read(&second.version()).unwrap();
        let is_new = |name: &str| !first.version().join(name).exists();
        let (new, same): (Vec<_>, Vec<_>) = manifest.files().partition(|file| is_new(&file.name));
        assert_eq!((new.len(), same.len()), (2, 2), "data and index of one of two chunks");
        for file in &same {
            assert_eq!(
                inode(&first.version(), &file.name),
                inode(&second.version(), &file.name)
            );
        }
        let same_bytes: u64 = same.iter().map(|file| file.bytes).sum();
        let new_bytes: u64 = new.iter().map(|file| file.bytes).sum();
        assert_eq!((report.linked_files, report.linked_bytes), (2, same_bytes));
        let copied = if linkable { 0 } else { new_bytes };
        assert_eq!(
            (fetched_bytes(&report), changed.bytes_read.load(Relaxed)),
            (copied, copied)
        );
        let progress = control.progress();
        assert_eq!((progress.files_done, progress.bytes_done), (4, new_bytes + same_bytes));

        // Each version has its own names: deleting one does not affect the other.
        fs::remove_dir_all(first.version()).unwrap();
        second.assert_whole();
    }
}

#[test]
fn a_version_with_the_same_content_needs_no_bytes() {
    let (_first, second) = two_places();
    let source = Source::new(false);
    let (sources, dir) = (Sources::from(Arc::clone(&source)), second.version());
    let target = FetchTarget {
        store: &second.store,
        partitions: 2.try_into().unwrap(),
        wanted: None,
        manifest_checksum: None,
        fetching_dir: &second.fetching(),
        version_dir: &dir,
        siblings: &second.siblings,
        reserve_bytes: 0,
    };
    let plan = FetchPlan::new(&sources, &target).unwrap();
    assert_eq!((plan.needed_bytes(), plan.links()), (0, false));
    let report = second.fetched(&source);
    assert_eq!((report.linked_files, fetched_bytes(&report)), (4, 0));
    second.assert_whole();
}

#[test]
fn a_damaged_sibling_is_left_alone_and_its_file_fetched() {
    let (first, second) = two_places();
    let path = first.version().join(file_name(&first.version(), "p00001", "data"));
    let mut damaged = fs::read(&path).unwrap();
    damaged[5000] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let cut = first.version().join(file_name(&first.version(), "p00000", "data"));
    fs::File::options()
        .write(true)
        .open(&cut)
        .unwrap()
        .set_len(1000)
        .unwrap();
    let report = second
        .fetch(Source::new(false), &control(), &Tuning::default())
        .unwrap();
    second.assert_whole();
    assert_eq!(report.linked_files, 2, "the indexes");
    assert_eq!(report.corrupt, [], "no source is to blame");
    assert_eq!(fs::read(&path).unwrap(), damaged);
}

#[test]
fn anything_but_a_file_is_fetched() {
    let (first, second) = two_places();
    let elsewhere = tempfile::tempdir().unwrap();
    let data = first.version().join(file_name(&first.version(), "p00001", "data"));
    let moved = elsewhere.path().join("moved");
    fs::rename(&data, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &data).unwrap();
    let report = second
        .fetch(Source::new(false), &control(), &Tuning::default())
        .unwrap();
    fs::remove_dir_all(elsewhere).unwrap();
    second.assert_whole();
    assert_eq!(report.linked_files, 3);
}

#[test]
fn a_version_of_the_former_format_links_no_files() {
    let source = || LocationSource::new(Location::local(version_1()));
    let (first, mut second) = (Place::new(), Place::new());
    first.fetch(source(), &control(), &Tuning::default()).unwrap();
    second.siblings.push(first.version());
    let report = second.fetch(source(), &control(), &Tuning::default()).unwrap();
    assert_eq!(report.linked_files, 0, "its names do not depend on the content");
    assert_eq!(verify(&second.version()).unwrap().records, 500);
    let (_, expected) = Manifest::read_identified(&version_1()).unwrap();
    assert_eq!(Version::open(&second.version()).unwrap().identity(), expected);
}

#[test]
fn additional_files_are_handled_with_their_partitions() {
    let source = Source::new(false);
    add_further(source.dir.path(), "inverted");
    let (first, mut second) = (Place::new(), Place::new());
    let first = first.wanting(&[1]);
    first.fetched(&source);
    assert_eq!(first.held(), [1]);
    let manifest = Manifest::read(&first.version()).unwrap();
    let further = |dir: &Path, at: usize| fs::read(dir.join(&manifest.chunks[at].further[0].file.name)).ok();
    assert_eq!(further(&first.version(), 0), None);
    assert_eq!(further(&first.version(), 1), Some(further_content(&manifest.chunks[1])));

    second.siblings.push(first.version());
    let report = second.fetched(&source);
    assert_eq!(report.linked_files, 3);
    second.assert_whole();

    let aside = second.dir.path().join("aside");
    move_partitions(&second.version(), &aside, |partition| partition == PartitionId::new(0)).unwrap();
    assert!(further(&second.version(), 0).is_none() && further(&aside, 0).is_some());
    move_partitions(&aside, &second.version(), |_| true).unwrap();
    second.assert_whole();

    let path = source.dir.path().join(&manifest.chunks[1].further[0].file.name);
    let intact = fs::read(&path).unwrap();
    fs::write(&path, [&intact[1..], b"!"].concat()).unwrap();
    let error = Place::new().fetch(source, &hurried(), &Tuning::default()).unwrap_err();
    assert!(
        error.to_string().contains(&manifest.chunks[1].further[0].file.name),
        "{error}"
    );
}
