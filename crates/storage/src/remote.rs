//! A directory in S3 or HDFS.
//!
//! S3 has no directories: a directory exists as long as it contains a file. HDFS has directories, and they are created
//! and deleted through its own client; all other operations use the trait of [`object_store`] for both.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, path::Path as ObjectPath};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::StorageError;
use crate::location::FileInfo;
use crate::options::StorageOptions;
use crate::runtime::{Pending, Request};
use crate::upload::Upload;

/// The permissions of created HDFS directories: the owner may do everything, all others may read.
const DIRECTORY_PERMISSION: u32 = 0o755;

/// A directory in S3 or HDFS.
#[derive(Clone)]
pub(crate) struct Remote {
    url: Url,
    store: Arc<dyn ObjectStore>,
    /// Empty for the whole bucket or file system.
    prefix: ObjectPath,
    hdfs: Option<hdfs_native::Client>,
}

impl Remote {
    /// The directory of an `s3` or `hdfs` URL; `None` for another scheme.
    pub(crate) fn parse(url: &Url, options: &StorageOptions) -> Result<Option<Self>, StorageError> {
        if !matches!(url.scheme(), "s3" | "hdfs") {
            return Ok(None);
        }
        let invalid = |reason| StorageError::InvalidLocation {
            // Without the part that may be a password.
            url: format!(
                "{}://{}{}",
                url.scheme(),
                url.host_str().unwrap_or_default(),
                url.path()
            ),
            reason,
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("credentials do not belong in a URL"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it has a query or a fragment: write ? and # as %3F and %23"));
        }
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(invalid("it has no bucket or host"));
        };
        let path = percent_decode_str(url.path())
            .decode_utf8()
            .map_err(|_| invalid("its path is not UTF-8"))?;
        let path = path.trim_matches('/');
        let prefix = ObjectPath::parse(path).map_err(|_| invalid("its path has empty, \".\" or \"..\" parts"))?;
        let (store, hdfs) = if url.scheme() == "s3" {
            if url.port().is_some() {
                return Err(invalid("a bucket has no port: set the endpoint"));
            }
            (options.s3.connect(url, host)?, None)
        } else {
            let (store, client) = options.hdfs.connect(url)?;
            (store, Some(client))
        };
        let mut url = url.clone();
        let trimmed = url.path().trim_end_matches('/').to_owned();
        url.set_path(&trimmed);
        Ok(Some(Self {
            url,
            store,
            prefix,
            hdfs,
        }))
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The name of a file here in messages.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        format!("{}/{name}", self.url).into()
    }

    fn object(&self, name: &str) -> Result<ObjectPath, StorageError> {
        let invalid = |_| StorageError::InvalidName { name: name.to_owned() };
        let part = ObjectPath::parse(name).map_err(invalid)?;
        Ok(self.prefix.parts().chain(part.parts()).collect())
    }

    pub(crate) fn join(&self, name: &str) -> Result<Self, StorageError> {
        let prefix = self.object(name)?;
        let mut url = self.url.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().push(name),
            Err(()) => return Err(StorageError::InvalidName { name: name.to_owned() }),
        };
        Ok(Self {
            url,
            prefix,
            ..self.clone()
        })
    }

    fn request(&self, action: &'static str) -> Request {
        Request::new(action, self.url.as_str())
    }

    fn request_for(&self, action: &'static str, name: &str) -> Request {
        Request::new(action, self.path_of(name))
    }

    /// The path of the directory in HDFS.
    fn hdfs_path(&self) -> String {
        format!("/{}", self.prefix)
    }

    pub(crate) fn create_directory(&self) -> Result<(), StorageError> {
        let Some(client) = self.hdfs.clone() else {
            return Ok(());
        };
        let path = self.hdfs_path();
        self.request("create the directory").run(async move {
            let made = client.mkdirs(&path, DIRECTORY_PERMISSION, true).await;
            made.map_err(hdfs_error)
        })
    }

    pub(crate) fn create_file(&self, name: &str) -> Result<Upload, StorageError> {
        if self.exists(name)? {
            return Err(StorageError::AlreadyExists {
                path: self.path_of(name),
            });
        }
        let store = Arc::clone(&self.store);
        Ok(Upload::new(store, self.object(name)?, self.path_of(name)))
    }

    pub(crate) fn write_atomically(&self, name: &str, content: &[u8]) -> Result<(), StorageError> {
        let (store, object) = (Arc::clone(&self.store), self.object(name)?);
        let content = Bytes::copy_from_slice(content);
        self.request_for("write", name)
            .run(async move { store.put(&object, content.into()).await.map(|_| ()) })
    }

    pub(crate) fn is_vacant(&self) -> Result<bool, StorageError> {
        let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
        self.request("list").run(async move {
            let first = store.list(Some(&prefix)).next().await;
            first.transpose().map(|first| first.is_none())
        })
    }

    pub(crate) fn delete_file(&self, name: &str) -> Result<(), StorageError> {
        let (store, object) = (Arc::clone(&self.store), self.object(name)?);
        let deleted = self
            .request_for("delete", name)
            .run(async move { store.delete(&object).await });
        match deleted {
            Err(StorageError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn delete_tree(&self) -> Result<(), StorageError> {
        let request = self.request("delete the directory");
        if let Some(client) = self.hdfs.clone() {
            let path = self.hdfs_path();
            return request.run(async move { client.delete(&path, true).await.map(|_| ()).map_err(hdfs_error) });
        }
        let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
        request.run(async move {
            let objects = store.list(Some(&prefix)).map_ok(|object| object.location).boxed();
            store.delete_stream(objects).try_for_each(|_| async { Ok(()) }).await
        })
    }

    pub(crate) fn exists(&self, name: &str) -> Result<bool, StorageError> {
        let (store, object) = (Arc::clone(&self.store), self.object(name)?);
        let found = self
            .request_for("look for", name)
            .run(async move { store.head(&object).await });
        match found {
            Ok(_) => Ok(true),
            Err(StorageError::NotFound { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn list(&self) -> Result<Vec<FileInfo>, StorageError> {
        let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
        let listed = self
            .request("list")
            .run(async move { store.list_with_delimiter(Some(&prefix)).await })?;
        if listed.objects.is_empty() && listed.common_prefixes.is_empty() {
            return Err(StorageError::NotFound {
                path: self.url.as_str().into(),
            });
        }
        let files = listed.objects.into_iter().filter_map(|object| {
            Some(FileInfo {
                name: object.location.filename()?.to_owned(),
                bytes: object.size,
            })
        });
        Ok(files.collect())
    }

    /// Reads a range of a file by one request.
    pub(crate) fn read_range(
        &self,
        name: &str,
        range: Range<u64>,
        time_max: Duration,
    ) -> Result<Vec<u8>, StorageError> {
        let (store, object) = (Arc::clone(&self.store), self.object(name)?);
        let (offset, bytes) = (range.start, range.end - range.start);
        let request = self.request_for("read", name);
        let read = request.start(async move { store.get_range(&object, range).await })?;
        let read = read.wait_for(time_max)?;
        match bytes.checked_sub(read.len() as u64) {
            Some(0) => Ok(read.into()),
            missing => Err(StorageError::Shortened {
                path: self.path_of(name),
                offset: offset + read.len() as u64,
                missing_bytes: missing.unwrap_or(0),
            }),
        }
    }

    /// Opens the current version of a file.
    pub(crate) fn open(&self, name: &str) -> Result<RemoteFile, StorageError> {
        let (store, object) = (Arc::clone(&self.store), self.object(name)?);
        let request = self.request_for("open", name);
        let meta = request.run(async move { store.head(&object).await })?;
        Ok(RemoteFile {
            store: Arc::clone(&self.store),
            object: self.object(name)?,
            request: self.request_for("read", name),
            bytes: meta.size,
            tag: meta.e_tag,
        })
    }
}

/// An open file.
pub(crate) struct RemoteFile {
    store: Arc<dyn ObjectStore>,
    object: ObjectPath,
    request: Request,
    bytes: u64,
    /// Distinguishes it from another file with the same name.
    tag: Option<String>,
}

impl RemoteFile {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Starts to read a range, which must be within the file and not empty.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Pending<Bytes>, StorageError> {
        let (store, object) = (Arc::clone(&self.store), self.object.clone());
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: self.tag.clone(),
            ..GetOptions::default()
        };
        self.request
            .clone()
            .start(async move { store.get_opts(&object, options).await?.bytes().await })
    }
}

fn hdfs_error(error: hdfs_native::HdfsError) -> object_store::Error {
    object_store::Error::Generic {
        store: "HDFS",
        source: error.into(),
    }
}
