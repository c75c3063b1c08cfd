//! The records of a node, page by page: of a partition, or its hints.

use anyhow::Context;
use fondaco_admin::Client;
use fondaco_api::Frame;
use fondaco_model::PartitionCount;
use fondaco_model::versioned::Record;

use crate::cluster::{Passing, StoreId, ask};
use crate::records::give_way;

/// The error codes of a node with too much to do: it is asked again.
const BUSY: [&str; 1] = ["overloaded"];

/// The records of a node, from first to last.
pub struct Pages<'a> {
    node: u32,
    port: &'a Client,
    path: String,
    next: Next,
}

enum Next {
    First,
    Behind(String),
    None,
}

impl<'a> Pages<'a> {
    /// The records of one of `partitions` partitions, in the order of slots and of the hashes of keys.
    pub fn of_partition(
        store: &StoreId<'_>,
        (partitions, partition): (PartitionCount, usize),
        epoch: u64,
        node: u32,
        port: &'a Client,
    ) -> Self {
        let StoreId { name, created_unix_ms } = store;
        let path = format!(
            "/v1/stores/{name}/partitions/{partition}/records?partitions={partitions}&epoch={epoch}\
             &created_unix_ms={created_unix_ms}"
        );
        Self::of(path, node, port)
    }

    /// The hints that a node keeps.
    pub fn of_hints(store: &StoreId<'_>, node: u32, port: &'a Client) -> Self {
        let StoreId { name, created_unix_ms } = store;
        let path = format!("/v1/stores/{name}/hints?created_unix_ms={created_unix_ms}");
        Self::of(path, node, port)
    }

    fn of(path: String, node: u32, port: &'a Client) -> Self {
        Self {
            node,
            port,
            path,
            next: Next::First,
        }
    }

    /// The next page, and its length in bytes on the network; `None` at the end.
    ///
    /// # Errors
    /// [`Passing::Node`].
    pub fn next(&mut self) -> anyhow::Result<Option<(Vec<Frame>, u64)>> {
        let path = match &self.next {
            Next::First => self.path.clone(),
            Next::Behind(place) => format!("{}&after={place}", self.path),
            Next::None => return Ok(None),
        };
        let (bytes, next) = ask(self.node, &BUSY, || self.port.get_page(&path))?;
        self.next = next.map_or(Next::None, Next::Behind);
        let (mut input, mut frames) = (&bytes[..], Vec::new());
        while let Some(frame) = Frame::read(&mut input)
            .context("it returned an invalid page of records: check its version")
            .map_err(|reason| self.failed(reason))?
        {
            frames.push(frame);
            give_way(frames.len() as u64);
        }
        Ok(Some((frames, bytes.len() as u64)))
    }

    /// Decodes the record of a key that this node returned.
    ///
    /// # Errors
    /// [`Passing::Node`] if it is damaged: another node may have it.
    pub fn decode(&self, key: &[u8], record: Vec<u8>) -> anyhow::Result<Record> {
        let damaged = || {
            let key = key.escape_ascii();
            format!("the record of key \"{key}\" is damaged: read the key, which repairs it, and start again")
        };
        let decoded = Record::decode(record.into()).with_context(damaged);
        Ok(decoded.map_err(|reason| self.failed(reason))?)
    }

    /// The error for this node, with this reason.
    pub fn failed(&self, reason: anyhow::Error) -> Passing {
        Passing::Node {
            node: self.node,
            reason,
        }
    }
}
