//! A value while updates apply to it.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_ids::IdSet;
use fondaco_model::ValueType;
use serde_json::{Map, Value};

use super::operation::Operation;
use super::record::Record;
use super::{Members, UPDATE_BYTES_MAX, Update, is_near_limit};
use crate::{ValueError, ValueRules};

/// The longest set of ids that updates make, in bytes.
const IDS_BYTES_MAX: usize = 4 << 20;

/// The most characters of a number.
const DIGITS_MAX: usize = 20;

/// A value while updates apply to it.
pub struct Content {
    form: Form,
    rules: Arc<ValueRules>,
    /// At least its length, in bytes.
    bytes: usize,
    /// Whether the order of increments may matter: a number is near the end of what its type has.
    is_near_limit: bool,
}

enum Form {
    Absent,
    Bytes(Bytes),
    Number(i64),
    /// A set that is not empty, sorted.
    Ids(Vec<u64>),
    Object(Map<String, Value>),
    Record(Box<Record>),
}

impl Content {
    /// A value of a store with these rules, or none.
    pub fn of(value: Option<Bytes>, rules: &Arc<ValueRules>) -> Self {
        let bytes = value.as_ref().map_or(0, Bytes::len);
        let form = value.map_or(Form::Absent, Form::Bytes);
        Self {
            form,
            rules: Arc::clone(rules),
            bytes,
            is_near_limit: false,
        }
    }

    /// The value, if there is one: as it is stored.
    pub fn value(&self) -> Option<Bytes> {
        match &self.form {
            Form::Absent => None,
            Form::Bytes(bytes) => Some(bytes.clone()),
            Form::Number(number) => Some(number.to_string().into()),
            // Sorted ids can be encoded.
            Form::Ids(ids) => fondaco_ids::encode(ids).ok().map(Bytes::from),
            Form::Object(object) => {
                // Writing a map with keys that are texts does not fail.
                let text = serde_json::to_vec(object).unwrap_or_default();
                Some(text.into())
            }
            Form::Record(record) => Some(record.encode().into()),
        }
    }

    /// Whether increments may not fit in another order.
    pub fn is_near_limit(&self) -> bool {
        self.is_near_limit
    }

    /// Applies an update.
    ///
    /// # Errors
    /// An operation that does not fit: it names the field and the type. The other operations have their effects.
    pub fn apply(&mut self, update: &Update) -> Result<(), ValueError> {
        let value_type = self.rules.value_type();
        let bytes_max = match value_type {
            ValueType::Ids | ValueType::Graph => IDS_BYTES_MAX,
            _ => UPDATE_BYTES_MAX,
        };
        if self.bytes + update.bytes > bytes_max {
            self.bytes = self.value().as_ref().map_or(0, Bytes::len);
            if self.bytes + update.bytes > bytes_max {
                return Err(ValueError::new(
                    0,
                    format!("the value would have more than {bytes_max} bytes: write it whole"),
                ));
            }
        }
        self.bytes += update.bytes;
        match (&update.members, value_type) {
            (Some(members), ValueType::Ids | ValueType::Graph) => return self.change_members(members),
            (Some(_), _) => {
                return Err(ValueError::new(
                    0,
                    format!("values of type {value_type} are no sets of ids"),
                ));
            }
            (None, _) => {}
        }
        let has_numbers = matches!(value_type, ValueType::Bytes | ValueType::Json | ValueType::Integer);
        match (update.fields.is_empty(), value_type) {
            (true, _) if has_numbers => self.add(update.whole),
            (true, _) => Err(ValueError::new(
                0,
                format!("an increment of the whole value does not fit the type {value_type}: name a field"),
            )),
            (false, ValueType::Bytes | ValueType::Json | ValueType::Graph) => self.apply_to_object(&update.fields),
            (false, ValueType::Avro | ValueType::Protobuf | ValueType::Messagepack) => {
                self.apply_to_record(&update.fields)
            }
            (false, _) => Err(ValueError::new(
                0,
                format!("values of type {value_type} have no fields"),
            )),
        }
    }

    fn add(&mut self, by: i64) -> Result<(), ValueError> {
        let known = match &self.form {
            Form::Absent => Some(0),
            Form::Bytes(bytes) => str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
            Form::Number(known) => Some(*known),
            Form::Ids(_) | Form::Object(_) | Form::Record(_) => None,
        };
        let known: i64 = known.ok_or_else(|| ValueError::new(0, "the value is no whole number of 64 bits"))?;
        let sum = known.checked_add(by);
        let sum = sum.ok_or_else(|| ValueError::new(0, "the sum has more than 64 bits"))?;
        self.is_near_limit |= is_near_limit(sum);
        self.form = Form::Number(sum);
        self.bytes = DIGITS_MAX;
        Ok(())
    }

    /// Removes and adds members. A set without members is absent.
    fn change_members(&mut self, members: &Members) -> Result<(), ValueError> {
        let mut ids = match std::mem::replace(&mut self.form, Form::Absent) {
            Form::Ids(ids) => ids,
            Form::Bytes(bytes) => match IdSet::parse(&bytes) {
                Ok(set) => set.iter().collect(),
                Err(error) => {
                    self.form = Form::Bytes(bytes.clone());
                    return Err(ValueError::new(0, format!("the value is no set of ids: {error}")));
                }
            },
            Form::Absent => Vec::new(),
            other @ (Form::Number(_) | Form::Object(_) | Form::Record(_)) => {
                self.form = other;
                return Err(ValueError::new(0, "the value is no set of ids"));
            }
        };
        if !members.remove.is_empty() {
            ids.retain(|id| members.remove.binary_search(id).is_err());
        }
        if !members.add.is_empty() {
            ids.extend(&members.add);
            // Two sorted runs, which this sort merges.
            ids.sort();
            ids.dedup();
        }
        if !ids.is_empty() {
            self.form = Form::Ids(ids);
        }
        Ok(())
    }

    fn apply_to_object(&mut self, fields: &[(String, Operation)]) -> Result<(), ValueError> {
        let is_new = matches!(self.form, Form::Absent);
        match &self.form {
            Form::Absent => self.form = Form::Object(Map::new()),
            Form::Bytes(bytes) => {
                let object = serde_json::from_slice(bytes);
                let object = object.map_err(|_| ValueError::new(0, "the value is no JSON object"))?;
                self.form = Form::Object(object);
                // Its text may be written in another way: only the next update asks for its length.
                self.bytes = UPDATE_BYTES_MAX;
            }
            Form::Number(_) | Form::Ids(_) | Form::Object(_) | Form::Record(_) => {}
        }
        let Form::Object(object) = &mut self.form else {
            return Err(ValueError::new(0, "the value is no JSON object"));
        };
        let mut first = Ok(());
        for (field, operation) in fields {
            let mut value = object.get_mut(field).map(Value::take);
            let applied = operation.apply(&mut value);
            if let (Operation::Increment(_), Some(sum)) = (operation, &value) {
                self.is_near_limit |= sum.as_i64().is_some_and(is_near_limit);
            }
            match (value, object.get_mut(field)) {
                (Some(value), Some(known)) => *known = value,
                (Some(value), None) => _ = object.insert(field.clone(), value),
                (None, Some(_)) => _ = object.remove(field),
                (None, None) => {}
            }
            first = first.and(applied.map_err(|reason| ValueError::new(0, reason).within(field)));
        }
        if is_new && object.is_empty() {
            self.form = Form::Absent;
        }
        first
    }

    fn apply_to_record(&mut self, fields: &[(String, Operation)]) -> Result<(), ValueError> {
        let former = match &self.form {
            Form::Absent if fields.iter().all(|(_, operation)| operation.is_removal()) => return Ok(()),
            Form::Absent => Some(Form::Absent),
            Form::Bytes(bytes) => Some(Form::Bytes(bytes.clone())),
            Form::Number(_) | Form::Ids(_) | Form::Object(_) | Form::Record(_) => None,
        };
        if let Some(former) = &former {
            let record = match former {
                Form::Bytes(bytes) => Record::open(&self.rules, Some(bytes))?,
                _ => Record::open(&self.rules, None)?,
            };
            self.form = Form::Record(Box::new(record));
            self.bytes = UPDATE_BYTES_MAX;
        }
        let Form::Record(record) = &mut self.form else {
            return Err(ValueError::new(0, "the value has no fields"));
        };
        let (mut first, mut is_changed) = (Ok(()), false);
        for (field, operation) in fields {
            let applied = record.apply(field, operation);
            is_changed |= applied.is_ok();
            if let (Operation::Increment(_), Ok(sum)) = (operation, &applied) {
                self.is_near_limit |= sum.is_none_or(is_near_limit);
            }
            first = first.and(applied.map(drop).map_err(|error| error.within(field)));
        }
        let complete = record.check_complete();
        if let Some(former) = former
            && (!is_changed || complete.is_err())
        {
            self.form = former;
        }
        first.and(complete)
    }
}
