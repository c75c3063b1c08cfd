//! Versioned stores, as applications and servers use them: read, write, change.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::StoreName;
use fondaco_model::versioned::{Record, Resolution, Resolved, Update, VectorClock, resolve};
use fondaco_protocol::WireKey;
use fondaco_protocol::now_unix_ms;
use parking_lot::Mutex;

use crate::client::{Client, Inner};
use crate::error::ClientError;
use crate::options::{PutOptions, ReadOptions};
use crate::quorum::{
    AddedMeanwhile, Decide, Edit, EditOptions, Expiry, Get, Intent, Updated, Write, WriteTimes, Written,
};
use crate::read::{BatchReply, HeldBudget};

/// All values of a key: several, if they were written concurrently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Siblings {
    /// The context: a write with it replaces all values here, and nothing that was written meanwhile.
    pub context: VectorClock,
    /// The values, the latest first; empty if the key does not exist.
    pub values: Vec<Bytes>,
}

impl Client {
    /// All values of a key of a versioned store, with the context to replace them.
    ///
    /// # Errors
    /// [`ClientError::NoQuorum`], [`ClientError::NotVersioned`], and any other reason why it cannot be read.
    pub async fn get_siblings(&self, store: &StoreName, key: &[u8]) -> Result<Siblings, ClientError> {
        let keys = vec![WireKey::new(store, key)?];
        let (mut records, _room) = self.get_records(keys, &self.inner().options).await?;
        // One key has one record: a read yields as many as it has keys.
        let record = records.pop().unwrap_or_else(|| Ok(Record::default()))?;
        let values = resolve(&record, Resolution::All, now_unix_ms()).values;
        Ok(Siblings {
            context: record.context().clone(),
            values: values.into_vec(),
        })
    }

    /// Writes a key of a versioned store. Without a context it replaces all values acknowledged before. Returns the new
    /// context.
    ///
    /// # Errors
    /// [`ClientError::NoQuorum`]: the value may be on some replicas nevertheless, and spread to the others.
    pub async fn put(
        &self,
        store: &StoreName,
        key: &[u8],
        value: impl Into<Bytes>,
        options: &PutOptions,
    ) -> Result<VectorClock, ClientError> {
        let expiry = options.ttl.map_or(Expiry::Store, |ttl| Expiry::At {
            unix_ms: now_unix_ms().saturating_add(ttl.as_millis() as u64),
        });
        let value = value.into();
        self.replace(WireKey::new(store, key)?, Edit::Put { value, expiry }, options)
            .await
    }

    /// Deletes a key of a versioned store. Without a context, it deletes all values acknowledged before. Returns the
    /// new context.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub async fn delete(
        &self,
        store: &StoreName,
        key: &[u8],
        options: &PutOptions,
    ) -> Result<VectorClock, ClientError> {
        self.replace(WireKey::new(store, key)?, Edit::Delete, options).await
    }

    /// Changes a key of a versioned store: reads it, calls `change`, and writes the result if nothing was written
    /// meanwhile; otherwise tries again. `change` gets the value, `None` if the key does not exist, and returns the new
    /// value, `None` to delete the key. Returns the new value. The changed value keeps its expiry.
    ///
    /// # Errors
    /// [`ClientError::NoQuorum`]; [`ClientError::Conflict`] after too many conflicts.
    pub async fn update(
        &self,
        store: &StoreName,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>> + Send + 'static,
    ) -> Result<Option<Bytes>, ClientError> {
        let key = WireKey::new(store, key)?;
        let resolution = self.inner().resolution(key.store())?;
        let decided = Arc::new(Mutex::new(None));
        let decide: Decide = {
            let decided = Arc::clone(&decided);
            Box::new(move |record, now_unix_ms| {
                let before = resolve(record, resolution, now_unix_ms);
                let expiry = kept_expiry(&before);
                let after = change(before.value().map(|value| &**value)).map(Bytes::from);
                *decided.lock() = after.clone();
                match after {
                    after if after.as_ref() == before.value() => Edit::Keep,
                    None => Edit::Delete,
                    Some(value) => Edit::Put { value, expiry },
                }
            })
        };
        let times = WriteTimes::from(&PutOptions::default());
        self.edit(key, decide, times).await?;
        let decided = decided.lock().take();
        Ok(decided)
    }

    /// Changes some fields of a value of a versioned store, as [`update`](Self::update) changes the whole value. `change` returns
    /// the whole new value, and `None` to leave the key as it is. In a store with the resolution `fields`, fields that others
    /// change concurrently stay as they wrote them; there, concurrent values are merged if they are JSON objects.
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn update_fields(
        &self,
        store: &StoreName,
        key: &[u8],
        fields: &[&str],
        mut change: impl FnMut(Option<&Bytes>) -> Option<Bytes> + Send + 'static,
    ) -> Result<(), ClientError> {
        let key = WireKey::new(store, key)?;
        let resolution = self.inner().resolution(key.store())?;
        let fields: Box<[Box<str>]> = fields.iter().map(|&name| name.into()).collect();
        let decide: Decide = Box::new(move |record, now_unix_ms| {
            let before = resolve(record, resolution, now_unix_ms);
            match change(before.value()) {
                None => Edit::Keep,
                Some(value) => Edit::PutFields {
                    value,
                    fields: fields.clone(),
                    expiry: kept_expiry(&before),
                },
            }
        });
        let times = WriteTimes::from(&PutOptions::default());
        self.edit(key, decide, times).await.map(drop)
    }

    /// The records of keys of versioned stores, in the order of the keys, and their share of the memory limit, to drop
    /// with them. For servers; [`Client::get_siblings`] is built on it.
    ///
    /// # Errors
    /// As [`Client::get_many`].
    pub async fn get_records(
        &self,
        keys: Vec<WireKey>,
        options: &ReadOptions,
    ) -> Result<(Vec<Result<Record, ClientError>>, HeldBudget), ClientError> {
        let (keys, options) = (Arc::new(keys), options.clone());
        self.inner()
            .coordinate(
                |snapshot, env| Get::start(keys, options, Arc::clone(&snapshot.home), None, env),
                |get: &mut Get| Ok((get.take_answer()?, get.take_room())),
            )
            .await
    }

    /// Writes a key of a versioned store. For servers; [`Client::put`] and [`Client::delete`] are built on it.
    ///
    /// # Errors
    /// As [`Client::put`]; with [`Intent::Unchanged`] also [`ClientError::Conflict`].
    pub async fn write(
        &self,
        key: WireKey,
        intent: Intent,
        update: Update,
        times: impl Into<WriteTimes>,
    ) -> Result<Written, ClientError> {
        let times = times.into();
        self.inner()
            .coordinate(
                |snapshot, env| Write::start(key, intent, update, times, Arc::clone(&snapshot.home), env),
                Write::take_answer,
            )
            .await
    }

    /// Writes a key like [`write`](Self::write), and sends the result as soon as it is known. It returns later: when no
    /// work is left for slow replicas. For servers that have a task for each write.
    pub async fn write_to_the_end(
        &self,
        key: WireKey,
        intent: Intent,
        update: Update,
        times: impl Into<WriteTimes>,
        answer: impl FnOnce(Result<Written, ClientError>),
    ) {
        let times = times.into();
        self.inner()
            .coordinate_to_the_end(
                |snapshot, env| Write::start(key, intent, update, times, Arc::clone(&snapshot.home), env),
                Write::take_answer,
                answer,
            )
            .await;
    }

    /// Changes a key of a versioned store by `decide`, which may be called several times. For servers;
    /// [`Client::update`] is built on it.
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn edit(
        &self,
        key: WireKey,
        decide: Decide,
        options: impl Into<EditOptions>,
    ) -> Result<Updated, ClientError> {
        let options = options.into();
        let seed = fastrand::u64(..);
        self.inner()
            .coordinate(
                |snapshot, env| {
                    let home = Arc::clone(&snapshot.home);
                    crate::quorum::Update::start(key, decide, options, home, seed, env)
                },
                crate::quorum::Update::take_answer,
            )
            .await
    }

    /// Writes without reading first.
    async fn replace(&self, key: WireKey, edit: Edit, options: &PutOptions) -> Result<VectorClock, ClientError> {
        let times = WriteTimes::from(options);
        // Setting a counter requires the additions so far, which a context does not contain.
        if self.inner().resolution(key.store())? == Resolution::Counter {
            if options.context.is_some() {
                let store = key.store().into();
                return Err(ClientError::ContextOfCounter { store });
            }
            let decide: Decide = Box::new(move |_, _| edit.clone());
            let options = EditOptions {
                added: AddedMeanwhile::Stays,
                ..times.into()
            };
            let updated = self.edit(key, decide, options).await?;
            return Ok(updated.context.unwrap_or_default());
        }
        let now_unix_ms = now_unix_ms();
        let update = match edit {
            Edit::Put { value, expiry } | Edit::PutFields { value, expiry, .. } => {
                let expires = expiry.unix_ms(self.inner().ttl_ms(key.store())?, now_unix_ms);
                Update::put(value, now_unix_ms, expires)
            }
            Edit::Keep | Edit::Delete => Update::delete(now_unix_ms),
        };
        let intent = options.context.clone().map_or(Intent::All, Intent::Context);
        Ok(self.write(key, intent, update, times).await?.context)
    }
}

/// The expiry of a changed value: that of the value before.
fn kept_expiry(before: &Resolved) -> Expiry {
    match (before.value(), before.expires_unix_ms) {
        (None, _) => Expiry::Store,
        (Some(_), None) => Expiry::Never,
        (Some(_), Some(unix_ms)) => Expiry::At { unix_ms },
    }
}

impl Inner {
    /// Whether one of these keys is of a versioned store, as far as is known.
    pub(crate) fn any_versioned(&self, keys: &[WireKey]) -> bool {
        let current = self.current.load();
        let Some(snapshot) = current.as_ref().filter(|snapshot| snapshot.has_versioned) else {
            return false;
        };
        let is_versioned = |key: &WireKey| {
            let store = snapshot.directory.store(key.store());
            store.is_some_and(|(_, store)| store.versioned.is_some())
        };
        // As a rule the same store as that of the key before, which was not versioned.
        let mut last = None;
        keys.iter()
            .any(|key| last.replace(key.store()) != Some(key.store()) && is_versioned(key))
    }

    /// How a versioned store resolves siblings.
    fn resolution(&self, store: &str) -> Result<Resolution, ClientError> {
        Ok(self.settings(store)?.resolution)
    }

    fn ttl_ms(&self, store: &str) -> Result<Option<u64>, ClientError> {
        Ok(self.settings(store)?.ttl_ms)
    }

    fn settings(&self, store: &str) -> Result<fondaco_model::versioned::VersionedSettings, ClientError> {
        let snapshot = self.newest()?;
        let Some((name, known)) = snapshot.directory.store(store) else {
            return Err(ClientError::UnknownStore { store: store.into() });
        };
        known
            .versioned
            .ok_or_else(|| ClientError::NotVersioned { store: name.clone() })
    }

    /// Reads keys of both kinds of stores at once: those of versioned stores at their quorums, the others at their
    /// versions.
    pub(crate) async fn read_mixed(
        self: &Arc<Self>,
        keys: Vec<WireKey>,
        options: &ReadOptions,
    ) -> Result<BatchReply, ClientError> {
        let resolutions: Vec<Option<Resolution>> = keys.iter().map(|key| self.resolution(key.store()).ok()).collect();
        let mut sides = [Vec::new(), Vec::new()];
        for (key, resolution) in keys.into_iter().zip(&resolutions) {
            sides[usize::from(resolution.is_some())].push(key);
        }
        let [batch, versioned] = sides;
        let (batch, versioned) = tokio::join!(
            self.read(batch, options),
            self.read_records(Arc::new(versioned), options)
        );
        let (mut reply, (records, requests, room)) = (batch?, versioned?);
        reply.sub_requests += requests;
        reply.room.join(room);
        let (mut values, mut records) = (std::mem::take(&mut reply.values).into_iter(), records.into_iter());
        let now_unix_ms = now_unix_ms();
        let value = |resolution: Option<Resolution>| match resolution {
            None => values.next(),
            Some(resolution) => records.next().map(|record| {
                let resolved = resolve(&record?, resolution, now_unix_ms);
                Ok(resolved.values.into_iter().next())
            }),
        };
        reply.values = resolutions.into_iter().filter_map(value).collect();
        Ok(reply)
    }

    /// The records of keys, how many requests that took, and their share of the memory limit.
    pub(crate) async fn read_records(
        self: &Arc<Self>,
        keys: Arc<Vec<WireKey>>,
        options: &ReadOptions,
    ) -> Result<(Vec<Result<Record, ClientError>>, u32, HeldBudget), ClientError> {
        let options = options.clone();
        let take = |get: &mut Get| Ok((get.take_answer()?, get.requests(), get.take_room()));
        self.coordinate(
            |snapshot, env| Get::start(keys, options, Arc::clone(&snapshot.home), None, env),
            take,
        )
        .await
    }
}

impl From<&PutOptions> for WriteTimes {
    fn from(options: &PutOptions) -> Self {
        Self {
            deadline: options.deadline,
            attempt: options.attempt,
        }
    }
}

impl From<Duration> for WriteTimes {
    fn from(deadline: Duration) -> Self {
        Self {
            deadline,
            attempt: None,
        }
    }
}
