//! Whether a reader's schema reads what a writer's schema wrote, by Avro's rules; and the differences of two schemas.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Field, Graph, Kind, Logical, NodeIndex};
use crate::Clash;
use crate::compatibility::{FIELDS_MAX, FieldTexts};

/// For each pair of records that meet, the writer's field of each of the reader's fields.
pub(crate) type FieldMap = HashMap<(NodeIndex, NodeIndex), Vec<Option<usize>>>;

/// The clashes at all places where the two meet, and the fields of the records that meet.
pub(crate) fn compare(writer: &Graph, reader: &Graph) -> (Vec<Clash>, FieldMap) {
    let mut walk = Walk {
        writer,
        reader,
        seen: HashSet::new(),
        fields: HashMap::new(),
        clashes: Vec::new(),
        path: Vec::new(),
    };
    walk.pair(writer.root, reader.root);
    (walk.clashes, walk.fields)
}

struct Walk<'a> {
    writer: &'a Graph,
    reader: &'a Graph,
    seen: HashSet<(NodeIndex, NodeIndex)>,
    fields: FieldMap,
    clashes: Vec<Clash>,
    path: Vec<String>,
}

impl Walk<'_> {
    fn clash(&mut self, rule: impl Into<String>, writer: String, reader: String) {
        if self.clashes.len() < crate::CLASHES_MAX {
            self.clashes.push(Clash {
                field: self.path.join("."),
                rule: rule.into(),
                writer,
                reader,
            });
        }
    }

    fn clash_of(&mut self, rule: impl Into<String>, w: NodeIndex, r: NodeIndex) {
        self.clash(rule, self.writer.type_text(w), self.reader.type_text(r));
    }

    fn within(&mut self, name: &str, w: NodeIndex, r: NodeIndex) {
        self.path.push(name.to_owned());
        self.pair(w, r);
        self.path.pop();
    }

    fn pair(&mut self, w: NodeIndex, r: NodeIndex) {
        if !self.seen.insert((w, r)) {
            return;
        }
        let (writer, reader) = (self.writer, self.reader);
        match (writer.kind(w), reader.kind(r)) {
            (Kind::Union(branches), _) => {
                for branch in branches {
                    self.pair(*branch, r);
                }
            }
            (_, Kind::Union(_)) => match branch_for(writer, w, reader, r) {
                Some((_, branch)) => self.pair(w, branch),
                None => self.clash_of("each type that was written must be one of the reader's union", w, r),
            },
            _ if !matches(writer, w, reader, r) => self.clash_of(rule_of_types(writer, w, reader, r), w, r),
            (
                Kind::Enum { symbols, .. },
                Kind::Enum {
                    symbols: known,
                    default,
                    ..
                },
            ) => {
                let missing = symbols.iter().find(|symbol| !known.contains(symbol));
                if let (Some(missing), None) = (missing, default) {
                    self.clash(
                        format!("a reader without the symbol {missing:?} needs a default symbol"),
                        symbols.join(", "),
                        known.join(", "),
                    );
                }
            }
            (Kind::Array(w), Kind::Array(r)) => self.within("[]", *w, *r),
            (Kind::Map(w), Kind::Map(r)) => self.within("{}", *w, *r),
            (Kind::Record { fields: written, .. }, Kind::Record { fields, .. }) => {
                let sources: Vec<Option<usize>> = sources(written, fields);
                for (field, source) in fields.iter().zip(&sources) {
                    match source {
                        Some(source) => self.within(&field.name, written[*source].node, field.node),
                        None if field.default.is_some() => {}
                        None => {
                            self.path.push(field.name.clone());
                            self.clash(
                                "a field that the writer lacks needs a default",
                                "no such field".into(),
                                self.reader.type_text(field.node),
                            );
                            self.path.pop();
                        }
                    }
                }
                self.fields.insert((w, r), sources);
            }
            _ => {}
        }
    }
}

/// For each field of the reader: the writer's field with its name, else with one of its aliases.
fn sources(written: &[Field], fields: &[Field]) -> Vec<Option<usize>> {
    let by_name: HashMap<&str, usize> = written
        .iter()
        .enumerate()
        .map(|(at, field)| (field.name.as_str(), at))
        .collect();
    let find = |field: &Field| {
        let aliases = field.aliases.iter().map(String::as_str);
        std::iter::once(field.name.as_str())
            .chain(aliases)
            .find_map(|name| by_name.get(name).copied())
    };
    fields.iter().map(find).collect()
}

/// The first branch of the reader's union that matches: its index and node.
pub(crate) fn branch_for(writer: &Graph, w: NodeIndex, reader: &Graph, union: NodeIndex) -> Option<(usize, NodeIndex)> {
    let Kind::Union(branches) = reader.kind(union) else {
        return None;
    };
    let found = branches.iter().position(|branch| matches(writer, w, reader, *branch))?;
    Some((found, branches[found]))
}

/// Whether two types that are no unions match, without a look at fields and symbols.
pub(crate) fn matches(writer: &Graph, w: NodeIndex, reader: &Graph, r: NodeIndex) -> bool {
    use Kind::{Array, Boolean, Bytes, Double, Enum, Fixed, Float, Int, Long, Map, Null, Record, String};
    if let (Some(Logical::Decimal { scale: written, .. }), Some(Logical::Decimal { scale, .. })) =
        (writer.nodes[w].logical, reader.nodes[r].logical)
        && written != scale
    {
        return false;
    }
    match (writer.kind(w), reader.kind(r)) {
        (Null, Null) | (Boolean, Boolean) | (Int, Int | Long | Float | Double) | (Long, Long | Float | Double) => true,
        (Float, Float | Double) | (Double, Double) | (Bytes | String, Bytes | String) => true,
        (Fixed { name: a, size }, Fixed { name: b, size: wanted }) => b.reads(a) && size == wanted,
        (Enum { name: a, .. }, Enum { name: b, .. }) | (Record { name: a, .. }, Record { name: b, .. }) => b.reads(a),
        (Array(a), Array(b)) | (Map(a), Map(b)) => item_matches(writer, *a, reader, *b),
        _ => false,
    }
}

/// Items that are unions are compared when a value is read.
fn item_matches(writer: &Graph, w: NodeIndex, reader: &Graph, r: NodeIndex) -> bool {
    let union = |kind: &Kind| matches!(kind, Kind::Union(_));
    union(writer.kind(w)) || union(reader.kind(r)) || matches(writer, w, reader, r)
}

fn rule_of_types(writer: &Graph, w: NodeIndex, reader: &Graph, r: NodeIndex) -> &'static str {
    match (writer.kind(w), reader.kind(r)) {
        (Kind::Fixed { name: a, .. }, Kind::Fixed { name: b, .. }) if b.reads(a) => "a fixed keeps its size",
        (Kind::Fixed { .. }, Kind::Fixed { .. })
        | (Kind::Enum { .. }, Kind::Enum { .. })
        | (Kind::Record { .. }, Kind::Record { .. }) => "a type keeps its name, or has the former one as an alias",
        (Kind::Bytes | Kind::Fixed { .. }, Kind::Bytes | Kind::Fixed { .. }) => {
            "a decimal keeps its scale, and bytes are no fixed"
        }
        _ => {
            "a type may only be promoted: int to long, float or double; long to float or double; float to double; string and bytes to one another"
        }
    }
}

/// Type and default of every field, by path. Each record is expanded once, at its first place.
pub(crate) fn all_fields(graph: &Graph) -> BTreeMap<String, FieldTexts> {
    let (mut found, mut seen) = (BTreeMap::new(), HashSet::new());
    collect(graph, graph.root, "", &mut seen, &mut found);
    found
}

fn collect(
    graph: &Graph,
    node: NodeIndex,
    path: &str,
    seen: &mut HashSet<NodeIndex>,
    found: &mut BTreeMap<String, FieldTexts>,
) {
    match graph.kind(node) {
        Kind::Record { fields, .. } if seen.insert(node) => {
            for field in fields {
                if found.len() >= FIELDS_MAX {
                    return;
                }
                let path = if path.is_empty() {
                    field.name.clone()
                } else {
                    format!("{path}.{}", field.name)
                };
                let default = field.default.as_ref().map(|default| default.json.to_string());
                collect(graph, field.node, &path, seen, found);
                found.insert(
                    path,
                    FieldTexts {
                        type_text: graph.type_text(field.node),
                        default,
                    },
                );
            }
        }
        Kind::Array(item) => collect(graph, *item, &format!("{path}[]"), seen, found),
        Kind::Map(item) => collect(graph, *item, &format!("{path}{{}}"), seen, found),
        Kind::Union(branches) => {
            for branch in branches {
                collect(graph, *branch, path, seen, found);
            }
        }
        Kind::Enum { symbols, .. } if seen.insert(node) => {
            let place = if path.is_empty() {
                "symbols".into()
            } else {
                format!("{path} (symbols)")
            };
            found.insert(
                place,
                FieldTexts {
                    type_text: symbols.join(", "),
                    default: None,
                },
            );
        }
        _ => {}
    }
}
