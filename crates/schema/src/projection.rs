//! Some fields of values, whichever the language of the schema.

use serde_json::Value;

use crate::avro::projection::AvroProjection;
use crate::protobuf::ProtobufProjection;
use crate::schema::{Form, Schema};
use crate::{SchemaError, ValueError};

/// Reads some fields of the values of one schema, without decoding the others.
#[derive(Debug)]
pub struct Projection {
    inner: Inner,
    schema: Schema,
}

#[derive(Debug)]
enum Inner {
    Avro(Box<AvroProjection>),
    Protobuf(ProtobufProjection),
}

impl Projection {
    /// For values of `writer`; with a reader, the fields are the reader's, with its defaults, promotions and aliases.
    pub fn new(writer: &Schema, reader: Option<&Schema>, fields: &[&str]) -> Result<Self, SchemaError> {
        let reader = reader.filter(|reader| reader.canonical() != writer.canonical());
        match (writer.form(), reader.map(Schema::form)) {
            (Form::Avro(from), None) => Self::avro(AvroProjection::new(from, None, fields)?),
            (Form::Avro(from), Some(Form::Avro(to))) => Self::avro(AvroProjection::new(from, Some(to), fields)?),
            (Form::Protobuf(from), None | Some(Form::Protobuf(_))) => {
                let schema = reader.unwrap_or(writer).clone();
                let message = match schema.form() {
                    Form::Protobuf(message) => message,
                    Form::Avro(_) => from,
                };
                Ok(Self {
                    inner: Inner::Protobuf(ProtobufProjection::new(message, fields)?),
                    schema,
                })
            }
            _ => Err(SchemaError::new(
                "the root",
                "the two schemas are not of one type of values",
            )),
        }
    }

    fn avro(projection: AvroProjection) -> Result<Self, SchemaError> {
        let schema = Schema::of_graph(projection.schema.clone(), projection.schema_text.clone());
        Ok(Self {
            inner: Inner::Avro(Box::new(projection)),
            schema,
        })
    }

    /// The schema of [`Self::encoded`]: for Avro a record of just these fields, for Protobuf the whole message.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The fields as a JSON object.
    pub fn json(&self, payload: &[u8]) -> Result<Value, ValueError> {
        match &self.inner {
            Inner::Avro(projection) => projection.json(payload),
            Inner::Protobuf(projection) => projection.json(payload),
        }
    }

    /// The fields as a payload of [`Self::schema`].
    pub fn encoded(&self, payload: &[u8]) -> Result<Vec<u8>, ValueError> {
        match &self.inner {
            Inner::Avro(projection) => projection.encoded(payload),
            Inner::Protobuf(projection) => projection.encoded(payload),
        }
    }

    /// The little-endian bytes of the 32-bit floats of one of the fields, in place: an Avro array of float in one block, a packed
    /// `repeated float`, or bytes. Empty if the field is null or missing, whatever its default.
    pub fn floats<'a>(&self, payload: &'a [u8], field: &str) -> Result<&'a [u8], ValueError> {
        match &self.inner {
            Inner::Avro(projection) => projection.floats(payload, field),
            Inner::Protobuf(projection) => projection.floats(payload, field),
        }
    }

    /// The number of items of one of the fields: of a list or a map, of floats of a vector. `None` if the field is null.
    pub fn count(&self, payload: &[u8], field: &str) -> Result<Option<u64>, ValueError> {
        match &self.inner {
            Inner::Avro(projection) => projection.count(payload, field),
            Inner::Protobuf(projection) => projection.count(payload, field),
        }
    }
}
