//! The arguments of one request, as places in the buffer that it was read from.
//!
//! One `Arguments` belongs to one connection and is used again for every request: it allocates while it
//! learns how many arguments requests have, and then no more. It also keeps how far parsing came when a
//! request was cut short, so that a request which arrives in many pieces is read once, not once a piece.

/// What is kept for the next request; after a larger one the memory goes back.
const RANGES_KEPT_MAX: usize = 4096;
const UNQUOTED_BYTES_KEPT_MAX: usize = 64 * 1024;

/// Where an argument lies. A request is never longer than `u32::MAX` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    start: u32,
    end: u32,
}

/// How far the request at the start of the buffer has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Progress {
    /// Not at all: the next call begins a request.
    #[default]
    Fresh,
    /// An inline request without a line end in its first `searched` bytes.
    Inline { searched: usize },
    /// A multibulk request with `remaining` arguments to come, the next at `position`.
    Multibulk { remaining: usize, position: usize },
}

/// The arguments of the last complete request, and the memory for those of the next.
///
/// One belongs to one connection. It also keeps how far an unfinished request was read.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    places: Vec<Place>,
    /// The arguments of an inline request that had quotes, one after the other.
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

    /// How many arguments the request has, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no request here.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The argument at `index`; 0 is the command's name. `buffer` is the one that was parsed, from the
    /// same first byte. None past the last argument.
    #[inline]
    pub fn get<'b>(&'b self, index: usize, buffer: &'b [u8]) -> Option<&'b [u8]> {
        let place = self.places.get(index)?;
        self.source(buffer).get(place.start as usize..place.end as usize)
    }

    /// The same, if it [lies in the buffer](Self::lie_in_buffer): to be kept beyond the next request.
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

    /// Whether they lie in the buffer that was parsed. Those that it has in quotes only do not.
    #[inline]
    pub fn lie_in_buffer(&self) -> bool {
        !self.in_unquoted
    }

    /// Forgets the request, and what was read of an unfinished one. To be called before parsing goes on
    /// in a buffer that does not continue the last one.
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

    /// How much memory is held, in bytes.
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

    /// Adds an argument that `write` makes up, byte by byte, because the buffer holds it only in quotes.
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
