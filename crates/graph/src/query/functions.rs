//! Operators and functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::evaluation::Evaluation;
use super::expression::Operator;
use super::value::Value;

/// A function of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Id,
    Labels,
    Type,
    StartNode,
    EndNode,
    Nodes,
    Relationships,
    Length,
    Size,
    Properties,
    Keys,
    ToLower,
    ToUpper,
    ToString,
    ToInteger,
    ToFloat,
    Trim,
    Coalesce,
    Head,
    Last,
    Tail,
    Reverse,
    Range,
    Abs,
    Ceil,
    Floor,
    Round,
    Sqrt,
    Sign,
}

use Function as F;

/// All functions: the name, and how many arguments each takes, at least and at most.
pub(super) const FUNCTIONS: &[(&str, Function, usize, usize)] = &[
    ("id", F::Id, 1, 1),
    ("labels", F::Labels, 1, 1),
    ("type", F::Type, 1, 1),
    ("startNode", F::StartNode, 1, 1),
    ("endNode", F::EndNode, 1, 1),
    ("nodes", F::Nodes, 1, 1),
    ("relationships", F::Relationships, 1, 1),
    ("length", F::Length, 1, 1),
    ("size", F::Size, 1, 1),
    ("properties", F::Properties, 1, 1),
    ("keys", F::Keys, 1, 1),
    ("toLower", F::ToLower, 1, 1),
    ("toUpper", F::ToUpper, 1, 1),
    ("toString", F::ToString, 1, 1),
    ("toInteger", F::ToInteger, 1, 1),
    ("toFloat", F::ToFloat, 1, 1),
    ("trim", F::Trim, 1, 1),
    ("coalesce", F::Coalesce, 1, usize::MAX),
    ("head", F::Head, 1, 1),
    ("last", F::Last, 1, 1),
    ("tail", F::Tail, 1, 1),
    ("reverse", F::Reverse, 1, 1),
    ("range", F::Range, 2, 3),
    ("abs", F::Abs, 1, 1),
    ("ceil", F::Ceil, 1, 1),
    ("floor", F::Floor, 1, 1),
    ("round", F::Round, 1, 1),
    ("sqrt", F::Sqrt, 1, 1),
    ("sign", F::Sign, 1, 1),
];

/// The longest list that `range` makes.
const RANGE_MAX: i128 = 1_000_000;

impl Function {
    /// The value of the function.
    ///
    /// # Errors
    /// The error to answer with: arguments of wrong types.
    pub(super) fn apply(self, mut arguments: Vec<Value>, evaluation: &mut Evaluation<'_>) -> Result<Value, String> {
        if self == F::Coalesce {
            let first = arguments.into_iter().find(|value| *value != Value::Null);
            return Ok(first.unwrap_or(Value::Null));
        }
        if self == F::Range {
            return range(&arguments);
        }
        let Some(of) = arguments.pop() else {
            return Ok(Value::Null);
        };
        Ok(match (self, &of) {
            (_, Value::Null) => Value::Null,
            (F::Id, Value::Vertex(id)) => Value::Int(*id as i64),
            (F::Labels, Value::Vertex(id)) => match evaluation.vertex(*id) {
                Some(vertex) => Value::list(vertex.labels.iter().map(Value::text).collect()),
                None => Value::list(Vec::new()),
            },
            (F::Type, Value::Edge(edge)) => Value::Text(Arc::clone(&edge.name)),
            (F::StartNode, Value::Edge(edge)) => Value::Vertex(edge.from),
            (F::EndNode, Value::Edge(edge)) => Value::Vertex(edge.to),
            (F::Nodes, Value::Path(path)) => Value::list(path.vertices.iter().map(|&id| Value::Vertex(id)).collect()),
            (F::Relationships, Value::Path(path)) => Value::list(path.edges.iter().cloned().map(Value::Edge).collect()),
            (F::Length, Value::Path(path)) => Value::Int(path.edges.len() as i64),
            (F::Size | F::Length, Value::List(values)) => Value::Int(values.len() as i64),
            (F::Size, Value::Text(text)) => Value::Int(text.chars().count() as i64),
            (F::Properties | F::Keys, Value::Vertex(_) | Value::Edge(_) | Value::Map(_)) => {
                let map = properties(&of, evaluation);
                match self {
                    F::Keys => Value::list(map.keys().map(Value::text).collect()),
                    _ => Value::Map(map),
                }
            }
            (F::ToLower, Value::Text(text)) => Value::text(text.to_lowercase()),
            (F::ToUpper, Value::Text(text)) => Value::text(text.to_uppercase()),
            (F::Trim, Value::Text(text)) => Value::text(text.trim()),
            (F::Reverse, Value::Text(text)) => Value::text(text.chars().rev().collect::<String>()),
            (F::ToString | F::ToInteger | F::ToFloat, _) => convert(self, &of)?,
            (F::Head, Value::List(values)) => values.first().cloned().unwrap_or(Value::Null),
            (F::Last, Value::List(values)) => values.last().cloned().unwrap_or(Value::Null),
            (F::Tail, Value::List(values)) => Value::list(values.iter().skip(1).cloned().collect()),
            (F::Reverse, Value::List(values)) => Value::list(values.iter().rev().cloned().collect()),
            (F::Abs, Value::Int(int)) => Value::Int(int.checked_abs().ok_or("ERR integer overflow")?),
            (F::Sign, Value::Int(int)) => Value::Int(int.signum()),
            (F::Abs | F::Ceil | F::Floor | F::Round | F::Sqrt | F::Sign, Value::Int(_) | Value::Float(_)) => {
                of_float(self, &of)
            }
            _ => return Err(format!("ERR {} does not take {}", self.name(), of.kind())),
        })
    }

    fn name(self) -> &'static str {
        let known = FUNCTIONS.iter().find(|(_, function, ..)| *function == self);
        known.map_or("", |(name, ..)| name)
    }
}

fn of_float(function: Function, of: &Value) -> Value {
    let float = match of {
        Value::Int(int) => *int as f64,
        Value::Float(float) => *float,
        _ => f64::NAN,
    };
    match function {
        F::Abs => Value::Float(float.abs()),
        F::Ceil => Value::Float(float.ceil()),
        F::Floor => Value::Float(float.floor()),
        F::Round => Value::Float((float + 0.5).floor()),
        F::Sign if float == 0.0 || float.is_nan() => Value::Int(0),
        F::Sign => Value::Int(float.signum() as i64),
        _ => Value::Float(float.sqrt()),
    }
}

fn properties(of: &Value, evaluation: &mut Evaluation<'_>) -> Arc<BTreeMap<String, Value>> {
    match of {
        Value::Vertex(id) => {
            let vertex = evaluation.vertex(*id);
            let entries = vertex.iter().flat_map(|vertex| &vertex.properties);
            Arc::new(
                entries
                    .map(|(name, value)| (name.clone(), Value::of_json(value)))
                    .collect(),
            )
        }
        Value::Edge(edge) => match evaluation.edge(edge) {
            Value::Map(map) => map,
            _ => Arc::default(),
        },
        Value::Map(map) => Arc::clone(map),
        _ => Arc::default(),
    }
}

fn convert(function: Function, of: &Value) -> Result<Value, String> {
    Ok(match (function, of) {
        (F::ToString, Value::Text(_)) | (F::ToInteger, Value::Int(_)) | (F::ToFloat, Value::Float(_)) => of.clone(),
        (F::ToString, Value::Int(int)) => Value::text(int.to_string()),
        (F::ToString, Value::Float(float)) => Value::text(format!("{float:?}")),
        (F::ToString, Value::Bool(flag)) => Value::text(flag.to_string()),
        (F::ToInteger, Value::Float(float)) => Value::Int(*float as i64),
        (F::ToFloat, Value::Int(int)) => Value::Float(*int as f64),
        (F::ToInteger, Value::Text(text)) => match text.trim().parse::<f64>() {
            Ok(float) => text.trim().parse().map_or(Value::Int(float as i64), Value::Int),
            Err(_) => Value::Null,
        },
        (F::ToFloat, Value::Text(text)) => text.trim().parse().map_or(Value::Null, Value::Float),
        _ => return Err(format!("ERR {} does not take {}", function.name(), of.kind())),
    })
}

fn range(arguments: &[Value]) -> Result<Value, String> {
    let int = |at: usize| match arguments.get(at) {
        Some(Value::Int(int)) => Ok(*int),
        None => Ok(1),
        Some(other) => Err(format!("ERR range does not take {}", other.kind())),
    };
    let (from, to, step) = (int(0)?, int(1)?, int(2)?);
    if step == 0 {
        return Err("ERR the step of range is not 0".into());
    }
    let (from, to, step) = (i128::from(from), i128::from(to), i128::from(step));
    let length = match (to - from).signum() == -step.signum() {
        true => 0,
        false => (to - from) / step + 1,
    };
    if length > RANGE_MAX {
        return Err(format!("LIMIT range makes at most {RANGE_MAX} numbers"));
    }
    // All are between the two bounds.
    let number = |at: i128| Value::Int((from + at * step) as i64);
    Ok(Value::list((0..length).map(number).collect()))
}

/// `-value`
///
/// # Errors
/// It is no number.
pub(super) fn negative(of: &Value) -> Result<Value, String> {
    Ok(match of {
        Value::Null => Value::Null,
        Value::Int(int) => Value::Int(int.checked_neg().ok_or("ERR integer overflow")?),
        Value::Float(float) => Value::Float(-float),
        other => return Err(format!("ERR {} has no negative", other.kind())),
    })
}

/// `list[from..to]`
///
/// # Errors
/// Values of wrong types.
pub(super) fn slice(of: &Value, from: Option<&Value>, to: Option<&Value>) -> Result<Value, String> {
    let Value::List(values) = of else {
        return match of {
            Value::Null => Ok(Value::Null),
            other => Err(format!("ERR {} has no parts", other.kind())),
        };
    };
    let length = values.len() as i64;
    let bound = |bound: Option<&Value>, default: i64| match bound {
        None => Ok(Some(default)),
        Some(Value::Int(at)) => Ok(Some(if *at < 0 {
            (at + length).max(0)
        } else {
            (*at).min(length)
        })),
        Some(Value::Null) => Ok(None),
        Some(other) => Err(format!("ERR {} is no place in a list", other.kind())),
    };
    let (Some(from), Some(to)) = (bound(from, 0)?, bound(to, length)?) else {
        return Ok(Value::Null);
    };
    let part = values.get(from as usize..to.max(from) as usize).unwrap_or_default();
    Ok(Value::list(part.to_vec()))
}

/// The value of an operator other than `AND` and `OR`.
///
/// # Errors
/// Values of wrong types, an integer that is too large, a division by zero.
pub(crate) fn binary(one: &Value, operator: Operator, other: &Value) -> Result<Value, String> {
    use Operator as O;
    let flag = |flag: Option<bool>| flag.map_or(Value::Null, Value::Bool);
    let is_number = |value: &Value| matches!(value, Value::Int(_) | Value::Float(_));
    let ordered = |holds: fn(std::cmp::Ordering) -> bool| match one.compares(other) {
        // NaN is not less, and not greater.
        None if is_number(one) && is_number(other) => Value::Bool(false),
        order => flag(order.map(holds)),
    };
    let texts = |holds: fn(&str, &str) -> bool| match (one, other) {
        (Value::Text(one), Value::Text(other)) => Value::Bool(holds(one, other)),
        _ => Value::Null,
    };
    Ok(match operator {
        O::Equal => flag(one.equals(other)),
        O::NotEqual => flag(one.equals(other).map(|equals| !equals)),
        O::Less => ordered(std::cmp::Ordering::is_lt),
        O::LessOrEqual => ordered(std::cmp::Ordering::is_le),
        O::Greater => ordered(std::cmp::Ordering::is_gt),
        O::GreaterOrEqual => ordered(std::cmp::Ordering::is_ge),
        O::StartsWith => texts(|one, other| one.starts_with(other)),
        O::EndsWith => texts(|one, other| one.ends_with(other)),
        O::Contains => texts(|one, other| one.contains(other)),
        O::In => is_in(one, other)?,
        O::Xor | O::And | O::Or => match (one, other) {
            (Value::Bool(one), Value::Bool(other)) => Value::Bool(one != other),
            (Value::Null | Value::Bool(_), Value::Null | Value::Bool(_)) => Value::Null,
            _ => return Err("ERR a condition is true, false or null".into()),
        },
        O::Add | O::Subtract | O::Multiply | O::Divide | O::Remainder | O::Power => arithmetic(one, operator, other)?,
    })
}

fn is_in(one: &Value, list: &Value) -> Result<Value, String> {
    let Value::List(values) = list else {
        return match list {
            Value::Null => Ok(Value::Null),
            other => Err(format!("ERR IN takes a list, and not {}", other.kind())),
        };
    };
    let mut unknown = false;
    for value in &**values {
        match one.equals(value) {
            Some(true) => return Ok(Value::Bool(true)),
            Some(false) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Value::Null } else { Value::Bool(false) })
}

fn arithmetic(one: &Value, operator: Operator, other: &Value) -> Result<Value, String> {
    use Operator as O;
    if *one == Value::Null || *other == Value::Null {
        return Ok(Value::Null);
    }
    if operator == O::Add {
        match (one, other) {
            (Value::List(one), Value::List(other)) => {
                return Ok(Value::list(one.iter().chain(&**other).cloned().collect()));
            }
            (Value::List(list), value) => {
                return Ok(Value::list(list.iter().chain([value]).cloned().collect()));
            }
            (value, Value::List(list)) => {
                return Ok(Value::list([value].into_iter().chain(&**list).cloned().collect()));
            }
            (Value::Text(_), Value::Text(_) | Value::Int(_) | Value::Float(_))
            | (Value::Int(_) | Value::Float(_), Value::Text(_)) => {
                let text = |value: &Value| convert(F::ToString, value);
                let (Value::Text(one), Value::Text(other)) = (text(one)?, text(other)?) else {
                    return Ok(Value::Null);
                };
                return Ok(Value::text(format!("{one}{other}")));
            }
            _ => {}
        }
    }
    let overflow = || String::from("ERR integer overflow");
    Ok(match (one, other) {
        (Value::Int(one), Value::Int(other)) if operator != O::Power => Value::Int(match operator {
            O::Add => one.checked_add(*other).ok_or_else(overflow)?,
            O::Subtract => one.checked_sub(*other).ok_or_else(overflow)?,
            O::Multiply => one.checked_mul(*other).ok_or_else(overflow)?,
            _ if *other == 0 => return Err("ERR division by zero".into()),
            O::Divide => one.checked_div(*other).ok_or_else(overflow)?,
            // The remainder of the least integer by -1 is 0; their quotient does not fit.
            _ => one.wrapping_rem(*other),
        }),
        (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            let float = |value: &Value| {
                if let Value::Int(int) = value {
                    *int as f64
                } else if let Value::Float(float) = value {
                    *float
                } else {
                    f64::NAN
                }
            };
            let (one, other) = (float(one), float(other));
            Value::Float(match operator {
                O::Add => one + other,
                O::Subtract => one - other,
                O::Multiply => one * other,
                O::Divide => one / other,
                O::Remainder => one % other,
                _ => one.powf(other),
            })
        }
        _ => {
            return Err(format!(
                "ERR {} and {} cannot be computed with",
                one.kind(),
                other.kind()
            ));
        }
    })
}
