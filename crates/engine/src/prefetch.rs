//! Prefetching memory that will be read soon.

/// Starts to load the first bytes of a value into the processor's cache. Never waits, and changes nothing.
#[inline]
pub(crate) fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect that the program can observe, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// The size of a cache line, in bytes.
const LINE_BYTES: usize = 64;

/// Starts to load all of a byte string.
#[inline]
pub(crate) fn prefetch_all(bytes: &[u8]) {
    bytes.iter().step_by(LINE_BYTES).for_each(prefetch);
}

/// Starts to load the elements of a list from `at - near` to `at + near`.
#[inline]
pub(crate) fn prefetch_near<T>(list: &[T], at: usize, near: usize) {
    let from = at.saturating_sub(near).min(list.len());
    let to = (at + near + 1).min(list.len());
    let list = &list[from..to];
    let step = (LINE_BYTES / size_of::<T>()).max(1);
    list.iter().step_by(step).chain(list.last()).for_each(prefetch);
}
