//! The types of keys and values: records read back as the columns that they were built from.
//!
//! - [`canonical`] and [`type_text`]: the one form of an Arrow type that the manifest has, whichever reader the input had;
//! - [`TypedSchema`]: the Arrow schema of a store's rows, from the manifest;
//! - [`Decoder`]: keys and values, which are text, bytes or JSON, to a [`RecordBatch`](arrow_array::RecordBatch).
//!
//! It is not the encoder: `fondaco-builder` writes values (`input/as_text.rs`), and a test builds and decodes every type.
//!
//! Invariants: a decoded value is the value of the input, bit for bit, except for what `docs/export.md` lists; text that is no
//! value of its type is an error that names key, column and text, never another value and never null.
//!
//! ```
//! use fondaco_format::{Column, Schema, ValueEncoding};
//! use fondaco_model::ValueType;
//! use fondaco_typed::TypedSchema;
//!
//! let column = |name: &str, r#type: &str| Column { name: name.into(), r#type: r#type.into() };
//! let schema = Schema {
//!     key: column("member", "Int64"),
//!     values: vec![column("age", "Int32"), column("joined", "Date32")],
//!     encoding: ValueEncoding::Json,
//! };
//! let decoder = TypedSchema::of(&schema, ValueType::Bytes).decoder();
//! let batch = decoder.decode(&["7", "8"], &[Some(r#"{"age":41,"joined":"2026-01-31"}"#), None])?;
//! assert_eq!((batch.num_rows(), batch.num_columns()), (2, 3));
//! # Ok::<(), fondaco_typed::DecodeError>(())
//! ```

mod canonical;
mod declared;
mod decoder;
mod error;
mod json;
mod parse;
mod scalar;
mod schema;
mod time;

pub use canonical::{JSON_TEXT, UUID, canonical, is_uuid, type_text};
pub use decoder::Decoder;
pub use error::DecodeError;
pub use parse::{UnknownType, parse_type};
pub use schema::TypedSchema;
