//! A schema as text again: the canonical form, and short names of types for messages.

use std::collections::HashSet;

use serde_json::json;

use super::parse::branch_name;
use super::{Field, Graph, Kind, Logical, Name, NodeIndex, Unit};

impl Graph {
    /// The canonical text: Avro's Parsing Canonical Form, and what else values depend on: defaults, aliases, logical types.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(self.root, &mut HashSet::new(), &mut out);
        out
    }

    /// The text of a record of some fields, which are of this schema.
    pub fn record_of<'a>(&'a self, name: &'a Name, fields: &[Field]) -> String {
        let mut out = String::new();
        self.write_record(name, fields, &mut HashSet::from([name.full.as_str()]), &mut out);
        out
    }

    fn write<'a>(&'a self, node: NodeIndex, seen: &mut HashSet<&'a str>, out: &mut String) {
        let kind = self.kind(node);
        if let Kind::Fixed { name, .. } | Kind::Enum { name, .. } | Kind::Record { name, .. } = kind
            && !seen.insert(&name.full)
        {
            *out += &json!(name.full).to_string();
            return;
        }
        let logical = self.nodes[node].logical.map(logical_text).unwrap_or_default();
        match kind {
            Kind::Array(item) | Kind::Map(item) => {
                *out += if matches!(kind, Kind::Array(_)) {
                    r#"{"type":"array","items":"#
                } else {
                    r#"{"type":"map","values":"#
                };
                self.write(*item, seen, out);
                *out += "}";
            }
            Kind::Union(branches) => {
                *out += "[";
                for (index, branch) in branches.iter().enumerate() {
                    *out += if index == 0 { "" } else { "," };
                    self.write(*branch, seen, out);
                }
                *out += "]";
            }
            Kind::Fixed { name, size } => {
                *out += &format!(
                    r#"{{{},"type":"fixed","size":{size}{logical}}}"#,
                    name_text(name, seen.len() > 1)
                )
            }
            Kind::Enum { name, symbols, default } => {
                let default = default
                    .map(|at| format!(r#","default":{}"#, json!(symbols[at])))
                    .unwrap_or_default();
                *out += &format!(
                    r#"{{{},"type":"enum","symbols":{}{default}}}"#,
                    name_text(name, seen.len() > 1),
                    json!(symbols)
                );
            }
            Kind::Record { name, fields } => self.write_record(name, fields, seen, out),
            primitive if logical.is_empty() => *out += &format!("{:?}", branch_name(primitive)),
            primitive => *out += &format!(r#"{{"type":{:?}{logical}}}"#, branch_name(primitive)),
        }
    }

    fn write_record<'a>(&'a self, name: &'a Name, fields: &[Field], seen: &mut HashSet<&'a str>, out: &mut String) {
        *out += &format!(r#"{{{},"type":"record","fields":["#, name_text(name, seen.len() > 1));
        for (index, field) in fields.iter().enumerate() {
            *out += if index == 0 { "" } else { "," };
            *out += &format!(r#"{{"name":{:?}{},"type":"#, field.name, aliases_text(&field.aliases));
            self.write(field.node, seen, out);
            if let Some(default) = &field.default {
                *out += &format!(r#","default":{}"#, default.json);
            }
            *out += "}";
        }
        *out += "]}";
    }

    /// A type in a few words, such as `array of com.shop.Item` or `null or timestamp-millis`.
    pub fn type_text(&self, node: NodeIndex) -> String {
        match (self.kind(node), self.nodes[node].logical) {
            (Kind::Array(item), _) => format!("array of {}", self.type_text(*item)),
            (Kind::Map(item), _) => format!("map of {}", self.type_text(*item)),
            (Kind::Union(branches), _) => {
                let branches: Vec<String> = branches.iter().map(|branch| self.type_text(*branch)).collect();
                branches.join(" or ")
            }
            (_, Some(Logical::Decimal { precision, scale })) => format!("decimal({precision},{scale})"),
            (_, Some(logical)) => logical_name(logical).into(),
            (kind, None) => branch_name(kind).to_owned(),
        }
    }
}

fn name_text(name: &Name, nested: bool) -> String {
    // Without it, a name without a namespace would get that of the type around it.
    let namespace = if nested && !name.full.contains('.') {
        r#","namespace":"""#
    } else {
        ""
    };
    format!(
        r#""name":{}{namespace}{}"#,
        json!(name.full),
        aliases_text(&name.aliases)
    )
}

fn aliases_text(aliases: &[String]) -> String {
    if aliases.is_empty() {
        String::new()
    } else {
        format!(r#","aliases":{}"#, json!(aliases))
    }
}

fn logical_text(logical: Logical) -> String {
    let numbers = match logical {
        Logical::Decimal { precision, scale } => format!(r#","precision":{precision},"scale":{scale}"#),
        _ => String::new(),
    };
    format!(r#","logicalType":"{}"{numbers}"#, logical_name(logical))
}

fn logical_name(logical: Logical) -> &'static str {
    match logical {
        Logical::Date => "date",
        Logical::Time(Unit::Milliseconds) => "time-millis",
        Logical::Time(_) => "time-micros",
        Logical::Timestamp(Unit::Milliseconds) => "timestamp-millis",
        Logical::Timestamp(Unit::Microseconds) => "timestamp-micros",
        Logical::Timestamp(Unit::Nanoseconds) => "timestamp-nanos",
        Logical::LocalTimestamp(Unit::Milliseconds) => "local-timestamp-millis",
        Logical::LocalTimestamp(Unit::Microseconds) => "local-timestamp-micros",
        Logical::LocalTimestamp(Unit::Nanoseconds) => "local-timestamp-nanos",
        Logical::Decimal { .. } => "decimal",
        Logical::Uuid => "uuid",
    }
}
