//! Settings of the allocator that decide when freed memory goes back to the operating system.

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;

use tikv_jemalloc_sys::mallctl;

/// jemalloc's name for returning the unused memory of all arenas; the number is its `MALLCTL_ARENAS_ALL`.
const PURGE_ALL: &CStr = c"arena.4096.purge";

/// Returns the memory that is free now to the operating system.
///
/// By default the allocator keeps freed memory for ten seconds. A build frees the memory of its reading phase just before it loads
/// the data to sort, and would hold both.
pub fn return_freed_memory() {
    // SAFETY: the name is a C string, and the call takes and returns no value.
    unsafe {
        mallctl(PURGE_ALL.as_ptr(), null_mut(), null_mut(), null_mut(), 0);
    }
}

/// From here on, returns freed memory to the operating system at once.
///
/// A build then takes the least memory: at 16 threads and 64 MiB, 128 MiB instead of 205. But it takes longer, since it frees and takes
/// the same memory again and again: with 2 threads half as long again, with 16 a third.
pub fn always_return_freed_memory() {
    for kind in ["dirty", "muzzy"] {
        set_at_once(&format!("arenas.{kind}_decay_ms"));
        for arena in 0..arenas() {
            // Most of these arenas do not exist; the error for a missing one changes nothing.
            set_at_once(&format!("arena.{arena}.{kind}_decay_ms"));
        }
    }
}

/// The largest possible number of arenas.
fn arenas() -> u32 {
    let mut arenas = 0_u32;
    let mut bytes = size_of::<u32>();
    // SAFETY: the name is a C string, the value is a 32-bit number, and `bytes` is its size.
    let error = unsafe {
        mallctl(
            c"arenas.narenas".as_ptr(),
            (&raw mut arenas).cast::<c_void>(),
            &raw mut bytes,
            null_mut(),
            0,
        )
    };
    if error == 0 { arenas } else { 0 }
}

fn set_at_once(name: &str) {
    let Ok(name) = CString::new(name) else { return };
    let mut milliseconds = 0_isize;
    // SAFETY: the name is a C string, and the values are pointer-sized numbers.
    unsafe {
        mallctl(
            name.as_ptr(),
            null_mut(),
            null_mut(),
            (&raw mut milliseconds).cast::<c_void>(),
            size_of::<isize>(),
        );
    }
}
