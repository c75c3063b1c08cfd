//! A faulty disk: `read` and `pread` of a part of a file fail with `EIO`.
//!
//! Replaces the two functions of the C library in every test program that links it; without a fault they behave as
//! usual. Reads through mmap or io_uring are not affected.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

/// The number of unreadable parts of files: checked first.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static UNREADABLE: Mutex<Vec<Unreadable>> = Mutex::new(Vec::new());

/// A part of a file that stays unreadable until this is dropped.
#[derive(Debug)]
pub struct Unreadable {
    device: u64,
    inode: u64,
    bytes: Range<u64>,
}

/// Makes every read of these bytes of a file fail, in this process: also through other names and handles of the file.
///
/// # Panics
/// If the file does not exist.
#[must_use = "it ends when this is dropped"]
pub fn fail_reads(path: &Path, bytes: Range<u64>) -> Unreadable {
    let metadata = std::fs::metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let unreadable = |bytes| Unreadable {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes,
    };
    let mut all = UNREADABLE.lock();
    all.push(unreadable(bytes.clone()));
    COUNT.store(all.len(), Relaxed);
    unreadable(bytes)
}

impl Drop for Unreadable {
    fn drop(&mut self) {
        let mut all = UNREADABLE.lock();
        let is_this =
            |other: &Self| (other.device, other.inode, &other.bytes) == (self.device, self.inode, &self.bytes);
        if let Some(at) = all.iter().position(is_this) {
            // Not dropped: that would call this function again.
            std::mem::forget(all.swap_remove(at));
        }
        COUNT.store(all.len(), Relaxed);
    }
}

/// How many bytes can be read from an offset; `None` if all requested bytes can.
fn readable(fd: c_int, offset: u64, count: usize) -> Option<usize> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    // SAFETY: all zeros is a `stat`; `fstat` writes it, and nothing else.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut status) == 0).then_some(status)
    }?;
    let all = UNREADABLE.lock();
    let of_file = all
        .iter()
        .filter(|one| (one.device, one.inode) == (status.st_dev, status.st_ino));
    let end = offset + count as u64;
    let first = of_file.filter(|one| one.bytes.start < end && offset < one.bytes.end);
    first.map(|one| one.bytes.start.saturating_sub(offset) as usize).min()
}

fn fail() -> isize {
    // SAFETY: the place of this thread's error number is always there.
    unsafe { *libc::__errno_location() = libc::EIO };
    -1
}

/// The function of the C library.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(fd: c_int, buffer: *mut c_void, count: usize, offset: i64) -> isize {
    let count = match readable(fd, offset as u64, count) {
        Some(0) => return fail(),
        readable => readable.unwrap_or(count),
    };
    // SAFETY: the caller's arguments, for no more bytes than the caller has room for.
    unsafe { libc::syscall(libc::SYS_pread64, fd, buffer, count, offset) as isize }
}

/// The function of the C library.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, buffer: *mut c_void, count: usize, offset: i64) -> isize {
    // SAFETY: passed on.
    unsafe { pread64(fd, buffer, count, offset) }
}

/// The function of the C library.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: usize) -> isize {
    let mut count = count;
    if COUNT.load(Relaxed) > 0 {
        // SAFETY: `lseek` by 0 only reads the offset. A descriptor without an offset is not a file.
        let offset = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
        if let Ok(offset) = u64::try_from(offset) {
            count = match readable(fd, offset, count) {
                Some(0) => return fail(),
                readable => readable.unwrap_or(count),
            };
        }
    }
    // SAFETY: the caller's arguments, for no more bytes than the caller has room for.
    unsafe { libc::syscall(libc::SYS_read, fd, buffer, count) as isize }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn part_of_a_file_is_unreadable_until_the_fault_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, (0..100).collect::<Vec<u8>>()).unwrap();
        let file = File::open(&path).unwrap();
        let read = |from: u64, count: usize| {
            let mut bytes = vec![0; count];
            file.read_exact_at(&mut bytes, from)
                .map(|()| bytes)
                .map_err(|error| error.raw_os_error())
        };
        {
            let _unreadable = fail_reads(&path, 10..20);
            assert_eq!(read(0, 10).unwrap().len(), 10);
            assert_eq!(read(20, 80).unwrap()[0], 20);
            for (from, count) in [(0, 11), (10, 1), (15, 5), (19, 50)] {
                assert_eq!(read(from, count), Err(Some(libc::EIO)), "{count} bytes from {from}");
            }
            assert_eq!(std::fs::read(&path).unwrap_err().raw_os_error(), Some(libc::EIO));
        }
        assert_eq!(read(0, 100).unwrap().len(), 100);
        assert_eq!(std::fs::read(&path).unwrap().len(), 100);
    }
}
