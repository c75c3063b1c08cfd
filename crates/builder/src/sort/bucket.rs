//! Buckets of records, in memory blocks as long as the budget lasts, and in files beyond it.
//!
//! Invariant: the blocks of all buckets and appenders together take at most the budget. There is one exception: a
//! record larger than the rest of the budget gets its block when nothing is left to spill.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::layout::Layout;
use super::spill::SpillFile;
use crate::error::BuildError;

/// Records, back to back.
pub(crate) type Block = Vec<u8>;

/// All buckets of a sort, and their shared budget.
pub(crate) struct Buckets {
    layout: Layout,
    buckets: Vec<Bucket>,
    /// The size of all existing blocks, in bytes: in buckets, open in appenders, and free; plus the lent memory.
    allocated_bytes: AtomicU64,
    /// Ordinary blocks that were spilled and will be reused: returning them to the allocator would fragment its heap.
    free: Mutex<Vec<Block>>,
    spilled_bytes: AtomicU64,
    temporary: PathBuf,
}

#[derive(Default)]
struct Bucket {
    content: Mutex<Content>,
    /// The size of the blocks in `content`; read without the lock to choose what to spill.
    memory_bytes: AtomicU64,
    records: AtomicU64,
}

#[derive(Default)]
struct Content {
    blocks: Vec<Block>,
    file: Option<Arc<SpillFile>>,
}

/// The records of one bucket or of a part of one; no more are added.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) blocks: Vec<Block>,
    pub(crate) file: Option<SpillFile>,
    pub(crate) records: u64,
}

impl Part {
    /// The size of its file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, SpillFile::bytes)
    }

    /// Its total size.
    pub(crate) fn bytes(&self) -> u64 {
        self.file_bytes() + self.blocks.iter().map(|block| block.len() as u64).sum::<u64>()
    }
}

impl Buckets {
    pub(crate) fn new(layout: Layout, temporary: PathBuf) -> Self {
        Self {
            layout,
            buckets: (0..1 << layout.bucket_bits).map(|_| Bucket::default()).collect(),
            allocated_bytes: AtomicU64::new(0),
            free: Mutex::default(),
            spilled_bytes: AtomicU64::new(0),
            temporary,
        }
    }

    /// Allocates an empty block for at least `bytes`. Spills if the budget is used up.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Block, BuildError> {
        let ordinary = bytes <= self.layout.block_bytes;
        let bytes = bytes.max(self.layout.block_bytes);
        loop {
            if ordinary && let Some(block) = self.free.lock().pop() {
                return Ok(block);
            }
            let before = self.allocated_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            if before + bytes as u64 <= self.layout.reading_bytes {
                return Ok(Vec::with_capacity(bytes));
            }
            if !self.drop_free_blocks(bytes, ordinary) && self.spill_largest()? == 0 {
                return Ok(Vec::with_capacity(bytes));
            }
            self.allocated_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Lends a part of the budget. Spills if the budget is used up.
    pub(crate) fn lend(&self, bytes: u64) -> Result<(), BuildError> {
        let mut allocated = self.allocated_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        while bytes > 0 && allocated > self.layout.reading_bytes {
            let freed = self.drop_free_blocks(bytes as usize, false) || self.spill_largest()? > 0;
            if !freed {
                break;
            }
            allocated = self.allocated_bytes.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes back lent memory.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.allocated_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Frees blocks for a block of unusual size. Returns whether there was a block to free.
    fn drop_free_blocks(&self, bytes: usize, ordinary: bool) -> bool {
        if ordinary {
            return false;
        }
        let mut free = self.free.lock();
        let count = bytes.div_ceil(self.layout.block_bytes).min(free.len());
        let kept = free.len() - count;
        free.truncate(kept);
        self.allocated_bytes
            .fetch_sub((count * self.layout.block_bytes) as u64, Ordering::Relaxed);
        count > 0
    }

    /// Hands a filled block to its bucket.
    pub(crate) fn push(&self, bucket: usize, block: Block) {
        let bytes = block.capacity() as u64;
        let bucket = &self.buckets[bucket];
        bucket.content.lock().blocks.push(block);
        bucket.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts records that were appended to a bucket.
    pub(crate) fn count(&self, bucket: usize, records: u64) {
        self.buckets[bucket].records.fetch_add(records, Ordering::Relaxed);
    }

    /// Spills the bucket with the most memory; returns how much memory that freed.
    fn spill_largest(&self) -> Result<u64, BuildError> {
        let largest = self
            .buckets
            .iter()
            .max_by_key(|bucket| bucket.memory_bytes.load(Ordering::Relaxed));
        let Some(bucket) = largest else { return Ok(0) };
        let (blocks, file) = {
            let mut content = bucket.content.lock();
            if content.blocks.is_empty() {
                return Ok(0);
            }
            let file = match &content.file {
                Some(file) => Arc::clone(file),
                None => Arc::clone(content.file.insert(Arc::new(SpillFile::create(&self.temporary)?))),
            };
            (std::mem::take(&mut content.blocks), file)
        };
        let capacity = blocks.iter().map(|block| block.capacity() as u64).sum();
        bucket.memory_bytes.fetch_sub(capacity, Ordering::Relaxed);
        for mut block in blocks {
            file.append(&block, &self.temporary)?;
            self.spilled_bytes.fetch_add(block.len() as u64, Ordering::Relaxed);
            if block.capacity() == self.layout.block_bytes {
                block.clear();
                self.free.lock().push(block);
            } else {
                self.allocated_bytes
                    .fetch_sub(block.capacity() as u64, Ordering::Relaxed);
            }
        }
        Ok(capacity)
    }

    /// If something was spilled, continues to spill until there is room to load it. Returns the total of spilled bytes.
    pub(crate) fn make_room_for_loading(&self) -> Result<u64, BuildError> {
        let free = std::mem::take(&mut *self.free.lock());
        let free_bytes = (free.len() * self.layout.block_bytes) as u64;
        drop(free);
        let mut allocated = self.allocated_bytes.load(Ordering::Relaxed) - free_bytes;
        if self.spilled_bytes.load(Ordering::Relaxed) > 0 {
            while allocated > self.layout.loading_bytes {
                let spilled = self.spill_largest()?;
                self.free.lock().clear();
                if spilled == 0 {
                    break;
                }
                allocated = allocated.saturating_sub(spilled);
            }
        }
        Ok(self.spilled_bytes.load(Ordering::Relaxed))
    }

    /// The buckets, in order. All appenders must be closed.
    pub(crate) fn into_parts(self) -> Vec<Part> {
        let part = |bucket: Bucket| {
            let content = bucket.content.into_inner();
            Part {
                blocks: content.blocks,
                file: content.file.and_then(Arc::into_inner),
                records: bucket.records.into_inner(),
            }
        };
        self.buckets.into_iter().map(part).collect()
    }
}
