//! Reads and skips Avro's binary form. It allocates nothing, and every length is compared with the bytes that are left.

use super::{Graph, Kind, NodeIndex};
use crate::{VALUE_DEPTH_MAX, ValueError};

/// The items of a value that may have no bytes, beside those that its bytes pay for.
const STEPS_FREE: usize = 1 << 16;

/// A position in a payload, with a limit of the work: items without bytes could make a short payload endless.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pub at: usize,
    steps: usize,
}

/// A block of an array or a map: its items, and its end if the writer gave its size.
pub(crate) struct Block {
    pub items: usize,
    end: Option<usize>,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            steps: STEPS_FREE + 8 * bytes.len(),
        }
    }

    pub fn error(&self, reason: impl Into<String>) -> ValueError {
        ValueError::new(self.at, reason)
    }

    /// Counts one item of work, and checks the depth.
    #[inline]
    pub fn step(&mut self, depth: usize) -> Result<(), ValueError> {
        if depth > VALUE_DEPTH_MAX {
            return Err(self.error(format!("nested more than {VALUE_DEPTH_MAX} deep")));
        }
        match self.steps.checked_sub(1) {
            Some(left) => self.steps = left,
            None => return Err(self.error("too many items without bytes")),
        }
        Ok(())
    }

    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], ValueError> {
        let left = self.bytes.len() - self.at;
        if length > left {
            return Err(self.error(format!("{length} bytes are expected, {left} are left")));
        }
        let taken = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(taken)
    }

    #[inline]
    pub fn long(&mut self) -> Result<i64, ValueError> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let Some(&byte) = self.bytes.get(self.at) else {
                return Err(self.error("the value ends within a number"));
            };
            if shift == 63 && byte > 1 {
                return Err(self.error("a number has more than 64 bits"));
            }
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
            shift += 7;
        }
    }

    pub fn int(&mut self) -> Result<i32, ValueError> {
        let value = self.long()?;
        i32::try_from(value).map_err(|_| self.error(format!("{value} is no int of 32 bits")))
    }

    pub fn boolean(&mut self) -> Result<bool, ValueError> {
        match self.take(1)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.error(format!("{other} is no boolean"))),
        }
    }

    #[inline]
    pub fn sized(&mut self) -> Result<&'a [u8], ValueError> {
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| self.error(format!("{length} is no length")))?;
        self.take(length)
    }

    pub fn string(&mut self) -> Result<&'a str, ValueError> {
        let bytes = self.sized()?;
        std::str::from_utf8(bytes).map_err(|_| self.error("a string is not UTF-8"))
    }

    /// An index below `count`: of a symbol or a branch.
    pub fn index(&mut self, count: usize, what: &str) -> Result<usize, ValueError> {
        let index = self.long()?;
        let index_in = usize::try_from(index).ok().filter(|index| *index < count);
        index_in.ok_or_else(|| self.error(format!("{what} {index} of {count}")))
    }

    /// The next block of an array or a map; `None` at its end.
    #[inline]
    pub fn block(&mut self) -> Result<Option<Block>, ValueError> {
        let count = self.long()?;
        if count == 0 {
            return Ok(None);
        }
        let end = if count < 0 {
            let size = self.long()?;
            let end = usize::try_from(size).ok().and_then(|size| self.at.checked_add(size));
            Some(
                end.filter(|end| *end <= self.bytes.len())
                    .ok_or_else(|| self.error(format!("{size} is no size of a block")))?,
            )
        } else {
            None
        };
        let items = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        Ok(Some(Block { items, end }))
    }

    pub fn end_block(&self, block: &Block) -> Result<(), ValueError> {
        match block.end {
            Some(end) if end != self.at => Err(self.error("a block has another size than it says")),
            _ => Ok(()),
        }
    }

    /// Skips a value. With `CHECK`, it is checked completely, so that every other reader accepts it.
    pub fn skip<const CHECK: bool>(&mut self, graph: &Graph, node: NodeIndex, depth: usize) -> Result<(), ValueError> {
        self.step(depth)?;
        match graph.kind(node) {
            Kind::Null => {}
            Kind::Boolean => {
                self.boolean()?;
            }
            Kind::Int => {
                self.int()?;
            }
            Kind::Long => {
                self.long()?;
            }
            Kind::Float => {
                self.take(4)?;
            }
            Kind::Double => {
                self.take(8)?;
            }
            Kind::String if CHECK => {
                self.string()?;
            }
            Kind::Bytes | Kind::String => {
                self.sized()?;
            }
            Kind::Fixed { size, .. } => {
                self.take(*size)?;
            }
            Kind::Enum { symbols, .. } => {
                self.index(symbols.len(), "symbol")?;
            }
            Kind::Union(branches) => {
                let branch = self.index(branches.len(), "branch of a union")?;
                self.skip::<CHECK>(graph, branches[branch], depth + 1)?;
            }
            Kind::Record { fields, .. } => {
                for field in fields {
                    self.skip::<CHECK>(graph, field.node, depth + 1)
                        .map_err(|error| error.within(&field.name))?;
                }
            }
            kind @ (Kind::Array(item) | Kind::Map(item)) => {
                let is_map = matches!(kind, Kind::Map(_));
                while let Some(block) = self.block()? {
                    self.skip_block::<CHECK>(graph, *item, is_map, &block, depth)?;
                }
            }
        }
        Ok(())
    }

    /// Skips the items of a block that was begun, of an array or a map at this depth.
    pub fn skip_block<const CHECK: bool>(
        &mut self,
        graph: &Graph,
        item: NodeIndex,
        is_map: bool,
        block: &Block,
        depth: usize,
    ) -> Result<(), ValueError> {
        if let (Some(end), false) = (block.end, CHECK) {
            self.at = end;
            return Ok(());
        }
        for index in 0..block.items {
            if is_map {
                self.string()?;
            }
            self.skip::<CHECK>(graph, item, depth + 1)
                .map_err(|error| error.within(&format!("[{index}]")))?;
        }
        self.end_block(block)
    }

    pub fn expect_end(&self) -> Result<(), ValueError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => Err(self.error(format!("{left} bytes follow the value"))),
        }
    }
}

/// Checks a whole payload.
pub(crate) fn validate(graph: &Graph, payload: &[u8]) -> Result<(), ValueError> {
    let mut cursor = Cursor::new(payload);
    cursor.skip::<true>(graph, graph.root, 0)?;
    cursor.expect_end()
}

/// Appends a number as Avro's zigzag LEB128.
pub(crate) fn put_long(value: i64, out: &mut Vec<u8>) {
    let mut rest = (value << 1 ^ value >> 63) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

pub(crate) fn put_sized(bytes: &[u8], out: &mut Vec<u8>) {
    put_long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}
