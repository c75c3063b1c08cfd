//! Reads Avro object container files, one block at a time.
//!
//! This module reads the container itself. `arrow-avro`'s reader takes the end of a truncated file for the end of the
//! rows, and loops for ever on a block with bytes after its last row. `arrow-avro` decodes single rows, which must fill
//! their block exactly.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_avro::compression::CompressionCodec;
use arrow_avro::reader::{Decoder, DecoderMode, ReaderBuilder, read_header_info};
use arrow_avro::schema::{AvroSchema, SchemaStore};
use parking_lot::Mutex;

use super::avro_schema::ReadSchema;
use super::columns::{RecordMaker, describe};
use super::constants::{Constant, with_constants};
use super::nested::Selection;
use super::rows::RowSink;
use super::{Chosen, Piece, Reading, named_columns};
use crate::error::BuildError;
use crate::options::ValueSelection;

/// The largest block, in bytes, compressed or not. Writers usually make blocks of 16 KiB to 4 MiB, and larger ones only
/// for larger values.
const BLOCK_BYTES_MAX: u64 = 256 << 20;

/// The approximate size of a decoded batch, in bytes and in rows.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 4096;

/// The approximate memory of a block, as a multiple of its length in the file: the raw and the decompressed block.
const LENGTHS_IN_MEMORY: u64 = 5;

const SYNC_BYTES: usize = 16;

/// The common properties of the blocks of a file.
struct Container {
    file: u32,
    schema: ReadSchema,
    codec: Option<CompressionCodec>,
    maker: RecordMaker,
    /// Idle decoders, kept because making one parses the schema.
    decoders: Mutex<Vec<Decoder>>,
}

/// One block.
pub(super) struct Block {
    container: Arc<Container>,
    /// The number of the block's first row.
    row: u64,
    rows: u64,
    data: Vec<u8>,
}

/// Splits a file into its blocks.
pub(super) fn open(reading: &Reading<'_>, file: u32, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
    let path = reading.path(file);
    let failed = |e: &dyn std::fmt::Display| BuildError::unreadable(path, format!("it is not an Avro file: {e}"));
    let handle = File::open(path).map_err(|e| BuildError::unreadable(path, e))?;
    let mut reader = BufReader::with_capacity(256 << 10, handle);
    let header = read_header_info(&mut reader).map_err(|e| failed(&e))?;
    let schema = header.writer_schema().map_err(|e| failed(&e))?;
    let schema = ReadSchema::parse(&schema.json_string).map_err(|e| invalid_schema(path, &e))?;
    let codec = header.compression().map_err(|e| failed(&e))?;
    let container = Arc::new(Container::new(reading, file, schema, codec)?);
    reader
        .seek(SeekFrom::Start(header.header_len()))
        .map_err(|e| BuildError::unreadable(path, e))?;
    let mut offset = header.header_len();
    let mut row = 1;
    while !reader
        .fill_buf()
        .map_err(|e| BuildError::unreadable(path, e))?
        .is_empty()
    {
        let (rows, data) = read_block(&mut reader, &header.sync()).map_err(|e| {
            let what = if e.kind() == io::ErrorKind::UnexpectedEof {
                "truncated"
            } else {
                "damaged"
            };
            BuildError::unreadable(path, format!("it is {what} in the block at byte {offset}: {e}"))
        })?;
        let end = reader.stream_position().map_err(|e| BuildError::unreadable(path, e))?;
        sink.progress().bytes_read.fetch_add(end - offset, Ordering::Relaxed);
        offset = end;
        let block = Block {
            container: Arc::clone(&container),
            row,
            rows,
            data,
        };
        reading.hand_over(Piece::Block(block), sink)?;
        row += rows;
    }
    Ok(())
}

/// The number of rows of a block, and its bytes.
fn read_block(reader: &mut impl BufRead, sync: &[u8; SYNC_BYTES]) -> io::Result<(u64, Vec<u8>)> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let rows = read_long(reader)?;
    let bytes = read_long(reader)?;
    if bytes > BLOCK_BYTES_MAX {
        return Err(invalid(format!("it has {bytes} bytes, more than {BLOCK_BYTES_MAX}")));
    }
    // Allocate only for data that is really there, not for the length that the file claims.
    let mut data = Vec::new();
    reader.take(bytes).read_to_end(&mut data)?;
    let mut found = [0; SYNC_BYTES];
    reader.read_exact(&mut found)?;
    if data.len() as u64 != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if &found == sync {
        Ok((rows, data))
    } else {
        Err(invalid("the sync marker at its end does not match".to_owned()))
    }
}

/// An Avro number: zigzag, 7 bits per byte, lowest first. It must not be negative.
fn read_long(reader: &mut impl Read) -> io::Result<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        value |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            if value & 1 == 1 {
                break;
            }
            return Ok(value >> 1);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "a count is negative or too large",
    ))
}

impl Container {
    fn new(
        reading: &Reading<'_>,
        file: u32,
        schema: ReadSchema,
        codec: Option<CompressionCodec>,
    ) -> Result<Self, BuildError> {
        let path = reading.path(file);
        let decoder = decoder(path, &schema)?;
        refuse_recursive(reading, path, &schema.recursive)?;
        let mut constants = reading.constants(file, |name| Selection::has(&decoder.schema(), name));
        // Columns that are not used, so their values do not matter.
        constants.extend(schema.recursive.iter().map(|name| Constant::missing(name)));
        let table = with_constants(&decoder.schema(), &constants);
        let names: Vec<&str> = table.fields().iter().map(|field| field.name().as_str()).collect();
        let mut selection = Selection::default();
        let chosen = Chosen::find(&reading.conversion, path, &names, |name| selection.find(&table, name))?;
        reading.note_schema(file, 0, || chosen.schema(|number| describe(selection.field(number))));
        let maker = RecordMaker::new(&reading.conversion, file, chosen, selection, constants)?;
        Ok(Self {
            file,
            schema,
            codec,
            maker,
            decoders: Mutex::new(vec![decoder]),
        })
    }
}

/// Refuses columns with records that contain themselves, if they are used.
fn refuse_recursive(reading: &Reading<'_>, path: &Path, recursive: &[String]) -> Result<(), BuildError> {
    let options = reading.options;
    let is_used = |column: &&String| {
        let is_left_out = options.reading.exclude.contains(column);
        let is_part = |name: &str| name.split('.').next() == Some(column);
        options.value == ValueSelection::AllOthers && !is_left_out || named_columns(options).any(is_part)
    };
    match recursive.iter().find(is_used) {
        Some(column) => Err(BuildError::UnsupportedType {
            file: path.to_owned(),
            column: column.clone(),
            data_type: "a record that contains itself".to_owned(),
            reason: "choose other columns with --values, or leave it out with --exclude",
        }),
        None => Ok(()),
    }
}

fn invalid_schema(path: &Path, reason: &str) -> BuildError {
    BuildError::unreadable(path, format!("its schema cannot be read: {reason}"))
}

fn decoder(path: &Path, schema: &ReadSchema) -> Result<Decoder, BuildError> {
    let mut store = SchemaStore::new();
    let schema = AvroSchema::new(schema.json.clone());
    let known = store.register(schema).map_err(|e| e.to_string());
    let decoder = known.and_then(|_| {
        ReaderBuilder::new()
            .with_writer_schema_store(store)
            .with_decoder_mode(DecoderMode::UnframedDatum)
            .with_batch_size(BATCH_ROWS)
            .build_decoder()
            .map_err(|e| e.to_string())
    });
    decoder.map_err(|e| invalid_schema(path, &e))
}

impl Block {
    /// Its file, and the number of its first row.
    pub(super) fn first_row(&self) -> (u32, u64) {
        (self.container.file, self.row)
    }

    pub(super) fn read(&self, reading: &Reading<'_>, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
        let container = &self.container;
        let path = reading.path(container.file);
        let failed = |row: u64, e: &dyn std::fmt::Display| {
            BuildError::unreadable(path, format!("it is damaged at row {row}: {e}"))
        };
        let block_bytes = self.data.len() as u64 * LENGTHS_IN_MEMORY;
        let _taken = reading.room.take(block_bytes + BATCH_BYTES as u64)?;
        let decompressed;
        let mut rest = match container.codec {
            None => &self.data[..],
            Some(codec) => {
                decompressed = decompress(codec, &self.data).map_err(|e| failed(self.row, &e))?;
                &decompressed[..]
            }
        };
        // Every row with a key takes at least a byte.
        if self.rows > rest.len() as u64 {
            return Err(failed(
                self.row,
                &format_args!("{} rows cannot be in {} bytes", self.rows, rest.len()),
            ));
        }
        let unused = container.decoders.lock().pop();
        let mut decoder = unused.map_or_else(|| decoder(path, &container.schema), Ok)?;
        let mut batch_row = self.row;
        let mut batch_bytes = 0;
        let mut kept = Vec::new();
        for row in self.row..self.row + self.rows {
            let read = match &container.schema.rows {
                Some(shape) => {
                    kept.clear();
                    shape.take_row(&mut rest, &mut kept).map_err(|e| failed(row, &e))?;
                    decoder.decode(&kept).map_err(|e| failed(row, &e))?
                }
                None => {
                    let read = decoder.decode(rest).map_err(|e| failed(row, &e))?;
                    rest = rest
                        .get(read..)
                        .ok_or_else(|| failed(row, &"it passes the end of its block"))?;
                    read
                }
            };
            batch_bytes += read;
            if decoder.batch_is_full() || batch_bytes >= BATCH_BYTES || row + 1 == self.row + self.rows {
                if let Some(batch) = decoder.flush().map_err(|e| failed(row, &e))? {
                    container.maker.make(&batch, container.file, path, batch_row, sink)?;
                }
                batch_row = row + 1;
                batch_bytes = 0;
            }
        }
        if !rest.is_empty() {
            return Err(failed(
                self.row + self.rows,
                &"there are bytes after the last row of its block",
            ));
        }
        container.decoders.lock().push(decoder);
        Ok(())
    }
}

fn decompress(codec: CompressionCodec, data: &[u8]) -> io::Result<Vec<u8>> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    match codec {
        CompressionCodec::Deflate => bounded(flate2::read::DeflateDecoder::new(data)),
        CompressionCodec::ZStandard => bounded(zstd::stream::read::Decoder::with_buffer(data)?),
        CompressionCodec::Snappy => {
            let (data, checksum) = data
                .split_last_chunk::<4>()
                .ok_or_else(|| invalid("a block is too short"))?;
            if snap::raw::decompress_len(data)? as u64 > BLOCK_BYTES_MAX {
                return Err(invalid("a block is too large"));
            }
            let block = snap::raw::Decoder::new().decompress_vec(data)?;
            let mut found = flate2::Crc::new();
            found.update(&block);
            if found.sum() == u32::from_be_bytes(*checksum) {
                Ok(block)
            } else {
                Err(invalid("a checksum does not match"))
            }
        }
        CompressionCodec::Bzip2 => bounded(bzip2::read::BzDecoder::new(data)),
        CompressionCodec::Xz => bounded(lzma_rust2::XzReader::new(data, false)),
    }
}

/// The whole output of a decompressor, unless it is too large.
fn bounded(decompressor: impl Read) -> io::Result<Vec<u8>> {
    let mut block = Vec::new();
    decompressor.take(BLOCK_BYTES_MAX + 1).read_to_end(&mut block)?;
    if block.len() as u64 > BLOCK_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a block is too large"));
    }
    Ok(block)
}
