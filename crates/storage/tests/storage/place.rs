//! Fresh locations on each kind of storage. The servers are shared by all tests of this process.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use fondaco_storage::{Location, S3Options, Secret, StorageOptions};
use fondaco_testing::{Hdfs, S3};
use tempfile::TempDir;

/// A location without files, in a directory that does not exist yet.
pub struct Place {
    pub location: Location,
    _dir: Option<TempDir>,
}

pub fn local() -> Place {
    let dir = tempfile::tempdir().unwrap();
    Place {
        location: Location::local(dir.path().join("a/b")),
        _dir: Some(dir),
    }
}

pub fn s3() -> Place {
    static SERVER: OnceLock<S3> = OnceLock::new();
    Place {
        location: on_s3(SERVER.get_or_init(S3::start)),
        _dir: None,
    }
}

pub fn hdfs() -> Place {
    static SERVER: OnceLock<Hdfs> = OnceLock::new();
    Place {
        location: on_hdfs(SERVER.get_or_init(Hdfs::start)),
        _dir: None,
    }
}

pub fn on_s3(server: &S3) -> Location {
    let url = format!("s3://{}/a/{}", S3::BUCKET, fresh());
    options(server).locate(&url).unwrap()
}

pub fn on_hdfs(server: &Hdfs) -> Location {
    format!("{}/a/{}", server.url(), fresh()).parse().unwrap()
}

pub fn options(server: &S3) -> StorageOptions {
    StorageOptions {
        s3: S3Options {
            endpoint: Some(server.endpoint()),
            access_key_id: Some(S3::ACCESS_KEY_ID.into()),
            secret_access_key: Some(Secret::new(S3::SECRET_ACCESS_KEY)),
            ..S3Options::default()
        },
        ..StorageOptions::default()
    }
}

fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("place {}", NEXT.fetch_add(1, Relaxed))
}

pub fn write(location: &Location, name: &str, content: &[u8]) {
    let mut file = location.create_file(name).unwrap();
    file.write_all(content).unwrap();
    assert_eq!(file.bytes(), content.len() as u64);
    file.finish().unwrap();
}

/// Bytes without repetition, so that a piece at the wrong place is detected.
pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(8) as u64)
        .flat_map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(bytes)
        .collect()
}
