//! What a location promises of its files.

use std::io::Write;

use fondaco_storage::{Location, StorageError};
use tempfile::TempDir;

fn location() -> (TempDir, Location) {
    let directory = tempfile::tempdir().unwrap();
    let location = Location::local(directory.path().join("a/b"));
    location.create_directory().unwrap();
    (directory, location)
}

fn write(location: &Location, name: &str, content: &[u8]) {
    let mut file = location.create_file(name).unwrap();
    file.write_all(content).unwrap();
    assert_eq!(file.bytes(), content.len() as u64);
    file.finish().unwrap();
}

async fn read(location: &Location, name: &str, offset: u64) -> Vec<u8> {
    let mut reader = location.read_from(name, offset).await.unwrap();
    let mut content = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        assert!(!piece.is_empty());
        content.extend_from_slice(&piece);
    }
    content
}

#[tokio::test]
async fn a_file_is_read_back_from_any_offset() {
    let (_directory, location) = location();
    let content: Vec<u8> = (0..5_000_000_u32).map(|i| (i % 251) as u8).collect();
    write(&location, "x.data", &content);
    for offset in [0, 1, 1 << 20, 4_999_999, 5_000_000, 6_000_000] {
        let expected = &content[content.len().min(offset)..];
        assert_eq!(
            read(&location, "x.data", offset as u64).await,
            expected,
            "from {offset}"
        );
    }
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let (directory, location) = location();
    write(&location, "x", &vec![7; 3 << 20]);
    let mut reader = location.read_from("x", 0).await.unwrap();
    reader.next().await.unwrap().unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(directory.path().join("a/b/x"))
        .unwrap();
    file.set_len(1 << 20).unwrap();
    assert!(matches!(reader.next().await, Err(StorageError::Shortened { .. })));
}

#[tokio::test]
async fn an_atomic_write_replaces_and_leaves_no_other_file() {
    let (_directory, location) = location();
    location.write_atomically("manifest.json", b"one").unwrap();
    location.write_atomically("manifest.json", b"two").unwrap();
    assert_eq!(location.read_whole("manifest.json", 3).await.unwrap(), b"two");
    let names: Vec<String> = location.list().await.unwrap().into_iter().map(|f| f.name).collect();
    assert_eq!(names, ["manifest.json"]);
}

#[tokio::test]
async fn a_file_longer_than_allowed_is_not_read_whole() {
    let (_directory, location) = location();
    write(&location, "x", b"four");
    let error = location.read_whole("x", 3).await.unwrap_err();
    assert!(
        error.to_string().contains("4 bytes, more than the 3 allowed"),
        "{error}"
    );
}

#[tokio::test]
async fn a_list_is_sorted_and_holds_files_only() {
    let (_directory, location) = location();
    location.join("z").unwrap().create_directory().unwrap();
    write(&location, "c", b"ccc");
    write(&location, "a", b"");
    let files: Vec<(String, u64)> = location
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|f| (f.name, f.bytes))
        .collect();
    assert_eq!(files, [("a".to_owned(), 0), ("c".to_owned(), 3)]);
}

#[tokio::test]
async fn what_is_missing_is_said_so() {
    let (_directory, location) = location();
    assert!(!location.exists("x").await.unwrap());
    assert!(matches!(
        location.read_from("x", 0).await,
        Err(StorageError::NotFound { .. })
    ));
    let nowhere = location.join("nowhere").unwrap();
    assert!(!nowhere.exists("x").await.unwrap());
    assert!(matches!(nowhere.list().await, Err(StorageError::NotFound { .. })));
    assert!(nowhere.is_vacant().unwrap());
    nowhere.delete_tree().unwrap();
    nowhere.delete_file("x").unwrap();
}

#[tokio::test]
async fn a_file_is_never_overwritten_by_create() {
    let (_directory, location) = location();
    write(&location, "x", b"first");
    assert!(matches!(location.create_file("x"), Err(StorageError::Io { .. })));
    assert_eq!(read(&location, "x", 0).await, b"first");
}

#[test]
fn a_deleted_tree_leaves_the_place_vacant() {
    let (_directory, location) = location();
    assert!(location.is_vacant().unwrap());
    write(&location, "x", b"x");
    assert!(!location.is_vacant().unwrap());
    location.sync_all().unwrap();
    location.delete_tree().unwrap();
    assert!(location.is_vacant().unwrap());
}

#[test]
fn free_space_is_known_before_the_directory_exists() {
    let (_directory, location) = location();
    let later = location.join("later").unwrap().join("still").unwrap();
    assert!(later.free_bytes().unwrap().unwrap() > 0);
}
