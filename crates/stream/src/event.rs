//! One event, and the form in which the log keeps it.

use bytes::{Buf, BufMut, Bytes};

/// A change of one key at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key in the store, without the store's name.
    pub key: Bytes,
    /// The new value; `None` deletes the key.
    pub value: Option<Bytes>,
    /// When it happened, in milliseconds since 1970; by default when it was logged.
    pub time_ms: Option<u64>,
}

/// Why a record of a stream is no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Poison(pub String);

const HAS_VALUE: u8 = 1;
const HAS_TIME: u8 = 2;

impl Event {
    /// Appends its encoded form: flags, the time if there is one, the length of the key, the key, the value.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        into.put_u8(flag(self.value.is_some(), HAS_VALUE) | flag(self.time_ms.is_some(), HAS_TIME));
        if let Some(time_ms) = self.time_ms {
            into.put_u64(time_ms);
        }
        into.put_u32(self.key.len() as u32);
        into.put_slice(&self.key);
        into.put_slice(self.value.as_deref().unwrap_or_default());
    }

    /// The event in an encoded form; `None` if it is damaged.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        let flags = bytes
            .try_get_u8()
            .ok()
            .filter(|flags| flags & !(HAS_VALUE | HAS_TIME) == 0)?;
        let time_ms = match flags & HAS_TIME {
            0 => None,
            _ => Some(bytes.try_get_u64().ok()?),
        };
        let key_bytes = bytes.try_get_u32().ok()? as usize;
        if key_bytes > bytes.len() {
            return None;
        }
        let key = bytes.split_to(key_bytes);
        let value = (flags & HAS_VALUE != 0).then_some(bytes);
        Some(Self { key, value, time_ms })
    }
}
