//! Reads past the page cache: right values, wherever records lie in their files, and errors only for what cannot be read.

#[path = "../../format/tests/written/mod.rs"]
mod written;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use fondaco_cold::ColdReads;
use fondaco_format::{Compression, FormatError, Lookup, MANIFEST_FILE, Version, direct_reads};
use rustix::fs::{Advice, AtFlags, StatxFlags, fadvise, statx};
use tokio::task::LocalSet;

use written::{Shape, write};

const KEYS: u32 = 2000;
/// How many reads are under way at a time: more than a ring has.
const AT_ONCE: usize = 300;

fn key(number: u32) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// Some buckets end within a page, others have several.
fn value(number: u32) -> Vec<u8> {
    vec![number as u8; (number * 37 % 5000) as usize]
}

/// A version of these keys of which nothing is in memory but the indexes.
fn version(dir: &Path) -> Arc<Version> {
    let records: BTreeMap<_, _> = (0..KEYS).map(|number| (key(number), value(number))).collect();
    let shape = Shape {
        partitions: 2,
        chunks: 2,
        compression: Compression::None,
    };
    write(dir, &records, &shape);
    for entry in std::fs::read_dir(dir).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
    let mut version = Version::open(dir).unwrap();
    version.warm_and_close().unwrap();
    Arc::new(version)
}

/// Whether files in a directory can be read past the page cache by a ring.
fn has_direct_reads(dir: &Path) -> bool {
    let status = statx(
        rustix::fs::CWD,
        dir.join(MANIFEST_FILE),
        AtFlags::empty(),
        StatxFlags::DIOALIGN,
    )
    .unwrap();
    let is_told = status.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    is_told && (1..=4096).contains(&status.stx_dio_offset_align) && io_uring::IoUring::new(8).is_ok()
}

/// Looks all keys up, past the page cache, and returns the errors. Every value that is found is right.
async fn look_up_all(cold: &ColdReads, version: &Arc<Version>) -> Vec<FormatError> {
    let mut errors = Vec::new();
    let numbers: Vec<u32> = (0..KEYS).collect();
    for numbers in numbers.chunks(AT_ONCE) {
        let mut under_way = Vec::new();
        for &number in numbers {
            let key = key(number);
            match version.lookup(&version.probe(&key), &key).unwrap() {
                Lookup::Cold(read) => under_way.push((number, cold.start(version, version.directly(read)))),
                Lookup::Found(found) => assert_eq!(&found[..], value(number)),
                Lookup::Absent => panic!("key {number} is absent"),
            }
        }
        for (number, read) in under_way {
            match cold.finish(version, &key(number), read).await {
                Ok(found) => assert_eq!(&found.expect("a key that exists")[..], value(number)),
                Err(error) => errors.push(error),
            }
        }
    }
    errors
}

fn in_a_loop<T>(work: impl AsyncFnOnce(ColdReads) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async { work(ColdReads::new(Arc::default())).await })
}

/// In one test, since reads are counted for the process.
#[test]
fn values_read_past_the_page_cache_are_right_and_leave_no_pages_behind() {
    let dir = tempfile::tempdir().unwrap();
    let version = version(dir.path());
    let is_in_memory = |number: u32| {
        let key = key(number);
        !matches!(version.lookup(&version.probe(&key), &key).unwrap(), Lookup::Cold(_))
    };
    if !has_direct_reads(dir.path()) || (0..KEYS).all(is_in_memory) {
        return println!("there are no direct reads, or files are always in memory: nothing is tested");
    }
    in_a_loop(async |cold| {
        let before = (0..KEYS).filter(|&number| is_in_memory(number)).count();
        let errors = look_up_all(&cold, &version).await;
        assert!(errors.is_empty(), "{errors:?}");
        assert!(direct_reads() > u64::from(KEYS / 2), "{} reads", direct_reads());
        let after = (0..KEYS).filter(|&number| is_in_memory(number)).count();
        assert_eq!(before, after, "direct reads bring nothing into memory");
        // Shorter than its manifest says: no read of its rest succeeds, in either way.
        let data = &version.manifest().chunks[0].data;
        let file = OpenOptions::new()
            .write(true)
            .open(dir.path().join(&data.name))
            .unwrap();
        file.set_len(data.bytes / 2 + 1).unwrap();
        let errors = look_up_all(&cold, &version).await;
        // An eighth of the keys.
        assert!(
            (KEYS as usize / 12..KEYS as usize / 6).contains(&errors.len()),
            "{}",
            errors.len()
        );
        assert!(
            errors.iter().all(|error| error.to_string().contains(&data.name)),
            "{}",
            errors[0]
        );
        assert_eq!(version.damaged().len(), 1);
    });
}
