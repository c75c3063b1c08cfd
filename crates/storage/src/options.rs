//! How to reach remote storage: options given here override the environment.
//!
//! For S3 the environment is that of Amazon's own tools (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
//! `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …), and after it the credentials of the machine or the
//! container; for HDFS it is that of Hadoop (`HADOOP_CONF_DIR`, `HADOOP_USER_NAME`). Credentials are never part of a
//! URL: URLs are written into logs and metadata.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hdfs_native::ClientBuilder;
use hdfs_native_object_store::HdfsObjectStore;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::SpawnedReqwestConnector;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::error::StorageError;
use crate::location::Location;
use crate::runtime;

/// How to reach each kind of storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageOptions {
    /// For `s3://`.
    pub s3: S3Options,
    /// For `hdfs://`.
    pub hdfs: HdfsOptions,
}

/// How to reach S3 or a compatible server. Options that are `None` are taken from the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Options {
    /// The address as `https://host:port`, if it is not Amazon's. With `http://`, nothing is encrypted.
    pub endpoint: Option<String>,
    /// The region; `us-east-1` if the environment has none either.
    pub region: Option<String>,
    /// The public half of a key pair.
    pub access_key_id: Option<String>,
    /// The secret half.
    pub secret_access_key: Option<Secret>,
    /// The token of a temporary key pair.
    pub session_token: Option<Secret>,
    /// Whether the bucket is part of the path (`true`, which most servers need) or of the host name.
    pub path_style: Option<bool>,
}

/// How to reach HDFS. Options that are `None` are taken from the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HdfsOptions {
    /// The folder with `core-site.xml` and `hdfs-site.xml`: name services, Kerberos, encryption.
    pub configuration_dir: Option<String>,
    /// The user name, if Kerberos is not used.
    pub user: Option<String>,
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl StorageOptions {
    /// The location of a path or a URL: `/a/b`, `a/b`, `file:///a/b`, `s3://bucket/prefix` or `hdfs://host:port/path`.
    /// Reads the environment; sends no request.
    ///
    /// # Errors
    /// The text is not a location, or the options cannot be used.
    pub fn locate(&self, text: &str) -> Result<Location, StorageError> {
        Location::parse(text, self)
    }
}

impl S3Options {
    /// A client for the bucket of a URL.
    pub(crate) fn connect(&self, url: &Url, bucket: &str) -> Result<Arc<dyn ObjectStore>, StorageError> {
        // Fails if a provider is already installed, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_http_connector(SpawnedReqwestConnector::new(runtime::handle()?))
            .with_retry(retries());
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(id) = &self.access_key_id {
            builder = builder.with_access_key_id(id);
        }
        if let Some(Secret(key)) = &self.secret_access_key {
            builder = builder.with_secret_access_key(key);
        }
        if let Some(Secret(token)) = &self.session_token {
            builder = builder.with_token(token);
        }
        if let Some(path_style) = self.path_style {
            builder = builder.with_virtual_hosted_style_request(!path_style);
        }
        // An explicit http:// is intended.
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
        let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        let client = ClientOptions::new()
            .with_connect_timeout(Duration::from_secs(5))
            .with_timeout(Duration::from_secs(60))
            .with_allow_http(is_plain);
        let store = builder.with_client_options(client).build();
        Ok(Arc::new(store.map_err(|e| invalid(url, &e))?))
    }
}

/// The number of attempts on a name node, or on those of a name service in turn: some 10 seconds.
const HDFS_ATTEMPTS_MAX: &str = "5";

/// Retries cover short outages; longer ones are left to the caller, which may know another source.
fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: 4,
        retry_timeout: Duration::from_secs(20),
    }
}

impl HdfsOptions {
    /// A client for the name node, or the name service, of a URL.
    pub(crate) fn connect(&self, url: &Url) -> Result<(Arc<dyn ObjectStore>, hdfs_native::Client), StorageError> {
        let mut builder = ClientBuilder::new()
            .with_url(format!("hdfs://{}", url.authority()))
            .with_config([("dfs.client.failover.max.attempts", HDFS_ATTEMPTS_MAX)])
            .with_io_runtime(runtime::handle()?);
        if let Some(dir) = &self.configuration_dir {
            builder = builder.with_config_dir(dir);
        }
        if let Some(user) = &self.user {
            builder = builder.with_user(user);
        }
        let client = builder.build().map_err(|e| invalid(url, &e))?;
        Ok((Arc::new(HdfsObjectStore::new(client.clone())), client))
    }
}

fn invalid(url: &Url, error: &dyn fmt::Display) -> StorageError {
    StorageError::InvalidOptions {
        url: url.to_string(),
        reason: error.to_string(),
    }
}
