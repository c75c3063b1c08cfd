//! Opens text files: plain, gzip or zstd, detected by their first bytes.
//!
//! A truncated compressed file is a decompression error, never a short file.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use flate2::read::MultiGzDecoder;

use super::discover::STANDARD_INPUT;
use crate::error::BuildError;
use crate::progress::Progress;

const READ_BUFFER_BYTES: usize = 256 << 10;

/// The longest line or row of a text file: a value of 64 MiB in JSON, with some escapes.
pub(crate) const LINE_BYTES_MAX: usize = 160 << 20;

/// Opens the text of a file.
pub(crate) fn open<'a>(path: &Path, progress: &'a Progress) -> Result<Box<dyn Read + 'a>, BuildError> {
    let failed = |e| BuildError::unreadable(path, e);
    let mut file = open_file(path).map_err(failed)?;
    let mut magic = Vec::new();
    (&mut file).take(4).read_to_end(&mut magic).map_err(failed)?;
    let counted = Counted {
        file: io::Cursor::new(magic.clone()).chain(file),
        progress,
    };
    match magic[..] {
        [0x1f, 0x8b, ..] => {
            let buffered = BufReader::with_capacity(READ_BUFFER_BYTES, counted);
            Ok(Box::new(WithoutMark::new(MultiGzDecoder::new(buffered))))
        }
        [0x28, 0xb5, 0x2f, 0xfd] => {
            let buffered = BufReader::with_capacity(READ_BUFFER_BYTES, counted);
            let decoder = zstd::stream::read::Decoder::with_buffer(buffered).map_err(failed)?;
            Ok(Box::new(WithoutMark::new(decoder)))
        }
        _ => Ok(Box::new(WithoutMark::new(counted))),
    }
}

/// Opens a file. The standard input is used directly: a socket cannot be opened by its path, and a file must be read
/// from its current position.
fn open_file(path: &Path) -> io::Result<File> {
    match path.to_str() {
        Some(STANDARD_INPUT) => Ok(io::stdin().as_fd().try_clone_to_owned()?.into()),
        _ => File::open(path),
    }
}

/// Counts the bytes read from the file itself.
struct Counted<'a> {
    file: io::Chain<io::Cursor<Vec<u8>>, File>,
    progress: &'a Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.progress.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Drops the byte order mark that some programs write before UTF-8.
struct WithoutMark<R> {
    reader: R,
    /// The bytes that were read ahead to detect the mark.
    beginning: Option<io::Cursor<Vec<u8>>>,
}

impl<R: Read> WithoutMark<R> {
    fn new(reader: R) -> Self {
        Self {
            reader,
            beginning: None,
        }
    }
}

impl<R: Read> Read for WithoutMark<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let beginning = match &mut self.beginning {
            Some(beginning) => beginning,
            None => {
                let mut bytes = Vec::new();
                (&mut self.reader).take(3).read_to_end(&mut bytes)?;
                if bytes == b"\xef\xbb\xbf" {
                    bytes.clear();
                }
                self.beginning.insert(io::Cursor::new(bytes))
            }
        };
        match beginning.read(buffer)? {
            0 => self.reader.read(buffer),
            read => Ok(read),
        }
    }
}
