//! The Redis protocol, versions 2 and 3, and the commands of a fondaco server.
//!
//! Pure parsing and formatting: no I/O, no clock, no server. Its parts:
//!
//! - [`parse_request`] finds requests in the bytes of a client, without copying or allocating;
//! - [`Reply`] writes replies, in the version of the protocol that the connection uses;
//! - [`parse_reply`] finds replies in the bytes of a server;
//! - [`command`] is the table of commands: their names, arguments and descriptions.
//!
//! ```
//! use fondaco_resp::{Arguments, Limits, Parse, parse_request};
//!
//! let buffer = b"*2\r\n$3\r\nGET\r\n$7\r\npymk:42\r\n";
//! let mut arguments = Arguments::new();
//! let parsed = parse_request(buffer, &Limits::default(), &mut arguments)?;
//! assert_eq!(parsed, Parse::Complete { consumed: buffer.len() });
//! assert_eq!(arguments.get(1, buffer), Some(&b"pymk:42"[..]));
//! # Ok::<(), fondaco_resp::ProtocolError>(())
//! ```

#![forbid(unsafe_code)]

mod arguments;
pub mod command;
mod decimal;
mod error;
mod glob;
mod inline;
mod limits;
mod reply;
mod reply_parser;
mod request;
mod skip;

pub use arguments::Arguments;
pub use decimal::parse_integer;
pub use error::ProtocolError;
pub use glob::glob_matches;
pub use limits::{Limits, UNAUTHENTICATED_ARGUMENTS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX};
pub use reply::{Protocol, Reply};
pub use reply_parser::{Place, ReplyError, ReplyItem, ReplyItems, ReplyParse, parse_reply};
pub use request::{Parse, parse_request};
pub use skip::Skip;
