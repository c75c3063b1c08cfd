//! What a node holds of a partition, or keeps for others, page by page.

use anyhow::Context;
use fondaco_control::http::Frame;
use fondaco_model::versioned::Record;

use crate::cluster::{Passing, StoreId, ask};
use crate::port::Port;

/// What a node refuses with when it has too much to do: it is asked again.
const BUSY: [&str; 1] = ["overloaded"];

/// Records of a node, from the beginning to the end.
pub struct Pages<'a> {
    node: u32,
    port: &'a dyn Port,
    path: String,
    next: Next,
}

enum Next {
    First,
    Behind(String),
    None,
}

impl<'a> Pages<'a> {
    /// What a node holds of a partition, in the order of the hashes of the keys.
    pub fn of_partition(store: &StoreId<'_>, partition: usize, epoch: u64, node: u32, port: &'a dyn Port) -> Self {
        let StoreId { name, created_unix_ms } = store;
        let path =
            format!("/v1/stores/{name}/partitions/{partition}/records?epoch={epoch}&created_unix_ms={created_unix_ms}");
        Self::of(path, node, port)
    }

    /// What a node keeps for others.
    pub fn of_hints(store: &StoreId<'_>, node: u32, port: &'a dyn Port) -> Self {
        let StoreId { name, created_unix_ms } = store;
        let path = format!("/v1/stores/{name}/hints?created_unix_ms={created_unix_ms}");
        Self::of(path, node, port)
    }

    fn of(path: String, node: u32, port: &'a dyn Port) -> Self {
        Self {
            node,
            port,
            path,
            next: Next::First,
        }
    }

    /// The next page, and how many bytes it had on its way; `None` at the end.
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
            .context("it gave what is no page of records: check its version")
            .map_err(|reason| self.failed(reason))?
        {
            frames.push(frame);
        }
        Ok(Some((frames, bytes.len() as u64)))
    }

    /// The record of a key that this node gave.
    ///
    /// # Errors
    /// [`Passing::Node`] if it is damaged: another one may have it.
    pub fn decode(&self, key: &[u8], record: Vec<u8>) -> anyhow::Result<Record> {
        let damaged = || {
            let key = key.escape_ascii();
            format!("the record of key \"{key}\" is damaged: read it, which heals it, and start again")
        };
        let decoded = Record::decode(record.into()).with_context(damaged);
        Ok(decoded.map_err(|reason| self.failed(reason))?)
    }

    /// The node failed for this reason.
    pub fn failed(&self, reason: anyhow::Error) -> Passing {
        Passing::Node {
            node: self.node,
            reason,
        }
    }
}
