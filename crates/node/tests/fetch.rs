//! Fetching versions from sources that fail, lie, and are slow.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_format::{Compression, MANIFEST_FILE, Version, verify};
use fondaco_model::{PartitionCount, StoreName};
use fondaco_node::{
    FetchControl, FetchError, FetchPlan, FetchSource, FetchTarget, FetchTuning, PageCache, SystemClock,
};
use tempfile::TempDir;

#[path = "../../format/tests/written/mod.rs"]
mod written;

/// A source in a directory, with what may go wrong on the way.
struct Source {
    dir: TempDir,
    linkable: bool,
    /// How many opens fail before one succeeds.
    failures: AtomicU32,
    /// How many bytes an open file gives before it fails, the first time.
    breaks_after: Mutex<Option<u64>>,
    bytes_read: AtomicU64,
}

impl Source {
    fn new(linkable: bool) -> Self {
        let dir = TempDir::new().unwrap();
        let records: BTreeMap<_, _> = (0..2000u32)
            .map(|n| {
                (
                    n.to_string().into_bytes(),
                    format!("value {n} {}", "x".repeat(1000)).into_bytes(),
                )
            })
            .collect();
        let shape = written::Shape {
            partitions: 2,
            chunks: 1,
            compression: Compression::None,
        };
        written::write(dir.path(), &records, &shape);
        Self {
            dir,
            linkable,
            failures: AtomicU32::new(0),
            breaks_after: Mutex::new(None),
            bytes_read: AtomicU64::new(0),
        }
    }

    /// Its largest data file.
    fn data_file(&self) -> String {
        let files = fs::read_dir(self.dir.path()).unwrap().map(Result::unwrap);
        let data = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "data"));
        let largest = data.max_by_key(|file| file.metadata().unwrap().len()).unwrap();
        largest.file_name().into_string().unwrap()
    }
}

impl FetchSource for Source {
    fn name(&self) -> String {
        "test".to_owned()
    }

    fn local_dir(&self) -> Option<&Path> {
        self.linkable.then_some(self.dir.path())
    }

    fn read_whole(&self, file: &str, _: u64) -> io::Result<Vec<u8>> {
        fs::read(self.dir.path().join(file))
    }

    fn open(&self, file: &str, offset: u64, _: PageCache) -> io::Result<Box<dyn Read + Send>> {
        let failures = self.failures.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if failures.is_ok() {
            return Err(io::Error::other("the network is down"));
        }
        let bytes = fs::read(self.dir.path().join(file))?;
        let rest = bytes[offset as usize..].to_vec();
        self.bytes_read.fetch_add(rest.len() as u64, Relaxed);
        let good = self.breaks_after.lock().unwrap().take();
        Ok(match good.filter(|good| *good < rest.len() as u64) {
            Some(good) => {
                let first = io::Cursor::new(rest[..good as usize].to_vec());
                Box::new(first.chain(Broken))
            }
            None => Box::new(io::Cursor::new(rest)),
        })
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::ConnectionReset, "connection reset"))
    }
}

/// A rate, and reads that take as long as they are told.
#[derive(Default)]
struct Tuning {
    rate: AtomicU64,
    p99_us: AtomicU64,
}

impl FetchTuning for Tuning {
    fn rate_limit_bytes_per_second(&self) -> Option<u64> {
        match self.rate.load(Relaxed) {
            0 => None,
            rate => Some(rate),
        }
    }

    fn read_p99(&self) -> Option<Duration> {
        match self.p99_us.load(Relaxed) {
            0 => None,
            p99 => Some(Duration::from_micros(p99)),
        }
    }
}

/// Where a version goes.
struct Place {
    dir: TempDir,
    store: StoreName,
}

impl Place {
    fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            store: "pymk".parse().unwrap(),
        }
    }

    fn fetching(&self) -> PathBuf {
        self.dir.path().join("fetching-1")
    }

    fn version(&self) -> PathBuf {
        self.dir.path().join("version-1")
    }

    fn fetch(&self, source: &Source, control: &FetchControl, tuning: &Tuning) -> Result<(), FetchError> {
        self.fetch_with(source, control, tuning, 0)
    }

    fn fetch_with(
        &self,
        source: &Source,
        control: &FetchControl,
        tuning: &Tuning,
        reserve_bytes: u64,
    ) -> Result<(), FetchError> {
        let (fetching, version) = (self.fetching(), self.version());
        let target = FetchTarget {
            store: &self.store,
            partitions: PartitionCount::try_from(2).unwrap(),
            fetching_dir: &fetching,
            version_dir: &version,
            reserve_bytes,
        };
        let plan = FetchPlan::new(source, &target)?;
        plan.run(source, &target, PageCache::DropBehind, control, tuning)
    }

    fn assert_whole(&self) {
        assert_eq!(verify(&self.version()).unwrap().records, 2000);
        let version = Version::open(&self.version()).unwrap();
        assert!(version.get(b"1999").unwrap().unwrap().starts_with(b"value 1999"));
        assert!(!self.fetching().exists());
        let partial = |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".part");
        assert!(!fs::read_dir(self.version()).unwrap().map(Result::unwrap).any(partial));
    }
}

fn control() -> FetchControl {
    FetchControl::new(SystemClock::default())
}

#[test]
fn a_copied_and_a_linked_version_are_whole() {
    for linkable in [false, true] {
        let (source, place, control) = (Source::new(linkable), Place::new(), control());
        place.fetch(&source, &control, &Tuning::default()).unwrap();
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
    *source.breaks_after.lock().unwrap() = Some(300_000);
    place.fetch(&source, &control(), &Tuning::default()).unwrap();
    place.assert_whole();
}

#[test]
fn a_source_that_stays_away_fails_after_some_tries() {
    let (source, place) = (Source::new(false), Place::new());
    source.failures.store(4, Relaxed);
    place.fetch(&source, &control(), &Tuning::default()).unwrap();
    place.assert_whole();

    let (source, place) = (Source::new(false), Place::new());
    source.failures.store(u32::MAX, Relaxed);
    let error = place.fetch(&source, &control(), &Tuning::default()).unwrap_err();
    assert!(matches!(error, FetchError::Source { .. }), "{error}");
    assert!(error.to_string().contains("the network is down"), "{error}");
}

#[test]
fn a_changed_file_is_read_once_more_and_then_refused() {
    for linkable in [false, true] {
        let (source, place) = (Source::new(linkable), Place::new());
        let name = source.data_file();
        let path = source.dir.path().join(&name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[5000] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = place.fetch(&source, &control(), &Tuning::default()).unwrap_err();
        let FetchError::Mismatch {
            file, expected, found, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*file, name);
        assert_ne!(expected, found);
        assert!(!place.version().exists());
        assert!(!place.fetching().join(&name).exists());
        assert_eq!(fs::read(&path).unwrap(), bytes, "the source is left as it is");
    }
}

#[test]
fn an_interrupted_fetch_keeps_what_it_has_and_reads_only_the_rest() {
    let (source, place) = (Source::new(false), Place::new());
    let tuning = Tuning::default();
    let interrupted = control();
    tuning.rate.store(1 << 20, Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while interrupted.progress().bytes_done < 1_000_000 {
                assert!(Instant::now() < deadline, "nothing is fetched");
                std::thread::yield_now();
            }
            interrupted.interrupt();
        });
        let error = place.fetch(&source, &interrupted, &tuning).unwrap_err();
        assert!(matches!(error, FetchError::Interrupted), "{error}");
    });
    assert!(!place.version().exists());
    let total = interrupted.progress().bytes_total;
    source.bytes_read.store(0, Relaxed);
    tuning.rate.store(0, Relaxed);
    let resumed = control();
    place.fetch(&source, &resumed, &tuning).unwrap();
    place.assert_whole();
    let read = source.bytes_read.load(Relaxed);
    assert!(read <= total - 900_000, "{read} of {total} bytes were read again");
    assert_eq!(resumed.progress().bytes_done, total);
}

#[test]
fn what_an_earlier_try_left_is_verified_before_it_is_used() {
    let (source, place) = (Source::new(false), Place::new());
    fs::create_dir(place.fetching()).unwrap();
    let name = source.data_file();
    let whole = fs::read(source.dir.path().join(&name)).unwrap();
    // Complete by its name and length, and rotten.
    let mut rotten = whole.clone();
    rotten[100] ^= 1;
    fs::write(place.fetching().join(&name), rotten).unwrap();
    // Partial, and of something else; too long; and a link, through which the source could be changed.
    fs::write(place.fetching().join(format!("{name}.part")), vec![7; 1000]).unwrap();
    let mut others = fs::read_dir(source.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let other = others.find(|other| other != MANIFEST_FILE && *other != *name).unwrap();
    let other = other.to_str().unwrap();
    let link = place.fetching().join(format!("{other}.part"));
    fs::hard_link(source.dir.path().join(other), link).unwrap();
    let before = fs::read(source.dir.path().join(other)).unwrap();

    place.fetch(&source, &control(), &Tuning::default()).unwrap();
    place.assert_whole();
    assert_eq!(fs::read(source.dir.path().join(other)).unwrap(), before);
}

#[test]
fn a_version_that_does_not_fit_is_refused_before_the_first_byte() {
    let (source, place) = (Source::new(false), Place::new());
    let error = place
        .fetch_with(&source, &control(), &Tuning::default(), u64::MAX)
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
        let fetch = scope.spawn(|| place.fetch(&source, &control, &tuning));
        let deadline = Instant::now() + Duration::from_secs(60);
        while control.progress().bytes_done == 0 {
            assert!(Instant::now() < deadline, "nothing is fetched");
            std::thread::yield_now();
        }
        control.cancel();
        control.interrupt();
        let error = fetch.join().unwrap().unwrap_err();
        assert!(matches!(error, FetchError::Cancelled), "{error}");
    });
}

#[test]
fn a_fetch_keeps_its_rate_and_yields_to_slow_reads() {
    let (source, place, control) = (Source::new(false), Place::new(), control());
    let tuning = Tuning::default();
    tuning.rate.store(2 << 20, Relaxed);
    tuning.p99_us.store(200, Relaxed);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| place.fetch(&source, &control, &tuning));
        let wait_for = |what: &str, condition: &dyn Fn() -> bool| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !condition() {
                assert!(
                    Instant::now() < deadline && !fetch.is_finished(),
                    "waited in vain for: {what}"
                );
                std::thread::yield_now();
            }
        };
        let limit = || control.progress().rate_limit_bytes_per_second;
        wait_for("the operator's limit", &|| limit() == 2 << 20);
        tuning.p99_us.store(2000, Relaxed);
        wait_for("it to slow down", &|| limit() <= 1 << 20);
        tuning.p99_us.store(200, Relaxed);
        wait_for("it to recover", &|| limit() == 2 << 20);
        tuning.rate.store(0, Relaxed);
        fetch.join().unwrap().unwrap();
    });
    place.assert_whole();
    assert!(began.elapsed() > Duration::from_millis(500));
}
