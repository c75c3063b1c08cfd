//! Random expressions over the variables in scope.

use super::{Generator, Kind as K};

impl Generator<'_> {
    fn property(&mut self, names: &[&str]) -> Option<String> {
        let of = self.variable(|kind| kind == K::Vertex)?;
        Some(format!("{of}.{}", self.any(names)))
    }

    /// A value of any type that is not in the graph.
    pub(super) fn of_any(&mut self) -> String {
        let known = match self.rng.bool() {
            true => self.variable(|kind| kind == K::Any),
            false => self.property(&["z", "x", "s", "none"]),
        };
        known.unwrap_or_else(|| {
            self.any(&["1", "'a'", "true", "null", "2.5", "[1, null]", "{k: 1}"])
                .to_owned()
        })
    }

    pub(super) fn number(&mut self, depth: u8) -> String {
        let leaf = depth == 0;
        match self.rng.u8(if leaf { 0..9 } else { 0..20 }) {
            0..2 => self.any(&["0", "1", "2", "-3", "5"]).to_owned(),
            2 => self
                .any(&["0.5", "2.0", "-1.5", "null", "(0.0 / 0.0)", "-2", "1e3"])
                .to_owned(),
            3..6 => {
                let known = self.property(&["x", "y"]);
                known.unwrap_or_else(|| "4".into())
            }
            6 => {
                let edge = self.variable(|kind| matches!(kind, K::Edge(_)));
                edge.map_or("1.25".into(), |edge| format!("{edge}.w"))
            }
            7 | 8 => {
                let known = self.variable(|kind| kind == K::Number);
                known.unwrap_or_else(|| "-1".into())
            }
            9..13 => format!(
                "({} {} {})",
                self.number(depth - 1),
                self.any(&["+", "-", "*"]),
                self.number(depth - 1)
            ),
            13 => format!(
                "({} {} {})",
                self.number(depth - 1),
                self.any(&["/", "%"]),
                self.any(&["2", "-3", "0.5", "4.0"])
            ),
            14 => {
                let function = self.any(&[
                    "abs",
                    "ceil",
                    "floor",
                    "sign",
                    "round",
                    "toInteger",
                    "toFloat",
                    "sqrt",
                    "-",
                ]);
                format!("{function}({})", self.number(depth - 1))
            }
            15 => format!("coalesce({}, {})", self.number(depth - 1), self.number(depth - 1)),
            16 => format!(
                "CASE WHEN {} THEN {} ELSE {} END",
                self.condition(depth - 1),
                self.number(depth - 1),
                self.number(depth - 1)
            ),
            17 => format!("size({})", self.numbers(depth - 1)),
            18 => match self.variable(|kind| matches!(kind, K::Path | K::Edges)) {
                Some(name) if self.scope.contains(&(name.clone(), K::Path)) => format!("length({name})"),
                Some(name) => format!("size({name})"),
                None => format!("size({})", self.text(depth - 1)),
            },
            _ => {
                let list = self.numbers(depth - 1);
                match self.rng.u8(..3) {
                    0 => format!("{list}[{}]", self.rng.i8(-3..4)),
                    1 => format!("head({list})"),
                    _ => format!("last({list})"),
                }
            }
        }
    }

    pub(super) fn text(&mut self, depth: u8) -> String {
        match self.rng.u8(if depth == 0 { 0..5 } else { 0..10 }) {
            0 => self.any(&["'a'", "'ab'", "''", "null", "'B'"]).to_owned(),
            1 | 2 => {
                let known = self.property(&["s", "name"]);
                known.unwrap_or_else(|| "'abc'".into())
            }
            3 => self.variable(|kind| kind == K::Text).unwrap_or_else(|| "'x'".into()),
            4 => {
                let edge = self.variable(|kind| matches!(kind, K::Edge(_)));
                edge.map_or("'D'".into(), |edge| format!("type({edge})"))
            }
            5 | 6 => format!("({} + {})", self.text(depth - 1), self.text(depth - 1)),
            7 => format!(
                "{}({})",
                self.any(&["toUpper", "toLower", "trim", "reverse", "toString"]),
                self.text(depth - 1)
            ),
            8 => format!("coalesce({}, {})", self.text(depth - 1), self.text(depth - 1)),
            _ => format!("toString({})", self.number(0)),
        }
    }

    pub(super) fn numbers(&mut self, depth: u8) -> String {
        match self.rng.u8(if depth == 0 { 0..3 } else { 0..9 }) {
            0 => self
                .any(&["[]", "[1, 2, 3]", "[null, 1.0]", "null", "[2, 2]"])
                .to_owned(),
            1 | 2 => format!("[{}, {}]", self.number(0), self.number(0)),
            3 => {
                let (from, to) = (self.rng.i8(-3..4), self.rng.i8(-3..4));
                let steps = if from > to {
                    ["", ", -1", ", -3"]
                } else {
                    ["", ", 1", ", 2"]
                };
                let step = self.any(&steps);
                format!("range({from}, {to}{step})")
            }
            4 => {
                let name = self.name("x");
                let list = self.numbers(depth - 1);
                self.scope.push((name.clone(), K::Number));
                let (condition, value) = (self.condition(depth - 1), self.number(depth - 1));
                self.scope.pop();
                format!("[{name} IN {list} WHERE ({condition}) | {value}]")
            }
            5 => format!("{}({})", self.any(&["tail", "reverse"]), self.numbers(depth - 1)),
            6 => format!(
                "{}[{}..{}]",
                self.numbers(depth - 1),
                self.rng.i8(-3..3),
                self.rng.i8(-3..4)
            ),
            7 => format!("({} + {})", self.numbers(depth - 1), self.numbers(depth - 1)),
            _ => format!("({} + {})", self.numbers(depth - 1), self.number(depth - 1)),
        }
    }

    pub(super) fn condition(&mut self, depth: u8) -> String {
        let compares = ["=", "<>", "<", "<=", ">", ">="];
        match self.rng.u8(if depth == 0 { 0..9 } else { 0..17 }) {
            0 | 1 => format!(
                "{} {} {}",
                self.number(depth.saturating_sub(1)),
                self.any(&compares),
                self.number(0)
            ),
            2 => format!("{} {} {}", self.of_any(), self.any(&compares), self.of_any()),
            3 => format!("{} {} {}", self.text(0), self.any(&compares), self.text(0)),
            4 => format!("{} {}", self.of_any(), self.any(&["IS NULL", "IS NOT NULL"])),
            5 => self.any(&["true", "false", "null"]).to_owned(),
            6 => match self.variable(|kind| kind == K::Vertex) {
                Some(name) => format!("{name}{}", self.any(&[":A", ":B", ":A:B", ":C"])),
                None => "true".into(),
            },
            7 => {
                let one = self.variable(|kind| matches!(kind, K::Vertex));
                let other = self.variable(|kind| matches!(kind, K::Vertex));
                match one.zip(other) {
                    Some((one, other)) => format!("{one} {} {other}", self.any(&["=", "<>"])),
                    None => "1 < 2".into(),
                }
            }
            8 => match self.variable(|kind| matches!(kind, K::Vertex)) {
                Some(name) => format!(
                    "{name}.name {} 'v{}'",
                    self.any(&["=", ">=", "<>"]),
                    self.rng.u64(..self.vertices)
                ),
                None => "false".into(),
            },
            9 | 10 => format!(
                "({} {} {})",
                self.condition(depth - 1),
                self.any(&["AND", "OR", "XOR"]),
                self.condition(depth - 1)
            ),
            11 => format!("(NOT {})", self.condition(depth - 1)),
            12 => format!("{} IN {}", self.number(depth - 1), self.numbers(depth - 1)),
            13 => format!("{} IN [1, 'a', null, {}]", self.of_any(), self.of_any()),
            14 => format!(
                "{} {} {}",
                self.text(depth - 1),
                self.any(&["STARTS WITH", "ENDS WITH", "CONTAINS"]),
                self.text(0)
            ),
            15 => format!("{} < {} <= {}", self.number(0), self.number(0), self.number(0)),
            _ => {
                let name = self.name("x");
                let list = self.numbers(depth - 1);
                self.scope.push((name.clone(), K::Number));
                let condition = self.condition(depth - 1);
                self.scope.pop();
                format!(
                    "{}({name} IN {list} WHERE {condition})",
                    self.any(&["all", "any", "none", "single"])
                )
            }
        }
    }
}
