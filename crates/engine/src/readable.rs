//! Reading a whole file of which the disk may not be able to read all.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::failure::is_unreadable;

/// How much is read at a time, and how much of that is given up where the disk cannot read it.
const CHUNK_BYTES: usize = 1 << 20;
const PLACE_BYTES: usize = 4096;
/// After so many places that cannot be read, no more of the file is tried: a disk can take seconds for each.
const UNREADABLE_PLACES_MAX: usize = 64;

/// What there is of a file.
#[derive(Debug)]
pub(crate) struct Readable {
    /// Its bytes, and zeros where the disk could not read them.
    pub(crate) bytes: Vec<u8>,
    /// Why it could not, if so.
    pub(crate) unreadable: Option<io::Error>,
}

/// Reads a file as the disk has it, and not what the kernel remembers of it: that may be what it could not write.
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
