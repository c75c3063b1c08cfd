//! The file of keys beside a full segment: the content of the segment without the values, sorted by key.
//!
//! ```text
//! NUMBER.keys   "fondkey3", number (u64), length of the segment (u32), count of batches in it (u32), length of the
//!               file (u64), checksum (u64), block…
//! block         length of its keys (u32), checksum (u64), key…
//! key           table (u32), offset of its frame (u32), length of the value or `since` (u32),
//!               length of the key (u16), kind (u8), 0 (u8), key                  integers are little-endian
//! ```
//!
//! Keys are sorted by table, then by key. Of several frames of one key, the last one in the segment comes first. So the
//! keys of all segments can be [merged](super::merge) in order, with one block of each in memory.
//!
//! The checksum of the head is the XXH3 of everything before it. The checksum of a block is the XXH3 of its keys. The
//! seed has the number of the segment in the upper half and the offset of the block in the file in the lower half.
//!
//! The file is written after its segment has been synced. If it is missing or damaged, the segment is read instead. It
//! is deleted before its segment, so a file of keys without a segment means that the segment is lost.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::frame::{Content, Frame};
use super::key_prefixes::{Head, head_of};
use super::merge::Bound;
use super::segment::Ended;
use crate::error::EngineError;
use crate::failure;

const MAGIC: &[u8; 8] = b"fondkey3";
const HEAD_BYTES: usize = 40;
const BLOCK_HEAD_BYTES: usize = 12;
const KEY_HEAD_BYTES: usize = 16;
/// The approximate length of a block: the amount read at a time from each file during a merge.
const BLOCK_BYTES: usize = 32 << 10;

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// The entry of a file of keys for one frame: its place, its key, and its content without the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named<'a> {
    pub(super) table: u32,
    pub(super) offset: u32,
    pub(super) key: &'a [u8],
    pub(super) says: Says,
}

/// The content of a frame, without the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// A value of this length.
    ValueOf(u32),
    /// See [`Content::NoneSince`].
    NoneSince(u32),
}

impl Named<'_> {
    /// The length of the entry in a file.
    pub(super) fn stored_bytes(&self) -> usize {
        KEY_HEAD_BYTES + self.key.len()
    }
}

impl Says {
    fn since(self) -> Option<u32> {
        match self {
            Self::ValueOf(_) => None,
            Self::NoneSince(segment) => Some(segment),
        }
    }
}

impl From<Content<'_>> for Says {
    fn from(content: Content<'_>) -> Self {
        match content {
            Content::Value(value) => Self::ValueOf(value.len() as u32),
            Content::NoneSince(segment) => Self::NoneSince(segment),
        }
    }
}

/// The path of the file of keys for a segment.
pub(super) fn keys_path(segment: &Path) -> PathBuf {
    segment.with_extension("keys")
}

/// The keys of a segment, collected while it is written.
#[derive(Debug)]
pub(super) struct Keys {
    segment: u32,
    bytes: Vec<u8>,
}

impl Keys {
    pub(super) fn of(segment: u32) -> Self {
        Self {
            segment,
            bytes: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, frame: &Frame<'_>, offset: u32) {
        let (kind, number) = match frame.content.into() {
            Says::ValueOf(bytes) => (PUT, bytes),
            Says::NoneSince(segment) => (DELETE, segment),
        };
        let mut head = [0; KEY_HEAD_BYTES];
        head[0..4].copy_from_slice(&frame.table.to_le_bytes());
        head[4..8].copy_from_slice(&offset.to_le_bytes());
        head[8..12].copy_from_slice(&number.to_le_bytes());
        head[12..14].copy_from_slice(&(frame.key.len() as u16).to_le_bytes());
        head[14] = kind;
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(frame.key);
    }

    /// All collected entries, encoded as in the blocks of a file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sorts the entries into the order of the file.
    pub(super) fn sort(&mut self) {
        // Usually the heads of keys differ, and here they are contiguous in memory.
        let mut places: Vec<(u32, Head, u32)> = named_in(&self.bytes)
            .map(|(at, named)| (named.table, head_of(named.key), at as u32))
            .collect();
        let at = |place: u32| named_at(&self.bytes, place as usize);
        let order = |place: u32| at(place).map(|named| (named.key, Reverse(named.offset)));
        places.sort_unstable_by(|one, two| {
            (one.0, one.1)
                .cmp(&(two.0, two.1))
                .then_with(|| order(one.2).cmp(&order(two.2)))
        });
        let mut sorted = Vec::with_capacity(self.bytes.len());
        for (_, _, place) in places {
            let bytes = at(place).map_or(0, |named| named.stored_bytes());
            sorted.extend_from_slice(&self.bytes[place as usize..][..bytes]);
        }
        self.bytes = sorted;
    }

    /// Writes the file of a segment that ends like this, and is already synced.
    pub(super) fn write(mut self, segment: &Path, ended: Ended) -> Result<(), EngineError> {
        self.sort();
        let (begun, complete) = (segment.with_extension("keys-begun"), keys_path(segment));
        let written = self
            .write_to(&begun, ended)
            .and_then(|()| fs::rename(&begun, &complete));
        written.map_err(|error| failure::io("write", &complete, error))
    }

    fn write_to(&self, path: &Path, ended: Ended) -> io::Result<()> {
        let blocks = blocks_of(&self.bytes);
        let end = HEAD_BYTES + blocks.len() * BLOCK_HEAD_BYTES + self.bytes.len();
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        file.write_all(&head(self.segment, ended, end as u64))?;
        let mut place = HEAD_BYTES;
        for block in blocks {
            file.write_all(&(block.len() as u32).to_le_bytes())?;
            file.write_all(&checksum(block, self.segment, place as u64).to_le_bytes())?;
            file.write_all(block)?;
            place += BLOCK_HEAD_BYTES + block.len();
        }
        file.into_inner()?;
        Ok(())
    }
}

fn head(segment: u32, ended: Ended, file_bytes: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..16].copy_from_slice(&u64::from(segment).to_le_bytes());
    head[16..20].copy_from_slice(&ended.length.to_le_bytes());
    head[20..24].copy_from_slice(&ended.batches.to_le_bytes());
    head[24..32].copy_from_slice(&file_bytes.to_le_bytes());
    let checksum = xxh3_64(&head[..32]);
    head[32..].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// The checksum of a block at this offset of the file of a segment.
fn checksum(keys: &[u8], segment: u32, place: u64) -> u64 {
    xxh3_64_with_seed(keys, u64::from(segment) << 32 | place)
}

/// Splits the entries into blocks.
fn blocks_of(keys: &[u8]) -> Vec<&[u8]> {
    let (mut blocks, mut start) = (Vec::new(), 0);
    for (at, named) in named_in(keys) {
        let end = at + named.stored_bytes();
        if end - start >= BLOCK_BYTES || end == keys.len() {
            blocks.push(&keys[start..end]);
            start = end;
        }
    }
    blocks
}

/// The entries, with the offset of each.
fn named_in(keys: &[u8]) -> impl Iterator<Item = (usize, Named<'_>)> {
    let mut place = 0;
    std::iter::from_fn(move || {
        let (at, named) = (place, named_at(keys, place)?);
        place += named.stored_bytes();
        Some((at, named))
    })
}

/// The entry at an offset; `None` after the last one.
pub(super) fn named_at(keys: &[u8], place: usize) -> Option<Named<'_>> {
    let (head, behind) = keys.get(place..)?.split_first_chunk::<KEY_HEAD_BYTES>()?;
    let number = |at: usize| Some(u32::from_le_bytes(*head[at..].first_chunk()?));
    let key_bytes = u16::from_le_bytes([head[12], head[13]]);
    Some(Named {
        table: number(0)?,
        offset: number(4)?,
        key: behind.get(..key_bytes.into())?,
        says: match head[14] {
            PUT => Says::ValueOf(number(8)?),
            _ => Says::NoneSince(number(8)?),
        },
    })
}

/// A file of keys with a valid head, read block by block. It is not kept open: there are as many files as segments.
#[derive(Debug, Clone)]
pub(super) struct KeysReader {
    path: PathBuf,
    segment: u32,
    /// The end of the segment.
    pub(super) ended: Ended,
    /// The offset of the next block, and the end of the file.
    place: u64,
    end: u64,
}

impl KeysReader {
    /// Opens the file of a segment; `None` unless its head is valid and its length is as the head says.
    pub(super) fn open(segment: &Path, number: u32) -> Option<Self> {
        let path = keys_path(segment);
        let file = File::open(&path).ok()?;
        let mut bytes = [0; HEAD_BYTES];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let ended = Ended {
            length: u32::from_le_bytes(*bytes[16..].first_chunk()?),
            batches: u32::from_le_bytes(*bytes[20..].first_chunk()?),
        };
        let end = file.metadata().ok()?.len();
        (bytes == head(number, ended, end)).then_some(Self {
            path,
            segment: number,
            ended,
            place: HEAD_BYTES as u64,
            end,
        })
    }

    /// The length of the blocks that are not read yet.
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.place
    }

    /// The first keys of all blocks that are not read yet, with their tables. They are not checked.
    ///
    /// # Errors
    /// A block is damaged, or the disk cannot read it.
    pub(super) fn first_keys(&self) -> io::Result<Vec<Bound>> {
        let file = File::open(&self.path)?;
        let (mut firsts, mut place) = (Vec::new(), self.place);
        while place < self.end {
            let first;
            (first, place) = self.glance(&file, place)?;
            firsts.push(first);
        }
        Ok(firsts)
    }

    /// Skips blocks whose keys all come before a bound. The lengths and keys that this depends on are not checked, but the
    /// next block is when it is read, and its checksum covers its place.
    ///
    /// # Errors
    /// A block is damaged, or the disk cannot read it.
    pub(super) fn skip_to(&mut self, (table, key): &Bound) -> io::Result<()> {
        if self.place == self.end {
            return Ok(());
        }
        let file = File::open(&self.path)?;
        let (_, mut next) = self.glance(&file, self.place)?;
        while next < self.end {
            let (first, after) = self.glance(&file, next)?;
            if (first.0, &first.1) >= (*table, key) {
                break;
            }
            (self.place, next) = (next, after);
        }
        Ok(())
    }

    /// The first key of a block, with its table, and the end of the block.
    fn glance(&self, file: &File, place: u64) -> io::Result<(Bound, u64)> {
        let mut head = [0; BLOCK_HEAD_BYTES + KEY_HEAD_BYTES];
        file.read_exact_at(&mut head, place)?;
        let number = |at: usize| head[at..].first_chunk().copied().map_or(0, u32::from_le_bytes);
        let key_bytes = usize::from(u16::from_le_bytes([
            head[BLOCK_HEAD_BYTES + 12],
            head[BLOCK_HEAD_BYTES + 13],
        ]));
        let end = place + BLOCK_HEAD_BYTES as u64 + u64::from(number(0));
        let key_place = place + head.len() as u64;
        if end > self.end || key_place + key_bytes as u64 > end {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut key = vec![0; key_bytes];
        file.read_exact_at(&mut key, key_place)?;
        Ok(((number(BLOCK_HEAD_BYTES), key), end))
    }

    /// Appends the entries of the next block to `keys`; returns false if there is no more block.
    ///
    /// # Errors
    /// The block is damaged, or the disk cannot read it.
    pub(super) fn read_block(&mut self, keys: &mut Vec<u8>) -> io::Result<bool> {
        if self.place == self.end {
            return Ok(false);
        }
        let file = File::open(&self.path)?;
        let mut head = [0; BLOCK_HEAD_BYTES];
        file.read_exact_at(&mut head, self.place)?;
        let [a, b, c, d, said @ ..] = head;
        let length = u64::from(u32::from_le_bytes([a, b, c, d]));
        let start = self.place + BLOCK_HEAD_BYTES as u64;
        if length > self.end.saturating_sub(start) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let before = keys.len();
        keys.resize(before + length as usize, 0);
        file.read_exact_at(&mut keys[before..], start)?;
        if checksum(&keys[before..], self.segment, self.place) != u64::from_le_bytes(said) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.place = start + length;
        Ok(true)
    }
}

/// A whole file of keys, in memory.
#[derive(Debug)]
pub(super) struct KeysFile {
    segment: u32,
    bytes: Vec<u8>,
}

impl From<KeysFile> for Keys {
    fn from(KeysFile { segment, bytes }: KeysFile) -> Self {
        Self { segment, bytes }
    }
}

impl KeysFile {
    /// Reads the file of a segment; `None` unless it exists and is valid.
    pub(super) fn read(segment: &Path, number: u32) -> Option<Self> {
        let mut reader = KeysReader::open(segment, number)?;
        let mut bytes = Vec::with_capacity((reader.end - reader.place) as usize);
        while reader.read_block(&mut bytes).ok()? {}
        Some(Self { segment: number, bytes })
    }

    /// Deletes the file, because the segment will be appended to.
    pub(super) fn delete(&self, segment: &Path) -> Result<(), EngineError> {
        let path = keys_path(segment);
        fs::remove_file(&path).map_err(|error| failure::io("delete", &path, error))
    }

    /// The entries in the order of the segment, so that its records are read sequentially.
    pub(super) fn by_offset(&self) -> impl Iterator<Item = Named<'_>> {
        let mut places: Vec<_> = named_in(&self.bytes)
            .map(|(at, named)| (named.offset, at as u32))
            .collect();
        places.sort_unstable();
        places
            .into_iter()
            .filter_map(|(_, at)| named_at(&self.bytes, at as usize))
    }

    /// The offsets of redundant tombstones: the segment has another tombstone of the same key that covers at least as
    /// many segments. Their order in the segment does not matter, since tombstones are moved in any order. Considers
    /// only tombstones that cover `oldest` or a later segment.
    pub(super) fn repeated_deletions(&self, oldest: u32) -> HashSet<u32> {
        let mut repeated = HashSet::new();
        let mut kept: Option<(Named<'_>, u32)> = None;
        for (_, named) in named_in(&self.bytes) {
            let Some(since) = named.says.since().filter(|since| *since >= oldest) else {
                continue;
            };
            match kept {
                // The entries of a key are adjacent, the last one first.
                Some((other, known)) if (other.table, other.key) == (named.table, named.key) => {
                    let is_more = since > known;
                    repeated.insert(if is_more { other.offset } else { named.offset });
                    if is_more {
                        kept = Some((named, since));
                    }
                }
                _ => kept = Some((named, since)),
            }
        }
        repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the file of keys of segment 9 beside a path.
    fn write(segment: &Path, said: &[(u32, &[u8], Content<'_>)]) {
        let mut keys = Keys::of(9);
        for (offset, &(table, key, content)) in said.iter().enumerate() {
            keys.push(&Frame { table, key, content }, offset as u32);
        }
        let (length, batches) = (77, 7);
        keys.write(segment, Ended { length, batches }).unwrap();
    }

    #[test]
    fn of_several_tombstones_the_one_that_covers_most_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("9.segment");
        let none = Content::NoneSince;
        let said = [
            (1, "a", none(3)),
            (1, "a", Content::Value(b"value")),
            (1, "a", none(8)),
            (1, "a", none(5)),
            (2, "a", none(4)),
            (1, "b", none(4)),
            (1, "a", none(8)),
            (1, "b", none(3)),
        ];
        write(
            &path,
            &said.map(|(table, key, content)| (table, key.as_bytes(), content)),
        );
        let file = KeysFile::read(&path, 9).unwrap();
        assert_eq!(file.repeated_deletions(1), HashSet::from([0, 2, 3, 7]));
        assert_eq!(file.repeated_deletions(6), HashSet::from([2]));
        let offsets: Vec<u32> = file.by_offset().map(|named| named.offset).collect();
        assert_eq!(offsets, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn keys_are_sorted_and_every_flipped_bit_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("9.segment");
        // Several blocks, one of them with a long key.
        let long = "1".repeat(50_000);
        let said = [(2, "b"), (2, "a"), (1, &*long), (1, "c"), (2, "a"), (2, "")];
        let said = said.map(|(table, key)| (table, key.as_bytes(), Content::NoneSince(1)));
        write(&path, &said);
        let mut reader = KeysReader::open(&path, 9).unwrap();
        assert_eq!((reader.ended.length, reader.ended.batches), (77, 7));
        let (mut blocks, mut bytes) = (0, Vec::new());
        while reader.read_block(&mut bytes).unwrap() {
            blocks += 1;
        }
        assert_eq!(blocks, 2);
        let offsets: Vec<u32> = named_in(&bytes).map(|(_, named)| named.offset).collect();
        assert_eq!(offsets, [2, 3, 5, 4, 1, 0]);

        let whole = fs::read(keys_path(&path)).unwrap();
        let is_whole = |bytes: &[u8]| {
            fs::write(keys_path(&path), bytes).unwrap();
            KeysFile::read(&path, 9).is_some()
        };
        assert!(is_whole(&whole) && KeysFile::read(&path, 8).is_none());
        let first_key = HEAD_BYTES + BLOCK_HEAD_BYTES + KEY_HEAD_BYTES + 4;
        for bit in (0..first_key * 8).chain(whole.len() * 8 - 300..whole.len() * 8) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_whole(&flipped), "bit {bit}");
        }
        for length in [0, 10, HEAD_BYTES, whole.len() - 1] {
            assert!(!is_whole(&whole[..length]), "{length} bytes");
        }
        // A block is not valid at the offset of another.
        let mut longer = whole.clone();
        longer.extend_from_slice(&[0; BLOCK_HEAD_BYTES]);
        assert!(!is_whole(&longer));
    }
}
