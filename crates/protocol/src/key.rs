//! Keys on the wire: `store:key`, with their slot.
//!
//! They are parsed once, when they are received. The invariant: a [`WireKey`] has a valid store name, and a key of 1 to
//! [`KEY_BYTES_MAX`] bytes.

use bytes::{BufMut, Bytes, BytesMut};
use fondaco_model::{KEY_BYTES_MAX, Slot, SlotPrefix, StoreName, slot_of_wire_key};

use thiserror::Error;

/// A key that no store can hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid key {key:?}: {reason}")]
pub struct InvalidKey {
    /// Its first bytes.
    pub key: Box<str>,
    /// The reason.
    pub reason: &'static str,
}

impl InvalidKey {
    fn new(key: &[u8], reason: &'static str) -> Self {
        let head = &key[..key.len().min(80)];
        Self {
            key: String::from_utf8_lossy(head).into(),
            reason,
        }
    }
}

/// A key with the name of its store. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireKey {
    bytes: Bytes,
    store_bytes: u8,
    slot: Slot,
}

impl WireKey {
    /// Parses `store:key`.
    ///
    /// # Errors
    /// [`InvalidKey`]: no colon, no store name before it, or a key after it that is empty or too long.
    pub fn parse(bytes: Bytes) -> Result<Self, InvalidKey> {
        let head = &bytes[..bytes.len().min(StoreName::BYTES_MAX + 1)];
        let Some(colon) = head.iter().position(|&byte| byte == b':') else {
            return Err(InvalidKey::new(
                &bytes,
                "it has no store name: keys are written store:key",
            ));
        };
        if colon == 0 || !head[..colon].is_ascii() {
            return Err(InvalidKey::new(&bytes, "the text before the colon is not a store name"));
        }
        check_length(&bytes, colon)?;
        Ok(Self {
            slot: slot_of_wire_key(&bytes),
            store_bytes: colon as u8,
            bytes,
        })
    }

    /// The wire key with these bytes, which begin with the name of a store and a colon. For servers with many keys of one store:
    /// `slots` is that of the store, so that its name is neither looked for nor hashed again.
    ///
    /// # Errors
    /// [`InvalidKey`]: an empty or too long key.
    #[inline]
    pub fn of_store(store: &StoreName, slots: SlotPrefix, bytes: Bytes) -> Result<Self, InvalidKey> {
        let colon = store.as_str().len();
        debug_assert_eq!(bytes[..colon], *store.as_str().as_bytes());
        debug_assert_eq!(bytes[colon], b':');
        check_length(&bytes, colon)?;
        let slot = slots.slot(&bytes[colon + 1..]);
        debug_assert_eq!(slot, slot_of_wire_key(&bytes));
        Ok(Self {
            slot,
            store_bytes: colon as u8,
            bytes,
        })
    }

    /// The wire key of a key in a store.
    ///
    /// # Errors
    /// [`InvalidKey`]: an empty or too long key.
    pub fn new(store: &StoreName, key: &[u8]) -> Result<Self, InvalidKey> {
        let mut bytes = BytesMut::with_capacity(store.as_str().len() + 1 + key.len());
        bytes.put_slice(store.as_str().as_bytes());
        bytes.put_u8(b':');
        bytes.put_slice(key);
        Self::parse(bytes.freeze())
    }

    /// The name of the store.
    #[inline]
    pub fn store(&self) -> &str {
        // It is ASCII: `parse` has checked.
        std::str::from_utf8(&self.bytes[..usize::from(self.store_bytes)]).unwrap_or_default()
    }

    /// The key within its store.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.bytes[usize::from(self.store_bytes) + 1..]
    }

    /// The whole wire key.
    #[inline]
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The slot of the key.
    #[inline]
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

/// Whether the length of the key behind the colon is allowed.
#[inline]
fn check_length(wire_key: &[u8], colon: usize) -> Result<(), InvalidKey> {
    match wire_key.len() - colon - 1 {
        1..=KEY_BYTES_MAX => Ok(()),
        0 => Err(InvalidKey::new(wire_key, "the key after the colon is empty")),
        _ => Err(InvalidKey::new(wire_key, "it is longer than 64 KiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_split_at_its_first_colon() {
        let key = WireKey::parse(Bytes::from_static(b"pymk:a:b")).unwrap();
        assert_eq!((key.store(), key.key()), ("pymk", &b"a:b"[..]));
        assert_eq!(key, WireKey::new(&"pymk".parse().unwrap(), b"a:b").unwrap());
    }

    #[test]
    fn a_key_of_a_known_store_is_the_one_that_is_parsed() {
        let store: StoreName = "pymk".parse().unwrap();
        let slots = SlotPrefix::of(&store);
        for text in ["pymk:a", "pymk:a:b", "pymk:{tag}b", "pymk:12345678901234567890"] {
            let of_store = WireKey::of_store(&store, slots, Bytes::from_static(text.as_bytes()));
            assert_eq!(of_store, WireKey::parse(Bytes::from_static(text.as_bytes())));
        }
        let long = [b"pymk:", &[0; KEY_BYTES_MAX + 1][..]].concat();
        for bytes in [&b"pymk:"[..], &long] {
            let refused = WireKey::of_store(&store, slots, Bytes::copy_from_slice(bytes));
            assert!(matches!(refused, Err(InvalidKey { .. })), "{}", bytes.len());
        }
    }

    #[test]
    fn a_key_without_store_or_name_is_refused() {
        let long_name = [&[b'n'; 65][..], b":k"].concat();
        let long_key = [b"s:", &[0; KEY_BYTES_MAX + 1][..]].concat();
        for bytes in [&b""[..], b"k", b":k", b"s:", b"\xff:k", &long_name, &long_key] {
            let refused = WireKey::parse(Bytes::copy_from_slice(bytes));
            assert!(matches!(refused, Err(InvalidKey { .. })), "{}", bytes.len());
        }
    }
}
