//! The runtime of the clients of remote storage, and the way to use it from plain threads.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::StorageError;

/// Two threads saturate a network: their work is TLS and copying.
const THREADS: usize = 2;

/// The timeout of a request, including its retries.
const ANSWER_SECONDS_MAX: u64 = 90;

/// The niceness of these threads: serving has priority over fetching.
const NICENESS: i32 = 10;

/// The runtime, started on first use.
pub(crate) fn handle() -> Result<Handle, StorageError> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.handle().clone());
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("storage")
        .on_thread_start(|| {
            // On Linux the niceness is per thread. If this fails, transfers only have the normal priority.
            let _ = rustix::process::nice(NICENESS);
        })
        .enable_all()
        .build()
        .map_err(|e| StorageError::io("start the threads of", "remote storage", e))?;
    // If two threads get here at the same time, the later one drops its runtime.
    Ok(RUNTIME.get_or_init(|| runtime).handle().clone())
}

/// A request to remote storage: the action, and its object.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) action: &'static str,
    pub(crate) path: PathBuf,
}

impl Request {
    pub(crate) fn new(action: &'static str, path: impl Into<PathBuf>) -> Self {
        Self {
            action,
            path: path.into(),
        }
    }

    /// Starts the request without waiting for it.
    pub(crate) fn start<T: Send + 'static>(
        self,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<Pending<T>, StorageError> {
        let (sender, answer) = mpsc::sync_channel(1);
        let request = self.clone();
        let task = handle()?.spawn(async move {
            let work = tokio::time::timeout(Duration::from_secs(ANSWER_SECONDS_MAX), work);
            let Self { action, path } = request;
            let result = match work.await {
                Ok(result) => result.map_err(|e| StorageError::remote(action, path, e)),
                Err(_) => Err(StorageError::NoAnswer {
                    action,
                    path,
                    seconds: ANSWER_SECONDS_MAX,
                }),
            };
            // The receiver was dropped: the caller no longer wants the result.
            let _ = sender.send(result);
        });
        Ok(Pending {
            request: self,
            answer,
            task,
        })
    }

    /// Runs the request, and waits for its result.
    pub(crate) fn run<T: Send + 'static>(
        self,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.start(work)?.wait()
    }
}

/// A request in progress. Dropping it cancels the request.
pub(crate) struct Pending<T> {
    request: Request,
    answer: mpsc::Receiver<Result<T, StorageError>>,
    task: tokio::task::JoinHandle<()>,
}

impl<T> Pending<T> {
    /// Waits for this long at most.
    pub(crate) fn wait_for(self, time_max: Duration) -> Result<T, StorageError> {
        match self.answer.recv_timeout(time_max) {
            Ok(answer) => answer,
            Err(mpsc::RecvTimeoutError::Timeout) => Err(StorageError::NoAnswer {
                action: self.request.action,
                path: self.request.path.clone(),
                seconds: time_max.as_secs(),
            }),
            Err(mpsc::RecvTimeoutError::Disconnected) => self.wait(),
        }
    }

    pub(crate) fn wait(self) -> Result<T, StorageError> {
        self.answer.recv().unwrap_or_else(|_| {
            Err(StorageError::Remote {
                action: self.request.action,
                path: self.request.path.clone(),
                source: "the client of the storage panicked".into(),
            })
        })
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
