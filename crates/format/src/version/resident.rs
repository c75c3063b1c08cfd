//! The index of a whole version, loaded and verified once, in anonymous memory.
//!
//! A mapped index competes with the data for memory, and each access to it may miss the TLB, which covers pages of 4
//! KiB. On a virtual machine that alone takes some 100 ns. An index in anonymous memory, in huge pages if the system
//! has them, avoids both.

use memmap2::{Advice, Mmap, MmapMut};

use crate::chunk::reader::Chunk;
use crate::error::FormatError;

/// The offset of every bucket of every chunk; after the buckets of a chunk, the end of the last one.
pub(crate) struct ResidentIndex {
    places: Mmap,
    /// The index of each chunk's first entry.
    bases: Box<[usize]>,
}

const ENTRY_BYTES: usize = 4;

impl ResidentIndex {
    /// Reads and verifies the indexes of these chunks. `failed` is called with the chunk of an error.
    pub(crate) fn load(chunks: &[Chunk], failed: impl Fn(u32, &FormatError)) -> Result<Self, FormatError> {
        let mut entries = 0;
        let mut bases = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            bases.push(entries);
            entries += chunk.bucket_count() as usize + 1;
        }
        let mut places = MmapMut::map_anon((entries * ENTRY_BYTES).max(1))
            .map_err(FormatError::io("allocate memory for the index of", ""))?;
        // A hint: without huge pages it is only slower.
        let _ = places.advise(Advice::HugePage);
        for (number, (chunk, &base)) in (0..).zip(chunks.iter().zip(&bases)) {
            let end = base + chunk.bucket_count() as usize + 1;
            let loaded = chunk.load_places(&mut places[base * ENTRY_BYTES..end * ENTRY_BYTES]);
            loaded.inspect_err(|error| failed(number, error))?;
        }
        let places = places
            .make_read_only()
            .map_err(FormatError::io("protect the index of", ""))?;
        Ok(Self {
            places,
            bases: bases.into(),
        })
    }

    /// The entry of a bucket, and all entries after it.
    #[inline]
    pub(crate) fn entry(&self, chunk: u32, bucket: u32) -> &[u8] {
        let at = (self.bases[chunk as usize] + bucket as usize) * ENTRY_BYTES;
        &self.places[at..]
    }
}
