//! Reads a whole file, except parts that the disk cannot read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::Errno;

use crate::failure::is_unreadable;

/// The size of a read, and the size of the part that is skipped if the disk cannot read it.
const CHUNK_BYTES: usize = 1 << 20;
const PLACE_BYTES: usize = 4096;
/// After this number of unreadable places, the rest of the file is skipped: a disk can take seconds for each.
const UNREADABLE_PLACES_MAX: usize = 64;

/// The readable content of a file, without the hole at its end: space that was reserved and never written.
#[derive(Debug)]
pub(crate) struct Readable {
    /// The bytes, with zeros where the disk could not read them.
    pub(crate) bytes: Vec<u8>,
    /// The error, if the disk could not read a part.
    pub(crate) unreadable: Option<io::Error>,
}

/// Reads a file from the disk and not from the page cache, which may contain data that could not be written.
pub(crate) fn read(path: &Path) -> io::Result<Readable> {
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let length = file.metadata()?.len();
    let mut bytes = vec![0; data_end(&file).unwrap_or(length).min(length) as usize];
    let (mut unreadable, mut places) = (None, 0);
    for (at, chunk) in bytes.chunks_mut(CHUNK_BYTES).enumerate() {
        let start = at * CHUNK_BYTES;
        match file.read_exact_at(chunk, start as u64) {
            Err(error) if is_unreadable(&error) => {}
            read => {
                read?;
                continue;
            }
        }
        for (at, place) in chunk.chunks_mut(PLACE_BYTES).enumerate() {
            let read = match places < UNREADABLE_PLACES_MAX {
                true => file.read_exact_at(place, (start + at * PLACE_BYTES) as u64),
                false => {
                    place.fill(0);
                    continue;
                }
            };
            match read {
                Err(error) if is_unreadable(&error) => {
                    place.fill(0);
                    places += 1;
                    unreadable = Some(error);
                }
                read => read?,
            }
        }
    }
    Ok(Readable { bytes, unreadable })
}

/// The end of the last data of a file, which is followed only by a hole. Reading a hole would fill the page cache with zeros.
fn data_end(file: &File) -> Result<u64, Errno> {
    let mut end = 0;
    loop {
        match seek(file, SeekFrom::Data(end)) {
            Ok(data) => end = seek(file, SeekFrom::Hole(data))?,
            // No data after this place.
            Err(Errno::NXIO) => return Ok(end),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    #[test]
    fn the_hole_at_the_end_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        assert_eq!(read(&path).unwrap().bytes, b"");
        fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", 5 << 20).unwrap();
        for is_synced in [false, true] {
            if is_synced {
                file.sync_all().unwrap();
            }
            let bytes = read(&path).unwrap().bytes;
            // Data ends with a whole block.
            let written = (5 << 20) + 3;
            assert!(bytes.len() >= written && bytes.len() < 6 << 20, "{}", bytes.len());
            assert!(bytes.starts_with(b"begin") && bytes[5 << 20..].starts_with(b"end"));
            assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 8);
        }
    }
}
