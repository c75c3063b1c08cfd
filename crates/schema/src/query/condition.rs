//! Conditions on fields. Null fulfils none.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// A comparison of a field with a literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The field.
    pub field: String,
    /// The comparison.
    pub comparison: Comparison,
    /// Text, a number, `true` or `false`: the field's value decides.
    pub literal: String,
}

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"=" => Self::Equal,
            b"!=" => Self::NotEqual,
            b"<" => Self::Less,
            b"<=" => Self::LessOrEqual,
            b">" => Self::Greater,
            b">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// Whether it holds; `None`: the two are not comparable, as NaN is with nothing.
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

impl Condition {
    /// Whether it holds for the value of its field. Texts of a field of numbers (decimals, NaN) are compared as numbers.
    ///
    /// # Errors
    /// The reason why the two cannot be compared.
    pub(super) fn holds(&self, value: &Value, has_numbers: bool) -> Result<bool, String> {
        let literal = self.literal.as_str();
        let no = |kind: &str| format!("it is {kind}, and {literal:?} is not");
        let order = match value {
            Value::Null => return Ok(false),
            Value::Bool(value) => {
                let given = literal
                    .to_ascii_lowercase()
                    .parse::<bool>()
                    .map_err(|_| no("a boolean"))?;
                Some(value.cmp(&given))
            }
            Value::Number(value) => compare_numbers(value, literal).ok_or_else(|| no("a number"))?,
            Value::String(value) => match has_numbers.then(|| value.parse::<f64>().ok()).flatten() {
                Some(value) => value.partial_cmp(&literal.parse().map_err(|_| no("a number"))?),
                None => Some(value.as_str().cmp(literal)),
            },
            Value::Array(_) => return Err("it is a list: conditions are on numbers, text and booleans".into()),
            Value::Object(_) => {
                return Err("it is a map or record: conditions are on numbers, text and booleans".into());
            }
        };
        Ok(self.comparison.holds(order))
    }
}

/// Integers exactly, others as 64-bit floats; `None` if the literal is no number.
fn compare_numbers(value: &Number, literal: &str) -> Option<Option<Ordering>> {
    let integer = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    if let (Some(value), Ok(given)) = (integer, literal.parse::<i128>()) {
        return Some(Some(value.cmp(&given)));
    }
    let given: f64 = literal.parse().ok()?;
    Some(value.as_f64().and_then(|value| value.partial_cmp(&given)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(value: Value, comparison: &str, literal: &str, has_numbers: bool) -> Result<bool, String> {
        let condition = Condition {
            field: "f".into(),
            comparison: Comparison::parse(comparison.as_bytes()).unwrap(),
            literal: literal.into(),
        };
        condition.holds(&value, has_numbers)
    }

    #[test]
    fn values_are_compared_by_their_type() {
        let big = i64::MAX;
        for (value, comparison, literal, has_numbers, expected) in [
            (json!(9), "<", "10", false, true),
            (json!("9"), "<", "10", false, false),
            (json!("9.50"), "<", "10", true, true),
            (json!(big), ">", "9223372036854775806", false, true),
            (json!(u64::MAX), ">", "18446744073709551614", false, true),
            (json!(2.5), ">=", "2.5", false, true),
            (json!(2), "<", "2.5", false, true),
            (json!("b"), ">", "a", false, true),
            (json!(true), "=", "TRUE", false, true),
            (json!(false), "<", "true", false, true),
            (json!("NaN"), "=", "NaN", true, false),
            (json!("NaN"), "!=", "1", true, true),
            (json!("Infinity"), ">", "1e300", true, true),
            (json!(null), "=", "null", false, false),
            (json!(null), "!=", "5", false, false),
        ] {
            assert_eq!(
                holds(value.clone(), comparison, literal, has_numbers),
                Ok(expected),
                "{value} {comparison} {literal}"
            );
        }
    }

    #[test]
    fn literals_of_another_type_are_refused_by_name() {
        for value in [json!(5), json!(true), json!([1]), json!({"a": 1})] {
            let error = holds(value, "=", "five", false).unwrap_err();
            assert!(error.contains("it is a"), "{error}");
        }
    }
}
