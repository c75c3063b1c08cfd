//! A faulty disk: `fsync` and `fdatasync` fail, for one thread, by a seccomp filter in the kernel.

use std::io;

/// Makes every `fsync` and `fdatasync` of this thread, and of threads that it starts later, fail with `EIO`, until the
/// thread ends. They sync nothing.
///
/// # Panics
/// If the kernel refuses the filter.
pub fn fail_syncs_of_this_thread() {
    let statement = |code: u32, jump: u8, otherwise: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: jump,
        jf: otherwise,
        k,
    };
    let is_call = |call: libc::c_long, jump: u8, otherwise: u8| {
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            jump,
            otherwise,
            call as u32,
        )
    };
    let answer = |action: u32| statement(libc::BPF_RET | libc::BPF_K, 0, 0, action);
    let mut program = [
        // The first field that the kernel passes is the number of the call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        is_call(libc::SYS_fsync, 1, 0),
        is_call(libc::SYS_fdatasync, 0, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: prctl reads its arguments, and the program that `filter` points to, before it returns; both live on.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(set, "no filter of system calls: {}", io::Error::last_os_error());
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_syncs_of_that_thread_fail() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("file")).unwrap();
        std::thread::scope(|scope| {
            let failing = scope.spawn(|| {
                fail_syncs_of_this_thread();
                [file.sync_all(), file.sync_data()].map(|synced| synced.unwrap_err().raw_os_error())
            });
            assert_eq!(failing.join().unwrap(), [Some(libc::EIO); 2]);
        });
        file.sync_all().unwrap();
        file.sync_data().unwrap();
    }
}
