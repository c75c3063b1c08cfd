//! Carries out a query over stored values, one after the other.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fondaco_model::ValueType;
use serde_json::Value;

use super::{Form, Operand, Query, QueryError, What, check_fields, some_fields, syntax};
use crate::{Projection, Schema, Schemas, ValueError, score, value_to_json};

/// The schemas of a store that are prepared for one query, so that all its values share the work.
#[derive(Debug)]
pub struct Evaluator<'a> {
    query: &'a Query,
    value_type: ValueType,
    schemas: Option<&'a Schemas>,
    reader: Option<Schema>,
    /// The fields that conditions are on, each once.
    condition_fields: Vec<&'a str>,
    /// Whether each of them has numbers, by the reader's schema.
    has_numbers: Vec<bool>,
    /// The names that are read from values without a schema: those asked for, then those of conditions, each once.
    plain_names: Vec<&'a str>,
    by_writer: BTreeMap<u16, Result<Prepared, String>>,
}

/// The parts of a value that a query reads, for the values of one schema.
#[derive(Debug)]
struct Prepared {
    result: Projection,
    conditions: Option<Projection>,
}

/// The result for one value.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// A condition does not hold; or the vector is missing, or has no direction.
    Nothing,
    /// The fields, as they were asked for.
    Fields(Vec<Value>),
    /// The fields as a JSON object, or as a payload.
    Bytes(Vec<u8>),
    /// A dot product or a cosine.
    Score(f64),
    /// A number of items.
    Count(u64),
    /// A vector: 32-bit floats, little-endian.
    Vector(Vec<u8>),
}

impl Found {
    /// The result as it travels: fields in JSON or as a payload, scores and counts in 8 bytes, vectors as they are stored, all
    /// little-endian. `None` for nothing, and for fields that are to be encoded otherwise.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Nothing | Self::Fields(_) => None,
            Self::Bytes(bytes) | Self::Vector(bytes) => Some(bytes),
            Self::Score(score) => Some(score.to_le_bytes().to_vec()),
            Self::Count(count) => Some(count.to_le_bytes().to_vec()),
        }
    }
}

impl<'a> Evaluator<'a> {
    /// Prepares a query over values of this type, with the schemas of the store if the type has any.
    ///
    /// # Errors
    /// A type without fields, an unknown field or schema.
    pub fn new(query: &'a Query, value_type: ValueType, schemas: Option<&'a Schemas>) -> Result<Self, QueryError> {
        let asked = query.fields();
        if let Some(twice) = (1..asked.len()).find(|&at| asked[..at].contains(&asked[at])) {
            return syntax(format!("the field {:?} is asked for twice", asked[twice]));
        }
        let mut condition_fields: Vec<&str> = Vec::new();
        let mut plain_names = asked.clone();
        for condition in &query.conditions {
            for names in [&mut condition_fields, &mut plain_names] {
                if !names.contains(&condition.field.as_str()) {
                    names.push(&condition.field);
                }
            }
        }
        let mut has_numbers = vec![false; condition_fields.len()];
        let reader = match value_type {
            ValueType::Avro | ValueType::Protobuf => {
                let schemas = schemas.filter(|schemas| schemas.newest().is_some()).ok_or_else(|| {
                    QueryError::Type("the store has no schema: register one, fondaco schema register STORE FILE".into())
                })?;
                let reader = match query.schema {
                    Some(id) => schemas.get(id).ok_or(QueryError::UnknownSchema(id))?,
                    None => schemas
                        .newest()
                        .map(|(_, schema)| schema)
                        .ok_or(QueryError::UnknownSchema(0))?,
                };
                check_fields(reader, &plain_names)?;
                let known = reader.fields();
                for (field, has_numbers) in condition_fields.iter().zip(&mut has_numbers) {
                    let field = known.iter().find(|known| known.name == **field);
                    *has_numbers = field.is_some_and(|field| is_number(&field.texts.type_text));
                }
                Some(reader.clone())
            }
            ValueType::Json | ValueType::Messagepack => {
                if let Some(id) = query.schema {
                    return Err(QueryError::UnknownSchema(id));
                }
                if let What::Fields { form: Form::Raw, .. } = query.what {
                    return Err(QueryError::Type(format!(
                        "values of type {value_type} have no schema: use AS JSON"
                    )));
                }
                None
            }
            other => {
                return Err(QueryError::Type(format!(
                    "values of type {other} have no fields: create a store with fondaco store create NAME --value-type avro, \
                     protobuf, json or messagepack"
                )));
            }
        };
        Ok(Self {
            query,
            value_type,
            schemas,
            reader,
            condition_fields,
            has_numbers,
            plain_names,
            by_writer: BTreeMap::new(),
        })
    }

    /// The result for a stored value.
    ///
    /// # Errors
    /// The value does not fit its schema, the id of its schema is unknown, or a field is not what the query wants.
    pub fn apply(&mut self, value: &[u8]) -> Result<Found, ValueError> {
        match (self.schemas, &self.reader) {
            (Some(schemas), Some(_)) => self.apply_to_payload(schemas, value),
            _ => self.apply_to_plain(value),
        }
    }

    fn apply_to_payload(&mut self, schemas: &Schemas, value: &[u8]) -> Result<Found, ValueError> {
        let (id, writer, payload) = schemas.split(value)?;
        if !self.by_writer.contains_key(&id) {
            let prepared = self.prepare(writer);
            self.by_writer.insert(id, prepared);
        }
        let Prepared { result, conditions } = match &self.by_writer[&id] {
            Ok(prepared) => prepared,
            Err(reason) => return Err(ValueError::new(0, reason.as_str())),
        };
        if let Some(conditions) = conditions {
            let mut fields = conditions.json(payload)?;
            let fields: Vec<Value> = self.condition_fields.iter().map(|name| fields[*name].take()).collect();
            if !self.holds(&fields)? {
                return Ok(Found::Nothing);
            }
        }
        match &self.query.what {
            What::Fields { form: Form::Raw, .. } => result.encoded(payload).map(Found::Bytes),
            What::Fields { names, form } => {
                let mut fields = result.json(payload)?;
                let fields = names.iter().map(|name| fields[name.as_str()].take()).collect();
                Ok(formed(names, fields, *form))
            }
            What::Count { field } => {
                let count = result.count(payload, field)?;
                Ok(count.map_or(Found::Nothing, Found::Count))
            }
            What::Dot(operand) | What::Cosine(operand) | What::Hadamard(operand) => {
                self.score(operand, result.floats(payload, &operand.field)?)
            }
        }
    }

    fn prepare(&self, writer: &Schema) -> Result<Prepared, String> {
        let reader = self.reader.as_ref();
        let projection = |fields: &[&str]| Projection::new(writer, reader, fields).map_err(|error| error.to_string());
        Ok(Prepared {
            result: projection(&self.query.fields())?,
            conditions: match &self.condition_fields[..] {
                [] => None,
                fields => Some(projection(fields)?),
            },
        })
    }

    fn apply_to_plain(&mut self, value: &[u8]) -> Result<Found, ValueError> {
        let mut read = match self.value_type {
            ValueType::Json => some_fields::read(value, &self.plain_names)
                .map_err(|error| ValueError::new(0, format!("the value is no JSON object: {error}")))?,
            value_type => match value_to_json(value_type, value)? {
                Some(Value::Object(mut object)) => {
                    let names = self.plain_names.iter();
                    names.map(|name| object.remove(*name).unwrap_or_default()).collect()
                }
                _ => return Err(ValueError::new(0, "the value is no map: it has no fields")),
            },
        };
        let place = |name: &str| self.plain_names.iter().position(|known| *known == name);
        let fields = self.condition_fields.iter();
        let fields: Vec<Value> = fields
            .map(|name| place(name).map(|at| read[at].clone()).unwrap_or_default())
            .collect();
        if !self.holds(&fields)? {
            return Ok(Found::Nothing);
        }
        match &self.query.what {
            What::Fields { names, form } => {
                read.truncate(names.len());
                Ok(formed(names, read, *form))
            }
            What::Count { field } => match &read[0] {
                Value::Null => Ok(Found::Nothing),
                Value::Array(items) => Ok(Found::Count(items.len() as u64)),
                Value::Object(items) => Ok(Found::Count(items.len() as u64)),
                _ => Err(ValueError::new(0, "the field is no list and no map").within(field)),
            },
            What::Dot(operand) | What::Cosine(operand) | What::Hadamard(operand) => {
                let floats = floats(&read[0])
                    .ok_or_else(|| ValueError::new(0, "the field is no list of numbers").within(&operand.field))?;
                self.score(operand, &floats)
            }
        }
    }

    /// Whether all conditions hold for their fields.
    fn holds(&self, fields: &[Value]) -> Result<bool, ValueError> {
        for condition in &self.query.conditions {
            let at = self.condition_fields.iter().position(|name| *name == condition.field);
            let at = at.unwrap_or_default();
            let holds = condition.holds(&fields[at], self.has_numbers[at]);
            if !holds.map_err(|reason| ValueError::new(0, reason).within(&condition.field))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn score(&self, operand: &Operand, stored: &[u8]) -> Result<Found, ValueError> {
        let vector = &operand.vector;
        if stored.is_empty() {
            return Ok(Found::Nothing);
        }
        if stored.len() != 4 * vector.len() {
            let (stored, given) = (stored.len() / 4, vector.len());
            let reason = format!("the vector has {stored} floats, the given one {given}");
            return Err(ValueError::new(0, reason).within(&operand.field));
        }
        Ok(match &self.query.what {
            What::Cosine(_) => {
                let cosine = score::cosine(stored, vector, score::norm(vector));
                cosine.map_or(Found::Nothing, Found::Score)
            }
            What::Hadamard(_) => Found::Vector(score::hadamard(stored, vector)),
            _ => Found::Score(score::dot(stored, vector)),
        })
    }
}

/// Fields in the form that is asked for.
fn formed(names: &[String], fields: Vec<Value>, form: Form) -> Found {
    match form {
        Form::Pairs | Form::Raw => Found::Fields(fields),
        Form::Json => {
            let mut text = String::from("{");
            for (at, (name, field)) in names.iter().zip(&fields).enumerate() {
                text += if at == 0 { "" } else { "," };
                text += &format!("{}:{field}", Value::from(name.as_str()));
            }
            text.push('}');
            Found::Bytes(text.into_bytes())
        }
    }
}

/// The floats of a list of numbers, as a vector is stored; empty for null.
fn floats(value: &Value) -> Option<Cow<'static, [u8]>> {
    match value {
        Value::Null => Some(Cow::Borrowed(&[])),
        Value::Array(items) => {
            let floats = items.iter().map(|item| Some((item.as_f64()? as f32).to_le_bytes()));
            Some(Cow::Owned(floats.collect::<Option<Vec<_>>>()?.concat()))
        }
        _ => None,
    }
}

/// Whether the values of a type are numbers, some of which are texts in JSON.
fn is_number(type_text: &str) -> bool {
    let type_text = type_text.to_ascii_lowercase();
    ["decimal(", "float", "double"]
        .iter()
        .any(|name| type_text.contains(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::put_id;

    fn query(text: &str, vector: &[f32]) -> Query {
        let vector: Vec<u8> = vector.iter().flat_map(|float| float.to_le_bytes()).collect();
        let words: Vec<&[u8]> = text
            .split(' ')
            .map(|word| if word == "$" { &vector[..] } else { word.as_bytes() })
            .collect();
        Query::parse(&words, 0).unwrap().unwrap().0
    }

    fn schemas() -> Schemas {
        let schema = |fields: Value| {
            let text = json!({"type": "record", "name": "Item", "fields": fields}).to_string();
            Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap()
        };
        let vector = json!({"name": "v", "type": ["null", {"type": "array", "items": "float"}], "default": null});
        let old = schema(
            json!([{"name": "id", "type": "int"}, vector, {"name": "tags", "type": {"type": "array", "items": "string"}}]),
        );
        let new = schema(json!([
            vector,
            {"name": "number", "type": "long", "aliases": ["id"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "default": "\u{0003}\u{00e8}"},
        ]));
        Schemas::from_iter([(1, old), (200, new)])
    }

    fn value(schemas: &Schemas, id: u16, json: Value) -> Vec<u8> {
        let mut value = Vec::new();
        put_id(id, &mut value);
        value.extend(schemas.get(id).unwrap().of_json(&json).unwrap());
        value
    }

    fn apply(text: &str, vector: &[f32], schemas: &Schemas, stored: &[u8]) -> Result<Found, String> {
        let query = query(text, vector);
        let mut evaluator =
            Evaluator::new(&query, ValueType::Avro, Some(schemas)).map_err(|error| error.to_string())?;
        evaluator.apply(stored).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_are_those_of_the_newest_schema_or_of_the_one_that_is_asked_for() {
        let schemas = schemas();
        let old = value(&schemas, 1, json!({"id": 7, "v": null, "tags": ["a", "b"]}));
        let ask = |text: &str| apply(text, &[], &schemas, &old);
        assert_eq!(
            ask("FIELDS 2 price number"),
            Ok(Found::Fields(vec![json!("10.00"), json!(7)]))
        );
        assert_eq!(
            ask("FIELDS 2 tags id AS JSON SCHEMA 1"),
            Ok(Found::Bytes(br#"{"tags":["a","b"],"id":7}"#.to_vec()))
        );
        assert_eq!(ask("FIELDS 1 number AS RAW"), Ok(Found::Bytes(vec![14])));
        let error = ask("FIELDS 1 id").unwrap_err();
        assert_eq!(error, "there is no field \"id\": the fields are v, number, tags, price");
        assert_eq!(ask("FIELDS 1 id SCHEMA 9").unwrap_err(), "no schema has the id 9");
        assert!(ask("FIELDS 2 tags tags").unwrap_err().contains("twice"));
    }

    #[test]
    fn scores_are_over_the_vector_of_a_field() {
        let schemas = schemas();
        let new = value(
            &schemas,
            200,
            json!({"v": [1.0, 2.0, 2.0], "number": 5, "tags": ["a", "b", "c"]}),
        );
        let old = value(&schemas, 1, json!({"id": 7, "v": null, "tags": []}));
        let ask = |text: &str, vector: &[f32]| apply(text, vector, &schemas, &new);
        assert_eq!(ask("DOT v VECTOR $", &[1.0, 0.5, 2.0]), Ok(Found::Score(6.0)));
        assert_eq!(ask("COSINE v VECTOR $", &[2.0, 4.0, 4.0]), Ok(Found::Score(1.0)));
        assert_eq!(ask("COSINE v VECTOR $", &[0.0; 3]), Ok(Found::Nothing));
        let products = [2f32, 0.0, -2.0].map(f32::to_le_bytes).concat();
        assert_eq!(
            ask("HADAMARD v VECTOR $", &[2.0, 0.0, -1.0]),
            Ok(Found::Vector(products))
        );
        assert_eq!(ask("COUNT tags", &[]), Ok(Found::Count(3)));
        assert_eq!(ask("COUNT v", &[]), Ok(Found::Count(3)));
        assert_eq!(apply("DOT v VECTOR $", &[1.0], &schemas, &old), Ok(Found::Nothing));
        assert_eq!(apply("COUNT v", &[], &schemas, &old), Ok(Found::Nothing));
        assert_eq!(apply("COUNT tags", &[], &schemas, &old), Ok(Found::Count(0)));
        let error = ask("DOT v VECTOR $", &[1.0]).unwrap_err();
        assert_eq!(
            error,
            "invalid value, field \"v\": the vector has 3 floats, the given one 1"
        );
        assert!(
            ask("DOT tags VECTOR $", &[1.0])
                .unwrap_err()
                .contains("no array of float")
        );
        assert!(ask("COUNT number", &[]).unwrap_err().contains("no list"));
    }

    #[test]
    fn values_that_do_not_meet_all_conditions_are_left_out() {
        let schemas = schemas();
        let new = value(
            &schemas,
            200,
            json!({"v": [1.0], "number": 5, "tags": [], "price": "9.50"}),
        );
        let ask = |conditions: &str| apply(&format!("FIELDS 1 number WHERE {conditions}"), &[], &schemas, &new);
        let found = Ok(Found::Fields(vec![json!(5)]));
        assert_eq!(ask("number > 4 AND number < 6 AND price < 10"), found);
        assert_eq!(ask("number > 4 AND price < 9.5"), Ok(Found::Nothing));
        assert!(ask("tags = a").unwrap_err().contains("list"));
        assert!(ask("number = five").unwrap_err().contains("\"number\""));
        assert!(ask("nothing = 1").unwrap_err().contains("no field \"nothing\""));
    }

    #[test]
    fn values_of_other_types_have_fields_if_they_are_objects() {
        let text = br#"{"v": [1, 2.5], "tags": {"a": 1}, "n": 5, "rest": {"deep": [1, 2]}}"#;
        let ask = |words: &str, vector: &[f32], stored: &[u8]| {
            let query = query(words, vector);
            let found = Evaluator::new(&query, ValueType::Json, None).unwrap().apply(stored);
            found.map_err(|error| error.to_string())
        };
        assert_eq!(
            ask("FIELDS 3 n z n2 WHERE n >= 5", &[], text),
            Ok(Found::Fields(vec![json!(5), json!(null), json!(null)]))
        );
        assert_eq!(ask("DOT v VECTOR $", &[2.0, 2.0], text), Ok(Found::Score(7.0)));
        assert_eq!(ask("COUNT tags WHERE n < 5", &[], text), Ok(Found::Nothing));
        assert_eq!(ask("COUNT tags", &[], text), Ok(Found::Count(1)));
        assert!(ask("DOT n VECTOR $", &[1.0], text).unwrap_err().contains("\"n\""));
        assert!(ask("FIELDS 1 n", &[], b"[1]").unwrap_err().contains("no JSON object"));
        for (words, value_type) in [("FIELDS 1 n AS RAW", ValueType::Json), ("FIELDS 1 n", ValueType::Bytes)] {
            assert!(Evaluator::new(&query(words, &[]), value_type, None).is_err());
        }
        let query = query("FIELDS 1 n", &[]);
        let packed = crate::value_of_json(ValueType::Messagepack, &json!({"n": 8, "m": 1}))
            .unwrap()
            .unwrap();
        let mut evaluator = Evaluator::new(&query, ValueType::Messagepack, None).unwrap();
        assert_eq!(evaluator.apply(&packed), Ok(Found::Fields(vec![json!(8)])));
    }

    #[test]
    fn bytes_that_are_no_value_are_errors_of_their_key() {
        let schemas = schemas();
        for stored in [
            &b""[..],
            b"\x05x",
            b"\x01",
            b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x81\x01x",
        ] {
            for text in [
                "FIELDS 1 number",
                "DOT v VECTOR $",
                "COUNT tags",
                "FIELDS 1 tags AS RAW WHERE number = 1",
            ] {
                assert!(apply(text, &[1.0], &schemas, stored).is_err(), "{text} {stored:?}");
            }
        }
    }
}
