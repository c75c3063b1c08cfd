//! Behaviour of local directories only.

use fondaco_storage::StorageError;

use crate::place::{self, write};

#[test]
fn a_file_that_shrinks_during_a_read_is_an_error() {
    let place = place::local();
    place.location.create_directory().unwrap();
    write(&place.location, "x", &vec![7; 3 << 20]);
    let mut reader = place.location.open("x", 0).unwrap();
    reader.next_piece().unwrap().unwrap();
    let path = place.location.local_path().unwrap().join("x");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(1 << 20).unwrap();
    assert!(matches!(reader.next_piece(), Err(StorageError::Shortened { .. })));
}

#[test]
fn free_space_is_known_before_the_directory_exists() {
    let place = place::local();
    let later = place.location.join("later").unwrap().join("still").unwrap();
    assert!(later.free_bytes().unwrap().unwrap() > 0);
}
