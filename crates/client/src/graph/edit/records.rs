//! Many records at a time: they are read together, and written in few requests.

use std::future::Future;

use bytes::Bytes;
use fondaco_model::versioned::{Record, Update};
use fondaco_protocol::{WireKey, now_unix_ms};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::GraphEdit;
use crate::bulk_write::KeyWrite;
use crate::error::ClientError;
use crate::options::{Partial, ReadOptions};
use crate::quorum::Intent;

/// The most records, edges or vertices of one part: those that are read and written together.
const PART_MAX: usize = 256;

/// Fewer than these are written one by one: so each is acknowledged by its quorum, however slow another replica is.
pub(super) const TOGETHER_MIN: usize = 8;

/// How many parts are written at the same time.
const PARTS_AT_ONCE: usize = 4;

impl GraphEdit {
    /// Does the same with all, part by part, several parts at the same time. Equal ones are one.
    pub(super) async fn each_part<T: Ord, R, F: Future<Output = Result<R, ClientError>>>(
        &self,
        mut all: Vec<T>,
        part: impl Fn(Vec<T>) -> F,
    ) -> Result<Vec<R>, ClientError> {
        all.sort_unstable();
        all.dedup();
        let mut all = all.into_iter();
        let next = move || Some(all.by_ref().take(PART_MAX).collect::<Vec<T>>()).filter(|part| !part.is_empty());
        let done = stream::iter(std::iter::from_fn(next).map(part)).buffer_unordered(PARTS_AT_ONCE);
        done.try_collect().await
    }

    /// Writes records: each gets its value, or is deleted. Each key is there once.
    pub(super) async fn write_all(&self, records: Vec<(Vec<u8>, Option<Bytes>)>) -> Result<(), ClientError> {
        if records.len() < TOGETHER_MIN {
            let write = |(key, value): (Vec<u8>, Option<Bytes>)| async move {
                match value {
                    Some(value) => self.put(&key, value).await,
                    None => self.delete(&key).await,
                }
            };
            return self.each(records, write).await;
        }
        let keys = records.iter().map(|(key, _)| WireKey::new(&self.store, key));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let seen = self.read_all(keys.clone()).await?;
        let now_unix_ms = now_unix_ms();
        let mut writes = Vec::with_capacity(keys.len());
        for ((key, (_, value)), seen) in keys.into_iter().zip(records).zip(seen) {
            let update = match value {
                Some(value) => Update::put(value, now_unix_ms, None),
                None => Update::delete(now_unix_ms),
            };
            // Where hints count, a write may do without the contexts of a read quorum.
            let intent = seen.map_or(Intent::All, |record| Intent::Context(record.context().clone()));
            writes.push(KeyWrite { key, intent, update });
        }
        let is_written = self.client.write_to_all(&writes, self.left()? / 4).await;
        let rest = writes.into_iter().zip(is_written);
        let rest = rest.filter(|(_, is_written)| !is_written);
        let rest: Vec<KeyWrite> = rest.map(|(write, _)| write).collect();
        self.each(rest, |KeyWrite { key, intent, update }| async move {
            self.client.write(key, intent, update, self.left()?).await.map(drop)
        })
        .await
    }

    /// The records of keys; for each the error if it cannot be read.
    pub(super) async fn read_all(&self, keys: Vec<WireKey>) -> Result<Vec<Result<Record, ClientError>>, ClientError> {
        let options = ReadOptions {
            deadline: self.left()?,
            partial: Partial::PerKey,
            ..ReadOptions::default()
        };
        let (records, _room) = self.client.get_records(keys, &options).await?;
        Ok(records)
    }
}
