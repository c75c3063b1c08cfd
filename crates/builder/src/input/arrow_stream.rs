//! A stream of Arrow IPC that is refused if it was cut off.
//!
//! The format allows a stream to end anywhere between two batches, so a writer that was killed there would not be noticed.
//! All libraries write the mark of the end when a stream is closed.

use std::io::{self, BufReader, Read};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_schema::{ArrowError, SchemaRef};

/// The end of a stream: a continuation marker, and a length of zero.
const END_MARK: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The size of a read, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// The batches of a stream, which ends with its mark.
pub(crate) struct BatchStream<R> {
    reader: StreamReader<Tail<BufReader<R>>>,
    has_ended: bool,
}

/// A reader that keeps the last bytes.
struct Tail<R> {
    reader: R,
    last: [u8; END_MARK.len()],
}

impl<R: Read> BatchStream<R> {
    /// Reads the schema.
    pub(crate) fn open(reader: R) -> Result<Self, ArrowError> {
        let tail = Tail {
            reader: BufReader::with_capacity(BUFFER_BYTES, reader),
            last: [0; END_MARK.len()],
        };
        Ok(Self {
            reader: StreamReader::try_new(tail, None)?,
            has_ended: false,
        })
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        self.reader.schema()
    }
}

impl<R: Read> Iterator for BatchStream<R> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.reader.next();
        self.has_ended = !matches!(next, Some(Ok(_)));
        if next.is_none() && self.reader.get_ref().last != END_MARK {
            let reason = "it ends without the mark of its end: its writer was stopped";
            return Some(Err(ArrowError::IpcError(reason.to_owned())));
        }
        next
    }
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        let length = self.last.len();
        match buffer[..count].last_chunk() {
            Some(last) => self.last = *last,
            None => {
                self.last.copy_within(count.., 0);
                self.last[length - count..].copy_from_slice(&buffer[..count]);
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array};
    use arrow_ipc::writer::StreamWriter;

    use super::*;

    #[test]
    fn a_stream_is_complete_only_with_the_mark_of_its_end() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, batch.schema_ref()).unwrap();
        for _ in 0..3 {
            writer.write(&batch).unwrap();
        }
        writer.finish().unwrap();
        let rows = |bytes: &[u8]| -> Result<usize, ArrowError> {
            BatchStream::open(bytes)?
                .map(|batch| batch.map(|batch| batch.num_rows()))
                .sum()
        };
        assert_eq!(rows(&bytes).unwrap(), 9);
        for length in 0..bytes.len() {
            assert!(rows(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
    }
}
