//! The id of the schema in front of a value.
//!
//! ```text
//! stored value = id, payload
//! id           = LEB128 of 1 to 16383: one byte below 128, else two
//! ```

use crate::ValueError;

/// The largest id of a schema: two bytes of LEB128.
pub const SCHEMA_ID_MAX: u16 = 16_383;

/// Splits a stored value into the id of its schema and the payload.
pub fn read_id(value: &[u8]) -> Result<(u16, &[u8]), ValueError> {
    match *value {
        [] => Err(ValueError::new(0, "the value is empty: it has no schema id")),
        [low, ref payload @ ..] if (1..0x80).contains(&low) => Ok((low.into(), payload)),
        [low, high, ref payload @ ..] if low >= 0x80 && (1..0x80).contains(&high) => {
            Ok((u16::from(low & 0x7f) | u16::from(high) << 7, payload))
        }
        _ => Err(ValueError::new(
            0,
            "the value does not begin with a schema id from 1 to 16383",
        )),
    }
}

/// Appends the id of a schema, from 1 to [`SCHEMA_ID_MAX`].
pub fn put_id(id: u16, out: &mut Vec<u8>) {
    assert!(
        (1..=SCHEMA_ID_MAX).contains(&id),
        "schema id {id} is not from 1 to {SCHEMA_ID_MAX}"
    );
    if id < 0x80 {
        out.push(id as u8);
    } else {
        out.extend([id as u8 | 0x80, (id >> 7) as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_read_back_with_its_payload() {
        for id in 1..=SCHEMA_ID_MAX {
            let mut value = Vec::new();
            put_id(id, &mut value);
            assert_eq!(value.len(), if id < 128 { 1 } else { 2 });
            value.extend(b"rest");
            assert_eq!(read_id(&value), Ok((id, &b"rest"[..])));
        }
    }

    #[test]
    fn bytes_that_are_no_shortest_id_are_refused() {
        for bytes in [
            &[][..],
            &[0],
            &[0x80],
            &[0x81],
            &[0x81, 0],
            &[0x81, 0x81],
            &[0x80, 0x80, 1],
        ] {
            assert!(read_id(bytes).is_err(), "{bytes:?}");
        }
    }
}
