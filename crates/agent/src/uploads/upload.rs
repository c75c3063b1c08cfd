//! One upload: its files grow from their beginning, each by one request at a time, and are verified as they arrive.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::UNIX_EPOCH;

use fondaco_api::UploadFileResource;
use fondaco_fetch::{FetchError, Reservation, part_name, reserve_space};
use fondaco_format::{Checksum, Checksummer, FileEntry, MANIFEST_FILE, Manifest};
use fondaco_model::StoreName;
use fondaco_protocol::now_unix_ms;
use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};

use super::error::UploadError;
use crate::error::AgentError;

/// How much of a file is read at a time, in bytes, to continue its checksum.
const PIECE_BYTES: usize = 256 << 10;

/// A version that is being uploaded.
pub struct Upload {
    id: Checksum,
    store: StoreName,
    dir: PathBuf,
    files: BTreeMap<String, Arc<Slot>>,
    /// When the last byte arrived, in milliseconds since 1970.
    active_unix_ms: AtomicU64,
    /// The space reserved for missing bytes, while the upload is active.
    space: Mutex<Option<Reservation>>,
}

/// A file of an upload.
struct Slot {
    entry: FileEntry,
    arrived: AtomicU64,
    is_complete: AtomicBool,
    /// The checksum of the arrived bytes, if this process has seen all of them. Locked by the request that sends the
    /// file.
    sum: Arc<tokio::sync::Mutex<Option<Checksummer>>>,
}

impl Upload {
    /// The upload in this directory, with its files so far.
    pub(super) fn open(dir: PathBuf, id: Checksum, manifest: &Manifest) -> Result<Self, AgentError> {
        let mut active_unix_ms = modified_unix_ms(&dir.join(MANIFEST_FILE)).unwrap_or_else(now_unix_ms);
        let mut files = BTreeMap::new();
        for entry in manifest.files_with_patches() {
            let (part, whole) = (dir.join(part_name(&entry.name)), dir.join(&entry.name));
            let is_complete = length(&whole)? == Some(entry.bytes);
            let arrived = match is_complete {
                true => entry.bytes,
                // A file longer than its entry can only remain after a crash of the machine.
                false => length(&part)?.filter(|&bytes| bytes <= entry.bytes).unwrap_or(0),
            };
            let modified = modified_unix_ms(if is_complete { &whole } else { &part });
            active_unix_ms = active_unix_ms.max(modified.unwrap_or(0));
            let slot = Slot {
                entry: entry.clone(),
                arrived: arrived.into(),
                is_complete: is_complete.into(),
                sum: Arc::default(),
            };
            files.insert(entry.name.clone(), Arc::new(slot));
        }
        Ok(Self {
            id,
            store: manifest.store.clone(),
            dir,
            files,
            active_unix_ms: active_unix_ms.into(),
            space: Mutex::new(None),
        })
    }

    /// Its id.
    pub fn id(&self) -> Checksum {
        self.id
    }

    /// The store that it is for.
    pub fn store(&self) -> &StoreName {
        &self.store
    }

    /// The directory of its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The length of all its files, in bytes.
    pub fn bytes(&self) -> u64 {
        let each = self.files.values().map(|slot| slot.entry.bytes);
        each.fold(0, u64::saturating_add)
    }

    /// How many bytes have not arrived.
    pub fn bytes_missing(&self) -> u64 {
        let each = self.files.values().map(|slot| slot.entry.bytes - slot.arrived());
        each.fold(0, u64::saturating_add)
    }

    /// Its files, and how much of each has arrived.
    pub fn files(&self) -> impl Iterator<Item = UploadFileResource> {
        self.files.values().map(|slot| slot.shown())
    }

    /// Checks that all files have arrived, so that it may be pushed.
    ///
    /// # Errors
    /// Some files are missing.
    pub(crate) fn check_complete(&self) -> Result<(), UploadError> {
        let missing = self.files.values().filter(|slot| !slot.is_complete()).count();
        self.touch();
        match missing {
            0 => Ok(()),
            missing => Err(UploadError::Incomplete {
                id: self.id,
                missing,
                files: self.files.len(),
            }),
        }
    }

    pub(super) fn active_unix_ms(&self) -> u64 {
        self.active_unix_ms.load(Relaxed)
    }

    /// Marks the upload as used now.
    pub(super) fn touch(&self) {
        self.active_unix_ms.fetch_max(now_unix_ms(), Relaxed);
    }

    /// Reserves the space for its missing bytes, so that no fetch takes it.
    pub(super) fn hold_space(&self, reserve_bytes: u64) -> Result<(), AgentError> {
        let mut space = self.space.lock();
        if space.is_none() && self.files.values().any(|slot| !slot.is_complete()) {
            let missing = self.files.values().filter(|slot| !slot.is_complete());
            let missing = missing.map(|slot| &slot.entry);
            *space = Some(reserve_space(&self.dir, missing, reserve_bytes)?);
        }
        Ok(())
    }

    pub(super) fn release_space(&self) {
        *self.space.lock() = None;
    }

    /// The exclusive right to write a file from this offset on.
    pub(super) fn turn(self: &Arc<Self>, name: &str, offset: u64, length: Option<u64>) -> Result<Turn, AgentError> {
        let Some(slot) = self.files.get(name).map(Arc::clone) else {
            let file = name.chars().take(100).collect();
            return Err(UploadError::NoSuchFile { id: self.id, file }.into());
        };
        let Ok(mut sum) = Arc::clone(&slot.sum).try_lock_owned() else {
            return Err(UploadError::Busy { file: name.to_owned() }.into());
        };
        let arrived = slot.arrived();
        if offset != arrived || slot.is_complete() {
            return Err(UploadError::WrongOffset {
                file: name.to_owned(),
                arrived,
                offset,
            }
            .into());
        }
        if length.is_some_and(|length| length > slot.entry.bytes - arrived) {
            return Err(slot.too_long().into());
        }
        let path = self.dir.join(part_name(name));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(|error| writing(&path, error))?;
        // Bytes behind the arrived ones were being written when a process ended.
        file.set_len(arrived).map_err(|error| writing(&path, error))?;
        if sum.is_none() {
            *sum = Some(checksum(&file).map_err(AgentError::io("read", &path))?);
        }
        self.touch();
        Ok(Turn {
            upload: Arc::clone(self),
            slot,
            sum,
            file,
            path,
            begun_at: arrived,
        })
    }
}

impl Slot {
    fn arrived(&self) -> u64 {
        self.arrived.load(Relaxed)
    }

    fn is_complete(&self) -> bool {
        self.is_complete.load(Relaxed)
    }

    fn shown(&self) -> UploadFileResource {
        UploadFileResource {
            name: self.entry.name.clone(),
            bytes: self.entry.bytes,
            bytes_arrived: self.arrived(),
            complete: self.is_complete(),
        }
    }

    fn too_long(&self) -> UploadError {
        UploadError::TooLong {
            file: self.entry.name.clone(),
            bytes: self.entry.bytes,
        }
    }
}

/// The right of one request to write a file. All of its methods wait for the disk.
pub struct Turn {
    upload: Arc<Upload>,
    slot: Arc<Slot>,
    sum: tokio::sync::OwnedMutexGuard<Option<Checksummer>>,
    file: File,
    path: PathBuf,
    /// How much had arrived before.
    begun_at: u64,
}

impl Turn {
    /// The state of the file.
    pub fn shown(&self) -> UploadFileResource {
        self.slot.shown()
    }

    /// Checks whether the file may grow by this number of bytes.
    ///
    /// # Errors
    /// It would be longer than the manifest says.
    pub fn check_length(&self, bytes: usize) -> Result<(), UploadError> {
        match bytes as u64 <= self.slot.entry.bytes - self.slot.arrived() {
            true => Ok(()),
            false => Err(self.slot.too_long()),
        }
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// There are too many bytes, or the disk reports an error. None of them count as arrived then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        self.check_length(bytes.len())?;
        let arrived = self.slot.arrived();
        if let Err(error) = self.file.write_all_at(bytes, arrived) {
            // If that fails too, the next turn does it.
            let _ = self.file.set_len(arrived);
            return Err(writing(&self.path, error));
        }
        // A turn begins with the checksum of the bytes that are there.
        self.sum.get_or_insert_default().update(bytes);
        self.slot.arrived.store(arrived + bytes.len() as u64, Relaxed);
        self.upload.touch();
        Ok(())
    }

    /// Makes the written bytes durable. A complete file is verified and gets its name.
    ///
    /// # Errors
    /// An error of the disk, or the file does not match the manifest: then it counts as not arrived.
    pub fn end(mut self) -> Result<UploadFileResource, AgentError> {
        let arrived = self.slot.arrived();
        self.file.sync_data().map_err(|error| writing(&self.path, error))?;
        if let Some(written) = NonZeroU64::new(arrived - self.begun_at) {
            // These pages would evict pages that live traffic uses. It is a hint: not all file systems support it.
            let _ = fadvise(&self.file, self.begun_at, Some(written), Advice::DontNeed);
        }
        if arrived == self.slot.entry.bytes {
            self.finish()?;
        }
        Ok(self.slot.shown())
    }

    fn finish(&mut self) -> Result<(), AgentError> {
        let (entry, upload) = (&self.slot.entry, &self.upload);
        let found = self.sum.get_or_insert_default().finish();
        if found != entry.checksum {
            *self.sum = None;
            self.slot.arrived.store(0, Relaxed);
            self.file.set_len(0).map_err(|error| writing(&self.path, error))?;
            tracing::warn!(upload = %upload.id, file = %entry.name, "uploaded file has a wrong checksum: deleted");
            return Err(UploadError::Corrupt {
                file: entry.name.clone(),
                expected: entry.checksum,
                found,
            }
            .into());
        }
        fs::rename(&self.path, upload.dir.join(&entry.name)).map_err(|error| writing(&self.path, error))?;
        self.slot.is_complete.store(true, Relaxed);
        if upload.files.values().all(|slot| slot.is_complete()) {
            fondaco_durable::sync_directory(&upload.dir).map_err(|error| writing(&upload.dir, error))?;
            upload.release_space();
        }
        Ok(())
    }
}

/// The length of a file; `None` if the file is missing.
fn length(path: &Path) -> Result<Option<u64>, AgentError> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(found.is_file().then_some(found.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(AgentError::io("look at", path)(error)),
    }
}

fn modified_unix_ms(path: &Path) -> Option<u64> {
    let modified = fs::symlink_metadata(path).and_then(|found| found.modified()).ok()?;
    let since = modified.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_millis() as u64)
}

/// The checksum of a whole file.
fn checksum(mut file: &File) -> io::Result<Checksummer> {
    let mut sum = Checksummer::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(sum),
            count => sum.update(&piece[..count]),
        }
    }
}

/// Why a file or directory of an upload could not be written.
pub(super) fn writing(path: &Path, error: io::Error) -> AgentError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            FetchError::DiskFull { path: path.to_owned() }.into()
        }
        _ => AgentError::io("write", path)(error),
    }
}
