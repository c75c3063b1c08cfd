//! JSON values to columns. `arrow-json` parses, and puts lists and structs together; the decoders here replace its own where
//! those would round, cut off, or read another form than the builder's.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, MapArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_json::reader::{ArrayDecoder, DecoderContext, DecoderFactory, Tape, TapeElement};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields};

use crate::canonical::type_text;
use crate::error::excerpt;
use crate::scalar::{Form, Scalars, scalars};

/// Makes the decoders of all types but lists and structs.
#[derive(Debug)]
pub(crate) struct Exact;

impl DecoderFactory for Exact {
    fn make_default_decoder(
        &self,
        context: &DecoderContext,
        field: &FieldRef,
        is_nullable: bool,
    ) -> Result<Option<Box<dyn ArrayDecoder>>, ArrowError> {
        if let Some(scalars) = scalars(field, Form::Json) {
            let type_text = type_text(field);
            return Ok(Some(Box::new(Leaf { scalars, type_text })));
        }
        let DataType::Map(entries, _) = field.data_type() else {
            return Ok(None);
        };
        let DataType::Struct(parts) = entries.data_type() else {
            return Ok(None);
        };
        Ok(Some(Box::new(Map {
            entries: Arc::clone(entries),
            parts: parts.clone(),
            keys: context.make_decoder(&parts[0], false)?,
            values: context.make_decoder(&parts[1], true)?,
            is_nullable,
        })))
    }
}

struct Leaf {
    scalars: Box<dyn Scalars>,
    type_text: String,
}

impl ArrayDecoder for Leaf {
    fn decode(&mut self, tape: &Tape<'_>, places: &[u32]) -> Result<ArrayRef, ArrowError> {
        match self.scalars.append_elements(tape, places) {
            Ok(()) => Ok(self.scalars.finish()),
            Err(place) => Err(unfit(tape, place, &self.type_text)),
        }
    }
}

/// The error for a value that does not fit its type.
fn unfit(tape: &Tape<'_>, place: u32, expected: &str) -> ArrowError {
    let mut found = String::new();
    write(tape, place, &mut found);
    ArrowError::JsonError(format!("{} is no {expected}", excerpt(found.as_bytes())))
}

/// Maps: objects, or lists of pairs if their keys are no text.
struct Map {
    entries: FieldRef,
    parts: Fields,
    keys: Box<dyn ArrayDecoder>,
    values: Box<dyn ArrayDecoder>,
    is_nullable: bool,
}

impl ArrayDecoder for Map {
    fn decode(&mut self, tape: &Tape<'_>, places: &[u32]) -> Result<ArrayRef, ArrowError> {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let mut lengths = Vec::with_capacity(places.len());
        let mut nulls = NullBufferBuilder::new(places.len());
        for &place in places {
            let from = keys.len();
            let mut next = place + 1;
            match tape.get(place) {
                TapeElement::Null if self.is_nullable => {}
                TapeElement::StartObject(end) => {
                    while next < end {
                        keys.push(next);
                        values.push(tape.next(next, "a key")?);
                        next = tape.next(next + 1, "a value")?;
                    }
                }
                TapeElement::StartList(end) => {
                    while next < end {
                        let after = tape.next(next, "a pair")?;
                        let value = match tape.get(next) {
                            TapeElement::StartList(_) if next + 2 < after => tape.next(next + 1, "a key")?,
                            _ => return Err(unfit(tape, next, "pair of key and value")),
                        };
                        if tape.next(value, "a value").ok() != Some(after - 1) {
                            return Err(unfit(tape, next, "pair of key and value"));
                        }
                        keys.push(next + 1);
                        values.push(value);
                        next = after;
                    }
                }
                _ => return Err(unfit(tape, place, "map")),
            }
            lengths.push(keys.len() - from);
            nulls.append(!matches!(tape.get(place), TapeElement::Null));
        }
        let columns = vec![self.keys.decode(tape, &keys)?, self.values.decode(tape, &values)?];
        let entries = StructArray::try_new_with_length(self.parts.clone(), columns, None, keys.len())?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        let map = MapArray::try_new(Arc::clone(&self.entries), offsets, entries, nulls.finish(), false)?;
        Ok(Arc::new(map))
    }
}

/// Appends a value as JSON. Numbers are as they were written. It does not recurse: values may be nested to any depth.
pub(crate) fn write(tape: &Tape<'_>, place: u32, out: &mut String) {
    // The objects and lists around the element: whether it is an object, and how many elements it has had.
    let mut around: Vec<(bool, usize)> = Vec::new();
    for place in place.. {
        let element = tape.get(place);
        if let TapeElement::EndObject(_) | TapeElement::EndList(_) = element {
            around.pop();
            out.push(if let TapeElement::EndList(_) = element {
                ']'
            } else {
                '}'
            });
        } else if let Some((is_object, count)) = around.last_mut() {
            match *count {
                0 => {}
                count if *is_object && count % 2 == 1 => out.push(':'),
                _ => out.push(','),
            }
            *count += 1;
        }
        match element {
            TapeElement::StartObject(_) => {
                out.push('{');
                around.push((true, 0));
            }
            TapeElement::StartList(_) => {
                out.push('[');
                around.push((false, 0));
            }
            TapeElement::EndObject(_) | TapeElement::EndList(_) => {}
            // A string can always be written as JSON.
            TapeElement::String(text) => {
                out.push_str(&serde_json::to_string(tape.get_string(text)).unwrap_or_default());
            }
            TapeElement::Number(text) => out.push_str(tape.get_string(text)),
            TapeElement::True => out.push_str("true"),
            TapeElement::False => out.push_str("false"),
            TapeElement::Null => out.push_str("null"),
            // Only values that were serialised to the tape, not parsed, have other elements.
            other => {
                let _ = write!(out, "{other:?}");
            }
        }
        if around.is_empty() {
            break;
        }
    }
}
