//! Reads a whole file, except parts that the disk cannot read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::failure::is_unreadable;

/// The size of a read, and the size of the part that is skipped if the disk cannot read it.
const CHUNK_BYTES: usize = 1 << 20;
const PLACE_BYTES: usize = 4096;
/// After this number of unreadable places, the rest of the file is skipped: a disk can take seconds for each.
const UNREADABLE_PLACES_MAX: usize = 64;

/// The readable content of a file.
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
    let mut bytes = vec![0; file.metadata()?.len() as usize];
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
