//! A patch: what changed in a chunk since an earlier version. A node that has the data file of that version, the
//! *base*, makes the chunk from both, and fetches only the patch.
//!
//! ```text
//! offset  bytes  field
//!      0      8  "FONDPTCH"
//!      8      4  format version
//!     12     12  partition, chunk, count of chunks in the partition (4 bytes each)
//!     24      8  checksum of the base
//!     32      8  how many records the new chunk has
//!     40      8  the bytes of their keys and values, before compression
//!     48     12  zero
//!     60      4  checksum: low half of XXH3-64 of the bytes before
//!     64      …  the changes: one Zstandard frame
//! ```
//!
//! All numbers are little-endian. The changes are records in the order of (hash, key), with values as they are stored in
//! the new chunk: a record of the base with the same key is replaced. A record with bit 30 in the word of its length,
//! and without a value, deletes its key, if the base has it.
//!
//! The index is sized for the two numbers. In patches of earlier releases they are averages of all chunks of the
//! partition.
//!
//! The rebuilt files are right only if they have the checksums of the manifest: the caller has to verify that.

use std::cmp::Ordering;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::checksum::{Checksum, short_checksum};
use crate::chunk::data::{DATA_HEADER_BYTES, DataHeader, check_start};
use crate::chunk::reader::header_error;
use crate::chunk::sink::Sink;
use crate::chunk::writer::{ChunkCounts, ChunkPlan, ChunkWriter};
use crate::chunk::{ChunkIdentity, u64_at};
use crate::compression::{Compression, EncodedValue, ZSTD_LEVEL};
use crate::error::FormatError;
use crate::format_version;
use crate::hash::{chunk_of_hash, key_hash};
use crate::manifest::FileEntry;
use crate::names::PATCH_KIND;
use crate::record::{RECORD_HEADER_BYTES, RecordHeader, record_is_intact, take_deletion, write_deletion, write_record};

const HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"FONDPTCH";
const CHECKSUM_AT: usize = 60;

/// How many bytes are read at a time. Many kernels do not interrupt a system call for a thread that serves reads.
const PIECE_BYTES: usize = 16 << 10;

/// The largest window of the Zstandard frame, in bits: 8 MiB. Those that are written have less.
const WINDOW_BITS_MAX: u32 = 23;

/// Appends a change: the new value of a key, or `None` for a key to delete. Changes come in the order of (hash, key).
pub fn write_change(out: &mut Vec<u8>, key: &[u8], value: Option<EncodedValue<'_>>) {
    match value {
        Some(value) => write_record(out, key, value),
        None => write_deletion(out, key),
    }
}

/// Writes a patch for the chunk of this plan, with these records, from its changes. Returns its entry, whose name the file gets.
///
/// # Errors
/// The changes cannot be read, or the patch cannot be written.
pub fn write_patch<W: Write>(
    base: Checksum,
    plan: &ChunkPlan,
    counts: ChunkCounts,
    mut changes: impl Read,
    out: W,
) -> Result<(FileEntry, W), FormatError> {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&format_version().to_le_bytes());
    header[12..24].copy_from_slice(&plan.identity().to_bytes());
    header[24..32].copy_from_slice(&base.to_u64().to_le_bytes());
    header[32..40].copy_from_slice(&counts.records.to_le_bytes());
    header[40..48].copy_from_slice(&counts.bytes.to_le_bytes());
    let checksum = short_checksum(&header[..CHECKSUM_AT]);
    header[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    let mut sink = Sink::new(out);
    let mut write = || {
        sink.write_all(&header)?;
        let mut encoder = zstd::stream::write::Encoder::new(&mut sink, ZSTD_LEVEL)?;
        io::copy(&mut changes, &mut encoder)?;
        encoder.finish().map(drop)
    };
    write().map_err(FormatError::Write)?;
    sink.finish(plan, PATCH_KIND)
}

/// A patch that is being read.
pub struct Patch<R: Read> {
    path: PathBuf,
    /// The checksum of the data file that it applies to.
    pub base: Checksum,
    /// The plan of the chunk that it makes.
    pub plan: ChunkPlan,
    /// The numbers that the index of the chunk is sized for.
    pub counts: ChunkCounts,
    changes: zstd::stream::read::Decoder<'static, BufReader<R>>,
}

impl<R: Read> Patch<R> {
    /// Reads the header. `path` names the file in errors.
    ///
    /// # Errors
    /// A damaged header, or a failed read.
    pub fn open(path: &Path, mut reader: R) -> Result<Self, FormatError> {
        let mut header = [0; HEADER_BYTES];
        reader.read_exact(&mut header).map_err(FormatError::io("read", path))?;
        check_start(&header, MAGIC, CHECKSUM_AT).map_err(|error| header_error(path, error))?;
        let mut identity = [0; 12];
        identity.copy_from_slice(&header[12..24]);
        let ChunkIdentity {
            partition,
            chunk,
            chunk_count,
        } = ChunkIdentity::from_bytes(identity);
        let plan = ChunkPlan {
            partition,
            chunk,
            chunk_count,
        };
        let counts = ChunkCounts {
            records: u64_at(&header, 32),
            bytes: u64_at(&header, 40),
        };
        // More do not fit into a chunk, and the length of the index follows from this number.
        let records_max = u64::from(u32::MAX) / RECORD_HEADER_BYTES as u64;
        if chunk >= chunk_count || counts.records > records_max {
            return Err(FormatError::corrupt(path, "its header is damaged"));
        }
        let reader = BufReader::with_capacity(PIECE_BYTES, reader);
        let limited = zstd::stream::read::Decoder::with_buffer(reader).and_then(|mut decoder| {
            decoder.window_log_max(WINDOW_BITS_MAX)?;
            Ok(decoder)
        });
        Ok(Self {
            path: path.to_owned(),
            base: Checksum::from_u64(u64_at(&header, 24)),
            plan,
            counts,
            changes: limited.map_err(FormatError::io("read", path))?,
        })
    }

    /// Begins to write the chunk that this patch makes.
    pub fn begin<W: Write>(&self, data: W) -> ChunkWriter<W> {
        // The compression matters only for the size of the index, which is known.
        ChunkWriter::new(self.plan, Compression::None, data).with_index_for(self.counts)
    }

    /// Writes the chunk, from the data file `base` and the changes. The writer is that of [`Self::begin`].
    ///
    /// # Errors
    /// Damage of one of the files, or a failed read or write.
    pub fn apply<W: Write>(
        mut self,
        base: (&Path, &mut dyn Read),
        writer: &mut ChunkWriter<W>,
    ) -> Result<(), FormatError> {
        let changes = &mut self.changes;
        merge(
            &self.plan,
            Some((base.0, base.1)),
            (&self.path, changes),
            |hash, key, value| writer.append(hash, key, value),
        )
        .map(drop)
    }
}

/// Counts of a chunk after its changes were applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Merged {
    /// How many records it has now.
    pub records: u64,
    /// How many keys were deleted.
    pub deleted: u64,
    /// How many keys were to be deleted and were not there.
    pub absent: u64,
}

/// Passes on the records of a chunk after changes, in their order. It reads the former data file, if there was one,
/// and the changes, both with the paths that name them in errors.
///
/// # Errors
/// Damage of one of the files, a failed read, or an error of `each`.
pub fn merge<'p>(
    plan: &ChunkPlan,
    base: Option<(&'p Path, &'p mut dyn Read)>,
    changes: (&'p Path, &'p mut dyn Read),
    mut each: impl FnMut(u64, &[u8], EncodedValue<'_>) -> Result<(), FormatError>,
) -> Result<Merged, FormatError> {
    let mut merged = Merged::default();
    let mut old = base
        .map(|(path, reader)| Records::of_data(plan, path, reader))
        .transpose()?;
    let mut new = Records::new(plan, changes.0, changes.1);
    new.advance(true)?;
    old.as_mut().map_or(Ok(()), |old| old.advance(false))?;
    loop {
        let order = match (old.as_ref().and_then(Records::place), new.place()) {
            (None, None) => return Ok(merged),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.cmp(&new),
        };
        let is_deleted = new.is_deleted;
        let chosen = match &old {
            Some(old) if order.is_lt() => Some(old),
            _ if is_deleted => None,
            _ => Some(&new),
        };
        if let Some(record) = chosen {
            merged.records += 1;
            each(record.hash, record.key(), record.value())?;
        } else if order.is_eq() {
            merged.deleted += 1;
        } else {
            merged.absent += 1;
        }
        if order.is_ge() {
            new.advance(true)?;
        }
        if order.is_le()
            && let Some(old) = &mut old
        {
            old.advance(false)?;
        }
    }
}

/// Records of a chunk that are read one after the other, and checked.
struct Records<'p> {
    path: &'p Path,
    plan: ChunkPlan,
    reader: BufReader<&'p mut dyn Read>,
    /// The record, with its header; empty before the first and after the last one.
    record: Vec<u8>,
    before: Vec<u8>,
    header: Option<RecordHeader>,
    hash: u64,
    is_deleted: bool,
}

impl<'p> Records<'p> {
    fn new(plan: &ChunkPlan, path: &'p Path, reader: &'p mut dyn Read) -> Self {
        Self {
            path,
            plan: *plan,
            reader: BufReader::with_capacity(PIECE_BYTES, reader),
            record: Vec::new(),
            before: Vec::new(),
            header: None,
            hash: 0,
            is_deleted: false,
        }
    }

    /// The records of a data file.
    fn of_data(plan: &ChunkPlan, path: &'p Path, reader: &'p mut dyn Read) -> Result<Self, FormatError> {
        let mut records = Self::new(plan, path, reader);
        let mut header = [0; DATA_HEADER_BYTES];
        records
            .reader
            .read_exact(&mut header)
            .map_err(FormatError::io("read", path))?;
        let header = DataHeader::from_bytes(&header).map_err(|error| header_error(path, error))?;
        match header.identity == plan.identity() {
            true => Ok(records),
            false => Err(records.corrupt("it is another chunk")),
        }
    }

    fn corrupt(&self, reason: &str) -> FormatError {
        FormatError::corrupt(self.path, reason)
    }

    /// The place of the current record in the order; `None` after the last one.
    fn place(&self) -> Option<(u64, &[u8])> {
        self.header.map(|_| (self.hash, self.key()))
    }

    fn key(&self) -> &[u8] {
        let key_bytes = self.header.map_or(0, |header| header.key_bytes);
        &self.record[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + key_bytes]
    }

    fn value(&self) -> EncodedValue<'_> {
        let value_start = self.header.map_or(RECORD_HEADER_BYTES, RecordHeader::value_start);
        EncodedValue {
            bytes: &self.record[value_start..],
            stored_as_is: self.header.is_some_and(|header| header.stored_as_is),
            time_ms: self.header.and_then(|header| header.time_ms(&self.record)),
        }
    }

    /// Goes to the next record, which may be a deletion.
    fn advance(&mut self, may_delete: bool) -> Result<(), FormatError> {
        let before = self.header.map(|header| (self.hash, header));
        std::mem::swap(&mut self.record, &mut self.before);
        self.record.clear();
        self.header = None;
        self.read_up_to(RECORD_HEADER_BYTES)?;
        if self.record.is_empty() {
            return Ok(());
        }
        let mut header = self.record.clone();
        self.is_deleted = may_delete && take_deletion(&mut header);
        let parsed = RecordHeader::parse(&header).ok_or_else(|| self.corrupt("a record's header is damaged"))?;
        self.read_up_to(parsed.record_bytes())?;
        if self.record.len() < parsed.record_bytes() || !record_is_intact(&self.record) {
            return Err(self.corrupt("a record's checksum does not match"));
        }
        self.header = Some(parsed);
        self.hash = key_hash(self.key());
        let is_here = chunk_of_hash(self.hash, self.plan.chunk_count) == self.plan.chunk;
        let is_later = before.is_none_or(|(hash, header)| {
            let key = &self.before[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + header.key_bytes];
            (hash, key) < (self.hash, self.key())
        });
        match is_here && is_later {
            true => Ok(()),
            false => Err(self.corrupt("its records are out of order")),
        }
    }

    /// Reads until the current record has this number of bytes, or to the end of the file.
    fn read_up_to(&mut self, bytes: usize) -> Result<(), FormatError> {
        let missing = (bytes - self.record.len()) as u64;
        let record = &mut self.record;
        let read = (&mut self.reader).take(missing).read_to_end(record);
        read.map_err(FormatError::io("read", self.path)).map(drop)
    }
}
