//! Versions that are uploaded to this node over its control port, to be pushed from here: for machines that share no
//! storage with the nodes.
//!
//! ```text
//! DATA/uploads/ID/manifest.json    names the files of the upload; ID identifies the version
//! DATA/uploads/ID/given-away       the node may link the files into its version
//! DATA/uploads/ID/NAME.part        a partly arrived file; its length is that of the arrived part
//! DATA/uploads/ID/NAME             a file that has arrived completely, verified and durable
//! ```
//!
//! The directory is the whole state, so an upload can be resumed however the client or the node ended. A complete upload is
//! the source of a push: `upload://NODE/ID`. It is deleted when the version is swapped in or its push cancelled, since
//! the nodes then have the version or do not want it. After a failed push, or when the client disconnects, it stays, so
//! that the client can resume it, until it has been idle for as long as deleted data is kept.

mod error;
mod source;
mod upload;

use std::collections::HashMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fondaco_fetch::FetchError;
use fondaco_format::{Checksum, FormatError, GIVEN_AWAY_FILE, MANIFEST_FILE, Manifest};
use fondaco_model::cluster::{ClusterView, StoreRecord};
use fondaco_model::{NodeId, PartitionCount, PushState, StoreName};
use fondaco_protocol::now_unix_ms;
use parking_lot::Mutex;

use crate::data_dir::{delete_tree, leave_alone, list};
use crate::error::AgentError;

pub use error::UploadError;
pub use source::UploadSource;
pub(crate) use source::{UploadFiles, remedy};
pub use upload::{Turn, Upload};

/// How many uploads there may be at a time, idle ones included.
const UPLOADS_MAX: usize = 16;

/// The shortest idle time before an upload is given up, even if deleted data is kept for a shorter time.
const KEEP_MIN: Duration = Duration::from_secs(600);

/// How long an upload may receive no byte before its reserved space is released.
const SPACE_IDLE_MS: u64 = 60_000;

/// The uploads of a node.
pub struct Uploads {
    dir: PathBuf,
    /// How much of the disk must stay free, in bytes.
    reserve_bytes: u64,
    keep_ms: u64,
    uploads: Mutex<HashMap<Checksum, Arc<Upload>>>,
}

impl Uploads {
    /// Finds the uploads of an earlier process.
    ///
    /// # Errors
    /// The directory cannot be made or read.
    pub fn open(dir: &Path, reserve_bytes: u64, keep_deleted: Duration) -> Result<Self, AgentError> {
        fondaco_durable::create_directory(dir).map_err(AgentError::io("create", dir))?;
        let mut uploads = HashMap::new();
        for entry in list(dir)? {
            let path = entry.path();
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                leave_alone(&entry);
                continue;
            };
            match find(&path, id) {
                Ok(Some(upload)) => drop(uploads.insert(id, Arc::new(upload))),
                // It was interrupted before the first byte of a file.
                Ok(None) => delete_tree(&path)?,
                Err(error) => tracing::warn!(?path, %error, "an upload cannot be read: it is left alone"),
            }
        }
        Ok(Self {
            dir: dir.to_owned(),
            reserve_bytes,
            keep_ms: keep_deleted.max(KEEP_MIN).as_millis() as u64,
            uploads: Mutex::new(uploads),
        })
    }

    /// Begins an upload of a version for a store, or resumes it. Space for its missing bytes is reserved, after
    /// `free_space` has freed it.
    ///
    /// # Errors
    /// A body that is not a manifest, or one of another store or number of partitions; too many uploads; too little
    /// space.
    pub fn begin(
        &self,
        store: &StoreName,
        partitions: RangeInclusive<PartitionCount>,
        manifest: &[u8],
        free_space: impl FnOnce(u64) -> Result<(), AgentError>,
    ) -> Result<Arc<Upload>, AgentError> {
        let (parsed, id) = parse(manifest, store, partitions)?;
        let before = self.get(store, id);
        free_space(before.map_or_else(|_| parsed.files_bytes(), |upload| upload.bytes_missing()))?;
        let mut uploads = self.uploads.lock();
        if let Some(upload) = uploads.get(&id) {
            upload.touch();
            upload.hold_space(self.reserve_bytes)?;
            return Ok(Arc::clone(upload));
        }
        if uploads.len() >= UPLOADS_MAX {
            return Err(UploadError::TooMany { max: UPLOADS_MAX }.into());
        }
        let dir = self.dir.join(id.to_string());
        let upload = Upload::open(dir.clone(), id, &parsed)?;
        upload.hold_space(self.reserve_bytes)?;
        make(&dir, manifest)?;
        let upload = Arc::new(upload);
        uploads.insert(id, Arc::clone(&upload));
        tracing::info!(%store, upload = %id, bytes = upload.bytes(), "upload begins");
        Ok(upload)
    }

    /// An upload for a store.
    ///
    /// # Errors
    /// There is no such upload.
    pub fn get(&self, store: &StoreName, id: Checksum) -> Result<Arc<Upload>, UploadError> {
        let found = self.uploads.lock().get(&id).cloned();
        let found = found.filter(|upload| upload.store() == store);
        found.ok_or_else(|| UploadError::NotFound {
            store: store.clone(),
            id,
        })
    }

    /// The exclusive right to write a file of an upload from this offset on. `length` is the length of the body, if
    /// known. Waits for the disk.
    ///
    /// # Errors
    /// No such upload or file, an offset other than the arrived length, a body that is too long, too little space.
    pub fn turn(
        &self,
        store: &StoreName,
        id: Checksum,
        file: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Turn, AgentError> {
        let upload = self.get(store, id)?;
        upload.hold_space(self.reserve_bytes)?;
        upload.turn(file, offset, length)
    }

    /// The files of an upload to this node, as the source of a fetch. The upload may be missing.
    pub(crate) fn files(&self, source: UploadSource) -> UploadFiles {
        UploadFiles::local(source, self.dir.join(source.id.to_string()))
    }

    /// Forgets an upload. Returns its directory, which is to be deleted.
    ///
    /// # Errors
    /// There is no such upload.
    pub fn forget(&self, store: &StoreName, id: Checksum) -> Result<PathBuf, UploadError> {
        let upload = self.get(store, id)?;
        self.uploads.lock().remove(&id);
        Ok(upload.dir().to_owned())
    }

    /// Forgets the uploads that are not needed any more. Returns their directories, which are to be deleted.
    pub fn collect(&self, view: &ClusterView, node: NodeId) -> Vec<PathBuf> {
        let now_unix_ms = now_unix_ms();
        let mut collected = Vec::new();
        self.uploads.lock().retain(|&id, upload| {
            let idle_ms = now_unix_ms.saturating_sub(upload.active_unix_ms());
            if idle_ms > SPACE_IDLE_MS {
                upload.release_space();
            }
            let source = UploadSource { node, id }.to_string();
            let record = view.stores.get(upload.store()).map(|store| &store.record);
            let is_over = match fate(record, &source, upload.active_unix_ms()) {
                Fate::Pushing => false,
                Fate::Done => true,
                // The remembered view of the cluster may be older than a push.
                Fate::Unknown => idle_ms >= self.keep_ms && !view.remembered && !view.is_partial,
            };
            if is_over {
                tracing::info!(store = %upload.store(), upload = %id, idle_ms, "upload deleted");
                collected.push(upload.dir().to_owned());
            }
            !is_over
        });
        collected
    }
}

/// The state of an upload according to the store's record.
enum Fate {
    /// It is being pushed.
    Pushing,
    /// It was swapped in, or is not wanted.
    Done,
    Unknown,
}

fn fate(record: Option<&StoreRecord>, source: &str, active_unix_ms: u64) -> Fate {
    let Some(push) = record.and_then(|record| record.push.as_ref()) else {
        return Fate::Unknown;
    };
    if push.source != source {
        return Fate::Unknown;
    }
    match push.state {
        PushState::Fetching | PushState::Ready | PushState::Held => Fate::Pushing,
        // Unless it was begun again since then, to be pushed once more.
        PushState::Swapped | PushState::Cancelled if push.started_unix_ms >= active_unix_ms => Fate::Done,
        PushState::Swapped | PushState::Cancelled | PushState::Failed => Fate::Unknown,
    }
}

/// Whether a store is being pushed to from this source.
pub fn is_pushing(record: &StoreRecord, source: UploadSource) -> bool {
    matches!(fate(Some(record), &source.to_string(), 0), Fate::Pushing)
}

fn parse(
    bytes: &[u8],
    store: &StoreName,
    partitions: RangeInclusive<PartitionCount>,
) -> Result<(Manifest, Checksum), AgentError> {
    let location = || "the request's body".to_owned();
    let (manifest, id) = Manifest::identified(bytes).map_err(|source| FetchError::Manifest {
        location: location(),
        source,
    })?;
    if manifest.store != *store {
        return Err(AgentError::Fetch(FetchError::WrongStore {
            location: location(),
            expected: store.clone(),
            found: manifest.store,
        }));
    }
    if !partitions.contains(&manifest.partitions) {
        return Err(AgentError::Fetch(FetchError::WrongPartitions {
            location: location(),
            expected: *partitions.end(),
            found: manifest.partitions,
        }));
    }
    Ok((manifest, id))
}

/// Makes the directory of an upload. It counts as an upload once the manifest is there.
fn make(dir: &Path, manifest: &[u8]) -> Result<(), AgentError> {
    let made = fondaco_durable::create_directory(dir)
        .and_then(|()| fs::write(dir.join(GIVEN_AWAY_FILE), ""))
        .and_then(|()| {
            let path = dir.join(MANIFEST_FILE);
            fondaco_durable::replace_file(&path, &path.with_extension("new"), manifest)
        });
    made.map_err(|error| {
        // A directory without a manifest is deleted at the next start, if it cannot be deleted now.
        let _ = delete_tree(dir);
        upload::writing(dir, error)
    })
}

/// An upload of an earlier process; `None` if it has no manifest.
fn find(dir: &Path, id: Checksum) -> Result<Option<Upload>, AgentError> {
    match Manifest::read(dir) {
        Ok(manifest) => Upload::open(dir.to_owned(), id, &manifest).map(Some),
        Err(FormatError::NoManifest { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
