//! Versions that are built into S3 and HDFS, and fetched from there: real servers, which are killed during the fetch.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fondaco_builder::{BuildError, BuildOptions, BuildReport, Progress, ValueSelection, build};
use fondaco_fetch::{FetchError, FetchSource, LocationSource, PageCache, SourceError, Sources};
use fondaco_format::{Checksum, MANIFEST_FILE, Manifest, Version, verify};
use fondaco_model::PartitionCount;
use fondaco_storage::{Location, S3Options, Secret, StorageOptions};
use fondaco_testing::{Hdfs, S3};
use parking_lot::Mutex;

use crate::files::file_name;
use crate::place::{Place, Tuning, control};

const ROWS: u32 = 60_000;
const PARTITIONS: u32 = 4;

/// Builds a version of some 12 MB with several chunks to each partition.
fn build_into(output: &Location) -> Checksum {
    build_rows(output, 0..ROWS).unwrap();
    Manifest::identity(&output.read_whole(MANIFEST_FILE, 1 << 30).unwrap()).unwrap()
}

fn build_rows(output: &Location, keys: impl Iterator<Item = u32>) -> Result<BuildReport, BuildError> {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("rows.csv");
    let rows: String = keys.map(|n| format!("{n},{n:0>180}\n")).collect();
    fs::write(&input, format!("member,value\n{rows}")).unwrap();
    let options = BuildOptions {
        value: ValueSelection::Column("value".to_owned()),
        memory_bytes: 16 << 20,
        threads: 2,
        chunk_bytes_target: 1 << 20,
        ..BuildOptions::new(
            "pymk".parse().unwrap(),
            PartitionCount::try_from(PARTITIONS).unwrap(),
            vec![input.to_str().unwrap().to_owned()],
            "member",
            output.clone(),
            dir.path().to_owned(),
        )
    };
    build(&options, &Progress::new())
}

fn s3_options(server: &S3) -> StorageOptions {
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

fn place(checksum: Checksum) -> Place {
    let mut place = Place::new();
    place.partitions = PARTITIONS;
    place.manifest_checksum = Some(checksum);
    place
}

fn assert_served(version_dir: &Path) {
    assert_eq!(verify(version_dir).unwrap().records, u64::from(ROWS));
    let version = Version::open(version_dir).unwrap();
    for n in [0, 1, ROWS - 1] {
        let value = version.get(n.to_string().as_bytes()).unwrap().unwrap();
        assert_eq!(value[..], *format!("{n:0>180}").as_bytes());
    }
}

/// Fetches in two parts. In the first, the server is killed and restarted.
fn survives_a_death(location: &Location, kill: impl FnOnce() + Send, restart: impl FnOnce()) {
    let checksum = build_into(location);
    let place = place(checksum).wanting(&[0, 2]);
    let (tuning, control) = (Tuning::default(), control());
    tuning.rate.store(2 << 20, Relaxed);
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| place.fetch(LocationSource::new(location.clone()), &control, &tuning));
        let deadline = Instant::now() + Duration::from_secs(60);
        while control.progress().bytes_done < 1 << 20 {
            assert!(Instant::now() < deadline && !fetch.is_finished(), "nothing is fetched");
            std::thread::yield_now();
        }
        kill();
        tuning.rate.store(0, Relaxed);
        restart();
        match fetch.join().unwrap() {
            Ok(_) => {}
            // The restart took longer than a fetch waits: the next attempt continues.
            Err(FetchError::Source { .. }) => {
                place
                    .fetch(LocationSource::new(location.clone()), &control, &tuning)
                    .unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    });
    assert_eq!(place.held(), [0, 2]);
    let place = place.wanting(&[1, 3]);
    place
        .fetch(LocationSource::new(location.clone()), &control, &tuning)
        .unwrap();
    assert_served(&place.version());
}

#[test]
fn a_fetch_survives_the_death_of_an_s3_server() {
    let server = Mutex::new(S3::start());
    let options = s3_options(&server.lock());
    let location = options.locate(&format!("s3://{}/pymk-1", S3::BUCKET)).unwrap();
    survives_a_death(&location, || server.lock().kill(), || server.lock().restart());
}

#[test]
fn a_fetch_survives_the_death_of_hdfs_servers() {
    let server = Mutex::new(Hdfs::start());
    let url = server.lock().url();
    let location: Location = format!("{url}/versions/pymk-1").parse().unwrap();
    survives_a_death(&location, || server.lock().kill(), || server.lock().restart());
}

#[test]
fn another_source_replaces_corrupt_and_truncated_objects() {
    let server = S3::start();
    let location = s3_options(&server)
        .locate(&format!("s3://{}/pymk-1", S3::BUCKET))
        .unwrap();
    let checksum = build_into(&location);
    let good = tempfile::tempdir().unwrap();
    for file in location.list().unwrap() {
        let bytes = location.read_whole(&file.name, 1 << 30).unwrap();
        fs::write(good.path().join(&file.name), bytes).unwrap();
    }
    let objects = server.objects().join("pymk-1");
    let (flipped, cut) = (
        file_name(good.path(), "p00000-c0000", "data"),
        file_name(good.path(), "p00001-c0001", "data"),
    );
    let mut bytes = fs::read(objects.join(&flipped)).unwrap();
    bytes[5000] ^= 1;
    fs::write(objects.join(&flipped), bytes).unwrap();
    let cut_file = fs::File::options().write(true).open(objects.join(&cut)).unwrap();
    cut_file.set_len(1000).unwrap();

    let remote = || Box::new(LocationSource::new(location.clone())) as Box<dyn FetchSource>;
    let alone = place(checksum);
    let error = alone
        .fetch(Sources::new([remote()]), &control(), &Tuning::default())
        .unwrap_err();
    assert!(matches!(error, FetchError::Mismatch { .. }), "{error}");
    assert!(!alone.version().exists());

    let place = place(checksum);
    let local = Box::new(NotLinked(good.path().to_owned()));
    let report = place
        .fetch(Sources::new([remote(), local]), &control(), &Tuning::default())
        .unwrap();
    assert_served(&place.version());
    let corrupt: Vec<_> = report.corrupt.iter().map(|corrupt| &corrupt.file).collect();
    assert_eq!(corrupt, [&flipped, &cut]);
    assert!(
        report
            .corrupt
            .iter()
            .all(|corrupt| corrupt.location == location.to_string())
    );
}

#[test]
fn a_build_leaves_a_complete_version_or_nothing() {
    let mut server = S3::start();
    let location = s3_options(&server)
        .locate(&format!("s3://{}/pymk-1", S3::BUCKET))
        .unwrap();
    // A duplicate key is found when most chunks are written.
    let error = build_rows(&location, (0..ROWS).chain([0])).unwrap_err();
    assert!(matches!(error, BuildError::Duplicate { .. }), "{error}");
    assert!(location.is_vacant().unwrap());

    build_into(&location);
    let before = location.list().unwrap();
    let error = build_rows(&location, 0..10).unwrap_err();
    assert!(
        matches!(error, BuildError::OutputNotEmpty { unfinished: false, .. }),
        "{error}"
    );
    assert_eq!(location.list().unwrap(), before);
    location.delete_file(MANIFEST_FILE).unwrap();
    let error = build_rows(&location, 0..10).unwrap_err();
    assert!(
        matches!(error, BuildError::OutputNotEmpty { unfinished: true, .. }),
        "{error}"
    );

    server.kill();
    let other = location.join("other").unwrap();
    let error = build_rows(&other, 0..10).unwrap_err();
    assert!(matches!(error, BuildError::Storage(_)), "{error}");
}

/// A local directory that looks remote.
struct NotLinked(PathBuf);

impl FetchSource for NotLinked {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn local_dir(&self) -> Option<&Path> {
        None
    }

    fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, SourceError> {
        LocationSource::new(Location::local(&self.0)).read_whole(file, bytes_max)
    }

    fn open(&self, file: &str, offset: u64, cache: PageCache) -> Result<Box<dyn Read + Send>, SourceError> {
        LocationSource::new(Location::local(&self.0)).open(file, offset, cache)
    }
}
