//! The input files of a graph: which edge type or label each has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fondaco_graph::Description;

use super::options::{GraphOptions, Types};
use crate::error::BuildError;
use crate::input::{InputFiles, discover};
use crate::sort::RowId;

/// All files. Those of vertices come first, so that a row of a vertex comes before all edges that mention it.
pub(super) struct GraphFiles {
    pub(super) vertices: InputFiles,
    pub(super) edges: InputFiles,
    /// The paths of both.
    pub(super) paths: Vec<PathBuf>,
    /// The label of each file of vertices.
    labels: Vec<Option<String>>,
    /// The number of the type of each file of edges.
    types_of_files: Vec<u16>,
    /// The edge types, in alphabetical order.
    pub(super) types: Vec<TypeOptions>,
}

/// An edge type.
pub(super) struct TypeOptions {
    pub(super) name: String,
    pub(super) symmetric: bool,
    pub(super) indexed: bool,
}

impl GraphFiles {
    pub(super) fn find(options: &GraphOptions<'_>) -> Result<Self, BuildError> {
        let (labels, vertices) = found(&options.vertices, None, "label", options)?;
        let type_default = Some(options.edge_type.as_str());
        let (names_of_files, mut edges) = found(&options.build.inputs, type_default, "edge type", options)?;
        if edges.paths.is_empty() {
            return Err(BuildError::NoInput { input: String::new() });
        }
        edges.first = vertices.paths.len() as u32;
        let paths: Vec<PathBuf> = vertices.paths.iter().chain(&edges.paths).cloned().collect();
        if paths.len() > RowId::FILES_MAX {
            return Err(BuildError::TooManyFiles {
                files: paths.len(),
                max: RowId::FILES_MAX,
            });
        }
        let mut names: Vec<String> = names_of_files.iter().flatten().cloned().collect();
        names.sort();
        names.dedup();
        check_named(&options.symmetric, "--symmetric", &names)?;
        check_named(&options.indexed, "--index", &names)?;
        let number = |name: &Option<String>| names.iter().position(|known| name.as_ref() == Some(known));
        let types_of_files = names_of_files.iter().map(|name| number(name).unwrap_or(0) as u16);
        Ok(Self {
            types_of_files: types_of_files.collect(),
            types: names
                .iter()
                .map(|name| TypeOptions {
                    name: name.clone(),
                    symmetric: options.symmetric.contain(name),
                    indexed: options.indexed.contain(name),
                })
                .collect(),
            vertices,
            edges,
            paths,
            labels,
        })
    }

    /// Whether vertices are named by files of their own.
    pub(super) fn have_vertices(&self) -> bool {
        !self.labels.is_empty()
    }

    /// The label of the vertex in a row; of none, if it is an edge that mentions the vertex.
    pub(super) fn label(&self, row: RowId) -> Option<&str> {
        self.labels.get(row.file() as usize)?.as_deref()
    }

    /// The number of the type of the edge in a row.
    pub(super) fn edge_type(&self, row: RowId) -> Option<usize> {
        let file = (row.file() as usize).checked_sub(self.labels.len())?;
        self.types_of_files.get(file).map(|&number| usize::from(number))
    }
}

/// Finds the files of inputs `[NAME=]FILE`, and the name of each file.
fn found(
    inputs: &[String],
    name_default: Option<&str>,
    what: &'static str,
    options: &GraphOptions<'_>,
) -> Result<(Vec<Option<String>>, InputFiles), BuildError> {
    let mut by_name: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
    for input in inputs {
        let (name, file) = split(input);
        let name = name.or(name_default);
        if let Some(name) = name.filter(|name| !Description::is_name(name)) {
            return Err(BuildError::InvalidName {
                what,
                name: name.to_owned(),
            });
        }
        let files = by_name.entry(name.map(str::to_owned)).or_default();
        files.push(file.to_owned());
    }
    let (mut names, mut all) = (Vec::new(), InputFiles::default());
    for (name, inputs) in by_name {
        let files = discover(&inputs, options.build.format)?;
        names.extend(std::iter::repeat_n(name, files.paths.len()));
        all.paths.extend(files.paths);
        all.formats.extend(files.formats);
        all.partitions.extend(files.partitions);
        all.bytes += files.bytes;
    }
    Ok((names, all))
}

/// Splits `NAME=FILE`. A name has no `/`, and an existing file `a=b` has no name: folders of Hive are named like that.
fn split(input: &str) -> (Option<&str>, &str) {
    match input.split_once('=') {
        Some((name, file)) if !name.contains(['/', '*', '?', '[']) && !Path::new(input).exists() => (Some(name), file),
        _ => (None, input),
    }
}

fn check_named(types: &Types, option: &'static str, existing: &[String]) -> Result<(), BuildError> {
    match types {
        Types::None | Types::All => Ok(()),
        Types::Named(names) => match names.iter().find(|name| !existing.contains(name)) {
            Some(name) => Err(BuildError::UnknownType {
                option,
                name: name.clone(),
                existing: existing.to_vec(),
            }),
            None => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_stands_before_its_path() {
        assert_eq!(split("KNOWS=a/b.csv"), (Some("KNOWS"), "a/b.csv"));
        assert_eq!(split("a/day=1/b.csv"), (None, "a/day=1/b.csv"));
        assert_eq!(split("KNOWS=a/day=1/b.csv"), (Some("KNOWS"), "a/day=1/b.csv"));
        assert_eq!(split("./day=1/b.csv"), (None, "./day=1/b.csv"));
        assert_eq!(split("b.csv"), (None, "b.csv"));
    }
}
