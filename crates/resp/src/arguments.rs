//! The arguments of one request, as ranges in the buffer that it was read from.
//!
//! Each connection has one `Arguments` and reuses it for every request: it stops allocating once it has grown to the
//! usual number of arguments. It also keeps the progress of an incomplete request, so that a request which arrives in
//! many pieces is parsed once, and not again for each piece.

/// The capacity that is kept for the next request; larger allocations are freed.
const RANGES_KEPT_MAX: usize = 4096;
const UNQUOTED_BYTES_KEPT_MAX: usize = 64 * 1024;

/// The range of an argument. A request is never longer than `u32::MAX` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    start: u32,
    end: u32,
}

/// The parsing progress of the request at the start of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Progress {
    /// Nothing is parsed: the next call begins a request.
    #[default]
    Fresh,
    /// An inline request without a line end in its first `searched` bytes.
    Inline { searched: usize },
    /// A multibulk request with `remaining` arguments to come, the next at `position`.
    Multibulk { remaining: usize, position: usize },
}

/// The arguments of the last complete request. Their memory is reused for the next one.
///
/// Each connection has one. It also keeps the progress of an incomplete request.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    places: Vec<Place>,
    /// The unescaped arguments of an inline request with quotes, concatenated.
    unquoted: Vec<u8>,
    /// Whether places are in `unquoted` rather than in the caller's buffer.
    in_unquoted: bool,
    pub(crate) progress: Progress,
}

impl Arguments {
    /// No arguments, nothing allocated.
    pub const fn new() -> Self {
        Self {
            places: Vec::new(),
            unquoted: Vec::new(),
            in_unquoted: false,
            progress: Progress::Fresh,
        }
    }

    /// The number of arguments, including the command's name.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The argument at `index`; 0 is the command's name. `buffer` must be the parsed one, from the same first byte.
    /// `None` past the last argument.
    #[inline]
    pub fn get<'b>(&'b self, index: usize, buffer: &'b [u8]) -> Option<&'b [u8]> {
        let place = self.places.get(index)?;
        self.source(buffer).get(place.start as usize..place.end as usize)
    }

    /// Like [`get`](Self::get), but only if the arguments [lie in the buffer](Self::lie_in_buffer): the result may
    /// outlive this request.
    #[inline]
    pub fn get_in_buffer<'b>(&self, index: usize, buffer: &'b [u8]) -> Option<&'b [u8]> {
        let place = self.places.get(index).filter(|_| !self.in_unquoted)?;
        buffer.get(place.start as usize..place.end as usize)
    }

    /// All arguments in order, the command's name first. `buffer` is the one that was parsed.
    #[inline]
    pub fn iter<'b>(&'b self, buffer: &'b [u8]) -> impl DoubleEndedIterator<Item = &'b [u8]> + Clone + 'b {
        let source = self.source(buffer);
        self.places
            .iter()
            .filter_map(|place| source.get(place.start as usize..place.end as usize))
    }

    /// Whether the arguments lie in the parsed buffer. Arguments that were unquoted do not.
    #[inline]
    pub fn lie_in_buffer(&self) -> bool {
        !self.in_unquoted
    }

    /// Discards the request, and the progress of an incomplete one. Call it before parsing a buffer that does not
    /// continue the last one.
    #[inline]
    pub fn clear(&mut self) {
        self.places.clear();
        self.unquoted.clear();
        self.in_unquoted = false;
        self.progress = Progress::Fresh;
        if self.places.capacity() > RANGES_KEPT_MAX {
            self.places.shrink_to(RANGES_KEPT_MAX);
        }
        if self.unquoted.capacity() > UNQUOTED_BYTES_KEPT_MAX {
            self.unquoted.shrink_to(UNQUOTED_BYTES_KEPT_MAX);
        }
    }

    /// The allocated memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>() + self.unquoted.capacity()
    }

    /// Adds an argument that lies in the caller's buffer.
    #[inline]
    pub(crate) fn push_place(&mut self, start: usize, end: usize) {
        debug_assert!(start <= end && end <= u32::MAX as usize);
        debug_assert!(!self.in_unquoted);
        self.places.push(Place {
            start: start as u32,
            end: end as u32,
        });
    }

    /// Adds an argument that `write` produces byte by byte, because the buffer has it only in quoted form.
    pub(crate) fn push_unquoted<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        debug_assert!(self.in_unquoted || self.places.is_empty());
        self.in_unquoted = true;
        let start = self.unquoted.len();
        write(&mut self.unquoted)?;
        self.places.push(Place {
            start: start as u32,
            end: self.unquoted.len() as u32,
        });
        Ok(())
    }

    #[inline]
    fn source<'b>(&'b self, buffer: &'b [u8]) -> &'b [u8] {
        if self.in_unquoted { &self.unquoted } else { buffer }
    }
}
