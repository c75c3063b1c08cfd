//! What the allocator does with memory that is freed.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use tikv_jemalloc_sys::mallctl;

/// Gives freed memory back to the operating system at once, from here on.
///
/// By default the allocator keeps it for ten seconds. That suits a server. A build frees what it has read and loads what it
/// sorts next, so that it would have both: at 16 threads and 64 MiB it took 205 MiB, and takes 128 MiB with this.
pub fn return_freed_memory() {
    for kind in ["dirty", "muzzy"] {
        set_at_once(&format!("arenas.{kind}_decay_ms"));
        for arena in 0..arenas() {
            // Most of them do not exist, which is an error that changes nothing.
            set_at_once(&format!("arena.{arena}.{kind}_decay_ms"));
        }
    }
}

/// How many arenas there may be.
fn arenas() -> u32 {
    let mut arenas = 0_u32;
    let mut bytes = size_of::<u32>();
    // SAFETY: the name is a string of C, this value is a number of 32 bits, and `bytes` says so.
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
    // SAFETY: the name is a string of C, and these values are numbers of the size of a pointer.
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
