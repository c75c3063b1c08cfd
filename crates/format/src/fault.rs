//! Handling of unreadable pages of mapped files.
//!
//! The disk has an unreadable sector, or another program truncated the file. Linux reports the access to such a page
//! with the signal SIGBUS, which ends the process unless it is handled. The handler here replaces the page with a
//! page of zeros, and the instruction continues. No zeros are ever served, for three reasons:
//!
//! 1. A counter of such pages is incremented *before* the zeros appear. A reader of a mapping takes a [`Watch`] first
//!    and checks it after the last byte; if it is not clean, all bytes read are discarded.
//! 2. The mapping is marked as damaged, and all its residency stamps are cleared: from then on, look-ups read its file
//!    by system calls, which report errors and can still read the intact parts.
//! 3. Zeros have no valid checksum.
//!
//! The cost: two loads per look-up, of a number that all cores share without changing it.
//!
//! Signal handlers may call few functions and take no locks. So the mappings are in a table of slots that are never
//! freed, only reused, and each slot is read and written by atomic operations.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use std::sync::{Once, OnceLock};

use parking_lot::Mutex;

/// The number of mappings in one block of the table.
const SLOTS_PER_BLOCK: usize = 256;

/// The number of unreadable pages since the process started.
static PAGES: AtomicU64 = AtomicU64::new(0);

/// The page size, in bytes. Set before the handler is installed.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

/// The previous handler of the signal.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

static BLOCKS: Block = Block::new();

/// Slots without a mapping.
static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

/// The number of unreadable pages of mapped files since the process started.
pub fn unreadable_pages() -> u64 {
    PAGES.load(Relaxed)
}

/// Detects whether any mapping had an unreadable page since this was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch(u64);

impl Watch {
    /// Call this before the first byte is read.
    #[inline]
    pub(crate) fn begin() -> Self {
        Self(PAGES.load(Acquire))
    }

    /// Call this after the last byte was read. Returns whether all bytes came from files.
    #[inline]
    pub(crate) fn is_clean(self) -> bool {
        // No byte is read after the counter.
        fence(Acquire);
        PAGES.load(Relaxed) == self.0
    }
}

/// The address range of a mapping. The slot is free if the range begins at 0.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    stamps: AtomicPtr<AtomicU16>,
    stamps_count: AtomicUsize,
    unreadable: AtomicU32,
}

struct Block {
    slots: [Slot; SLOTS_PER_BLOCK],
    next: AtomicPtr<Block>,
}

impl Slot {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            stamps: AtomicPtr::new(ptr::null_mut()),
            stamps_count: AtomicUsize::new(0),
            unreadable: AtomicU32::new(0),
        }
    }

    /// Whether the mapping contains this address.
    fn contains(&self, address: usize) -> bool {
        let start = self.start.load(Acquire);
        let end = self.end.load(Acquire);
        // The slot may have been reused for another mapping in between.
        start != 0 && (start..end).contains(&address) && self.start.load(Relaxed) == start
    }
}

impl Block {
    const fn new() -> Self {
        Self {
            slots: [const { Slot::new() }; SLOTS_PER_BLOCK],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// This block and all blocks after it.
    fn all(&'static self) -> impl Iterator<Item = &'static Self> {
        std::iter::successors(Some(self), |block| {
            // SAFETY: blocks are never removed from the list.
            unsafe { block.next.load(Acquire).as_ref() }
        })
    }
}

/// Replaces unreadable pages of a mapping with zeros until it is dropped. It must be dropped before the mapping and its
/// stamps.
pub(crate) struct Guard(&'static Slot);

impl Guard {
    /// Guards this address range.
    pub(crate) fn new(addresses: Range<usize>, stamps: &[AtomicU16]) -> Self {
        install();
        let slot = free_slot();
        slot.unreadable.store(0, Relaxed);
        slot.stamps.store(stamps.as_ptr().cast_mut(), Relaxed);
        slot.stamps_count.store(stamps.len(), Relaxed);
        slot.end.store(addresses.end, Relaxed);
        slot.start.store(addresses.start, Release);
        Self(slot)
    }

    /// Whether the mapping had an unreadable page.
    pub(crate) fn is_damaged(&self) -> bool {
        self.0.unreadable.load(Relaxed) > 0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(0, SeqCst);
        FREE.lock().push(self.0);
    }
}

fn free_slot() -> &'static Slot {
    let mut free = FREE.lock();
    if let Some(slot) = free.pop() {
        return slot;
    }
    static FIRST: Once = Once::new();
    let mut block: &'static Block = &BLOCKS;
    if FIRST.is_completed() {
        block = Box::leak(Box::new(Block::new()));
        // The list grows only here, under the lock.
        let last = BLOCKS.all().last().unwrap_or(&BLOCKS);
        last.next.store(ptr::from_ref(block).cast_mut(), Release);
    }
    FIRST.call_once(|| {});
    let (first, others) = (&block.slots[0], &block.slots[1..]);
    free.extend(others);
    first
}

/// Installs the signal handler.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        PAGE_BYTES.store(rustix::param::page_size(), SeqCst);
        // SAFETY: zeros are a valid value of this plain structure.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_bus_error as *const () as usize;
        // Use the alternate signal stack, if the thread has one: the fault may be an overflow of its own stack.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both structures are valid; the call fills the second one.
        unsafe {
            let mut former: libc::sigaction = MaybeUninit::zeroed().assume_init();
            // Store it before the handler may need it.
            if libc::sigaction(libc::SIGBUS, ptr::null(), &mut former) == 0 {
                let _ = FORMER.set(former);
            }
            // If this fails, an unreadable page ends the process, as without a handler.
            libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
        }
    });
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid structure, which has an address for this signal.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: it points to the thread's own `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let errno_before = unsafe { *errno };
    let slots = BLOCKS.all().flat_map(|block| &block.slots);
    let mut found = slots.filter(|slot| slot.contains(address));
    if !found.next().is_some_and(|slot| replace_page(slot, address)) {
        pass_on(signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *errno = errno_before };
}

/// Replaces the page at an address of a mapping with a page of zeros.
fn replace_page(slot: &Slot, address: usize) -> bool {
    PAGES.fetch_add(1, SeqCst);
    slot.unreadable.fetch_add(1, SeqCst);
    let stamps = slot.stamps.load(Relaxed);
    for at in 0..slot.stamps_count.load(Relaxed) {
        // SAFETY: the thread that touched the page borrows the mapping, so the stamps are alive.
        unsafe { (*stamps.add(at)).store(0, Relaxed) };
    }
    let page_bytes = PAGE_BYTES.load(Relaxed);
    let page = address / page_bytes * page_bytes;
    // SAFETY: the page belongs to a mapping of a file, which is page-aligned and read-only. From now on, a reader finds
    // zeros and a changed counter.
    let replaced = unsafe {
        libc::mmap(
            page as *mut c_void,
            page_bytes,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    replaced != libc::MAP_FAILED
}

/// Passes a fault outside of our mapped files to the previous handler.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let former = FORMER.get();
    let handler = former.map_or(libc::SIG_DFL, |former| former.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The instruction is retried on return, and ends the process.
        // SAFETY: it changes only the handler of a signal.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    if former.is_some_and(|former| former.sa_flags & libc::SA_SIGINFO != 0) {
        // SAFETY: the flag says that the handler has this signature.
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag the handler has this signature.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_and_their_number_grows() {
        let stamps = [const { AtomicU16::new(0) }; 1];
        let first = 1 << 40;
        let range = |at: usize| first + at * 4096..first + (at + 1) * 4096;
        let guards: Vec<Guard> = (0..3 * SLOTS_PER_BLOCK)
            .map(|at| Guard::new(range(at), &stamps))
            .collect();
        let holders = |address: usize| {
            let slots = BLOCKS.all().flat_map(|block| &block.slots);
            slots.filter(|slot| slot.contains(address)).count()
        };
        for at in [0, 1, SLOTS_PER_BLOCK, 3 * SLOTS_PER_BLOCK - 1] {
            assert_eq!((holders(range(at).start), holders(range(at).end - 1)), (1, 1));
        }
        let blocks = BLOCKS.all().count();
        drop(guards);
        assert_eq!(holders(first), 0);
        let again: Vec<Guard> = (0..3 * SLOTS_PER_BLOCK)
            .map(|at| Guard::new(range(at), &stamps))
            .collect();
        assert_eq!(BLOCKS.all().count(), blocks, "freed slots are reused");
        drop(again);
    }
}
