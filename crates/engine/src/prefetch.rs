//! Asking memory for what will be looked at soon.

/// Begins to load the first bytes of something into the processor's cache. It never waits, and changes nothing.
#[inline]
pub(crate) fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// How much of memory is loaded at once, in bytes.
const LINE_BYTES: usize = 64;

/// Begins to load all of something.
#[inline]
pub(crate) fn prefetch_all(bytes: &[u8]) {
    bytes.iter().step_by(LINE_BYTES).for_each(prefetch);
}

/// Begins to load what is about there in a list, so far to either side.
#[inline]
pub(crate) fn prefetch_near<T>(list: &[T], at: usize, near: usize) {
    let from = at.saturating_sub(near).min(list.len());
    let to = (at + near + 1).min(list.len());
    let list = &list[from..to];
    let step = (LINE_BYTES / size_of::<T>()).max(1);
    list.iter().step_by(step).chain(list.last()).for_each(prefetch);
}
