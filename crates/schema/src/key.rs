//! Keys of a declared type. A tuple is in the encoding of FoundationDB's tuples, which many languages have: keys sort as their parts do.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fondaco_model::{KeyPart, KeyType};
use foundationdb_tuple::{Bytes, PackResult, TupleDepth, TuplePack, TupleUnpack, pack_into};
use serde_json::Value;

use crate::ValueError;

/// The key of some JSON: of a tuple a list, of bytes base64.
pub fn key_of_json(key_type: &KeyType, json: &Value) -> Result<Vec<u8>, ValueError> {
    let misfit =
        |part: usize, expected: &str| ValueError::new(0, format!("part {} of the key is no {expected}", part + 1));
    let text = |part: usize, json: &Value| json.as_str().map(str::to_owned).ok_or_else(|| misfit(part, "text"));
    let bytes = |part, json: &Value| {
        BASE64_STANDARD
            .decode(text(part, json)?)
            .map_err(|_| misfit(part, "base64"))
    };
    let integer = |part, json: &Value| json.as_i64().ok_or_else(|| misfit(part, "integer of 64 bits"));
    match key_type {
        KeyType::One(KeyPart::Bytes) => bytes(0, json),
        KeyType::One(KeyPart::String) => Ok(text(0, json)?.into_bytes()),
        KeyType::One(KeyPart::Integer) => Ok(integer(0, json)?.to_string().into_bytes()),
        KeyType::Tuple(parts) => {
            let list = json.as_array().filter(|list| list.len() == parts.len());
            let list =
                list.ok_or_else(|| ValueError::new(0, format!("the key is no list of {} parts", parts.len())))?;
            let mut out = Vec::new();
            for (at, (part, json)) in parts.iter().zip(list).enumerate() {
                match part {
                    KeyPart::Bytes => append(&Bytes::from(bytes(at, json)?), &mut out),
                    KeyPart::String => append(&text(at, json)?, &mut out),
                    KeyPart::Integer => append(&integer(at, json)?, &mut out),
                }
            }
            Ok(out)
        }
    }
}

/// The key of the texts or bytes of its parts, of which there is one for each part of the type. An error has the number of the
/// part, from 0.
pub fn key_of_parts(key_type: &KeyType, parts: &[&[u8]]) -> Result<Vec<u8>, (usize, ValueError)> {
    let types = match key_type {
        KeyType::One(part) => std::slice::from_ref(part),
        KeyType::Tuple(types) => types,
    };
    if types.len() != parts.len() {
        let reason = format!("the key has {} parts, not {}", parts.len(), types.len());
        return Err((0, ValueError::new(0, reason)));
    }
    let is_tuple = matches!(key_type, KeyType::Tuple(_));
    let mut out = Vec::new();
    for (at, (part_type, &part)) in types.iter().zip(parts).enumerate() {
        let text = || std::str::from_utf8(part).ok();
        let misfit = |expected: &str| (at, ValueError::new(0, format!("it is no {expected}")));
        match part_type {
            KeyPart::Bytes if is_tuple => append(&Bytes::from(part), &mut out),
            KeyPart::Bytes => {}
            KeyPart::String => {
                let text = text().ok_or_else(|| misfit("UTF-8"))?;
                if is_tuple {
                    append(&text, &mut out);
                }
            }
            KeyPart::Integer => {
                let is_canonical = |number: &i64| number.to_string().as_bytes() == part;
                let number = text().and_then(|text| text.parse().ok()).filter(is_canonical);
                let number = number.ok_or_else(|| misfit("integer of 64 bits"))?;
                if is_tuple {
                    append(&number, &mut out);
                }
            }
        }
        if !is_tuple {
            out.extend_from_slice(part);
        }
    }
    Ok(out)
}

/// The texts or bytes of the parts of a key, as [`key_of_parts`] takes them; an error if the key is not of its type.
pub fn key_to_parts(key_type: &KeyType, key: &[u8]) -> Result<Vec<Vec<u8>>, ValueError> {
    let part = |json: &Value, part_type: &KeyPart| match (json, part_type) {
        // Its own base64.
        (Value::String(text), KeyPart::Bytes) => BASE64_STANDARD.decode(text).unwrap_or_default(),
        (Value::String(text), _) => text.clone().into_bytes(),
        (other, _) => other.to_string().into_bytes(),
    };
    match (key_type, key_to_json(key_type, key)?) {
        (KeyType::Tuple(types), Value::Array(parts)) => {
            Ok(parts.iter().zip(types).map(|(json, of)| part(json, of)).collect())
        }
        _ => Ok(vec![key.to_vec()]),
    }
}

fn append(part: &impl TuplePack, out: &mut Vec<u8>) {
    pack_into(part, out);
}

/// A key as JSON; an error if it is not of its type.
pub fn key_to_json(key_type: &KeyType, key: &[u8]) -> Result<Value, ValueError> {
    match key_type {
        KeyType::One(KeyPart::Bytes) => Ok(BASE64_STANDARD.encode(key).into()),
        KeyType::One(part) => {
            let text = std::str::from_utf8(key)
                .map_err(|error| ValueError::new(error.valid_up_to(), "the key is not UTF-8"))?;
            if *part == KeyPart::String {
                return Ok(text.into());
            }
            let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
            number
                .map(Value::from)
                .ok_or_else(|| ValueError::new(0, "the key is no integer of 64 bits"))
        }
        KeyType::Tuple(parts) => {
            let (mut rest, mut list) = (key, Vec::with_capacity(parts.len()));
            for (at, part) in parts.iter().enumerate() {
                let json = match part {
                    KeyPart::Bytes => {
                        unpack::<Bytes<'_>>(&mut rest).map(|bytes| BASE64_STANDARD.encode(&*bytes).into())
                    }
                    KeyPart::String => unpack::<String>(&mut rest).map(Value::from),
                    KeyPart::Integer => unpack::<i64>(&mut rest).map(Value::from),
                };
                let offset = key.len() - rest.len();
                list.push(
                    json.map_err(|error| ValueError::new(offset, format!("part {} of the key: {error}", at + 1)))?,
                );
            }
            match rest.len() {
                0 => Ok(Value::Array(list)),
                left => Err(ValueError::new(
                    key.len() - left,
                    format!("{left} bytes follow the last part of the key"),
                )),
            }
        }
    }
}

/// The first part of a tuple, and the bytes of the others: the library reads only whole tuples, of types known to the compiler.
struct First<'a, T> {
    part: T,
    rest: &'a [u8],
}

impl<'a, T: TupleUnpack<'a>> TupleUnpack<'a> for First<'a, T> {
    fn unpack(input: &'a [u8], depth: TupleDepth) -> PackResult<(&'a [u8], Self)> {
        let (rest, part) = T::unpack(input, depth.increment())?;
        Ok((&[], Self { part, rest }))
    }
}

fn unpack<'a, T: TupleUnpack<'a>>(rest: &mut &'a [u8]) -> PackResult<T> {
    let first: First<'a, T> = foundationdb_tuple::unpack(rest)?;
    *rest = first.rest;
    Ok(first.part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn key_type() -> KeyType {
        "(string,integer,bytes)".parse().unwrap()
    }

    #[test]
    fn tuples_have_the_bytes_of_foundationdb() {
        let key = key_of_json(&key_type(), &json!(["ab\0", -5, "AAE="])).unwrap();
        assert_eq!(key, b"\x02ab\x00\xff\x00\x13\xfa\x01\x00\xff\x01\x00");
        assert!(key_of_json(&key_type(), &json!(["ab", 1])).is_err());
        assert!(key_of_json(&"integer".parse().unwrap(), &json!("5")).is_err());
        assert!(key_to_json(&"integer".parse().unwrap(), b"05").is_err());
        assert_eq!(key_of_parts(&key_type(), &[b"ab", b"05", b""]).unwrap_err().0, 1);
        assert_eq!(key_of_parts(&"integer".parse().unwrap(), &[b"-5"]).unwrap(), b"-5");
    }

    proptest! {
        #[test]
        fn keys_come_back_and_sort_as_their_parts(a in (".{0,4}", any::<i64>(), any::<Vec<u8>>()), b in (".{0,4}", any::<i64>(), any::<Vec<u8>>())) {
            let encode = |(text, number, bytes): &(String, i64, Vec<u8>)| {
                let json = json!([text, number, BASE64_STANDARD.encode(bytes)]);
                let key = key_of_json(&key_type(), &json).unwrap();
                assert_eq!(key_to_json(&key_type(), &key).unwrap(), json);
                key
            };
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
        }

        #[test]
        fn parts_make_the_key_of_their_json(text in ".{0,4}", number: i64, bytes: Vec<u8>) {
            let key = key_of_json(&key_type(), &json!([text, number, BASE64_STANDARD.encode(&bytes)])).unwrap();
            let number = number.to_string();
            let parts = [text.as_bytes(), number.as_bytes(), &bytes];
            prop_assert_eq!(key_of_parts(&key_type(), &parts).unwrap(), &key[..]);
            prop_assert_eq!(key_to_parts(&key_type(), &key).unwrap(), parts);
        }

        #[test]
        fn other_bytes_are_refused_or_read(bytes: Vec<u8>) {
            let _ = key_to_json(&key_type(), &bytes);
        }
    }
}
