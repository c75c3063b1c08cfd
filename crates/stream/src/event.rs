//! One event, and the form in which the log keeps it.

use bytes::{Buf, BufMut, Bytes};

use crate::overlay::{EVENT_KEY_BYTES_MAX, EVENT_VALUE_BYTES_MAX};

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

/// How far an event may be ahead of the time when it was logged, in milliseconds: beyond that, it would hide all later ones.
const AHEAD_MS_MAX: u64 = 24 * 60 * 60 * 1000;

const HAS_VALUE: u8 = 1;
const HAS_TIME: u8 = 2;

impl Event {
    /// Checks that it can be applied, if it is logged at this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// A key or a value of a length that is not kept, or a time that is too far ahead.
    pub fn check(&self, logged_ms: u64) -> Result<(), Poison> {
        let key_bytes = self.key.len();
        if !(1..=EVENT_KEY_BYTES_MAX).contains(&key_bytes) {
            let keys = format!("keys have 1 to {EVENT_KEY_BYTES_MAX}");
            return Err(Poison(format!("the key has {key_bytes} bytes: {keys}")));
        }
        let value_bytes = self.value.as_ref().map_or(0, Bytes::len);
        if value_bytes > EVENT_VALUE_BYTES_MAX {
            let values = format!("values have at most {EVENT_VALUE_BYTES_MAX}");
            return Err(Poison(format!("the value has {value_bytes} bytes: {values}")));
        }
        match self.time_ms {
            Some(time_ms) if time_ms > logged_ms.saturating_add(AHEAD_MS_MAX) => Err(Poison(format!(
                "its time {time_ms} is more than a day after it was logged ({logged_ms}): correct the clock of its producer"
            ))),
            _ => Ok(()),
        }
    }

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
