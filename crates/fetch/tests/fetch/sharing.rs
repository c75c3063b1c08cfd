//! Some files of a local source are linked instead of copied, and the source is not needed afterwards.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;

use fondaco_fetch::LocationSource;
use fondaco_format::GIVEN_AWAY_FILE;
use fondaco_storage::Location;

use crate::place::{Place, Source, Tuning, control, hurried};

fn local(dir: &Path) -> LocationSource {
    LocationSource::new(Location::local(dir))
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn a_source_that_was_not_given_away_is_copied() {
    let (source, place) = (Source::new(false), Place::new());
    place
        .fetch(local(source.dir.path()), &control(), &Tuning::default())
        .unwrap();
    let name = source.data_file();
    assert_ne!(
        inode(&source.dir.path().join(&name)),
        inode(&place.version().join(&name))
    );
    fs::File::create(source.dir.path().join(&name)).unwrap();
    place.assert_whole();
}

#[test]
fn given_away_files_are_linked_by_one_node_only() {
    let (source, first, second) = (Source::new(true), Place::new(), Place::new());
    let name = source.data_file();
    for place in [&first, &second] {
        place
            .fetch(local(source.dir.path()), &control(), &Tuning::default())
            .unwrap();
        place.assert_whole();
        assert!(!place.version().join(GIVEN_AWAY_FILE).exists());
    }
    let of_source = inode(&source.dir.path().join(&name));
    assert_eq!(inode(&first.version().join(&name)), of_source);
    assert_ne!(inode(&second.version().join(&name)), of_source);
}

#[test]
fn markers_of_other_users_or_symbolic_links_are_ignored() {
    let source = Source::new(true);
    let name = source.data_file();
    let statement = source.dir.path().join(GIVEN_AWAY_FILE);
    let is_linked = || {
        let place = Place::new();
        place
            .fetch(local(source.dir.path()), &control(), &Tuning::default())
            .unwrap();
        place.assert_whole();
        inode(&place.version().join(&name)) == inode(&source.dir.path().join(&name))
    };
    assert!(is_linked());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&statement, Some(1), None).unwrap();
        assert!(!is_linked(), "the marker belongs to another user");
    }
    fs::remove_file(&statement).unwrap();
    symlink(source.dir.path().join("manifest.json"), &statement).unwrap();
    assert!(!is_linked(), "it is a symbolic link");
}

#[test]
fn targets_of_symbolic_links_are_copied() {
    for gives_away in [false, true] {
        for is_relative in [false, true] {
            let (source, place, elsewhere) = (Source::new(gives_away), Place::new(), tempfile::tempdir().unwrap());
            let dir = source.dir.path();
            let beside = dir.join("beside");
            fs::create_dir(&beside).unwrap();
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let name = entry.file_name();
                if entry.path().is_dir() || name == GIVEN_AWAY_FILE {
                    continue;
                }
                let target = match is_relative {
                    true => Path::new("beside").join(&name),
                    false => elsewhere.path().join(&name),
                };
                let moved = dir.join(&target);
                fs::copy(entry.path(), &moved).unwrap();
                fs::remove_file(entry.path()).unwrap();
                symlink(&target, entry.path()).unwrap();
            }
            place.fetch(local(dir), &control(), &Tuning::default()).unwrap();
            fs::remove_dir_all(elsewhere.path()).unwrap();
            fs::remove_dir_all(beside).unwrap();
            place.assert_whole();
            for entry in fs::read_dir(place.version()).unwrap().map(Result::unwrap) {
                assert!(entry.metadata().unwrap().is_file(), "{:?}", entry.path());
            }
        }
    }
}

#[test]
fn a_pipe_in_place_of_a_file_is_an_error() {
    let (source, place) = (Source::new(true), Place::new());
    let path = source.dir.path().join(source.data_file());
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let error = place
        .fetch(local(source.dir.path()), &hurried(), &Tuning::default())
        .unwrap_err();
    assert!(error.to_string().contains("not a file"), "{error}");
}

#[test]
fn a_damaged_file_stays_until_another_replaces_it() {
    let (source, place) = (Source::new(false), Place::new());
    place.fetched(&source);
    let name = source.data_file();
    let file = place.version().join(&name);
    let whole = fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    damaged[5000] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let away = source.dir.path().join("away");
    fs::rename(source.dir.path().join(&name), &away).unwrap();
    place
        .fetch(Arc::clone(&source), &hurried(), &Tuning::default())
        .unwrap_err();
    assert_eq!(fs::read(&file).unwrap(), damaged);
    fs::rename(&away, source.dir.path().join(&name)).unwrap();
    place.fetched(&source);
    place.assert_whole();
    assert_eq!(fs::read(&file).unwrap(), whole);
}
