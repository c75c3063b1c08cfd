//! An io_uring of one event loop: reads are queued while the loop runs and submitted together before it would wait;
//! their completions wake it like any other event.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use fondaco_format::{ColdRead, FormatError, Version};
use io_uring::{IoUring, opcode, types};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};

/// How many reads the kernel may have at a time; further reads wait in a queue.
const READS_MAX: usize = 256;

/// The io_uring of one event loop.
pub(super) struct Ring {
    state: RefCell<State>,
    queued: Notify,
}

struct State {
    uring: IoUring,
    reads: Vec<Option<Read>>,
    free: Vec<usize>,
    waiting: VecDeque<Read>,
}

/// One read. Its file and its buffer live until the kernel is done with them, even if the connection is gone.
struct Read {
    version: Arc<Version>,
    read: ColdRead,
    bytes: Vec<u8>,
    done: oneshot::Sender<Result<Vec<u8>, FormatError>>,
}

impl Ring {
    /// Creates a ring and the task that drives it, on this thread.
    pub(super) fn start() -> io::Result<Rc<Self>> {
        let uring = IoUring::builder().build(READS_MAX as u32)?;
        // SAFETY: the ring is open, and stays open until the copy is made.
        let fd = unsafe { BorrowedFd::borrow_raw(uring.as_raw_fd()) }.try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` refers to the same open file for as long as it lives.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        let ring = Rc::new(Self {
            state: RefCell::new(State {
                uring,
                reads: Vec::new(),
                free: Vec::new(),
                waiting: VecDeque::new(),
            }),
            queued: Notify::new(),
        });
        tokio::task::spawn_local(Rc::clone(&ring).drive(fd));
        Ok(ring)
    }

    /// Queues a read.
    pub(super) fn read(
        &self,
        version: &Arc<Version>,
        read: &ColdRead,
    ) -> oneshot::Receiver<Result<Vec<u8>, FormatError>> {
        let (done, receiver) = oneshot::channel();
        let range = read.range();
        let read = Read {
            version: Arc::clone(version),
            read: read.clone(),
            bytes: Vec::with_capacity((range.end - range.start) as usize),
            done,
        };
        let mut state = self.state.borrow_mut();
        if state.in_flight() < READS_MAX {
            state.push(read);
        } else {
            state.waiting.push_back(read);
        }
        self.queued.notify_one();
        receiver
    }

    async fn drive(self: Rc<Self>, fd: AsyncFd<OwnedFd>) {
        loop {
            tokio::select! {
                biased;
                ready = fd.readable() => match ready {
                    // Cleared before the completions are read, so that a read that completes in between wakes the task
                    // again.
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                },
                () = self.queued.notified() => {}
            }
            self.state.borrow_mut().work_off();
        }
    }
}

impl State {
    fn in_flight(&self) -> usize {
        self.reads.len() - self.free.len()
    }

    /// Submits queued reads and collects completions until nothing is queued: a completion may let a waiting read, or
    /// the rest of a short read, into the queue.
    fn work_off(&mut self) {
        self.collect();
        while !self.uring.submission().is_empty() {
            if let Err(error) = self.uring.submit() {
                if error.raw_os_error() != Some(rustix::io::Errno::BUSY.raw_os_error()) {
                    tracing::error!(%error, "io_uring does not take reads");
                }
                // The completion of a read in flight calls this again.
                return;
            }
            self.collect();
        }
    }

    /// Puts a read, or what is left of it, into the submission queue.
    fn push(&mut self, read: Read) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() - 1
        });
        let read = self.reads[slot].insert(read);
        let file = types::Fd(read.version.cold_file(&read.read).as_raw_fd());
        let range = read.read.range();
        let position = range.start + read.bytes.len() as u64;
        // A read covers one bucket or one index block: far less than 4 GiB.
        let length = (range.end - position) as u32;
        let spare = read.bytes.spare_capacity_mut();
        debug_assert!(spare.len() >= length as usize);
        let entry = opcode::Read::new(file, spare.as_mut_ptr().cast(), length)
            .offset(position)
            .build()
            .user_data(slot as u64);
        // SAFETY: the buffer and the file belong to `reads[slot]`, which is neither moved out nor
        // dropped before the kernel has reported the end of this read.
        while unsafe { self.uring.submission().push(&entry) }.is_err() {
            // The queue is full: submit it. It has as many entries as there may be reads in flight.
            let _ = self.uring.submit();
        }
    }

    /// Delivers completed reads, and lets waiting reads follow.
    fn collect(&mut self) {
        loop {
            let Some(end) = self.uring.completion().next() else {
                break;
            };
            let slot = end.user_data() as usize;
            let Some(mut read) = self.reads.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.free.push(slot);
            match usize::try_from(end.result()) {
                Ok(count) => {
                    let length = read.bytes.len() + count;
                    // SAFETY: the kernel has written `count` bytes after those already there, and was given the
                    // capacity.
                    unsafe { read.bytes.set_len(length) };
                    let range = read.read.range();
                    if count > 0 && (length as u64) < range.end - range.start {
                        self.push(read);
                        continue;
                    }
                    let _ = read.done.send(Ok(read.bytes));
                }
                Err(_) => {
                    let error = io::Error::from_raw_os_error(-end.result());
                    let _ = read.done.send(Err(read.version.read_failed(&read.read, error)));
                }
            }
            if let Some(next) = self.waiting.pop_front() {
                self.push(next);
            }
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.waiting.clear();
        while self.in_flight() > 0 {
            if self.uring.submit_and_wait(1).is_err() {
                // The kernel may still write into the buffers: leaking them is better than freeing them.
                std::mem::take(&mut self.reads).into_iter().for_each(std::mem::forget);
                return;
            }
            self.collect();
        }
    }
}
