//! Graphs from rows in memory: tables of edges and of vertices become files, which the build of a graph reads.
//!
//! The build refers to a row by its file, and has several of them. So each table is written to a directory for temporary files,
//! as a stream of Arrow, batch by batch, and is deleted after the push.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use fondaco_builder::Types;
use fondaco_graph::Description;
use fondaco_push::{Edges, Job, Rows};
use pyo3::prelude::*;
use serde::Deserialize;
use tempfile::TempDir;

use crate::arrow::reader;
use crate::fault::Fault;
use crate::push::{Batches, chosen};

/// The edge type of edges that have no name.
const TYPE_DEFAULT: &str = "EDGE";

/// The options of a push that only graphs have, as `Store.push_graph` gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphPushOptions {
    symmetric: Option<Vec<String>>,
    index: Option<Vec<String>>,
    vertex_name: String,
    unknown_vertices: String,
}

/// Tables with the names of their edge types or labels.
type Tables = Vec<(Option<String>, Batches)>;

/// A graph in memory.
pub struct GraphInput {
    edges: Tables,
    vertices: Tables,
    options: GraphPushOptions,
}

/// The files of a graph. They are deleted with it.
pub struct GraphFiles {
    /// Each as `[TYPE=]FILE`.
    pub inputs: Vec<String>,
    /// The meaning of their rows.
    pub rows: Rows,
    _dir: TempDir,
}

impl GraphInput {
    /// Tables of edges and of vertices, by their names.
    pub fn new(
        edges: Vec<(Option<String>, Bound<'_, PyAny>)>,
        vertices: Vec<(Option<String>, Bound<'_, PyAny>)>,
        options: GraphPushOptions,
    ) -> Result<Self, Fault> {
        Ok(Self {
            edges: tables(edges, "edge type")?,
            vertices: tables(vertices, "label")?,
            options,
        })
    }

    /// Writes the tables below this directory. `ends` are the columns that edges lead from and to.
    pub fn write(self, temporary: &Path, ends: &[String], job: Job<'_>) -> Result<GraphFiles, Fault> {
        let [from, to] = ends else {
            return Err(Fault::bad_input(
                "name the column that edges lead from and the one that they lead to: columns=(\"from\", \"to\")",
            ));
        };
        let dir = tempfile::Builder::new().prefix("fondaco-graph-").tempdir_in(temporary);
        let dir = dir.map_err(|error| unwritable(temporary, error))?;
        let vertices = write_all(self.vertices, dir.path().join("vertices"), job)?;
        let inputs = write_all(self.edges, dir.path().join("edges"), job)?;
        let edges = Edges {
            from: from.clone(),
            to: to.clone(),
            edge_type: TYPE_DEFAULT.to_owned(),
            symmetric: types(self.options.symmetric),
            indexed: types(self.options.index),
            vertices,
            vertex_name: self.options.vertex_name,
            unknown_vertices: chosen("unknown_vertices", &self.options.unknown_vertices)?,
        };
        Ok(GraphFiles {
            inputs,
            rows: Rows::Edges(edges),
            _dir: dir,
        })
    }
}

/// No names mean all types.
fn types(names: Option<Vec<String>>) -> Types {
    match names {
        None => Types::None,
        Some(names) if names.is_empty() => Types::All,
        Some(names) => Types::Named(names),
    }
}

fn tables(named: Vec<(Option<String>, Bound<'_, PyAny>)>, what: &str) -> Result<Tables, Fault> {
    let table = |(name, rows): (Option<String>, Bound<'_, PyAny>)| {
        // It is the name of a file, too.
        if let Some(name) = name.as_ref().filter(|name| !Description::is_name(name)) {
            return Err(Fault::bad_input(format!(
                "{what} {name:?}: a name has letters, digits and underscores, and does not begin with a digit"
            )));
        }
        Ok((name, reader(&rows)?))
    };
    named.into_iter().map(table).collect()
}

/// Writes tables to files in a new directory; returns each as `[NAME=]FILE`.
fn write_all(tables: Tables, dir: PathBuf, job: Job<'_>) -> Result<Vec<String>, Fault> {
    fs::create_dir(&dir).map_err(|error| unwritable(&dir, error))?;
    let write = |(name, rows): (Option<String>, Batches)| {
        let path = dir.join(format!("{}.arrow", name.as_deref().unwrap_or("rows")));
        write_table(&path, rows, job)?;
        Ok(match name {
            Some(name) => format!("{name}={}", path.display()),
            None => path.display().to_string(),
        })
    };
    tables.into_iter().map(write).collect()
}

fn write_table(path: &Path, rows: Batches, job: Job<'_>) -> Result<(), Fault> {
    let failed = |error| match error {
        ArrowError::IoError(_, error) => unwritable(path, error),
        other => Fault::from(other),
    };
    let file = File::create(path).map_err(|error| unwritable(path, error))?;
    let mut writer = StreamWriter::try_new(BufWriter::new(file), &rows.schema()).map_err(failed)?;
    for batch in rows {
        if job.cancel.is_cancelled() {
            return Err(Fault::new("CANCELLED", "the push was cancelled"));
        }
        writer.write(&batch?).map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    writer.get_mut().flush().map_err(|error| unwritable(path, error))
}

fn unwritable(path: &Path, error: std::io::Error) -> Fault {
    Fault::new(
        "NOSPACE",
        format!("cannot write {path:?}: {error}; name a directory with more space: temporary=…"),
    )
}
