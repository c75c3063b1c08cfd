//! Sources with faults, and a target directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fondaco_fetch::{
    Clock, FetchControl, FetchError, FetchPlan, FetchReport, FetchSource, FetchTarget, FetchTuning, PageCache,
    SourceError, Sources, SystemClock,
};
use fondaco_format::{Checksum, Compression, GIVEN_AWAY_FILE, Version, verify};
use fondaco_model::{Histogram, HistogramSnapshot};
use fondaco_model::{PartitionCount, PartitionId, PartitionSet, StoreName};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::written;

/// A source in a directory, with faults.
pub struct Source {
    pub dir: TempDir,
    linkable: bool,
    /// How many opens fail before one succeeds.
    pub failures: AtomicU32,
    /// How many bytes an open file gives before it fails, the first time.
    pub breaks_after: Mutex<Option<u64>>,
    pub bytes_read: AtomicU64,
    /// How many ranges were read.
    pub ranges_read: AtomicU64,
}

impl Source {
    pub fn new(linkable: bool) -> Arc<Self> {
        Self::with_value(linkable, 0, "")
    }

    /// A source in which the value of one key has this suffix.
    pub fn with_value(linkable: bool, key: u32, end: &str) -> Arc<Self> {
        let dir = TempDir::new().unwrap();
        let value = |n| format!("value {n} {}{}", "x".repeat(1000), if n == key { end } else { "" });
        let records: BTreeMap<_, _> = (0..2000u32)
            .map(|n| (n.to_string().into_bytes(), value(n).into_bytes()))
            .collect();
        let shape = written::Shape {
            partitions: 2,
            chunks: 1,
            compression: Compression::None,
        };
        written::write(dir.path(), &records, &shape);
        if linkable {
            fs::write(dir.path().join(GIVEN_AWAY_FILE), "").unwrap();
        }
        Self::in_dir(dir, linkable)
    }

    /// A source with the version in this directory, whose files are copied.
    pub fn of(dir: TempDir) -> Arc<Self> {
        Self::in_dir(dir, false)
    }

    fn in_dir(dir: TempDir, linkable: bool) -> Arc<Self> {
        Arc::new(Self {
            dir,
            linkable,
            failures: AtomicU32::new(0),
            breaks_after: Mutex::new(None),
            bytes_read: AtomicU64::new(0),
            ranges_read: AtomicU64::new(0),
        })
    }

    /// Changes one bit in one of its files. Returns the changed content.
    pub fn corrupt(&self, name: &str) -> Vec<u8> {
        let path = self.dir.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[5000] ^= 1;
        fs::write(&path, &bytes).unwrap();
        bytes
    }

    /// Its largest data file.
    pub fn data_file(&self) -> String {
        let files = fs::read_dir(self.dir.path()).unwrap().map(Result::unwrap);
        let data = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "data"));
        let largest = data.max_by_key(|file| file.metadata().unwrap().len()).unwrap();
        largest.file_name().into_string().unwrap()
    }
}

impl FetchSource for Source {
    fn name(&self) -> String {
        format!("source {}", self.dir.path().display())
    }

    fn local_dir(&self) -> Option<&Path> {
        self.linkable.then_some(self.dir.path())
    }

    fn read_whole(&self, file: &str, _: u64) -> Result<Vec<u8>, SourceError> {
        Ok(fs::read(self.dir.path().join(file))?)
    }

    fn open(&self, file: &str, offset: u64, _: PageCache) -> Result<Box<dyn Read + Send>, SourceError> {
        let failures = self.failures.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if failures.is_ok() {
            return Err(io::Error::other("the network is down").into());
        }
        let bytes = fs::read(self.dir.path().join(file))?;
        let rest = bytes[offset as usize..].to_vec();
        self.bytes_read.fetch_add(rest.len() as u64, Relaxed);
        let good = self.breaks_after.lock().take();
        Ok(match good.filter(|good| *good < rest.len() as u64) {
            Some(good) => {
                let first = io::Cursor::new(rest[..good as usize].to_vec());
                Box::new(first.chain(Broken))
            }
            None => Box::new(io::Cursor::new(rest)),
        })
    }

    fn read_range(&self, file: &str, range: Range<u64>, _: Duration) -> Result<Vec<u8>, SourceError> {
        let failures = self.failures.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if failures.is_ok() {
            return Err(io::Error::other("503 slow down").into());
        }
        self.ranges_read.fetch_add(1, Relaxed);
        let bytes = fs::read(self.dir.path().join(file))?;
        Ok(bytes[range.start as usize..range.end as usize].to_vec())
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::ConnectionReset, "connection reset"))
    }
}

/// A rate limit, and the latencies of reads.
#[derive(Default)]
pub struct Tuning {
    pub rate: AtomicU64,
    pub reads: Histogram,
}

impl FetchTuning for Tuning {
    fn rate_limit_bytes_per_second(&self) -> Option<u64> {
        match self.rate.load(Relaxed) {
            0 => None,
            rate => Some(rate),
        }
    }

    fn rate_floor_bytes_per_second(&self) -> u64 {
        16 << 10
    }

    fn reads(&self) -> HistogramSnapshot {
        self.reads.snapshot()
    }
}

/// The target of a fetch.
pub struct Place {
    pub dir: TempDir,
    pub store: StoreName,
    pub partitions: u32,
    pub wanted: Option<PartitionSet>,
    pub manifest_checksum: Option<Checksum>,
    pub siblings: Vec<PathBuf>,
    pub reserve_bytes: u64,
}

impl Place {
    pub fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            store: "pymk".parse().unwrap(),
            partitions: 2,
            wanted: None,
            manifest_checksum: None,
            siblings: Vec::new(),
            reserve_bytes: 0,
        }
    }

    pub fn wanting(mut self, partitions: &[u32]) -> Self {
        self.wanted = Some(partitions.iter().copied().map(PartitionId::new).collect());
        self
    }

    pub fn fetching(&self) -> PathBuf {
        self.dir.path().join("fetching-1")
    }

    pub fn version(&self) -> PathBuf {
        self.dir.path().join("version-1")
    }

    pub fn fetch(
        &self,
        sources: impl Into<Sources>,
        control: &FetchControl,
        tuning: &Tuning,
    ) -> Result<FetchReport, FetchError> {
        let (sources, fetching, version) = (sources.into(), self.fetching(), self.version());
        let target = self.target(&fetching, &version);
        let plan = FetchPlan::new(&sources, &target)?;
        plan.run(&sources, &target, PageCache::DropBehind, control, tuning)
    }

    /// The target of a fetch, with these directories.
    pub fn target<'a>(&'a self, fetching_dir: &'a Path, version_dir: &'a Path) -> FetchTarget<'a> {
        FetchTarget {
            store: &self.store,
            partitions: PartitionCount::try_from(self.partitions).unwrap(),
            wanted: self.wanted.as_ref(),
            manifest_checksum: self.manifest_checksum,
            fetching_dir,
            version_dir,
            siblings: &self.siblings,
            reserve_bytes: self.reserve_bytes,
        }
    }

    /// Fetches from one source without a limit.
    pub fn fetched(&self, source: &Arc<Source>) -> FetchReport {
        let fetched = self.fetch(Arc::clone(source), &control(), &Tuning::default());
        fetched.unwrap()
    }

    /// The partitions that it holds.
    pub fn held(&self) -> Vec<u32> {
        let version = Version::open(&self.version()).unwrap();
        version.held().map(PartitionId::get).collect()
    }

    pub fn assert_whole(&self) {
        let report = verify(&self.version()).unwrap();
        assert_eq!((report.records, report.not_held), (2000, vec![]));
        let version = Version::open(&self.version()).unwrap();
        assert!(version.get(b"1999").unwrap().unwrap().starts_with(b"value 1999"));
        assert!(!self.fetching().exists());
        assert_eq!(self.leftovers(), Vec::<String>::new());
    }

    /// The files in the version's directory that do not belong to it.
    pub fn leftovers(&self) -> Vec<String> {
        let entries = fs::read_dir(self.version()).unwrap().map(Result::unwrap);
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names
            .filter(|name| name.ends_with(".part") || name.ends_with(".link"))
            .collect()
    }
}

/// Several sources, in this order.
pub fn several<const N: usize>(sources: [&Arc<Source>; N]) -> Sources {
    Sources::new(sources.map(|source| Box::new(Arc::clone(source)) as Box<dyn FetchSource>))
}

/// The two sources, the second as the relay of all partitions.
pub fn relayed(far: &Arc<Source>, relay: &Arc<Source>) -> Sources {
    several([far, relay]).with_relays((0..2).map(|partition| (PartitionId::new(partition), 1)).collect())
}

pub fn control() -> FetchControl {
    FetchControl::new(SystemClock)
}

/// A clock whose waits take no time.
#[derive(Default)]
pub struct HurriedClock {
    real: SystemClock,
    skipped_us: AtomicU64,
}

impl Clock for HurriedClock {
    fn now(&self) -> Duration {
        self.real.now() + Duration::from_micros(self.skipped_us.load(Relaxed))
    }

    fn sleep(&self, time: Duration) {
        self.skipped_us.fetch_add(time.as_micros() as u64, Relaxed);
        std::thread::yield_now();
    }
}

pub fn hurried() -> FetchControl {
    FetchControl::new(HurriedClock::default())
}
