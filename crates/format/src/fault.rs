//! Pages of mapped files that cannot be read.
//!
//! Linux tells a program that touches such a page by the signal SIGBUS, which ends the process unless it is
//! handled: the disk has an unreadable sector, or the file was truncated behind our back. Here it is
//! handled: a page of zeros takes the place of the page, and the instruction goes on. No zero is ever
//! served, since three things hold:
//!
//! 1. A count of such pages grows *before* the zeros appear. A reader of a mapping takes a [`Watch`]
//!    first and looks at it again after the last byte; if it is not clean, all that was read is discarded.
//! 2. The mapping is marked as damaged, and all its residency stamps are cleared: from then on look-ups
//!    read its file by system calls, which report errors as errors and find what is still readable.
//! 3. Zeros have no valid checksum.
//!
//! What it costs: two loads of a number that all cores share unchanged, for each look-up.
//!
//! Handlers of signals may call little, and take no lock. So the mappings are in a table of slots that are
//! never freed, only used again, and each slot is read and written by atomic operations.

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

/// How many mappings one block of the table has room for.
const SLOTS_PER_BLOCK: usize = 256;

/// How many pages could not be read since the process began.
static PAGES: AtomicU64 = AtomicU64::new(0);

/// The length of a page, in bytes. Set before the handler is.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

/// What was done at the signal before.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

static BLOCKS: Block = Block::new();

/// Slots that hold no mapping.
static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

/// How many pages of mapped files could not be read since the process began.
pub fn unreadable_pages() -> u64 {
    PAGES.load(Relaxed)
}

/// Whether a page could not be read since this was made, in any mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch(u64);

impl Watch {
    /// To be made before the first byte is read.
    #[inline]
    pub(crate) fn begin() -> Self {
        Self(PAGES.load(Acquire))
    }

    /// To be asked after the last byte was read: whether all of them came from files.
    #[inline]
    pub(crate) fn is_clean(self) -> bool {
        // No byte is read after the count.
        fence(Acquire);
        PAGES.load(Relaxed) == self.0
    }
}

/// Where a mapping lies. Free if it begins at 0.
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

    /// Whether the mapping has a byte at this address.
    fn contains(&self, address: usize) -> bool {
        let start = self.start.load(Acquire);
        let end = self.end.load(Acquire);
        // The slot may have been given to another mapping in between.
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

    /// This block and all after it.
    fn all(&'static self) -> impl Iterator<Item = &'static Self> {
        std::iter::successors(Some(self), |block| {
            // SAFETY: a block is in the list for ever once it is in it.
            unsafe { block.next.load(Acquire).as_ref() }
        })
    }
}

/// A mapping whose unreadable pages are replaced by zeros as long as this lives. It must be dropped before
/// the mapping and its stamps are.
pub(crate) struct Guard(&'static Slot);

impl Guard {
    /// Guards these addresses.
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

    /// Whether a page of the mapping could not be read.
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
        // Only here, under the lock, the list grows.
        let last = BLOCKS.all().last().unwrap_or(&BLOCKS);
        last.next.store(ptr::from_ref(block).cast_mut(), Release);
    }
    FIRST.call_once(|| {});
    let (first, others) = (&block.slots[0], &block.slots[1..]);
    free.extend(others);
    first
}

/// Handles the signal from now on.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        PAGE_BYTES.store(rustix::param::page_size(), SeqCst);
        // SAFETY: zeros are a valid value of the plain structure that the system call takes.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_bus_error as *const () as usize;
        // On the stack for signals, if the thread has one: its own may be what is short.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both structures are valid; the second is filled by the call.
        unsafe {
            let mut former: libc::sigaction = MaybeUninit::zeroed().assume_init();
            // Known before the handler may need it.
            if libc::sigaction(libc::SIGBUS, ptr::null(), &mut former) == 0 {
                let _ = FORMER.set(former);
            }
            // Should it fail, an unreadable page ends the process, as it would without all this.
            libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
        }
    });
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid structure, which has an address for this signal.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: it points to a number of this thread.
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

/// Puts a page of zeros in the place of the page at an address of a mapping.
fn replace_page(slot: &Slot, address: usize) -> bool {
    PAGES.fetch_add(1, SeqCst);
    slot.unreadable.fetch_add(1, SeqCst);
    let stamps = slot.stamps.load(Relaxed);
    for at in 0..slot.stamps_count.load(Relaxed) {
        // SAFETY: the thread that touched the page borrows the mapping, and so its stamps live.
        unsafe { (*stamps.add(at)).store(0, Relaxed) };
    }
    let page_bytes = PAGE_BYTES.load(Relaxed);
    let page = address / page_bytes * page_bytes;
    // SAFETY: the page belongs to a mapping of a file, which begins and ends with a page and which is only
    // read. A reader finds zeros from now on, and that the count has changed.
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

/// What is not of a mapped file of ours is handled as it was before.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let former = FORMER.get();
    let handler = former.map_or(libc::SIG_DFL, |former| former.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The instruction is tried again when this returns, and ends the process.
        // SAFETY: it changes what is done at a signal, and nothing else.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    if former.is_some_and(|former| former.sa_flags & libc::SA_SIGINFO != 0) {
        // SAFETY: the flag says that it is such a function.
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag it is such a function.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_there_are_as_many_as_it_takes() {
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
        assert_eq!(BLOCKS.all().count(), blocks, "slots that were given back are used");
        drop(again);
    }
}
