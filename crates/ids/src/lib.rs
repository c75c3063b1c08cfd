//! Sorted sets of unsigned 63-bit integers as compressed values, and set operations on many such values.
//!
//! A value is written by [`encode`] and read through an [`IdSet`], a view that copies nothing. Equal sets are equal bytes.
//! Operations take views and a [`Budget`], which bounds the length of the result and lets the caller stop at a deadline.
//! The results of several partitions are merged to the result over all sets:
//!
//! | operation | result of one partition | merged by |
//! |---|---|---|
//! | [`union`] | the union of its sets | [`union`] |
//! | [`intersection`] | the intersection of its sets | [`intersection`] |
//! | [`difference`] | the first set minus its sets; elsewhere the [`union`] of its sets | [`difference`] of the first from the others |
//! | [`top`] | [`multiplicities`], encoded by [`encode_multiplicities`] | [`merge_multiplicities`], then [`top`] |
//!
//! [`SetQuery`] and [`Computation`] do that for keys that are divided in any way. Numbers of ids cannot be added up, because
//! an id may be in sets of several partitions: the number is that of the merged result.
//!
//! ```
//! use fondaco_ids::{Budget, IdSet, encode, intersection};
//!
//! let (a, b) = (encode(&[1, 5, 9])?, encode(&[5, 9, 12])?);
//! let sets = [IdSet::parse(&a)?, IdSet::parse(&b)?];
//! let common = intersection(&sets, &mut Budget::of_ids(1000))?;
//! assert_eq!(common, [5, 9]);
//! # Ok::<(), fondaco_ids::IdsError>(())
//! ```
//!
//! No I/O, no clock, no threads.

mod bits;
mod budget;
mod counted;
mod cursor;
mod encode;
mod error;
mod filter;
mod members;
mod merge;
mod packing;
mod query;
mod text;
mod view;

pub use budget::Budget;
pub use counted::{
    Multiplicity, encode_multiplicities, merge_multiplicities, multiplicities, parse_multiplicities, top,
};
pub use cursor::Iter;
pub use encode::encode;
pub use error::IdsError;
pub use filter::{difference, intersection, intersects, membership};
pub use members::Members;
pub use merge::union;
pub use query::{Computation, InvalidComputation, Partial, SetAnswer, SetQuery};
pub use text::parse_text;
pub use view::IdSet;

/// The largest id: ids have 63 bits, so that they fit signed integers of 64 bits, too.
pub const ID_MAX: u64 = (1 << 63) - 1;
