//! Threads for work that computes for long, such as the union of thousands of sets, or a query of a graph: bounded in number,
//! behind the event loops in priority. Work that asks other nodes waits without a thread. How much may be under way is
//! bounded, and work ends at its deadline, or when its caller no longer waits for it.

pub(crate) mod fields;
mod sets;

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fondaco_client::trace::{Tracing, within};
use fondaco_client::{Client, ClientError};
use fondaco_os::priority;
use tokio::runtime::{Builder, Runtime};

use crate::forward::peers;
use crate::server::ServerState;

pub(crate) use sets::{Limits, Sets, refused};

/// The stack of a thread that computes: each step of a query calls the next one. It takes memory only as far as it is used.
const STACK_BYTES: usize = 64 << 20;

/// How much work may be under way.
const UNDER_WAY_MAX: usize = 1024;

/// The threads, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct Compute {
    /// The threads that compute. A worker may be busy for as long as the deadline of its work.
    workers: OwnRuntime,
    /// Where the client's connections are served, so that no computation delays them.
    links: OwnRuntime,
    client: OnceLock<Client>,
    under_way: Arc<AtomicUsize>,
}

/// Why work has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoResult {
    /// Too much is under way.
    Full,
    /// The deadline has passed.
    Late,
    /// It panicked.
    Lost,
}

impl NoResult {
    /// The error to answer with.
    pub(crate) fn refusal(self) -> String {
        match self {
            Self::Full => format!(
                "OVERLOADED {UNDER_WAY_MAX} computations are under way already: send fewer at a time, or add nodes"
            ),
            Self::Late => "TIMEOUT the computation was not done in time: ask for fewer keys".into(),
            Self::Lost => "ERR the computation failed: see the log of the node".into(),
        }
    }
}

/// Tells work whether it may go on.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) deadline: Instant,
    is_unwanted: Arc<AtomicBool>,
}

impl Stop {
    /// Whether the deadline has not passed, and the caller still waits.
    pub(crate) fn may_go_on(&self) -> bool {
        !self.is_unwanted.load(Relaxed) && Instant::now() < self.deadline
    }

    /// The time left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Compute {
    /// Starts this many threads, at least one.
    ///
    /// # Errors
    /// A thread cannot be made.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let workers = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .max_blocking_threads(1)
            .thread_stack_size(STACK_BYTES)
            .thread_name("compute")
            .on_thread_start(priority::let_loops_go_first)
            .enable_time()
            .build()?;
        let links = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .thread_name("compute-links")
            .enable_all()
            .build()?;
        Ok(Self {
            workers: OwnRuntime(Some(workers)),
            links: OwnRuntime(Some(links)),
            client: OnceLock::new(),
            under_way: Arc::default(),
        })
    }

    /// Runs work on these threads, and waits for its result. Work is to ask from time to time whether it may go on, and to
    /// end if not: the deadline has passed, or the caller has dropped this future.
    pub(crate) async fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce(Stop) -> F,
    ) -> Result<T, NoResult> {
        let Some(under_way) = UnderWay::enter(&self.under_way) else {
            return Err(NoResult::Full);
        };
        let unwanted = Unwanted::default();
        let work = work(Stop {
            deadline,
            is_unwanted: Arc::clone(&unwanted.0),
        });
        let work = self.workers.get().spawn(within(Tracing::current(), async move {
            let _under_way = under_way;
            work.await
        }));
        let _abort = AbortOnDrop(work.abort_handle());
        match tokio::time::timeout_at(deadline.into(), work).await {
            Ok(result) => result.map_err(|_| NoResult::Lost),
            Err(_) => Err(NoResult::Late),
        }
    }

    /// Begins work that nothing waits for; not if too much is under way.
    pub(crate) fn begin<F: Future<Output = ()> + Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce(Stop) -> F,
    ) -> Result<(), NoResult> {
        let under_way = UnderWay::enter(&self.under_way).ok_or(NoResult::Full)?;
        let work = work(Stop {
            deadline,
            is_unwanted: Arc::default(),
        });
        self.workers.get().spawn(async move {
            let _under_way = under_way;
            // It ends by itself, too, where it does not wait.
            let _ = tokio::time::timeout_at(deadline.into(), work).await;
        });
        Ok(())
    }

    /// The client library's instance of these threads, made when it is first needed.
    pub(crate) fn client(&self, shared: &ServerState) -> Result<&Client, ClientError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let _links = self.links.get().enter();
        let replica = shared.config.replicas.clone().map(|replicas| replicas as _);
        let client = peers(shared, replica).build()?;
        Ok(self.client.get_or_init(|| client))
    }
}

/// A runtime that may be dropped within another one. Its threads end with the work that they do.
#[derive(Debug)]
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn get(&self) -> &Runtime {
        // It is taken in `drop` alone.
        self.0.as_ref().unwrap_or_else(|| unreachable!())
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// One piece of work, counted until it is dropped.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn enter(count: &Arc<AtomicUsize>) -> Option<Self> {
        let entered = Self(Arc::clone(count));
        (count.fetch_add(1, Relaxed) < UNDER_WAY_MAX).then_some(entered)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Says that the result is unwanted when it is dropped.
#[derive(Default)]
struct Unwanted(Arc<AtomicBool>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;

    #[tokio::test]
    async fn work_runs_on_as_many_threads_as_there_are() {
        let compute = Arc::new(Compute::start(2).unwrap());
        let two = Arc::new(Barrier::new(2));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let deadline = Instant::now() + Duration::from_secs(10);
        let jobs = (0..8).map(|number| {
            let (compute, running, most) = (Arc::clone(&compute), Arc::clone(&running), Arc::clone(&most));
            let two = Arc::clone(&two);
            tokio::spawn(async move {
                let job = move |_| async move {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    // Each of the eight jobs meets another one that runs at the same time.
                    two.wait();
                    running.fetch_sub(1, SeqCst);
                    number
                };
                compute.run(deadline, job).await
            })
        });
        let jobs: Vec<_> = jobs.collect();
        for (number, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.await.unwrap(), Ok(number));
        }
        assert_eq!(most.load(SeqCst), 2);
    }

    #[tokio::test]
    async fn work_ends_at_its_deadline_and_when_its_caller_is_gone() {
        async fn endless(stop: Stop) {
            while stop.may_go_on() {
                std::thread::yield_now();
            }
        }
        let compute = Compute::start(1).unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let ended = compute.run(soon, endless).await;
        assert!(matches!(ended, Ok(()) | Err(NoResult::Late)), "{ended:?}");
        let late = Instant::now() + Duration::from_secs(600);
        let dropped = tokio::time::timeout(Duration::from_millis(20), compute.run(late, endless)).await;
        assert!(dropped.is_err());
        // The only thread is free again.
        assert_eq!(compute.run(late, |_| async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_panics_takes_no_thread_with_it() {
        let compute = Compute::start(1).unwrap();
        let late = Instant::now() + Duration::from_secs(600);
        let lost = compute.run(late, |_| async { panic!("by intent") }).await;
        assert_eq!(lost, Err::<(), _>(NoResult::Lost));
        assert_eq!(compute.run(late, |_| async { 7 }).await, Ok(7));
        assert_eq!(compute.under_way.load(SeqCst), 0);
    }
}
