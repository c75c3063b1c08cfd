//! The records of several replicas of a partition: read page by page, in parallel, and merged.
//!
//! All replicas return their records in the order of the slots and hashes of the keys, so memory needs one page of each.

use std::cmp::Ordering;
use std::collections::VecDeque;

use anyhow::anyhow;
use fondaco_api::Frame;
use fondaco_model::versioned::Record;
use fondaco_model::{StoreName, ValueType, member, slot_of_key};

use crate::pages::Pages;

/// Some replicas of a partition.
pub struct Replicas<'a> {
    store: StoreName,
    value_type: ValueType,
    replicas: Vec<Replica<'a>>,
}

struct Replica<'a> {
    pages: Pages<'a>,
    /// Records that were read and are not merged yet.
    page: VecDeque<Frame>,
    /// The last key that was read.
    last: Option<Vec<u8>>,
    is_read: bool,
}

impl<'a> Replicas<'a> {
    /// Replicas of a store with values of this type. Reads nothing yet.
    pub fn new(store: StoreName, value_type: ValueType, replicas: impl Iterator<Item = Pages<'a>>) -> Self {
        let replica = |pages| Replica {
            pages,
            page: VecDeque::new(),
            last: None,
            is_read: false,
        };
        Self {
            store,
            value_type,
            replicas: replicas.map(replica).collect(),
        }
    }

    /// The next key with the merged records of all replicas; `None` at the end. `read` is called with the number of
    /// bytes read, and may block to limit the rate.
    ///
    /// # Errors
    /// [`Passing::Node`](super::cluster::Passing::Node), or the error of `read`.
    pub fn next(&mut self, mut read: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<Option<Frame>> {
        let order = order(&self.store, self.value_type);
        for replica in &mut self.replicas {
            while replica.page.is_empty() && !replica.is_read {
                read(replica.read_page(order)?)?;
            }
        }
        let waiting = self.replicas.iter().filter_map(|replica| replica.page.front());
        let first = waiting.map(|frame| &frame.key).min_by(|a, b| order(a, b));
        let Some(key) = first.cloned() else { return Ok(None) };
        let mut joined: Option<Record> = None;
        for replica in &mut self.replicas {
            let Some(frame) = replica.page.pop_front_if(|frame| frame.key == key) else {
                continue;
            };
            let record = replica.pages.decode(&key, frame.record)?;
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
    /// Reads the next page; returns its length in bytes on the network.
    fn read_page(&mut self, order: impl Fn(&[u8], &[u8]) -> Ordering) -> anyhow::Result<u64> {
        let Some((frames, bytes)) = self.pages.next()? else {
            self.is_read = true;
            return Ok(0);
        };
        for frame in frames {
            if self.last.as_ref().is_some_and(|last| order(last, &frame.key).is_ge()) {
                return Err(self
                    .pages
                    .failed(anyhow!("it returned records out of order: check its version"))
                    .into());
            }
            self.last = Some(frame.key.clone());
            self.page.push_back(frame);
        }
        Ok(bytes)
    }
}

/// The order of two keys in a partition.
fn order(store: &StoreName, value_type: ValueType) -> impl Fn(&[u8], &[u8]) -> Ordering + Copy {
    move |a, b| {
        let position = |key| member::position(slot_of_key(store, key), member::key_hash(value_type, key));
        let place = |key| (position(key), key);
        place(a).cmp(&place(b))
    }
}
