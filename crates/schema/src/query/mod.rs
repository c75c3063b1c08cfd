//! Queries over values: some fields of each, or a score over one field, of the values that meet conditions.
//!
//! ```text
//! query     = what [SCHEMA id] [WHERE condition [AND condition …]]
//! what      = FIELDS n field … [AS JSON | AS RAW]
//!           | DOT field VECTOR floats | COSINE field VECTOR floats | HADAMARD field VECTOR floats | COUNT field
//! condition = field = | != | < | <= | > | >= literal
//! floats    = 32-bit floats, little-endian
//! ```
//!
//! Words are bytes, as clients send them; between processes they travel as [`Query::to_bytes`].

mod condition;
mod evaluate;
mod some_fields;

pub use condition::{Comparison, Condition};
pub use evaluate::{Evaluator, Found};

use crate::{Schema, Schemas};

/// The most fields that are asked for.
pub const FIELDS_MAX: usize = 1024;
/// The most conditions.
pub const CONDITIONS_MAX: usize = 32;
/// The longest vector that is given, in bytes.
pub const VECTOR_BYTES_MAX: usize = 64 << 10;
/// The longest name of a field, and the longest literal.
const WORD_BYTES_MAX: usize = 4096;

/// A query over the fields of values.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// The result that is asked for.
    pub what: What,
    /// The id of the reader's schema, whose fields, defaults and aliases apply; by default the newest.
    pub schema: Option<u16>,
    /// All must hold; other values count as missing.
    pub conditions: Vec<Condition>,
}

/// The result that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// Some fields.
    Fields {
        /// Their names, in this order.
        names: Vec<String>,
        /// The form of the result.
        form: Form,
    },
    /// The dot product of a vector with the given one.
    Dot(Operand),
    /// The cosine of the angle between them.
    Cosine(Operand),
    /// The products of their floats.
    Hadamard(Operand),
    /// The number of items of a list or a map, of floats of a vector.
    Count {
        /// The field with the items.
        field: String,
    },
}

/// The vectors of a computation.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    /// The field of the stored vector.
    pub field: String,
    /// The given vector.
    pub vector: Vec<f32>,
}

/// The form of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Each field with its value.
    Pairs,
    /// A JSON object.
    Json,
    /// A payload of a record of these fields: [`Projection::encoded`](crate::Projection::encoded).
    Raw,
}

/// A query that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// Its words are no query.
    #[error("syntax error: {0}")]
    Syntax(String),
    /// The schema lacks a field.
    #[error("there is no field {field:?}: the fields are {known}")]
    UnknownField {
        /// The field.
        field: String,
        /// The first fields of the schema.
        known: String,
    },
    /// The store lacks a schema.
    #[error("no schema has the id {0}")]
    UnknownSchema(u16),
    /// The type of the store's values has no such fields.
    #[error("{0}")]
    Type(String),
}

fn syntax<T>(text: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::Syntax(text.into()))
}

/// The words of a query, from a place on.
struct Words<'a, W> {
    words: &'a [W],
    at: usize,
}

impl<'a, W: AsRef<[u8]>> Words<'a, W> {
    fn next(&mut self, missing: &str) -> Result<&'a [u8], QueryError> {
        let word = self.words.get(self.at).map(AsRef::as_ref);
        self.at += 1;
        word.ok_or_else(|| QueryError::Syntax(format!("{missing} is missing")))
    }

    /// Whether the next word is this one, which is then taken.
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self
            .words
            .get(self.at)
            .is_some_and(|next| next.as_ref().eq_ignore_ascii_case(word.as_bytes()));
        self.at += usize::from(is_next);
        is_next
    }

    fn text(&mut self, missing: &str) -> Result<String, QueryError> {
        let word = self.next(missing)?;
        match std::str::from_utf8(word) {
            Ok(text) if text.len() <= WORD_BYTES_MAX => Ok(text.into()),
            Ok(text) => syntax(format!(
                "{missing} has {} bytes, over the limit of {WORD_BYTES_MAX}",
                text.len()
            )),
            Err(_) => syntax(format!("{missing} is not UTF-8")),
        }
    }

    fn field(&mut self) -> Result<String, QueryError> {
        let field = self.text("the name of a field")?;
        match field.is_empty() {
            true => syntax("the name of a field is empty"),
            false => Ok(field),
        }
    }

    fn number(&mut self, missing: &str, max: usize) -> Result<usize, QueryError> {
        let text = self.text(missing)?;
        let number = text.parse().ok().filter(|number| (1..=max).contains(number));
        number.ok_or_else(|| QueryError::Syntax(format!("{missing} is a number from 1 to {max}, not {text:?}")))
    }

    fn fields(&mut self) -> Result<What, QueryError> {
        let count = self.number("the number of fields", FIELDS_MAX)?;
        let names = (0..count).map(|_| self.field()).collect::<Result<Vec<_>, _>>()?;
        let mut form = Form::Pairs;
        if self.takes("AS") {
            form = match self.text("JSON or RAW behind AS")?.to_ascii_uppercase().as_str() {
                "JSON" => Form::Json,
                "RAW" => Form::Raw,
                other => return syntax(format!("AS {other:?} is unknown: use JSON or RAW")),
            };
        }
        Ok(What::Fields { names, form })
    }

    fn operand(&mut self) -> Result<Operand, QueryError> {
        let field = self.field()?;
        if !self.takes("VECTOR") {
            return syntax(format!("VECTOR and the vector are expected behind the field {field:?}"));
        }
        let bytes = self.next("the vector")?;
        let (floats, rest) = bytes.as_chunks::<4>();
        if bytes.is_empty() || !rest.is_empty() || bytes.len() > VECTOR_BYTES_MAX {
            return syntax(format!(
                "a vector is 1 to {} floats of 4 bytes, little-endian, not {} bytes",
                VECTOR_BYTES_MAX / 4,
                bytes.len()
            ));
        }
        let vector: Vec<f32> = floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        match vector.iter().position(|float| !float.is_finite()) {
            Some(at) => syntax(format!("the vector has {} at place {at}", vector[at])),
            None => Ok(Operand { field, vector }),
        }
    }

    fn conditions(&mut self) -> Result<Vec<Condition>, QueryError> {
        let mut conditions = Vec::new();
        if !self.takes("WHERE") {
            return Ok(conditions);
        }
        loop {
            let field = self.field()?;
            let comparison = self.next("a comparison")?;
            let comparison = Comparison::parse(comparison).ok_or_else(|| {
                let found = String::from_utf8_lossy(comparison);
                QueryError::Syntax(format!("{found:?} is no comparison: use = != < <= > >="))
            })?;
            let literal = self.text("the literal of a comparison")?;
            conditions.push(Condition {
                field,
                comparison,
                literal,
            });
            if !self.takes("AND") {
                return Ok(conditions);
            }
            if conditions.len() == CONDITIONS_MAX {
                return syntax(format!("more than {CONDITIONS_MAX} conditions"));
            }
        }
    }
}

impl Query {
    /// Reads a query from words, from a place on; with the place behind it. `None` if it does not begin there.
    ///
    /// # Errors
    /// [`QueryError::Syntax`].
    pub fn parse<W: AsRef<[u8]>>(words: &[W], at: usize) -> Result<Option<(Self, usize)>, QueryError> {
        let mut words = Words { words, at };
        let what = if words.takes("FIELDS") {
            words.fields()?
        } else if words.takes("DOT") {
            What::Dot(words.operand()?)
        } else if words.takes("COSINE") {
            What::Cosine(words.operand()?)
        } else if words.takes("HADAMARD") {
            What::Hadamard(words.operand()?)
        } else if words.takes("COUNT") {
            What::Count { field: words.field()? }
        } else {
            return Ok(None);
        };
        let schema = match words.takes("SCHEMA") {
            true => Some(words.number("the id of a schema", crate::SCHEMA_ID_MAX.into())? as u16),
            false => None,
        };
        let conditions = words.conditions()?;
        let query = Self {
            what,
            schema,
            conditions,
        };
        Ok(Some((query, words.at)))
    }

    /// The query as one string of bytes: each word behind its length in 4 bytes, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |word: &[u8]| {
            bytes.extend((word.len() as u32).to_le_bytes());
            bytes.extend(word);
        };
        match &self.what {
            What::Fields { names, form } => {
                put(b"FIELDS");
                put(names.len().to_string().as_bytes());
                names.iter().for_each(|name| put(name.as_bytes()));
                if let Some(form) = form.word() {
                    put(b"AS");
                    put(form);
                }
            }
            What::Count { field } => {
                put(b"COUNT");
                put(field.as_bytes());
            }
            What::Dot(operand) | What::Cosine(operand) | What::Hadamard(operand) => {
                put(match self.what {
                    What::Dot(_) => b"DOT",
                    What::Cosine(_) => b"COSINE",
                    _ => b"HADAMARD",
                });
                put(operand.field.as_bytes());
                put(b"VECTOR");
                let floats: Vec<u8> = operand.vector.iter().flat_map(|float| float.to_le_bytes()).collect();
                put(&floats);
            }
        }
        if let Some(schema) = self.schema {
            put(b"SCHEMA");
            put(schema.to_string().as_bytes());
        }
        for (at, condition) in self.conditions.iter().enumerate() {
            put(if at == 0 { b"WHERE" } else { b"AND" });
            put(condition.field.as_bytes());
            put(condition.comparison.word().as_bytes());
            put(condition.literal.as_bytes());
        }
        bytes
    }

    /// Reads [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`QueryError::Syntax`].
    pub fn of_bytes(mut bytes: &[u8]) -> Result<Self, QueryError> {
        let mut words = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let Some((word, rest)) = rest.split_at_checked(length) else {
                return syntax("the query ends within a word");
            };
            words.push(word);
            bytes = rest;
        }
        match Self::parse(&words, 0)? {
            Some((query, end)) if end == words.len() && bytes.is_empty() => Ok(query),
            _ => syntax("these words are no query"),
        }
    }

    /// The fields that are asked for, or computed over.
    pub fn fields(&self) -> Vec<&str> {
        match &self.what {
            What::Fields { names, .. } => names.iter().map(String::as_str).collect(),
            What::Dot(operand) | What::Cosine(operand) | What::Hadamard(operand) => vec![&operand.field],
            What::Count { field } => vec![field],
        }
    }

    /// The same query with the id of the schema that it is read by, so that all nodes take the same one.
    ///
    /// # Errors
    /// [`QueryError::UnknownSchema`].
    pub fn with_schema_of(self, schemas: &Schemas) -> Result<Self, QueryError> {
        let schema = match self.schema {
            Some(id) => Some(schemas.get(id).map(|_| id).ok_or(QueryError::UnknownSchema(id))?),
            None => schemas.newest().map(|(id, _)| id),
        };
        Ok(Self { schema, ..self })
    }
}

impl Form {
    fn word(self) -> Option<&'static [u8]> {
        match self {
            Self::Pairs => None,
            Self::Json => Some(b"JSON"),
            Self::Raw => Some(b"RAW"),
        }
    }
}

/// Checks that a schema has fields.
fn check_fields(schema: &Schema, fields: &[&str]) -> Result<(), QueryError> {
    /// How many fields an error lists.
    const KNOWN_MAX: usize = 20;
    let known = schema.fields();
    match fields
        .iter()
        .find(|field| known.iter().all(|known| known.name != **field))
    {
        None => Ok(()),
        Some(unknown) => {
            let names: Vec<&str> = known.iter().take(KNOWN_MAX).map(|field| field.name.as_str()).collect();
            let more = match known.len().saturating_sub(KNOWN_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Err(QueryError::UnknownField {
                field: (*unknown).into(),
                known: names.join(", ") + &more,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<(Query, usize)>, QueryError> {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        Query::parse(&words, 0)
    }

    #[test]
    fn a_query_ends_where_other_words_begin_and_travels_as_bytes() {
        for (text, rest) in [
            ("fields 2 a b s:k", 1),
            ("FIELDS 1 a AS json SCHEMA 300 WHERE a >= 5 AND b != x s:k s:l", 2),
            ("FIELDS 1 where as raw s:k", 1),
            ("COUNT tags WHERE a = and AND b = c KEYS s:k", 2),
            ("DOT v VECTOR 1234abcd TOP 5", 2),
            ("COSINE v VECTOR 1234 SCHEMA 1", 0),
            ("hadamard v vector 1234", 0),
        ] {
            let (query, end) = parsed(text).unwrap().unwrap();
            assert_eq!(end + rest, text.split(' ').count(), "{text}");
            assert_eq!(Query::of_bytes(&query.to_bytes()), Ok(query), "{text}");
        }
        assert_eq!(parsed("s:k"), Ok(None));
    }

    #[test]
    fn malformed_queries_are_refused_by_name() {
        for (text, part) in [
            ("FIELDS", "number of fields is missing"),
            ("FIELDS 0 s:k", "from 1 to 1024"),
            ("FIELDS 1000000 a", "from 1 to 1024"),
            ("FIELDS 2 a", "name of a field is missing"),
            ("FIELDS 1 ", "is empty"),
            ("FIELDS 1 a AS xml", "\"XML\""),
            ("FIELDS 1 a SCHEMA 0", "16383"),
            ("FIELDS 1 a SCHEMA 99999", "16383"),
            ("FIELDS 1 a WHERE", "is missing"),
            ("FIELDS 1 a WHERE b LIKE c", "\"LIKE\""),
            ("FIELDS 1 a WHERE b =", "literal"),
            ("DOT v", "VECTOR"),
            ("DOT v VECTOR", "the vector is missing"),
            ("DOT v VECTOR 12345", "not 5 bytes"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let many = format!("FIELDS 1 a WHERE b = 1{}", " AND b = 1".repeat(40));
        assert!(parsed(&many).unwrap_err().to_string().contains("32 conditions"));
        let empty: [&[u8]; 3] = [b"FIELDS", b"1", b""];
        assert!(Query::parse(&empty, 0).unwrap_err().to_string().contains("empty"));
        let vector = |bytes: &[u8]| Query::parse(&[b"DOT", &b"v"[..], b"VECTOR", bytes], 0);
        assert!(vector(&vec![0; VECTOR_BYTES_MAX + 4]).is_err());
        assert!(vector(b"").is_err());
        let nan = [0f32, f32::NAN].map(f32::to_le_bytes).concat();
        assert!(vector(&nan).unwrap_err().to_string().contains("NaN at place 1"));
        for bytes in [&b"\x05\0\0\0FIELD"[..], b"\xff\xff\xff\xffx", b"\0", b""] {
            assert!(Query::of_bytes(bytes).is_err());
        }
    }
}
