//! The guarantees of every kind of storage.

use std::io::{Read, Write};

use fondaco_storage::{Location, StorageError};

use crate::place::{content, write};

/// Each check as a separate test, for each kind of storage.
macro_rules! on_every_storage {
    ($($check:ident),* $(,)?) => {
        on_every_storage!(@on local: $($check),*);
        on_every_storage!(@on s3: $($check),*);
        on_every_storage!(@on hdfs: $($check),*);
    };
    (@on $storage:ident: $($check:ident),*) => {
        mod $storage {
            $(
                #[test]
                fn $check() {
                    super::$check(&crate::place::$storage().location);
                }
            )*
        }
    };
}

on_every_storage!(
    a_file_is_read_back_from_any_offset,
    an_empty_file_is_a_file,
    an_atomic_write_replaces_and_leaves_no_other_file,
    a_file_longer_than_allowed_is_not_read_whole,
    a_list_is_sorted_and_holds_files_only,
    a_missing_file_or_directory_is_reported,
    a_file_is_never_overwritten_by_create,
    a_file_may_get_its_name_after_it_was_written,
    an_unfinished_file_does_not_exist_on_remote_storage,
    a_deleted_tree_leaves_the_place_vacant,
    a_printed_location_parses_to_the_same_location,
);

fn read(location: &Location, name: &str, offset: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    location.open(name, offset).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn names(location: &Location) -> Vec<String> {
    location.list().unwrap().into_iter().map(|file| file.name).collect()
}

fn a_file_is_read_back_from_any_offset(location: &Location) {
    location.create_directory().unwrap();
    // More than two parts of an upload, and more than two pieces of a reader.
    let content = content(20_000_000);
    write(location, "x.data", &content);
    for offset in [0, 1, 8 << 20, (8 << 20) + 1, 19_999_999, 20_000_000, 30_000_000] {
        let expected = &content[content.len().min(offset)..];
        assert!(read(location, "x.data", offset as u64) == expected, "from {offset}");
    }
    let mut reader = location.open("x.data", 5).unwrap();
    assert_eq!(reader.file_bytes(), 20_000_000);
    let mut at = 5;
    while let Some(piece) = reader.next_piece().unwrap() {
        assert!(!piece.is_empty() && piece[..] == content[at..at + piece.len()]);
        at += piece.len();
    }
    assert_eq!(at, content.len());
}

fn an_empty_file_is_a_file(location: &Location) {
    location.create_directory().unwrap();
    write(location, "empty", b"");
    assert!(location.exists("empty").unwrap());
    assert_eq!(read(location, "empty", 0), b"");
}

fn an_atomic_write_replaces_and_leaves_no_other_file(location: &Location) {
    location.create_directory().unwrap();
    location.write_atomically("manifest.json", b"one").unwrap();
    location.write_atomically("manifest.json", b"two").unwrap();
    assert_eq!(location.read_whole("manifest.json", 3).unwrap(), b"two");
    assert_eq!(names(location), ["manifest.json"]);
}

fn a_file_longer_than_allowed_is_not_read_whole(location: &Location) {
    location.create_directory().unwrap();
    write(location, "x", b"four");
    let error = location.read_whole("x", 3).unwrap_err();
    assert!(
        matches!(
            error,
            StorageError::TooLong {
                bytes: 4,
                bytes_max: 3,
                ..
            }
        ),
        "{error}"
    );
}

fn a_list_is_sorted_and_holds_files_only(location: &Location) {
    location.create_directory().unwrap();
    let inner = location.join("z").unwrap();
    inner.create_directory().unwrap();
    write(&inner, "inner", b"i");
    write(location, "c", b"ccc");
    write(location, "a", b"");
    let files: Vec<_> = location
        .list()
        .unwrap()
        .into_iter()
        .map(|f| (f.name, f.bytes))
        .collect();
    assert_eq!(files, [("a".to_owned(), 0), ("c".to_owned(), 3)]);
}

fn a_missing_file_or_directory_is_reported(location: &Location) {
    location.create_directory().unwrap();
    assert!(!location.exists("x").unwrap());
    assert!(matches!(location.open("x", 0), Err(StorageError::NotFound { .. })));
    let nowhere = location.join("nowhere").unwrap();
    assert!(!nowhere.exists("x").unwrap());
    assert!(matches!(nowhere.list(), Err(StorageError::NotFound { .. })));
    assert!(nowhere.is_vacant().unwrap());
    nowhere.delete_tree().unwrap();
    nowhere.delete_file("x").unwrap();
}

fn a_file_is_never_overwritten_by_create(location: &Location) {
    location.create_directory().unwrap();
    write(location, "x", b"first");
    assert!(matches!(
        location.create_file("x"),
        Err(StorageError::AlreadyExists { .. })
    ));
    assert_eq!(read(location, "x", 0), b"first");
}

fn a_file_may_get_its_name_after_it_was_written(location: &Location) {
    location.create_directory().unwrap();
    // One part of an upload, and several.
    for (name, bytes) in [("short", 1000), ("long", 20_000_000)] {
        let content = content(bytes);
        let mut file = location.create_file("unnamed").unwrap();
        file.write_all(&content).unwrap();
        for invalid in ["", "..", "a/b"] {
            let refused = file.rename(invalid).unwrap_err();
            assert!(matches!(refused, StorageError::InvalidName { .. }), "{invalid:?}");
        }
        file.rename(name).unwrap();
        file.finish().unwrap();
        assert!(read(location, name, 0) == content, "{name}");
    }
    assert_eq!(names(location), ["long", "short"]);
}

fn an_unfinished_file_does_not_exist_on_remote_storage(location: &Location) {
    use std::io::Write;
    location.create_directory().unwrap();
    let mut abandoned = location.create_file("x").unwrap();
    abandoned.write_all(&content(20_000_000)).unwrap();
    if location.local_path().is_none() {
        assert!(!location.exists("x").unwrap());
        drop(abandoned);
        assert!(!location.exists("x").unwrap());
        assert!(
            location.is_vacant().unwrap(),
            "the parts of the aborted upload were not cleaned up"
        );
    }
}

fn a_deleted_tree_leaves_the_place_vacant(location: &Location) {
    assert!(location.is_vacant().unwrap());
    location.create_directory().unwrap();
    assert!(location.is_vacant().unwrap());
    write(location, "x", b"x");
    let inner = location.join("inner").unwrap();
    inner.create_directory().unwrap();
    write(&inner, "y", b"y");
    assert!(!location.is_vacant().unwrap());
    location.sync_all().unwrap();
    location.delete_file("x").unwrap();
    assert!(!location.exists("x").unwrap() && inner.exists("y").unwrap());
    location.delete_tree().unwrap();
    assert!(location.is_vacant().unwrap() && inner.is_vacant().unwrap());
}

fn a_printed_location_parses_to_the_same_location(location: &Location) {
    let inner = location.join("v 1 %41").unwrap();
    let again: Location = inner.to_string().parse().unwrap();
    assert_eq!(again, inner);
    assert_ne!(again, *location);
}
