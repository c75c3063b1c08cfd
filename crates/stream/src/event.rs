//! One event, and the form in which the log keeps it.

use bytes::{Buf, BufMut, Bytes};
use fondaco_schema::{Update, UpdateError};

use crate::overlay::{EVENT_KEY_BYTES_MAX, EVENT_VALUE_BYTES_MAX};

/// A change of one key at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key in the store, without the store's name.
    pub key: Bytes,
    /// The change to the value.
    pub change: Change,
    /// When it happened, in milliseconds since 1970; by default when it was logged.
    pub time_ms: Option<u64>,
    /// Another event of the key with the same identifier is the same event, logged again.
    pub id: Option<Bytes>,
}

/// A change to the value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key has this value.
    Put(Bytes),
    /// The key has no value.
    Delete,
    /// Operations change parts of the value: a JSON object, as `docs/streams.md` describes it.
    Update(Bytes),
}

/// Why a record of a stream is no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Poison(pub String);

impl From<UpdateError> for Poison {
    fn from(error: UpdateError) -> Self {
        Self(error.to_string())
    }
}

/// The longest identifier of an event, in bytes.
const ID_BYTES_MAX: usize = 1024;

const HAS_VALUE: u8 = 1;
const HAS_TIME: u8 = 2;
const IS_UPDATE: u8 = 4;
const HAS_ID: u8 = 8;
const ALL_FLAGS: u8 = HAS_VALUE | HAS_TIME | IS_UPDATE | HAS_ID;

impl Change {
    /// A value, or none.
    pub fn of(value: Option<Bytes>) -> Self {
        value.map_or(Self::Delete, Self::Put)
    }

    /// The value, or the text of the operations.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Put(bytes) | Self::Update(bytes) => bytes,
            Self::Delete => &[],
        }
    }
}

/// Checks that the time of an event, if it has one, is not too far ahead of the time when it was logged.
pub(crate) fn check_time(time_ms: Option<u64>, logged_ms: u64, ahead_ms_max: u64) -> Result<(), Poison> {
    match time_ms {
        Some(time_ms) if time_ms > logged_ms.saturating_add(ahead_ms_max) => Err(Poison(format!(
            "its time {time_ms} is more than {ahead_ms_max} ms (--max-clock-ahead) after it was logged ({logged_ms}): correct the \
             clock of its producer"
        ))),
        Some(_) | None => Ok(()),
    }
}

impl Event {
    /// Checks that it can be applied, if it is logged at this time, in milliseconds since 1970, and may be so many milliseconds
    /// later: beyond that, it would hide all events until then.
    ///
    /// # Errors
    /// A key, a value or an identifier that is too long, a malformed update, or a time that is too far ahead.
    pub fn check(&self, logged_ms: u64, ahead_ms_max: u64) -> Result<(), Poison> {
        self.checked(logged_ms, ahead_ms_max).map(|_| ())
    }

    /// Like [`check`](Self::check). Returns the update, if it is one.
    pub(crate) fn checked(&self, logged_ms: u64, ahead_ms_max: u64) -> Result<Option<Update>, Poison> {
        let key_bytes = self.key.len();
        if !(1..=EVENT_KEY_BYTES_MAX).contains(&key_bytes) {
            let keys = format!("keys have 1 to {EVENT_KEY_BYTES_MAX}");
            return Err(Poison(format!("the key has {key_bytes} bytes: {keys}")));
        }
        let id_bytes = self.id.as_ref().map_or(0, Bytes::len);
        if id_bytes > ID_BYTES_MAX {
            let ids = format!("identifiers have at most {ID_BYTES_MAX}");
            return Err(Poison(format!(
                "the identifier of the event has {id_bytes} bytes: {ids}"
            )));
        }
        let value_bytes = self.change.bytes().len();
        if value_bytes > EVENT_VALUE_BYTES_MAX {
            let values = format!("values have at most {EVENT_VALUE_BYTES_MAX}");
            return Err(Poison(format!("the value has {value_bytes} bytes: {values}")));
        }
        check_time(self.time_ms, logged_ms, ahead_ms_max)?;
        match &self.change {
            Change::Update(text) => Ok(Some(Update::parse(text)?)),
            Change::Put(_) | Change::Delete => Ok(None),
        }
    }

    /// Appends its encoded form: flags; the time, if it has one; the length of the identifier and the identifier, if
    /// it has one; the length of the key; the key; the value or the update.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let kind = match &self.change {
            Change::Put(_) => HAS_VALUE,
            Change::Delete => 0,
            Change::Update(_) => IS_UPDATE,
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        into.put_u8(kind | flag(self.time_ms.is_some(), HAS_TIME) | flag(self.id.is_some(), HAS_ID));
        if let Some(time_ms) = self.time_ms {
            into.put_u64(time_ms);
        }
        for bytes in self.id.iter().chain([&self.key]) {
            into.put_u32(bytes.len() as u32);
            into.put_slice(bytes);
        }
        into.put_slice(self.change.bytes());
    }

    /// The event in an encoded form; `None` if it is damaged.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        let flags = bytes.try_get_u8().ok().filter(|flags| flags & !ALL_FLAGS == 0)?;
        let time_ms = match flags & HAS_TIME {
            0 => None,
            _ => Some(bytes.try_get_u64().ok()?),
        };
        let mut take = || {
            let length = bytes.try_get_u32().ok()? as usize;
            (length <= bytes.len()).then(|| bytes.split_to(length))
        };
        let id = match flags & HAS_ID {
            0 => None,
            _ => Some(take()?),
        };
        let key = take()?;
        let change = match flags & (HAS_VALUE | IS_UPDATE) {
            0 => Change::Delete,
            HAS_VALUE => Change::Put(bytes),
            IS_UPDATE => Change::Update(bytes),
            _ => return None,
        };
        let event = Self {
            key,
            change,
            time_ms,
            id,
        };
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_all_of_an_event() {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        for change in [
            Change::Put(text("v")),
            Change::Put(text("")),
            Change::Delete,
            Change::Update(text("{}")),
        ] {
            for (time_ms, id) in [(None, None), (Some(7), Some(text("id"))), (None, Some(text("")))] {
                let key = text("key");
                let event = Event {
                    key,
                    change: change.clone(),
                    time_ms,
                    id,
                };
                let mut bytes = Vec::new();
                event.encode(&mut bytes);
                assert_eq!(Event::decode(bytes.clone().into()), Some(event));
                assert_eq!(Event::decode(bytes[..bytes.len().min(3)].to_vec().into()), None);
            }
        }
    }
}
