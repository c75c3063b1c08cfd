//! A writer that counts and checksums the bytes, and writes them in large pieces.

use std::io::{self, Write};

use super::writer::ChunkPlan;
use crate::checksum::Checksummer;
use crate::error::FormatError;
use crate::manifest::FileEntry;
use crate::names::chunk_file_name;

/// The size of a piece, in bytes.
pub(crate) const BUFFER_BYTES: usize = 1024 * 1024;

/// The file that is being written.
pub(crate) struct Sink<W> {
    writer: W,
    pub(super) buffer: Vec<u8>,
    bytes_flushed: u64,
    checksum: Checksummer,
}

impl<W: Write> Sink<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self {
            writer,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            bytes_flushed: 0,
            checksum: Checksummer::new(),
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.bytes_flushed + self.buffer.len() as u64
    }

    pub(super) fn write_buffer(&mut self) -> io::Result<()> {
        self.checksum.update(&self.buffer);
        self.writer.write_all(&self.buffer)?;
        self.bytes_flushed += self.buffer.len() as u64;
        self.buffer.clear();
        // Do not keep the memory of a single huge record.
        self.buffer.shrink_to(BUFFER_BYTES);
        Ok(())
    }

    /// Ends the file. Returns its entry for the manifest.
    pub(crate) fn finish(mut self, plan: &ChunkPlan, kind: &str) -> Result<(FileEntry, W), FormatError> {
        self.write_buffer().map_err(FormatError::Write)?;
        self.writer.flush().map_err(FormatError::Write)?;
        let checksum = self.checksum.finish();
        let entry = FileEntry {
            name: chunk_file_name(plan.partition, plan.chunk, checksum, kind),
            bytes: self.bytes_flushed,
            checksum,
        };
        Ok((entry, self.writer))
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_buffer()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_buffer()
    }
}
