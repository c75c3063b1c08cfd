//! A record is decoded for every read: with one sibling, as nearly all records have, that costs no allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{DotSource, Over, Record, ReplicaId, Update, VectorClock};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator with a counter.
struct Counting;

// SAFETY: all calls are passed to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps to the contract of the trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.with(Cell::get);
    let done = work();
    (ALLOCATIONS.with(Cell::get) - before, done)
}

#[test]
fn a_record_with_one_sibling_is_decoded_without_an_allocation() {
    let mut record = Record::default();
    for number in 1..=3 {
        let node = NodeId::new(number).unwrap();
        let mut dots = DotSource::new(ReplicaId { node, incarnation: 1 }, 0);
        let update = Update::put(vec![7; 1024].into(), 1_700_000_000_000, Some(1_800_000_000_000));
        record = Record::write(Some(&record), &mut dots, Over::All(&VectorClock::new()), update).unwrap();
    }
    let bytes = Bytes::from(record.to_bytes());
    // As an engine returns it: shared with its cache.
    let cached = bytes.clone();
    let (count, decoded) = allocations(|| Record::decode(bytes));
    assert_eq!((count, decoded), (0, Ok(record)));
    let (count, context) = allocations(|| Record::decode_context(&cached));
    assert_eq!((count, context.unwrap().entries().len()), (0, 3));
}
