//! Values as the TCK writes them, in one canonical form: labels and names of properties in order.

use fondaco_graph::query::{Edge, QueryResult, Value};

/// An expected value. `any_order` is for lists whose order does not count.
pub fn expected(text: &str, any_order: bool) -> String {
    let mut reader = Reader { text, any_order };
    let value = reader.value();
    assert!(reader.text.trim().is_empty(), "{text:?} has more than a value");
    value
}

struct Reader<'a> {
    text: &'a str,
    any_order: bool,
}

impl Reader<'_> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.text.trim_start();
        match rest.strip_prefix(token) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> String {
        let rest = self.text.trim_start();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || "_.+-".contains(c)));
        let (word, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.text = rest;
        word.to_owned()
    }

    fn value(&mut self) -> String {
        if self.take("<") {
            let mut path = self.value();
            while !self.take(">") {
                let back = self.take("<-");
                let _ = back || self.take("-");
                let edge = self.value();
                let _ = self.take("->") || self.take("-");
                let vertex = self.value();
                path += &if back {
                    format!("<-{edge}-{vertex}")
                } else {
                    format!("-{edge}->{vertex}")
                };
            }
            return format!("<{path}>");
        }
        if self.take("(") {
            let mut labels = Vec::new();
            while self.take(":") {
                labels.push(self.word());
            }
            let properties = if self.take("{") { self.map() } else { "{}".into() };
            assert!(self.take(")"));
            return vertex(labels, &properties);
        }
        if self.take("[:") {
            let name = self.word();
            let properties = if self.take("{") { self.map() } else { "{}".into() };
            assert!(self.take("]"));
            return format!("[:{name} {properties}]");
        }
        if self.take("[") {
            let mut values = Vec::new();
            while !self.take("]") {
                values.push(self.value());
                self.take(",");
            }
            return list(values, self.any_order);
        }
        if self.take("{") {
            return self.map();
        }
        if self.take("'") {
            let mut text = String::new();
            let mut chars = self.text.char_indices();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\'' => {
                        self.text = &self.text[at + 1..];
                        return format!("{text:?}");
                    }
                    '\\' => text.extend(chars.next().map(|(_, c)| if c == 'n' { '\n' } else { c })),
                    _ => text.push(c),
                }
            }
            panic!("the text has no end");
        }
        let word = self.word();
        match word.parse::<i64>() {
            Ok(int) => int.to_string(),
            Err(_) => word.parse::<f64>().map_or(word, float),
        }
    }

    fn map(&mut self) -> String {
        let mut entries = Vec::new();
        while !self.take("}") {
            let name = self.word();
            assert!(self.take(":"));
            entries.push((name, self.value()));
            self.take(",");
        }
        map(entries)
    }
}

/// A value of an answer.
pub fn found(value: &Value, answer: &QueryResult, any_order: bool) -> String {
    let told = |value: &Value| found(value, answer, any_order);
    let of_vertex = |id: &u64| {
        let of = &answer.vertices[id];
        let properties = of.properties.iter();
        let properties = properties.map(|(name, value)| (name.clone(), told(&Value::of_json(value))));
        vertex(of.labels.clone(), &map(properties.collect()))
    };
    let of_edge = |edge: &Edge| {
        let properties = answer.edges.get(&(edge.name.clone(), edge.from, edge.to));
        let entries = properties.into_iter().flat_map(|map| map.iter());
        let properties = map(entries.map(|(name, value)| (name.clone(), told(value))).collect());
        format!("[:{} {properties}]", edge.name)
    };
    match value {
        Value::Null => "null".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Float(number) => float(*number),
        Value::Text(text) => format!("{text:?}"),
        Value::List(values) => list(values.iter().map(told).collect(), any_order),
        Value::Map(entries) => map(entries
            .iter()
            .map(|(name, value)| (name.clone(), told(value)))
            .collect()),
        Value::Vertex(id) => of_vertex(id),
        Value::Edge(edge) => of_edge(edge),
        Value::Path(path) => {
            let mut text = of_vertex(&path.vertices[0]);
            for (edge, pair) in path.edges.iter().zip(path.vertices.windows(2)) {
                let (one, other) = (of_edge(edge), of_vertex(&pair[1]));
                text += &match edge.from == pair[0] {
                    true => format!("-{one}->{other}"),
                    false => format!("<-{one}-{other}"),
                };
            }
            format!("<{text}>")
        }
    }
}

fn float(number: f64) -> String {
    // The TCK writes -0.0 as 0.0.
    let number = if number == 0.0 { 0.0 } else { number };
    format!("{number:?}f")
}

fn vertex(mut labels: Vec<String>, properties: &str) -> String {
    labels.sort();
    format!("({} {properties})", labels.join(":"))
}

fn list(mut values: Vec<String>, any_order: bool) -> String {
    if any_order {
        values.sort();
    }
    format!("[{}]", values.join(", "))
}

fn map(mut entries: Vec<(String, String)>) -> String {
    entries.sort();
    let entries: Vec<String> = entries.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{{{}}}", entries.join(", "))
}
