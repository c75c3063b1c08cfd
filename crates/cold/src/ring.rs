//! An io_uring of one event loop: reads are queued while the loop runs and submitted together before it would wait;
//! their completions wake it like any other event.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
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
    /// Through the page cache: the bytes that were read so far, with room for the others.
    bytes: Vec<u8>,
    /// Set if it goes past the page cache.
    direct: Option<Direct>,
    done: oneshot::Sender<Result<Vec<u8>, FormatError>>,
}

/// The aligned range that is read past the page cache.
struct Direct {
    file: RawFd,
    range: Range<u64>,
    /// Its place in the buffer, which is longer.
    at: usize,
}

impl Ring {
    /// Creates a ring and the task that drives it, on this thread.
    pub(super) fn start() -> io::Result<Rc<Self>> {
        let uring = new_uring(READS_MAX as u32)?;
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
        let read = Read::new(version, read, done);
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

/// A ring whose completions wait for the next system call of the loop's thread. Otherwise the kernel interrupts the thread
/// for each of them, and the processor that it runs on, which is expensive on a virtual machine. A thread that waits is
/// woken in either case. Kernels before 5.19 do not know the flag.
fn new_uring(entries: u32) -> io::Result<IoUring> {
    let cooperative = IoUring::builder().setup_coop_taskrun().build(entries);
    cooperative.or_else(|_| IoUring::builder().build(entries))
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
        let (file, range, buffer) = read.rest();
        // A read covers one bucket or one index block: far less than 4 GiB.
        let length = (range.end - range.start) as u32;
        let entry = opcode::Read::new(types::Fd(file), buffer, length)
            .offset(range.start)
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
            let Some(read) = self.reads.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.free.push(slot);
            // SAFETY: the kernel has done this read, as `push` submitted it.
            match unsafe { read.take(end.result()) } {
                Some(rest) => self.push(rest),
                None => {
                    if let Some(next) = self.waiting.pop_front() {
                        self.push(next);
                    }
                }
            }
        }
    }
}

impl Read {
    fn new(version: &Arc<Version>, read: &ColdRead, done: oneshot::Sender<Result<Vec<u8>, FormatError>>) -> Self {
        let (bytes, direct) = match version.direct_read(read) {
            Some(direct) => {
                let length = (direct.range.end - direct.range.start) as usize;
                let bytes = vec![0u8; length + direct.alignment - 1];
                let address = bytes.as_ptr().addr();
                let direct = Direct {
                    file: direct.file.as_raw_fd(),
                    range: direct.range,
                    at: address.next_multiple_of(direct.alignment) - address,
                };
                (bytes, Some(direct))
            }
            None => (room_for(read), None),
        };
        Self {
            version: Arc::clone(version),
            read: read.clone(),
            bytes,
            direct,
            done,
        }
    }

    /// What the kernel is to read: a range of a file, and the memory for it.
    fn rest(&mut self) -> (RawFd, Range<u64>, *mut u8) {
        if let Some(direct) = &self.direct {
            let length = (direct.range.end - direct.range.start) as usize;
            let buffer = &mut self.bytes[direct.at..][..length];
            return (direct.file, direct.range.clone(), buffer.as_mut_ptr());
        }
        let range = self.read.range();
        let rest = range.start + self.bytes.len() as u64..range.end;
        let spare = self.bytes.spare_capacity_mut();
        debug_assert!(spare.len() as u64 >= rest.end - rest.start);
        let file = self.version.cold_file(&self.read).as_raw_fd();
        (file, rest, spare.as_mut_ptr().cast())
    }

    /// Takes what the kernel has read: a number of bytes, or a negative error. Delivers the result, or returns the read
    /// if there is more to read.
    ///
    /// # Safety
    /// The kernel has written that many bytes where [`Read::rest`] said.
    unsafe fn take(mut self, result: i32) -> Option<Self> {
        let range = self.read.range();
        let wanted = (range.end - range.start) as usize;
        let count = usize::try_from(result);
        if let Some(direct) = self.direct.take() {
            let skipped = (range.start - direct.range.start) as usize;
            if count.is_ok_and(|count| count >= skipped + wanted) {
                let start = direct.at + skipped;
                self.bytes.copy_within(start..start + wanted, 0);
                self.bytes.truncate(wanted);
                let _ = self.done.send(Ok(self.bytes));
                return None;
            }
            // The file is shorter than it should be, or the disk or the file system is faulty: a read through the page
            // cache succeeds, or its error is reported.
            if count.is_err() {
                self.version.give_up_direct(&self.read);
            }
            self.bytes = room_for(&self.read);
            return Some(self);
        }
        let Ok(count) = count else {
            let error = io::Error::from_raw_os_error(-result);
            let _ = self.done.send(Err(self.version.read_failed(&self.read, error)));
            return None;
        };
        let length = self.bytes.len() + count;
        // SAFETY: the kernel has written `count` bytes after those already there, and was given the capacity.
        unsafe { self.bytes.set_len(length) };
        if count > 0 && length < wanted {
            return Some(self);
        }
        let _ = self.done.send(Ok(self.bytes));
        None
    }
}

fn room_for(read: &ColdRead) -> Vec<u8> {
    let range = read.range();
    Vec::with_capacity((range.end - range.start) as usize)
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
