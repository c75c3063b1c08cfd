//! How vertices and edges stand in the sorts between the input and the version.
//!
//! | sort | key | value |
//! |---|---|---|
//! | by name | the name of a vertex | a [`Mention`] |
//! | by row | an edge's row | an [`End`] |
//! | by row | a vertex's new id | a [`NewVertex`] |
//!
//! All numbers are little-endian.

use super::ids::GivenId;

/// The longest name of a vertex: the key `id:NAME` is a key of the store.
pub(crate) const NAME_BYTES_MAX: usize = fondaco_model::KEY_BYTES_MAX - b"id:".len();

/// As what a row mentions a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// As a vertex.
    Vertex,
    /// As the source of an edge.
    From,
    /// As the target of an edge.
    To,
}

impl Side {
    /// Its description in errors.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Vertex => "the name of the vertex",
            Self::From => "the name that the edge leads from",
            Self::To => "the name that the edge leads to",
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Vertex, Self::From, Self::To]
            .into_iter()
            .find(|side| *side as u8 == byte)
    }
}

/// A mention of a vertex in a row: side (1 byte), whether the name is a number (1 byte), properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mention<'a> {
    pub(crate) side: Side,
    pub(crate) is_number: bool,
    /// Of the vertex or of the edge, as a JSON object; empty if it has none.
    pub(crate) properties: &'a [u8],
}

impl<'a> Mention<'a> {
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.side as u8, u8::from(self.is_number)]);
        out.extend_from_slice(self.properties);
    }

    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&[side, is_number], properties) = bytes.split_first_chunk()?;
        Some(Self {
            side: Side::from_byte(side)?,
            is_number: is_number == 1,
            properties,
        })
    }
}

/// An end of an edge: side (1 byte), id (8 bytes), properties of the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End<'a> {
    pub(super) side: Side,
    pub(super) id: GivenId,
    pub(super) properties: &'a [u8],
}

impl<'a> End<'a> {
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        out.push(self.side as u8);
        out.extend_from_slice(&self.id.to_bytes());
        out.extend_from_slice(self.properties);
    }

    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&side, rest) = bytes.split_first()?;
        let (id, properties) = rest.split_first_chunk()?;
        Some(Self {
            side: Side::from_byte(side)?,
            id: GivenId::from_bytes(*id),
            properties,
        })
    }
}

/// A vertex: whether its name is a number (1 byte), length of the name (4 bytes), name, properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewVertex<'a> {
    pub(super) is_number: bool,
    pub(super) name: &'a [u8],
    pub(super) properties: &'a [u8],
}

impl<'a> NewVertex<'a> {
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_number));
        // A name is shorter than a key.
        out.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.properties);
    }

    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&is_number, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (name, properties) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self {
            is_number: is_number == 1,
            name,
            properties,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        let mention = Mention {
            side: Side::To,
            is_number: true,
            properties: b"{}",
        };
        mention.write_to(&mut bytes);
        assert_eq!(Mention::read(&bytes), Some(mention));

        bytes.clear();
        let end = End {
            side: Side::From,
            id: GivenId::new(3, 70_000),
            properties: b"x",
        };
        end.write_to(&mut bytes);
        assert_eq!(End::read(&bytes), Some(end));

        bytes.clear();
        let vertex = NewVertex {
            is_number: false,
            name: b"ann",
            properties: b"{\"a\":1}",
        };
        vertex.write_to(&mut bytes);
        assert_eq!(NewVertex::read(&bytes), Some(vertex));
        assert_eq!(NewVertex::read(&bytes[..6]), None);
    }
}
