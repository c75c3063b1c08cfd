//! Records of Kafka as events.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Headers, Message};

use crate::event::{Change, Event, Poison};
use crate::source::Logged;

/// The header with the time of an event: milliseconds since 1970, in decimal digits.
pub const TIME_HEADER: &str = "event-time";
/// The header with the identifier of an event.
pub const ID_HEADER: &str = "event-id";
/// The header with the type of an event: `update`, if the record's value is one.
pub const TYPE_HEADER: &str = "event-type";

/// A record as an event, or why it cannot be an event.
pub(super) fn logged(message: &BorrowedMessage<'_>) -> Logged {
    // The library panics where a header's name is no UTF-8, which Kafka lets pass.
    let event = catch_unwind(AssertUnwindSafe(|| event(message)));
    let event = event.unwrap_or_else(|_| Err("a header has a name that is no UTF-8".to_owned()));
    Logged {
        offset: message.offset().max(0) as u64,
        logged_ms: message.timestamp().to_millis().unwrap_or(0).max(0) as u64,
        event: event.map_err(Poison),
    }
}

fn event(message: &BorrowedMessage<'_>) -> Result<Event, String> {
    let key = message.key().ok_or("the record has no key")?;
    let (mut time_ms, mut id, mut is_update) = (None, None, false);
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    for header in headers {
        let bytes = header.value.unwrap_or_default();
        match header.key {
            TIME_HEADER => {
                let time = str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
                let no_time = || format!("the header {TIME_HEADER} is no number of milliseconds since 1970");
                time_ms = Some(time.ok_or_else(no_time)?);
            }
            ID_HEADER => id = Some(Bytes::copy_from_slice(bytes)),
            TYPE_HEADER if bytes == b"update" => is_update = true,
            TYPE_HEADER => {
                let found = String::from_utf8_lossy(bytes);
                return Err(format!(
                    "the header {TYPE_HEADER} is {found:?}: it can only be \"update\""
                ));
            }
            _ => {}
        }
    }
    let value = message.payload().map(Bytes::copy_from_slice);
    let change = match (is_update, value) {
        (false, value) => Change::of(value),
        (true, Some(text)) => Change::Update(text),
        (true, None) => return Err("an update without a value".to_owned()),
    };
    let key = Bytes::copy_from_slice(key);
    Ok(Event {
        key,
        change,
        time_ms,
        id,
    })
}
