//! A file being written to remote storage: in parts, a few of them in flight at a time.
//!
//! A file of one part is one request. Until the last request is acknowledged, no file of that name exists. The memory
//! is bounded by [`PART_BYTES`] times the parts in flight plus the one being filled.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart, path::Path as ObjectPath};

use crate::error::StorageError;
use crate::runtime::{Pending, Request};

/// S3 needs parts of at least 5 MiB, and at most 10 000 of them: a chunk of 4 GiB has 512.
const PART_BYTES: usize = 8 << 20;

/// How many parts are in flight at a time.
const PARTS_AT_ONCE: usize = 2;

/// A file being written. Dropped without [`finish`](Self::finish), it is aborted.
pub(crate) struct Upload {
    store: Arc<dyn ObjectStore>,
    object: ObjectPath,
    path: PathBuf,
    /// The final name, if the file is to be renamed.
    renamed: Option<ObjectPath>,
    part: BytesMut,
    bytes: u64,
    /// Present once the file has more than one part.
    parts: Option<WriteMultipart>,
}

impl Upload {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, object: ObjectPath, path: PathBuf) -> Self {
        Self {
            store,
            object,
            path,
            renamed: None,
            part: BytesMut::new(),
            bytes: 0,
            parts: None,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets another final name in the same directory.
    pub(crate) fn rename(&mut self, name: &str) -> Result<(), StorageError> {
        let invalid = |_| StorageError::InvalidName { name: name.to_owned() };
        let last = ObjectPath::parse(name).map_err(invalid)?;
        let mut parts: Vec<_> = self.object.parts().collect();
        parts.pop();
        self.renamed = Some(parts.into_iter().chain(last.parts()).collect());
        Ok(())
    }

    fn request(&self) -> Request {
        Request::new("write", &*self.path)
    }

    /// Sends a part, as soon as fewer parts are in flight than allowed.
    fn send(&mut self, part: Bytes) -> Result<(), StorageError> {
        let mut parts = match self.parts.take() {
            Some(parts) => parts,
            None => {
                let (store, object) = (Arc::clone(&self.store), self.object.clone());
                let upload = self.request().run(async move { store.put_multipart(&object).await })?;
                WriteMultipart::new_with_chunk_size(upload, PART_BYTES)
            }
        };
        // A cancelled future would drop the parts in flight, and with them the means to abort: so they are returned
        // even with an error.
        let (parts, sent) = self.request().run(async move {
            let sent = parts.wait_for_capacity(PARTS_AT_ONCE).await;
            if sent.is_ok() {
                parts.put(part);
            }
            Ok((parts, sent))
        })?;
        self.parts = Some(parts);
        sent.map_err(|e| StorageError::remote("write", &*self.path, e))
    }

    /// Waits until the storage has the whole file; from then on the file exists under its name.
    pub(crate) fn finish(mut self) -> Result<(), StorageError> {
        let last = std::mem::take(&mut self.part).freeze();
        let request = self.request();
        let (store, object) = (Arc::clone(&self.store), self.object.clone());
        let renamed = self.renamed.take();
        match self.parts.take() {
            None => {
                let object = renamed.unwrap_or(object);
                request.run(async move { store.put(&object, last.into()).await.map(|_| ()) })
            }
            Some(mut parts) => request.run(async move {
                parts.put(last);
                parts.finish().await?;
                match renamed {
                    Some(renamed) => store.rename(&object, &renamed).await,
                    None => Ok(()),
                }
            }),
        }
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PART_BYTES - self.part.len();
        let taken = bytes.len().min(room);
        self.part.extend_from_slice(&bytes[..taken]);
        self.bytes += taken as u64;
        if self.part.len() == PART_BYTES {
            let part = std::mem::take(&mut self.part).freeze();
            self.send(part)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            // If the abort fails, there is still no file; the storage's own rules clean up the parts one day.
            let _ = self.request().start(parts.abort()).map(Pending::wait);
        }
    }
}
