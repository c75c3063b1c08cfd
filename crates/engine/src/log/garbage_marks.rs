//! The frames of a segment that are known to be garbage: cleaning need not look up their keys.

/// The bytes of a segment per mark: the marks take a thousandth of the log's size in memory.
const STEP: u64 = 128;

/// Marks of frames. A frame's mark is that of the first step that begins within the frame, so no other frame has the
/// same mark. A frame without such a step is too short to be marked.
#[derive(Debug, Default)]
pub(super) struct GarbageMarks {
    words: Vec<u64>,
}

impl GarbageMarks {
    /// Marks the frame of `bytes` bytes at an offset.
    pub(super) fn set(&mut self, offset: u32, bytes: u64) {
        let Some((word, bit)) = place(offset, bytes) else {
            return;
        };
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    /// Whether the frame is marked.
    pub(super) fn has(&self, offset: u32, bytes: u64) -> bool {
        let marked = place(offset, bytes).and_then(|(word, bit)| Some(self.words.get(word)? & bit != 0));
        marked.unwrap_or(false)
    }
}

/// The word and the bit of a frame.
fn place(offset: u32, bytes: u64) -> Option<(usize, u64)> {
    let step = u64::from(offset).div_ceil(STEP);
    let is_within = (step + 1) * STEP <= u64::from(offset) + bytes;
    is_within.then_some(((step / 64) as usize, 1 << (step % 64)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_frame_has_the_mark_of_another(frames in prop::collection::vec((1..600_u32, any::<bool>()), 1..200)) {
            let mut marks = GarbageMarks::default();
            let ends = frames.iter().scan(16, |end, (bytes, _)| {
                *end += bytes;
                Some(*end)
            });
            let frames: Vec<_> = frames.iter().zip(ends).map(|((bytes, is_dead), end)| (end - bytes, *bytes, *is_dead)).collect();
            for (offset, bytes, _) in frames.iter().filter(|(_, _, is_dead)| *is_dead) {
                marks.set(*offset, u64::from(*bytes));
            }
            for (offset, bytes, is_dead) in frames {
                let is_marked = marks.has(offset, u64::from(bytes));
                prop_assert!(is_dead || !is_marked, "{offset} {bytes}");
                prop_assert!(is_marked || !is_dead || u64::from(bytes) < 2 * STEP - 1, "{offset} {bytes}");
            }
        }
    }
}
