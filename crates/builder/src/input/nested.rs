//! Arrow columns by name, including those within objects: `a.b` is member `b` of column `a`.
//!
//! A column whose own name is `a.b` takes precedence. A member of a null object is null.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};
use std::sync::Arc;

/// The selected columns, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Selection {
    columns: Vec<Selected>,
}

#[derive(Debug)]
struct Selected {
    /// The column with its full name, `a.b`.
    field: FieldRef,
    /// The index of the top-level column.
    root: usize,
    /// The indices of the members below it.
    members: Vec<usize>,
}

impl Selection {
    /// Whether a table has a column of this name.
    pub(super) fn has(schema: &Schema, name: &str) -> bool {
        resolve(schema.fields(), name).is_some()
    }

    /// Finds a column, and selects it. Returns its number.
    pub(super) fn find(&mut self, schema: &Schema, name: &str) -> Option<usize> {
        let known = self.columns.iter().position(|column| column.field.name() == name);
        if known.is_some() {
            return known;
        }
        let (field, path) = resolve(schema.fields(), name)?;
        let (&root, members) = path.split_first()?;
        let field = match members {
            [] => Arc::clone(field),
            _ => Arc::new(Field::clone(field).with_name(name).with_nullable(true)),
        };
        self.columns.push(Selected {
            field,
            root,
            members: members.to_vec(),
        });
        Some(self.columns.len() - 1)
    }

    /// The indices of the leaves below a column, if `schema` is that of a Parquet file.
    pub(super) fn leaves(&self, schema: &Schema, number: usize) -> std::ops::Range<usize> {
        let Selected { root, members, .. } = &self.columns[number];
        let mut fields = schema.fields();
        let mut begin = 0;
        let mut place = *root;
        for next in members.iter().map(Some).chain([None]) {
            begin += fields[..place].iter().map(|field| leaves_of(field)).sum::<usize>();
            let (Some(next), DataType::Struct(inner)) = (next, fields[place].data_type()) else {
                break;
            };
            (fields, place) = (inner, *next);
        }
        begin..begin + leaves_of(&fields[place])
    }

    pub(super) fn field(&self, number: usize) -> &FieldRef {
        &self.columns[number].field
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &FieldRef> {
        self.columns.iter().map(|column| &column.field)
    }

    /// The indices of all needed top-level columns, in order.
    pub(super) fn roots(&self) -> Vec<usize> {
        let mut roots: Vec<usize> = self.columns.iter().map(|column| column.root).collect();
        roots.sort_unstable();
        roots.dedup();
        roots
    }

    /// The same selection for a table with only these columns, whose schema has the same names.
    pub(super) fn of_projection(mut self, roots: &[usize], schema: &Schema) -> Self {
        for column in &mut self.columns {
            column.root = roots.partition_point(|&root| root < column.root);
            let mut field = &schema.fields()[column.root];
            for &member in &column.members {
                if let DataType::Struct(fields) = field.data_type() {
                    field = &fields[member];
                }
            }
            column.field = Arc::new(
                Field::clone(&column.field)
                    .with_data_type(field.data_type().clone())
                    .with_metadata(field.metadata().clone()),
            );
        }
        self
    }

    /// The selected columns of a batch.
    pub(super) fn columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, ArrowError> {
        let column = |column: &Selected| {
            column
                .members
                .iter()
                .try_fold(Arc::clone(batch.column(column.root)), |array, &place| {
                    member(&array, place)
                })
        };
        self.columns.iter().map(column).collect()
    }
}

/// How many leaves a field has.
fn leaves_of(field: &Field) -> usize {
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().map(|field| leaves_of(field)).sum(),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => leaves_of(field),
        _ => 1,
    }
}

/// A member of an object column; it is null where the object is null.
fn member(object: &ArrayRef, place: usize) -> Result<ArrayRef, ArrowError> {
    let object = object.as_struct();
    let member = object.column(place);
    match object.nulls() {
        Some(nulls) if nulls.null_count() > 0 && *member.data_type() != DataType::Null => {
            arrow_select::nullif::nullif(member, &BooleanArray::new(!nulls.inner(), None))
        }
        _ => Ok(Arc::clone(member)),
    }
}

/// Finds a field by its name or path; returns the indices on the path.
fn resolve<'a>(fields: &'a Fields, name: &str) -> Option<(&'a FieldRef, Vec<usize>)> {
    if let Some((place, field)) = fields.find(name) {
        return Some((field, vec![place]));
    }
    name.match_indices('.').find_map(|(dot, _)| {
        let (place, object) = fields.find(&name[..dot])?;
        let DataType::Struct(members) = object.data_type() else {
            return None;
        };
        let (field, rest) = resolve(members, &name[dot + 1..])?;
        Some((field, [vec![place], rest].concat()))
    })
}
