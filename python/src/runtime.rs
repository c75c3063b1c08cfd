//! The tokio runtime of the process, and how Python waits for it.
//!
//! A child process after a fork has none of its parent's threads: it gets a runtime of its own when it connects, and never
//! touches the parent's.

use std::future::Future;
use std::pin::pin;
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fondaco_push::CancelToken;
use pyo3::BoundObject;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

use crate::fault::Fault;

/// The threads that move bytes. Callers poll their own requests.
const THREADS: usize = 2;

/// How often a waiting call looks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// How long the end of the interpreter waits for threads of the runtime that have it.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// The runtime of one process. It is never freed.
struct OfProcess {
    pid: u32,
    runtime: Runtime,
    visits: Mutex<Visits>,
    left: Condvar,
}

/// Threads of the runtime that use the interpreter. When that ends, a thread in it is unwound without its lock, and frees objects so.
#[derive(Default)]
struct Visits {
    inside: usize,
    /// None may begin any more.
    has_ended: bool,
}

impl OfProcess {
    fn visits(&self) -> MutexGuard<'_, Visits> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread inside the interpreter.
struct Visit(&'static OfProcess);

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.visits().inside -= 1;
        self.0.left.notify_all();
    }
}

static CURRENT: AtomicPtr<OfProcess> = AtomicPtr::new(ptr::null_mut());

/// The runtime of this process.
pub fn runtime() -> PyResult<&'static Runtime> {
    loop {
        let current = CURRENT.load(Ordering::Acquire);
        if let Some(of) = of_this_process() {
            return Ok(&of.runtime);
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("fondaco")
            .enable_all()
            .build()
            .map_err(|error| PyOSError::new_err(format!("cannot start the threads of fondaco: {error}")))?;
        let made = Box::into_raw(Box::new(OfProcess {
            pid: process::id(),
            runtime,
            visits: Mutex::default(),
            left: Condvar::new(),
        }));
        if CURRENT
            .compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: no other thread has seen it.
            unsafe { drop(Box::from_raw(made)) };
            continue;
        }
        Python::attach(|py| {
            let at_exit = pyo3::wrap_pyfunction!(end_visits, py)?;
            py.import("atexit")?.call_method1("register", (at_exit,)).map(drop)
        })?;
    }
}

fn of_this_process() -> Option<&'static OfProcess> {
    // SAFETY: the pointer is null or from `Box::into_raw` in `runtime`, and is never freed.
    let current = unsafe { CURRENT.load(Ordering::Acquire).as_ref() };
    current.filter(|of| of.pid == process::id())
}

/// Uses the interpreter on a thread of the runtime. `None` if it is ending.
pub fn visit<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let of = of_this_process()?;
    let mut visits = of.visits();
    if visits.has_ended {
        return None;
    }
    visits.inside += 1;
    drop(visits);
    let _visit = Visit(of);
    Python::try_attach(work)
}

/// Lets no thread of the runtime into the interpreter any more, and waits for those that are inside.
#[pyfunction]
fn end_visits(py: Python<'_>) {
    py.detach(|| {
        let Some(of) = of_this_process() else { return };
        let mut visits = of.visits();
        visits.has_ended = true;
        let ended = of
            .left
            .wait_timeout_while(visits, END_TIME_MAX, |visits| visits.inside > 0);
        drop(ended);
    });
}

/// Waits for a future without the interpreter lock, until it ends or a signal handler raises, for instance at Ctrl-C. The
/// future is dropped then.
pub fn wait<T: Send>(py: Python<'_>, future: impl Future<Output = Result<T, Fault>> + Send) -> PyResult<T> {
    let runtime = runtime()?;
    let ended: Result<T, Fault> = py.detach(|| {
        runtime.block_on(async {
            let mut future = pin!(future);
            loop {
                match tokio::time::timeout(SIGNALS_EVERY, &mut future).await {
                    Ok(ended) => return ended,
                    Err(_) => Python::attach(|py| py.check_signals())?,
                }
            }
        })
    });
    Ok(ended?)
}

/// Waits for a job like [`wait`], but when a signal handler raises, it cancels the job, and waits for its end, so that the job
/// leaves nothing.
pub fn wait_for_job<T: Send>(
    py: Python<'_>,
    job: impl Future<Output = Result<T, Fault>> + Send,
    cancel: &CancelToken,
) -> PyResult<T> {
    let runtime = runtime()?;
    let ended: Result<T, Fault> = py.detach(|| {
        runtime.block_on(async {
            let mut job = pin!(job);
            loop {
                match tokio::time::timeout(SIGNALS_EVERY, &mut job).await {
                    Ok(ended) => return ended,
                    Err(_) => {
                        if let Err(raised) = Python::attach(|py| py.check_signals()) {
                            cancel.cancel();
                            let _ = job.await;
                            return Err(Fault::Python(raised));
                        }
                    }
                }
            }
        })
    });
    Ok(ended?)
}

/// A future as an `asyncio.Future` of the running loop. It is dropped when that is cancelled.
pub fn promise<'py, T, F>(py: Python<'py>, future: F) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'a> IntoPyObject<'a> + Send + 'static,
    F: Future<Output = Result<T, Fault>> + Send + 'static,
{
    static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let running = RUNNING_LOOP.get_or_try_init(py, || {
        let asyncio = py.import("asyncio")?;
        asyncio.getattr("get_running_loop").map(Bound::unbind)
    })?;
    let event_loop = running.bind(py).call0()?;
    let promise = event_loop.call_method0("create_future")?;
    let (at, of) = (event_loop.unbind(), promise.clone().unbind());
    let task = runtime()?.spawn(async move {
        let ended = future.await;
        let _ = visit(move |py| {
            let ended = ended.map_err(PyErr::from).and_then(|value| {
                value
                    .into_pyobject(py)
                    .map(|value| value.into_any().unbind())
                    .map_err(Into::into)
            });
            let (failed, value) = match ended {
                Ok(value) => (false, value),
                Err(error) => (true, error.into_value(py).into_any()),
            };
            let deliver = pyo3::wrap_pyfunction!(deliver, py)?;
            // It fails if the loop is closed: then no caller waits.
            at.call_method1(py, "call_soon_threadsafe", (deliver, of, failed, value))
        });
    });
    promise.call_method1("add_done_callback", (Abort(task.abort_handle()),))?;
    Ok(promise)
}

/// Ends an `asyncio.Future`, in its loop.
#[pyfunction]
pub fn deliver(promise: &Bound<'_, PyAny>, failed: bool, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if promise.call_method0("done")?.is_truthy()? {
        return Ok(());
    }
    let method = if failed { "set_exception" } else { "set_result" };
    promise.call_method1(method, (value,)).map(drop)
}

/// Stops the work for an `asyncio.Future` that was cancelled.
#[pyclass(frozen)]
pub struct Abort(AbortHandle);

#[pymethods]
impl Abort {
    fn __call__(&self, _promise: &Bound<'_, PyAny>) {
        // Nothing happens if it has ended.
        self.0.abort();
    }
}

/// Makes sure that an object is used in the process that made it.
pub fn check_process(made_by: u32) -> PyResult<()> {
    match made_by == process::id() {
        true => Ok(()),
        false => Err(Fault::new(
            "FORKED",
            format!(
                "this client was made by process {made_by}, and its connections do not survive a fork: connect again in \
                 the child, or start children with multiprocessing.set_start_method(\"spawn\")"
            ),
        )
        .into()),
    }
}

/// The class of this name in `fondaco.errors`.
pub fn errors_attribute<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || PyResult::Ok(py.import("fondaco.errors")?.into_any().unbind()))?;
    module.bind(py).getattr(name)
}

/// The name of an object's class, for messages.
pub fn type_name(value: &Bound<'_, PyAny>) -> String {
    let of: Bound<'_, PyType> = value.get_type();
    of.name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
