//! Threads for work that computes for long, such as the union of thousands of sets: bounded in number, behind the event
//! loops in priority, with a bounded queue. A job ends at its deadline, and when its caller no longer waits for it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use tokio::sync::oneshot;

use crate::priority;

/// How many jobs may wait.
const QUEUE_MAX: usize = 1024;

/// A job, boxed.
type Job = Box<dyn FnOnce() + Send>;

/// The threads, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct ComputePool(Sender<Job>);

/// Why a job has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoResult {
    /// Too many jobs wait.
    Full,
    /// The deadline has passed.
    Late,
    /// The job panicked.
    Lost,
}

impl NoResult {
    /// The error to answer with.
    pub(crate) fn refusal(self) -> String {
        match self {
            Self::Full => {
                format!("OVERLOADED {QUEUE_MAX} computations wait already: send fewer at a time, or add nodes")
            }
            Self::Late => "TIMEOUT the computation was not done in time: ask for fewer keys".into(),
            Self::Lost => "ERR the computation failed: see the log of the node".into(),
        }
    }
}

impl ComputePool {
    /// Starts this many threads.
    ///
    /// # Errors
    /// A thread cannot be made.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let (sender, jobs) = bounded::<Job>(QUEUE_MAX);
        for number in 0..threads.max(1) {
            let jobs: Receiver<Job> = jobs.clone();
            let work = move || {
                priority::let_loops_go_first();
                for job in jobs {
                    // The caller hears of it, since the sender of the result is dropped.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            };
            thread::Builder::new().name(format!("compute-{number}")).spawn(work)?;
        }
        Ok(Self(sender))
    }

    /// Runs a job, and waits for its result. The job is to ask from time to time whether it may go on, and to end if not:
    /// the deadline has passed, or the caller has dropped this future.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        job: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        let (sender, result) = oneshot::channel();
        let job = move || {
            if sender.is_closed() || Instant::now() >= deadline {
                return;
            }
            let value = job(&mut || !sender.is_closed() && Instant::now() < deadline);
            // The caller may be gone.
            let _ = sender.send(value);
        };
        match self.0.try_send(Box::new(job)) {
            Ok(()) => match tokio::time::timeout_at(deadline.into(), result).await {
                Ok(result) => result.map_err(|_| NoResult::Lost),
                Err(_) => Err(NoResult::Late),
            },
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(NoResult::Full),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Arc, Barrier};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn jobs_run_on_as_many_threads_as_there_are() {
        let pool = Arc::new(ComputePool::start(2).unwrap());
        let two = Arc::new(Barrier::new(2));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let deadline = Instant::now() + Duration::from_secs(10);
        let jobs = (0..8).map(|number| {
            let (pool, running, most) = (Arc::clone(&pool), Arc::clone(&running), Arc::clone(&most));
            let two = Arc::clone(&two);
            tokio::spawn(async move {
                let job = move |_: &mut dyn FnMut() -> bool| {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    // Each of the eight jobs meets another one that runs at the same time.
                    two.wait();
                    running.fetch_sub(1, SeqCst);
                    number
                };
                pool.run(deadline, job).await
            })
        });
        let jobs: Vec<_> = jobs.collect();
        for (number, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.await.unwrap(), Ok(number));
        }
        assert_eq!(most.load(SeqCst), 2);
    }

    #[tokio::test]
    async fn a_job_ends_at_its_deadline_and_when_its_caller_is_gone() {
        fn endless(may_go_on: &mut dyn FnMut() -> bool) {
            while may_go_on() {
                thread::yield_now();
            }
        }
        let pool = ComputePool::start(1).unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let ended = pool.run(soon, endless).await;
        assert!(matches!(ended, Ok(()) | Err(NoResult::Late)), "{ended:?}");
        let late = Instant::now() + Duration::from_secs(600);
        let dropped = tokio::time::timeout(Duration::from_millis(20), pool.run(late, endless)).await;
        assert!(dropped.is_err());
        // The only thread is free again.
        assert_eq!(pool.run(late, |_| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn a_job_that_panics_takes_no_thread_with_it() {
        let pool = ComputePool::start(1).unwrap();
        let late = Instant::now() + Duration::from_secs(600);
        let lost = pool.run(late, |_| panic!("by intent")).await;
        assert_eq!(lost, Err::<(), _>(NoResult::Lost));
        assert_eq!(pool.run(late, |_| 7).await, Ok(7));
    }
}
