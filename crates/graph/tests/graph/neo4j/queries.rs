//! Random queries that both answer.
//!
//! Left out is what differs on purpose, or has several right answers:
//! - ids of vertices, `startNode` and `endNode` of symmetric edges, the order of vertices and edges: each store has its own;
//! - integers beside floats from 2^53 on, which Neo4j rounds before it compares them for equality;
//! - unconnected parts of one `OPTIONAL MATCH`: before `DISTINCT` Neo4j 5.26 leaves out a part that no column uses, though it may match
//!   nothing;
//! - `OPTIONAL MATCH (a)-[r]-(a)` where `r` is known: Neo4j 5.26 also takes an edge between two vertices for a loop;
//! - `range` with a step away from its end: Neo4j counts an element that its list does not have;
//! - `SKIP` and `LIMIT` without an order of all columns;
//! - conditions that end in a label or in `IS NULL` before `|` without parentheses: the parser refuses them.

mod expressions;

use fastrand::Rng;

use super::graphs::TYPES;

/// A random query.
pub struct Query {
    text: String,
    /// Whether all columns are in `ORDER BY`.
    pub is_ordered: bool,
    /// Whether lists have no order, because they are collected.
    pub has_any_order: bool,
    /// Whether 1 and 1.0 are one value, and either of them is the answer.
    pub is_loose: bool,
}

/// Arrows that are symmetric edges in one direction here, and edges in any direction in Neo4j.
const LEFT: char = '\u{1}';
const RIGHT: char = '\u{2}';

impl Query {
    pub fn ours(&self) -> String {
        self.text.replace(LEFT, "<-").replace(RIGHT, "->")
    }

    pub fn of_neo4j(&self) -> String {
        self.text.replace([LEFT, RIGHT], "-")
    }
}

/// The kind of the value of a variable, if it is not null.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Vertex,
    /// An edge; whether its type is surely not symmetric.
    Edge(bool),
    Edges,
    Path,
    Number,
    Text,
    Bool,
    Numbers,
    /// Anything that is not in the graph.
    Any,
}

use Kind as K;

pub struct Generator<'a> {
    pub rng: &'a mut Rng,
    vertices: u64,
    scope: Vec<(String, Kind)>,
    names: usize,
    /// How many vertices patterns may still have: rows multiply with each.
    left: usize,
    query: Query,
}

/// A query about a graph with this number of vertices.
pub fn query(rng: &mut Rng, vertices: u64) -> Query {
    let mut generator = Generator {
        rng,
        vertices,
        scope: Vec::new(),
        names: 0,
        left: 6,
        query: Query {
            text: String::new(),
            is_ordered: false,
            has_any_order: false,
            is_loose: false,
        },
    };
    let clauses = generator.rng.usize(1..=3);
    for number in 0..clauses {
        let clause = match (number, generator.rng.u8(..10)) {
            (0, 0..8) | (_, 0..4) => generator.matching(),
            (_, 8) => generator.unwind(),
            _ => generator.with(),
        };
        generator.query.text += &clause;
    }
    let columns = generator.projection("RETURN", false);
    generator.query.text += &columns;
    generator.query
}

impl Generator<'_> {
    fn one_in(&mut self, times: u8) -> bool {
        self.rng.u8(..times) == 0
    }

    fn any<'b>(&mut self, of: &[&'b str]) -> &'b str {
        of[self.rng.usize(..of.len())]
    }

    fn name(&mut self, of: &str) -> String {
        self.names += 1;
        format!("{of}{}", self.names)
    }

    /// A variable of a kind.
    fn variable(&mut self, is: impl Fn(Kind) -> bool) -> Option<String> {
        let known = self.scope.iter().filter(|(_, kind)| is(*kind));
        let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
        (!known.is_empty()).then(|| known[self.rng.usize(..known.len())].clone())
    }

    fn matching(&mut self) -> String {
        let word = if self.one_in(3) { "OPTIONAL MATCH" } else { "MATCH" };
        if self.one_in(20) && self.vertices > 1 {
            return self.shortest(word);
        }
        let mut used = Vec::new();
        let mut new = Vec::new();
        let mut paths = vec![self.path(&mut used, &mut new)];
        if self.one_in(4) {
            let first = new.iter().find(|(_, kind)| *kind == K::Vertex);
            match (word, first.map(|(name, _)| name.clone())) {
                ("MATCH", _) => paths.push(self.path(&mut used, &mut new)),
                (_, Some(name)) => {
                    let step = self.step(&mut used, &mut new);
                    paths.push(format!("({name}){step}"));
                }
                _ => {}
            }
        }
        self.scope.extend(new);
        let condition = if self.one_in(3) {
            format!(" WHERE {}", self.condition(2))
        } else {
            String::new()
        };
        format!("{word} {}{condition} ", paths.join(", "))
    }

    /// A shortest path between different vertices: Neo4j has an error for equal ones. If there are several, any of
    /// them is right.
    fn shortest(&mut self, word: &str) -> String {
        let (one, other, path) = (self.name("a"), self.name("a"), self.name("l"));
        let from = self.rng.u64(..self.vertices);
        let to = (from + self.rng.u64(1..self.vertices)) % self.vertices;
        let hop = self.any(&["-[:D*..4]->", "<-[:D|E*..3]-", "-[*..4]-", "-[:S*1..3]\u{2}"]);
        let mut kept: Vec<String> = self.scope.iter().map(|(name, _)| name.clone()).collect();
        kept.push(format!("length(p) AS {path}"));
        let kept = kept.join(", ");
        self.scope.push((path, K::Number));
        format!(
            "{word} ({one} {{name: 'v{from}'}}), ({other} {{name: 'v{to}'}}), p = shortestPath(({one}){hop}({other})) WITH {kept} "
        )
    }

    fn path(&mut self, used: &mut Vec<String>, new: &mut Vec<(String, Kind)>) -> String {
        let binding = self.one_in(6).then(|| self.name("p"));
        let mut text = self.vertex(new);
        for _ in 0..self.rng.usize(..3) {
            if self.left == 0 {
                break;
            }
            text += &self.step(used, new);
        }
        if let Some(name) = binding {
            text = format!("{name} = {text}");
            new.push((name, K::Path));
        }
        text
    }

    fn vertex(&mut self, new: &mut Vec<(String, Kind)>) -> String {
        let mut text = String::new();
        let mut is_known = false;
        if self.left == 0 || self.one_in(3) {
            let own = new.iter().filter(|(_, kind)| *kind == K::Vertex);
            let own: Vec<String> = own.map(|(name, _)| name.clone()).collect();
            let known = match own.is_empty() || self.rng.bool() {
                true => self.variable(|kind| kind == K::Vertex),
                false => Some(own[self.rng.usize(..own.len())].clone()),
            };
            is_known = known.is_some();
            text += &known.unwrap_or_default();
        }
        if !is_known {
            self.left = self.left.saturating_sub(1);
            if !self.one_in(4) {
                text = self.name("a");
                new.push((text.clone(), K::Vertex));
            }
        }
        if self.one_in(4) {
            text += self.any(&[":A", ":B", ":A:B", ":C"]);
        }
        match self.rng.u8(..12) {
            0 | 1 => {
                let id = self.rng.u64(..self.vertices + 1);
                text += &format!(" {{name: 'v{id}'}}");
            }
            2 => text += &format!(" {{x: {}}}", self.number(1)),
            3 => text += self.any(&[" {s: 'a'}", " {y: 1}", " {z: 1}", " {x: null}", " {x: 1, y: 1.0}"]),
            _ => {}
        }
        format!("({text})")
    }

    /// An edge, and the vertex behind it.
    fn step(&mut self, used: &mut Vec<String>, new: &mut Vec<(String, Kind)>) -> String {
        let known = used.len();
        let hop = self.hop(used, new);
        if used.len() == known {
            return hop + &self.vertex(new);
        }
        let end = self.name("a");
        new.push((end.clone(), K::Vertex));
        format!("{hop}({end})")
    }

    fn hop(&mut self, used: &mut Vec<String>, new: &mut Vec<(String, Kind)>) -> String {
        let (left, right) = match self.rng.u8(..3) {
            0 => ("<-", "-"),
            1 => ("-", "->"),
            _ => ("-", "-"),
        };
        let symmetric = |text: &str| text.replace("<-", &LEFT.to_string()).replace("->", &RIGHT.to_string());
        // An edge that is known.
        if self.one_in(6)
            && let Some(name) = self.variable(|kind| matches!(kind, K::Edge(_)))
            && !used.contains(&name)
        {
            used.push(name.clone());
            return match self.scope.contains(&(name.clone(), K::Edge(true))) {
                true => format!("{left}[{name}]{right}"),
                false => format!("-[{name}]-"),
            };
        }
        let types = self.any(&[":D", ":E", ":D|E", ":S", ":D|S", ":F", ""]);
        let is_directed = !types.contains('S') && !types.is_empty();
        let length = if self.one_in(5) {
            self.any(&["*1..2", "*0..1", "*2", "*1..3", "*0..2"])
        } else {
            ""
        };
        let mut name = String::new();
        if self.rng.bool() {
            name = self.name("r");
            let kind = if length.is_empty() {
                K::Edge(is_directed)
            } else {
                K::Edges
            };
            new.push((name.clone(), kind));
        }
        let properties = if self.one_in(8) { " {w: 1}" } else { "" };
        let within = format!("[{name}{types}{length}{properties}]");
        match types {
            _ if is_directed => format!("{left}{within}{right}"),
            ":S" => format!("{}{within}{}", symmetric(left), symmetric(right)),
            _ => format!("-{within}-"),
        }
    }

    fn unwind(&mut self) -> String {
        let name = self.name("u");
        let (list, kind) = match self.rng.u8(..4) {
            0 => ("[1, null, 'a', 1.0, true, 2]".to_owned(), K::Any),
            1 => ("null".to_owned(), K::Any),
            _ => (self.numbers(1), K::Number),
        };
        self.scope.push((name.clone(), kind));
        format!("UNWIND {list} AS {name} ")
    }

    fn with(&mut self) -> String {
        let before = self.scope.clone();
        let text = self.projection("WITH", true);
        if !self.one_in(3) {
            return text;
        }
        // Variables before it are seen, too, unless rows are grouped.
        let columns = self.scope.clone();
        let groups = ["count(", "sum(", "avg(", "min(", "max(", "collect(", "DISTINCT"];
        if !groups.iter().any(|word| text.contains(word)) && !text.contains("SKIP") && !text.contains("LIMIT") {
            let hidden = |name: &String| columns.iter().any(|(column, _)| column == name);
            self.scope.extend(before.into_iter().filter(|(name, _)| !hidden(name)));
        }
        let condition = self.condition(2);
        self.scope = columns;
        format!("{text}WHERE {condition} ")
    }

    /// `WITH` or `RETURN`, and the new scope.
    fn projection(&mut self, word: &str, keeps: bool) -> String {
        let distinct = self.one_in(5);
        let groups = self.one_in(3);
        let mut items: Vec<String> = Vec::new();
        let mut columns: Vec<(String, Kind)> = Vec::new();
        for (name, kind) in self.scope.clone() {
            // Most variables are kept, so that clauses behind have something to ask about.
            if keeps && !self.one_in(3) || self.one_in(4) {
                items.push(name.clone());
                columns.push((name, kind));
            }
        }
        for _ in 0..self.rng.usize(usize::from(items.is_empty())..3) {
            let name = self.name("c");
            let (expression, kind) = self.column();
            items.push(format!("{expression} AS {name}"));
            columns.push((name, kind));
        }
        let keys = items.len();
        if groups {
            for _ in 0..self.rng.usize(1..3) {
                let name = self.name("c");
                let (expression, kind) = self.aggregate(keeps);
                items.push(format!("{expression} AS {name}"));
                columns.push((name, kind));
            }
        }
        // Without columns beside them, aggregates are over all rows, and even over none.
        if groups && self.one_in(4) {
            items.drain(..keys);
            columns.drain(..keys);
        }
        let mut is_loose = distinct || groups;
        let mut text = format!(
            "{word} {}{} ",
            if distinct { "DISTINCT " } else { "" },
            items.join(", ")
        );
        self.scope = columns;
        let told = |(name, kind): &(String, Kind)| match kind {
            K::Vertex => Some(format!("{name}.name")),
            K::Number | K::Text | K::Bool | K::Any => Some(name.clone()),
            _ => None,
        };
        let order: Option<Vec<String>> = self.scope.iter().map(told).collect();
        if self.one_in(3)
            && let Some(mut order) = order
        {
            self.rng.shuffle(&mut order);
            let order: Vec<String> = order
                .into_iter()
                .map(|by| by + self.any(&["", " DESC", " ASC"]))
                .collect();
            text += &format!("ORDER BY {} ", order.join(", "));
            self.query.is_ordered = !keeps;
            is_loose = true;
            let places = [("SKIP", 3), ("LIMIT", 2)];
            for (word, times) in places {
                if self.one_in(times) {
                    text += &format!("{word} {} ", self.rng.u8(..4));
                }
            }
        }
        if is_loose {
            self.query.is_loose = true;
            // Nothing may follow from whether it is 1 or 1.0.
            for (_, kind) in &mut self.scope {
                if matches!(kind, K::Number | K::Numbers) {
                    *kind = K::Any;
                }
            }
        }
        text
    }

    fn column(&mut self) -> (String, Kind) {
        match self.rng.u8(..12) {
            0..4 => (self.number(3), K::Number),
            4 | 5 => (self.condition(2), K::Bool),
            6 | 7 => (self.text(2), K::Text),
            8 => (self.numbers(2), K::Numbers),
            9 => (self.of_any(), K::Any),
            10 => match self.variable(|kind| kind == K::Path) {
                Some(path) => (format!("[n IN nodes({path}) | n.name]"), K::Numbers),
                None => (self.of_any(), K::Any),
            },
            _ => match self.variable(|kind| kind == K::Vertex) {
                Some(vertex) => (format!("{{x: {vertex}.x, l: labels({vertex})}}.x"), K::Number),
                None => (self.number(2), K::Number),
            },
        }
    }

    fn aggregate(&mut self, keeps: bool) -> (String, Kind) {
        let distinct = if self.one_in(3) { "DISTINCT " } else { "" };
        // A collected list has no order, so no later value may depend on it.
        match self.rng.u8(..if keeps { 8 } else { 9 }) {
            0 => ("count(*)".into(), K::Number),
            1 => ("count(*) * 2 + 1".into(), K::Number),
            2 => (format!("count({distinct}{})", self.of_any()), K::Number),
            3 => match self.variable(|kind| matches!(kind, K::Vertex | K::Edge(_) | K::Path)) {
                Some(name) => (format!("count({distinct}{name})"), K::Number),
                None => (format!("sum({distinct}{})", self.number(1)), K::Number),
            },
            4 => (format!("sum({distinct}{})", self.number(2)), K::Number),
            5 => (format!("avg({distinct}{})", self.number(2)), K::Number),
            6 => (format!("min({})", self.of_any()), K::Any),
            7 => (format!("max({})", self.of_any()), K::Any),
            _ => {
                self.query.has_any_order = true;
                (format!("collect({distinct}{})", self.number(1)), K::Numbers)
            }
        }
    }
}

/// Whether edges of a type are symmetric.
pub fn is_symmetric(name: &str) -> bool {
    TYPES.contains(&(name, true))
}
