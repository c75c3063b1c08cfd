//! Values as Confluent's serializers write them to Kafka.
//!
//! ```text
//! value = 00, id, payload
//! id    = the number of the schema in a registry outside: 4 bytes, the most significant first
//! ```
//!
//! Of Protobuf, the payload begins with the indexes of the message in its file: [`read_message_indexes`].

use crate::ValueError;

/// The first byte of each value.
const MAGIC: u8 = 0;
/// How deeply a message may be declared within messages.
const INDEXES_MAX: i64 = 64;

/// Splits a value into the number of its schema and the payload.
pub fn read_registry_id(value: &[u8]) -> Result<(u32, &[u8]), ValueError> {
    match value {
        [MAGIC, a, b, c, d, payload @ ..] => Ok((u32::from_be_bytes([*a, *b, *c, *d]), payload)),
        [MAGIC, ..] => Err(ValueError::new(
            value.len(),
            "the value ends within the 4 bytes of its schema's number",
        )),
        [first, ..] => Err(ValueError::new(
            0,
            format!(
                "the value begins with {first:#04x}, not with 0x00 and the number of a schema, as Confluent's serializers write it"
            ),
        )),
        [] => Err(ValueError::new(0, "the value is empty: it has no number of a schema")),
    }
}

/// Splits the payload of Protobuf into the indexes of the message and the message: the index of the outermost message in the file,
/// then that of the one within it, and so on.
///
/// ```text
/// indexes = 00, for the first message of the file
///         | count, index, …: signed variable-length integers (zigzag, LEB128)
/// ```
pub fn read_message_indexes(payload: &[u8]) -> Result<(Vec<u32>, &[u8]), ValueError> {
    let mut rest = payload;
    let mut next = |max: i64| {
        let offset = payload.len() - rest.len();
        let number = read_signed(&mut rest).filter(|number| (0..=max).contains(number));
        number.ok_or_else(|| ValueError::new(offset, "the value has no valid indexes of its message"))
    };
    let indexes = match next(INDEXES_MAX)? {
        0 => vec![0],
        count => (0..count)
            .map(|_| next(i64::from(i32::MAX)).map(|index| index as u32))
            .collect::<Result<_, _>>()?,
    };
    Ok((indexes, rest))
}

fn read_signed(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((number >> 1) as i64 ^ -((number & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
    use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};
    use serde_json::json;

    use super::*;
    use crate::Schema;

    #[test]
    fn a_file_of_protobuf_has_a_schema_for_each_message() {
        let message = |name: &str, nested_type| DescriptorProto {
            name: Some(name.to_owned()),
            field: vec![FieldDescriptorProto {
                name: Some("at".to_owned()),
                number: Some(1),
                label: Some(Label::Optional.into()),
                r#type: Some(Type::Message.into()),
                type_name: Some(".google.protobuf.Timestamp".to_owned()),
                ..Default::default()
            }],
            nested_type,
            ..Default::default()
        };
        let file = FileDescriptorProto {
            name: Some("user.proto".to_owned()),
            package: Some("shop".to_owned()),
            dependency: vec!["google/protobuf/timestamp.proto".to_owned()],
            message_type: vec![
                message("Other", vec![]),
                message("User", vec![message("Visit", vec![])]),
            ],
            syntax: Some("proto3".to_owned()),
            ..Default::default()
        };
        let bytes = file.encode_to_vec();
        for (indexes, name) in [
            (&[0][..], "shop.Other"),
            (&[1], "shop.User"),
            (&[1, 0], "shop.User.Visit"),
        ] {
            let schema = Schema::of_protobuf_file(&bytes, indexes).unwrap();
            assert_eq!(schema.message(), Some(name));
            let payload = schema.of_json(&json!({"at": "2026-01-31T12:00:00Z"})).unwrap();
            assert_eq!(schema.to_json(&payload).unwrap()["at"], "2026-01-31T12:00:00Z");
            // It is one by itself: the imported file is in it.
            let again = Schema::parse(schema.value_type(), schema.text(), schema.message()).unwrap();
            assert_eq!(again.canonical(), schema.canonical());
        }
        for (bytes, indexes, reason) in [
            (&bytes[..], &[2][..], "no message with the indexes [2]"),
            (&bytes, &[0, 0], "no message with the indexes [0, 0]"),
            (&bytes, &[], "there is no such message"),
            (b"\xff", &[0], ""),
        ] {
            let error = Schema::of_protobuf_file(bytes, indexes).unwrap_err();
            assert!(error.reason.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_number_of_the_schema_is_split_off() {
        assert_eq!(read_registry_id(&[0, 0, 0, 1, 2, 9, 8]), Ok((258, &[9, 8][..])));
        assert_eq!(read_registry_id(&[0, 255, 255, 255, 255]), Ok((u32::MAX, &[][..])));
        for (value, offset, reason) in [
            (&[][..], 0, "is empty"),
            (&[0], 1, "ends within"),
            (&[0, 1, 2, 3], 4, "ends within"),
            (b"{}", 0, "begins with 0x7b"),
        ] {
            let error = read_registry_id(value).unwrap_err();
            assert_eq!(error.offset, offset);
            assert!(error.reason.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_indexes_of_the_message_are_split_off() {
        for (payload, indexes, rest) in [
            (&[0, 7][..], &[0][..], &[7][..]),
            (&[2, 0, 7], &[0], &[7]),
            (&[2, 2], &[1], &[]),
            (&[4, 2, 0x80, 1, 5], &[1, 64], &[5]),
        ] {
            assert_eq!(read_message_indexes(payload), Ok((indexes.to_vec(), rest)));
        }
    }

    #[test]
    fn indexes_that_are_cut_negative_or_too_many_are_refused() {
        for payload in [
            &[][..],
            &[1],
            &[2],
            &[2, 1],
            &[0x84, 1],
            &[0x80; 9],
            &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert!(read_message_indexes(payload).is_err(), "{payload:?}");
        }
    }
}
