//! Some fields of a record, without decoding the others.

use std::ops::Range;

use serde_json::{Map, Value};

use super::cursor::Cursor;
use super::resolution::Resolution;
use super::{Field, Graph, Kind, Name, NodeIndex, to_json};
use crate::{SchemaError, ValueError};

/// The fields of values of one writer's schema, as a reader's schema has them.
#[derive(Debug)]
pub(crate) struct AvroProjection {
    writer: Graph,
    /// The reader's graph, if it is another one.
    reader: Option<(Graph, Resolution)>,
    /// In the order in which they were asked for: the reader's field, and the writer's index of it.
    fields: Vec<(Field, Option<usize>)>,
    /// The fields up to the last one that is used.
    scanned: usize,
    pub schema: Graph,
    pub schema_text: String,
}

impl AvroProjection {
    pub fn new(writer: &Graph, reader: Option<&Graph>, names: &[&str]) -> Result<Self, SchemaError> {
        let graph = reader.unwrap_or(writer);
        let Kind::Record { name, fields } = graph.kind(graph.root) else {
            return Err(SchemaError::new("the root", "only records have fields"));
        };
        let resolution = reader.map(|reader| Resolution::new(writer, reader));
        let mut chosen: Vec<(Field, Option<usize>)> = Vec::new();
        for name in names {
            let at = fields
                .iter()
                .position(|field| field.name == *name)
                .ok_or_else(|| SchemaError::new(*name, "there is no such field"))?;
            if chosen.iter().any(|(field, _)| field.name == *name) {
                return Err(SchemaError::new(*name, "the field is asked for twice"));
            }
            let source = match &resolution {
                None => Some(at),
                Some(resolution) => resolution.source(writer.root, graph.root, at),
            };
            if source.is_none() && fields[at].default.is_none() {
                return Err(SchemaError::new(
                    *name,
                    "the writer's schema lacks the field, and it has no default",
                ));
            }
            chosen.push((fields[at].clone(), source));
        }
        let scanned = chosen
            .iter()
            .filter_map(|(_, source)| *source)
            .max()
            .map_or(0, |last| last + 1);
        let mut record = Name {
            full: format!("{}_fields", name.full),
            aliases: Vec::new(),
        };
        while graph.nodes.iter().any(|node| matches!(&node.kind, Kind::Record { name, .. } | Kind::Enum { name, .. } | Kind::Fixed { name, .. } if name.full == record.full)) {
            record.full.push('_');
        }
        let chosen_fields: Vec<Field> = chosen.iter().map(|(field, _)| field.clone()).collect();
        let schema_text = graph.record_of(&record, &chosen_fields);
        // The same nodes with another root: the fields keep their indices.
        let mut schema = graph.clone();
        schema.nodes.push(super::Node {
            kind: Kind::Record {
                name: record,
                fields: chosen_fields,
            },
            logical: None,
        });
        schema.root = schema.nodes.len() - 1;
        let reader = reader.cloned().zip(resolution);
        Ok(Self {
            writer: writer.clone(),
            reader,
            fields: chosen,
            scanned,
            schema,
            schema_text,
        })
    }

    fn graph(&self) -> &Graph {
        self.reader.as_ref().map_or(&self.writer, |(reader, _)| reader)
    }

    /// The place of each used field of the writer.
    fn places(&self, payload: &[u8]) -> Result<Vec<Range<usize>>, ValueError> {
        let mut cursor = Cursor::new(payload);
        let mut places = Vec::with_capacity(self.scanned);
        for field in &self.writer.fields()[..self.scanned] {
            let start = cursor.at;
            cursor
                .skip::<false>(&self.writer, field.node, 1)
                .map_err(|error| error.within(&field.name))?;
            places.push(start..cursor.at);
        }
        Ok(places)
    }

    fn append(
        &self,
        field: &Field,
        source: Option<usize>,
        places: &[Range<usize>],
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ValueError> {
        match (source, &self.reader, &field.default) {
            (Some(source), None, _) => out.extend_from_slice(&payload[places[source].clone()]),
            (Some(source), Some((reader, resolution)), _) => {
                let bytes = &payload[places[source].clone()];
                let mut cursor = Cursor::new(bytes);
                let node = self.writer.fields()[source].node;
                let result = resolution.write(&self.writer, node, reader, field.node, &mut cursor, out, 1);
                result.map_err(|error| error.within(&field.name))?;
            }
            (None, _, Some(default)) => out.extend(&default.encoded),
            (None, _, None) => return Err(ValueError::new(0, "the field has no default").within(&field.name)),
        }
        Ok(())
    }

    pub fn encoded(&self, payload: &[u8]) -> Result<Vec<u8>, ValueError> {
        let places = self.places(payload)?;
        let mut out = Vec::new();
        for (field, source) in &self.fields {
            self.append(field, *source, &places, payload, &mut out)?;
        }
        Ok(out)
    }

    pub fn json(&self, payload: &[u8]) -> Result<Value, ValueError> {
        let places = self.places(payload)?;
        let mut object = Map::new();
        let mut bytes = Vec::new();
        for (field, source) in &self.fields {
            bytes.clear();
            self.append(field, *source, &places, payload, &mut bytes)?;
            let value = to_json::read(self.graph(), field.node, &mut Cursor::new(&bytes), 1);
            object.insert(field.name.clone(), value.map_err(|error| error.within(&field.name))?);
        }
        Ok(Value::Object(object))
    }

    /// A cursor at a field of the writer, with the type of what is there: the branch, if it is a union. `None` if the writer lacks the
    /// field.
    fn seek<'a>(&self, payload: &'a [u8], name: &str) -> Result<Option<(Cursor<'a>, NodeIndex)>, ValueError> {
        let (_, source) = self
            .fields
            .iter()
            .find(|(field, _)| field.name == name)
            .ok_or_else(|| ValueError::new(0, "the projection lacks the field").within(name))?;
        let Some(source) = *source else { return Ok(None) };
        let mut cursor = Cursor::new(payload);
        for field in &self.writer.fields()[..source] {
            cursor
                .skip::<false>(&self.writer, field.node, 1)
                .map_err(|error| error.within(&field.name))?;
        }
        let mut node = self.writer.fields()[source].node;
        if let Kind::Union(branches) = self.writer.kind(node) {
            let branch = cursor.index(branches.len(), "branch of a union");
            node = branches[branch.map_err(|error| error.within(name))?];
        }
        Ok(Some((cursor, node)))
    }

    /// The bytes of 32-bit floats in place: of `array of float` in one block, of bytes or of a fixed.
    pub fn floats<'a>(&self, payload: &'a [u8], name: &str) -> Result<&'a [u8], ValueError> {
        let Some((mut cursor, node)) = self.seek(payload, name)? else {
            return Ok(&[]);
        };
        let error = |reason: &str| ValueError::new(0, reason);
        let bytes = match self.writer.kind(node) {
            Kind::Null => Ok(&[][..]),
            Kind::Bytes => cursor.sized(),
            Kind::Fixed { size, .. } => cursor.take(*size),
            Kind::Array(item) if matches!(self.writer.kind(*item), Kind::Float) => one_block(&mut cursor),
            _ => Err(error("the field is no array of float, bytes or fixed")),
        };
        match bytes {
            Ok(bytes) if bytes.len().is_multiple_of(4) => Ok(bytes),
            Ok(_) => Err(error("the bytes are no whole number of floats").within(name)),
            Err(error) => Err(error.within(name)),
        }
    }

    /// The number of items of a list or a map, of floats of bytes or of a fixed; `None` if the field is null.
    pub fn count(&self, payload: &[u8], name: &str) -> Result<Option<u64>, ValueError> {
        let Some((mut cursor, node)) = self.seek(payload, name)? else {
            return Ok(self.json(payload)?.get(name).and_then(count_of_json));
        };
        let (Kind::Array(item) | Kind::Map(item)) = self.writer.kind(node) else {
            return match self.writer.kind(node) {
                Kind::Null => Ok(None),
                Kind::Bytes | Kind::Fixed { .. } => Ok(Some(self.floats(payload, name)?.len() as u64 / 4)),
                _ => Err(ValueError::new(0, "the field is no list, no map and no vector").within(name)),
            };
        };
        let is_map = matches!(self.writer.kind(node), Kind::Map(_));
        let mut count = 0u64;
        let mut blocks = || {
            while let Some(block) = cursor.block()? {
                count = count.saturating_add(block.items as u64);
                cursor.skip_block::<false>(&self.writer, *item, is_map, &block, 1)?;
            }
            Ok(count)
        };
        blocks().map(Some).map_err(|error: ValueError| error.within(name))
    }
}

/// The floats of an array that is in one block.
fn one_block<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], ValueError> {
    let Some(block) = cursor.block()? else {
        return Ok(&[]);
    };
    let bytes = cursor.take(block.items.saturating_mul(4))?;
    match cursor.block()? {
        None => Ok(bytes),
        Some(_) => Err(cursor.error("the vector is in several blocks")),
    }
}

/// The number of items of a list or a map in JSON.
pub(crate) fn count_of_json(value: &Value) -> Option<u64> {
    match value {
        Value::Array(items) => Some(items.len() as u64),
        Value::Object(items) => Some(items.len() as u64),
        _ => None,
    }
}
