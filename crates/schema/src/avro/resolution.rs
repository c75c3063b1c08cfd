//! Values of a writer's schema in a reader's schema: written anew, without a form between the two.

use super::compatibility::{FieldMap, branch_for, compare, matches};
use super::cursor::{Cursor, put_long, put_sized};
use super::{Graph, Kind, NodeIndex};
use crate::ValueError;

/// The pairs of types in the schemas of a writer and a reader, computed once for many values.
#[derive(Debug, Clone)]
pub(crate) struct Resolution {
    fields: FieldMap,
}

impl Resolution {
    pub fn new(writer: &Graph, reader: &Graph) -> Self {
        Self {
            fields: compare(writer, reader).1,
        }
    }

    /// The writer's field of a field of the reader, for two records that meet.
    pub fn source(&self, w: NodeIndex, r: NodeIndex, field: usize) -> Option<usize> {
        self.fields.get(&(w, r)).and_then(|sources| sources[field])
    }

    pub fn resolve(&self, writer: &Graph, reader: &Graph, payload: &[u8]) -> Result<Vec<u8>, ValueError> {
        let mut cursor = Cursor::new(payload);
        let mut out = Vec::with_capacity(payload.len());
        self.write(writer, writer.root, reader, reader.root, &mut cursor, &mut out, 0)?;
        cursor.expect_end()?;
        Ok(out)
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "two graphs, each with a node: a struct would be taken apart at once"
    )]
    pub fn write(
        &self,
        writer: &Graph,
        w: NodeIndex,
        reader: &Graph,
        r: NodeIndex,
        cursor: &mut Cursor<'_>,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), ValueError> {
        cursor.step(depth)?;
        match (writer.kind(w), reader.kind(r)) {
            (Kind::Union(branches), _) => {
                let branch = branches[cursor.index(branches.len(), "branch of a union")?];
                return self.write(writer, branch, reader, r, cursor, out, depth + 1);
            }
            (_, Kind::Union(_)) => {
                let (index, branch) =
                    branch_for(writer, w, reader, r).ok_or_else(|| misfit(writer, w, reader, r, cursor))?;
                put_long(index as i64, out);
                return self.write(writer, w, reader, branch, cursor, out, depth + 1);
            }
            _ if !matches(writer, w, reader, r) => return Err(misfit(writer, w, reader, r, cursor)),
            (Kind::Int, Kind::Int) => put_long(cursor.int()?.into(), out),
            (Kind::Int | Kind::Long, Kind::Long) => put_long(cursor.long()?, out),
            (Kind::Int | Kind::Long, Kind::Float) => out.extend((cursor.long()? as f32).to_le_bytes()),
            (Kind::Int | Kind::Long, Kind::Double) => out.extend((cursor.long()? as f64).to_le_bytes()),
            (Kind::Float, Kind::Double) => {
                let value = f32::from_le_bytes(cursor.take(4)?.try_into().expect("4 bytes were taken"));
                out.extend(f64::from(value).to_le_bytes());
            }
            (_, Kind::String) => put_sized(cursor.string()?.as_bytes(), out),
            (_, Kind::Bytes) => put_sized(cursor.sized()?, out),
            (
                Kind::Enum { symbols, .. },
                Kind::Enum {
                    symbols: known,
                    default,
                    ..
                },
            ) => {
                let symbol = &symbols[cursor.index(symbols.len(), "symbol")?];
                let index = known.iter().position(|known| known == symbol).or(*default);
                let index = index.ok_or_else(|| {
                    cursor.error(format!(
                        "the reader's schema has neither the symbol {symbol:?} nor a default symbol"
                    ))
                })?;
                put_long(index as i64, out);
            }
            (kind @ (Kind::Array(w) | Kind::Map(w)), Kind::Array(r) | Kind::Map(r)) => {
                while let Some(block) = cursor.block()? {
                    put_long(i64::try_from(block.items).unwrap_or(i64::MAX), out);
                    for index in 0..block.items {
                        if matches!(kind, Kind::Map(_)) {
                            put_sized(cursor.string()?.as_bytes(), out);
                        }
                        let result = self.write(writer, *w, reader, *r, cursor, out, depth + 1);
                        result.map_err(|error| error.within(&format!("[{index}]")))?;
                    }
                    cursor.end_block(&block)?;
                }
                put_long(0, out);
            }
            (Kind::Record { fields: written, .. }, Kind::Record { fields, .. }) => {
                // The reader's order may be another one: the places of the writer's fields come first.
                let mut starts = Vec::with_capacity(written.len());
                for field in written {
                    starts.push(cursor.at);
                    cursor
                        .skip::<false>(writer, field.node, depth + 1)
                        .map_err(|error| error.within(&field.name))?;
                }
                let end = cursor.at;
                let sources = self
                    .fields
                    .get(&(w, r))
                    .ok_or_else(|| cursor.error("the two schemas do not meet here"))?;
                for (field, source) in fields.iter().zip(sources) {
                    match (source, &field.default) {
                        (Some(source), _) => {
                            cursor.at = starts[*source];
                            let result = self.write(
                                writer,
                                written[*source].node,
                                reader,
                                field.node,
                                cursor,
                                out,
                                depth + 1,
                            );
                            result.map_err(|error| error.within(&field.name))?;
                        }
                        (None, Some(default)) => out.extend(&default.encoded),
                        (None, None) => {
                            return Err(cursor
                                .error("the writer's schema lacks the field, and it has no default")
                                .within(&field.name));
                        }
                    }
                }
                cursor.at = end;
            }
            // Equal types: the bytes are the same.
            _ => {
                let start = cursor.at;
                cursor.skip::<true>(writer, w, depth)?;
                let end = cursor.at;
                cursor.at = start;
                out.extend(cursor.take(end - start)?);
            }
        }
        Ok(())
    }
}

fn misfit(writer: &Graph, w: NodeIndex, reader: &Graph, r: NodeIndex, cursor: &Cursor<'_>) -> ValueError {
    cursor.error(format!(
        "{} was written, which cannot be read as {}",
        writer.type_text(w),
        reader.type_text(r)
    ))
}
