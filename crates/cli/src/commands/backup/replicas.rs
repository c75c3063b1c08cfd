//! What several replicas of a partition hold together: read page by page, side by side, and joined.
//!
//! All give their records in the order of the hashes of the keys, so that memory holds one page of each.

use std::cmp::Ordering;
use std::collections::VecDeque;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fondaco_control::http::Frame;
use fondaco_format::key_hash;
use fondaco_model::StoreName;
use fondaco_model::versioned::Record;

use super::owners::patiently;
use crate::client::Client;

/// Some replicas of a partition.
pub struct Replicas<'a>(Vec<Replica<'a>>);

struct Replica<'a> {
    node: u32,
    client: &'a Client,
    path: String,
    /// What was read and is not joined yet.
    page: VecDeque<Frame>,
    /// The last key that was read.
    last: Option<Vec<u8>>,
    is_read: bool,
}

impl<'a> Replicas<'a> {
    /// Those of these nodes; nothing is read yet.
    pub fn new(store: &StoreName, partition: usize, nodes: impl Iterator<Item = (u32, &'a Client)>) -> Self {
        let replica = |(node, client)| Replica {
            node,
            client,
            path: format!("/v1/stores/{store}/partitions/{partition}/records"),
            page: VecDeque::new(),
            last: None,
            is_read: false,
        };
        Self(nodes.map(replica).collect())
    }

    /// The next key with what all of them hold under it, joined; `None` at the end. `read` is told of bytes that
    /// were read, and may hold them back.
    pub fn next(&mut self, mut read: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<Option<Frame>> {
        for replica in &mut self.0 {
            if replica.page.is_empty() && !replica.is_read {
                read(replica.read_page()?)?;
            }
        }
        let waiting = self.0.iter().filter_map(|replica| replica.page.front());
        let first = waiting.map(|frame| &frame.key).min_by(|a, b| order(a, b));
        let Some(key) = first.cloned() else { return Ok(None) };
        let mut joined: Option<Record> = None;
        for replica in &mut self.0 {
            let Some(frame) = replica.page.pop_front_if(|frame| frame.key == key) else {
                continue;
            };
            let damaged = || {
                let key = key.escape_ascii();
                format!(
                    "the record of key \"{key}\" is damaged on node {}: read it, which heals it, and start again",
                    replica.node
                )
            };
            let record = Record::decode(frame.record.into()).with_context(damaged)?;
            joined = Some(match joined {
                None => record,
                Some(joined) => joined.merge(&record),
            });
        }
        Ok(joined.map(|record| Frame {
            key,
            record: record.to_bytes(),
        }))
    }
}

impl Replica<'_> {
    /// Reads the next page; returns how many bytes it has.
    fn read_page(&mut self) -> anyhow::Result<u64> {
        let path = match &self.last {
            Some(key) => format!("{}?after={}", self.path, URL_SAFE_NO_PAD.encode(key)),
            None => self.path.clone(),
        };
        let from_node = || format!("node {} was asked for its records", self.node);
        let bytes = patiently(|| self.client.get_bytes(&path)).with_context(from_node)?;
        self.is_read = bytes.is_empty();
        let mut input = &bytes[..];
        while let Some(frame) = Frame::read(&mut input).with_context(from_node)? {
            if self.last.as_ref().is_some_and(|last| order(last, &frame.key).is_ge()) {
                bail!("node {} gave records in no order: check its version", self.node);
            }
            self.last = Some(frame.key.clone());
            self.page.push_back(frame);
        }
        Ok(bytes.len() as u64)
    }
}

/// Which of two keys comes first in a partition.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    (key_hash(a), a).cmp(&(key_hash(b), b))
}
