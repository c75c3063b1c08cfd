//! The control ports of a cluster, as a backup uses them. The caller implements the connections, with addresses, tokens
//! and TLS.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The control ports of a cluster.
pub trait Ports: Sync {
    /// The control port of the process that the user named.
    ///
    /// # Errors
    /// It cannot be reached, or settings are wrong.
    fn entry(&self) -> anyhow::Result<Box<dyn Port>>;

    /// The control port of a node, by the `host:port` that the cluster returned.
    ///
    /// # Errors
    /// As for [`entry`](Self::entry).
    fn node(&self, address: &str) -> anyhow::Result<Box<dyn Port>>;
}

/// The control port of one process. A refusal is a [`Refused`] within the error.
pub trait Port: Send + Sync {
    /// Its address, for messages.
    fn address(&self) -> &str;

    /// The body of the response to a `GET`.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    fn get(&self, path: &str) -> anyhow::Result<Vec<u8>>;

    /// A page of records, and the start of the next page, if there is one.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    fn get_page(&self, path: &str) -> anyhow::Result<(Vec<u8>, Option<String>)>;

    /// Posts JSON.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    fn post_json(&self, path: &str, body: &[u8]) -> anyhow::Result<()>;

    /// Posts bytes.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    fn post_bytes(&self, path: &str, body: &[u8]) -> anyhow::Result<()>;
}

impl dyn Port + '_ {
    /// Reads a resource.
    pub(crate) fn resource<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let body = self.get(path)?;
        serde_json::from_slice(&body).map_err(|error| {
            let address = self.address();
            anyhow::anyhow!("{address} gave an answer that this release cannot parse ({error}); check its version")
        })
    }

    /// Creates a resource.
    pub(crate) fn create(&self, path: &str, new: &impl Serialize) -> anyhow::Result<()> {
        self.post_json(path, &serde_json::to_vec(new)?)
    }
}

/// A refusal of a process, with its reason, or the failure to reach the process.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The error code, for programs.
    pub code: String,
    /// The message, for people.
    pub message: String,
}

/// Whether a process refused with this code.
pub fn is_refused(error: &anyhow::Error, code: &str) -> bool {
    error
        .downcast_ref::<Refused>()
        .is_some_and(|refused| refused.code == code)
}
