//! Fetching: pulling the files of one version from storage onto the node's own disk.
//!
//! It knows nothing of stores' life cycles: it is told where from, where to and what to expect, and
//! either a complete version is there in the end, durable and verified, or an error says why not.
//! It waits for disks and networks, and so runs on threads of its own, never on an event loop.
//!
//! The order keeps every crash harmless: files grow in a directory that is not the version's; data
//! files first, then the dictionary, then indexes, so that those are what is freshest in memory; the
//! manifest last; and one rename makes it the version's directory. What an earlier try left is
//! verified and used.

mod error;
mod file;
mod pace;
mod source;
mod space;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use fondaco_format::{FileEntry, FormatError, MANIFEST_FILE, Manifest};
use fondaco_model::{AdaptiveRate, FetchWindow, PartitionCount, StoreName};

pub use error::FetchError;
pub use pace::{Clock, FetchControl, FetchProgress, SystemClock};
pub use source::{FetchSource, LocationSource, PageCache};

use crate::priority;
use file::FileFetch;

/// The largest manifest that is read, in bytes: a million chunks.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;

/// How many files are fetched at a time. One stream rarely fills a disk; more than a few fight.
const FILES_AT_ONCE_MAX: usize = 4;

/// How often the rate is decided anew.
const WINDOW: Duration = Duration::from_millis(250);

/// What changes while a fetch runs.
pub trait FetchTuning: Sync {
    /// The operator's limit in bytes a second; `None` for none.
    fn rate_limit_bytes_per_second(&self) -> Option<u64>;

    /// The 99th percentile of the latency of reads since the last call; `None` if nobody read.
    fn read_p99(&self) -> Option<Duration>;
}

/// What a version must be to be fetched, and where it goes.
#[derive(Debug, Clone, Copy)]
pub struct FetchTarget<'a> {
    /// The store that it must have been built for.
    pub store: &'a StoreName,
    /// The number of partitions that it must have.
    pub partitions: PartitionCount,
    /// Where files grow.
    pub fetching_dir: &'a Path,
    /// What the directory is called once complete. On the same file system.
    pub version_dir: &'a Path,
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
}

/// A fetch that was found possible.
pub struct FetchPlan {
    manifest: Manifest,
    manifest_bytes: Vec<u8>,
    needed_bytes: u64,
    links: bool,
}

impl FetchPlan {
    /// Reads the manifest and checks that the version is the right one and fits on the disk. Changes
    /// nothing.
    ///
    /// # Errors
    /// No readable manifest, another store or partition count, too little space.
    pub fn new(source: &dyn FetchSource, target: &FetchTarget<'_>) -> Result<Self, FetchError> {
        let location = source.name();
        let manifest_bytes =
            source
                .read_whole(MANIFEST_FILE, MANIFEST_BYTES_MAX)
                .map_err(|source| match source.kind() {
                    std::io::ErrorKind::NotFound => FetchError::Manifest {
                        location: location.clone(),
                        source: FormatError::NoManifest {
                            path: location.clone().into(),
                        },
                    },
                    _ => FetchError::Source {
                        file: MANIFEST_FILE.to_owned(),
                        location: location.clone(),
                        source,
                    },
                })?;
        let manifest = match Manifest::from_bytes(&manifest_bytes) {
            Ok(manifest) => manifest,
            Err(source) => return Err(FetchError::Manifest { location, source }),
        };
        if manifest.store != *target.store {
            return Err(FetchError::WrongStore {
                location,
                expected: target.store.clone(),
                found: manifest.store,
            });
        }
        if manifest.partitions != target.partitions {
            return Err(FetchError::WrongPartitions {
                location,
                expected: target.partitions,
                found: manifest.partitions,
            });
        }
        let links = space::can_link(source, target.fetching_dir);
        let needed_bytes = match links {
            true => manifest_bytes.len() as u64,
            false => manifest.files_bytes() + manifest_bytes.len() as u64,
        };
        space::check(target, needed_bytes)?;
        Ok(Self {
            manifest,
            manifest_bytes,
            needed_bytes,
            links,
        })
    }

    /// The manifest of the version.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How many bytes the version takes on the disk besides what is already there.
    pub fn needed_bytes(&self) -> u64 {
        self.needed_bytes
    }

    /// Whether files will be linked and not copied, as far as can be told before.
    pub fn links(&self) -> bool {
        self.links
    }

    /// Fetches. Returns when the version is complete, verified, durable and in its place.
    ///
    /// # Errors
    /// What went wrong. The files so far stay in the fetching directory, for another try or for
    /// the caller to delete.
    pub fn run(
        &self,
        source: &dyn FetchSource,
        target: &FetchTarget<'_>,
        cache: PageCache,
        control: &FetchControl,
        tuning: &dyn FetchTuning,
    ) -> Result<(), FetchError> {
        let dir = target.fetching_dir;
        fs::create_dir_all(dir).map_err(FetchError::io("create", dir))?;
        sync_parent(dir)?;
        let files: Vec<&FileEntry> = self.manifest.files().collect();
        control.begin(files.len() as u64, self.manifest.files_bytes());
        let mut pacer = Pacer::new(control, tuning);
        let (data, indexes) = files.split_at(files.len() - self.manifest.chunks.len());
        for (files, cache) in [(data, cache), (indexes, PageCache::Keep)] {
            let batch = Batch {
                plan: self,
                source,
                target,
                cache,
                control,
                space_checked: AtomicBool::new(!self.links),
            };
            batch.run(files, &mut pacer)?;
        }
        control.check()?;
        self.complete(target)
    }

    /// The manifest, and the name of the directory.
    fn complete(&self, target: &FetchTarget<'_>) -> Result<(), FetchError> {
        let dir = target.fetching_dir;
        sync_dir(dir)?;
        let (manifest, part) = (dir.join(MANIFEST_FILE), dir.join("manifest.json.part"));
        fs::write(&part, &self.manifest_bytes).map_err(FetchError::io("write", &part))?;
        let file = File::open(&part).map_err(FetchError::io("open", &part))?;
        file.sync_all().map_err(FetchError::io("write back", &part))?;
        fs::rename(&part, &manifest).map_err(FetchError::io("rename", &part))?;
        sync_dir(dir)?;
        fs::rename(dir, target.version_dir).map_err(FetchError::io("rename", dir))?;
        sync_parent(target.version_dir)
    }
}

/// Files that are fetched side by side.
struct Batch<'a> {
    plan: &'a FetchPlan,
    source: &'a dyn FetchSource,
    target: &'a FetchTarget<'a>,
    cache: PageCache,
    control: &'a FetchControl,
    /// Whether it is known that copies of all files fit.
    space_checked: AtomicBool,
}

impl Batch<'_> {
    fn run(&self, files: &[&FileEntry], pacer: &mut Pacer<'_>) -> Result<(), FetchError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = cores.clamp(2, FILES_AT_ONCE_MAX).min(files.len());
        let queue = Mutex::new(files.iter());
        let failed = AtomicBool::new(false);
        let (sender, results) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (sender, queue, failed) = (sender.clone(), &queue, &failed);
                scope.spawn(move || {
                    priority::step_back();
                    while !failed.load(Relaxed) {
                        // A poisoned queue is still a queue: taking the next one cannot fail.
                        let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                        let Some(entry) = next else { return };
                        let result = self.fetch(entry);
                        failed.fetch_or(result.is_err(), Relaxed);
                        // The receiver lives as long as the scope.
                        let _ = sender.send(result);
                    }
                });
            }
            drop(sender);
            let mut outcome = Ok(());
            loop {
                match results.recv_timeout(pacer.until_next_window()) {
                    Ok(Err(error)) if outcome.is_ok() => outcome = Err(error),
                    Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return outcome,
                }
                pacer.turn();
            }
        })
    }

    fn fetch(&self, entry: &FileEntry) -> Result<(), FetchError> {
        let file = FileFetch {
            source: self.source,
            entry,
            dir: self.target.fetching_dir,
            control: self.control,
            cache: self.cache,
        };
        if self.plan.links && file.link()? {
            return Ok(());
        }
        if !self.space_checked.swap(true, Relaxed) {
            // It looked as if files could be linked, and so nobody asked whether copies fit.
            space::check(self.target, self.plan.manifest.files_bytes())?;
        }
        file.copy()
    }
}

/// Decides the rate, window by window.
struct Pacer<'a> {
    control: &'a FetchControl,
    tuning: &'a dyn FetchTuning,
    adaptive: AdaptiveRate,
    window_start: Duration,
    bytes_before: u64,
}

impl<'a> Pacer<'a> {
    fn new(control: &'a FetchControl, tuning: &'a dyn FetchTuning) -> Self {
        let adaptive = AdaptiveRate::new(tuning.rate_limit_bytes_per_second(), tuning.read_p99());
        control.set_rate_limit(adaptive.rate_bytes_per_second());
        Self {
            control,
            tuning,
            adaptive,
            window_start: control.now(),
            bytes_before: control.progress().bytes_done,
        }
    }

    fn until_next_window(&self) -> Duration {
        (self.window_start + WINDOW).saturating_sub(self.control.now())
    }

    fn turn(&mut self) {
        let now = self.control.now();
        let elapsed = now.saturating_sub(self.window_start);
        if elapsed < WINDOW {
            return;
        }
        let bytes = self.control.progress().bytes_done;
        let fetched = bytes.saturating_sub(self.bytes_before) as f64 / elapsed.as_secs_f64();
        let fetched_bytes_per_second = fetched as u64;
        self.adaptive.set_limit(self.tuning.rate_limit_bytes_per_second());
        let rate = self.adaptive.observe(FetchWindow {
            read_p99: self.tuning.read_p99(),
            fetched_bytes_per_second,
        });
        self.control.set_rate_limit(rate);
        self.control.report_rate(fetched_bytes_per_second);
        (self.window_start, self.bytes_before) = (now, bytes);
    }
}

fn sync_dir(dir: &Path) -> Result<(), FetchError> {
    let opened = File::open(dir).map_err(FetchError::io("open", dir))?;
    opened.sync_all().map_err(FetchError::io("write back", dir))
}

fn sync_parent(path: &Path) -> Result<(), FetchError> {
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}
