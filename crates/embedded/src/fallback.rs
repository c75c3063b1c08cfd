//! Look-ups by the client library, for what a reader does not have itself. It connects at the first one, with one thread.

use std::fs;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_client::{CanaryChoice, Client, ReadOptions, WireKey, trusting};
use fondaco_model::VersionNumber;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::error::EmbeddedError;
use crate::follow::Cluster;
use crate::snapshot::Open;
use crate::values::Values;

/// How long a look-up may take.
const DEADLINE: Duration = Duration::from_secs(1);
/// How long it may take to learn where the keys are.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// For how long nothing is asked after it could not be learned.
const DOWN: Duration = Duration::from_secs(1);

/// The nodes of the cluster.
pub(crate) struct Fallback {
    cluster: Arc<Cluster>,
    runtime: OnceLock<Runtime>,
    link: Mutex<Link>,
}

#[derive(Default)]
enum Link {
    #[default]
    None,
    /// When it failed, and why.
    Failed(Instant, String),
    Up(Client),
}

/// The values of keys, and the version that they are from.
type Answer = (Vec<Option<Bytes>>, Option<VersionNumber>);

impl Fallback {
    /// Connects to nothing yet.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self {
            cluster,
            runtime: OnceLock::new(),
            link: Mutex::default(),
        }
    }

    /// The value of a key, which is not here for this reason.
    pub(crate) fn get(&self, key: &[u8], here: EmbeddedError) -> Result<Option<Vec<u8>>, EmbeddedError> {
        let (values, _) = self.ask([key]).map_err(not_answered(here))?;
        Ok(values.into_iter().next().flatten().map(Bytes::into))
    }

    /// The values of keys, of which some are not here for this reason: all from the cluster.
    pub(crate) fn get_all<K: AsRef<[u8]>>(&self, keys: &[K], here: EmbeddedError) -> Result<Values, EmbeddedError> {
        let (found, version) = self.ask(keys).map_err(not_answered(here))?;
        let mut values = Values::none_of(keys.len(), version);
        values.put_each(0..keys.len(), &found);
        Ok(values)
    }

    /// The values of keys: those of the present version, and of the same version in the cluster for what it does not have; of another
    /// version if the cluster reads that one by now.
    pub(crate) fn get_many_beside<K: AsRef<[u8]>>(&self, present: &Open, keys: &[K]) -> Result<Values, EmbeddedError> {
        if present.lacks_events()
            && let Ok(values) = self.get_all(keys, EmbeddedError::NoVersion)
        {
            return Ok(values);
        }
        let has = |at: &usize| present.has(keys[*at].as_ref());
        let missing: Vec<usize> = (0..keys.len()).filter(|at| !has(at)).collect();
        let Some(&first) = missing.first() else {
            return match Values::read(present, keys) {
                // A partition was given up a moment ago.
                Err(here) if here.is_absence() => self.get_all(keys, here),
                read => read,
            };
        };
        let here = present.behind(keys[first].as_ref());
        let (found, version) = match self.ask(missing.iter().map(|&at| keys[at].as_ref())) {
            Ok(found) => found,
            Err(reason) => return Err(not_answered(here)(reason)),
        };
        if version != present.number {
            return self.get_all(keys, here);
        }
        let own: Vec<usize> = (0..keys.len())
            .filter(|at| missing.binary_search(at).is_err())
            .collect();
        let own_keys: Vec<&[u8]> = own.iter().map(|&at| keys[at].as_ref()).collect();
        let read = Values::read(present, &own_keys)?;
        let mut values = Values::none_of(keys.len(), version);
        let read: Vec<Option<&[u8]>> = read.iter().collect();
        values.put_each(own.into_iter(), &read);
        values.put_each(missing.into_iter(), &found);
        Ok(values)
    }

    /// The values of keys, all from one version; or why they cannot be read.
    fn ask<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Answer, String> {
        let keys = keys
            .into_iter()
            .map(|key| WireKey::new(self.cluster.store(), key.as_ref()));
        let keys = keys.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        let client = self.client()?;
        let options = ReadOptions {
            deadline: DEADLINE,
            canary: CanaryChoice::Current,
            ..ReadOptions::default()
        };
        let reply = self.wait(DEADLINE, async move { client.read(keys, &options).await })?;
        let reply = reply.map_err(|error| error.to_string())?;
        let values = reply.values.into_iter().collect::<Result<Vec<_>, _>>();
        let version = reply.stores.first().map(|store| store.version);
        Ok((values.map_err(|error| error.to_string())?, version))
    }

    /// Waits for a future that the thread runs. The caller may itself be a task of another runtime.
    fn wait<T: Send + 'static>(
        &self,
        time: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let (sender, receiver) = sync_channel(1);
        self.runtime()?.spawn(async move {
            // The caller may have given up.
            let _ = sender.send(future.await);
        });
        let answer = receiver.recv_timeout(time + DEADLINE);
        answer.map_err(|_| format!("no answer within {time:?}"))
    }

    fn runtime(&self) -> Result<&Runtime, String> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let built = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fallback")
            .enable_all()
            .build();
        let built = built.map_err(|error| format!("a thread cannot be started: {error}"))?;
        Ok(self.runtime.get_or_init(|| built))
    }

    fn client(&self) -> Result<Client, String> {
        let mut link = self.link.lock();
        match &*link {
            Link::Up(client) => return Ok(client.clone()),
            Link::Failed(at, reason) if at.elapsed() < DOWN => return Err(reason.clone()),
            Link::None | Link::Failed(..) => {}
        }
        let connected = self.connect();
        *link = match &connected {
            Ok(client) => Link::Up(client.clone()),
            Err(reason) => Link::Failed(Instant::now(), reason.clone()),
        };
        connected
    }

    fn connect(&self) -> Result<Client, String> {
        let (seeds, endpoint) = self.cluster.seeds().map_err(|error| error.to_string())?;
        let mut builder = Client::builder().seeds(seeds);
        if let Some(password) = &endpoint.password {
            builder = builder.credentials(endpoint.user.clone(), password.clone());
        }
        if let Some(path) = &endpoint.ca {
            let pem = fs::read(path).map_err(|error| format!("cannot read {path:?}: {error}"))?;
            builder = builder.tls(trusting(&pem).map_err(|error| format!("cannot trust {path:?}: {error}"))?);
        }
        let client = {
            let _runtime = self.runtime()?.enter();
            builder.build().map_err(|error| error.to_string())?
        };
        let asking = client.clone();
        let ready = self.wait(CONNECT_TIME_MAX, async move { asking.ready(CONNECT_TIME_MAX).await })?;
        ready.map(|()| client).map_err(|error| error.to_string())
    }
}

fn not_answered(here: EmbeddedError) -> impl FnOnce(String) -> EmbeddedError {
    |cluster| EmbeddedError::NotAnswered {
        here: Box::new(here),
        cluster,
    }
}

impl Drop for Fallback {
    fn drop(&mut self) {
        *self.link.lock() = Link::None;
        if let Some(runtime) = self.runtime.take() {
            // It must not wait: the caller may be a task of another runtime.
            runtime.shutdown_background();
        }
    }
}
