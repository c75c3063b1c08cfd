//! Files that are not here as a whole yet: a version can be open while its files are fetched.
//!
//! Such a file has its full length, with holes. Before a range is read, the missing *pieces* that it lies in are brought
//! here, by whatever fetches the file. A piece is brought together with the records or index blocks around it, so that
//! every byte of it is verified before it can be read. Look-ups in memory know nothing of this: a range that is not here is
//! not resident.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::chunk::index::{BLOCK_BYTES, block_is_intact};

/// The length of a piece, in bytes; the last one of a file may be shorter. A multiple of the unit of residency.
pub const PIECE_BYTES: u64 = 64 << 10;

/// A file that is not here as a whole yet.
pub trait PartialFile: Send + Sync {
    /// Its path. The file has its full length.
    fn path(&self) -> &Path;

    /// Whether a range is here, verified.
    fn has(&self, range: &Range<u64>) -> bool;

    /// Brings missing pieces here, and waits for them for a bounded time. `around` contains them, and `is_intact` verifies
    /// its bytes.
    ///
    /// # Errors
    /// [`FormatError::is_missing`](crate::FormatError::is_missing) recognises them: no source gives the bytes, or the disk does not take them.
    fn bring(&self, pieces: Range<u64>, around: Range<u64>, is_intact: &dyn Fn(&[u8]) -> bool) -> io::Result<()>;
}

/// Where a file of a version is.
#[derive(Clone)]
pub enum FilePlace {
    /// At this path, as a whole.
    Whole(PathBuf),
    /// Here in part.
    Partial(Arc<dyn PartialFile>),
}

/// An error for bytes that no source gives: the file itself is not damaged.
pub fn missing_error(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::HostUnreachable, reason)
}

/// Whether an error says that bytes of a file could not be brought here.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// The missing pieces that a range of a file of this length lies in, as ranges of bytes: neighbours together.
pub(crate) fn missing(partial: &dyn PartialFile, range: &Range<u64>, file_bytes: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for piece in range.start / PIECE_BYTES..range.end.div_ceil(PIECE_BYTES) {
        let piece = piece * PIECE_BYTES..file_bytes.min((piece + 1) * PIECE_BYTES);
        if piece.is_empty() || partial.has(&piece) {
            continue;
        }
        match runs.last_mut().filter(|last| last.end == piece.start) {
            Some(last) => last.end = piece.end,
            None => runs.push(piece),
        }
    }
    runs
}

/// Brings blocks of an index file of this length here.
pub(crate) fn bring_blocks(partial: &dyn PartialFile, range: &Range<u64>, file_bytes: u64) -> io::Result<()> {
    let is_intact = |bytes: &[u8]| bytes.chunks(BLOCK_BYTES).all(block_is_intact);
    for pieces in missing(partial, range, file_bytes) {
        partial.bring(pieces.clone(), pieces, &is_intact)?;
    }
    Ok(())
}
