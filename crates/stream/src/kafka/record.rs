//! Records of Kafka as events.

use std::ffi::CStr;
use std::ptr;

use bytes::Bytes;
use rdkafka::bindings::rd_kafka_header_get_all;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers, Message};
use rdkafka::types::RDKafkaRespErr;

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
    Logged {
        offset: message.offset().max(0) as u64,
        logged_ms: message.timestamp().to_millis().unwrap_or(0).max(0) as u64,
        event: event(message).map_err(Poison),
    }
}

fn event(message: &BorrowedMessage<'_>) -> Result<Event, String> {
    let key = message.key().ok_or("the record has no key")?;
    let (mut time_ms, mut id, mut is_update) = (None, None, false);
    let headers = message.headers().into_iter().flat_map(named);
    for (name, bytes) in headers {
        match name {
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

/// The headers, those without a value with an empty one. Those whose name is no UTF-8 are left out: Kafka lets them
/// pass, and the library's own iterator panics.
pub(crate) fn named(headers: &BorrowedHeaders) -> impl Iterator<Item = (&str, &[u8])> {
    let header = |at| {
        let (mut name, mut value, mut bytes) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the library makes such a reference from librdkafka's pointer to headers, which live as long. It
        // writes to the three variables: a name that ends with a zero, a value, and the value's length. Both live as
        // long as the headers.
        unsafe {
            let all = ptr::from_ref(headers).cast();
            let error = rd_kafka_header_get_all(all, at, &mut name, &mut value, &mut bytes);
            if error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                return None;
            }
            let value = if value.is_null() {
                &[][..]
            } else {
                std::slice::from_raw_parts(value.cast::<u8>(), bytes)
            };
            Some((CStr::from_ptr(name).to_str().ok()?, value))
        }
    };
    (0..headers.count()).filter_map(header)
}
