//! Servers that die, objects that change, and wrong credentials.

use std::fs;
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use fondaco_storage::{FileReader, FileWriter, Location, S3Options, Secret, StorageError, StorageOptions};
use fondaco_testing::{Hdfs, S3, free_port, wait_until};

use crate::place::{content, on_hdfs, on_s3, options, write};

/// Time for a server to restart, on a busy machine.
const RETURN_MAX: Duration = Duration::from_secs(120);

#[test]
fn a_replaced_object_is_not_mixed_with_the_old_one() {
    for place in [crate::place::s3(), crate::place::hdfs()] {
        let location = &place.location;
        location.create_directory().unwrap();
        write(location, "x", &content(30_000_000));
        let mut reader = location.open("x", 0).unwrap();
        reader.next_piece().unwrap().unwrap();
        location.write_atomically("x", &vec![7; 30_000_001]).unwrap();
        // The prefetched piece may still be of the first file.
        let error = loop {
            match reader.next_piece() {
                Ok(Some(piece)) => assert_ne!(piece[..8], [7; 8]),
                Ok(None) => panic!("{location}: the replaced file was read to its end"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StorageError::Replaced { .. }), "{location}: {error}");
    }
}

#[test]
fn transfers_resume_after_the_s3_server_has_died() {
    let mut server = S3::start();
    let location = on_s3(&server);
    let interrupted = Interrupted::begin(&location);
    server.kill();
    let rest = interrupted.fail("s3://versions/");
    server.restart();
    rest.can_be_read(&location);
}

#[test]
fn transfers_resume_after_the_hdfs_server_has_died() {
    let mut server = Hdfs::start();
    let location = on_hdfs(&server);
    let interrupted = Interrupted::begin(&location);
    server.kill();
    let rest = interrupted.fail(&server.url());
    server.restart();
    rest.can_be_read(&location);
}

/// A file being read, and a file being written, while their server dies.
struct Interrupted {
    content: Vec<u8>,
    reader: FileReader,
    /// How much was read before the server died, in bytes.
    read: usize,
    writer: FileWriter,
}

/// The rest of a file, to be read after the server has returned.
struct Rest {
    content: Vec<u8>,
    /// How much of it was already read, in bytes.
    read: usize,
}

impl Interrupted {
    fn begin(location: &Location) -> Self {
        location.create_directory().unwrap();
        let content = content(30_000_000);
        write(location, "x", &content);
        let mut writer = location.create_file("y").unwrap();
        writer.write_all(&content[..20_000_000]).unwrap();
        let mut reader = location.open("x", 0).unwrap();
        let read = reader.next_piece().unwrap().unwrap().len();
        Self {
            content,
            reader,
            read,
            writer,
        }
    }

    /// Both end with an error, that of the reader with the name of the server, and everything read before is right.
    fn fail(mut self, server: &str) -> Rest {
        let mut rest = Vec::new();
        let error = self.reader.read_to_end(&mut rest).unwrap_err();
        assert!(error.to_string().contains(server), "{error}");
        assert!(self.writer.finish().is_err());
        let read = self.read + rest.len();
        assert!(rest[..] == self.content[self.read..read]);
        Rest {
            content: self.content,
            read,
        }
    }
}

impl Rest {
    fn can_be_read(&self, location: &Location) {
        assert!(!location.exists("y").unwrap(), "an interrupted upload left a file");
        let mut more = Vec::new();
        let mut reader = location.open("x", self.read as u64).unwrap();
        reader.read_to_end(&mut more).unwrap();
        assert!(more[..] == self.content[self.read..]);
    }
}

#[test]
fn a_read_waits_for_a_server_that_is_briefly_away() {
    let mut server = S3::start();
    let location = on_s3(&server);
    write(&location, "x", b"here");
    server.kill();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut read = location.read_whole("x", 10);
            wait_until("the server to return", RETURN_MAX, || {
                if read.is_err() {
                    read = location.read_whole("x", 10);
                }
                read.is_ok()
            });
            read.unwrap()
        });
        server.restart();
        assert_eq!(reading.join().unwrap(), b"here");
    });
}

#[test]
fn wrong_credentials_are_denied_and_not_printed() {
    let server = S3::start();
    write(&on_s3(&server), "x", b"secret");
    let right = options(&server);
    let wrong = StorageOptions {
        s3: S3Options {
            secret_access_key: Some(Secret::new("wrong-and-secret")),
            ..right.s3
        },
        ..right
    };
    assert!(!format!("{wrong:?}").contains("wrong-and-secret"));
    let location = wrong.locate("s3://versions/a").unwrap();
    let error = location.read_whole("x", 10).unwrap_err();
    assert!(matches!(error, StorageError::Denied { .. }), "{error}");
    assert!(!error.to_string().contains("wrong-and-secret"), "{error}");
}

#[test]
fn an_absent_server_is_an_error_soon() {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let nowhere = StorageOptions {
        s3: S3Options {
            endpoint: Some(endpoint.clone()),
            access_key_id: Some("any".into()),
            secret_access_key: Some(Secret::new("any")),
            ..S3Options::default()
        },
        ..StorageOptions::default()
    };
    let error = nowhere.locate("s3://versions/a").unwrap().open("x", 0).err().unwrap();
    assert!(matches!(error, StorageError::Remote { .. }), "{error}");
    assert!(error.to_string().contains(&endpoint), "{error}");

    let url = format!("hdfs://127.0.0.1:{}/a", free_port());
    let error = url.parse::<Location>().unwrap().open("x", 0).err().unwrap();
    assert!(matches!(error, StorageError::Remote { .. }), "{error}");
}

#[test]
fn a_truncated_object_is_shorter_than_it_was() {
    let server = S3::start();
    let location = on_s3(&server);
    write(&location, "x", &content(1000));
    let mut objects = vec![server.objects()];
    let object = loop {
        let next = objects.pop().unwrap();
        if next.is_file() {
            break next;
        }
        objects.extend(fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()));
    };
    fs::File::options()
        .write(true)
        .open(object)
        .unwrap()
        .set_len(500)
        .unwrap();
    assert_eq!(location.open("x", 0).unwrap().file_bytes(), 500);
}
